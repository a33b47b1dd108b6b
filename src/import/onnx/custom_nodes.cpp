// Nodes of ops that the user registered.
#include "import/onnx/importer.hpp"

namespace rlx::onnx {
namespace {

/// "name=value", lists with commas between; texts as they are.
std::string text_of(const NodeContext& context, const AttributeProto& attribute) {
  using Kind = AttributeProto::Kind;
  const char* const name = attribute.name.c_str();
  switch (attribute.kind) {
    case Kind::real: return fmt::format("{}={}", name, context.real(name, 0));
    case Kind::integer: return fmt::format("{}={}", name, context.integer(name));
    case Kind::text: return fmt::format("{}={}", name, context.text(name, ""));
    case Kind::reals: return fmt::format("{}={}", name, fmt::join(context.reals(name), ","));
    case Kind::integers: return fmt::format("{}={}", name, fmt::join(context.integers(name), ","));
    case Kind::texts: return fmt::format("{}={}", name, fmt::join(context.texts(name), ","));
    default: fail_unsupported("The attribute ({}) of a custom op holds no numbers or text.", name);
  }
}

}  // namespace

std::string name_in_domain(const NodeProto& node) {
  return node.domain.empty() ? node.op_type : node.domain + ":" + node.op_type;
}

void import_custom(NodeContext& context, const CustomOps& ops) {
  const std::string name = name_in_domain(context.node());
  const auto definition = ops.find(name);
  if (!definition) fail_unsupported("The op {} is not supported.", name);
  std::vector<std::string> attributes;
  for (const AttributeProto& attribute : context.node().attributes)
    attributes.push_back(text_of(context, attribute));
  const Values results =
      context.add_all(op::Custom{name, std::move(attributes), definition}, context.inputs());
  for (std::size_t i = 0; i < results.size(); ++i) context.set(static_cast<int>(i), results[i]);
}

}  // namespace rlx::onnx
