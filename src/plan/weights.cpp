// Evaluates what depends on params and constants alone, and packs it.
#include "plan/weights.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "graph/op_info.hpp"
#include "rlx/mapped.hpp"
#include "rlx/ops.hpp"

namespace rlx::plan {

std::shared_ptr<const std::byte> WeightCache::find(const std::string& key,
                                                   std::span<const Tensor> sources) {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(key);
  if (found == known_.end()) return nullptr;
  const bool same = std::ranges::equal(
      found->second.sources, sources, [](const auto& known, const Tensor& source) {
        return !known.expired() && !known.owner_before(source.shared_data()) &&
               !source.shared_data().owner_before(known);
      });
  return same ? found->second.bytes.lock() : nullptr;
}

void WeightCache::keep(const std::string& key, const std::shared_ptr<const std::byte>& bytes,
                       std::span<const Tensor> sources) {
  const std::lock_guard lock(mutex_);
  Known known{bytes, {}};
  for (const Tensor& source : sources) known.sources.emplace_back(source.shared_data());
  known_[key] = std::move(known);
  // What is gone goes from the list too, now and then: weights may be set anew all the time.
  constexpr std::size_t prune_at = 64;
  if (known_.size() >= prune_at && std::has_single_bit(known_.size()))
    std::erase_if(known_, [](const auto& entry) { return entry.second.bytes.expired(); });
}

std::shared_ptr<ExpertStore> WeightCache::experts(const WeightPlan& weight, const Tensor& source) {
  const std::string key = weight_key(weight, source);
  const std::lock_guard lock(mutex_);
  std::shared_ptr<ExpertStore> store = experts_[key].lock();
  if (!store) experts_[key] = store = std::make_shared<ExpertStore>(weight, source, budget);
  return store;
}

// Batches are walked here: the packer knows one batch stride.
void pack_panels(const WeightPlan& weight, const Tensor& source, std::int64_t batch,
                 std::int64_t first_panel, std::int64_t last_panel, std::byte* matrix) {
  std::int64_t offset = weight.view.offset, rest = batch;
  for (std::size_t i = weight.batch_extents.size(); i-- > 0;) {
    offset += rest % weight.batch_extents[i] * weight.batch_strides[i];
    rest /= weight.batch_extents[i];
  }
  codegen::PackedLayout part = weight.layout;
  const std::int64_t first_column = first_panel * part.panel_width;
  part.n = std::min(weight.layout.n, last_panel * part.panel_width) - first_column;
  const auto panel_bytes =
      part.filled_k() * part.panel_width * static_cast<std::int64_t>(size_of(part.dtype));
  codegen::pack({.data = source.data(),
                 .rounded = weight.rounded,
                 .offset = offset + first_column * weight.n_stride,
                 .batches = 1,
                 .batch_stride = 0,
                 .k_extents = weight.k_extents,
                 .k_strides = weight.k_strides,
                 .n_stride = weight.n_stride},
                part, matrix + first_panel * panel_bytes);
}

std::string weight_key(const WeightPlan& weight, const Tensor& source) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {}",
                     static_cast<const void*>(source.data()), name_of(weight.dtype), weight.packed,
                     weight.view.offset, fmt::join(weight.view.dims, ","),
                     fmt::join(weight.view.strides, ","), weight.layout.panel_width,
                     fmt::join(weight.batch_extents, ","), fmt::join(weight.batch_strides, ","),
                     fmt::join(weight.k_extents, ","), fmt::join(weight.k_strides, ","),
                     weight.n_stride, weight.rounded, weight.layout.group, weight.layout.inner);
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

/// A part of a weight that one thread writes: panels of one matrix, or the whole of a copy.
struct Piece {
  const WeightPlan* weight = nullptr;
  std::size_t index = 0;  ///< among those made now
  Tensor source;
  std::byte* target = nullptr;  ///< of the whole weight
  std::int64_t batch = 0, first_panel = 0, last_panel = 0;
};

void pack_piece(const Piece& piece) {
  const codegen::PackedLayout& layout = piece.weight->layout;
  const auto matrix_bytes = static_cast<std::int64_t>(codegen::packed_bytes(layout, 1));
  pack_panels(*piece.weight, piece.source, piece.batch, piece.first_panel, piece.last_panel,
              piece.target + piece.batch * matrix_bytes);
}

