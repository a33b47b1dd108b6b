// What the elementwise families share: rules for ops that are one scalar op, or a short expression
// of them.
#pragma once

#include "graph/rules.hpp"
#include "ops/families.hpp"

namespace rlx {

/// Which dtypes an elementwise op takes.
enum class DTypes { floats, floats_complex, numbers, numbers_complex, integers_bool, all };

constexpr bool accepts(DTypes set, DType dtype) {
  switch (set) {
    case DTypes::floats: return is_float(dtype);
    case DTypes::floats_complex: return is_float(dtype) || is_complex(dtype);
    case DTypes::numbers: return dtype != DType::boolean && !is_complex(dtype);
    case DTypes::numbers_complex: return dtype != DType::boolean;
    case DTypes::integers_bool: return is_integer(dtype) || dtype == DType::boolean;
    case DTypes::all: return true;
  }
  return false;
}

constexpr std::string_view text_of(DTypes set) {
  constexpr std::string_view texts[] = {"floats",           "floats or complex numbers",
                                        "numbers",          "numbers or complex numbers",
                                        "integers or bool", "anything"};
  return texts[static_cast<int>(set)];
}

/// One input of the named dtypes; the result has its type.
template <class A, DTypes dtypes>
struct UnaryRules {
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{.elementwise = true};
  static constexpr auto fields = std::tuple{};
  static Result<std::vector<Type>> infer(const A&, const InferArgs& args) {
    RLX_TRY(require(accepts(dtypes, args[0].dtype), Rules<A>::name, text_of(dtypes), args[0]));
    return std::vector<Type>{args[0]};
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> list;
    for (const DType dtype : {f32, f64, f16, bf16, i32, i64, u8, i8, boolean}) {
      if (accepts(dtypes, dtype)) list.push_back({.op = A{}, .inputs = {Type{dtype, {3, 17}}}});
    }
    return list;
  }
};

/// An op that is one scalar op.
template <class A, ScalarOp scalar_op, DTypes dtypes>
struct UnaryScalar : UnaryRules<A, dtypes> {
  static ScalarValue scalar(const A&, ScalarBuilder& builder, std::span<const ScalarValue> x) {
    return builder.unary(scalar_op, x[0]);
  }
};

/// Two inputs of one dtype, broadcast.
template <class A, DTypes dtypes>
struct BinaryRules {
  static constexpr Arity arity{2, 2};
  static constexpr OpTraits traits{.elementwise = true};
  static constexpr auto fields = std::tuple{};
  static Result<std::vector<Type>> infer(const A&, const InferArgs& args) {
    RLX_TRY(require(accepts(dtypes, args[0].dtype), Rules<A>::name, text_of(dtypes), args[0]));
    if (args[0].dtype != args[1].dtype) {
      return bad_input("The op {} wants equal dtypes and was given {} and {}.", Rules<A>::name,
                       args[0].text(), args[1].text());
    }
    RLX_ASSIGN(Shape shape, broadcast_shapes(args[0].shape, args[1].shape));
    return std::vector<Type>{{args[0].dtype, std::move(shape)}};
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> list;
    for (const DType dtype : {f32, f64, f16, bf16, i32, i64, u8, i8, u32, boolean}) {
      if (!accepts(dtypes, dtype)) continue;
      list.push_back({.op = A{}, .inputs = {Type{dtype, {3, 17}}, Type{dtype, {3, 17}}}});
    }
    const DType first = accepts(dtypes, f32) ? f32 : i32;
    list.push_back({.op = A{}, .inputs = {Type{first, {2, 1, 5}}, Type{first, {4, 1}}}});
    list.push_back({.op = A{}, .inputs = {Type{first, {}}, Type{first, {7}}}});
    return list;
  }
};

template <class A, ScalarOp scalar_op, DTypes dtypes>
struct BinaryScalar : BinaryRules<A, dtypes> {
  static ScalarValue scalar(const A&, ScalarBuilder& builder, std::span<const ScalarValue> x) {
    return builder.binary(scalar_op, x[0], x[1]);
  }
};

/// The same with a bool result.
template <class A, ScalarOp scalar_op, DTypes dtypes>
struct CompareScalar : BinaryScalar<A, scalar_op, dtypes> {
  static Result<std::vector<Type>> infer(const A& a, const InferArgs& args) {
    RLX_ASSIGN(std::vector<Type> types, (BinaryRules<A, dtypes>::infer(a, args)));
    types[0].dtype = DType::boolean;
    return types;
  }
};

}  // namespace rlx
