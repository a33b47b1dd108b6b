// Turns an op's Rules<> block into its OpInfo. A missing mandatory rule is a compile error here.
#pragma once

#include "base/error.hpp"
#include "graph/elementwise_eval.hpp"
#include "graph/op_info.hpp"

namespace rlx {

/// How many inputs an op takes; max -1: any number.
struct Arity {
  int min = 0;
  int max = 0;
};

/// Specialised in a family's .cpp with: name, arity, traits (OpTraits), fields (a tuple of
/// field(...)), infer, eval (elementwise ops with a scalar rule need none), samples; and where they
/// exist scalar, body, cost, resolve, eval_dynamic.
template <class Attributes>
struct Rules;

namespace rules_detail {

template <class A>
const A& cast(const void* attributes) {
  return *static_cast<const A*>(attributes);
}

template <class A>
void fill_optional(OpInfo& info) {
  using R = Rules<A>;
  if constexpr (requires(const A& a, ScalarBuilder& b, std::span<const ScalarValue> v) {
                  R::scalar(a, b, v);
                }) {
    info.scalar = [](const void* a, ScalarBuilder& builder,
                     std::span<const ScalarValue> operands) -> ScalarValue {
      return R::scalar(cast<A>(a), builder, operands);
    };
  }
  if constexpr (requires(const A& a, Graph& g, std::span<const Value> v) { R::body(a, g, v); }) {
    info.body = [](const void* a, Graph& graph, std::span<const Value> inputs) -> Values {
      return R::body(cast<A>(a), graph, inputs);
    };
  }
  if constexpr (requires(const A& a, std::span<const Type* const> i, std::span<const Type> r) {
                  R::cost(a, i, r);
                }) {
    info.cost = [](const void* a, std::span<const Type* const> inputs,
                   std::span<const Type> results) -> OpCost {
      return R::cost(cast<A>(a), inputs, results);
    };
  }
  if constexpr (requires(const A& a, Graph& g, std::span<const Value> v, KnownValues k) {
                  R::resolve(a, g, v, k);
                }) {
    info.resolve = [](const void* a, Graph& graph, std::span<const Value> inputs,
                      KnownValues known) -> std::optional<Values> {
      return R::resolve(cast<A>(a), graph, inputs, known);
    };
  }
  if constexpr (requires(const A& a, std::span<const TensorView> v) { R::eval_dynamic(a, v); }) {
    info.eval_dynamic = [](const void* a,
                           std::span<const TensorView> inputs) -> Result<std::vector<Tensor>> {
      return R::eval_dynamic(cast<A>(a), inputs);
    };
  }
}

}  // namespace rules_detail

template <class A>
OpInfo op_info_from_rules(std::string_view family) {
  using R = Rules<A>;
  OpInfo info;
  info.name = R::name;
  info.family = family;
  info.min_inputs = R::arity.min;
  info.max_inputs = R::arity.max;
  info.traits = R::traits;
  info.visit = [](const void* a, FieldVisitor& visitor) {
    visit_fields(const_cast<A&>(rules_detail::cast<A>(a)), R::fields, visitor);
  };
  info.visit_mutable = [](void* a, MutableFieldVisitor& visitor) {
    visit_fields(*static_cast<A*>(a), R::fields, visitor);
  };
  info.make = []() -> std::shared_ptr<void> { return std::make_shared<A>(); };
  info.copy = [](const void* a) -> std::shared_ptr<void> {
    return std::make_shared<A>(rules_detail::cast<A>(a));
  };
  info.equal = [](const void* a, const void* b) {
    return equal_fields(rules_detail::cast<A>(a), rules_detail::cast<A>(b), R::fields);
  };
  info.infer = [](const void* a, const InferArgs& args) -> Result<std::vector<Type>> {
    return R::infer(rules_detail::cast<A>(a), args);
  };
  if constexpr (requires(const A& a, const EvalArgs& e) { R::eval(a, e); }) {
    info.eval = [](const void* a, const EvalArgs& args) -> Status {
      return R::eval(rules_detail::cast<A>(a), args);
    };
  } else if constexpr (requires(const A& a, ScalarBuilder& b, std::span<const ScalarValue> v) {
                         R::scalar(a, b, v);
                       }) {
    info.eval = [](const void* a, const EvalArgs& args) -> Status {
      return evaluate_elementwise(info_of<A>(), a, args);
    };
  } else {
    static_assert(
        requires(const A& a, std::span<const TensorView> v) { R::eval_dynamic(a, v); } ||
            requires(const A& a, Graph& g, std::span<const Value> v) { R::body(a, g, v); } ||
            R::traits.stateful || R::traits.shape_operands,
        "an op needs eval, scalar, body or eval_dynamic");
  }
  info.samples = []() -> std::vector<Sample> { return R::samples(); };
  rules_detail::fill_optional<A>(info);
  return info;
}

/// Defines the record of an op beside its rules.
#define RLX_OP(attributes, family)                                     \
  template <>                                                          \
  const OpInfo& info_of<attributes>() {                                \
    static const OpInfo info = op_info_from_rules<attributes>(family); \
    return info;                                                       \
  }

}  // namespace rlx
