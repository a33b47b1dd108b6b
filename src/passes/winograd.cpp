// Convolutions with 3x3 windows by Winograd's minimal filtering F(m x m, 3x3): transforms of tiles
// around one product for each of (m + 2)^2 points; 2.25 times fewer multiplications with m = 2, 4
// times with m = 4. The points and their rounding errors: graph/winograd.hpp, docs/adr/0031.
#include "graph/winograd.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "graph/narrow_products.hpp"
#include "passes/channel_maps.hpp"
#include "passes/passes.hpp"
#include "passes/rewriter.hpp"

namespace rlx::passes {
namespace {

using winograd::taps;

/// Tiles of outputs x outputs.
struct Tiles {
  std::int64_t outputs;
  /// What they must win in a run: the transforms are hundreds of nodes, which take milliseconds to
  /// plan. A few hundred runs give that back.
  double worth_ns;
};
constexpr Tiles tile_sizes[] = {{2, 21.3e3}, {4, 137.4e3}};

/// Operations of a direct sum that make larger tiles worth a question: their transforms are
/// hundreds of nodes, which take milliseconds to plan.
constexpr double least_work = 200e6;

using Square = std::vector<Values>;
using Finish = std::function<Result<Value>(Value)>;

/// The transforms of tiles, along one axis.
class Transforms {
 public:
  explicit Transforms(Graph& graph, std::int64_t outputs)
      : graph_(graph), magnitudes_(winograd::magnitudes(outputs)) {}

  /// B^T d, the image. The row of a point x holds the coefficients of the product of all (t - y)
  /// for the other points y; those of p and -p have the same even and odd parts. Zero takes the
  /// first even part along, infinity the last odd one: so each half of the points is one kernel,
  /// which reads the image once.
  Values image_points(const Values& d) {
    Values pairs;
    std::optional<Value> zero, infinity;
    for (std::size_t i = 0; i < magnitudes_.size(); ++i) {
      const double p = magnitudes_[i];
      const std::vector<double> others = winograd::polynomial(magnitudes_, i);
      const Value even = evaluated(others, d, 2), odd = evaluated(others, d, 1);
      if (!zero) zero = plus(even, -p * p, evaluated(others, d, 0));
      if (i + 1 == magnitudes_.size()) infinity = plus(evaluated(others, d, 3), -p * p, odd);
      pairs.push_back(plus(even, p, odd));
      pairs.push_back(plus(even, -p, odd));
    }
    Values points{*zero};
    points.insert(points.end(), pairs.begin(), pairs.end());
    points.push_back(*infinity);
    return points;
  }

  /// A^T m, the outputs: output i is the sum of x^i m over the points x.
  Values output_points(const Values& m) {
    const std::size_t outputs = 2 * magnitudes_.size();
    Values even, odd;  // of p and -p
    for (std::size_t k = 1; k + 1 < m.size(); k += 2) {
      even.push_back(m[k] + m[k + 1]);
      odd.push_back(m[k] - m[k + 1]);
    }
    Values results;
    for (std::size_t i = 0; i < outputs; ++i) {
      const Values& pairs = i % 2 == 0 ? even : odd;
      const auto factor = [&](std::size_t k) {
        return std::pow(magnitudes_[k], static_cast<double>(i));
      };
      Value sum = times(factor(0), pairs[0]);
      for (std::size_t k = 1; k < pairs.size(); ++k) sum = plus(sum, factor(k), pairs[k]);
      if (i == 0) sum = sum + m[0];
      if (i + 1 == outputs) sum = sum + m.back();
      results.push_back(sum);
    }
    return results;
  }

 private:
  Value times(double factor, Value x) {
    if (factor == 1) return x;
    const auto [known, is_new] = factors_.try_emplace(factor);
    if (is_new) known->second = graph_.constant(DType::f32, factor);
    return x * known->second;
  }
  /// sum + factor * x.
  Value plus(Value sum, double factor, Value x) {
    return factor < 0 ? sum - times(-factor, x) : sum + times(factor, x);
  }
  /// The polynomial, whose first coefficient is 1, with d[first + 2k] for z^k.
  Value evaluated(const std::vector<double>& polynomial, const Values& d, std::size_t first) {
    std::size_t k = polynomial.size() - 1;
    Value sum = d[first + 2 * k];
    while (k-- > 0) sum = plus(sum, polynomial[k], d[first + 2 * k]);
    return sum;
  }

