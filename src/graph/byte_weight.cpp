// Recognises matmuls by weights that dequantize makes.
#include "graph/byte_weight.hpp"

#include <algorithm>

#include "graph/narrow_products.hpp"
#include "graph/weight_only.hpp"
#include "rlx/ops.hpp"

namespace rlx {
namespace {

bool in_bytes(DType dtype) { return dtype == i8 || dtype == u8 || dtype == i4 || dtype == u4; }

/// Where the scales of an axis of the numbers lie.
struct ScaleSteps {
  std::int64_t blocks = 1, block_step = 0, column_step = 0;
};

/// `k`, `n`: axes of the numbers. Nothing where scales change within what has one for a kernel.
std::optional<ScaleSteps> scale_steps(const op::Dequantize& dequantize, const Dims& numbers,
                                      const Dims& scale, std::size_t k, std::size_t n) {
  if (element_count(scale) == 1) return ScaleSteps{};
  const auto rank = static_cast<std::int64_t>(numbers.size());
  const auto axis =
      static_cast<std::size_t>(dequantize.axis < 0 ? dequantize.axis + rank : dequantize.axis);
  if (dequantize.block == 0) {
    if (axis != n) return std::nullopt;
    return ScaleSteps{1, 0, 1};
  }
  constexpr std::int64_t shortest = 8;  // shorter runs of a kernel do not pay
  if (axis != k || dequantize.block < shortest || numbers[k] % dequantize.block != 0)
    return std::nullopt;
  const std::int64_t along[] = {scale[1], 1};
  return ScaleSteps{numbers[k] / dequantize.block, along[k], along[n]};
}

}  // namespace

std::optional<ByteWeight> byte_weight(const Graph& graph, const Node& product,
                                      const std::vector<bool>& weight_only) {
  const auto* dot = product.op.as<op::DotGeneral>();
  if (!dot || !dot->a_batch.empty() || dot->b_contract.size() != 1 ||
      !product.results[0].is_static() || product.results[0].dtype != f32 ||
      graph.type(product.inputs[0]).dtype != f32 || graph.type(product.inputs[1]).rank() != 2)
    return std::nullopt;
  ValueId made = product.inputs[1];
  bool turned = false;  // of two axes
  while (const auto* transpose = graph.node(made).op.as<op::Transpose>()) {
    turned ^= transpose->perm[0] % 2 != 0;  // 0 and -2 leave them in order
    made = graph.node(made).inputs[0];
  }
  const Node& node = graph.node(made);
  const auto* dequantize = node.op.as<op::Dequantize>();
  if (!dequantize || dequantize->dtype != f32) return std::nullopt;
  const bool known = std::ranges::all_of(node.inputs, [&](ValueId id) {
    return id.node < 0 || weight_only[static_cast<std::size_t>(id.node)];
  });
  const Type &numbers = graph.type(node.inputs[0]), &scale = graph.type(node.inputs[1]);
  if (!known || !in_bytes(numbers.dtype) || scale.dtype != f32 || numbers.elements() == 0)
    return std::nullopt;
  const bool last = (dot->b_contract[0] == 1 || dot->b_contract[0] == -1) != turned;
  const std::size_t k = last ? 1 : 0;
  const auto steps = scale_steps(*dequantize, numbers.dims(), scale.dims(), k, 1 - k);
  if (!steps) return std::nullopt;
  return ByteWeight{
      node.inputs[0], node.inputs[1],    node.inputs.size() > 2 ? node.inputs[2] : ValueId(),
      steps->blocks,  steps->block_step, steps->column_step};
}

bool is_read_as_bytes(const Graph& graph, const Node& dequantize, bool few_rows) {
  if (dequantize.results[0].rank() != 2) return false;
  const std::vector<bool> weight_only = weight_only_nodes(graph);
  std::vector<bool> made(graph.nodes().size(), false);  // by the dequantize and transposes
  bool read = false;
  for (const Node& node : graph.nodes()) {
    const auto index = static_cast<std::size_t>(&node - graph.nodes().data());
    made[index] = &node == &dequantize;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i].node < 0 || !made[static_cast<std::size_t>(node.inputs[i].node)]) continue;
      if (node.op.is<op::Transpose>()) {
        made[index] = true;
      } else if (i == 1 && byte_weight(graph, node, weight_only) &&
                 (!few_rows || waits_for_b(graph, node))) {
        read = true;
      } else {
        return false;
      }
    }
  }
  return read && std::ranges::none_of(graph.outputs(), [&](const GraphOutput& output) {
           return made[static_cast<std::size_t>(output.value.node)];
         });
}

}  // namespace rlx
