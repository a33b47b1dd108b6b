// A picture to draw plots on: rectangles, lines, text of a 5 x 7 font, written as PNG.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rlx::picture {

struct Colour {
  std::uint8_t red = 0, green = 0, blue = 0;
};

/// From dark blue over green to yellow, as evenly bright steps; `share` in [0, 1].
Colour heat(double share);

enum class Align { left, middle, right };

/// Pixels from the upper left corner; what lies outside is not drawn.
class Picture {
 public:
  Picture(int width, int height, Colour background);
  int width() const { return width_; }
  int height() const { return height_; }

  void rectangle(int x, int y, int width, int height, Colour colour);
  void frame(int x, int y, int width, int height, Colour colour);
  void line(double x0, double y0, double x1, double y1, Colour colour, int thickness = 1);
  void disc(int x, int y, int radius, Colour colour);
  /// ASCII text whose upper edge is y; a character is 6 * scale wide and 8 * scale high.
  void text(int x, int y, std::string_view text, Colour colour, int scale = 2,
            Align align = Align::left);
  /// The same from below to above; x is its left edge, y its middle.
  void vertical_text(int x, int y, std::string_view text, Colour colour, int scale = 2);
  /// False where the file cannot be written.
  bool write_png(const std::string& file) const;

 private:
  void glyph(int x, int y, char c, Colour colour, int scale, bool vertical);
  void point(int x, int y, Colour colour);

  int width_, height_;
  std::vector<std::uint8_t> pixels_;
};

/// A step of 1, 2 or 5 times a power of ten that cuts `range` into at most `parts`.
double tick_step(double range, int parts);
/// The number with as many digits as it needs ("0.5", "12").
std::string number(double value);

}  // namespace rlx::picture
