// Forms regions: finds the role of every node, starts a region for each that needs a kernel, lets
// the planner fuse them, and puts them in order.
#include "plan/regions.hpp"

#include <algorithm>
#include <chrono>
#include <queue>
#include <set>

#include "base/error.hpp"
#include "graph/line_points.hpp"
#include "graph/narrow_products.hpp"
#include "graph/op_info.hpp"
#include "graph/weight_only.hpp"
#include "graph/winograd.hpp"
#include "plan/build_recurrence.hpp"
#include "plan/chain.hpp"
#include "plan/fusion.hpp"
#include "rlx/ops.hpp"

namespace rlx::plan {

bool is_pick(const Op& op) {
  return op.is<op::Gather>() || op.is<op::GatherElements>() || op.is<op::GatherNd>() ||
         op.is<op::DynamicSlice>();
}

bool is_generated(DType dtype) {
  const bool narrow = is_float(dtype) ? size_of(dtype) == 1 : integer_bits(dtype) < 8;
  return !is_complex(dtype) && !narrow;
}

namespace {

enum class Role {
  leaf,
  view,
  update,
  elementwise,
  reduction,
  window,
  tiles,
  contraction,
  recurrence,
  concat,
  host
};

/// One channel alone counts, too, where kernels are floats: as a product it would fill one lane.
bool is_depthwise(const Graph& graph, const Node& node, const op::Conv& conv) {
  const Dims x = graph.type(node.inputs[0]).dims(), w = graph.type(node.inputs[1]).dims();
  return (conv.groups > 1 || is_float(node.results[0].dtype)) && conv.groups == x.back() &&
         w.back() == conv.groups && w[w.size() - 2] == 1;
}

bool is_contraction_dtype(DType dtype) {
  return dtype == f32 || dtype == f64 || dtype == f16 || dtype == bf16;
}

/// A cast to f32 of elements that kernels may multiply as they are.
bool widens(const Graph& graph, ValueId id, DType from) {
  const Node& node = graph.node(id);
  return node.op.is<op::Cast>() && node.results[0].dtype == f32 &&
         graph.type(node.inputs[0]).dtype == from;
}

class Formation {
 public:
  Formation(const FlatGraph& flat, const FusionPolicy& policy)
      : flat_(flat), graph_(flat.graph), policy_(policy), read_narrow_(flat.graph.nodes().size()) {
    find_read_through();
  }

  Regions run() {
    const auto started = std::chrono::steady_clock::now();
    const std::size_t count = graph_.nodes().size();
    result_.region_of.assign(count, -1);
    result_.weight_only.assign(count, false);
    for (std::size_t i = 0; i < count; ++i) visit(static_cast<std::int32_t>(i));
    if (policy_.enabled) fuse(flat_, policy_, result_);
    order();
    const std::chrono::duration<double, std::milli> time =
        std::chrono::steady_clock::now() - started;
    result_.planning_ms = time.count();
    return std::move(result_);
  }

 private:
  const Node& node(std::int32_t index) const {
    return graph_.nodes()[static_cast<std::size_t>(index)];
  }
  std::int32_t region_of(ValueId id) const {
    return id.node < 0 ? -1 : result_.region_of[static_cast<std::size_t>(id.node)];
  }
  Region& region(std::int32_t index) { return result_.list[static_cast<std::size_t>(index)]; }
  const View& view(ValueId id) const {
    return result_.views[static_cast<std::size_t>(id.node)][static_cast<std::size_t>(id.result)];
  }

