// Recognises products of casts from narrow elements, and bounds what integers can be.
#include "graph/narrow_products.hpp"

#include <algorithm>

#include "graph/elementwise_eval.hpp"
#include "graph/product_shape.hpp"
#include "rlx/ops.hpp"

namespace rlx {
namespace {

struct Range {
  std::int64_t least = 0, most = 0;
};

Range range_of(DType dtype) {
  const int bits = integer_bits(dtype);
  if (is_unsigned_integer(dtype)) return {0, (std::int64_t{1} << std::min(bits, 62)) - 1};
  const std::int64_t half = std::int64_t{1} << std::min(bits - 1, 62);
  return {-half, half - 1};
}

bool moves_elements(const Op& op) {
  return op.is<op::Transpose>() || op.is<op::Reshape>() || op.is<op::Broadcast>() ||
         op.is<op::Slice>() || op.is<op::Gather>();
}

Range range_of(const Graph& graph, ValueId id, int depth = 0) {
  constexpr int deepest = 8;
  const Node& node = graph.node(id);
  const Range any = range_of(graph.type(id).dtype);
  if (depth > deepest) return any;
  const auto operand = [&](std::size_t k) { return range_of(graph, node.inputs[k], depth + 1); };
  const auto fits = [&](Range range) {
    return range.least >= any.least && range.most <= any.most ? range : any;
  };
  if (const auto* constant = node.op.as<op::Constant>();
      constant && constant->value.elements() == 1) {
    const std::int64_t value =
        load_datum(constant->value.dtype(), constant->value.data(), 0).integer;
    return {value, value};
  }
  if (moves_elements(node.op)) return operand(0);
  if (node.op.is<op::Pad>()) {
    const Range all = operand(0);
    const Range around = node.inputs.size() > 1 && node.inputs[1].node >= 0 ? operand(1) : Range{};
    return {std::min(all.least, around.least), std::max(all.most, around.most)};
  }
  if (node.op.is<op::Cast>() && is_integer(graph.type(node.inputs[0]).dtype))
    return fits(operand(0));
  if (!node.op.is<op::Sub>()) return any;
  const Range a = operand(0), b = operand(1);
  return fits({a.least - b.most, a.most - b.least});
}

}  // namespace

std::int64_t most_magnitude(const Graph& graph, ValueId id) {
  const Range range = range_of(graph, id);
  return std::max(-range.least, range.most);
}

bool widens_integers(const Graph& graph, ValueId id) {
  const Node& node = graph.node(id);
  if (!node.op.is<op::Cast>() || node.results[0].dtype != i32) return false;
  const DType from = graph.type(node.inputs[0]).dtype;
  return from == u8 || from == i8 || from == i16;
}

bool multiplies_narrow_integers(const Graph& graph, const Node& node) {
  const bool product = node.op.is<op::DotGeneral>() || node.op.is<op::Conv>();
  return product && node.inputs.size() == 2 && node.results[0].dtype == i32 &&
         widens_integers(graph, node.inputs[0]) && widens_integers(graph, node.inputs[1]);
}

bool widens_halves(const Graph& graph, ValueId id) {
  const Node& node = graph.node(id);
  if (!node.op.is<op::Cast>() || node.results[0].dtype != f32) return false;
  const DType from = graph.type(node.inputs[0]).dtype;
  return from == f16 || from == bf16;
}

bool waits_for_b(const Graph& graph, const Node& product) {
  constexpr std::int64_t most_rows = 7;
  const auto shape = product_shape(graph, product);
  return shape && shape->rows <= most_rows;
}

}  // namespace rlx
