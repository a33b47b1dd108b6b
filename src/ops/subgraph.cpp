// What control flow ops share: the types and values of the graphs among their attributes.
#include "ops/subgraph.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"

namespace rlx {

Result<std::vector<Type>> operand_types(std::string_view op, const InferArgs& args, int first) {
  std::vector<Type> types;
  for (int i = first; i < args.count(); ++i) {
    if (!args.has(i)) return bad_input("Input ({}) of {} is left out but is not optional.", i, op);
    types.push_back(args[i]);
  }
  return types;
}

Result<std::vector<Type>> infer_part(std::string_view op, std::string_view part,
                                     const std::shared_ptr<const Graph>& graph,
                                     std::span<const Type> inputs) {
  if (!graph) return bad_input("The op {} has no graph as its ({}).", op, part);
  auto types = infer_graph(*graph, inputs);
  if (!types.ok())
    return std::move(types.error()).while_(fmt::format("inferring the {} of {}", part, op));
  return types;
}

Status require_kept(std::string_view op, std::size_t carry, const Type& type, const Type& next) {
  bool kept = type.dtype == next.dtype && type.rank() == next.rank();
  for (std::size_t i = 0; kept && i < type.shape.size(); ++i)
    kept = compatible(type.shape[i], next.shape[i]);
  if (kept) return {};
  return bad_input("The carry ({}) of {} is {} and becomes {}; a carry must keep its type.", carry,
                   op, type.text(), next.text());
}

Status require_condition(std::string_view op, std::string_view what, const Type& type) {
  bool single = type.dtype == boolean && type.rank() <= 1;
  for (const Dim& dim : type.shape) single = single && compatible(dim, Dim(1));
  if (single) return {};
  return bad_input("The {} of {} must be one bool, not {}.", what, op, type.text());
}

Tensor borrowed(const TensorView& view) {
  if (!view.data) return {};
  return {view.dtype, Dims(view.dims.begin(), view.dims.end()),
          std::shared_ptr<const std::byte>(view.data, [](const std::byte*) {})};
}

Status store_result(std::string_view op, const Tensor& value, const MutableTensorView& out) {
  if (value.dtype() != out.dtype ||
      !std::equal(value.dims().begin(), value.dims().end(), out.dims.begin(), out.dims.end())) {
    return bad_input("A result of {} is {} and was inferred as {}.", op,
                     Type{value.dtype(), to_shape(value.dims())}.text(),
                     Type{out.dtype, to_shape(out.dims)}.text());
  }
  if (value.bytes() > 0) std::memcpy(out.data, value.data(), value.bytes());
  return {};
}

void own_results(std::vector<Tensor>& results, std::span<const TensorView> inputs) {
  for (Tensor& result : results) {
    const bool shares = std::any_of(inputs.begin(), inputs.end(), [&](const TensorView& input) {
      return input.data == result.data();
    });
    if (!shares || result.empty()) continue;
    Tensor copy(result.dtype(), result.dims());
    std::memcpy(copy.mutable_data(), result.data(), result.bytes());
    result = std::move(copy);
  }
}

bool truth_of(const Tensor& scalar) {
  return *reinterpret_cast<const std::uint8_t*>(scalar.data()) != 0;
}

}  // namespace rlx
