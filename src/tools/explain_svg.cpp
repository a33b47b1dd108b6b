// The plan as a graph and the arena over time, as SVG.
#include "tools/explain_svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "tools/page.hpp"
#include "tools/printable.hpp"

namespace rlx::tools {
namespace {

constexpr double box_width = 236, box_height = 40, column = 258, layer = 74, margin = 20;
/// Boxes of a layer side by side; more of them stand in further rows.
constexpr std::size_t most_columns = 12;

/// A box of the graph: a kernel, or an input or output of the program.
struct Box {
  std::string title, text, hint;
  std::string_view colour;
  bool rounded = false;
  int depth = 0;
  double x = 0, y = 0;
  std::vector<std::pair<int, int>> sources;  ///< box and buffer
};

class GraphLayout {
 public:
  explicit GraphLayout(const Report& report) : report_(report), plan_(report.plan) {
    add_boxes();
    place();
  }

  std::string draw() const {
    std::string arrows, boxes;
    for (const Box& box : boxes_) {
      for (const auto& [source, buffer] : box.sources) arrows += arrow(source, box, buffer);
      boxes += rectangle(box);
    }
    return fmt::format(
        R"(<svg width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}">)"
        R"(<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" )"
        R"(markerHeight="6" orient="auto"><path d="M0 0L8 4L0 8z" class="tip"/></marker></defs>)"
        "{2}{3}</svg>",
        width_, height_, arrows, boxes);
  }

 private:
  void add_boxes() {
    std::map<int, int> made_by;  // buffer -> box that wrote it last
    for (std::size_t i = 0; i < plan_.buffers.size(); ++i) {
      const Explanation::Buffer& buffer = plan_.buffers[i];
      if (buffer.storage != "input") continue;
      made_by[static_cast<int>(i)] = static_cast<int>(boxes_.size());
      boxes_.push_back({.title = buffer.name,
                        .text = buffer.dtype + ", " + size_text(static_cast<double>(buffer.bytes)),
                        .hint = "input " + buffer.name,
                        .colour = "#e8eef7",
                        .rounded = true});
    }
    for (std::size_t i = 0; i < plan_.kernels.size(); ++i) add_kernel(i, made_by);
    for (const auto& [buffer, box] : made_by) {
      const Explanation::Buffer& data = plan_.buffers[static_cast<std::size_t>(buffer)];
      const bool lives_on =
          data.storage == "arena" && data.last_kernel >= static_cast<int>(plan_.kernels.size());
      if (!lives_on) continue;
      Box output{.title = data.name,
                 .text = data.dtype + ", " + size_text(static_cast<double>(data.bytes)),
                 .hint = "output " + data.name,
                 .colour = "#e3f2e6",
                 .rounded = true,
                 .depth = boxes_[static_cast<std::size_t>(box)].depth + 1};
      output.sources.emplace_back(box, buffer);
      boxes_.push_back(std::move(output));
    }
  }

  void add_kernel(std::size_t index, std::map<int, int>& made_by) {
    const Explanation::Kernel& kernel = plan_.kernels[index];
    std::string times = time_text(kernel.predicted_us);
    if (report_.is_measured()) times += " / " + time_text(report_.measured_us[index]);
    Box box{.title = fmt::format("{} {}  {}", index, kernel.name, times),
            .text = shortened(printable(kernel.region), 36),
            .hint = fmt::format("kernel {}: {}\n{}\n{} threads, {:.3f} MFLOP, {}, limit: {}", index,
                                kernel.name, kernel.region, kernel.threads, kernel.flops / 1e6,
                                size_text(kernel.bytes), kernel.bound),
            .colour = colour_of(kernel.name)};
    for (const int buffer : kernel.reads) {
      const auto maker = made_by.find(buffer);
      if (maker == made_by.end()) continue;
      box.sources.emplace_back(maker->second, buffer);
      box.depth = std::max(box.depth, boxes_[static_cast<std::size_t>(maker->second)].depth + 1);
    }
    for (const int buffer : kernel.writes) made_by[buffer] = static_cast<int>(boxes_.size());
    boxes_.push_back(std::move(box));
  }

