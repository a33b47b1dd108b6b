// Evaluates what depends on params and constants alone, and packs it.
#include "plan/weights.hpp"

#include <cstring>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "graph/op_info.hpp"
#include "rlx/ops.hpp"

namespace rlx::plan {

std::shared_ptr<const std::byte> WeightCache::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(key);
  return found == known_.end() ? nullptr : found->second.lock();
}

void WeightCache::keep(const std::string& key, const std::shared_ptr<const std::byte>& bytes) {
  const std::lock_guard lock(mutex_);
  known_[key] = bytes;
}

namespace {

/// Values of weight-only nodes, computed when first needed.
class Evaluation {
 public:
  Evaluation(const Graph& graph, const std::map<std::string, Tensor>& params)
      : graph_(graph), params_(params) {}

  /// The value, or nothing where a param has no data (its name is then in `missing`).
  Result<std::optional<Tensor>> value(ValueId id) {
    const auto known = values_.find(id.node);
    if (known != values_.end())
      return std::optional(known->second[static_cast<std::size_t>(id.result)]);
    const Node& node = graph_.node(id);
    if (const auto* param = node.op.as<op::Param>()) return param_value(*param);
    if (const auto* constant = node.op.as<op::Constant>()) return std::optional(constant->value);
    std::vector<Tensor> inputs;
    for (const ValueId input : node.inputs) {
      if (input.node < 0) {
        inputs.emplace_back();
        continue;
      }
      RLX_ASSIGN(auto operand, value(input));
      if (!operand) return std::optional<Tensor>();
      inputs.push_back(*std::move(operand));
    }
    auto results = evaluate(node.op, inputs);
    if (!results.ok())
      return std::move(results.error())
          .while_("preparing weights of " +
                  (node.origin.empty() ? std::string(node.op.name()) : node.origin));
    const Tensor result = (*results)[static_cast<std::size_t>(id.result)];
    values_[id.node] = *std::move(results);
    return std::optional(result);
  }

  std::string missing;

 private:
  std::optional<Tensor> param_value(const op::Param& param) {
    const auto set = params_.find(param.name);
    if (set != params_.end()) return set->second;
    if (!param.data.empty()) return param.data;
    missing = param.name;
    return std::nullopt;
  }

  const Graph& graph_;
  const std::map<std::string, Tensor>& params_;
  std::map<std::int32_t, std::vector<Tensor>> values_;
};

std::shared_ptr<std::byte> allocate(std::int64_t bytes) {
  Tensor tensor(u8, {std::max<std::int64_t>(bytes, 1)});
  return {tensor.shared_data(), tensor.mutable_data()};
}

/// Copies a strided view of `source` densely.
void copy_view(const View& view, const Tensor& source, std::byte* target) {
  const std::size_t size = size_of(source.dtype());
  if (view.elements() == 0) return;
  if (view.is_dense()) {
    std::memcpy(target, source.data() + static_cast<std::size_t>(view.offset) * size,
                static_cast<std::size_t>(view.elements()) * size);
    return;
  }
  Dims index(view.dims.size(), 0);
  std::int64_t offset = view.offset;
  for (std::int64_t i = 0; i < view.elements(); ++i) {
    std::memcpy(target + static_cast<std::size_t>(i) * size,
                source.data() + static_cast<std::size_t>(offset) * size, size);
    for (std::size_t axis = index.size(); axis-- > 0;) {
      offset += view.strides[axis];
      if (++index[axis] < view.dims[axis]) break;
      offset -= view.strides[axis] * view.dims[axis];
      index[axis] = 0;
    }
  }
}

void pack_view(const WeightPlan& weight, const Tensor& source, std::byte* target) {
  // Batches are walked here: the packer knows one batch stride.
  const std::int64_t batches = element_count(weight.batch_extents);
  const auto bytes_each = static_cast<std::int64_t>(codegen::packed_bytes(weight.layout, 1));
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    std::int64_t offset = weight.view.offset, rest = batch;
    for (std::size_t i = weight.batch_extents.size(); i-- > 0;) {
      offset += rest % weight.batch_extents[i] * weight.batch_strides[i];
      rest /= weight.batch_extents[i];
    }
    codegen::pack({.data = source.data(),
                   .offset = offset,
                   .batches = 1,
                   .batch_stride = 0,
                   .k_extents = weight.k_extents,
                   .k_strides = weight.k_strides,
                   .n_stride = weight.n_stride},
                  weight.layout, target + batch * bytes_each);
  }
}

/// Names what the packed bytes are made of, for plans that share a model's weights.
std::string cache_key(const WeightPlan& weight, const Tensor& source) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {}", static_cast<const void*>(source.data()),
                     name_of(weight.dtype), weight.packed, weight.view.offset,
                     fmt::join(weight.view.dims, ","), fmt::join(weight.view.strides, ","),
                     weight.layout.panel_width, fmt::join(weight.batch_extents, ","),
                     fmt::join(weight.batch_strides, ","), fmt::join(weight.k_extents, ","),
                     fmt::join(weight.k_strides, ","), weight.n_stride);
}

}  // namespace

Result<std::shared_ptr<const Weights>> Weights::prepare(std::shared_ptr<const FlatGraph> graph,
                                                        const Plan& plan, WeightCache& cache,
                                                        std::map<std::string, Tensor> params) {
  auto weights = std::make_shared<Weights>();
  weights->graph_ = graph;
  weights->params_ = std::move(params);
  Evaluation evaluation(graph->graph, weights->params_);
  for (const WeightPlan& plan_weight : plan.weights) {
    RLX_ASSIGN(const std::optional<Tensor> source, evaluation.value(plan_weight.view.base));
    if (!source) {
      weights->bytes_.push_back(nullptr);
      continue;
    }
    weights->bytes_total_ += plan_weight.bytes;
    const bool whole =
        !plan_weight.packed && plan_weight.view.is_dense() && plan_weight.view.offset == 0;
    if (whole) {
      weights->bytes_.push_back(source->shared_data());
      continue;
    }
    const Op& base = graph->graph.node(plan_weight.view.base).op;
    const bool shareable = base.is<op::Param>() || base.is<op::Constant>();
    const std::string key = shareable ? cache_key(plan_weight, *source) : "";
    std::shared_ptr<const std::byte> bytes = shareable ? cache.find(key) : nullptr;
    if (!bytes) {
      const std::shared_ptr<std::byte> fresh = allocate(plan_weight.bytes);
      plan_weight.packed ? pack_view(plan_weight, *source, fresh.get())
                         : copy_view(plan_weight.view, *source, fresh.get());
      // The source stays alive with what was made of it, so that its address keeps naming it.
      bytes = std::shared_ptr<const std::byte>(
          fresh.get(), [fresh, owner = source->shared_data()](const std::byte*) {});
      if (shareable) cache.keep(key, bytes);
    }
    weights->bytes_.push_back(std::move(bytes));
  }
  weights->missing_ = evaluation.missing;
  return std::shared_ptr<const Weights>(std::move(weights));
}

Result<std::shared_ptr<const Weights>> Weights::with_param(std::string_view name,
                                                           const Tensor& value, const Plan& plan,
                                                           WeightCache& cache) const {
  std::map<std::string, Tensor> params = params_;
  params[std::string(name)] = value;
  return prepare(graph_, plan, cache, std::move(params));
}

}  // namespace rlx::plan