  /// The casts that are read by products of two such casts alone, or as a B that is waited for.
  void find_read_through() {
    std::vector<bool> elsewhere(graph_.nodes().size(), false);
    const std::vector<bool> weight_only = weight_only_nodes(graph_);
    for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
      const Node& n = graph_.nodes()[i];
      const auto both = [&](DType a, DType b) {
        return n.inputs.size() == 2 && widens(graph_, n.inputs[0], a) &&
               widens(graph_, n.inputs[1], b);
      };
      const bool product = n.op.is<op::DotGeneral>() || n.op.is<op::Conv>();
      const bool taken = product && role_of(static_cast<std::int32_t>(i)) == Role::contraction;
      const bool narrow =
          taken && (both(bf16, bf16) || both(u8, i8) || multiplies_narrow_integers(graph_, n));
      const bool narrow_b = taken && widens_halves(graph_, n.inputs[1]) && waits_for_b(graph_, n);
      if (weight_only[i]) continue;  // evaluated beforehand
      for (std::size_t k = 0; k < n.inputs.size(); ++k) {
        const ValueId id = n.inputs[k];
        if (id.node < 0) continue;
        const bool as_stored = narrow || (narrow_b && k == 1);
        (as_stored ? read_narrow_ : elsewhere)[static_cast<std::size_t>(id.node)] = true;
      }
      for (const FlatGraph::Predicate& predicate : flat_.predicates[i])
        elsewhere[static_cast<std::size_t>(predicate.value.node)] = true;
    }
    for (const GraphOutput& output : graph_.outputs())
      elsewhere[static_cast<std::size_t>(output.value.node)] = true;
    for (std::size_t i = 0; i < elsewhere.size(); ++i) {
      if (elsewhere[i]) read_narrow_[i] = false;
    }
  }

  bool is_weight_only(const Node& n) const {
    const OpTraits& traits = n.op.info().traits;
    if (n.op.is<op::Param>() || n.op.is<op::Constant>()) return true;
    if (traits.stateful || traits.random || traits.control_flow || traits.data_dependent)
      return false;
    return std::all_of(n.inputs.begin(), n.inputs.end(), [&](ValueId id) {
      return id.node < 0 || result_.weight_only[static_cast<std::size_t>(id.node)];
    });
  }

  void visit(std::int32_t index) {
    const Node& n = node(index);
    result_.weight_only[static_cast<std::size_t>(index)] = is_weight_only(n);
    const Role role = role_of(index);
    std::optional<View> seen;
    if (role == Role::view) seen = view_through(n, view(n.inputs[0]));
    std::vector<View> views;
    for (std::size_t k = 0; k < n.results.size(); ++k) {
      views.push_back(View::dense({index, static_cast<std::int32_t>(k)}, n.results[k].dims()));
    }
    if (seen) views[0] = *seen;
    result_.views.push_back(std::move(views));
    if (role == Role::leaf || seen || result_.weight_only[static_cast<std::size_t>(index)]) return;
    // A reshape that strides cannot express is a copy: a nest over its operand's points.
    start(index, role);
  }

