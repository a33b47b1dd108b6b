// Dims as numbers: the texts of derived dims are evaluated, the fields of ops that hold dims bound.
#include "graph/bind_dims.hpp"

#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "graph/op_info.hpp"
#include "graph/partial_visitor.hpp"
#include "graph/value_map.hpp"

namespace rlx {
namespace {

/// Where a name in the text of a derived dim ends that begins at `at`.
std::size_t end_of_name(std::string_view text, std::size_t at) {
  return std::min(text.find_first_of("+-*/|()", at), text.size());
}

/// Evaluates the text of a derived dim, "(batch*2)", once its symbols have values.
class DimEvaluator {
 public:
  DimEvaluator(std::string_view text, const SymbolValues& dims) : text_(text), dims_(dims) {}

  std::optional<std::int64_t> run() {
    const auto value = expression();
    return at_ == text_.size() ? value : std::nullopt;
  }

 private:
  std::optional<std::int64_t> expression() {
    if (at_ >= text_.size()) return std::nullopt;
    if (text_[at_] != '(') return leaf();
    ++at_;
    const auto a = expression();
    if (!a || at_ >= text_.size()) return std::nullopt;
    const char op = text_[at_++];
    const auto b = expression();
    if (!b || at_ >= text_.size() || text_[at_++] != ')') return std::nullopt;
    const Dim result = op == '+'   ? Dim(*a) + *b
                       : op == '-' ? Dim(*a) - *b
                       : op == '*' ? Dim(*a) * *b
                       : op == '|' ? broadcast_dim(*a, *b)
                                   : floor_div(*a, *b);
    return result.value();
  }
  std::optional<std::int64_t> leaf() {
    const std::size_t end = end_of_name(text_, at_);
    const std::string name(text_.substr(at_, end - at_));
    at_ = end;
    if (!name.empty() &&
        std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; }))
      return std::stoll(name);
    const auto found = dims_.find(name);
    return found == dims_.end() ? std::nullopt : std::optional(found->second);
  }

  std::string_view text_;
  const SymbolValues& dims_;
  std::size_t at_ = 0;
};

/// The names in every Shape field of an op's attributes.
class CollectNames : public PartialVisitor<FieldVisitor> {
 public:
  using PartialVisitor::visit;
  explicit CollectNames(std::set<std::string>& names) : names_(names) {}
  void visit(std::string_view, Shape& shape) override {
    for (const Dim& dim : shape) {
      if (!dim.is_static()) take(dim.text());
    }
  }
  void visit(std::string_view, GraphPointer& body) override {
    if (!body) return;
    for (const Node& node : body->nodes()) collect_names(node.op, names_);
  }

 private:
  void take(const std::string& text) {
    names_.insert(text);  // unnamed dims of inputs may hold any character
    for (std::size_t at = 0; at < text.size(); ++at) {
      const std::size_t end = end_of_name(text, at);
      if (end > at) names_.insert(text.substr(at, end - at));
      at = end;
    }
  }
  std::set<std::string>& names_;
};

Dim bind_dim(const Dim& dim, const SymbolValues& dims) {
  if (dim.is_static()) return dim;
  const auto whole =
      dims.find(dim.text());  // unnamed dims are spelled "INPUT:AXIS" and may hold any character
  if (whole != dims.end()) return whole->second;
  const auto value = DimEvaluator(dim.text(), dims).run();
  return value ? Dim(*value) : dim;
}

Result<Graph> bound_body(const Graph& body, const SymbolValues& values, bool& changed);

/// Binds every Shape field of an op's attributes, and of the graphs inside it.
class BindShapes : public PartialVisitor<MutableFieldVisitor> {
 public:
  using PartialVisitor::visit;
  explicit BindShapes(const SymbolValues& dims) : dims_(dims) {}
  bool changed = false;
  Status status;
  void visit(std::string_view, Shape& shape) override {
    for (Dim& dim : shape) {
      const Dim bound = bind_dim(dim, dims_);
      if (!(bound == dim) && !(dim.is_unknown() && bound.is_unknown())) changed = true;
      dim = bound;
    }
  }
  void visit(std::string_view, GraphPointer& body) override {
    if (!body || !status.ok()) return;
    bool inside = false;
    Result<Graph> bound = bound_body(*body, dims_, inside);
    if (!bound.ok()) status = bound.error();
    if (bound.ok() && inside) body = std::make_shared<const Graph>(*std::move(bound));
    changed |= inside;
  }

 private:
  const SymbolValues& dims_;
};

Result<Graph> bound_body(const Graph& body, const SymbolValues& values, bool& changed) {
  Graph bound;
  ValueMap mapped(body);
  for (std::size_t i = 0; i < body.nodes().size(); ++i) {
    const Node& node = body.nodes()[i];
    RLX_ASSIGN(Op op, bound_op(node.op, values));
    const bool same = op.attributes() == node.op.attributes();
    changed |= !same;
    const std::vector<ValueId> inputs = mapped(node.inputs);
    auto results = same ? bound.try_copy(body, node, inputs)
                        : bound.try_add(std::move(op), inputs, node.name, node.origin);
    RLX_ASSIGN(mapped[i], std::move(results));
  }
  std::vector<GraphOutput> outputs;
  for (const GraphOutput& output : body.outputs())
    outputs.push_back({output.name, mapped(output.value)});
  bound.set_outputs(std::move(outputs));
  return bound;
}

}  // namespace

Result<Op> bound_op(const Op& op, const SymbolValues& values) {
  if (values.empty()) return op;
  const std::shared_ptr<void> copy = op.info().copy(op.attributes());
  BindShapes binder(values);
  op.info().visit_mutable(copy.get(), binder);
  RLX_TRY(binder.status);
  return binder.changed ? Op(op.info(), copy) : op;
}

void collect_names(const Op& op, std::set<std::string>& names) {
  CollectNames collector(names);
  op.info().visit(op.attributes(), collector);
}

Status learn_dims(const Shape& shape, const Shape& actual, SymbolValues& values) {
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const Dim& name = shape[i];
    if (!actual[i].is_static() || name.is_static() || name.is_unknown()) continue;
    const auto [known, is_new] = values.emplace(name.text(), actual[i].value());
    if (!is_new && known->second != actual[i].value()) {
      return bad_input("The dim ({}) is both ({}) and ({}).", name.text(), known->second,
                       actual[i].value());
    }
  }
  return {};
}

}  // namespace rlx