/// Lets go of the part of the source that the piece was made of, where it is one range: rows of the
/// source, one for each column. Beside the packed weight little of a file is in memory then.
void forget_source(const Piece& piece) {
  const WeightPlan& weight = *piece.weight;
  std::int64_t reach = 1;  // of k from the first element of a column
  for (std::size_t i = 0; i < weight.k_extents.size(); ++i)
    reach += (weight.k_extents[i] - 1) * weight.k_strides[i];
  if (!weight.packed || !weight.batch_extents.empty() || reach != weight.n_stride) return;
  const auto element = static_cast<std::int64_t>(size_of(piece.source.dtype()));
  const std::int64_t first = piece.first_panel * weight.layout.panel_width;
  const std::int64_t last = std::min(weight.layout.n, piece.last_panel * weight.layout.panel_width);
  const std::byte* begin =
      piece.source.data() + (weight.view.offset + first * weight.n_stride) * element;
  forget_pages(Tensor(u8, {(last - first) * weight.n_stride * element},
                      std::shared_ptr<const std::byte>(piece.source.shared_data(), begin)));
}

void add_pieces(const WeightPlan& weight, std::size_t index, const Tensor& source,
                std::byte* target, std::vector<Piece>& pieces) {
  constexpr std::int64_t bytes_each = std::int64_t{1} << 20;
  if (!weight.packed) {
    pieces.push_back({&weight, index, source, target});
    return;
  }
  const std::int64_t panels = weight.layout.panels();
  const auto panel_bytes = weight.layout.filled_k() * weight.layout.panel_width *
                           static_cast<std::int64_t>(size_of(weight.layout.dtype));
  const std::int64_t step =
      std::max<std::int64_t>(1, bytes_each / std::max<std::int64_t>(1, panel_bytes));
  for (std::int64_t batch = 0; batch < element_count(weight.batch_extents); ++batch) {
    for (std::int64_t first = 0; first < panels; first += step)
      pieces.push_back(
          {&weight, index, source, target, batch, first, std::min(panels, first + step)});
  }
}