  /// Layers by the longest path; within a layer each box near the middle of what it reads.
  void place() {
    std::map<int, std::vector<int>> layers;
    for (std::size_t i = 0; i < boxes_.size(); ++i)
      layers[boxes_[i].depth].push_back(static_cast<int>(i));
    std::size_t widest = 1;
    for (const auto& [depth, members] : layers) widest = std::max(widest, members.size());
    width_ = 2 * margin + static_cast<double>(std::min(widest, most_columns)) * column;
    width_ = std::max(width_, 2 * margin + 3 * column);
    double y = margin;
    for (auto& [depth, members] : layers) {
      std::map<int, double> wanted;
      for (const int index : members)
        wanted[index] = wanted_x(boxes_[static_cast<std::size_t>(index)]);
      std::stable_sort(members.begin(), members.end(),
                       [&](int a, int b) { return wanted[a] < wanted[b]; });
      // As many rows as it takes, and in each what wants to stand near each other.
      const std::size_t rows = (members.size() + most_columns - 1) / most_columns;
      for (std::size_t row = 0; row < rows; ++row, y += layer) {
        std::vector<int> side_by_side;
        for (std::size_t i = row; i < members.size(); i += rows) side_by_side.push_back(members[i]);
        spread(side_by_side, wanted, y);
      }
    }
    height_ = y - layer + box_height + margin;
  }

  double wanted_x(const Box& box) const {
    if (box.sources.empty()) return width_ / 2;
    double sum = 0;
    for (const auto& [source, buffer] : box.sources)
      sum += boxes_[static_cast<std::size_t>(source)].x;
    return sum / static_cast<double>(box.sources.size());
  }

  void spread(const std::vector<int>& members, const std::map<int, double>& wanted, double y) {
    double middle = 0;
    for (const int index : members) middle += wanted.at(index);
    middle /= static_cast<double>(members.size());
    const double half = column * static_cast<double>(members.size() - 1) / 2;
    const double edge = margin + box_width / 2;
    middle = std::clamp(middle, std::min(edge + half, width_ / 2),
                        std::max(width_ - edge - half, width_ / 2));
    double x = middle - half;
    for (const int index : members) {
      Box& box = boxes_[static_cast<std::size_t>(index)];
      box.x = x;
      box.y = y;
      x += column;
    }
  }

  std::string arrow(int source, const Box& to, int buffer) const {
    const Box& from = boxes_[static_cast<std::size_t>(source)];
    const Explanation::Buffer& data = plan_.buffers[static_cast<std::size_t>(buffer)];
    const double y0 = from.y + box_height, y1 = to.y;
    const double bend = std::min(60.0, (y1 - y0) / 2 + 6);
    const double thick =
        std::clamp(std::log10(static_cast<double>(data.bytes) + 1) - 2.0, 0.7, 5.0);
    return fmt::format(
        R"(<path class="edge" d="M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}" )"
        R"(stroke-width="{:.1f}" marker-end="url(#tip) "><title>{} ({})</title></path>)",
        from.x, y0, from.x, y0 + bend, to.x, y1 - bend, to.x, y1, thick, escaped(data.name),
        size_text(static_cast<double>(data.bytes)));
  }

  static std::string rectangle(const Box& box) {
    const double x = box.x - box_width / 2, y = box.y;
    return fmt::format(
        R"(<g><title>{}</title><rect x="{:.1f}" y="{:.1f}" width="{}" height="{}" rx="{}" )"
        R"(fill="{}" class="box"/><text x="{:.1f}" y="{:.1f}" class="head">{}</text>)"
        R"(<text x="{:.1f}" y="{:.1f}" class="body">{}</text></g>)",
        escaped(box.hint), x, y, box_width, box_height, box.rounded ? 18 : 5, box.colour, x + 10,
        y + 16, escaped(shortened(printable(box.title), 36)), x + 10, y + 32, escaped(box.text));
  }

  const Report& report_;
  const Explanation& plan_;
  std::vector<Box> boxes_;
  double width_ = 0, height_ = 0;
};

}  // namespace

std::string graph_picture(const Report& report) { return GraphLayout(report).draw(); }

namespace {

/// From kernels and offsets to points of the arena's picture.
struct ArenaScale {
  double steps, bytes, wide, step;
  static constexpr double left = 70, top = 12, height = 360, bottom = 34;

