// Evaluates an op on rows of its operand, and packs the columns that this gives.
#include "plan/weight_slices.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/memory.hpp"
#include "graph/op_info.hpp"
#include "rlx/mapped.hpp"

namespace rlx::plan {

std::shared_ptr<std::byte> SliceMemory::take() {
  {
    const std::scoped_lock lock(mutex_);
    if (!free_.empty()) {
      std::shared_ptr<std::byte> block = std::move(free_.back());
      free_.pop_back();
      return block;
    }
  }
  return allocate_zeroed(static_cast<std::size_t>(bytes_));
}

void SliceMemory::give(std::shared_ptr<std::byte> block) {
  const std::scoped_lock lock(mutex_);
  free_.push_back(std::move(block));
}

std::int64_t ColumnwiseValue::bytes(std::int64_t width) const {
  return type.elements() / columns() * width * static_cast<std::int64_t>(size_of(type.dtype));
}

std::optional<ColumnwiseValue> columnwise(const Graph& graph, ValueId id,
                                          const WeightValues& values) {
  const Node& node = graph.node(id);
  if (!node.op.info().traits.rows_to_columns || graph.type(id).elements() == 0) return std::nullopt;
  std::optional<Tensor> rows = values.ready(node.inputs[0]);
  if (!rows) return std::nullopt;
  return ColumnwiseValue{&node, *std::move(rows), graph.type(id)};
}

namespace {

/// Is the matrix of the weight one of all columns, which lie side by side?
bool has_columns(const WeightPlan& weight, std::int64_t columns) {
  const auto in_rows = [&](std::int64_t stride) { return stride % columns == 0; };
  return weight.packed && weight.experts == 0 && weight.n_stride == 1 &&
         weight.layout.n == columns && in_rows(weight.view.offset) &&
         std::ranges::all_of(weight.k_strides, in_rows) &&
         std::ranges::all_of(weight.batch_strides, in_rows);
}

/// The weight of a value that has `width` of the columns.
WeightPlan narrowed(const WeightPlan& weight, std::int64_t width) {
  WeightPlan narrow = weight;
  const auto scale = [&](std::int64_t& stride) { stride = stride / weight.layout.n * width; };
  scale(narrow.view.offset);
  std::ranges::for_each(narrow.k_strides, scale);
  std::ranges::for_each(narrow.batch_strides, scale);
  narrow.layout.n = width;
  return narrow;
}

void pack_slice(const WeightTarget& target, const Tensor& slice, std::int64_t first) {
  const WeightPlan narrow = narrowed(*target.weight, slice.dims().back());
  const codegen::PackedLayout& layout = target.weight->layout;
  const auto matrix_bytes = static_cast<std::int64_t>(codegen::packed_bytes(layout, 1));
  const std::int64_t before = matrix_bytes / layout.panels() * (first / layout.panel_width);
  for (std::int64_t batch = 0; batch < element_count(narrow.batch_extents); ++batch)
    pack_panels(narrow, slice, batch, 0, narrow.layout.panels(),
                target.memory + batch * matrix_bytes + before);
}

/// Rows [first, last) of the tensor, where they lie.
Tensor rows_of(const Tensor& tensor, std::int64_t first, std::int64_t last) {
  Dims dims = tensor.dims();
  const std::size_t row_bytes = tensor.bytes() / static_cast<std::size_t>(dims[0]);
  dims[0] = last - first;
  const std::byte* begin = tensor.data() + static_cast<std::size_t>(first) * row_bytes;
  return {tensor.dtype(), std::move(dims), {tensor.shared_data(), begin}};
}

}  // namespace

std::int64_t columns_at_a_time(const ColumnwiseValue& value,
                               std::span<const WeightTarget> targets) {
  constexpr std::int64_t bytes_each = std::int64_t{1} << 20;
  if (targets.empty()) return 0;
  const std::int64_t panel = targets[0].weight->layout.panel_width;
  for (const WeightTarget& target : targets)
    if (!has_columns(*target.weight, value.columns()) || target.weight->layout.panel_width != panel)
      return 0;
  return panel * std::max<std::int64_t>(1, bytes_each / value.bytes(panel));
}

Status pack_columns(const ColumnwiseValue& value, std::int64_t first, std::int64_t last,
                    std::span<const WeightTarget> targets, SliceMemory& memory) {
  Dims dims = value.type.dims();
  dims.back() = last - first;
  std::shared_ptr<std::byte> block = memory.take();
  const MutableTensorView result{value.type.dtype, dims, block.get()};
  const Tensor rows = rows_of(value.rows, first, last);
  Status outcome = evaluate_into(value.node->op, std::span(&rows, 1), std::span(&result, 1));
  if (!outcome.ok()) return std::move(outcome.error()).while_(preparing(*value.node));
  const Tensor slice(result.dtype, dims, std::shared_ptr<const std::byte>(block));
  for (const WeightTarget& target : targets) pack_slice(target, slice, first);
  memory.give(std::move(block));
  forget_pages(rows);
  return {};
}

}  // namespace rlx::plan