/// The values that a concatenation of params or constants joins; empty for any other weight. Such
/// weights are named by their parts, which stay where they are, and not by the value made of them.
Result<std::vector<Tensor>> parts_of(Evaluation& evaluation, const Graph& graph,
                                     const WeightPlan& weight) {
  const Node& base = graph.node(weight.view.base);
  std::vector<Tensor> parts;
  if (!base.op.is<op::Concat>() || !weight.packed) return parts;
  for (const ValueId id : base.inputs) {
    const Op& op = graph.node(id).op;
    if (!op.is<op::Param>() && !op.is<op::Constant>()) return std::vector<Tensor>();
    RLX_ASSIGN(std::optional<Tensor> part, evaluation.value(id));
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

/// Of one fill: what is packed into a block that the weights share.
struct Weights::Fresh {
  std::size_t index = 0;
  Tensor source;
  std::vector<Tensor> parts;    ///< what the source was joined from, where the key names these
  std::string key;              ///< empty: not shared with other plans
  bool source_is_read = false;  ///< by kernels: it must stay in memory
};

Status Weights::fill(const Plan& plan, const std::vector<bool>& wanted, WeightCache& cache,
                     ThreadPool& pool) {
  const std::vector<const Graph*> graphs = graphs_of(*graph_);
  std::vector<Evaluation> evaluations;
  for (const Graph* graph : graphs) evaluations.emplace_back(*graph, params_);
  const std::vector<bool> host = read_by_host(plan);
  std::vector<Fresh> fresh;
  std::vector<std::pair<std::size_t, std::size_t>> repeated;  // weights that are others' twins
  std::set<const std::byte*> kept;
  for (std::size_t i = 0; i < plan.weights.size(); ++i) {
    if (!wanted[i]) continue;
    const WeightPlan& weight = plan.weights[i];
    Evaluation& evaluation = evaluations[static_cast<std::size_t>(weight.graph)];
    evaluation.missing.clear();
    const Graph& graph = *graphs[static_cast<std::size_t>(weight.graph)];
    if (weight.experts > 0) {
      RLX_ASSIGN(std::optional<Tensor> matrices, evaluation.value(weight.view.base));
      missing_of_[i] = evaluation.missing;
      experts_[i] = matrices ? cache.experts(weight, *matrices) : nullptr;
      continue;
    }
    RLX_ASSIGN(std::vector<Tensor> parts, parts_of(evaluation, graph, weight));
    std::string key;
    for (const Tensor& part : parts)
      key += fmt::format("{}+", static_cast<const void*>(part.data()));
    if (!parts.empty()) {
      key += weight_key(weight, parts[0]);
      missing_of_[i].clear();
      bytes_[i] = cache.find(key, parts);
      if (bytes_[i]) continue;
    }
    RLX_ASSIGN(std::optional<Tensor> source, evaluation.value(weight.view.base));
    for (const Tensor& part : parts) forget_pages(part);
    missing_of_[i] = evaluation.missing;
    bytes_[i] = nullptr;
    if (!source) continue;
    if (is_whole(weight)) {
      const auto* param = graph.node(weight.view.base).op.as<op::Param>();
      const bool was_set = param && params_.contains(param->name);
      RLX_ASSIGN(bytes_[i], whole(weight, host[i] ? aligned(*source) : *source, was_set, cache));
      kept.insert(bytes_[i].get());
      continue;
    }
    const Op& base = graph.node(weight.view.base).op;
    const bool shareable = !parts.empty() || base.is<op::Param>() || base.is<op::Constant>();
    if (shareable && parts.empty()) key = weight_key(weight, *source);
    const std::span<const Tensor> sources =
        parts.empty() ? std::span<const Tensor>(&*source, 1) : std::span<const Tensor>(parts);
    bytes_[i] = shareable ? cache.find(key, sources) : nullptr;
    if (bytes_[i]) continue;
    const auto same = std::ranges::find(fresh, key, &Fresh::key);
    if (shareable && same != fresh.end()) {
      repeated.emplace_back(i, same->index);
    } else {
      fresh.push_back({i, *std::move(source), std::move(parts), std::move(key)});
    }
  }
  for (Fresh& item : fresh) item.source_is_read = kept.contains(item.source.data());
  RLX_TRY(pack_fresh(plan, fresh, cache, pool));
  for (const auto& [twin, first] : repeated) bytes_[twin] = bytes_[first];
  count(plan);
  return {};
}

// What the graph holds, or a file, was there before; what was set since is the program's own.
Result<std::shared_ptr<const std::byte>> Weights::whole(const WeightPlan& weight,
                                                        const Tensor& source, bool was_set,
                                                        WeightCache& cache) {
  if (!was_set) return source.shared_data();
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

// One block for all: it is made of huge pages, and touched by the threads that pack.
Status Weights::pack_fresh(const Plan& plan, std::span<const Fresh> fresh, WeightCache& cache,
                           ThreadPool& pool) {
  std::int64_t bytes = 0;
  for (const Fresh& item : fresh) bytes += rounded(plan.weights[item.index].bytes);
  if (fresh.empty()) return {};
  RLX_ASSIGN(MemoryShare taken, MemoryShare::take(cache.budget, bytes, "packed weights"));
  const auto share = std::make_shared<MemoryShare>(std::move(taken));
  Tensor block(u8, {std::max<std::int64_t>(bytes, 1)});
  std::byte* next = block.mutable_data();
  std::vector<Piece> pieces;
  std::vector<std::atomic<std::int64_t>> left(fresh.size());
  for (std::size_t k = 0; k < fresh.size(); ++k) {
    const Fresh& item = fresh[k];
    const WeightPlan& weight = plan.weights[item.index];
    const std::size_t before = pieces.size();
    add_pieces(weight, k, item.source, next, pieces);
    left[k] = static_cast<std::int64_t>(pieces.size() - before);
    // Held as members, not by a deleter: the cache's weak pointers would keep that one alive.
    const auto kept = std::make_shared<const Kept>(block.shared_data(), share);
    bytes_[item.index] = {kept, next};
    next += rounded(weight.bytes);
  }
  const auto make = [&](const Piece& piece) {
    if (piece.weight->packed) {
      pack_piece(piece);
    } else {
      copy_view(piece.weight->view, piece.source, piece.target);
    }
    if (fresh[piece.index].source_is_read) return;
    forget_source(piece);
    if (--left[piece.index] == 0) forget_pages(piece.source);
  };
  pool.parallel_for(static_cast<std::int64_t>(pieces.size()), 1,
                    [&](std::int64_t begin, std::int64_t end) {
                      for (; begin < end; ++begin) make(pieces[static_cast<std::size_t>(begin)]);
                    });
  for (const Fresh& item : fresh) {
    const std::span<const Tensor> sources =
        item.parts.empty() ? std::span(&item.source, 1) : std::span(item.parts);
    if (!item.key.empty()) cache.keep(item.key, bytes_[item.index], sources);
  }
  return {};
}

}  // namespace rlx::plan
