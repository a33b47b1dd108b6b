// What a chart is drawn on: as SVG in a page, or as PNG.
#pragma once

#include <string>

#include "picture/picture.hpp"

namespace rlx::tools {

/// Points from the upper left corner.
class Canvas {
 public:
  using Colour = picture::Colour;
  using Align = picture::Align;
  virtual ~Canvas() = default;

  virtual void rectangle(double x, double y, double width, double height, Colour colour) = 0;
  virtual void line(double x0, double y0, double x1, double y1, Colour colour,
                    double thickness) = 0;
  /// `hint` is shown under a pointer, where the canvas knows pointers.
  virtual void disc(double x, double y, double radius, Colour colour, const std::string& hint) = 0;
  /// ASCII text whose upper edge is y.
  virtual void text(double x, double y, const std::string& text, Colour colour, Align align) = 0;
};

class SvgCanvas final : public Canvas {
 public:
  SvgCanvas(int width, int height);
  void rectangle(double x, double y, double width, double height, Colour colour) override;
  void line(double x0, double y0, double x1, double y1, Colour colour, double thickness) override;
  void disc(double x, double y, double radius, Colour colour, const std::string& hint) override;
  void text(double x, double y, const std::string& text, Colour colour, Align align) override;
  /// The whole element <svg>.
  std::string take() &&;

 private:
  std::string svg_;
};

class PngCanvas final : public Canvas {
 public:
  PngCanvas(int width, int height);
  void rectangle(double x, double y, double width, double height, Colour colour) override;
  void line(double x0, double y0, double x1, double y1, Colour colour, double thickness) override;
  void disc(double x, double y, double radius, Colour colour, const std::string& hint) override;
  void text(double x, double y, const std::string& text, Colour colour, Align align) override;
  /// False where the file cannot be written.
  bool write(const std::string& file) const;

 private:
  picture::Picture picture_;
};

}  // namespace rlx::tools
