// The record of an op: everything rlx knows about it, type-erased from its Rules<> block.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/fields.hpp"
#include "graph/scalar_value.hpp"
#include "rlx/graph.hpp"
#include "rlx/ops.hpp"

namespace rlx {

/// What infer sees: the types of the inputs; a left-out optional input is null.
struct InferArgs {
  std::span<const Type* const> inputs;
  int count() const { return static_cast<int>(inputs.size()); }
  bool has(int i) const { return i < count() && inputs[static_cast<std::size_t>(i)] != nullptr; }
  const Type& operator[](int i) const { return *inputs[static_cast<std::size_t>(i)]; }
};

/// What eval sees: inputs with data (null data: left out) and outputs of the inferred types to
/// fill.
struct EvalArgs {
  std::span<const TensorView> inputs;
  std::span<const MutableTensorView> outputs;
  bool has(int i) const {
    return i < static_cast<int>(inputs.size()) && inputs[static_cast<std::size_t>(i)].data;
  }
  const TensorView& in(int i) const { return inputs[static_cast<std::size_t>(i)]; }
  const MutableTensorView& out(int i) const { return outputs[static_cast<std::size_t>(i)]; }
};

/// What resolve and eval_dynamic see of an operand: its type, and its value where known.
using KnownValues = std::span<const std::optional<Tensor>>;

/// An instance of an op on concrete inputs: for laws, fuzzing, benches, docs.
struct Sample {
  Op op;
  std::vector<Type>
      inputs;  ///< static; a rank-0 f32 type with `absent` set at its place is left out
  std::vector<std::optional<Tensor>>
      values;                 ///< fixed inputs (indices, masks); missing entries get seeded noise
  std::vector<int> absent;    ///< positions of left-out optional inputs
  double low = -2, high = 2;  ///< range of the noise
  double tolerance = 1e-5;    ///< relative, for f32; devices against eval
};

/// FLOPs and bytes of one application; bytes count inputs and results once.
struct OpCost {
  double flops = 0;
  double bytes = 0;
};

/// Properties that passes ask for.
struct OpTraits {
  bool elementwise =
      false;               ///< has a scalar meaning; results have the broadcast shape of the inputs
  bool metadata = false;   ///< costs nothing in the static profile (SPEC section 1)
  bool composite = false;  ///< has a body and is no primitive
  bool random = false;
  bool stateful = false;        ///< must not be merged, moved or dropped
  bool shape_operands = false;  ///< dims depend on operand values: 'specialise' resolves it
  bool data_dependent = false;  ///< dims depend on the data: splits the program
  bool control_flow = false;
  bool rows_to_columns =
      false;  ///< of one operand: rows of it give that range of columns, the result's last axis
  bool host_only = false;  ///< devices other than the CPU run it on the host
};

struct OpInfo {
  std::string_view name;    ///< snake_case, unique: the text form's name
  std::string_view family;  ///< "elementwise", ...
  int min_inputs = 0;
  int max_inputs = 0;  ///< -1: any number
  OpTraits traits;

  /// Hands every field to the visitor; one that only reads may be given const attributes.
  void (*visit)(const void* attributes, FieldVisitor&) = nullptr;
  void (*visit_mutable)(void* attributes, MutableFieldVisitor&) = nullptr;
  std::shared_ptr<void> (*make)() = nullptr;
  std::shared_ptr<void> (*copy)(const void* attributes) = nullptr;
  bool (*equal)(const void* a, const void* b) = nullptr;
  Result<std::vector<Type>> (*infer)(const void* attributes, const InferArgs&) = nullptr;
  Status (*eval)(const void* attributes, const EvalArgs&) = nullptr;
  std::vector<Sample> (*samples)() = nullptr;

  // optional rules; null where the op has none
  /// Elementwise meaning at one point; operands come in their own dtypes.
  ScalarValue (*scalar)(const void* attributes, ScalarBuilder&,
                        std::span<const ScalarValue>) = nullptr;
  /// The op in primitives; one value for each result.
  Values (*body)(const void* attributes, Graph&, std::span<const Value>) = nullptr;
  OpCost (*cost)(const void* attributes, std::span<const Type* const> inputs,
                 std::span<const Type> results) = nullptr;
  /// The static op, once the operands that tell dims are known; nothing while they are not.
  std::optional<Values> (*resolve)(const void* attributes, Graph&, std::span<const Value>,
                                   KnownValues) = nullptr;
  /// Evaluation of ops whose result dims depend on the data.
  Result<std::vector<Tensor>> (*eval_dynamic)(const void* attributes,
                                              std::span<const TensorView>) = nullptr;
  // derivative rules of a later issue: vjp, jvp, vmap
};

/// Every op, by family, in a fixed order.
std::span<const OpInfo* const> all_ops();
/// The op of that name, or null.
const OpInfo* find_op(std::string_view name);

/// The name under which users know an input, a param or a state (they share one name space); null
/// for every other op.
const std::string* leaf_name(const Op& op);

/// Reference evaluation on concrete tensors: infers, allocates, evaluates (also data-dependent
/// ops).
Result<std::vector<Tensor>> evaluate(const Op& op, std::span<const Tensor> inputs);

/// The same into memory that is there: one view for each result, of its type. For ops with an eval.
Status evaluate_into(const Op& op, std::span<const Tensor> inputs,
                     std::span<const MutableTensorView> outputs);

/// Reference evaluation of a whole graph: `inputs` in the order of its Input nodes, results in the
/// order of its outputs. Params must have their data; states have no value here. Values are freed
/// after their last use.
Result<std::vector<Tensor>> evaluate_graph(const Graph& graph, std::span<const Tensor> inputs);

/// The types of a graph's outputs when its inputs have those types; errors where an input cannot
/// have its type.
Result<std::vector<Type>> infer_graph(const Graph& graph, std::span<const Type> inputs);

}  // namespace rlx
