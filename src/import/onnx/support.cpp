// The table of handlers, and the first pass that reports everything that a model lacks at once.
#include <algorithm>

#include "import/onnx/families.hpp"
#include "import/onnx/importer.hpp"

namespace rlx::onnx {
namespace {

// The newest version of the standard's opset that the handlers were written to.
constexpr std::int64_t newest_opset = 28;

class SupportCheck {
 public:
  SupportCheck(const ModelProto& model, const CustomOps& custom) : model_(model), custom_(custom) {}

  void run() {
    const auto opset = model_.opsets.find("");
    if (opset != model_.opsets.end() && opset->second > newest_opset) {
      missing_.insert(
          fmt::format("opset version {} (known up to {})", opset->second, newest_opset));
    }
    for (const ValueInfo& input : model_.graph.inputs) value_type(input);
    for (const ValueInfo& output : model_.graph.outputs) value_type(output);
    graph(model_.graph, model_.opsets);
    for (const FunctionProto& function : model_.functions) nodes(function.nodes, function.opsets);
    if (missing_.empty()) return;
    std::string list;
    for (const std::string& item : missing_) list += (list.empty() ? "" : ", ") + item;
    fail_unsupported("The model needs what rlx does not have: {}.", list);
  }

 private:
  void value_type(const ValueInfo& value) {
    if (!value.type) return;
    if (!value.type->other.empty()) {
      missing_.insert("type " + value.type->other);
    } else if (value.type->elem_type != 0) {
      element(value.type->elem_type);
    }
  }
  void element(std::int32_t elem_type) {
    if (!dtype_of_element(elem_type)) missing_.insert("type " + element_name(elem_type));
  }
  void tensor(const TensorProto& tensor) {
    element(tensor.data_type);
    if (tensor.segmented) missing_.insert("segmented tensors");
  }
  void graph(const GraphProto& graph, const OpsetImports& opsets) {
    if (graph.sparse_initializers) missing_.insert("sparse initializers");
    for (const TensorProto& initializer : graph.initializers) tensor(initializer);
    nodes(graph.nodes, opsets);
  }
  void nodes(const std::vector<NodeProto>& list, const OpsetImports& opsets) {
    for (const NodeProto& node : list) {
      const auto opset = opsets.find(node.domain);
      const std::int64_t version = opset == opsets.end() ? 1 : opset->second;
      const std::string name = name_in_domain(node);
      if (!find_function(model_, node) && !find_handler(node.domain, node.op_type, version) &&
          !custom_.find(name)) {
        missing_.insert("op " + name);
      }
      for (const AttributeProto& attribute : node.attributes) this->attribute(attribute, opsets);
    }
  }
  void attribute(const AttributeProto& attribute, const OpsetImports& opsets) {
    using Kind = AttributeProto::Kind;
    if (attribute.kind == Kind::sparse_tensor || attribute.kind == Kind::sparse_tensors) {
      missing_.insert("sparse tensors");
    }
    for (const TensorProto& value : attribute.tensors) tensor(value);
    for (const GraphProto& inner : attribute.graphs) graph(inner, opsets);
    if (attribute.name == "to" && attribute.kind == Kind::integer) {
      element(static_cast<std::int32_t>(attribute.integer));
    }
  }

  const ModelProto& model_;
  const CustomOps& custom_;
  std::set<std::string> missing_;
};

// Handlers by domain and name, each with the versions from which they hold, newest first.
using Table = std::map<std::pair<std::string, std::string>, std::vector<OpEntry>>;

const Table& table() {
  static const Table all = [] {
    Table made;
    for (const auto entries : all_families()) {
      for (const OpEntry& entry : entries) made[{entry.domain, entry.name}].push_back(entry);
    }
    for (auto& [key, entries] : made) {
      std::sort(entries.begin(), entries.end(),
                [](const OpEntry& a, const OpEntry& b) { return a.since > b.since; });
    }
    return made;
  }();
  return all;
}

}  // namespace

void check_support(const ModelProto& model, const CustomOps& custom) {
  SupportCheck(model, custom).run();
}

Handler find_handler(const std::string& domain, const std::string& op, std::int64_t version) {
  const auto found = table().find({domain, op});
  if (found == table().end()) return nullptr;
  for (const OpEntry& entry : found->second) {
    if (version >= entry.since) return entry.handler;
  }
  return nullptr;
}

}  // namespace rlx::onnx
