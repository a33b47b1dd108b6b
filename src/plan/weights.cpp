// Evaluates what depends on params and constants alone, and has it packed.
#include "plan/weights.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "graph/op_info.hpp"
#include "plan/negligible.hpp"
#include "plan/weight_jobs.hpp"
#include "plan/weight_values.hpp"
#include "rlx/mapped.hpp"
#include "rlx/ops.hpp"

namespace rlx::plan {

namespace {

/// The values that a concatenation of params or constants joins; empty for any other weight. Such
/// weights are named by their parts, which stay where they are, and not by the value made of them.
Result<std::vector<Tensor>> parts_of(WeightValues& values, const Graph& graph,
                                     const WeightPlan& weight) {
  const Node& base = graph.node(weight.view.base);
  std::vector<Tensor> parts;
  if (!base.op.is<op::Concat>() || !weight.packed) return parts;
  for (const ValueId id : base.inputs) {
    const Op& op = graph.node(id).op;
    if (!op.is<op::Param>() && !op.is<op::Constant>()) return std::vector<Tensor>();
    RLX_ASSIGN(std::optional<Tensor> part, values.value(id));
    if (!part) return std::vector<Tensor>();
    parts.push_back(*std::move(part));
  }
  return parts;
}

/// Weights that host calls read: reference evaluations want aligned elements.
std::vector<bool> read_by_host(const Plan& plan) {
  std::vector<bool> read(plan.weights.size(), false);
  for (const HostCall& call : plan.host_calls) {
    for (const std::int32_t input : call.inputs) {
      if (input < 0) continue;
      const BufferPlan& buffer = plan.buffers[static_cast<std::size_t>(input)];
      if (buffer.storage == Storage::weight) read[static_cast<std::size_t>(buffer.index)] = true;
    }
  }
  return read;
}

/// By node: does its value depend on that param?
std::vector<bool> depends_on(const Graph& graph, std::string_view name) {
  std::vector<bool> depends(graph.nodes().size(), false);
  for (std::size_t i = 0; i < depends.size(); ++i) {
    const Node& node = graph.nodes()[i];
    const auto* param = node.op.as<op::Param>();
    depends[i] = (param && param->name == name) ||
                 std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
                   return id.node >= 0 && depends[static_cast<std::size_t>(id.node)];
                 });
  }
  return depends;
}

bool is_whole(const WeightPlan& weight) {
  return !weight.packed && weight.view.is_dense() && weight.view.offset == 0;
}

