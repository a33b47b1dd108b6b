// Inputs, attributes and known values of a node.
#include "import/onnx/node_context.hpp"

#include <algorithm>
#include <limits>

#include "import/onnx/importer.hpp"
#include "import/onnx/tensor_data.hpp"
#include "rlx/folding.hpp"
#include "rlx/mapped.hpp"

namespace rlx::onnx {
namespace {

// Results of constants up to this size are computed while importing.
constexpr std::int64_t max_folded_elements = 1 << 16;
constexpr std::size_t max_attribute_tensors = 1;

/// The elements as those of another dtype, by the op that casts.
Tensor as_dtype(const Tensor& tensor, DType dtype) {
  if (tensor.dtype() == dtype) return aligned(tensor);
  Graph graph;
  const Value value = cast(graph.constant(aligned(tensor)), dtype);
  return graph.constant_value(value.id(), std::numeric_limits<std::int64_t>::max()).value();
}

}  // namespace

std::vector<double> reals_of(const Tensor& tensor) {
  if (is_complex(tensor.dtype()))
    fail_unsupported("Numbers of the type {} cannot be read here.", name_of(tensor.dtype()));
  const Tensor reals = as_dtype(tensor, f64);
  return {reals.as<double>().begin(), reals.as<double>().end()};
}

Axes integers_of(const Tensor& tensor) {
  if (!is_integer(tensor.dtype()) && tensor.dtype() != boolean)
    fail("Integers are wanted here, not {}.", name_of(tensor.dtype()));
  const Tensor integers = as_dtype(tensor, i64);
  return {integers.as<std::int64_t>().begin(), integers.as<std::int64_t>().end()};
}

std::int64_t normal_axis(std::int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) fail("Axis ({}) is outside the rank ({}).", axis, rank);
  return axis < 0 ? axis + rank : axis;
}

void require_rank(const Value& value, int rank) {
  if (value.rank() != rank)
    fail("A value of ({}) axes is wanted, not {}.", rank, value.type().text());
}

std::int64_t static_dim(const Value& value, std::int64_t axis) {
  const auto position = static_cast<std::size_t>(normal_axis(axis, value.rank()));
  const Dim& dim = value.shape()[position];
  if (!dim.is_static()) {
    fail_unsupported("Dim ({}) of {} must be known here: bind it.", axis, value.type().text());
  }
  return dim.value();
}

bool is_told(const Shape& shape) { return std::ranges::none_of(shape, &Dim::is_unknown); }

Graph& NodeContext::graph() const { return *frame_.graph; }

bool NodeContext::has(int i) const {
  if (i >= input_count() || node_.inputs[static_cast<std::size_t>(i)].empty()) return false;
  // A function's optional input that its caller leaves out has a name and no value.
  return is_sequence(i) || importer_.find_value(frame_, node_.inputs[static_cast<std::size_t>(i)]);
}

bool NodeContext::is_sequence(int i) const {
  return i < input_count() &&
         importer_.find_sequence(frame_, node_.inputs[static_cast<std::size_t>(i)]);
}

const Values& NodeContext::sequence(int i) const {
  const Values* values =
      i < input_count() ? importer_.find_sequence(frame_, node_.inputs[static_cast<std::size_t>(i)])
                        : nullptr;
  if (!values) fail("Input ({}) is no sequence.", i);
  return *values;
}

void NodeContext::set_sequence(int i, Values values) {
  if (!wants(i)) return;
  importer_.define_sequence(frame_, node_.outputs[static_cast<std::size_t>(i)], std::move(values));
}

Value NodeContext::in(int i) const {
  if (!has(i)) fail("Input ({}) is missing.", i);
  return importer_.find_value(frame_, node_.inputs[static_cast<std::size_t>(i)]);
}

Value NodeContext::optional(int i) const { return has(i) ? in(i) : Value(); }

