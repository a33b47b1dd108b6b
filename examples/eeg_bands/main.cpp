// The rhythms of an EEG: power in the classical bands and the strongest rhythm of each channel of
// an .edf or .bdf file, as a table and as a picture.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include <rlx/rlx.hpp>

#include "eeg_bands/analysis.hpp"
#include "picture/picture.hpp"

namespace eeg_bands {
namespace {

using rlx::picture::Align;
using rlx::picture::Colour;
using rlx::picture::Picture;

constexpr Colour ink{40, 44, 52}, paper{255, 255, 255}, faint{150, 156, 168}, grid{228, 231, 236};
constexpr std::array<Colour, band_count> colours{
    {{68, 84, 150}, {46, 134, 160}, {84, 164, 96}, {226, 166, 58}, {202, 84, 78}}};
constexpr int margin = 24, label_width = 130, bar_width = 420, gap = 90, curve_width = 620;
constexpr int row_height = 30, top = 110, bottom = 70;
constexpr double shown_hz = 50;

void print_table(const Report& report) {
  std::printf("%-16s", "channel");
  for (const Band& band : bands) std::printf(" %16s", band.name);
  std::printf("  strongest rhythm\n%-16s", "");
  for (const Band& band : bands) {
    const std::string range =
        rlx::picture::number(band.low) + "-" + rlx::picture::number(band.high) + " Hz";
    std::printf(" %16s", range.c_str());
  }
  std::printf("\n");
  for (const ChannelReport& channel : report.channels) {
    std::printf("%-16.16s", channel.label.c_str());
    for (std::size_t b = 0; b < band_count; ++b) {
      std::printf(" %9.3g (%3.0f%%)", channel.power[b],
                  100 * channel.power[b] / std::max(channel.total(), 1e-300));
    }
    std::printf("  %5.2f Hz\n", channel.rhythm_hz);
  }
  std::printf(
      "Powers in %s^2; the strongest rhythm is that of power times frequency, which evens "
      "out the fall towards high frequencies.\n",
      report.unit.c_str());
}

/// Shares of the bands as one bar for each channel.
void draw_bars(Picture& page, const Report& report) {
  const int x0 = margin + label_width;
  int y = top;
  for (const ChannelReport& channel : report.channels) {
    page.text(x0 - 10, y + 8, channel.label.substr(0, 10), ink, 2, Align::right);
    double sum = 0;
    for (std::size_t b = 0; b < band_count; ++b) {
      const auto at = [&](double power) {
        return static_cast<int>(std::lround(power / std::max(channel.total(), 1e-300) * bar_width));
      };
      page.rectangle(x0 + at(sum), y + 2, at(sum + channel.power[b]) - at(sum), row_height - 4,
                     colours[b]);
      sum += channel.power[b];
    }
    y += row_height;
  }
  for (int percent = 0; percent <= 100; percent += 25) {
    const int x = x0 + percent * bar_width / 100;
    page.rectangle(x, y, 1, 8, ink);
    page.text(x, y + 14, std::to_string(percent), ink, 2, Align::middle);
  }
  page.text(x0 + bar_width / 2, y + 40, "share of power (%)", ink, 2, Align::middle);
  int x = x0;
  for (std::size_t b = 0; b < band_count; ++b) {
    page.rectangle(x, 72, 14, 14, colours[b]);
    page.text(x + 20, 72, bands[b].name, ink);
    x += 34 + 12 * static_cast<int>(std::string(bands[b].name).size());
  }
}

/// log10 of each channel's density over frequency, the strongest rhythm marked.
void draw_curves(Picture& page, const Report& report) {
  const int x0 = margin + label_width + bar_width + gap;
  const double hz_max = std::min(shown_hz, report.hz_of(report.bins - 1));
  const auto x_of = [&](double hz) {
    return x0 + static_cast<int>(std::lround(hz / hz_max * curve_width));
  };
  const int height = row_height * static_cast<int>(report.channels.size());
  page.rectangle(x0, top, curve_width, height, {248, 249, 251});
  for (double hz = 0; hz <= hz_max + 1e-9; hz += 10) {
    page.rectangle(x_of(hz), top, 1, height, grid);
    page.rectangle(x_of(hz), top + height, 1, 8, ink);
    page.text(x_of(hz), top + height + 14, rlx::picture::number(hz), ink, 2, Align::middle);
  }
  int y = top;
  for (const ChannelReport& channel : report.channels) {
    double low = INFINITY, high = -INFINITY;
    std::vector<double> levels;
    for (std::size_t bin = 1; bin < channel.density.size(); ++bin) {
      if (report.hz_of(static_cast<std::int64_t>(bin)) > hz_max) break;
      levels.push_back(std::log10(std::max(channel.density[bin], 1e-30)));
      low = std::min(low, levels.back());
      high = std::max(high, levels.back());
    }
    const auto y_of = [&](double level) {
      return y + row_height - 3 - (level - low) / std::max(high - low, 1e-9) * (row_height - 6);
    };
    page.rectangle(x0, y + row_height - 1, curve_width, 1, grid);
    page.rectangle(x_of(channel.rhythm_hz) - 1, y + 2, 3, row_height - 4, {240, 184, 176});
    for (std::size_t i = 0; i + 1 < levels.size(); ++i) {
      const auto bin = static_cast<std::int64_t>(i + 1);
      page.line(x_of(report.hz_of(bin)), y_of(levels[i]), x_of(report.hz_of(bin + 1)),
                y_of(levels[i + 1]), colours[0], 2);
    }
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.1f Hz", channel.rhythm_hz);
    page.text(x0 + curve_width + 12, y + 8, text.data(), colours[4]);
    y += row_height;
  }
  page.frame(x0, top, curve_width, height, faint);
  page.text(x0 + curve_width / 2, y + 40, "frequency (Hz)", ink, 2, Align::middle);
  page.text(x0, 72, "log density of each channel, strongest rhythm marked", ink);
}

bool draw(const Report& report, const std::string& file) {
  const int height = top + row_height * static_cast<int>(report.channels.size()) + bottom;
  Picture page(margin + label_width + bar_width + gap + curve_width + 130, height, paper);
  page.text(margin, 18, "EEG bands", ink, 3);
  page.text(margin + 190, 26,
            std::to_string(report.channels.size()) + " channels, " +
                rlx::picture::number(report.seconds) + " s at " +
                rlx::picture::number(static_cast<double>(report.sample_rate)) + " Hz",
            faint);
  draw_bars(page, report);
  draw_curves(page, report);
  return page.write_png(file);
}

int run(const std::string& file, const std::string& picture) {
  const auto fails = [](const std::string& why) {
    std::fprintf(stderr, "eeg_bands: %s\n", why.c_str());
    return 3;
  };
  const auto report = analyse(file);
  if (!report.ok()) return fails(report.error().message);
  print_table(*report);
  if (!draw(*report, picture)) return fails("The picture (" + picture + ") cannot be written.");
  return 0;
}

}  // namespace
}  // namespace eeg_bands

int main(int count, char** arguments) {
  std::string file, picture = "bands.png";
  CLI::App app("Tells the power in the bands of an EEG and each channel's strongest rhythm.");
  app.add_option("RECORDING", file, "An .edf or .bdf file")->required();
  app.add_option("--picture", picture, "The .png file");
  CLI11_PARSE(app, count, arguments);
  try {
    return eeg_bands::run(file, picture);
  } catch (const rlx::Exception& exception) {
    std::fprintf(stderr, "eeg_bands: %s\n", exception.what());
    return 3;
  }
}
