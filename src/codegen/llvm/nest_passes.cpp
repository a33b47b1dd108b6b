// Decides what each pass of a nest does: its reductions, the nodes kept in scratch, and guards that
// become loop bounds.
#include <algorithm>

#include "codegen/llvm/nest.hpp"

namespace rlx::codegen {
namespace {

using Ids = std::vector<ScalarId>;

/// Rows of nodes longer than this are computed again instead of kept.
constexpr std::int64_t scratch_limit = 256 * 1024;
/// Nodes cheaper than this many instructions are computed again.
constexpr int worth_keeping = 8;

std::size_t at(ScalarId id) { return static_cast<std::size_t>(id); }

bool contains(const Ids& ids, ScalarId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

class PassMaker {
 public:
  PassMaker(Emitter& emitter, const NestPlan& plan)
      : emitter_(emitter), plan_(plan), nest_(plan.nest), first_pass_(nest_.nodes.size(), -1) {}

  std::vector<NestPass> make() {
    for (int level = 1; level <= plan_.levels; ++level) {
      NestPass pass;
      pass.level = level;
      for (std::size_t i = 0; i < nest_.nodes.size(); ++i) {
        if (nest_.nodes[i].op != ScalarOp::reduce || plan_.node_level[i] != level) continue;
        pass.reductions.emplace_back(emitter_, nest_, static_cast<ScalarId>(i));
      }
      passes_.push_back(std::move(pass));
    }
    NestPass last;
    last.level = plan_.levels + 1;
    const DimSet reduced = plan_.reduced_dims();
    for (int i = 0; i < static_cast<int>(nest_.stores.size()); ++i) {
      const loop::Store& store = nest_.stores[static_cast<std::size_t>(i)];
      const DimSet dims = plan_.node_dims[at(store.node)] | dims_of(store.access, plan_.node_dims);
      if (!reduced || (dims & reduced)) last.stores.push_back(i);
    }
    passes_.push_back(std::move(last));
    for (std::size_t i = 0; i < passes_.size(); ++i) {
      passes_[i].accesses = nest_.accesses;
      if (plan_.levels > 0) find_kept_nodes(static_cast<int>(i));
      if (passes_[i].stores.empty() && passes_[i].saved.empty()) clip(passes_[i]);
      if (plan_.abreast) find_series(passes_[i]);
    }
    return std::move(passes_);
  }

 private:
  int subtree_cost(ScalarId id) const {
    if (id < 0) return 0;
    const ScalarNode& node = nest_.nodes[at(id)];
    if (node.op == ScalarOp::reduce) return 0;
    const int below = subtree_cost(node.a) + subtree_cost(node.b) + subtree_cost(node.c);
    return std::min(cost_of(node) + below, 1000);
  }

  /// Walks from the roots of a pass; an expensive node that an earlier pass computed is kept by
  /// that one.
  void find_kept_nodes(int number) {
    NestPass& pass = passes_[static_cast<std::size_t>(number)];
    Ids open;
    for (const ReductionEmitter& reduction : pass.reductions) {
      open.push_back(nest_.nodes[at(reduction.node())].a);
    }
    for (const int store : pass.stores) {
      open.push_back(nest_.stores[static_cast<std::size_t>(store)].node);
    }
    Ids computed;
    while (!open.empty()) {
      const ScalarId id = open.back();
      open.pop_back();
      if (id < 0 || contains(computed, id) || contains(pass.loaded, id)) continue;
      const ScalarNode& node = nest_.nodes[at(id)];
      if (!(plan_.node_dims[at(id)] & plan_.reduced_dims())) continue;
      const int earlier = first_pass_[at(id)];
      if (earlier >= 0 && earlier < number && keep(id, earlier)) {
        pass.loaded.push_back(id);
        continue;
      }
      computed.push_back(id);
      for (const ScalarId operand : {node.a, node.b, node.c}) open.push_back(operand);
    }
    for (const ScalarId id : computed) {
      if (first_pass_[at(id)] < 0) first_pass_[at(id)] = number;
    }
  }

  /// What the pass computes itself: neither sums of earlier ones nor what they kept.
  void find_series(NestPass& pass) const {
    std::vector<bool> needed(nest_.nodes.size());
    const auto need = [&](ScalarId id) {
      if (id >= 0) needed[at(id)] = true;
    };
    for (const ReductionEmitter& reduction : pass.reductions)
      need(nest_.nodes[at(reduction.node())].a);
    for (const int number : pass.stores) {
      const loop::Store& store = nest_.stores[static_cast<std::size_t>(number)];
      need(store.node);
      for (const loop::Indirect& part : store.access.indirect) need(part.node);
    }
    pass.series = series_of(nest_, std::move(needed), pass.loaded, emitter_.machine);
  }

  bool keep(ScalarId id, int pass) {
    Ids& saved = passes_[static_cast<std::size_t>(pass)].saved;
    if (contains(saved, id)) return true;
    // A row that lanes run along must hold one element for each point.
    const bool varies = plan_.node_dims[at(id)] >> plan_.vector_dim & 1;
    if (!varies || subtree_cost(id) < worth_keeping) return false;
    const std::int64_t lanes = plan_.vector_is_reduced() ? 1 : plan_.unroll * plan_.lanes;
    const std::int64_t bytes = plan_.points(nest_.parallel_dims, plan_.rank()) * lanes *
                               static_cast<std::int64_t>(size_of(nest_.nodes[at(id)].dtype));
    if (scratch_ + bytes > scratch_limit) return false;
    scratch_ += bytes;
    saved.push_back(id);
    passes_[static_cast<std::size_t>(pass)].clips.clear();
    passes_[static_cast<std::size_t>(pass)].accesses = nest_.accesses;
    return true;
  }

  /// Guards under which the node is `neutral`: where one fails the point adds nothing to the
  /// reduction.
  std::vector<loop::Guard> neutral_guards(ScalarId id, ReduceKind kind, double neutral) const {
    const ScalarNode& node = nest_.nodes[at(id)];
    if (node.op == ScalarOp::load) {
      const loop::Access& access = nest_.accesses[static_cast<std::size_t>(node.index)];
      return access.fill == neutral ? access.guards : std::vector<loop::Guard>{};
    }
    if (node.op == ScalarOp::cast && is_float(node.dtype)) {
      return neutral_guards(node.a, kind, neutral);
    }
    if (kind != ReduceKind::sum) return {};
    if (node.op == ScalarOp::neg) return neutral_guards(node.a, kind, neutral);
    if (node.op != ScalarOp::mul) return {};
    std::vector<loop::Guard> guards = neutral_guards(node.a, kind, neutral);
    for (const loop::Guard& guard : neutral_guards(node.b, kind, neutral)) guards.push_back(guard);
    return guards;
  }

  /// The one reduced dim that the guard depends on with a positive coefficient, if lanes do not run
  /// along it otherwise; else -1.
  int dim_to_clip(const loop::Guard& guard) const {
    int found = -1;
    for (int dim = 0; dim < plan_.rank(); ++dim) {
      const std::int64_t c = guard.coefficients[static_cast<std::size_t>(dim)];
      if (c == 0) continue;
      if (dim < nest_.parallel_dims) {
        // Points beside the borders have no lanes, and the others no such guards.
        if (dim == plan_.vector_dim && !plan_.has_inside()) return -1;
        continue;
      }
      if (found >= 0 || c < 0) return -1;
      found = dim;
    }
    return found;
  }

  void clip(NestPass& pass) {
    if (pass.reductions.empty()) return;
    std::vector<loop::Guard> common;
    for (std::size_t i = 0; i < pass.reductions.size(); ++i) {
      if (pass.reductions[i].has_position()) return;
      const ScalarNode& node = nest_.nodes[at(pass.reductions[i].node())];
      const double neutral = identity_of(node.reduce_kind, nest_.nodes[at(node.a)].dtype);
      std::vector<loop::Guard> guards = neutral_guards(node.a, node.reduce_kind, neutral);
      if (i == 0) {
        common = std::move(guards);
      } else {
        std::erase_if(common, [&](const loop::Guard& guard) {
          return std::find(guards.begin(), guards.end(), guard) == guards.end();
        });
      }
    }
    for (const loop::Guard& guard : common) {
      const int dim = dim_to_clip(guard);
      if (dim < 0) continue;
      pass.clips.push_back({dim, guard});
      for (loop::Access& access : pass.accesses) std::erase(access.guards, guard);
    }
  }

  Emitter& emitter_;
  const NestPlan& plan_;
  const loop::Nest& nest_;
  std::vector<NestPass> passes_;
  std::vector<int> first_pass_;  ///< by node: the pass that computes it first, -1 none so far
  std::int64_t scratch_ = 0;
};

}  // namespace

std::vector<NestPass> make_passes(Emitter& emitter, const NestPlan& plan) {
  return PassMaker(emitter, plan).make();
}

}  // namespace rlx::codegen