Values NodeContext::inputs() const {
  Values values;
  for (int i = 0; i < input_count(); ++i) values.push_back(in(i));
  return values;
}

bool NodeContext::wants(int i) const {
  return i < output_count() && !node_.outputs[static_cast<std::size_t>(i)].empty();
}

Value NodeContext::folded(Value value) const {
  if (graph().node(value.id()).op.is<op::Constant>() || node_.inputs.empty()) return value;
  // Loops may run for long: importing does not wait for them.
  for (const AttributeProto& attribute : node_.attributes) {
    if (!attribute.graphs.empty()) return value;
  }
  for (int i = 0; i < input_count(); ++i) {
    if (!has(i)) continue;
    if (is_sequence(i) || !graph().node(in(i).id()).op.is<op::Constant>()) return value;
  }
  if (stays_quantised(graph().node(value.id()))) return value;
  if (value.type().is_static() && value.type().elements() > max_folded_elements) return value;
  auto constant = graph().constant_value(value.id(), max_folded_elements);
  return constant ? graph().constant(*std::move(constant)) : value;
}

void NodeContext::set(int i, Value value) {
  if (!wants(i)) return;
  if (value.type().is_static()) checked_elements(value.type().dims(), "The result");
  importer_.define(frame_, node_.outputs[static_cast<std::size_t>(i)],
                   importer_.with_names(frame_, folded(value)));
}

Value NodeContext::add(Op op, const Values& inputs) const {
  return graph().add(std::move(op), inputs).front();
}

Values NodeContext::add_all(Op op, const Values& inputs) const {
  return graph().add(std::move(op), inputs);
}

Value NodeContext::scalar(DType dtype, double value) const {
  return graph().constant(dtype, value);
}

Value NodeContext::integers_constant(const Axes& values) const {
  return graph().constant(Tensor::of<std::int64_t>({static_cast<std::int64_t>(values.size())},
                                                   std::span<const std::int64_t>(values)));
}

const AttributeProto* NodeContext::find(const char* name) const {
  read_.insert(name);
  for (const AttributeProto& attribute : node_.attributes) {
    if (attribute.name != name) continue;
    if (attribute.reference.empty()) return &attribute;
    const auto found = frame_.attributes.find(attribute.reference);
    return found == frame_.attributes.end() ? nullptr : found->second;
  }
  return nullptr;
}

const AttributeProto* NodeContext::find(const char* name, AttributeProto::Kind kind) const {
  const AttributeProto* attribute = find(name);
  // Files of IR versions before 2 leave the kind out.
  if (attribute && attribute->kind != kind && attribute->kind != AttributeProto::Kind::undefined) {
    fail("The attribute ({}) has the wrong type.", name);
  }
  return attribute;
}

bool NodeContext::has_attribute(const char* name) const { return find(name) != nullptr; }

std::int64_t NodeContext::integer(const char* name) const {
  const auto* attribute = find(name, AttributeProto::Kind::integer);
  if (!attribute) fail("The attribute ({}) is missing.", name);
  return attribute->integer;
}

std::int64_t NodeContext::integer(const char* name, std::int64_t otherwise) const {
  const auto* attribute = find(name, AttributeProto::Kind::integer);
  return attribute ? attribute->integer : otherwise;
}

bool NodeContext::flag(const char* name, bool otherwise) const {
  return integer(name, otherwise ? 1 : 0) != 0;
}

double NodeContext::real(const char* name, double otherwise) const {
  return optional_real(name).value_or(otherwise);
}

std::optional<double> NodeContext::optional_real(const char* name) const {
  const auto* attribute = find(name, AttributeProto::Kind::real);
  if (!attribute) return std::nullopt;
  return attribute->real;
}

std::string NodeContext::text(const char* name, const char* otherwise) const {
  const auto* attribute = find(name, AttributeProto::Kind::text);
  return attribute ? attribute->text : otherwise;
}

