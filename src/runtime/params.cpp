// Weights set by the user, and the programs that have to follow.
#include <algorithm>

#include "base/error.hpp"
#include "base/error_in_flight.hpp"
#include "graph/op_info.hpp"
#include "rlx/experts.hpp"
#include "rlx/mapped.hpp"
#include "runtime/compiled_graph.hpp"

namespace rlx {
namespace {

const op::Param* find_param(const Graph& graph, std::string_view name) {
  for (const Node& node : graph.nodes()) {
    const auto* param = node.op.as<op::Param>();
    if (param && param->name == name) return param;
  }
  return nullptr;
}

/// Are the values matrices of experts?
bool feeds_experts(const Graph& graph, std::string_view name) {
  return std::ranges::any_of(graph.nodes(), [&](const Node& node) {
    if (!node.op.is<op::GroupedMatmul>()) return false;
    const auto* param = graph.node(node.inputs[1]).op.as<op::Param>();
    return param && param->name == name;
  });
}

Error no_param(const Graph& graph, std::string_view name) {
  std::string known;
  for (const Node& node : graph.nodes()) {
    if (const auto* param = node.op.as<op::Param>())
      known += (known.empty() ? "" : ", ") + param->name;
  }
  return bad_input("There is no param ({}); the params are: {}.", name,
                   known.empty() ? "none" : known);
}

}  // namespace

Status CompiledGraph::set_param(std::string_view name, std::span<const float> values) {
  return set_param_typed(name, std::as_bytes(values), f32);
}

/// Programs made of this one. Where one cannot take the value all are dropped, and made again with
/// it when they are wanted.
Status CompiledGraph::Impl::set_derived_param(const std::string& name, const Tensor& value) {
  Status status;
  try {
    for (const Extent& extent : extents) {
      if (status.ok()) status = extent.program->bound->executable->set_param(name, value);
      if (status.ok()) extent.program->params[name] = value;
    }
    for (auto& specialisation : specialisations) {
      if (status.ok()) status = specialisation.stage->set_param(name, value);
    }
  } catch (...) {
    status = error_in_flight();
  }
  if (status.ok()) return {};
  active = nullptr;
  last_stage = nullptr;
  extents.clear();
  specialisations.clear();
  return status;
}

Status CompiledGraph::set_param_typed(std::string_view name, std::span<const std::byte> bytes,
                                      DType dtype) try {
  RLX_TRY(impl_->check_idle());
  const op::Param* param = find_param(*impl_->graph, name);
  if (!param) return no_param(*impl_->graph, name);
  if (dtype != param->dtype && !(is_float(dtype) && is_float(param->dtype))) {
    return bad_input("The param ({}) is {} and was given {}.", name, name_of(param->dtype),
                     name_of(dtype));
  }
  const std::size_t wanted = static_cast<std::size_t>(element_count(param->dims)) * size_of(dtype);
  if (bytes.size() != wanted) {
    return bad_input("The param ({}) is {} and was given ({}) elements.", name,
                     Type{param->dtype, to_shape(param->dims)}.text(),
                     bytes.size() / size_of(dtype));
  }
  Tensor value(param->dtype, param->dims);
  convert_floats(bytes, dtype, value);
  // Where masks bound the memory of experts, what they are packed from must not stay in it.
  const bool is_bounded = std::ranges::any_of(impl_->experts.masks, [](const ExpertMask& mask) {
    return std::ranges::count(mask, false) > 0;
  });
  if (is_bounded && feeds_experts(*impl_->graph, name)) {
    RLX_ASSIGN(value, in_file(value));
  }
  std::map<std::string, Tensor> fresh{{std::string(name), value}};
  if (impl_->bound) RLX_TRY(impl_->bound->executable->set_param(name, value));
  // Programs of other shapes can come only where dims are open, or were bound by symbols.
  if (!impl_->bound || impl_->source) {
    impl_->params.erase(fresh.begin()->first);
    impl_->params.merge(fresh);  // allocates nothing
  }
  impl_->companions.clear();  // they have the weights of before
  return impl_->set_derived_param(std::string(name), value);
} catch (...) {
  return error_in_flight();
}

}  // namespace rlx
