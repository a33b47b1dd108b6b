// Graphs: dims, types, values, and the graph that builders fill and Session::compile reads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "rlx/dtype.hpp"
#include "rlx/result.hpp"
#include "rlx/tensor.hpp"

namespace rlx {

/// A dim: a number, or a text: a symbol ("batch") or what was derived from symbols ("(batch*2+1)").
/// Binding symbols specialises a graph: inference then runs again with numbers.
class Dim {
 public:
  Dim(std::int64_t value) : value_(value) {}
  Dim(int value) : value_(value) {}
  Dim(std::string symbol) : value_(-1), text_(std::move(symbol)) {}
  Dim(const char* symbol) : value_(-1), text_(symbol) {}
  /// A dim that only the data tells; equal to no other dim.
  static Dim unknown() { return Dim("?"); }

  bool is_static() const { return value_ >= 0; }
  bool is_unknown() const { return text_ == "?"; }
  /// The number, or -1.
  std::int64_t value() const { return value_; }
  /// "8", "batch", "(batch*2)", "?".
  std::string text() const { return text_.empty() ? std::to_string(value_) : text_; }

  /// The same number or the same text; unknown dims are never equal.
  bool operator==(const Dim& other) const {
    return value_ == other.value_ && text_ == other.text_ && !is_unknown();
  }

 private:
  std::int64_t value_;
  std::string text_;
};

Dim operator+(const Dim& a, const Dim& b);
Dim operator-(const Dim& a, const Dim& b);
Dim operator*(const Dim& a, const Dim& b);
/// Rounds down; b must not be the number 0.
Dim floor_div(const Dim& a, const Dim& b);
/// What two dims give when they are broadcast: a number other than 1 decides, symbols that differ
/// are kept as "(a|b)". Numbers that differ have none: the result is a then.
Dim broadcast_dim(const Dim& a, const Dim& b);
/// False only where both are numbers that differ.
bool compatible(const Dim& a, const Dim& b);

using Shape = std::vector<Dim>;

/// dtype and shape of a value.
struct Type {
  DType dtype = DType::f32;
  Shape shape;

  int rank() const { return static_cast<int>(shape.size()); }
  bool is_static() const;
  /// The numbers; only of a static type.
  Dims dims() const;
  std::int64_t elements() const { return element_count(dims()); }
  std::int64_t bytes() const { return elements() * static_cast<std::int64_t>(size_of(dtype)); }
  /// "f32[batch,768]".
  std::string text() const;
  bool operator==(const Type&) const = default;
};

Shape to_shape(std::span<const std::int64_t> dims);

struct OpInfo;
/// The record of an op, found by its attribute struct. Specialised beside the op's rules.
template <class Attributes>
const OpInfo& info_of();

/// An op with its attributes, type-erased: holds one of the structs of rlx::op.
class Op {
 public:
  template <class Attributes>
    requires(std::is_class_v<Attributes> && std::is_aggregate_v<Attributes>)
  Op(Attributes attributes)
      : info_(&info_of<Attributes>()),
        attributes_(std::make_shared<const Attributes>(std::move(attributes))) {}
  Op(const OpInfo& info, std::shared_ptr<const void> attributes)
      : info_(&info), attributes_(std::move(attributes)) {}

  const OpInfo& info() const { return *info_; }
  std::string_view name() const;
  const void* attributes() const { return attributes_.get(); }

  template <class Attributes>
  bool is() const {
    return info_ == &info_of<Attributes>();
  }
  /// The attributes, or null for another op.
  template <class Attributes>
  const Attributes* as() const {
    return is<Attributes>() ? static_cast<const Attributes*>(attributes_.get()) : nullptr;
  }
  /// Same op, equal attributes.
  bool operator==(const Op& other) const;

 private:
  const OpInfo* info_;
  std::shared_ptr<const void> attributes_;
};

/// A result of a node, inside its graph.
struct ValueId {
  std::int32_t node = -1;
  std::int32_t result = 0;
  auto operator<=>(const ValueId&) const = default;
};

/// A text that never changes and that copies share.
class SharedText {
 public:
  SharedText() = default;
  SharedText(std::string text) {
    if (!text.empty()) text_ = std::make_shared<const std::string>(std::move(text));
  }
  SharedText(const char* text) : SharedText(std::string(text)) {}
  const std::string& text() const;
  operator const std::string&() const { return text(); }
  bool empty() const { return text_ == nullptr; }
  bool operator==(const SharedText& other) const { return text() == other.text(); }