  Role role_of(std::int32_t index) const {
    const Node& n = node(index);
    if (n.inputs.empty() && n.op.info().traits.stateful) return Role::leaf;
    if (is_view_op(n.op) || read_narrow_[static_cast<std::size_t>(index)]) return Role::view;
    if (n.op.is<op::Update>()) return Role::update;
    if (n.results[0].elements() == 0) return Role::host;  // kernels divide by their rows
    if (n.op.is<op::Concat>() && is_generated(n.results[0].dtype)) return Role::concat;
    const auto generated = [&](ValueId id) {
      return id.node < 0 || is_generated(graph_.type(id).dtype);
    };
    if (!is_generated(n.results[0].dtype) ||
        !std::all_of(n.inputs.begin(), n.inputs.end(), generated))
      return Role::host;
    if (n.op.info().traits.elementwise) return Role::elementwise;
    if (is_pick(n.op)) return Role::elementwise;
    if (const auto* pad = n.op.as<op::Pad>())
      return is_generated_pad(n, *pad) ? Role::elementwise : Role::host;
    if (const auto* reduce = n.op.as<op::Reduce>()) {
      return reduce->keep_dims && reduce->kind != Reduction::mean && n.results[0].elements() > 0
                 ? Role::reduction
                 : Role::host;
    }
    if (const auto* reduce = n.op.as<op::ArgReduce>())
      return reduce->keep_dims && !reduce->select_last ? Role::reduction : Role::host;
    if (const auto* conv = n.op.as<op::Conv>();
        conv && conv->channels_last && !conv->transposed &&
        (is_contraction_dtype(n.results[0].dtype) || multiplies_narrow_integers(graph_, n))) {
      if (!is_depthwise(graph_, n, *conv)) return Role::contraction;
      return is_integer(n.results[0].dtype) ? Role::host : Role::window;
    }
    if (n.op.is<op::WinogradImage>() || n.op.is<op::WinogradOutputs>() ||
        n.op.is<op::LinePoints>() || n.op.is<op::LineOutputs>())
      return Role::tiles;
    if (const auto* pool = n.op.as<op::WindowReduce>();
        pool && pool->channels_last && pool->kind != Reduction::mean)
      return Role::window;
    if (const auto* dot = n.op.as<op::DotGeneral>();
        dot &&
        (is_contraction_dtype(n.results[0].dtype) || multiplies_narrow_integers(graph_, n))) {
      const int free = graph_.type(n.inputs[1]).rank() -
                       static_cast<int>(dot->b_batch.size() + dot->b_contract.size());
      return free == 1 && graph_.type(n.inputs[0]).dtype == graph_.type(n.inputs[1]).dtype
                 ? Role::contraction
                 : Role::host;
    }
    return recurrent_layout(graph_, n, result_.weight_only).ok() ? Role::recurrence : Role::host;
  }

  bool is_generated_pad(const Node& n, const op::Pad& pad) const {
    if (pad.mode != PadMode::constant) return false;
    return n.inputs.size() < 2 || n.inputs[1].node < 0 ||
           graph_.node(n.inputs[1]).op.is<op::Constant>();
  }

  void start(std::int32_t index, Role role) {
    const Node& n = node(index);
    Region fresh;
    fresh.nodes = {index};
    fresh.root = index;
    fresh.dims = n.results[0].dims();
    switch (role) {
      case Role::elementwise:
      case Role::update: fresh.kind = Region::Kind::nest; break;
      case Role::view:
        fresh.kind = Region::Kind::nest;
        fresh.dims = graph_.type(n.inputs[0]).dims();
        break;
      case Role::reduction:
        fresh.kind = Region::Kind::nest;
        fresh.dims = graph_.type(n.inputs[0]).dims();
        fresh.reduced = reduced_axes(n);
        break;
      case Role::window: fresh.kind = Region::Kind::window; break;
      case Role::tiles: fresh.kind = Region::Kind::tiles; break;
      case Role::contraction: fresh.kind = Region::Kind::contraction; break;
      case Role::recurrence: fresh.kind = Region::Kind::recurrence; break;
      case Role::concat: fresh.kind = Region::Kind::concat; break;
      default: fresh.kind = Region::Kind::host; break;
    }
    result_.region_of[static_cast<std::size_t>(index)] =
        static_cast<std::int32_t>(result_.list.size());
    result_.list.push_back(std::move(fresh));
  }

  static Axes reduced_axes(const Node& n) {
    if (const auto* reduce = n.op.as<op::Reduce>()) return reduce->axes;
    const auto* arg = n.op.as<op::ArgReduce>();
    return {arg->axis < 0 ? arg->axis + n.results[0].rank() : arg->axis};
  }

  const std::vector<FlatGraph::Predicate>& predicates_of(const Node& n) const {
    return flat_.predicates[static_cast<std::size_t>(&n - graph_.nodes().data())];
  }

