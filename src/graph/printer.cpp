// The text form of graphs: one line a node, everything that parse needs to build the same graph.
#include <fmt/format.h>

#include <algorithm>

#include "graph/literal.hpp"
#include "graph/op_info.hpp"

namespace rlx {
namespace {

// More numbers than this are written as base64.
constexpr std::int64_t max_inline_numbers = 32;

bool is_identifier(std::string_view text) {
  const auto letter = [](char c) {
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  return !text.empty() && letter(text[0]) && std::all_of(text.begin(), text.end(), [&](char c) {
    return letter(c) || (c >= '0' && c <= '9');
  });
}

std::string dim_text(const Dim& dim) {
  const std::string text = dim.text();
  // A number, negative ones (a reshape's -1) included.
  if (dim == Dim(dim.value())) return text;
  return dim.is_unknown() || is_identifier(text) ? text : literal::quoted(text);
}

template <class List, class Write>
std::string joined(const List& list, std::string_view separator, Write write) {
  std::string text;
  for (const auto& item : list) {
    if (!text.empty()) text += separator;
    text += write(item);
  }
  return text;
}

std::string type_text(const Type& type) {
  return fmt::format("{}[{}]", name_of(type.dtype), joined(type.shape, ",", dim_text));
}

std::string tensor_text(const Tensor& tensor) {
  if (tensor.empty()) return "none";
  std::string text = type_text({tensor.dtype(), to_shape(tensor.dims())});
  if (tensor.elements() * literal::components(tensor.dtype()) <= max_inline_numbers) {
    if (const auto numbers = literal::element_texts(tensor)) {
      return text + " {" + fmt::format("{}", fmt::join(*numbers, ", ")) + "}";
    }
  }
  return text + " base64 \"" + literal::base64(tensor.data(), tensor.bytes()) + "\"";
}

void print_block(const Graph& graph, const std::string& indent, std::string& text);

// Writes every field of an op as "name = value".
class FieldPrinter : public FieldVisitor {
 public:
  explicit FieldPrinter(std::string indent) : indent_(std::move(indent)) {}
  const std::string& text() const { return text_; }

  void visit(std::string_view name, bool& value) override { put(name, value ? "true" : "false"); }
  void visit(std::string_view name, std::int64_t& value) override {
    put(name, std::to_string(value));
  }
  void visit(std::string_view name, std::uint64_t& value) override {
    put(name, std::to_string(value));
  }
  void visit(std::string_view name, double& value) override { put(name, literal::number(value)); }
  void visit(std::string_view name, std::string& value) override {
    put(name, literal::quoted(value));
  }
  void visit(std::string_view name, DType& value) override {
    put(name, std::string(name_of(value)));
  }
  void visit(std::string_view name, std::vector<std::int64_t>& value) override {
    put_list(name, value, [](std::int64_t item) { return std::to_string(item); });
  }
  void visit(std::string_view name, std::vector<double>& value) override {
    put_list(name, value, literal::number);
  }
  void visit(std::string_view name, std::vector<std::string>& value) override {
    put_list(name, value, literal::quoted);
  }
  void visit(std::string_view name, Shape& value) override { put_list(name, value, dim_text); }
  void visit(std::string_view name, Tensor& value) override { put(name, tensor_text(value)); }
  void visit(std::string_view name, std::optional<std::int64_t>& value) override {
    put(name, value ? std::to_string(*value) : "none");
  }
  void visit(std::string_view name, std::optional<double>& value) override {
    put(name, value ? literal::number(*value) : "none");
  }
  void visit(std::string_view name, GraphPointer& value) override {
    std::string block = "none";
    if (value) {
      block = "graph ";
      print_block(*value, indent_ + "  ", block);
    }
    put(name, block);
  }
  void visit(std::string_view name, EnumField field) override {
    put(name, std::string(field.names[*field.value]));
  }

 private:
  void put(std::string_view name, const std::string& value) {
    text_ += fmt::format("{}{} = {}", text_.empty() ? "" : ", ", name, value);
  }
  template <class List, class Write>
  void put_list(std::string_view name, const List& list, Write write) {
    put(name, "[" + joined(list, ", ", write) + "]");
  }

  std::string indent_;
  std::string text_;
};

std::string value_text(ValueId id) {
  if (id.node < 0) return "none";
  return id.result == 0 ? fmt::format("%{}", id.node) : fmt::format("%{}.{}", id.node, id.result);
}

void print_block(const Graph& graph, const std::string& indent, std::string& text) {
  text += "{\n";
  const std::string inner = indent + "  ";
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    text += fmt::format("{}%{} = {}({})", inner, i, node.op.name(),
                        joined(node.inputs, ", ", value_text));
    FieldPrinter fields(inner);
    node.op.info().visit(node.op.attributes(), fields);
    if (!fields.text().empty()) text += " {" + fields.text() + "}";
    text += " : " + (node.results.empty() ? "none" : joined(node.results, ", ", type_text));
    if (!node.name.empty()) text += " name " + literal::quoted(node.name.text());
    if (!node.origin.empty()) text += " origin " + literal::quoted(node.origin.text());
    text += '\n';
  }
  for (const GraphOutput& output : graph.outputs()) {
    text += fmt::format("{}output {} = {}\n", inner, literal::quoted(output.name),
                        value_text(output.value));
  }
  text += indent + "}";
}

}  // namespace

std::string print(const Graph& graph) {
  std::string text = "rlx 1\ngraph ";
  print_block(graph, "", text);
  return text + "\n";
}

}  // namespace rlx
