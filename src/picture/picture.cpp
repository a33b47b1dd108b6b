// A picture to draw plots on.
#include "picture/picture.hpp"

#include <png.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "picture/glyphs.hpp"

namespace rlx::picture {

Colour heat(double share) {
  constexpr std::array<std::array<double, 3>, 7> stops{{{8, 6, 40},
                                                        {48, 22, 104},
                                                        {46, 72, 140},
                                                        {32, 124, 140},
                                                        {52, 172, 112},
                                                        {160, 208, 60},
                                                        {252, 236, 120}}};
  if (!(share > 0)) share = 0;
  const double at = std::min(share, 1.0) * (stops.size() - 1);
  const auto low = std::min(static_cast<std::size_t>(at), stops.size() - 2);
  const double rest = at - static_cast<double>(low);
  const auto mixed = [&](std::size_t i) {
    return static_cast<std::uint8_t>(
        std::lround(stops[low][i] * (1 - rest) + stops[low + 1][i] * rest));
  };
  return {mixed(0), mixed(1), mixed(2)};
}

Picture::Picture(int width, int height, Colour background)
    : width_(width), height_(height), pixels_(static_cast<std::size_t>(width * height) * 3) {
  rectangle(0, 0, width, height, background);
}

void Picture::point(int x, int y, Colour colour) {
  if (x < 0 || y < 0 || x >= width_ || y >= height_) return;
  std::uint8_t* at = pixels_.data() + static_cast<std::size_t>(y * width_ + x) * 3;
  at[0] = colour.red;
  at[1] = colour.green;
  at[2] = colour.blue;
}

void Picture::rectangle(int x, int y, int width, int height, Colour colour) {
  for (int j = y; j < y + height; ++j) {
    for (int i = x; i < x + width; ++i) point(i, j, colour);
  }
}

void Picture::frame(int x, int y, int width, int height, Colour colour) {
  rectangle(x, y, width, 1, colour);
  rectangle(x, y + height - 1, width, 1, colour);
  rectangle(x, y, 1, height, colour);
  rectangle(x + width - 1, y, 1, height, colour);
}

void Picture::line(double x0, double y0, double x1, double y1, Colour colour, int thickness) {
  const int steps =
      std::max(1, static_cast<int>(std::ceil(std::max(std::abs(x1 - x0), std::abs(y1 - y0)))));
  for (int i = 0; i <= steps; ++i) {
    const double share = static_cast<double>(i) / steps;
    const int x = static_cast<int>(std::lround(x0 + (x1 - x0) * share));
    const int y = static_cast<int>(std::lround(y0 + (y1 - y0) * share));
    rectangle(x - thickness / 2, y - thickness / 2, thickness, thickness, colour);
  }
}

void Picture::disc(int x, int y, int radius, Colour colour) {
  for (int j = -radius; j <= radius; ++j) {
    const int half = static_cast<int>(std::sqrt(radius * radius - j * j));
    rectangle(x - half, y + j, 2 * half + 1, 1, colour);
  }
}

void Picture::glyph(int x, int y, char c, Colour colour, int scale, bool vertical) {
  const std::array<std::uint8_t, 5>& columns = glyph_of(c);
  for (int column = 0; column < 5; ++column) {
    for (int row = 0; row < 8; ++row) {
      if ((columns[static_cast<std::size_t>(column)] >> row & 1) == 0) continue;
      if (vertical) {
        rectangle(x + row * scale, y - (column + 1) * scale, scale, scale, colour);
      } else {
        rectangle(x + column * scale, y + row * scale, scale, scale, colour);
      }
    }
  }
}

void Picture::text(int x, int y, std::string_view text, Colour colour, int scale, Align align) {
  const int width = static_cast<int>(text.size()) * 6 * scale - scale;
  if (align == Align::middle) x -= width / 2;
  if (align == Align::right) x -= width;
  for (const char c : text) {
    glyph(x, y, c, colour, scale, false);
    x += 6 * scale;
  }
}

void Picture::vertical_text(int x, int y, std::string_view text, Colour colour, int scale) {
  y += static_cast<int>(text.size()) * 3 * scale;
  for (const char c : text) {
    glyph(x, y, c, colour, scale, true);
    y -= 6 * scale;
  }
}

bool Picture::write_png(const std::string& file) const {
  png_image image;
  std::memset(&image, 0, sizeof image);
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width_);
  image.height = static_cast<png_uint_32>(height_);
  image.format = PNG_FORMAT_RGB;
  return png_image_write_to_file(&image, file.c_str(), 0, pixels_.data(), 0, nullptr) != 0;
}

double tick_step(double range, int parts) {
  const double rough = std::max(range, 1e-12) / parts;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double step : {1.0, 2.0, 5.0}) {
    if (step * power >= rough * (1 - 1e-9)) return step * power;
  }
  return 10 * power;
}

std::string number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", std::abs(value) < 1e-12 ? 0 : value);
  return text.data();
}

}  // namespace rlx::picture
