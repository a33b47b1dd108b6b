// Convolutions with 3x3 windows by Winograd's minimal filtering F(2x2, 3x3): transforms of tiles
// around one product for each of 16 points, 2.25 times fewer multiplications (Lavin and Gray, arXiv
// 1509.09308). Rounding errors are as those of the direct sum; F(4x4, 3x3) has ten times larger
// ones.
#include "graph/winograd.hpp"

#include <algorithm>
#include <array>

#include "graph/weight_only.hpp"
#include "passes/passes.hpp"
#include "passes/rewriter.hpp"

namespace rlx::passes {
namespace {

constexpr std::int64_t outputs = 2, taps = 3, points = outputs + taps - 1;

template <std::size_t N>
using Square = std::array<std::array<Value, N>, N>;

/// B^T d: the image along one axis.
std::array<Value, points> image_points(const std::array<Value, points>& d) {
  return {d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]};
}

/// A^T m: the outputs along one axis.
std::array<Value, outputs> output_points(const std::array<Value, points>& m) {
  return {m[0] + m[1] + m[2], m[1] - m[2] - m[3]};
}

/// The transform along the columns, then along the rows.
template <std::size_t To, class Transform>
Square<To> both_ways(const Square<points>& square, Transform transform) {
  std::array<std::array<Value, points>, To> half;
  for (std::size_t j = 0; j < points; ++j) {
    const auto column = transform({square[0][j], square[1][j], square[2][j], square[3][j]});
    for (std::size_t i = 0; i < To; ++i) half[i][j] = column[i];
  }
  Square<To> whole;
  for (std::size_t i = 0; i < To; ++i) whole[i] = transform(half[i]);
  return whole;
}

template <std::size_t N>
Values flat(const Square<N>& square) {
  Values values;
  for (const auto& row : square) values.insert(values.end(), row.begin(), row.end());
  return values;
}

bool all_are(const Axes& axes, std::int64_t value) {
  return std::ranges::all_of(axes, [=](std::int64_t axis) { return axis == value; });
}

/// What the rewrite needs to know of a convolution.
struct Sizes {
  std::int64_t images, in, out, height, width;  ///< of the result
  std::int64_t image_height, image_width, top, left;
  std::int64_t down() const { return (height + outputs - 1) / outputs; }
  std::int64_t across() const { return (width + outputs - 1) / outputs; }
};

/// [16, images * tiles, C]: the points of every tile of the image.
Value tiles(Value x, const Sizes& s) {
  // Axes of size 1 in front: the points lie side by side along it.
  const std::int64_t bottom = s.down() * outputs + taps - 1 - s.image_height - s.top;
  const std::int64_t right = s.across() * outputs + taps - 1 - s.image_width - s.left;
  const Value image = pad(x, {0, s.top, s.left, 0}, {0, bottom, right, 0});
  Square<points> d;
  for (std::int64_t i = 0; i < points; ++i) {
    for (std::int64_t j = 0; j < points; ++j) {
      const Value part = slice(
          image, {0, i, j, 0},
          {s.images, i + (s.down() - 1) * outputs + 1, j + (s.across() - 1) * outputs + 1, s.in},
          {1, outputs, outputs, 1});
      d[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)] = unsqueeze(part, {0});
    }
  }
  const Value all = concat(flat(both_ways<points>(d, image_points)), 0);
  return reshape(all, {Dim(points * points), Dim(s.images * s.down() * s.across()), Dim(s.in)});
}

/// The result [N, H, W, K] of the products [16, images * tiles, K].
Value assembled(Value products, const Sizes& s) {
  const Shape tile_shape{Dim(s.images), Dim(s.down()), Dim(1), Dim(s.across()), Dim(1), Dim(s.out)};
  Square<points> m;
  for (std::int64_t i = 0; i < points; ++i) {
    for (std::int64_t j = 0; j < points; ++j) {
      const std::int64_t point = i * points + j;
      const Value part =
          slice(products, {point, 0, 0}, {point + 1, s.images * s.down() * s.across(), s.out});
      m[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)] = reshape(part, tile_shape);
    }
  }
  Values rows;
  for (const auto& row : both_ways<outputs>(m, output_points))
    rows.push_back(concat(Values(row.begin(), row.end()), 4));
  const Value whole = reshape(concat(rows, 2), {Dim(s.images), Dim(s.down() * outputs),
                                                Dim(s.across() * outputs), Dim(s.out)});
  return slice(whole, {0, 0, 0, 0}, {s.images, s.height, s.width, s.out});
}

Value by_points(Value x, Value w, const op::Conv& conv) {
  const Dims image = x.type().dims(), filter = w.type().dims();
  const auto low = [&](std::size_t i) { return conv.pad_low.empty() ? 0 : conv.pad_low[i]; };
  const auto high = [&](std::size_t i) { return conv.pad_high.empty() ? 0 : conv.pad_high[i]; };
  const Sizes s{.images = image[0],
                .in = image[3],
                .out = filter[3],
                .height = image[1] + low(0) + high(0) - taps + 1,
                .width = image[2] + low(1) + high(1) - taps + 1,
                .image_height = image[1],
                .image_width = image[2],
                .top = low(0),
                .left = low(1)};
  const Value filters = x.graph().add_one(op::WinogradFilters{}, {transpose(w, {3, 2, 0, 1})});
  return assembled(matmul(tiles(x, s), filters), s);
}

bool fits(const Graph& graph, const Node& node, const op::Conv& conv) {
  if (!conv.channels_last || conv.transposed || conv.groups != 1 || node.inputs.size() != 2)
    return false;
  const Type &x = graph.type(node.inputs[0]), &w = graph.type(node.inputs[1]);
  return all_are(conv.strides, 1) && all_are(conv.dilations, 1) && x.dtype == f32 &&
         w.dtype == f32 && x.rank() == 4 && x.is_static() && w.is_static() &&
         node.results[0].elements() > 0 && w.dims()[0] == taps && w.dims()[1] == taps;
}

/// The convolution alone, with the bias and activation that most have, as a graph of its own.
Graph alone(const Graph& graph, const Node& node, const op::Conv& conv, bool with_points) {
  Graph result;
  const Value x = result.input("x", f32, graph.type(node.inputs[0]).shape);
  const Dims filter = graph.type(node.inputs[1]).dims();
  const Value w = result.param("w", f32, filter), bias = result.param("b", f32, {filter[3]});
  const Value y = with_points ? by_points(x, w, conv) : result.add_one(conv, {x, w});
  result.output("y", relu(y + bias));
  return result;
}

}  // namespace

Result<Graph> winograd(const Graph& graph, const Faster& faster) {
  const std::vector<bool> weight_only = weight_only_nodes(graph);
  return rewrite(
      graph, [&](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
        const auto* conv = node.op.as<op::Conv>();
        if (!conv || !fits(graph, node, *conv)) return false;
        if (!weight_only[static_cast<std::size_t>(node.inputs[1].node)]) return false;
        if (!faster(node, alone(graph, node, *conv, false), alone(graph, node, *conv, true)))
          return false;
        const Values operands = rewriter.values_of(node);
        rewriter.replace(index, Values{by_points(operands[0], operands[1], *conv)});
        return true;
      });
}

}  // namespace rlx::passes
