// The chart: logarithmic axes, a roof for arithmetic and one for each level of memory, a disc for
// each kernel, and the list of those that lose the most time.
#include "tools/roofline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>

#include "base/error.hpp"
#include "tools/canvas.hpp"
#include "tools/explain.hpp"
#include "tools/page.hpp"

namespace rlx::tools {
namespace {

using Align = Canvas::Align;
using Colour = Canvas::Colour;

constexpr Colour ink{29, 36, 48}, soft{102, 112, 133}, grid{228, 231, 237}, roof{45, 108, 223},
    bar{217, 219, 224}, lost{179, 38, 30};
constexpr int width = 1000, chart_height = 470, row_height = 16, rows_shown = 10;
constexpr double left = 70, right = width - 20, top = 46, bottom = chart_height - 46;

Colour parsed(std::string_view hex) {
  const auto part = [&](std::size_t at) {
    return static_cast<std::uint8_t>(std::stoi(std::string(hex.substr(at, 2)), nullptr, 16));
  };
  return {part(1), part(3), part(5)};
}

std::string cut(const std::string& text, std::size_t most) {
  return text.size() <= most ? text : text.substr(0, most - 3) + "...";
}

/// A kernel's place: operations a byte, and GFLOP/s.
struct Place {
  double intensity, speed;
};

Place place_of(const KernelProfile& kernel) {
  return {kernel.flops / std::max(kernel.bytes, 1.0),
          kernel.flops / std::max(kernel.median_us, 1e-3) * 1e-3};
}

class Roofline {
 public:
  Roofline(const std::vector<KernelProfile>& kernels, const MachinePeaks& peaks)
      : kernels_(kernels), peaks_(peaks) {
    for (const KernelProfile& kernel : kernels) {
      threads_ = std::max(threads_, kernel.threads);
      products_.insert(kernel.products);
      total_us_ += kernel.median_us;
      limit_us_ += peaks_.least_us(kernel);
      if (kernel.flops <= 0) continue;
      const Place place = place_of(kernel);
      low_x_ = std::min(low_x_, place.intensity), high_x_ = std::max(high_x_, place.intensity);
      low_y_ = std::min(low_y_, place.speed);
    }
    high_y_ = 2 * peak(threads_, *products_.rbegin());
    // Whole powers of ten at the lower ends, so that the first line of the grid is there.
    low_x_ = std::pow(10, std::floor(std::log10(std::max(low_x_, 1e-4))));
    low_y_ = std::pow(10, std::floor(std::log10(std::clamp(low_y_, 1e-4, high_y_ / 10))));
    high_x_ = std::max(2 * high_x_, 100.0);
  }

  static int height() { return chart_height + (rows_shown + 3) * row_height; }

  void draw(Canvas& canvas, const std::string& title) const {
    canvas.text(left, 8, cut(title, 100), ink, Align::left);
    canvas.text(left, 24,
                fmt::format("{} kernels take {}; at their limits {} ({:.0f} %). A disc is a kernel,"
                            " its area the time that it takes.",
                            kernels_.size(), time_text(total_us_), time_text(limit_us_),
                            100 * limit_us_ / std::max(total_us_, 1e-3)),
                soft, Align::left);
    draw_grid(canvas);
    draw_roofs(canvas);
    draw_kernels(canvas);
    draw_worst(canvas);
  }

 private:
  /// GFLOP/s
  double peak(int threads, int products) const {
    return peaks_.flops_per_us * threads * products * 1e-3;
  }
  /// GB/s of level i: caches are each core's own, memory is shared.
  double bandwidth(std::size_t i) const {
    const bool is_memory = i + 1 == peaks_.reads.size();
    return peaks_.reads[i].bytes_per_us * (is_memory ? 1 : threads_) * 1e-3;
  }

  double x_of(double intensity) const {
    return left + (right - left) * std::log(intensity / low_x_) / std::log(high_x_ / low_x_);
  }
  double y_of(double speed) const {
    return bottom - (bottom - top) * std::log(speed / low_y_) / std::log(high_y_ / low_y_);
  }

  void draw_grid(Canvas& canvas) const {
    for (double x = low_x_; x <= high_x_; x *= 10) {
      canvas.line(x_of(x), top, x_of(x), bottom, grid, 1);
      canvas.text(x_of(x), bottom + 6, picture::number(x), soft, Align::middle);
    }
    for (double y = low_y_; y <= high_y_; y *= 10) {
      canvas.line(left, y_of(y), right, y_of(y), grid, 1);
      canvas.text(left - 6, y_of(y) - 4, picture::number(y), soft, Align::right);
    }
    canvas.text((left + right) / 2, bottom + 24, "FLOPs for each byte read or written", soft,
                Align::middle);
    canvas.text(8, top - 20, "GFLOP/s", soft, Align::left);
  }

  /// The roof of one core and of all, and with all those of narrower elements where they are used.
  void draw_roofs(Canvas& canvas) const {
    if (threads_ > 1) draw_roof(canvas, 1, 1);
    for (const int products : products_) draw_roof(canvas, threads_, products);
    const double highest = peak(threads_, *products_.rbegin());
    double lowest = top;
    for (std::size_t i = 0; i < peaks_.reads.size(); ++i) {
      const double rate = bandwidth(i);
      const double begin = std::max(low_x_, low_y_ / rate), end = highest / rate;
      if (begin >= end) continue;
      canvas.line(x_of(begin), y_of(begin * rate), x_of(end), y_of(highest), roof, 1);
      // Below the lower end of its line and the label before.
      lowest = std::max(lowest, y_of(begin * rate) + 3);
      canvas.text(x_of(begin) + 4, lowest, fmt::format("{} {:.0f} GB/s", level_name(i), rate), roof,
                  Align::left);
      lowest += 12;
    }
  }

