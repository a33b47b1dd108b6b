// Ops that repeat elements or make them: expand, tile, fills, constants, ranges, triangles.
#include <algorithm>
#include <cmath>
#include <limits>

#include "import/onnx/build.hpp"
#include "import/onnx/families.hpp"

namespace rlx::onnx {
namespace {

/// What is known of two shapes' broadcast: numbers but 1 decide.
Shape known_of_broadcast(const Shape& a, const Shape& b) {
  Shape known(std::max(a.size(), b.size()), Dim::unknown());
  for (const Shape* shape : {&a, &b}) {
    const std::size_t added = known.size() - shape->size();
    for (std::size_t i = 0; i < shape->size(); ++i) {
      const Dim& dim = (*shape)[i];
      if (dim.is_static() && dim != Dim(1)) known[added + i] = dim;
    }
  }
  return known;
}

void expand(NodeContext& c) {
  const Value x = c.in(0);
  const auto target = c.known_shape(c.in(1));
  const auto shape = target ? broadcast_shape(x.shape(), *target) : std::nullopt;
  if (shape) {
    c.set(broadcast(x, *shape));
    return;
  }
  const Value result = c.add(op::DynamicBroadcast{}, {x, cast(c.in(1), i64)});
  c.set(target ? with_known_dims(result, known_of_broadcast(x.shape(), *target)) : result);
}

void tile(NodeContext& c) {
  const Value x = c.in(0);
  const auto repeats = c.known_shape(c.in(1));
  if (!repeats) {
    c.set(c.add(op::DynamicTile{}, {x, c.in(1)}));
    return;
  }
  if (static_cast<int>(repeats->size()) != x.rank()) {
    fail("There are ({}) repeats for {}.", repeats->size(), x.type().text());
  }
  Shape apart, repeated, joined;
  for (std::size_t i = 0; i < repeats->size(); ++i) {
    const Dim &dim = x.shape()[i], &count = (*repeats)[i];
    apart.insert(apart.end(), {Dim(1), dim});
    repeated.insert(repeated.end(), {count, dim});
    joined.push_back(count * dim);
  }
  c.set(is_told(repeated) ? reshape(broadcast(reshape(x, apart), repeated), joined)
                          : with_known_dims(c.add(op::DynamicTile{}, {x, c.in(1)}), joined));
}

// Tile-1: the number of tiles and the axis are scalars.
void tile_one_axis(NodeContext& c) {
  const Value x = c.in(0);
  const Axes tiles = known_or_fail(c, 1, "tiles"), axis = known_or_fail(c, 2, "axis");
  if (tiles.size() != 1 || axis.size() != 1 || tiles[0] < 0) fail("Tiles and axis are scalars.");
  c.set(concat(Values(static_cast<std::size_t>(std::min<std::int64_t>(tiles[0], 1 << 16)), x),
               axis[0]));
}

void constant_of_shape(NodeContext& c) {
  const auto value = c.tensor("value");
  if (value && value->elements() != 1) fail("The value must have one element.");
  const Value fill = value ? c.graph().constant(value->reshaped({})) : c.scalar(f32, 0);
  const auto shape = c.known_shape(c.in(0));
  if (shape && is_told(*shape)) {
    c.set(broadcast(fill, *shape));
    return;
  }
  const Value result = c.add(op::DynamicFill{}, {fill, c.in(0)});
  c.set(shape ? with_known_dims(result, *shape) : result);
}

void constant(NodeContext& c) {
  std::optional<Tensor> value = c.tensor("value");
  if (const auto real = c.optional_real("value_float")) {
    value = Tensor::scalar<float>(static_cast<float>(*real));
  }
  if (c.has_attribute("value_int")) value = Tensor::scalar<std::int64_t>(c.integer("value_int"));
  if (c.has_attribute("value_floats")) {
    const auto reals = c.reals("value_floats");
    const std::vector<float> floats(reals.begin(), reals.end());
    value = Tensor::of<float>({static_cast<std::int64_t>(floats.size())},
                              std::span<const float>(floats));
  }
  if (const auto list = c.optional_integers("value_ints")) {
    c.set(c.integers_constant(*list));
    return;
  }
  if (c.has_attribute("value_string") || c.has_attribute("value_strings")) {
    fail_unsupported("Texts are not supported.");
  }
  if (!value) fail("The value is missing.");
  if (!c.wants(0)) return;
  c.set(c.importer().weight(c.frame(), c.node().outputs[0], *std::move(value)));
}

void range(NodeContext& c) {
  const Value start = c.in(0), limit = c.in(1), delta = c.in(2);
  const DType dtype = start.dtype();
  const auto from = c.known_reals(start), to = c.known_reals(limit), by = c.known_reals(delta);
  const auto dim = c.known_shape(limit);
  const bool counts = from && by && from->size() == 1 && by->size() == 1;
  if (counts && (*from)[0] == 0 && (*by)[0] == 1 && dim && dim->size() == 1 &&
      !(*dim)[0].text().empty() && is_told(*dim)) {
    c.set(c.add(op::Iota{dtype, {(*dim)[0]}, 0}, {}));
    return;
  }
  if (!counts || !to || to->size() != 1) {
    c.set(c.add(op::DynamicRange{}, {start, limit, delta}));
    return;
  }
  if ((*by)[0] == 0) fail("A step of 0 is not possible.");
  const double count = std::max(std::ceil(((*to)[0] - (*from)[0]) / (*by)[0]), 0.0);
  if (!(count < 1e12)) fail("A range of ({}) elements is too long.", count);
  const Value steps = c.add(op::Iota{dtype, {static_cast<std::int64_t>(count)}, 0}, {});
  c.set(steps * reshape(delta, {}) + reshape(start, {}));
}

// Indices along the last two axes, as i64 [rows, columns].
std::pair<Value, Value> row_and_column(NodeContext& c, const Value& x) {
  const Shape shape(x.shape().end() - 2, x.shape().end());
  return {c.add(op::Iota{i64, shape, 0}, {}), c.add(op::Iota{i64, shape, 1}, {})};
}

void trilu(NodeContext& c) {
  const Value x = c.in(0);
  if (x.rank() < 2) fail("It takes matrices, not {}.", x.type().text());
  const auto [row, column] = row_and_column(c, x);
  const Value shifted = c.has(1) ? row + reshape(c.in(1), {}) : row;
  const bool upper = c.flag("upper", true);
  const Value kept = upper ? less_equal(shifted, column) : less_equal(column, shifted);
  c.set(select(kept, x, c.scalar(x.dtype(), 0)));
}

void eye_like(NodeContext& c) {
  const Value x = c.in(0);
  if (x.rank() != 2) fail("It takes a matrix, not {}.", x.type().text());
  const auto [row, column] = row_and_column(c, x);
  const Value diagonal = equal(row + c.scalar(i64, static_cast<double>(c.integer("k", 0))), column);
  c.set(cast(diagonal, c.element_type("dtype", x.dtype())));
}

constexpr OpEntry entries[] = {
    {"Expand", 8, expand},      {"Tile", 6, tile},
    {"Tile", 1, tile_one_axis}, {"ConstantOfShape", 9, constant_of_shape},
    {"Constant", 1, constant},  {"Range", 11, range},
    {"Trilu", 14, trilu},       {"EyeLike", 9, eye_like},
};

}  // namespace

OpEntries fill_entries() { return entries; }

}  // namespace rlx::onnx