Axes NodeContext::integers(const char* name, Axes otherwise) const {
  return optional_integers(name).value_or(std::move(otherwise));
}

std::optional<Axes> NodeContext::optional_integers(const char* name) const {
  const auto* attribute = find(name, AttributeProto::Kind::integers);
  if (!attribute) return std::nullopt;
  return attribute->integers;
}

std::vector<double> NodeContext::reals(const char* name) const {
  const auto* attribute = find(name, AttributeProto::Kind::reals);
  if (!attribute) return {};
  return {attribute->reals.begin(), attribute->reals.end()};
}

std::vector<std::string> NodeContext::texts(const char* name) const {
  const auto* attribute = find(name, AttributeProto::Kind::texts);
  return attribute ? attribute->texts : std::vector<std::string>{};
}

std::optional<Tensor> NodeContext::tensor(const char* name) const {
  const auto* attribute = find(name, AttributeProto::Kind::tensor);
  if (!attribute) return std::nullopt;
  if (attribute->tensors.size() != max_attribute_tensors) {
    fail("The attribute ({}) holds no tensor.", name);
  }
  return importer_.load(attribute->tensors.front());
}

const GraphProto* NodeContext::subgraph(const char* name) const {
  const auto* attribute = find(name, AttributeProto::Kind::graph);
  if (!attribute) return nullptr;
  if (attribute->graphs.size() != 1) fail("The attribute ({}) holds no graph.", name);
  return &attribute->graphs.front();
}

DType NodeContext::element_type(const char* name, DType otherwise) const {
  const auto* attribute = find(name, AttributeProto::Kind::integer);
  if (!attribute) return otherwise;
  const auto dtype = dtype_of_element(static_cast<std::int32_t>(attribute->integer));
  if (!dtype) {
    fail_unsupported("The type ({}) is not supported.",
                     element_name(static_cast<std::int32_t>(attribute->integer)));
  }
  return *dtype;
}

void NodeContext::ignore(std::initializer_list<const char*> names) const {
  read_.insert(names.begin(), names.end());
}

void NodeContext::check_attributes() const {
  for (const AttributeProto& attribute : node_.attributes) {
    // Of the first versions of the standard: says nothing about the result.
    if (attribute.name == "consumed_inputs") continue;
    if (!read_.contains(attribute.name)) fail("It has no attribute ({}).", attribute.name);
  }
}

std::optional<Tensor> NodeContext::known(Value value) const {
  if (!value) return std::nullopt;
  const Op& op = graph().node(value.id()).op;
  if (const auto* constant = op.as<op::Constant>()) return constant->value;
  if (const auto* param = op.as<op::Param>()) {
    if (!param->data.empty()) return aligned(param->data);
  }
  if (!frame_.shapes->contains(value.id())) importer_.want(frame_, value.id());
  return std::nullopt;
}

std::optional<Axes> NodeContext::known_integers(Value value) const {
  const auto tensor = known(value);
  if (!tensor) return std::nullopt;
  if (tensor->elements() > max_folded_elements) return std::nullopt;
  return integers_of(*tensor);
}

std::optional<std::vector<double>> NodeContext::known_reals(Value value) const {
  const auto tensor = known(value);
  if (!tensor || tensor->elements() > max_folded_elements) return std::nullopt;
  return reals_of(*tensor);
}

std::optional<Shape> NodeContext::known_shape(Value value) const {
  if (!value) return std::nullopt;
  const auto found = frame_.shapes->find(value.id());
  if (found != frame_.shapes->end()) return found->second;
  if (!is_integer(value.dtype())) return std::nullopt;
  const auto numbers = known_integers(value);
  if (!numbers) return std::nullopt;
  return Shape(numbers->begin(), numbers->end());
}

void NodeContext::remember_shape(Value value, Shape shape) const {
  frame_.shapes->insert_or_assign(value.id(), std::move(shape));
}

}  // namespace rlx::onnx