  Graph& graph_;
  const std::span<const double> magnitudes_;
  std::map<double, Value> factors_;
};

/// The transform along the columns, then along the rows.
template <class Transform>
Square both_ways(const Square& square, const Transform& transform) {
  Square half;
  for (std::size_t j = 0; j < square.size(); ++j) {
    Values column;
    for (const Values& row : square) column.push_back(row[j]);
    const Values made = transform(column);
    half.resize(made.size());
    for (std::size_t i = 0; i < made.size(); ++i) half[i].push_back(made[i]);
  }
  Square whole;
  for (const Values& row : half) whole.push_back(transform(row));
  return whole;
}

bool all_are(const Axes& axes, std::int64_t value) {
  return std::ranges::all_of(axes, [=](std::int64_t axis) { return axis == value; });
}

/// What the rewrite needs to know of a convolution.
struct Sizes {
  std::int64_t outputs;                         ///< rows and columns of a tile of the result
  std::int64_t images, in, out, height, width;  ///< of the result
  std::int64_t image_height, image_width, top, left;
  std::int64_t side() const { return outputs + taps - 1; }
  std::int64_t down() const { return (height + outputs - 1) / outputs; }
  std::int64_t across() const { return (width + outputs - 1) / outputs; }
};

/// [n * n, images * tiles, C]: the points of every tile of the image.
Value tiles(Value x, const Sizes& s, Transforms& transforms) {
  const std::int64_t bottom = s.down() * s.outputs + taps - 1 - s.image_height - s.top;
  const std::int64_t right = s.across() * s.outputs + taps - 1 - s.image_width - s.left;
  // An axis of size 1 in front: the points lie side by side along it.
  const Value image = unsqueeze(pad(x, {0, s.top, s.left, 0}, {0, bottom, right, 0}), {0});
  Square d;
  for (std::int64_t i = 0; i < s.side(); ++i) {
    Values row;
    for (std::int64_t j = 0; j < s.side(); ++j) {
      row.push_back(slice(image, {0, 0, i, j, 0},
                          {1, s.images, i + (s.down() - 1) * s.outputs + 1,
                           j + (s.across() - 1) * s.outputs + 1, s.in},
                          {1, 1, s.outputs, s.outputs, 1}));
    }
    d.push_back(std::move(row));
  }
  Values all;
  for (const Values& row :
       both_ways(d, [&](const Values& line) { return transforms.image_points(line); }))
    all.insert(all.end(), row.begin(), row.end());
  return reshape(concat(all, 0),
                 {Dim(s.side() * s.side()), Dim(s.images * s.down() * s.across()), Dim(s.in)});
}

/// The result [N, H, W, K] of the products [n * n, images * tiles, K], its parts finished.
Result<Value> assembled(Value products, const Sizes& s, Transforms& transforms,
                        const Finish& finish) {
  const Value points = reshape(products, {Dim(s.side() * s.side() * s.images), Dim(s.down()),
                                          Dim(1), Dim(s.across()), Dim(1), Dim(s.out)});
  Square m;
  for (std::int64_t i = 0; i < s.side(); ++i) {
    Values row;
    for (std::int64_t j = 0; j < s.side(); ++j) {
      const std::int64_t first = (i * s.side() + j) * s.images;
      row.push_back(slice(points, {first, 0, 0, 0, 0, 0},
                          {first + s.images, s.down(), 1, s.across(), 1, s.out}));
    }
    m.push_back(std::move(row));
  }
  Values rows;
  for (Values& row :
       both_ways(m, [&](const Values& line) { return transforms.output_points(line); })) {
    for (Value& part : row) {
      RLX_ASSIGN(part, finish(part));
    }
    rows.push_back(concat(row, 4));
  }
  const Value whole = reshape(concat(rows, 2), {Dim(s.images), Dim(s.down() * s.outputs),
                                                Dim(s.across() * s.outputs), Dim(s.out)});
  return slice(whole, {0, 0, 0, 0}, {s.images, s.height, s.width, s.out});
}

/// What a product of integers reads: x of cast(x, i32).
Value narrow(const Value& widened) {
  Graph& graph = widened.graph();
  return graph.handle(graph.node(widened.id()).inputs[0]);
}

/// Weights as they are stored: filters are made of bytes as of i16, of halves as of f32, piece by
/// piece.
Value stored_below(Value w) {
  Graph& graph = w.graph();
  const Node* node = &graph.node(w.id());
  const auto* order = node->op.as<op::Transpose>();
  if (order) node = &graph.node(node->inputs[0]);
  if (!node->op.is<op::Cast>()) return w;
  const Value stored = graph.handle(node->inputs[0]);
  const DType dtype = stored.dtype();
  const bool widened =
      w.dtype() == f32 ? dtype == f16 || dtype == bf16 : dtype == u8 || dtype == i8;
  if (!widened) return w;
  return order ? transpose(stored, order->perm) : stored;
}

/// The convolution by tiles of outputs x outputs, what follows it done by `finish`.
Result<Value> by_points(Value x, Value w, const op::Conv& conv, std::int64_t outputs,
                        const Finish& finish) {
  const Dims image = x.type().dims(), filter = w.type().dims();
  const auto low = [&](std::size_t i) { return conv.pad_low.empty() ? 0 : conv.pad_low[i]; };
  const auto high = [&](std::size_t i) { return conv.pad_high.empty() ? 0 : conv.pad_high[i]; };
  const Sizes s{.outputs = outputs,
                .images = image[0],
                .in = image[3],
                .out = filter[3],
                .height = image[1] + low(0) + high(0) - taps + 1,
                .width = image[2] + low(1) + high(1) - taps + 1,
                .image_height = image[1],
                .image_width = image[2],
                .top = low(0),
                .left = low(1)};
  Graph& graph = x.graph();
  const bool integers = is_integer(x.dtype());
  const auto points_of = [&](const Value& filters) {
    return graph.add_one(op::WinogradFilters{outputs}, {transpose(filters, {3, 2, 0, 1})});
  };
  Transforms transforms(graph, outputs);
  if (!integers) {
    return assembled(matmul(tiles(x, s, transforms), points_of(stored_below(w))), s, transforms,
                     finish);
  }
  // Transforms of what is widened, in i16, and products of these; fits_integers has their bounds.
  const Value images = tiles(narrow(x), s, transforms),
              filters = points_of(stored_below(narrow(w)));
  return assembled(matmul(cast(images, i32), cast(filters, i32)), s, transforms, [&](Value sums) {
    const Value shift = graph.constant(i32, winograd::integer_shift);
    return finish(graph.add_one(op::ShiftRight{}, {sums, shift}));
  });
}

/// Products of i16 by tiles of 2x2: points of the image are sums of four elements, those of the
/// filters (four times as large) of nine, and the sums of their products must not leave i32.
bool fits_integers(const Graph& graph, const Node& node) {
  if (!multiplies_narrow_integers(graph, node)) return false;
  const ValueId x = graph.node(node.inputs[0]).inputs[0], w = graph.node(node.inputs[1]).inputs[0];
  if (graph.type(x).dtype != i16 || graph.type(w).dtype != i16) return false;
  constexpr std::int64_t words = 32767, sums = 2147483647;
  const std::int64_t image = 4 * most_magnitude(graph, x), filter = 9 * most_magnitude(graph, w);
  return image <= words && filter <= words &&
         graph.type(w).dims()[2] <= sums / std::max<std::int64_t>(1, image * filter);
}

bool fits(const Graph& graph, const Node& node, const op::Conv& conv) {
  if (!conv.channels_last || conv.transposed || conv.groups != 1 || node.inputs.size() != 2)
    return false;
  const Type &x = graph.type(node.inputs[0]), &w = graph.type(node.inputs[1]);
  const bool window = all_are(conv.strides, 1) && all_are(conv.dilations, 1) && x.rank() == 4 &&
                      x.is_static() && w.is_static() && node.results[0].elements() > 0 &&
                      w.dims()[0] == taps && w.dims()[1] == taps;
  return window && ((x.dtype == f32 && w.dtype == f32) || fits_integers(graph, node));
}

/// The convolution alone, with the bias and activation that most have, as a graph of its own;
/// `outputs` 0: as it is.
Result<Graph> alone(const Graph& graph, const Node& node, const op::Conv& conv,
                    std::int64_t outputs) {
  Graph result;
  const bool integers = is_integer(graph.type(node.inputs[0]).dtype);
  const DType dtype = integers ? i16 : f32;
  const Dims filter = graph.type(node.inputs[1]).dims();
  Value x = result.input("x", dtype, graph.type(node.inputs[0]).shape);
  Value w = result.param("w", dtype, filter);
  const Value bias = result.param("b", f32, {filter[3]});
  if (integers) x = cast(x, i32), w = cast(w, i32);
  const Finish finish = [&](Value y) -> Result<Value> {
    return integers ? cast(relu(cast(y, f32) * bias), i16) : relu(y + bias);
  };
  if (outputs == 0) {
    RLX_ASSIGN(const Value y, finish(result.add_one(conv, {x, w})));
    result.output("y", y);
  } else {
    RLX_ASSIGN(const Value y, by_points(x, w, conv, outputs, finish));
    result.output("y", y);
  }
  return result;
}

/// Operations of the direct sum.
double direct_work(const Graph& graph, const Node& node) {
  const Dims filter = graph.type(node.inputs[1]).dims();
  return 2.0 * taps * taps * static_cast<double>(filter[2]) *
         static_cast<double>(node.results[0].elements());
}

FormQuestion question(const Graph& graph, std::int32_t index, const op::Conv& conv) {
  const Node& node = graph.nodes()[static_cast<std::size_t>(index)];
  const auto form = [&graph, &node, &conv](std::int64_t outputs) {
    return [&graph, &node, &conv, outputs] { return alone(graph, node, conv, outputs); };
  };
  FormQuestion asked{index, {{.what = "by the direct sum", .graph = form(0)}}};
  const bool integers = is_integer(node.results[0].dtype);
  for (const Tiles& tiles : tile_sizes) {
    const std::int64_t outputs = tiles.outputs, side = outputs + taps - 1;
    if (outputs > 2 && (integers || direct_work(graph, node) < least_work)) break;
    asked.forms.push_back({.what = fmt::format("by Winograd's F({0}x{0}, 3x3)", outputs),
                           .graph = form(outputs),
                           .weights = static_cast<double>(side * side) / (taps * taps),
                           .worth_ns = tiles.worth_ns,
                           .price = integers
                                        ? ""
                                        : fmt::format("errors up to {} of the result's deviation",
                                                      winograd::error_of(outputs))});
  }
  return asked;
}

/// A convolution that becomes products of points.
struct Found : FoundProduct {
  std::int64_t outputs = 0;
};

std::vector<Found> find(const Graph& graph, const ChooseForms& choose) {
  const ChannelMaps maps(graph);
  std::vector<FormQuestion> questions;
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    const auto* conv = node.op.as<op::Conv>();
    if (conv && fits(graph, node, *conv) && maps.is_weight_only(node.inputs[1]))
      questions.push_back(question(graph, static_cast<std::int32_t>(i), *conv));
  }
  const std::vector<std::size_t> chosen = choose(graph, questions);
  std::vector<Found> found;
  for (std::size_t i = 0; i < questions.size(); ++i) {
    if (chosen[i] == 0) continue;
    const std::int32_t conv = questions[i].node;
    found.push_back({{conv, maps.behind(conv, 3)}, tile_sizes[chosen[i] - 1].outputs});
  }
  return found;
}

Result<Value> rewritten(Rewriter& rewriter, const Found& found) {
  const Node& node = rewriter.source().nodes()[static_cast<std::size_t>(found.product)];
  const auto operand = [](Value of_channels) {
    const std::int64_t count = of_channels.type().elements();
    return reshape(of_channels, count == 1 ? Shape{} : Shape{Dim(count)});
  };
  const Values inputs = rewriter.values_of(node);
  return by_points(inputs[0], inputs[1], *node.op.as<op::Conv>(), found.outputs, [&](Value part) {
    return add_maps(rewriter, found.product, found.maps, part, operand);
  });
}

}  // namespace

Result<Graph> winograd(const Graph& graph, const ChooseForms& choose) {
  try {
    return replace_found(graph, find(graph, choose), rewritten);
  } catch (const Exception& exception) {
    return exception.error();
  }
}

}  // namespace rlx::passes
