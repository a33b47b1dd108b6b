// Loops with carries and emitted results: scans of a known length, and loops whose length the data
// tells.
#include <algorithm>
#include <cstring>
#include <limits>

#include "graph/rules.hpp"
#include "ops/families.hpp"
#include "ops/subgraph.hpp"

namespace rlx {
namespace {

using Types = Result<std::vector<Type>>;
using Tensors = Result<std::vector<Tensor>>;

Type stacked(Dim length, Type type) {
  type.shape.insert(type.shape.begin(), std::move(length));
  return type;
}

Tensor step_tensor(std::int64_t step) { return Tensor::scalar(step); }

// One slice of a scanned operand along its first axis, borrowed.
Tensor slice_at(const TensorView& scanned, std::int64_t position) {
  const std::span<const std::int64_t> dims = scanned.dims.subspan(1);
  const std::int64_t bytes =
      element_count(dims) * static_cast<std::int64_t>(size_of(scanned.dtype));
  return borrowed({scanned.dtype, dims, scanned.data + position * bytes});
}

}  // namespace

template <>
struct Rules<op::Scan> {
  static constexpr std::string_view name = "scan";
  static constexpr Arity arity{0, -1};
  static constexpr OpTraits traits{.control_flow = true};
  static constexpr auto fields =
      std::tuple{field("body", &op::Scan::body), field("length", &op::Scan::length),
                 field("carries", &op::Scan::carries), field("scanned", &op::Scan::scanned),
                 field("reverse", &op::Scan::reverse)};
  static Types infer(const op::Scan& a, const InferArgs& args) {
    if (a.length < 0 || a.carries < 0 || a.scanned < 0 || a.carries > args.count() ||
        a.scanned > args.count() - a.carries) {
      return bad_input(
          "A scan of length ({}) with ({}) carries and ({}) scanned operands was given ({}) "
          "inputs.",
          a.length, a.carries, a.scanned, args.count());
    }
    RLX_ASSIGN(const std::vector<Type> operands, operand_types(name, args));
    std::vector<Type> inputs{{i64, {}}};
    for (std::size_t i = 0; i < operands.size(); ++i) {
      inputs.push_back(operands[i]);
      if (!is_scanned(a, i)) continue;
      Shape& shape = inputs.back().shape;
      if (shape.empty() || !compatible(shape[0], Dim(a.length)))
        return bad_input("A scan of length ({}) cannot take slices of {}.", a.length,
                         operands[i].text());
      shape.erase(shape.begin());
    }
    RLX_ASSIGN(const std::vector<Type> next, infer_part(name, "body", a.body, inputs));
    const auto carries = static_cast<std::size_t>(a.carries);
    if (next.size() < carries)
      return bad_input("The body of scan takes ({}) carries and gives ({}) results.", carries,
                       next.size());
    std::vector<Type> results(operands.begin(), operands.begin() + a.carries);
    for (std::size_t i = 0; i < carries; ++i) RLX_TRY(require_kept(name, i, operands[i], next[i]));
    for (std::size_t i = carries; i < next.size(); ++i)
      results.push_back(stacked(Dim(a.length), next[i]));
    return results;
  }
  static bool is_scanned(const op::Scan& a, std::size_t input) {
    const auto i = static_cast<std::int64_t>(input);
    return i >= a.carries && i < a.carries + a.scanned;
  }
  static Status eval(const op::Scan& a, const EvalArgs& args) {
    const auto carries = static_cast<std::size_t>(a.carries);
    std::vector<Tensor> values;
    for (std::size_t i = 0; i < carries; ++i) values.push_back(borrowed(args.inputs[i]));
    for (std::int64_t step = 0; step < a.length; ++step) {
      const std::int64_t position = a.reverse ? a.length - 1 - step : step;
      std::vector<Tensor> inputs{step_tensor(step)};
      inputs.insert(inputs.end(), values.begin(), values.begin() + a.carries);
      for (std::size_t i = carries; i < args.inputs.size(); ++i) {
        inputs.push_back(is_scanned(a, i) ? slice_at(args.inputs[i], position)
                                          : borrowed(args.inputs[i]));
      }
      RLX_ASSIGN(values, evaluate_graph(*a.body, inputs));
      for (std::size_t i = carries; i < values.size(); ++i) {
        const MutableTensorView& out = args.outputs[i];
        const std::span<const std::int64_t> dims = out.dims.subspan(1);
        std::byte* to = out.data + position * element_count(dims) *
                                       static_cast<std::int64_t>(size_of(out.dtype));
        RLX_TRY(store_result(name, values[i], {out.dtype, dims, to}));
      }
    }
    for (std::size_t i = 0; i < carries; ++i)
      RLX_TRY(store_result(name, values[i], args.outputs[i]));
    return {};
  }
  // A running sum whose steps also emit the square of the sum times a captured factor.
  static GraphPointer sample_body() {
    Graph graph;
    graph.input("step", i64, {});
    const Value sum = graph.input("sum", f32, {3}), x = graph.input("x", f32, {3}),
                factor = graph.input("factor", f32, {});
    const Value next = sum + x;
    graph.output("sum_next", next);
    graph.output("emitted", next * next * factor);
    return std::make_shared<const Graph>(std::move(graph));
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> list;
    for (const bool reverse : {false, true}) {
      list.push_back({.op = op::Scan{sample_body(), 4, 1, 1, reverse},
                      .inputs = {Type{f32, {3}}, Type{f32, {4, 3}}, Type{f32, {}}}});
    }
    return list;
  }
};
RLX_OP(op::Scan, "control")

namespace {

// What a loop that the host runs knows about its operands.
struct LoopTypes {
  std::vector<Type> carries;  ///< with unknown dims where an iteration changes them
  std::vector<Type> emitted;  ///< of one iteration
};

// Dims in which two types differ become unknown; true if any did.
bool widen_dims(Type& type, const Type& next) {
  bool changed = false;
  for (std::size_t i = 0; i < type.shape.size(); ++i) {
    if (type.shape[i] == next.shape[i] || type.shape[i].is_unknown()) continue;
    type.shape[i] = Dim::unknown();
    changed = true;
  }
  return changed;
}

// Infers the body until its carries keep their types; every round forgets a dim, so that it ends.
Result<LoopTypes> loop_types(const op::HostLoop& a, const InferArgs& args) {
  constexpr std::string_view name = "host_loop";
  RLX_ASSIGN(const std::vector<Type> operands, operand_types(name, args, 2));
  const auto carries = static_cast<std::size_t>(a.carries);
  std::vector<Type> inputs{{i64, {}}, {boolean, {}}};
  inputs.insert(inputs.end(), operands.begin(), operands.end());
  while (true) {
    RLX_ASSIGN(const std::vector<Type> next, infer_part(name, "body", a.body, inputs));
    if (next.size() < carries + 1) {
      return bad_input(
          "The body of host_loop takes ({}) carries and gives ({}) results; it must give a "
          "condition and the carries.",
          carries, next.size());
    }
    RLX_TRY(require_condition(name, "condition", next[0]));
    bool changed = false;
    for (std::size_t i = 0; i < carries; ++i) {
      Type& carry = inputs[2 + i];
      if (carry.dtype != next[1 + i].dtype) RLX_TRY(require_kept(name, i, carry, next[1 + i]));
      if (carry.rank() != next[1 + i].rank()) {
        return unsupported(
            "The carry ({}) of host_loop is {} and becomes {}; a carry must keep its rank.", i,
            carry.text(), next[1 + i].text());
      }
      changed |= widen_dims(carry, next[1 + i]);
    }
    if (!changed)
      return LoopTypes{{inputs.begin() + 2, inputs.begin() + 2 + a.carries},
                       {next.begin() + 1 + a.carries, next.end()}};
  }
}

// The tensors of all iterations, one after the other along a new first axis.
Result<Tensor> stack(const std::vector<Tensor>& parts, const Type& type) {
  Dims dims;
  if (parts.empty()) {
    for (const Dim& dim : type.shape) dims.push_back(dim.is_static() ? dim.value() : 0);
  } else {
    dims = parts[0].dims();
  }
  dims.insert(dims.begin(), static_cast<std::int64_t>(parts.size()));
  Tensor result(type.dtype, std::move(dims));
  std::byte* to = result.mutable_data();
  for (const Tensor& part : parts) {
    if (part.dims() != parts[0].dims()) {
      return bad_input("A loop emits {} after {}; what it emits must keep its dims.",
                       Type{part.dtype(), to_shape(part.dims())}.text(),
                       Type{type.dtype, to_shape(parts[0].dims())}.text());
    }
    if (part.bytes() > 0) std::memcpy(to, part.data(), part.bytes());
    to += part.bytes();
  }
  return result;
}

Status require_trip_count(const InferArgs& args) {
  if (!args.has(0)) return {};
  bool single = args[0].dtype == i64 && args[0].rank() <= 1;
  for (const Dim& dim : args[0].shape) single = single && compatible(dim, Dim(1));
  if (single) return {};
  return bad_input("The trip count of host_loop must be one i64, not {}.", args[0].text());
}

}  // namespace

template <>
struct Rules<op::HostLoop> {
  static constexpr std::string_view name = "host_loop";
  static constexpr Arity arity{0, -1};
  static constexpr OpTraits traits{.data_dependent = true, .control_flow = true, .host_only = true};
  static constexpr auto fields =
      std::tuple{field("body", &op::HostLoop::body), field("carries", &op::HostLoop::carries)};
  static Types infer(const op::HostLoop& a, const InferArgs& args) {
    if (a.carries < 0 || a.carries > args.count() - 2)
      return bad_input("A host_loop with ({}) carries was given ({}) inputs.", a.carries,
                       args.count());
    RLX_TRY(require_trip_count(args));
    if (args.has(1)) RLX_TRY(require_condition(name, "condition", args[1]));
    RLX_ASSIGN(const LoopTypes types, loop_types(a, args));
    std::vector<Type> results = types.carries;
    for (const Type& type : types.emitted) results.push_back(stacked(Dim::unknown(), type));
    return results;
  }
  static Tensors eval_dynamic(const op::HostLoop& a, std::span<const TensorView> inputs) {
    std::vector<Type> types(inputs.size());
    std::vector<const Type*> pointers;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      types[i] = {inputs[i].dtype, to_shape(inputs[i].dims)};
      pointers.push_back(inputs[i].data ? &types[i] : nullptr);
    }
    RLX_ASSIGN(const LoopTypes inferred, loop_types(a, InferArgs{pointers}));
    const std::int64_t trips =
        inputs[0].data ? *inputs[0].as<std::int64_t>() : std::numeric_limits<std::int64_t>::max();
    const auto carries = static_cast<std::size_t>(a.carries);
    std::vector<Tensor> values{
        Tensor::scalar(!inputs[1].data || *inputs[1].as<std::uint8_t>() != 0)};
    for (std::size_t i = 0; i < carries; ++i) values.push_back(borrowed(inputs[2 + i]));
    std::vector<std::vector<Tensor>> emitted(inferred.emitted.size());
    for (std::int64_t step = 0; step < trips && truth_of(values[0]); ++step) {
      std::vector<Tensor> operands{step_tensor(step)};
      operands.push_back(values[0].reshaped({}));
      operands.insert(operands.end(), values.begin() + 1, values.begin() + 1 + a.carries);
      for (std::size_t i = 2 + carries; i < inputs.size(); ++i)
        operands.push_back(borrowed(inputs[i]));
      RLX_ASSIGN(values, evaluate_graph(*a.body, operands));
      for (std::size_t i = 0; i < emitted.size(); ++i)
        emitted[i].push_back(values[1 + carries + i]);
    }
    std::vector<Tensor> results(values.begin() + 1, values.begin() + 1 + a.carries);
    own_results(results, inputs);
    for (std::size_t i = 0; i < emitted.size(); ++i) {
      RLX_ASSIGN(Tensor tensor, stack(emitted[i], inferred.emitted[i]));
      results.push_back(std::move(tensor));
    }
    return results;
  }
  // Doubles a carry until it is large, appends the step to another, emits the first.
  static GraphPointer sample_body() {
    Graph graph;
    const Value step = graph.input("step", i64, {});
    graph.input("condition", boolean, {});
    const Value x = graph.input("x", i64, {}), list = graph.input("list", i64, {"n"}),
                limit = graph.input("limit", i64, {});
    const Value next = x + x;
    graph.output("condition_next", less(next, limit));
    graph.output("x_next", next);
    graph.output("list_next", concat({list, reshape(step, {1})}, 0));
    graph.output("emitted", next);
    return std::make_shared<const Graph>(std::move(graph));
  }
  static std::vector<Sample> samples() {
    const auto integer = [](std::int64_t value) { return std::optional(Tensor::scalar(value)); };
    const Type scalar{i64, {}};
    const Op loop = op::HostLoop{sample_body(), 2};
    return {{.op = loop,
             .inputs = {scalar, Type{boolean, {}}, scalar, Type{i64, {2}}, scalar},
             .values = {integer(3), Tensor::scalar(true), integer(1), std::nullopt, integer(100)}},
            {.op = loop,
             .inputs = {scalar, Type{boolean, {}}, scalar, Type{i64, {2}}, scalar},
             .values = {std::nullopt, std::nullopt, integer(1), std::nullopt, integer(100)},
             .absent = {0, 1}}};
  }
};
RLX_OP(op::HostLoop, "control")

OpList loop_ops() {
  static const OpInfo* const list[] = {&info_of<op::Scan>(), &info_of<op::HostLoop>()};
  return list;
}

}  // namespace rlx