  /// Regions whose values the node reads, directly or through views.
  void add_sources(const Node& n, std::vector<std::int32_t>& sources) const {
    for (const ValueId id : n.inputs) {
      if (id.node >= 0 && region_of(view(id).base) >= 0)
        sources.push_back(region_of(view(id).base));
    }
    for (const FlatGraph::Predicate& predicate : predicates_of(n)) {
      if (region_of(view(predicate.value).base) >= 0)
        sources.push_back(region_of(view(predicate.value).base));
    }
  }

  /// Everything that is evaluated in the region.
  static std::vector<std::int32_t> members(const Region& r) {
    std::vector<std::int32_t> all = r.recomputed;
    all.insert(all.end(), r.nodes.begin(), r.nodes.end());
    return all;
  }

  /// A state is updated after everything that reads it.
  void add_readers(ValueId state, const std::vector<std::int32_t>& live,
                   std::vector<std::int32_t>& sources) {
    for (const std::int32_t r : live) {
      for (const std::int32_t member : members(region(r))) {
        const auto& inputs = node(member).inputs;
        if (std::any_of(inputs.begin(), inputs.end(),
                        [&](ValueId id) { return id.node >= 0 && view(id).base == state; })) {
          if (!node(member).op.is<op::Update>()) sources.push_back(r);
        }
      }
    }
  }

  /// Execution order: operands first, otherwise the order of the graph.
  void order() {
    std::vector<std::int32_t> live;
    for (std::size_t i = 0; i < result_.list.size(); ++i) {
      if (!result_.list[i].nodes.empty()) live.push_back(static_cast<std::int32_t>(i));
    }
    std::vector<std::set<std::int32_t>> users(result_.list.size());
    std::vector<int> waiting(result_.list.size(), 0);
    for (const std::int32_t r : live) {
      std::vector<std::int32_t> sources;
      for (const std::int32_t member : members(region(r))) {
        add_sources(node(member), sources);
        if (node(member).op.is<op::Update>()) add_readers(node(member).inputs[0], live, sources);
      }
      for (const std::int32_t source : std::set<std::int32_t>(sources.begin(), sources.end())) {
        if (source != r && users[static_cast<std::size_t>(source)].insert(r).second)
          ++waiting[static_cast<std::size_t>(r)];
      }
    }
    using Entry = std::pair<std::int32_t, std::int32_t>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
    for (const std::int32_t r : live) {
      if (waiting[static_cast<std::size_t>(r)] == 0) ready.push({region(r).nodes.front(), r});
    }
    std::vector<Region> sorted;
    std::vector<std::int32_t> position(result_.list.size(), -1);
    while (!ready.empty()) {
      const std::int32_t r = ready.top().second;
      ready.pop();
      position[static_cast<std::size_t>(r)] = static_cast<std::int32_t>(sorted.size());
      sorted.push_back(region(r));
      for (const std::int32_t user : users[static_cast<std::size_t>(r)]) {
        if (--waiting[static_cast<std::size_t>(user)] == 0)
          ready.push({region(user).nodes.front(), user});
      }
    }
    RLX_CHECK(sorted.size() == live.size(), "regions depend on each other in a circle");
    for (std::int32_t& r : result_.region_of)
      r = r < 0 ? -1 : position[static_cast<std::size_t>(r)];
    result_.list = std::move(sorted);
  }

  const FlatGraph& flat_;
  const Graph& graph_;
  const FusionPolicy& policy_;
  std::vector<bool> read_narrow_;  ///< by node: a cast to f32 that products read through
  Regions result_;
};

}  // namespace

ValueId operand_read(const Graph& graph, const Regions& regions, ValueId operand) {
  const Node& node = graph.node(operand);
  const View& view = regions.views[static_cast<std::size_t>(operand.node)][0];
  return node.op.is<op::Cast>() && view.base != operand ? node.inputs[0] : operand;
}

Regions form_regions(const FlatGraph& graph, const FusionPolicy& policy) {
  Regions regions = Formation(graph, policy).run();
  if (policy.enabled) chain_contractions(graph, policy, regions);
  return regions;
}

}  // namespace rlx::plan
