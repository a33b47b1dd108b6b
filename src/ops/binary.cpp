// Elementwise ops of two and three operands.
#include "ops/elementwise.hpp"

namespace rlx {

template <>
struct Rules<op::Add> : BinaryScalar<op::Add, ScalarOp::add, DTypes::numbers_complex> {
  static constexpr std::string_view name = "add";
};
RLX_OP(op::Add, "elementwise")

template <>
struct Rules<op::Sub> : BinaryScalar<op::Sub, ScalarOp::sub, DTypes::numbers_complex> {
  static constexpr std::string_view name = "sub";
};
RLX_OP(op::Sub, "elementwise")

template <>
struct Rules<op::Mul> : BinaryScalar<op::Mul, ScalarOp::mul, DTypes::numbers_complex> {
  static constexpr std::string_view name = "mul";
};
RLX_OP(op::Mul, "elementwise")

template <>
struct Rules<op::Div> : BinaryScalar<op::Div, ScalarOp::div, DTypes::numbers_complex> {
  static constexpr std::string_view name = "div";
};
RLX_OP(op::Div, "elementwise")

template <>
struct Rules<op::Rem> : BinaryScalar<op::Rem, ScalarOp::rem, DTypes::numbers> {
  static constexpr std::string_view name = "rem";
};
RLX_OP(op::Rem, "elementwise")

template <>
struct Rules<op::Mod> : BinaryScalar<op::Mod, ScalarOp::mod, DTypes::numbers> {
  static constexpr std::string_view name = "mod";
};
RLX_OP(op::Mod, "elementwise")

template <>
struct Rules<op::Atan2> : BinaryScalar<op::Atan2, ScalarOp::atan2, DTypes::floats> {
  static constexpr std::string_view name = "atan2";
};
RLX_OP(op::Atan2, "elementwise")

template <>
struct Rules<op::Min> : BinaryScalar<op::Min, ScalarOp::min, DTypes::numbers> {
  static constexpr std::string_view name = "min";
};
RLX_OP(op::Min, "elementwise")

template <>
struct Rules<op::Max> : BinaryScalar<op::Max, ScalarOp::max, DTypes::numbers> {
  static constexpr std::string_view name = "max";
};
RLX_OP(op::Max, "elementwise")

template <>
struct Rules<op::And> : BinaryScalar<op::And, ScalarOp::bit_and, DTypes::integers_bool> {
  static constexpr std::string_view name = "and";
};
RLX_OP(op::And, "elementwise")

template <>
struct Rules<op::Or> : BinaryScalar<op::Or, ScalarOp::bit_or, DTypes::integers_bool> {
  static constexpr std::string_view name = "or";
};
RLX_OP(op::Or, "elementwise")

template <>
struct Rules<op::Xor> : BinaryScalar<op::Xor, ScalarOp::bit_xor, DTypes::integers_bool> {
  static constexpr std::string_view name = "xor";
};
RLX_OP(op::Xor, "elementwise")

template <>
struct Rules<op::Equal> : CompareScalar<op::Equal, ScalarOp::equal, DTypes::all> {
  static constexpr std::string_view name = "equal";
};
RLX_OP(op::Equal, "elementwise")

template <>
struct Rules<op::NotEqual> : CompareScalar<op::NotEqual, ScalarOp::not_equal, DTypes::all> {
  static constexpr std::string_view name = "not_equal";
};
RLX_OP(op::NotEqual, "elementwise")

template <>
struct Rules<op::Less> : CompareScalar<op::Less, ScalarOp::less, DTypes::numbers> {
  static constexpr std::string_view name = "less";
};
RLX_OP(op::Less, "elementwise")

template <>
struct Rules<op::LessEqual> : CompareScalar<op::LessEqual, ScalarOp::less_equal, DTypes::numbers> {
  static constexpr std::string_view name = "less_equal";
};
RLX_OP(op::LessEqual, "elementwise")

template <>
struct Rules<op::Greater> : CompareScalar<op::Greater, ScalarOp::greater, DTypes::numbers> {
  static constexpr std::string_view name = "greater";
};
RLX_OP(op::Greater, "elementwise")

template <>
struct Rules<op::GreaterEqual>
    : CompareScalar<op::GreaterEqual, ScalarOp::greater_equal, DTypes::numbers> {
  static constexpr std::string_view name = "greater_equal";
};
RLX_OP(op::GreaterEqual, "elementwise")

template <class A, ScalarOp scalar_op>
struct ShiftRules : BinaryScalar<A, scalar_op, DTypes::numbers> {
  static Result<std::vector<Type>> infer(const A& a, const InferArgs& args) {
    RLX_TRY(require(is_integer(args[0].dtype), Rules<A>::name, "integers", args[0]));
    return BinaryRules<A, DTypes::numbers>::infer(a, args);
  }
  static std::vector<Sample> samples() {
    return {{.op = A{}, .inputs = {Type{u8, {3, 9}}, Type{u8, {3, 9}}}, .low = 0, .high = 7},
            {.op = A{}, .inputs = {Type{i32, {3, 9}}, Type{i32, {9}}}, .low = 0, .high = 31}};
  }
};

template <>
struct Rules<op::ShiftLeft> : ShiftRules<op::ShiftLeft, ScalarOp::shift_left> {
  static constexpr std::string_view name = "shift_left";
};
RLX_OP(op::ShiftLeft, "elementwise")

template <>
struct Rules<op::ShiftRight> : ShiftRules<op::ShiftRight, ScalarOp::shift_right> {
  static constexpr std::string_view name = "shift_right";
};
RLX_OP(op::ShiftRight, "elementwise")

/// The result has the base's dtype; an exponent of another dtype is converted (integer bases with
/// float exponents through f64).
template <>
struct Rules<op::Pow> {
  static constexpr std::string_view name = "pow";
  static constexpr Arity arity{2, 2};
  static constexpr OpTraits traits{.elementwise = true};
  static constexpr auto fields = std::tuple{};
  static Result<std::vector<Type>> infer(const op::Pow&, const InferArgs& args) {
    for (int i = 0; i < 2; ++i)
      RLX_TRY(require(accepts(DTypes::numbers, args[i].dtype), name, "numbers", args[i]));
    RLX_ASSIGN(Shape shape, broadcast_shapes(args[0].shape, args[1].shape));
    return std::vector<Type>{{args[0].dtype, std::move(shape)}};
  }
  static ScalarValue scalar(const op::Pow&, ScalarBuilder& builder,
                            std::span<const ScalarValue> x) {
    const DType base = x[0].dtype();
    if (is_integer(base) && is_float(x[1].dtype())) {
      return builder.cast(
          builder.binary(ScalarOp::pow, builder.cast(x[0], f64), builder.cast(x[1], f64)), base);
    }
    return builder.binary(ScalarOp::pow, x[0], builder.cast(x[1], base));
  }
  static std::vector<Sample> samples() {
    return {{.op = op::Pow{},
             .inputs = {Type{f32, {3, 17}}, Type{f32, {3, 17}}},
             .low = 0.1,
             .high = 3},
            {.op = op::Pow{}, .inputs = {Type{f32, {3, 17}}, Type{i64, {}}}},
            {.op = op::Pow{}, .inputs = {Type{i32, {3, 17}}, Type{i32, {17}}}, .low = 0, .high = 4},
            {.op = op::Pow{}, .inputs = {Type{i32, {5}}, Type{f32, {5}}}, .low = 0, .high = 4}};
  }
};
RLX_OP(op::Pow, "elementwise")

template <>
struct Rules<op::Select> {
  static constexpr std::string_view name = "select";
  static constexpr Arity arity{3, 3};
  static constexpr OpTraits traits{.elementwise = true};
  static constexpr auto fields = std::tuple{};
  static Result<std::vector<Type>> infer(const op::Select&, const InferArgs& args) {
    RLX_TRY(require(args[0].dtype == boolean, name, "a bool condition", args[0]));
    if (args[1].dtype != args[2].dtype) {
      return bad_input("The op select wants equal dtypes and was given {} and {}.", args[1].text(),
                       args[2].text());
    }
    RLX_ASSIGN(Shape branches, broadcast_shapes(args[1].shape, args[2].shape));
    RLX_ASSIGN(Shape shape, broadcast_shapes(args[0].shape, branches));
    return std::vector<Type>{{args[1].dtype, std::move(shape)}};
  }
  static ScalarValue scalar(const op::Select&, ScalarBuilder& builder,
                            std::span<const ScalarValue> x) {
    return builder.select(x[0], x[1], x[2]);
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> list;
    for (const DType dtype : {f32, f64, f16, i64, u8, boolean}) {
      list.push_back({.op = op::Select{},
                      .inputs = {Type{boolean, {4, 9}}, Type{dtype, {4, 9}}, Type{dtype, {9}}}});
    }
    return list;
  }
};
RLX_OP(op::Select, "elementwise")

/// clamp(x, low?, high?): max with low, then min with high (so high wins where low > high). Scalars
/// or broadcastable limits.
template <>
struct Rules<op::Clamp> {
  static constexpr std::string_view name = "clamp";
  static constexpr Arity arity{1, 3};
  static constexpr OpTraits traits{.elementwise = true};
  static constexpr auto fields = std::tuple{};
  static Result<std::vector<Type>> infer(const op::Clamp&, const InferArgs& args) {
    RLX_TRY(require(accepts(DTypes::numbers, args[0].dtype), name, "numbers", args[0]));
    Shape shape = args[0].shape;
    for (int i = 1; i < args.count(); ++i) {
      if (!args.has(i)) continue;
      if (args[i].dtype != args[0].dtype) {
        return bad_input("The op clamp wants limits of dtype {} and was given {}.",
                         name_of(args[0].dtype), args[i].text());
      }
      RLX_ASSIGN(shape, broadcast_shapes(shape, args[i].shape));
    }
    return std::vector<Type>{{args[0].dtype, std::move(shape)}};
  }
  static ScalarValue scalar(const op::Clamp&, ScalarBuilder&, std::span<const ScalarValue> x) {
    ScalarValue result = x[0];
    if (x.size() > 1 && x[1].builder()) result = scalar::max(result, x[1]);
    if (x.size() > 2 && x[2].builder()) result = scalar::min(result, x[2]);
    return result;
  }
  static std::vector<Sample> samples() {
    return {
        {.op = op::Clamp{}, .inputs = {Type{f32, {3, 9}}, Type{f32, {}}, Type{f32, {}}}},
        {.op = op::Clamp{}, .inputs = {Type{i32, {3, 9}}, Type{i32, {}}, Type{i32, {}}}},
        {.op = op::Clamp{}, .inputs = {Type{f32, {3, 9}}, Type{}, Type{f32, {}}}, .absent = {1}}};
  }
};
RLX_OP(op::Clamp, "elementwise")

OpList binary_ops() {
  static const OpInfo* const list[] = {
      &info_of<op::Add>(),       &info_of<op::Sub>(),        &info_of<op::Mul>(),
      &info_of<op::Div>(),       &info_of<op::Rem>(),        &info_of<op::Mod>(),
      &info_of<op::Atan2>(),     &info_of<op::Min>(),        &info_of<op::Max>(),
      &info_of<op::And>(),       &info_of<op::Or>(),         &info_of<op::Xor>(),
      &info_of<op::Equal>(),     &info_of<op::NotEqual>(),   &info_of<op::Less>(),
      &info_of<op::LessEqual>(), &info_of<op::Greater>(),    &info_of<op::GreaterEqual>(),
      &info_of<op::ShiftLeft>(), &info_of<op::ShiftRight>(), &info_of<op::Pow>(),
      &info_of<op::Select>(),    &info_of<op::Clamp>()};
  return list;
}

}  // namespace rlx
