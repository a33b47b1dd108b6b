// Rules of what can be one kernel.
#include "plan/fusion_rules.hpp"

#include <algorithm>
#include <cmath>

#include "graph/op_info.hpp"
#include "rlx/ops.hpp"

namespace rlx::plan {
namespace {

/// Nodes of a map that may be evaluated more than once.
constexpr std::size_t most_recomputed = 8;
/// Values that a kernel of siblings reads and writes at most.
constexpr std::size_t most_siblings = 12;

bool is_copy(const RegionGraph& graph, const Region& region) {
  const Op& op = graph.node(region.root).op;
  return is_view_op(op) || op.is<op::Update>();
}

bool is_loops(const RegionGraph& graph, const Region& region) {
  switch (region.kind) {
    case Region::Kind::nest:
    case Region::Kind::window:
    case Region::Kind::tiles:
    case Region::Kind::contraction: return !is_copy(graph, region);
    default: return false;
  }
}

Dims row_dims(const Region& region) {
  Dims dims = region.dims;
  for (const std::int64_t axis : region.reduced) dims[static_cast<std::size_t>(axis)] = 1;
  return dims;
}

/// Does operand `k` of the node have to be read from memory at other points than its own?
bool reads_elsewhere(const Node& node, std::size_t k) {
  if (node.op.is<op::GatherNd>() || node.op.is<op::DynamicSlice>()) return true;
  return k == 0 && (is_pick(node.op) || node.op.is<op::Pad>());
}

/// Every value of `producer` that `consumer` reads is read directly and at its own points.
bool reads_at_its_points(const RegionGraph& graph, const Region& producer, const Region& consumer) {
  const std::int32_t from = graph.region_of(producer.root), to = graph.region_of(consumer.root);
  const auto reads_well = [&](std::int32_t index) {
    const Node& node = graph.node(index);
    const bool is_root = index == consumer.root && consumer.kind != Region::Kind::nest;
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const ValueId id = node.inputs[k];
      if (id.node < 0 || graph.region_of(graph.view(id).base.node) != from) continue;
      if (graph.region_of(id.node) != from || reads_elsewhere(node, k) || is_root) return false;
    }
    return true;
  };
  return std::ranges::all_of(graph.stored(from), [&](std::int32_t value) {
    return std::ranges::all_of(graph.readers(value), [&](std::int32_t reader) {
      return !graph.holds(to, reader) || reads_well(reader);
    });
  });
}

/// A contraction makes whole rows of its last axis, unless groups split it.
bool rows_are_whole(const RegionGraph& graph, const Region& region, const Axes& axes) {
  const auto* conv = graph.node(region.root).op.as<op::Conv>();
  return axes == Axes{static_cast<std::int64_t>(region.dims.size()) - 1} &&
         (!conv || conv->groups == 1) && region.dims.back() <= 8192;
}

bool is_reduction(const Node& node) {
  return node.op.is<op::Reduce>() || node.op.is<op::ArgReduce>();
}

/// Behind a contraction, what has a value for each row alone must come from a reduction: tiles have
/// all points.
bool rows_follow_reductions(const RegionGraph& graph, const Region& contraction,
                            const Region& consumer) {
  std::set<std::int32_t> in_rows;
  std::vector<std::int32_t> nodes = contraction.nodes;
  nodes.insert(nodes.end(), consumer.nodes.begin(), consumer.nodes.end());
  std::sort(nodes.begin(), nodes.end());
  for (const std::int32_t index : nodes) {
    const Node& node = graph.node(index);
    if (index == contraction.root) continue;
    const bool follows = std::any_of(node.inputs.begin(), node.inputs.end(),
                                     [&](ValueId id) { return in_rows.contains(id.node); });
    if (is_reduction(node) || follows) {
      in_rows.insert(index);
    } else if (node.results[0].dims() != contraction.dims) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool fits_after(const RegionGraph& graph, const Region& producer, const Region& consumer) {
  if (!is_loops(graph, producer) || !is_loops(graph, consumer)) return false;
  if (consumer.kind != Region::Kind::nest) return false;
  if (graph.predicates(producer) != graph.predicates(consumer)) return false;
  if (!reads_at_its_points(graph, producer, consumer)) return false;
  const bool makes_rows = !producer.reduced.empty();
  if (consumer.reduced.empty()) {
    if (consumer.dims != producer.dims && !(makes_rows && consumer.dims == row_dims(producer)))
      return false;
  } else {
    const bool row_producer =
        !makes_rows && producer.kind == Region::Kind::nest && producer.dims == row_dims(consumer);
    if (producer.kind == Region::Kind::window || producer.kind == Region::Kind::tiles) return false;
    if (producer.dims != consumer.dims && !row_producer) return false;
    if (makes_rows && producer.reduced != consumer.reduced) return false;
    if (producer.kind == Region::Kind::contraction &&
        !rows_are_whole(graph, producer, consumer.reduced))
      return false;
  }
  return producer.kind != Region::Kind::contraction ||
         rows_follow_reductions(graph, producer, consumer);
}

bool fits_before(const RegionGraph& graph, const Region& producer, const Region& consumer) {
  if (!is_loops(graph, producer) || !is_loops(graph, consumer)) return false;
  return producer.kind == Region::Kind::nest && producer.reduced.empty() &&
         consumer.kind != Region::Kind::nest && producer.dims == consumer.dims &&
         graph.predicates(producer) == graph.predicates(consumer) &&
         reads_at_its_points(graph, producer, consumer);
}

bool fits_beside(const RegionGraph& graph, const Region& a, const Region& b) {
  return is_loops(graph, a) && is_loops(graph, b) && a.kind == Region::Kind::nest &&
         b.kind == Region::Kind::nest && a.dims == b.dims && a.reduced == b.reduced &&
         a.nodes.size() + b.nodes.size() <= most_siblings &&
         graph.predicates(a) == graph.predicates(b);
}

bool may_recompute(const RegionGraph& graph, std::int32_t index) {
  const Region& region = graph.region(index);
  if (region.kind != Region::Kind::nest || !region.reduced.empty() || is_copy(graph, region) ||
      region.nodes.size() + region.recomputed.size() > most_recomputed ||
      graph.users(index).empty())
    return false;
  for (const std::int32_t member : region.nodes) {
    const Op& op = graph.node(member).op;
    if (is_pick(op) || op.is<op::Pad>() || graph.is_output(member)) return false;
  }
  for (const std::int32_t member : region.nodes) {
    for (const std::int32_t reader : graph.readers(member)) {
      const std::int32_t user = graph.region_of(reader);
      if (user == index) continue;
      if (user < 0) return false;
      const Region& target = graph.region(user);
      const Node& node = graph.node(reader);
      const bool is_root = reader == target.root && target.kind != Region::Kind::nest;
      if (!is_loops(graph, target) || is_root || is_pick(node.op) || node.op.is<op::Pad>())
        return false;
      if (!graph.predicates(region).empty() && graph.predicates(region) != graph.predicates(target))
        return false;
      // Through views the map's operands must be seen in the same way; see ExpressionBuilder.
      for (const ValueId id : node.inputs) {
        if (id.node >= 0 && graph.view(id).base.node == member && id.node != member) return false;
      }
    }
  }
  return true;
}

double points_read(const RegionGraph& graph, std::int32_t index, const Region& reader) {
  double points = 0;
  for (const std::int32_t member : reader.nodes) {
    const Node& node = graph.node(member);
    const bool reads = std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
      return id.node >= 0 && graph.region_of(graph.view(id).base.node) == index;
    });
    if (reads)
      points =
          std::max(points, static_cast<double>(is_reduction(node) ? element_count(reader.dims)
                                                                  : node.results[0].elements()));
  }
  return points;
}

double register_ns(const RegionGraph& graph, const Region& map, const FusionPolicy& policy) {
  double ns = 0;
  for (const std::int32_t index : map.nodes) {
    const Node& node = graph.node(index);
    std::vector<ScalarNode> nodes;
    if (node.op.info().scalar) {
      ScalarBuilder builder(nodes);
      std::vector<ScalarValue> operands;
      for (const ValueId id : node.inputs) {
        const auto number = static_cast<std::int32_t>(operands.size());
        operands.push_back(id.node < 0 ? ScalarValue()
                                       : builder.add({.op = ScalarOp::load,
                                                      .dtype = graph.graph().type(id).dtype,
                                                      .index = number}));
      }
      node.op.info().scalar(node.op.attributes(), builder, operands);
    }
    const auto operations = std::ranges::count_if(
        nodes, [](const ScalarNode& part) { return part.op != ScalarOp::load; });
    ns += policy.expression_ns ? policy.expression_ns(nodes) : static_cast<double>(operations);
  }
  return ns;
}

double short_rows_ns(const RegionGraph& graph, const Region& map, const Region& reduction,
                     const FusionPolicy& policy) {
  const Axes last = {static_cast<std::int64_t>(map.dims.size()) - 1};
  if (map.kind != Region::Kind::nest || !map.reduced.empty() || reduction.reduced != last ||
      map.dims != reduction.dims)
    return 0;
  for (const std::int32_t index : map.nodes) {
    const Node& node = graph.node(index);
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      if (node.inputs[k].node < 0) continue;
      const View& read = graph.view(node.inputs[k]);
      const bool inside = graph.region_of(read.base.node) == graph.region_of(map.root);
      const bool flat = read.dims == map.dims ? read.is_dense() : read.elements() == 1;
      if (reads_elsewhere(node, k) || (!inside && !flat)) return 0;
    }
  }
  const auto row = static_cast<double>(map.dims.back());
  const double registers = std::ceil(row / policy.lanes), rows = element_count(map.dims) / row;
  return rows * (registers - row / policy.lanes) * register_ns(graph, map, policy);
}

}  // namespace rlx::plan
