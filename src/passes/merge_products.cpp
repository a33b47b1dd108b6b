// Products of one value with several weights as one product (the projections of attention).
#include "passes/merge_products.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "passes/passes.hpp"
#include "passes/pattern.hpp"
#include "passes/rewriter.hpp"

namespace rlx::passes {
namespace {

/// One product, and the addition of a bias behind it (or the product itself).
struct Part {
  std::int32_t product = -1, last = -1;
  ValueId weight, bias;
  std::int64_t columns = 0;
};

class Products {
 public:
  explicit Products(const Graph& graph) : graph_(graph), readers_(readers_of(graph)) {
    for (const Node& node : graph.nodes()) weight_only_.push_back(is_weight_only(node));
  }

  /// Sibling products that pay as one, in order.
  std::vector<std::vector<Part>> groups() const {
    std::map<std::pair<ValueId, std::string>, std::vector<Part>> by_operand;
    std::vector<std::vector<Part>> groups;
    for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
      const auto part = part_of(static_cast<std::int32_t>(i));
      if (!part) continue;
      const Node& node = graph_.nodes()[i];
      by_operand[{node.inputs[0], key(*part)}].push_back(*part);
    }
    for (auto& [operand, parts] : by_operand) {
      // All weights must be there before the first product.
      const std::int32_t first = parts[0].product;
      std::erase_if(parts, [&](const Part& part) {
        return part.weight.node > first || part.bias.node > first;
      });
      if (parts.size() > 1) groups.push_back(parts);
    }
    return groups;
  }

  /// One product for each part, or one for all: the operand is read once.
  FusionQuestion question(const std::vector<Part>& parts, const IoFusionGate& gate,
                          const GivenAnswers& given) const {
    FusionQuestion asked{.kind = "products"};
    std::int64_t made = 0;
    for (const Part& part : parts) {
      const GraphIoProfile alone = profile(part);
      made += alone.device_traffic_bytes;
      asked.before = asked.before + alone;
      asked.what +=
          fmt::format("{} %{}", asked.what.empty() ? "put side by side" : ",", part.product);
    }
    const auto again = static_cast<std::int64_t>(parts.size()) - 1;
    asked.after = {1, 0, 0, made - again * operand_bytes(parts[0])};
    decide(asked, gate, given);
    return asked;
  }

  /// The axis of a product's weight along which parts lie side by side.
  std::int64_t free_axis(std::int32_t product) const { return 1 - dot_of(product).b_contract[0]; }

 private:
  std::int64_t operand_bytes(const Part& part) const {
    return graph_.type(node(part.product).inputs[0]).bytes();
  }
  GraphIoProfile profile(const Part& part) const {
    std::int64_t bytes = operand_bytes(part) + graph_.type(part.weight).bytes() +
                         graph_.type({part.last, 0}).bytes();
    if (part.bias.node >= 0) bytes += graph_.type(part.bias).bytes();
    return {1, 0, 0, bytes};
  }

  const Node& node(std::int32_t index) const {
    return graph_.nodes()[static_cast<std::size_t>(index)];
  }
  const op::DotGeneral& dot_of(std::int32_t index) const {
    return *node(index).op.as<op::DotGeneral>();
  }

  bool is_weight_only(const Node& n) const {
    if (n.op.is<op::Param>() || n.op.is<op::Constant>()) return true;
    const bool seen = n.op.is<op::Transpose>() || n.op.is<op::Reshape>() || n.op.is<op::Cast>();
    return seen && weight_only_[static_cast<std::size_t>(n.inputs[0].node)];
  }
  bool is_weight(ValueId id) const {
    return id.node >= 0 && weight_only_[static_cast<std::size_t>(id.node)];
  }

  /// What parts of one group have in common beside the operand.
  std::string key(const Part& part) const {
    const Type& weight = graph_.type(part.weight);
    const op::DotGeneral& dot = dot_of(part.product);
    std::string text(name_of(weight.dtype));
    for (const std::int64_t axis : dot.a_contract) text += " " + std::to_string(axis);
    return text + (part.bias.node >= 0 ? " bias " : " plain ") + std::to_string(dot.b_contract[0]);
  }

  std::optional<Part> part_of(std::int32_t index) const {
    const Node& n = node(index);
    const auto* dot = n.op.as<op::DotGeneral>();
    if (!dot || !dot->a_batch.empty() || dot->b_contract.size() != 1 || is_weight(n.inputs[0]) ||
        !is_weight(n.inputs[1]) || graph_.type(n.inputs[1]).rank() != 2 ||
        !graph_.type({index, 0}).is_static())
      return std::nullopt;
    Part part{index, index, n.inputs[1], {}, n.results[0].dims().back()};
    const auto& readers = readers_[static_cast<std::size_t>(index)];
    if (readers.size() == 1 && readers[0] >= 0 && node(readers[0]).op.is<op::Add>()) {
      const Node& sum = node(readers[0]);
      const ValueId other = sum.inputs[0] == ValueId{index, 0} ? sum.inputs[1] : sum.inputs[0];
      const bool bias = is_weight(other) && graph_.type(other).dims() == Dims{part.columns} &&
                        sum.results[0] == n.results[0];
      if (!bias) return std::nullopt;
      part.last = readers[0];
      part.bias = other;
    }
    return only_views_read(part) ? std::optional(part) : std::nullopt;
  }