  explicit ArenaScale(const Explanation& plan)
      : steps(static_cast<double>(std::max<std::size_t>(plan.kernels.size(), 1))),
        bytes(static_cast<double>(std::max<std::int64_t>(plan.memory.arena_bytes, 1))),
        wide(std::clamp(steps * 16, 900.0, 3600.0)),
        step(wide / steps) {}
  double x(double kernel) const { return left + kernel * step; }
  double y(double offset) const { return top + height * (1 - offset / bytes); }
};

std::string life_of(const Explanation::Buffer& buffer, const Explanation& plan,
                    const ArenaScale& scale) {
  const double first = std::max(buffer.first_kernel, 0);
  const double last = std::clamp<double>(buffer.last_kernel, first, scale.steps - 1);
  const double width = (last - first + 1) * scale.step;
  const double tall = scale.height * static_cast<double>(buffer.bytes) / scale.bytes;
  const double x = scale.x(first), y = scale.y(static_cast<double>(buffer.offset)) - tall;
  const auto maker = static_cast<std::size_t>(first);
  const std::string_view colour =
      maker < plan.kernels.size() ? colour_of(plan.kernels[maker].name) : "#cfd8c4";
  std::string svg = fmt::format(
      R"(<g><title>{} ({}, {})&#10;bytes {} to {}, kernels {} to {}</title>)"
      R"(<rect x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}" fill="{}" class="life"/>)",
      escaped(buffer.name), buffer.dtype, size_text(static_cast<double>(buffer.bytes)),
      buffer.offset, buffer.offset + buffer.bytes, first, last, x, y, width, std::max(tall, 0.6),
      colour);
  if (tall > 12 && width > 60) {
    svg += fmt::format(
        R"(<text x="{:.1f}" y="{:.1f}" class="small">{}</text>)", x + 4,
        y + std::min(tall - 3, 12.0),
        escaped(shortened(printable(buffer.name), static_cast<std::size_t>(width / 7))));
  }
  return svg + "</g>";
}

std::string live_line(const Explanation& plan, const ArenaScale& scale) {
  std::string path;
  const std::vector<std::int64_t> live = live_bytes(plan);
  for (std::size_t i = 0; i < live.size(); ++i) {
    const double y = scale.y(static_cast<double>(live[i]));
    path += i == 0 ? fmt::format("M{:.1f} {:.1f}", scale.left, y) : fmt::format("V{:.1f}", y);
    path += fmt::format("H{:.1f}", scale.x(static_cast<double>(i + 1)));
  }
  const double bound = scale.y(static_cast<double>(plan.memory.arena_lower_bound_bytes));
  return fmt::format(R"(<path d="{}" class="live"><title>live bytes</title></path>)"
                     R"(<line x1="{}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}" class="bound"/>)",
                     path, scale.left, scale.left + scale.wide, bound, bound);
}

std::string arena_axes(const ArenaScale& scale) {
  std::string svg;
  for (int i = 0; i <= 4; ++i) {
    svg += fmt::format(R"(<text x="{}" y="{:.1f}" class="axis" text-anchor="end">{}</text>)",
                       scale.left - 6, scale.y(scale.bytes * i / 4) + 4,
                       size_text(scale.bytes * i / 4));
  }
  const int every = std::max(1, static_cast<int>(std::ceil(40 / scale.step)));
  for (int i = 0; i < static_cast<int>(scale.steps); i += every) {
    svg += fmt::format(R"(<text x="{:.1f}" y="{:.1f}" class="axis" text-anchor="middle">{}</text>)",
                       scale.x(i + 0.5), scale.top + scale.height + 16, i);
  }
  return svg + fmt::format(R"(<text x="{:.1f}" y="{:.1f}" class="axis">kernel</text>)",
                           scale.left + scale.wide / 2, scale.top + scale.height + 31);
}

}  // namespace

std::string arena_picture(const Report& report) {
  const ArenaScale scale(report.plan);
  std::string svg = fmt::format(
      R"(<svg width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}">)"
      R"(<defs><pattern id="waste" width="6" height="6" patternUnits="userSpaceOnUse" )"
      R"(patternTransform="rotate(45 0 0) "><rect width="6" height="6" fill="#fff"/>)"
      R"(<line x1="0" y1="0" x2="0" y2="6" class="hatch"/></pattern></defs>)"
      R"(<rect x="{2}" y="{3}" width="{4:.1f}" height="{5}" fill="url(#waste) " class="frame"/>)",
      scale.left + scale.wide + 20, scale.top + scale.height + scale.bottom, scale.left, scale.top,
      scale.wide, scale.height);
  for (const Explanation::Buffer& buffer : report.plan.buffers) {
    if (buffer.storage == "arena" && buffer.bytes > 0) svg += life_of(buffer, report.plan, scale);
  }
  return svg + live_line(report.plan, scale) + arena_axes(scale) + "</svg>";
}

}  // namespace rlx::tools
