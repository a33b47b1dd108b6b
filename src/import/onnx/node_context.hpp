// What the handler of an ONNX op sees: inputs, checked attributes, known values, and where its
// results go.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "import/fail.hpp"
#include "import/onnx/model.hpp"
#include "rlx/graph.hpp"
#include "rlx/ops.hpp"

namespace rlx::onnx {

using importing::fail;
using importing::fail_unsupported;

class Importer;
struct Frame;

/// One node while it is imported. All functions throw Exception where the node is wrong.
class NodeContext {
 public:
  NodeContext(Importer& importer, Frame& frame, const NodeProto& node, std::int64_t version)
      : importer_(importer), frame_(frame), node_(node), version_(version) {}

  Graph& graph() const;
  const NodeProto& node() const { return node_; }
  /// The opset version that the model imports for the node's domain.
  std::int64_t version() const { return version_; }

  // ---- inputs and results
  int input_count() const { return static_cast<int>(node_.inputs.size()); }
  bool has(int i) const;
  /// The input; an error where it is left out.
  Value in(int i) const;
  /// The input, or an empty Value where it is left out.
  Value optional(int i) const;
  Values inputs() const;
  int output_count() const { return static_cast<int>(node_.outputs.size()); }
  bool wants(int i) const;
  /// Gives the result its name; results that nobody wants are dropped.
  void set(int i, Value value);
  void set(Value value) { set(0, value); }

  // ---- sequences
  bool is_sequence(int i) const;
  const Values& sequence(int i) const;
  void set_sequence(int i, Values values);

  // ---- adding nodes
  Value add(Op op, const Values& inputs) const;
  Values add_all(Op op, const Values& inputs) const;
  /// A scalar constant.
  Value scalar(DType dtype, double value) const;
  /// An i64 constant [n].
  Value integers_constant(const Axes& values) const;

  // ---- attributes; each that is read counts as known
  bool has_attribute(const char* name) const;
  std::int64_t integer(const char* name) const;
  std::int64_t integer(const char* name, std::int64_t otherwise) const;
  bool flag(const char* name, bool otherwise = false) const;
  double real(const char* name, double otherwise) const;
  std::optional<double> optional_real(const char* name) const;
  std::string text(const char* name, const char* otherwise) const;
  Axes integers(const char* name, Axes otherwise = {}) const;
  std::optional<Axes> optional_integers(const char* name) const;
  std::vector<double> reals(const char* name) const;
  std::vector<std::string> texts(const char* name) const;
  std::optional<Tensor> tensor(const char* name) const;
  const GraphProto* subgraph(const char* name) const;
  /// An element type given as an attribute.
  DType element_type(const char* name, DType otherwise) const;
  /// Attributes that say nothing to us.
  void ignore(std::initializer_list<const char*> names) const;
  /// Throws where the node has attributes that nobody read.
  void check_attributes() const;

  // ---- values known while importing
  /// The value of a constant or weight. Where it depends on inputs that could be fixed, they will
  /// be (see ImportOptions::input_values).
  std::optional<Tensor> known(Value value) const;
  std::optional<Axes> known_integers(Value value) const;
  std::optional<std::vector<double>> known_reals(Value value) const;
  /// The dims that an i64 value [n] or [] holds, symbols included; a negative number is a Dim with
  /// that value.
  std::optional<Shape> known_shape(Value value) const;
  void remember_shape(Value value, Shape shape) const;

  // ---- subgraphs
  Importer& importer() const { return importer_; }
  Frame& frame() const { return frame_; }

 private:
  const AttributeProto* find(const char* name) const;
  const AttributeProto* find(const char* name, AttributeProto::Kind kind) const;
  Value folded(Value value) const;

  Importer& importer_;
  Frame& frame_;
  const NodeProto& node_;
  std::int64_t version_;
  mutable std::set<std::string> read_;
};

/// Numbers of a tensor of any real dtype.
std::vector<double> reals_of(const Tensor& tensor);
Axes integers_of(const Tensor& tensor);

/// Axis in [0, rank); throws otherwise.
std::int64_t normal_axis(std::int64_t axis, int rank);
/// Throws where the value has another number of axes.
void require_rank(const Value& value, int rank);
/// The number of a dim; throws where it is not known.
std::int64_t static_dim(const Value& value, std::int64_t axis);
/// Whether no dim is left to data: attributes hold symbols, but not what data decides.
bool is_told(const Shape& shape);

using Handler = void (*)(NodeContext&);

/// The domain of ONNX Runtime's own ops, which its optimiser and its quantiser write.
constexpr const char* onnx_runtime = "com.microsoft";

/// An op of the standard, or of another domain, from one opset version on.
struct OpEntry {
  const char* name;
  int since;
  Handler handler;
  const char* domain = "";
};

}  // namespace rlx::onnx
