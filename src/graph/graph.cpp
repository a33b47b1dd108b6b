// Building graphs: nodes with inferred results, names, outputs, and values known at compile time.
#include "rlx/graph.hpp"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.hpp"
#include "graph/elementwise_eval.hpp"
#include "graph/op_info.hpp"
#include "rlx/ops.hpp"

namespace rlx {

std::string_view Op::name() const { return info_->name; }

bool Op::operator==(const Op& other) const {
  return info_ == other.info_ && info_->equal(attributes_.get(), other.attributes_.get());
}

const std::string& SharedText::text() const {
  static const std::string none;
  return text_ ? *text_ : none;
}

ResultTypes::operator const std::vector<Type>&() const {
  static const std::vector<Type> none;
  return types_ ? *types_ : none;
}

const Type& Value::type() const { return data_->graph->type(id_); }

Graph::Graph() : data_(std::make_unique<GraphData>()) { data_->graph = this; }
Graph::~Graph() = default;

Graph::Graph(Graph&& other) noexcept : data_(std::move(other.data_)) {
  if (data_) data_->graph = this;
}

Graph& Graph::operator=(Graph&& other) noexcept {
  data_ = std::move(other.data_);
  if (data_) data_->graph = this;
  return *this;
}

Graph::Graph(const Graph& other) : data_(std::make_unique<GraphData>(*other.data_)) {
  data_->graph = this;
}

Graph& Graph::operator=(const Graph& other) {
  if (this != &other) *this = Graph(other);
  return *this;
}

const std::string* leaf_name(const Op& op) {
  if (const auto* input = op.as<op::Input>()) return &input->name;
  if (const auto* param = op.as<op::Param>()) return &param->name;
  if (const auto* state = op.as<op::State>()) return &state->name;
  return nullptr;
}

namespace {

void require_new_name(const Graph& graph, const std::string& name) {
  for (const Node& node : graph.nodes()) {
    const std::string* taken = leaf_name(node.op);
    if (taken && *taken == name) {
      throw Exception(bad_input("The name ({}) is taken by another input, param or state.", name));
    }
  }
}

std::string input_types(const Graph& graph, std::span<const ValueId> inputs) {
  std::string text;
  for (const ValueId id : inputs) {
    if (!text.empty()) text += ", ";
    text += id.node < 0 ? "none" : graph.type(id).text();
  }
  return text;
}

Status check_inputs(const Graph& graph, const OpInfo& info, std::span<const ValueId> inputs) {
  const int count = static_cast<int>(inputs.size());
  if (count < info.min_inputs || (info.max_inputs >= 0 && count > info.max_inputs)) {
    return bad_input(
        "The op {} takes {} to {} inputs and was given ({}).", info.name, info.min_inputs,
        info.max_inputs < 0 ? "any number of" : std::to_string(info.max_inputs), count);
  }
  for (int i = 0; i < count; ++i) {
    const ValueId id = inputs[static_cast<std::size_t>(i)];
    if (id.node < 0) {
      if (i < info.min_inputs)
        return bad_input("Input ({}) of {} is left out but is not optional.", i, info.name);
      continue;
    }
    if (id.node >= static_cast<int>(graph.nodes().size()) || id.result < 0 ||
        id.result >= static_cast<int>(graph.node(id).results.size())) {
      return bad_input("Input ({}) of {} names no value of this graph.", i, info.name);
    }
  }
  return {};
}

/// Is the input one of the graph, of the type that `other` has in `source`?
bool has_type_of(const Graph& graph, ValueId input, const Graph& source, ValueId other) {
  if (input.node < 0 || other.node < 0) return input.node == other.node;
  if (input.node >= static_cast<int>(graph.nodes().size())) return false;
  const ResultTypes &a = graph.node(input).results, &b = source.node(other).results;
  if (a.is(b) && input.result == other.result) return true;
  const auto k = static_cast<std::size_t>(input.result);
  return input.result >= 0 && k < a.size() && a[k] == source.type(other);
}

/// Appends the node; gives its results.
std::vector<ValueId> append(std::vector<Node>& nodes, Node node) {
  std::vector<ValueId> ids(node.results.size());
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = {static_cast<std::int32_t>(nodes.size()), static_cast<std::int32_t>(i)};
  nodes.push_back(std::move(node));
  return ids;
}

}  // namespace

Value Graph::input(std::string name, DType dtype, Shape shape) {
  require_new_name(*this, name);
  return add_one(op::Input{name, dtype, std::move(shape)}, {});
}

Value Graph::param(std::string name, DType dtype, Dims dims, Tensor data) {
  require_new_name(*this, name);
  return add_one(op::Param{name, dtype, std::move(dims), std::move(data)}, {});
}

Value Graph::constant(Tensor value) { return add_one(op::Constant{std::move(value)}, {}); }

Value Graph::constant(DType dtype, double value) {
  Tensor tensor(dtype, {});
  const ScalarNode node{.op = ScalarOp::constant,
                        .dtype = dtype,
                        .value = value,
                        .integer = static_cast<std::int64_t>(value)};
  store_datum(dtype, tensor.mutable_data(), 0, constant_datum(node));
  return constant(std::move(tensor));
}

Value Graph::state(std::string name, DType dtype, Dims dims) {
  require_new_name(*this, name);
  return add_one(op::State{name, dtype, std::move(dims)}, {});
}

void Graph::update(Value state, Value value) {
  const auto* attributes = node(state.id()).op.as<op::State>();
  if (!attributes)
    throw Exception(bad_input("Only a state can be updated, not the result of {}.",
                              node(state.id()).op.name()));
  for (const Node& other : nodes()) {
    const auto* update = other.op.as<op::Update>();
    if (update && update->name == attributes->name) {
      throw Exception(bad_input("The state ({}) is updated twice; one update a run is possible.",
                                attributes->name));
    }
  }
  add_one(op::Update{attributes->name}, {state, value});
}

void Graph::output(std::string name, Value value) {
  for (const GraphOutput& output : outputs()) {
    if (output.name == name) throw Exception(bad_input("The output name ({}) is taken.", name));
  }
  data_->outputs.push_back({std::move(name), value.id()});
}

std::vector<Value> Graph::add(Op op, std::span<const Value> inputs, std::string name) {
  std::vector<ValueId> ids;
  for (const Value& input : inputs) ids.push_back(input ? input.id() : ValueId{});
  auto added = try_add(std::move(op), ids, std::move(name), data_->origin);
  if (!added.ok()) throw Exception(added.error());
  std::vector<Value> results;
  for (const ValueId id : *added) results.push_back(handle(id));
  return results;
}

Result<std::vector<ValueId>> Graph::try_add(Op op, std::span<const ValueId> inputs, SharedText name,
                                            SharedText origin) {
  const OpInfo& info = op.info();
  RLX_TRY(check_inputs(*this, info, inputs));
  std::vector<const Type*> types;
  for (const ValueId id : inputs) types.push_back(id.node < 0 ? nullptr : &type(id));
  auto inferred = info.infer(op.attributes(), InferArgs{types});
  if (!inferred.ok()) {
    std::string place = fmt::format("adding {}({})", info.name, input_types(*this, inputs));
    if (!origin.empty()) place += " for " + origin.text();
    return std::move(inferred.error()).while_(place);
  }
  return append(data_->nodes, {std::move(op),
                               {inputs.begin(), inputs.end()},
                               *std::move(inferred),
                               std::move(name),
                               std::move(origin)});
}

Result<std::vector<ValueId>> Graph::try_copy(const Graph& source, const Node& node,
                                             std::span<const ValueId> inputs) {
  bool same = inputs.size() == node.inputs.size();
  for (std::size_t i = 0; same && i < inputs.size(); ++i)
    same = has_type_of(*this, inputs[i], source, node.inputs[i]);
  if (!same) return try_add(node.op, inputs, node.name, node.origin);
  return append(data_->nodes,
                {node.op, {inputs.begin(), inputs.end()}, node.results, node.name, node.origin});
}

namespace {

// Memoised evaluation of what depends on constants alone.
class ConstantEvaluation {
 public:
  ConstantEvaluation(const Graph& graph, std::int64_t max_elements)
      : graph_(graph), max_elements_(max_elements) {}