  void draw_roof(Canvas& canvas, int threads, int products) const {
    const double speed = peak(threads, products), y = y_of(speed);
    canvas.line(x_of(std::clamp(speed / bandwidth(0), low_x_, high_x_)), y, right, y, roof,
                threads == threads_ ? 1.5 : 0.5);
    canvas.text(right, y - 12,
                fmt::format("{} core{}: {:.0f} GFLOP/s ({})", threads, threads == 1 ? "" : "s",
                            speed, elements_of(products)),
                roof, Align::right);
  }

  static std::string_view elements_of(int products) {
    switch (products) {
      case 1: return "f32";
      case 2: return "16 bits";
      case 4: return "8 bits";
      case 16: return "tiles of 16 bits";
      default: return "tiles of 8 bits";
    }
  }

  std::string level_name(std::size_t i) const {
    if (i + 1 == peaks_.reads.size()) return "memory";
    return fmt::format("{} KiB", peaks_.reads[i].working_set_bytes / 1024);
  }

  void draw_kernels(Canvas& canvas) const {
    std::vector<const KernelProfile*> order;
    for (const KernelProfile& kernel : kernels_) {
      if (kernel.flops > 0) order.push_back(&kernel);
    }
    std::ranges::stable_sort(order, std::greater(), &KernelProfile::median_us);
    for (const KernelProfile* kernel : order) {
      const Place place = place_of(*kernel);
      const double share = kernel->median_us / std::max(total_us_, 1e-3);
      canvas.disc(x_of(place.intensity), y_of(std::min(place.speed, high_y_)),
                  2.5 + 22 * std::sqrt(share), parsed(colour_of(kernel->name)),
                  fmt::format("{} [{}]: {}\n{} ({:.1f} % of the run), {:.1f} GFLOP/s, {:.0f} % of "
                              "its limit ({})",
                              kernel->name, kernel->shape, kernel->region,
                              time_text(kernel->median_us), 100 * share, place.speed,
                              100 * peaks_.least_us(*kernel) / std::max(kernel->median_us, 1e-3),
                              limit_of(*kernel)));
    }
  }

  std::string limit_of(const KernelProfile& kernel) const {
    return peaks_.bound_by_bytes(kernel) ? "bytes" : "arithmetic";
  }

  void draw_worst(Canvas& canvas) const {
    std::vector<const KernelProfile*> order;
    for (const KernelProfile& kernel : kernels_) order.push_back(&kernel);
    const auto loss = [&](const KernelProfile* kernel) {
      return kernel->median_us - peaks_.least_us(*kernel);
    };
    std::ranges::stable_sort(order, std::greater(), loss);
    double y = chart_height;
    canvas.text(left, y,
                "Where the most time is lost to the limit: time, share of the limit, what sets it, "
                "kernel",
                ink, Align::left);
    const double longest = order.empty() ? 1 : std::max(order.front()->median_us, 1e-3);
    for (std::size_t i = 0; i < std::min<std::size_t>(order.size(), rows_shown); ++i) {
      const KernelProfile& kernel = *order[i];
      y += row_height;
      constexpr double bar_left = 130, bar_width = 110;
      const double scale = bar_width / std::max(longest, kernel.median_us);
      const double limit = std::min(peaks_.least_us(kernel), kernel.median_us);
      canvas.text(bar_left - 8, y, time_text(kernel.median_us), ink, Align::right);
      canvas.rectangle(bar_left, y, kernel.median_us * scale, 9, lost);
      canvas.rectangle(bar_left, y, limit * scale, 9, bar);
      canvas.text(bar_left + bar_width + 8, y,
                  cut(fmt::format("{:>3.0f} % {}  {} [{}] {}",
                                  100 * peaks_.least_us(kernel) / std::max(kernel.median_us, 1e-3),
                                  limit_of(kernel), kernel.name, kernel.shape, kernel.region),
                      118),
                  ink, Align::left);
    }
    canvas.text(left, y + row_height + 4, note(), soft, Align::left);
  }

  std::string note() const {
    const auto idle = std::ranges::count_if(
        kernels_, [](const KernelProfile& kernel) { return kernel.flops <= 0; });
    return fmt::format("Grey: the least time, red: lost. {}",
                       idle == 0 ? ""
                                 : fmt::format("{} kernel{} without arithmetic {} no disc.", idle,
                                               idle == 1 ? "" : "s", idle == 1 ? "has" : "have"));
  }

  const std::vector<KernelProfile>& kernels_;
  const MachinePeaks& peaks_;
  int threads_ = 1;
  std::set<int> products_ = {1};
  double total_us_ = 0, limit_us_ = 0;
  double low_x_ = 1, high_x_ = 10, low_y_ = std::numeric_limits<double>::max(), high_y_ = 100;
};

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() > end.size() && text.ends_with(end);
}

}  // namespace

bool is_roofline_file(const std::string& file) {
  return ends_with(file, ".png") || ends_with(file, ".html");
}

Status write_roofline(const std::string& file, const std::string& title,
                      const std::vector<KernelProfile>& kernels, const MachinePeaks& peaks) {
  const Roofline chart(kernels, peaks);
  if (ends_with(file, ".png")) {
    PngCanvas canvas(width, Roofline::height());
    chart.draw(canvas, title);
    if (!canvas.write(file)) return bad_input("The file ({}) cannot be written.", file);
    return {};
  }
  SvgCanvas canvas(width, Roofline::height());
  chart.draw(canvas, title);
  const std::string section =
      page_section("Roofline", "A pointer over a disc names its kernel and what holds it back.",
                   std::move(canvas).take());
  return write_text(file, page_of(title, "", section));
}

}  // namespace rlx::tools