constexpr std::int64_t rounded(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

Result<std::shared_ptr<const Weights>> Weights::prepare(std::shared_ptr<const FlatGraph> graph,
                                                        const Plan& plan, WeightCache& cache,
                                                        ThreadPool& pool) {
  auto weights = std::make_shared<Weights>();
  weights->graph_ = std::move(graph);
  weights->bytes_.resize(plan.weights.size());
  weights->missing_of_.resize(plan.weights.size());
  weights->experts_.resize(plan.weights.size());
  RLX_TRY(weights->fill(plan, std::vector<bool>(plan.weights.size(), true), cache, pool));
  return std::shared_ptr<const Weights>(std::move(weights));
}

Result<std::shared_ptr<const Weights>> Weights::with_param(std::string_view name,
                                                           const Tensor& value, const Plan& plan,
                                                           WeightCache& cache,
                                                           ThreadPool& pool) const {
  auto weights = std::make_shared<Weights>(*this);
  weights->params_.insert_or_assign(std::string(name), value);
  std::vector<std::vector<bool>> depends;
  for (const Graph* graph : graphs_of(*graph_)) depends.push_back(depends_on(*graph, name));
  std::vector<bool> wanted;
  for (const WeightPlan& weight : plan.weights) {
    const std::vector<bool>& of_graph = depends[static_cast<std::size_t>(weight.graph)];
    wanted.push_back(of_graph[static_cast<std::size_t>(weight.view.base.node)]);
  }
  RLX_TRY(weights->fill(plan, wanted, cache, pool));
  weights->forget_params(plan);
  return std::shared_ptr<const Weights>(std::move(weights));
}

namespace {

std::set<std::string> params_below(const Graph& graph, ValueId id) {
  std::set<std::string> names;
  std::set<std::int32_t> seen{id.node};
  std::vector<std::int32_t> left{id.node};
  while (!left.empty()) {
    const Node& node = graph.nodes()[static_cast<std::size_t>(left.back())];
    left.pop_back();
    if (const auto* param = node.op.as<op::Param>()) names.insert(param->name);
    for (const ValueId input : node.inputs) {
      if (input.node >= 0 && seen.insert(input.node).second) left.push_back(input.node);
    }
  }
  return names;
}

}  // namespace

// What is made of one param alone is made anew when that param is set. What is made of several
// wants them all when one of them is.
void Weights::forget_params(const Plan& plan) {
  const std::vector<const Graph*> graphs = graphs_of(*graph_);
  std::set<std::string> wanted;
  for (const WeightPlan& weight : plan.weights) {
    std::set<std::string> names =
        params_below(*graphs[static_cast<std::size_t>(weight.graph)], weight.view.base);
    if (names.size() > 1) wanted.merge(names);
  }
  std::erase_if(params_, [&](const auto& entry) { return !wanted.contains(entry.first); });
}

namespace {

/// A param without a value that the node depends on; empty where there is none.
std::string param_below(const Graph& graph, ValueId id) {
  const Node& node = graph.node(id);
  if (const auto* param = node.op.as<op::Param>()) return param->name;
  for (const ValueId input : node.inputs) {
    const std::string name = input.node < 0 ? "" : param_below(graph, input);
    if (!name.empty()) return name;
  }
  return {};
}

}  // namespace

std::shared_ptr<const Weights> Weights::adopt(std::shared_ptr<const FlatGraph> graph,
                                              const Plan& plan,
                                              std::vector<std::shared_ptr<const std::byte>> bytes,
                                              const std::shared_ptr<MemoryBudget>& budget) {
  auto weights = std::make_shared<Weights>();
  weights->graph_ = std::move(graph);
  weights->bytes_ = std::move(bytes);
  weights->missing_of_.resize(plan.weights.size());
  weights->experts_.resize(plan.weights.size());
  for (std::size_t i = 0; i < plan.weights.size(); ++i) {
    const WeightPlan& weight = plan.weights[i];
    if (!weights->bytes_[i]) {
      weights->missing_of_[i] = param_below(weights->graph_->graph, weight.view.base);
    } else if (weight.experts > 0) {
      weights->experts_[i] =
          std::make_shared<ExpertStore>(weight, std::exchange(weights->bytes_[i], {}), budget);
    }
  }
  weights->count(plan);
  return weights;
}

/// What a packed weight keeps in memory.
struct Weights::Kept {
  std::shared_ptr<const std::byte> block;
  std::shared_ptr<MemoryShare> share;
  Kept(std::shared_ptr<const std::byte> block, std::shared_ptr<MemoryShare> share)
      : block(std::move(block)), share(std::move(share)) {}
};

/// Of one fill: what is packed into a block that the weights share, or computed and kept as it is.
struct Weights::Fresh {
  std::size_t index = 0;
  std::optional<Tensor> source;  ///< nothing: it is computed by the thread that wants it
  std::vector<Tensor> parts;     ///< what the source is joined from, where the key names these
  std::string key;               ///< empty: not shared with other plans
};

/// Of one fill and graph: values that several weights share, and who owns the others.
struct Weights::Values {
  const Graph& graph;
  WeightValues common;
  Owners owners;
  Values(const Graph& graph, const WeightValues::Params& params)
      : graph(graph), common(graph, params), owners(graph) {}

  bool is_leaf(ValueId id) const {
    const Op& op = graph.node(id).op;
    return op.is<op::Param>() || op.is<op::Constant>();
  }
  /// Is the weight made of a value that nobody else reads? The thread that wants it computes that.
  bool is_own(const WeightPlan& weight) const {
    const ValueId base = weight.view.base;
    return weight.experts == 0 && !is_leaf(base) && !owners.is_common(base);
  }
  /// The leaves and common values that a value is made of: itself, where it is one.
  std::vector<ValueId> common_below(ValueId base) const {
    std::vector<ValueId> found, left{base};
    std::set<ValueId> seen{base};
    while (!left.empty()) {
      const ValueId id = left.back();
      left.pop_back();
      if (is_leaf(id) || owners.is_common(id)) {
        found.push_back(id);
        continue;
      }
      const auto& inputs = graph.node(id).inputs;
      for (auto input = inputs.rbegin(); input != inputs.rend(); ++input)
        if (input->node >= 0 && seen.insert(*input).second) left.push_back(*input);
    }
    return found;
  }
  /// The same, as they are once prepared.
  std::vector<Tensor> sources_of(ValueId base) const {
    std::vector<Tensor> sources;
    for (const ValueId id : common_below(base)) sources.push_back(common.ready(id).value());
    return sources;
  }
  /// Computes the common values below one that is not; false where a param is missing.
  Result<bool> prepare(ValueId base) {
    for (const ValueId id : common_below(base)) {
      RLX_ASSIGN(const std::optional<Tensor> value, common.value(id));
      if (!value) return false;
    }
    return true;
  }
};

std::vector<Weights::Values> Weights::values_of(const Plan& plan,
                                                const std::vector<bool>& wanted) const {
  std::vector<Values> values;
  for (const Graph* graph : graphs_of(*graph_)) values.emplace_back(*graph, params_);
  for (std::size_t i = 0; i < plan.weights.size(); ++i) {
    if (!wanted[i]) continue;
    const WeightPlan& weight = plan.weights[i];
    Owners& owners = values[static_cast<std::size_t>(weight.graph)].owners;
    if (weight.experts > 0) {
      owners.add_common(weight.view.base);
    } else {
      owners.add(weight.view.base);
    }
  }
  // What weights are made of stays; what is computed on the way there goes behind its last use.
  for (std::size_t i = 0; i < plan.weights.size(); ++i) {
    if (!wanted[i]) continue;
    Values& of_graph = values[static_cast<std::size_t>(plan.weights[i].graph)];
    for (const ValueId id : of_graph.common_below(plan.weights[i].view.base))
      of_graph.common.announce(id);
  }
  return values;
}

Status Weights::fill(const Plan& plan, const std::vector<bool>& wanted, WeightCache& cache,
                     ThreadPool& pool) {
  std::vector<Values> values = values_of(plan, wanted);
  const std::vector<bool> host = read_by_host(plan);
  std::vector<Fresh> fresh;
  std::vector<std::pair<std::size_t, std::size_t>> repeated;  // weights that are others' twins
  std::set<const std::byte*> kept;
  for (std::size_t i = 0; i < plan.weights.size(); ++i) {
    if (!wanted[i]) continue;
    const WeightPlan& weight = plan.weights[i];
    Values& of_graph = values[static_cast<std::size_t>(weight.graph)];
    WeightValues& common = of_graph.common;
    common.missing.clear();
    const Graph& graph = of_graph.graph;
    if (weight.experts > 0) {
      RLX_ASSIGN(std::optional<Tensor> matrices, common.value(weight.view.base));
      missing_of_[i] = common.missing;
      experts_[i] = matrices ? cache.experts(weight, *matrices) : nullptr;
      continue;
    }
    RLX_ASSIGN(std::vector<Tensor> parts, parts_of(common, graph, weight));
    std::string key;
    for (const Tensor& part : parts)
      key += fmt::format("{}+", static_cast<const void*>(part.data()));
    if (!parts.empty()) {
      key += weight_key(weight, parts[0]);
      missing_of_[i].clear();
      bytes_[i] = cache.find(key, parts);
      if (bytes_[i]) continue;
    }
    std::optional<Tensor> source;
    bytes_[i] = nullptr;
    if (of_graph.is_own(weight)) {
      RLX_ASSIGN(const bool known, of_graph.prepare(weight.view.base));
      missing_of_[i] = common.missing;
      if (!known) continue;
    } else {
      RLX_ASSIGN(source, common.value(weight.view.base));
      for (const Tensor& part : parts) forget_pages(part);
      missing_of_[i] = common.missing;
      if (!source) continue;
    }
    if (source && is_whole(weight)) {
      const auto* param = graph.node(weight.view.base).op.as<op::Param>();
      const Tensor value = host[i]                   ? aligned(*source)
                           : weight.drops_negligible ? without_negligible(*source)
                                                     : *source;
      const bool is_own =
          (param && params_.contains(param->name)) || (!host[i] && value.data() != source->data());
      RLX_ASSIGN(bytes_[i], whole(weight, value, is_own, cache));
      kept.insert(bytes_[i].get());
      continue;
    }
    const bool shareable = !parts.empty() || of_graph.is_leaf(weight.view.base);
    if (shareable && parts.empty()) key = weight_key(weight, *source);
    const std::span<const Tensor> sources =
        parts.empty() && source ? std::span<const Tensor>(&*source, 1) : std::span(parts);
    bytes_[i] = shareable ? cache.find(key, sources) : nullptr;
    if (bytes_[i]) continue;
    const auto same = std::ranges::find(fresh, key, &Fresh::key);
    if (shareable && same != fresh.end()) {
      repeated.emplace_back(i, same->index);
    } else {
      fresh.push_back({i, std::move(source), std::move(parts), std::move(key)});
    }
  }
  RLX_TRY(pack_fresh(plan, fresh, values, std::move(kept), cache, pool));
  for (const auto& [twin, first] : repeated) bytes_[twin] = bytes_[first];
  count(plan);
  return {};
}

// What the graph holds, or a file, was there before; what was set or made since is the program's
// own.
Result<std::shared_ptr<const std::byte>> Weights::whole(const WeightPlan& weight,
                                                        const Tensor& source, bool is_own,
                                                        WeightCache& cache) {
  if (!is_own) return source.shared_data();
  const std::string key = weight_key(weight, source);
  if (auto known = cache.find(key, std::span(&source, 1))) return known;
  RLX_ASSIGN(MemoryShare taken, MemoryShare::take(cache.budget, weight.bytes, "a weight"));
  const auto kept = std::make_shared<const Kept>(source.shared_data(),
                                                 std::make_shared<MemoryShare>(std::move(taken)));
  const std::shared_ptr<const std::byte> bytes(kept, source.data());
  cache.keep(key, bytes, std::span(&source, 1));
  return bytes;
}

void Weights::count(const Plan& plan) {
  bytes_total_ = 0;
  missing_.clear();
  std::set<const std::byte*> counted;
  for (std::size_t i = 0; i < plan.weights.size(); ++i) {
    if (bytes_[i] && counted.insert(bytes_[i].get()).second) bytes_total_ += plan.weights[i].bytes;
    if (missing_.empty()) missing_ = missing_of_[i];
  }
}

// One block for all that is packed: it is made of huge pages, and touched by the threads that pack.
Status Weights::pack_fresh(const Plan& plan, std::span<const Fresh> fresh,
                           std::span<const Values> values, std::set<const std::byte*> read,
                           WeightCache& cache, ThreadPool& pool) {
  const auto keeps_value = [&](const Fresh& item) {
    return !item.source && is_whole(plan.weights[item.index]);
  };
  std::int64_t bytes = 0;
  for (const Fresh& item : fresh)
    if (!keeps_value(item)) bytes += rounded(plan.weights[item.index].bytes);
  if (fresh.empty()) return {};
  RLX_ASSIGN(MemoryShare taken, MemoryShare::take(cache.budget, bytes, "packed weights"));
  const auto share = std::make_shared<MemoryShare>(std::move(taken));
  Tensor block(u8, {std::max<std::int64_t>(bytes, 1)});
  std::byte* next = block.mutable_data();
  WeightJobs jobs(params_, std::move(read));
  for (const Fresh& item : fresh) {
    const WeightPlan& weight = plan.weights[item.index];
    const Values& of_graph = values[static_cast<std::size_t>(weight.graph)];
    std::shared_ptr<const std::byte>& kept_bytes = bytes_[item.index];
    if (keeps_value(item)) {
      jobs.derive_whole(weight, of_graph.graph, of_graph.common,
                        of_graph.sources_of(weight.view.base), &kept_bytes);
      continue;
    }
    if (item.source) {
      jobs.add(weight, *item.source, next);
    } else {
      jobs.derive(weight, of_graph.graph, of_graph.common, of_graph.sources_of(weight.view.base),
                  next);
    }
    // Held as members, not by a deleter: the cache's weak pointers would keep that one alive.
    const auto kept = std::make_shared<const Kept>(block.shared_data(), share);
    kept_bytes = {kept, next};
    next += rounded(weight.bytes);
  }
  RLX_TRY(jobs.run(pool));
  for (const Fresh& item : fresh) {
    const std::span<const Tensor> sources =
        item.parts.empty() && item.source ? std::span(&*item.source, 1) : std::span(item.parts);
    if (!item.key.empty()) cache.keep(item.key, bytes_[item.index], sources);
  }
  return {};
}

}  // namespace rlx::plan
