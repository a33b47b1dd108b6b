// The two canvases: SVG elements put together as text, and pixels at twice the size.
#include "tools/canvas.hpp"

#include <fmt/format.h>

#include <cmath>

#include "tools/page.hpp"

namespace rlx::tools {
namespace {

constexpr picture::Colour white{255, 255, 255};

/// Pixels for each point of a PNG, and of its letters (which are 6 x 8 points, as SVG's nearly
/// are).
constexpr int zoom = 2;

std::string hex(picture::Colour colour) {
  return fmt::format("#{:02x}{:02x}{:02x}", colour.red, colour.green, colour.blue);
}

int pixel(double points) { return static_cast<int>(std::lround(points * zoom)); }

}  // namespace

SvgCanvas::SvgCanvas(int width, int height)
    : svg_(fmt::format(R"(<svg width="{0}" height="{1}" viewBox="0 0 {0} {1}">)", width, height)) {}

void SvgCanvas::rectangle(double x, double y, double width, double height, Colour colour) {
  svg_ += fmt::format(R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}"/>)",
                      x, y, width, height, hex(colour));
}

void SvgCanvas::line(double x0, double y0, double x1, double y1, Colour colour, double thickness) {
  svg_ += fmt::format(
      R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="{}" stroke-width="{}"/>)",
      x0, y0, x1, y1, hex(colour), thickness);
}

void SvgCanvas::disc(double x, double y, double radius, Colour colour, const std::string& hint) {
  svg_ += fmt::format(
      R"(<circle cx="{:.1f}" cy="{:.1f}" r="{:.1f}" fill="{}" fill-opacity=".75" stroke="#1d2430" )"
      R"(stroke-width=".7"><title>{}</title></circle>)",
      x, y, radius, hex(colour), escaped(hint));
}

void SvgCanvas::text(double x, double y, const std::string& text, Colour colour, Align align) {
  const char* anchor = align == Align::left ? "start" : align == Align::middle ? "middle" : "end";
  svg_ += fmt::format(
      R"(<text x="{:.1f}" y="{:.1f}" fill="{}" font-size="11.5" text-anchor="{}">{}</text>)", x,
      y + 8.5, hex(colour), anchor, escaped(text));
}

std::string SvgCanvas::take() && { return std::move(svg_) + "</svg>"; }

PngCanvas::PngCanvas(int width, int height) : picture_(width * zoom, height * zoom, white) {}

void PngCanvas::rectangle(double x, double y, double width, double height, Colour colour) {
  picture_.rectangle(pixel(x), pixel(y), pixel(width), pixel(height), colour);
}

void PngCanvas::line(double x0, double y0, double x1, double y1, Colour colour, double thickness) {
  picture_.line(x0 * zoom, y0 * zoom, x1 * zoom, y1 * zoom, colour, pixel(thickness));
}

void PngCanvas::disc(double x, double y, double radius, Colour colour, const std::string&) {
  constexpr Colour edge{29, 36, 48};
  picture_.disc(pixel(x), pixel(y), pixel(radius) + 1, edge);
  picture_.disc(pixel(x), pixel(y), pixel(radius), colour);
}

void PngCanvas::text(double x, double y, const std::string& text, Colour colour, Align align) {
  picture_.text(pixel(x), pixel(y), text, colour, zoom, align);
}

bool PngCanvas::write(const std::string& file) const { return picture_.write_png(file); }

}  // namespace rlx::tools
