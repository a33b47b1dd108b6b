// Follows dims through integer arithmetic: what Shape gives keeps its symbols through gather,
// concat, sums and products, so that a reshape to it has a shape in symbols.
#include <algorithm>

#include "import/onnx/importer.hpp"

namespace rlx::onnx {
namespace {

constexpr std::size_t max_tracked = 64;

// Negative numbers and unknown dims cannot be computed with.
bool computable(const Dim& dim) { return !dim.is_unknown() && !dim.text().empty(); }

std::optional<Shape> elementwise(const std::string& op, const Shape& a, const Shape& b) {
  if (a.size() != b.size() && a.size() != 1 && b.size() != 1) return std::nullopt;
  Shape result;
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const Dim &x = a[a.size() == 1 ? 0 : i], &y = b[b.size() == 1 ? 0 : i];
    if (!computable(x) || !computable(y)) return std::nullopt;
    if (op == "Add") result.push_back(x + y);
    if (op == "Sub") result.push_back(x - y);
    if (op == "Mul") result.push_back(x * y);
    if (op == "Div") {
      if (y == Dim(0)) return std::nullopt;
      result.push_back(floor_div(x, y));
    }
  }
  return result;
}

std::optional<Shape> sliced(NodeContext& c, const Shape& x) {
  const auto starts = c.known_integers(c.optional(1)), ends = c.known_integers(c.optional(2));
  const auto steps = c.has(4) ? c.known_integers(c.in(4)) : std::optional(Axes{1});
  if (c.version() < 10 || !starts || !ends || !steps || starts->size() != 1 || ends->size() != 1 ||
      steps->size() != 1 || (*steps)[0] != 1) {
    return std::nullopt;
  }
  const auto size = static_cast<std::int64_t>(x.size());
  const auto at = [size](std::int64_t i) {
    return std::clamp<std::int64_t>(i < 0 ? std::max(i, -size) + size : i, 0, size);
  };
  const auto start = at((*starts)[0]), end = std::max(start, at((*ends)[0]));
  return Shape(x.begin() + start, x.begin() + end);
}

std::optional<Shape> gathered(NodeContext& c, const Shape& x) {
  const auto indices = c.known_integers(c.in(1));
  if (!indices || c.in(0).rank() != 1) return std::nullopt;
  Shape result;
  for (std::int64_t index : *indices) {
    if (index < 0) index += static_cast<std::int64_t>(x.size());
    if (index < 0 || index >= static_cast<std::int64_t>(x.size())) return std::nullopt;
    result.push_back(x[static_cast<std::size_t>(index)]);
  }
  return result;
}

std::optional<Shape> concatenated(NodeContext& c) {
  Shape result;
  for (const Value& part : c.inputs()) {
    const auto dims = c.known_shape(part);
    if (!dims) return std::nullopt;
    result.insert(result.end(), dims->begin(), dims->end());
  }
  return result;
}

std::optional<Shape> learned(NodeContext& c) {
  const std::string& op = c.node().op_type;
  if (op == "Concat") return concatenated(c);
  const auto x = c.known_shape(c.in(0));
  if (!x) return std::nullopt;
  if (op == "Gather") return gathered(c, *x);
  if (op == "Slice") return sliced(c, *x);
  if (op == "Add" || op == "Sub" || op == "Mul" || op == "Div") {
    const auto y = c.known_shape(c.in(1));
    return y ? elementwise(op, *x, *y) : std::nullopt;
  }
  const bool same = op == "Unsqueeze" || op == "Squeeze" || op == "Cast" || op == "Reshape";
  return same ? x : std::nullopt;
}

// Only what comes of dims is followed; everything else has no value before it runs.
bool has_tracked_input(NodeContext& context, const Frame& frame) {
  for (int i = 0; i < context.input_count(); ++i) {
    if (context.has(i) && !context.is_sequence(i) && frame.shapes->contains(context.in(i).id()))
      return true;
  }
  return false;
}

bool is_constant(const Frame& frame, const Value& value) {
  return frame.graph->node(value.id()).op.is<op::Constant>();
}

}  // namespace

void track_shape_values(NodeContext& context, Frame& frame) {
  if (!context.node().domain.empty() || !context.has(0) || !context.wants(0)) return;
  if (context.importer().find_sequence(frame, context.node().outputs[0])) return;
  const Value result = context.importer().find_value(frame, context.node().outputs[0]);
  if (!result || !is_integer(result.dtype()) || result.rank() > 1) return;
  if (frame.shapes->contains(result.id()) || is_constant(frame, result)) return;
  if (!has_tracked_input(context, frame)) return;
  auto shape = learned(context);
  if (!shape || shape->size() > max_tracked) return;
  frame.shapes->emplace(result.id(), *std::move(shape));
}

}  // namespace rlx::onnx
