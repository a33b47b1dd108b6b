// Weighted sums of pixels.
#include "import/onnx/sample.hpp"

#include "import/onnx/build.hpp"

namespace rlx::onnx {

Value weighted_pixels(NodeContext& c, const Value& image,
                      const std::vector<std::vector<Neighbour>>& axes) {
  const Shape& s = image.shape();
  const Dim pixels = product_of(Shape(s.begin() + 2, s.end()));
  const Value flat = reshape(image, {s[0], s[1], pixels});
  // Mixed-radix counter over the neighbours of every axis.
  std::vector<std::size_t> pick(axes.size(), 0);
  Value total;
  while (true) {
    Value place, weight;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const auto size = static_dim(image, static_cast<std::int64_t>(i) + 2);
      const Neighbour& neighbour = axes[i][pick[i]];
      const Value inside =
          clamp(neighbour.place, c.scalar(i64, 0), c.scalar(i64, static_cast<double>(size - 1)));
      place = place ? place * c.scalar(i64, static_cast<double>(size)) + inside : inside;
      weight = weight ? weight * neighbour.weight : neighbour.weight;
    }
    const Shape& points = place.shape();
    const Value index =
        broadcast(reshape(place, {points[0], 1, points[1]}), {points[0], s[1], points[1]});
    const Value pixel = c.add(op::GatherElements{2}, {flat, index});
    const Value term = pixel * reshape(weight, {points[0], 1, points[1]});
    total = total ? total + term : term;
    std::size_t axis = axes.size();
    while (axis > 0 && ++pick[axis - 1] == axes[axis - 1].size()) pick[--axis] = 0;
    if (axis == 0) return total;
  }
}

}  // namespace rlx::onnx
