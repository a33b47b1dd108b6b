// Which two contractions become one kernel, and which contraction makes the rows of its A itself.
#include "plan/chain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "graph/byte_weight.hpp"
#include "graph/narrow_products.hpp"
#include "graph/winograd.hpp"
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
      const auto second_at = static_cast<std::int32_t>(i);
      if (const auto rows = row_stages_before(second_at)) {
        join(*rows, second_at, gone);
        continue;
      }
      std::int32_t first = first_of(second_at);
      if (first < 0) first = rows_before(second_at);
      if (first < 0 || !ask(first, second_at)) continue;
      join(std::array{first}, second_at, gone);
    }
    drop(gone);
  }

 private:
  void join(std::span<const std::int32_t> before, std::int32_t region, std::vector<bool>& gone) {
    Region& last = regions_.list[static_cast<std::size_t>(region)];
    for (const std::int32_t at : before) {
      last.before.push_back(std::move(regions_.list[static_cast<std::size_t>(at)]));
      for (const std::int32_t node : last.before.back().nodes)
        regions_.region_of[static_cast<std::size_t>(node)] = region;
      gone[static_cast<std::size_t>(at)] = true;
    }
  }

  const Node& node(std::int32_t index) const {
    return graph_.nodes()[static_cast<std::size_t>(index)];
  }
  const View& view(ValueId id) const {
    return regions_.views[static_cast<std::size_t>(id.node)][static_cast<std::size_t>(id.result)];
  }

  /// What makes the points of Winograd's tiles and what multiplies them, where they can go before
  /// the outputs that region `index` makes of them. That they should was decided with the form.
  std::optional<std::array<std::int32_t, 2>> row_stages_before(std::int32_t index) const {
    const std::int32_t root = regions_.list[static_cast<std::size_t>(index)].root;
    const auto* outputs = node(root).op.as<op::WinogradOutputs>();
    if (outputs == nullptr || !outputs->by_rows) return std::nullopt;
    const ValueId products = node(root).inputs[0];
    const auto at_of = [&](ValueId id) {
      const std::int32_t at = regions_.region_of[static_cast<std::size_t>(id.node)];
      const bool alone = at >= 0 && view(id).base == id &&
                         regions_.list[static_cast<std::size_t>(at)].nodes.size() == 1;
      return alone ? at : -1;
    };
    const std::int32_t product_at = at_of(products);
    if (product_at < 0 || !product(regions_.list[static_cast<std::size_t>(product_at)]))
      return std::nullopt;
    const auto& dot = *node(products.node).op.as<op::DotGeneral>();
    const bool by_points = dot.a_batch == Axes{0} && dot.a_contract == Axes{2} &&
                           dot.b_batch == Axes{0} && dot.b_contract == Axes{1};
    const ValueId points = node(products.node).inputs[0];
    const std::int32_t image_at = at_of(points);
    const auto* image = node(points.node).op.as<op::WinogradImage>();
    if (image == nullptr || image_at < 0 || !by_points) return std::nullopt;
    const auto [rows, columns] =
        winograd::tiles_of(*image, graph_.type(node(points.node).inputs[0]).dims());
    const bool fits = rows == outputs->rows && columns == outputs->columns &&
                      root_alone_reads(points, products.node) && root_alone_reads(products, root) &&
                      may_wait(image_at, index) && may_wait(product_at, index);
    if (!fits) return std::nullopt;
    return std::array{image_at, product_at};
  }
  const op::DotGeneral* product(const Region& region) const {
    if (region.kind != Region::Kind::contraction || !region.before.empty()) return nullptr;
    return node(region.root).op.as<op::DotGeneral>();
  }

  /// The region that can go before region `index`, or -1.
  std::int32_t first_of(std::int32_t index) const {
    const Region& second = regions_.list[static_cast<std::size_t>(index)];
    const op::DotGeneral* by_value = product(second);
    if (!by_value || multiplies_narrow_integers(graph_, node(second.root)) || scales_b(second.root))
      return -1;
    const ValueId rows = operand_read(graph_, regions_, node(second.root).inputs[0]);
    const std::int32_t at = regions_.region_of[static_cast<std::size_t>(rows.node)];
    if (at < 0 || at == index || view(rows).base != rows) return -1;
    const Region& first = regions_.list[static_cast<std::size_t>(at)];
    const op::DotGeneral* by_key = product(first);
    const bool fits = by_key && second.reduced.empty() &&
                      rows_agree(*by_key, first, *by_value, rows) && pays(first, second);
    return fits && only_the_root_reads(first, rows, second.root) && may_wait(at, index) ? at : -1;
  }

  /// The nest that makes the rows of A of region `index` and can go before it, or -1.
  std::int32_t rows_before(std::int32_t index) const {
    const Region& second = regions_.list[static_cast<std::size_t>(index)];
    if (second.kind != Region::Kind::contraction || !second.before.empty() ||
        !second.reduced.empty() || scales_b(second.root))
      return -1;
    const Node& root = node(second.root);
    const ValueId rows = root.inputs[0];
    const std::int32_t at = regions_.region_of[static_cast<std::size_t>(rows.node)];
    if (at < 0 || at == index || view(rows).base != rows || !reads_rows(root)) return -1;
    const Region& first = regions_.list[static_cast<std::size_t>(at)];
    const Dims dims = graph_.type(rows).dims();
    const auto last = static_cast<std::int64_t>(dims.size()) - 1;
    const bool fits = first.kind == Region::Kind::nest && first.dims == dims &&
                      (first.reduced.empty() || first.reduced == Axes{last}) && is_loops(first) &&
                      regions_.weight_only[static_cast<std::size_t>(root.inputs[1].node)];
    return fits && root_alone_reads(rows, second.root) && readers_follow(first, at, index) &&
                   may_wait(at, index)
               ? at
               : -1;
  }

  /// Chains have no scales.
  bool scales_b(std::int32_t root) const {
    return byte_weight(graph_, node(root), regions_.weight_only).has_value();
  }

  /// Does a row of A, one run of its last axis, give a row of the result?
  bool reads_rows(const Node& root) const {
    const Dims a = graph_.type(root.inputs[0]).dims();
    const auto rank = static_cast<std::int64_t>(a.size());
    constexpr std::int64_t fewest_columns = 8;
    if (root.results[0].dims().back() < fewest_columns ||
        element_count(root.results[0].dims()) == 0 || a.back() < fewest_columns)
      return false;
    if (const auto* dot = root.op.as<op::DotGeneral>())
      return dot->a_batch.empty() && dot->a_contract == Axes{rank - 1} && dot->b_contract[0] >= 0;
    const auto* conv = root.op.as<op::Conv>();
    const Dims w = graph_.type(root.inputs[1]).dims();
    const auto all = [](const Axes& axes, std::int64_t value) {
      return std::all_of(axes.begin(), axes.end(), [&](std::int64_t n) { return n == value; });
    };
    return conv && conv->groups == 1 && all({w.begin(), w.end() - 2}, 1) && all(conv->strides, 1) &&
           all(conv->pad_low, 0) && all(conv->pad_high, 0);
  }

  /// Nothing but arithmetic: copies and updates of states keep a kernel of their own.
  bool is_loops(const Region& region) const {
    return std::none_of(region.nodes.begin(), region.nodes.end(), [&](std::int32_t index) {
      return is_view_op(node(index).op) || node(index).op.is<op::Update>();
    });
  }

  bool root_alone_reads(ValueId rows, std::int32_t root) const {
    for (const GraphOutput& output : graph_.outputs()) {
      if (view(output.value).base == rows) return false;
    }
    for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
      for (const FlatGraph::Predicate& predicate : flat_.predicates[i]) {
        if (view(predicate.value).base == rows) return false;
      }
      const Node& n = graph_.nodes()[i];
      // Nodes of its own region read it too late: they would have to be computed with the rows.
      for (std::size_t k = 0; k < n.inputs.size(); ++k) {
        const ValueId id = n.inputs[k];
        if (id.node < 0 || view(id).base != rows) continue;
        if (static_cast<std::int32_t>(i) != root || k != 0 || id != rows) return false;
      }
    }
    return true;
  }

  /// All that reads other values of the first region runs behind the second.
  bool readers_follow(const Region& first, std::int32_t at, std::int32_t second) const {
    const auto inside = [&](std::int32_t index) {
      return std::find(first.nodes.begin(), first.nodes.end(), index) != first.nodes.end();
    };
    for (std::int32_t i = at + 1; i < second; ++i) {
      const Region& region = regions_.list[static_cast<std::size_t>(i)];
      for (const auto* list : {&region.nodes, &region.recomputed}) {
        for (const std::int32_t index : *list) {
          for (const ValueId id : node(index).inputs) {
            if (id.node >= 0 && inside(view(id).base.node)) return false;
          }
          for (const auto& predicate : flat_.predicates[static_cast<std::size_t>(index)]) {
            if (inside(view(predicate.value).base.node)) return false;
          }
        }
      }
    }
    const Region& own = regions_.list[static_cast<std::size_t>(second)];
    // What the second region reads beside the rows must be there before the rows are made.
    for (const auto* list : {&own.nodes, &own.recomputed}) {
      for (const std::int32_t index : *list) {
        for (std::size_t k = 0; k < node(index).inputs.size(); ++k) {
          const ValueId id = node(index).inputs[k];
          const bool is_a = index == own.root && k == 0;
          if (id.node >= 0 && !is_a && inside(view(id).base.node)) return false;
        }
      }
    }
    return true;
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
  bool ask(std::int32_t first, std::int32_t second) {
    const Region& a = regions_.list[static_cast<std::size_t>(first)];
    const Region& b = regions_.list[static_cast<std::size_t>(second)];
    // Profiles ask for the readers of nodes alone, which stay the same when regions are chained.
    if (!region_graph_) region_graph_.emplace(flat_, regions_);
    const RegionGraph& graph = *region_graph_;
    std::vector<std::int32_t> nodes = a.nodes, recomputed = a.recomputed;
    nodes.insert(nodes.end(), b.nodes.begin(), b.nodes.end());
    recomputed.insert(recomputed.end(), b.recomputed.begin(), b.recomputed.end());
    const bool chain = a.kind == Region::Kind::contraction;
    const std::string what =
        chain ? fmt::format("chain {} %{} and", node(a.root).op.name(), a.root)
              : fmt::format("make rows {} %{} within", node(a.root).op.name(), a.root);
    FusionQuestion asked{
        .what = fmt::format("{} {} %{}", what, node(b.root).op.name(), b.root),
        .kind = chain ? "chain" : "prologue",
        .before = graph.profile(a.nodes, a.recomputed) + graph.profile(b.nodes, b.recomputed),
        .after = graph.profile(nodes, recomputed)};
    if (!chain) asked.work_added_ns = graph.whole_rows_ns(b, cost::WholeRows::operands, policy_);
    decide(asked, policy_.gate, policy_.given);
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
        const bool cast_of_rows = id == rows && regions_.region_of[i] < 0 && n.op.is<op::Cast>();
        if (cast_of_rows) continue;
        if (reader != root || k != 0 || operand_read(graph_, regions_, id) != rows) return false;
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
  std::optional<RegionGraph> region_graph_;  ///< made for the first question
};

}  // namespace

void chain_contractions(const FlatGraph& graph, const FusionPolicy& policy, Regions& regions) {
  Chaining(graph, policy, regions).run();
}

}  // namespace rlx::plan