  /// What computes with the part at its own points is in the product's epilogue as things are; with
  /// the parts side by side it would be a kernel of its own.
  bool only_views_read(const Part& part) const {
    for (const std::int32_t reader : readers_[static_cast<std::size_t>(part.last)]) {
      if (reader < 0) return false;
      const Node& n = node(reader);
      if (n.op.is<op::DotGeneral>() || n.op.is<op::Transpose>() || n.op.is<op::Slice>()) continue;
      if (!n.op.is<op::Reshape>()) return false;
      // Some of the last dims must be the columns: strides cannot express what goes across them.
      const Dims dims = n.results[0].dims();
      std::int64_t inner = 1;
      std::size_t at = dims.size();
      while (at > 0 && inner < part.columns) inner *= dims[--at];
      if (inner != part.columns) return false;
    }
    return true;
  }

  const Graph& graph_;
  std::vector<std::vector<std::int32_t>> readers_;  ///< -1: an output
  std::vector<bool> weight_only_;
};

/// What the parts have as `member`, along an axis; before casts where all are cast from one dtype.
Value side_by_side(Rewriter& rewriter, const std::vector<Part>& parts, ValueId Part::* member,
                   std::int64_t axis) {
  Graph& graph = rewriter.target();
  Values values, stored;
  for (const Part& part : parts) {
    values.push_back(graph.handle(rewriter(part.*member)));
    const Node& node = graph.node(values.back().id());
    if (node.op.is<op::Cast>()) stored.push_back(graph.handle(node.inputs[0]));
  }
  const bool alike =
      stored.size() == values.size() &&
      std::ranges::all_of(stored, [&](Value value) { return value.dtype() == stored[0].dtype(); });
  return alike ? cast(concat(stored, axis), values[0].dtype()) : concat(values, axis);
}

/// The parts of one product with all weights side by side.
Result<Values> merged(Rewriter& rewriter, const Node& first, const std::vector<Part>& parts,
                      std::int64_t axis) {
  Graph& target = rewriter.target();
  const Value weight = side_by_side(rewriter, parts, &Part::weight, axis);
  const std::vector<ValueId> operands{rewriter(first.inputs[0]), weight.id()};
  RLX_ASSIGN(const auto made, target.try_add(first.op, operands, {}, first.origin));
  Value all = target.handle(made[0]);
  if (parts[0].bias.node >= 0) all = all + side_by_side(rewriter, parts, &Part::bias, 0);
  const Dims dims = all.type().dims();
  Values results;
  std::int64_t start = 0;
  for (const Part& part : parts) {
    Axes starts(dims.size(), 0), limits = dims;
    starts.back() = start;
    limits.back() = start += part.columns;
    results.push_back(slice(all, starts, limits, Axes(dims.size(), 1)));
  }
  return results;
}

}  // namespace

Result<Graph> merge_products(Graph graph, const IoFusionGate& gate,
                             std::vector<FusionQuestion>* questions, const GivenAnswers& given) {
  const Products products(graph);
  std::map<std::int32_t, std::vector<Part>> groups;  // by their first product
  for (const std::vector<Part>& parts : products.groups()) {
    FusionQuestion asked = products.question(parts, gate, given);
    if (asked.fused) groups[parts[0].product] = parts;
    if (questions) questions->push_back(std::move(asked));
  }
  if (groups.empty()) return graph;
  std::map<std::int32_t, ValueId> made;  // by node of the source
  return rewrite(graph,
                 [&](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
                   if (const auto group = groups.find(index); group != groups.end()) {
                     RLX_ASSIGN(const Values values,
                                merged(rewriter, node, group->second, products.free_axis(index)));
                     for (std::size_t k = 0; k < values.size(); ++k) {
                       made[group->second[k].product] = values[k].id();
                       made[group->second[k].last] = values[k].id();
                     }
                   }
                   const auto found = made.find(index);
                   if (found == made.end()) return false;
                   rewriter.replace(index, std::vector<ValueId>{found->second});
                   return true;
                 });
}

Result<Graph> merge_products(Graph graph) {
  return merge_products(std::move(graph), IoFusionGate::preset(Device::cpu));
}

}  // namespace rlx::passes