  std::optional<Tensor> value(ValueId id) {
    if (id.node < 0) return std::nullopt;
    if (!depends_on_constants_only(id.node, 0)) return std::nullopt;
    return computed(id);
  }

 private:
  // Deep chains of constants are left to the fold pass, which walks forward.
  static constexpr int max_depth = 200;

  bool depends_on_constants_only(std::int32_t index, int depth) {
    const Node& node = graph_.nodes()[static_cast<std::size_t>(index)];
    if (node.op.is<op::Constant>()) return true;
    if (depth > max_depth || node.op.info().traits.random || node.op.info().traits.stateful)
      return false;
    if (node.op.is<op::ShapeOf>() && graph_.type(node.inputs[0]).is_static()) return true;
    if (node.inputs.empty() && !node.op.is<op::Iota>()) return false;
    for (const Type& type : node.results) {
      if (!node.op.info().traits.data_dependent &&
          (!type.is_static() || type.elements() > max_elements_))
        return false;
    }
    return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
      return input.node < 0 || depends_on_constants_only(input.node, depth + 1);
    });
  }

  std::optional<Tensor> computed(ValueId id) {
    const Node& node = graph_.node(id);
    if (const auto* constant = node.op.as<op::Constant>()) return constant->value;
    if (node.op.is<op::ShapeOf>()) {
      const Dims dims = graph_.type(node.inputs[0]).dims();
      return Tensor::of<std::int64_t>({static_cast<std::int64_t>(dims.size())}, dims);
    }
    std::vector<Tensor> inputs;
    for (const ValueId input : node.inputs) {
      if (input.node < 0) {
        inputs.emplace_back();
        continue;
      }
      auto value = computed(input);
      if (!value) return std::nullopt;
      inputs.push_back(*std::move(value));
    }
    auto results = evaluate(node.op, inputs);
    if (!results.ok()) return std::nullopt;
    return (*results)[static_cast<std::size_t>(id.result)];
  }

  const Graph& graph_;
  std::int64_t max_elements_;
};

}  // namespace

std::optional<Tensor> Graph::constant_value(ValueId id, std::int64_t max_elements) const {
  return ConstantEvaluation(*this, max_elements).value(id);
}

namespace fields_detail {

bool equal(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.dims() != b.dims()) return false;
  if (a.data() == b.data()) return true;
  if (!a.data() || !b.data()) return false;
  return std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.bytes())) == 0;
}

bool equal(const GraphPointer& a, const GraphPointer& b) {
  return a == b || (a && b && print(*a) == print(*b));
}

}  // namespace fields_detail
}  // namespace rlx