 private:
  std::shared_ptr<const std::string> text_;  ///< none: empty
};

/// The types of a node's results, shared by copies of the node.
class ResultTypes {
 public:
  ResultTypes() = default;
  ResultTypes(std::vector<Type> types)
      : types_(std::make_shared<const std::vector<Type>>(std::move(types))) {}
  operator const std::vector<Type>&() const;
  std::size_t size() const { return types_ ? types_->size() : 0; }
  bool empty() const { return size() == 0; }
  const Type* data() const { return types_ ? types_->data() : nullptr; }
  const Type* begin() const { return data(); }
  const Type* end() const { return data() + size(); }
  const Type& operator[](std::size_t i) const { return (*types_)[i]; }
  const Type& front() const { return types_->front(); }
  const Type& back() const { return types_->back(); }
  /// The same list, not only an equal one.
  bool is(const ResultTypes& other) const { return types_ == other.types_; }
  bool operator==(const ResultTypes& other) const {
    return is(other) || std::equal(begin(), end(), other.begin(), other.end());
  }

 private:
  std::shared_ptr<const std::vector<Type>> types_;  ///< none: of a node that no graph holds
};

/// One application of an op. Copies are cheap: every pass makes them.
struct Node {
  Op op;
  std::vector<ValueId> inputs;  ///< a node of -1: an optional input that is left out
  ResultTypes results;
  SharedText name;    ///< optional
  SharedText origin;  ///< where it came from ("onnx node Softmax_12"), for messages
};

struct GraphOutput {
  std::string name;
  ValueId value;
};

class Graph;

/// What a graph holds; stays where it is when the Graph is moved.
struct GraphData {
  Graph* graph = nullptr;  ///< the Graph that owns this now
  std::vector<Node> nodes;
  std::vector<GraphOutput> outputs;
  SharedText origin;
};

/// Handle of a value while building. Stays valid when its Graph is moved; must not outlive it.
class Value {
 public:
  Value() = default;
  Value(GraphData* data, ValueId id) : data_(data), id_(id) {}
  /// False for a left-out optional input.
  explicit operator bool() const { return data_ != nullptr; }
  const Type& type() const;
  const Shape& shape() const { return type().shape; }
  DType dtype() const { return type().dtype; }
  int rank() const { return type().rank(); }
  ValueId id() const { return id_; }
  Graph& graph() const { return *data_->graph; }

 private:
  GraphData* data_ = nullptr;
  ValueId id_;
};

/// Nodes in topological order with named inputs, params, outputs. Builders throw Exception at the
/// caller's line.
class Graph {
 public:
  /// A value fed per run. Names of inputs, params and states are unique.
  Value input(std::string name, DType dtype, Shape shape);
  /// A weight, set once and kept; `data` may be given now or by CompiledGraph::set_param.
  Value param(std::string name, DType dtype, Dims dims, Tensor data = {});
  Value constant(Tensor value);
  /// A scalar of that dtype.
  Value constant(DType dtype, double value);
  /// Reads a named buffer that outlives a run; reads see the value from before the run's update.
  Value state(std::string name, DType dtype, Dims dims);
  /// Writes the state once per run.
  void update(Value state, Value value);
  void output(std::string name, Value value);

  /// Adds a node; infers its results. Throws where the op refuses its inputs ("... - while adding
  /// softmax(axis=5)").
  std::vector<Value> add(Op op, std::span<const Value> inputs, std::string name = {});
  Value add_one(Op op, std::initializer_list<Value> inputs) {
    return add(std::move(op), std::span<const Value>(inputs.begin(), inputs.size())).front();
  }
  /// The same without exceptions, by ids.
  Result<std::vector<ValueId>> try_add(Op op, std::span<const ValueId> inputs, SharedText name,
                                       SharedText origin);
  /// Adds a copy of a node of `source` that reads `inputs`; its results are inferred again only
  /// where these have other types.
  Result<std::vector<ValueId>> try_copy(const Graph& source, const Node& node,
                                        std::span<const ValueId> inputs);
  /// Room for so many nodes.
  void reserve(std::size_t nodes) { data_->nodes.reserve(nodes); }

  /// Text put into the origin of the nodes added from now on.
  void set_origin(SharedText origin) { data_->origin = std::move(origin); }
  const std::string& origin() const { return data_->origin; }

  const std::vector<Node>& nodes() const { return data_->nodes; }
  const Node& node(ValueId id) const { return data_->nodes[static_cast<std::size_t>(id.node)]; }
  const Type& type(ValueId id) const {
    return node(id).results[static_cast<std::size_t>(id.result)];
  }
  const std::vector<GraphOutput>& outputs() const { return data_->outputs; }
  void set_outputs(std::vector<GraphOutput> outputs) { data_->outputs = std::move(outputs); }
  Value handle(ValueId id) { return {data_.get(), id}; }

  /// The value where it is known at compile time: a constant, or computed from constants alone (and
  /// no more than `max_elements`), by the ops' reference evaluation.
  std::optional<Tensor> constant_value(ValueId id, std::int64_t max_elements = 1 << 20) const;

  Graph();
  ~Graph();
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;
  Graph(const Graph&);
  Graph& operator=(const Graph&);

 private:
  std::unique_ptr<GraphData> data_;
};

/// The text form (docs/adr: grammar); parse(print(g)) is g.
std::string print(const Graph& graph);
Result<Graph> parse(std::string_view text);

/// Every rule a graph must keep; the error names the node.
Status verify(const Graph& graph);

}  // namespace rlx
