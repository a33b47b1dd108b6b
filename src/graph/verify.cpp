// The rules of a graph: order, arity, types, names, outputs, states; those of subgraphs too.
#include "graph/verify.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "graph/op_info.hpp"
#include "graph/partial_visitor.hpp"

namespace rlx {
namespace {

std::string sentence_of(const Graph& graph, int index, std::string_view what) {
  const Node& node = graph.nodes()[static_cast<std::size_t>(index)];
  std::string text = fmt::format("Node %{} ({}", index, node.op.name());
  if (!node.name.empty()) text += fmt::format(" \"{}\"", node.name.text());
  if (!node.origin.empty()) text += fmt::format(", {}", node.origin.text());
  return text + fmt::format(") {}", what);
}

bool names_value(const Graph& graph, ValueId id, std::size_t nodes) {
  return id.node >= 0 && static_cast<std::size_t>(id.node) < nodes && id.result >= 0 &&
         static_cast<std::size_t>(id.result) < graph.node(id).results.size();
}

std::optional<std::string> inputs_defect(const Graph& graph, int index) {
  const Node& node = graph.nodes()[static_cast<std::size_t>(index)];
  const OpInfo& info = node.op.info();
  const int count = static_cast<int>(node.inputs.size());
  if (count < info.min_inputs || (info.max_inputs >= 0 && count > info.max_inputs)) {
    return fmt::format("has ({}) inputs; it takes {} to {}.", count, info.min_inputs,
                       info.max_inputs < 0 ? "any number" : std::to_string(info.max_inputs));
  }
  for (int i = 0; i < count; ++i) {
    const ValueId id = node.inputs[static_cast<std::size_t>(i)];
    if (id.node < 0) {
      if (i < info.min_inputs) return fmt::format("lacks input ({}), which is not optional.", i);
    } else if (!names_value(graph, id, static_cast<std::size_t>(index))) {
      return fmt::format("reads %{}.{} as input ({}), which no node above it gives.", id.node,
                         id.result, i);
    }
  }
  return std::nullopt;
}

std::optional<std::string> types_defect(const Graph& graph, const Node& node) {
  std::vector<const Type*> types;
  for (const ValueId id : node.inputs) types.push_back(id.node < 0 ? nullptr : &graph.type(id));
  const auto inferred = node.op.info().infer(node.op.attributes(), InferArgs{types});
  if (!inferred.ok()) return "is refused: " + inferred.error().message;
  if (!same_types(*inferred, node.results)) {
    return fmt::format("gives {}, but says {}.", type_list(*inferred), type_list(node.results));
  }
  return std::nullopt;
}

std::optional<std::string> value_defect(const Node& node) {
  const auto* constant = node.op.as<op::Constant>();
  if (constant && constant->value.empty()) return "has no value.";
  return std::nullopt;
}

// Names of inputs, params and states are unique; a state is updated at most once, by its own name.
class Names {
 public:
  std::optional<std::string> defect(const Graph& graph, const Node& node) {
    if (const std::string* name = leaf_name(node.op)) return taken(*name);
    const auto* update = node.op.as<op::Update>();
    if (!update) return std::nullopt;
    const auto* state =
        node.inputs[0].node < 0 ? nullptr : graph.node(node.inputs[0]).op.as<op::State>();
    if (!state || state->name != update->name) {
      return fmt::format("updates ({}), but reads no state of that name.", update->name);
    }
    if (!updated_.insert(update->name).second) {
      return fmt::format("updates the state ({}) a second time.", update->name);
    }
    return std::nullopt;
  }

 private:
  std::optional<std::string> taken(const std::string& name) {
    if (names_.insert(name).second) return std::nullopt;
    return fmt::format("takes the name ({}), which another input, param or state has.", name);
  }
  std::set<std::string> names_, updated_;
};

std::optional<Defect> outputs_defect(const Graph& graph) {
  std::set<std::string> names;
  for (const GraphOutput& output : graph.outputs()) {
    if (!names_value(graph, output.value, graph.nodes().size())) {
      return Defect{-1, fmt::format("The output ({}) is %{}.{}, which no node gives.", output.name,
                                    output.value.node, output.value.result)};
    }
    if (!names.insert(output.name).second) {
      return Defect{-1, fmt::format("The output name ({}) is used twice.", output.name)};
    }
  }
  return std::nullopt;
}

// Collects the graphs among an op's fields.
class SubgraphVisitor : public PartialVisitor<FieldVisitor> {
 public:
  std::vector<std::pair<std::string, GraphPointer>> graphs;

  using PartialVisitor::visit;
  void visit(std::string_view name, GraphPointer& graph) override {
    if (graph) graphs.emplace_back(name, graph);
  }
};

std::optional<std::string> subgraphs_defect(const Node& node) {
  SubgraphVisitor visitor;
  node.op.info().visit(node.op.attributes(), visitor);
  for (const auto& [name, graph] : visitor.graphs) {
    if (const auto defect = find_defect(*graph, VerifyTypes::yes)) {
      return fmt::format("has a broken graph as its {}: {}", name, defect->sentence);
    }
  }
  return std::nullopt;
}

}  // namespace

bool same_types(const std::vector<Type>& a, const std::vector<Type>& b) {
  const auto same_dim = [](const Dim& x, const Dim& y) {
    return x.value() == y.value() && x.text() == y.text();
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const Type& x, const Type& y) {
    return x.dtype == y.dtype &&
           std::equal(x.shape.begin(), x.shape.end(), y.shape.begin(), y.shape.end(), same_dim);
  });
}

std::string type_list(const std::vector<Type>& types) {
  if (types.empty()) return "nothing";
  std::string text;
  for (const Type& type : types) text += (text.empty() ? "" : ", ") + type.text();
  return text;
}

std::optional<Defect> find_defect(const Graph& graph, VerifyTypes types) {
  Names names;
  for (int i = 0; i < static_cast<int>(graph.nodes().size()); ++i) {
    const Node& node = graph.nodes()[static_cast<std::size_t>(i)];
    auto what = inputs_defect(graph, i);
    if (!what && types == VerifyTypes::yes) what = subgraphs_defect(node);
    if (!what && types == VerifyTypes::yes) what = types_defect(graph, node);
    if (!what) what = value_defect(node);
    if (!what) what = names.defect(graph, node);
    if (what) return Defect{i, sentence_of(graph, i, *what)};
  }
  return outputs_defect(graph);
}

Status verify(const Graph& graph) {
  if (auto defect = find_defect(graph, VerifyTypes::yes)) {
    return bad_input("{}", defect->sentence);
  }
  return {};
}

}  // namespace rlx
