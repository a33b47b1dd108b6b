// Which two contractions become one kernel.
#include "plan/chain.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "plan/region_graph.hpp"

namespace rlx::plan {
namespace {

class Chaining {
 public:
  Chaining(const FlatGraph& flat, const FusionPolicy& policy, Regions& regions)
      : flat_(flat), graph_(flat.graph), policy_(policy), regions_(regions) {}

  void run() {
    std::vector<bool> gone(regions_.list.size(), false);
    for (std::size_t i = 0; i < regions_.list.size(); ++i) {
      const std::int32_t first = first_of(static_cast<std::int32_t>(i));
      if (first < 0 || !ask(first, static_cast<std::int32_t>(i))) continue;
      Region& second = regions_.list[i];
      second.before.push_back(std::move(regions_.list[static_cast<std::size_t>(first)]));
      for (const std::int32_t node : second.before[0].nodes)
        regions_.region_of[static_cast<std::size_t>(node)] = static_cast<std::int32_t>(i);
      gone[static_cast<std::size_t>(first)] = true;
    }
    drop(gone);
  }

 private:
  const Node& node(std::int32_t index) const {
    return graph_.nodes()[static_cast<std::size_t>(index)];
  }
  const View& view(ValueId id) const {
    return regions_.views[static_cast<std::size_t>(id.node)][static_cast<std::size_t>(id.result)];
  }
  const op::DotGeneral* product(const Region& region) const {
    if (region.kind != Region::Kind::contraction || !region.before.empty()) return nullptr;
    return node(region.root).op.as<op::DotGeneral>();
  }

  /// The region that can go before region `index`, or -1.
  std::int32_t first_of(std::int32_t index) const {
    const Region& second = regions_.list[static_cast<std::size_t>(index)];
    const op::DotGeneral* by_value = product(second);
    if (!by_value) return -1;
    const ValueId rows = node(second.root).inputs[0];
    const std::int32_t at = regions_.region_of[static_cast<std::size_t>(rows.node)];
    if (at < 0 || at == index || view(rows).base != rows) return -1;
    const Region& first = regions_.list[static_cast<std::size_t>(at)];
    const op::DotGeneral* by_key = product(first);
    const bool fits = by_key && rows_agree(*by_key, first, *by_value, rows) && pays(first, second);
    return fits && only_the_root_reads(first, rows, second.root) && may_wait(at, index) ? at : -1;
  }

  /// Batch axes first, then rows, in both; the columns of the first are the k of the second.
  bool rows_agree(const op::DotGeneral& first, const Region& region, const op::DotGeneral& second,
                  ValueId rows) const {
    const Dims dims = graph_.type(rows).dims();
    const auto rank = static_cast<std::int64_t>(dims.size());
    if (dims != region.dims || second.a_contract != Axes{rank - 1}) return false;
    if (second.a_batch.size() != first.a_batch.size()) return false;
    for (std::size_t i = 0; i < second.a_batch.size(); ++i) {
      if (second.a_batch[i] != static_cast<std::int64_t>(i)) return false;
    }
    return element_count(dims) > 0;
  }

  /// Weights are better packed and read by large blocks of rows: a chain walks over both B for each
  /// small group.
  bool pays(const Region& first, const Region& second) const {
    const auto weight = [&](const Region& region) {
      return regions_.weight_only[static_cast<std::size_t>(node(region.root).inputs[1].node)];
    };
    return !first.reduced.empty() && !weight(first) && !weight(second);
  }

  /// The gate's answer: the values between the two never leave a worker.
  bool ask(std::int32_t first, std::int32_t second) const {
    const Region& a = regions_.list[static_cast<std::size_t>(first)];
    const Region& b = regions_.list[static_cast<std::size_t>(second)];
    const RegionGraph graph(flat_, regions_);
    std::vector<std::int32_t> nodes = a.nodes, recomputed = a.recomputed;
    nodes.insert(nodes.end(), b.nodes.begin(), b.nodes.end());
    recomputed.insert(recomputed.end(), b.recomputed.begin(), b.recomputed.end());
    FusionQuestion asked{
        .what = fmt::format("chain {} %{} and {} %{}", node(a.root).op.name(), a.root,
                            node(b.root).op.name(), b.root),
        .kind = "chain",
        .before = graph.profile(a.nodes, a.recomputed) + graph.profile(b.nodes, b.recomputed),
        .after = graph.profile(nodes, recomputed)};
    asked.score_ns = policy_.gate.score_ns(asked.before, asked.after);
    asked.fused = asked.score_ns >= policy_.gate.min_gain_ns;
    regions_.questions.push_back(asked);
    return asked.fused;
  }

  bool only_the_root_reads(const Region& first, ValueId rows, std::int32_t root) const {
    const auto inside = [&](std::int32_t index) {
      return std::find(first.nodes.begin(), first.nodes.end(), index) != first.nodes.end();
    };
    for (const GraphOutput& output : graph_.outputs()) {
      if (inside(view(output.value).base.node)) return false;
    }
    for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
      for (const FlatGraph::Predicate& predicate : flat_.predicates[i]) {
        if (inside(predicate.value.node)) return false;
      }
      const auto reader = static_cast<std::int32_t>(i);
      if (inside(reader)) continue;
      const Node& n = graph_.nodes()[i];
      for (std::size_t k = 0; k < n.inputs.size(); ++k) {
        const ValueId id = n.inputs[k];
        if (id.node < 0 || !inside(view(id).base.node)) continue;
        if (reader != root || k != 0 || id != rows) return false;
      }
    }
    return true;
  }

  /// Does the first give the same when it runs as late as the second?
  bool may_wait(std::int32_t first, std::int32_t second) const {
    const auto& predicates = flat_.predicates;
    const auto root = [&](std::int32_t region) {
      return static_cast<std::size_t>(regions_.list[static_cast<std::size_t>(region)].root);
    };
    if (predicates[root(first)] != predicates[root(second)]) return false;
    // A state that changes in between is read too late.
    for (std::int32_t i = first + 1; i < second; ++i) {
      for (const std::int32_t index : regions_.list[static_cast<std::size_t>(i)].nodes) {
        if (node(index).op.is<op::Update>()) return false;
      }
    }
    return true;
  }

  void drop(const std::vector<bool>& gone) {
    std::vector<std::int32_t> position(regions_.list.size(), -1);
    std::vector<Region> kept;
    for (std::size_t i = 0; i < regions_.list.size(); ++i) {
      if (gone[i]) continue;
      position[i] = static_cast<std::int32_t>(kept.size());
      kept.push_back(std::move(regions_.list[i]));
    }
    for (std::int32_t& region : regions_.region_of)
      region = region < 0 ? -1 : position[static_cast<std::size_t>(region)];
    regions_.list = std::move(kept);
  }

  const FlatGraph& flat_;
  const Graph& graph_;
  const FusionPolicy& policy_;
  Regions& regions_;
};

}  // namespace

void chain_contractions(const FlatGraph& graph, const FusionPolicy& policy, Regions& regions) {
  Chaining(graph, policy, regions).run();
}

}  // namespace rlx::plan
