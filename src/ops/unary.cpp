// Elementwise ops of one operand that are one scalar op, casts, and tests of floats.
#include "ops/elementwise.hpp"

namespace rlx {

template <>
struct Rules<op::Neg> : UnaryScalar<op::Neg, ScalarOp::neg, DTypes::numbers_complex> {
  static constexpr std::string_view name = "neg";
};
RLX_OP(op::Neg, "elementwise")

template <>
struct Rules<op::Sign> : UnaryScalar<op::Sign, ScalarOp::sign, DTypes::numbers> {
  static constexpr std::string_view name = "sign";
};
RLX_OP(op::Sign, "elementwise")

template <>
struct Rules<op::Exp> : UnaryScalar<op::Exp, ScalarOp::exp, DTypes::floats_complex> {
  static constexpr std::string_view name = "exp";
};
RLX_OP(op::Exp, "elementwise")

template <>
struct Rules<op::Expm1> : UnaryScalar<op::Expm1, ScalarOp::expm1, DTypes::floats> {
  static constexpr std::string_view name = "expm1";
};
RLX_OP(op::Expm1, "elementwise")

template <>
struct Rules<op::Log> : UnaryScalar<op::Log, ScalarOp::log, DTypes::floats_complex> {
  static constexpr std::string_view name = "log";
};
RLX_OP(op::Log, "elementwise")

template <>
struct Rules<op::Log1p> : UnaryScalar<op::Log1p, ScalarOp::log1p, DTypes::floats> {
  static constexpr std::string_view name = "log1p";
};
RLX_OP(op::Log1p, "elementwise")

template <>
struct Rules<op::Sqrt> : UnaryScalar<op::Sqrt, ScalarOp::sqrt, DTypes::floats_complex> {
  static constexpr std::string_view name = "sqrt";
};
RLX_OP(op::Sqrt, "elementwise")

template <>
struct Rules<op::Rsqrt> : UnaryScalar<op::Rsqrt, ScalarOp::rsqrt, DTypes::floats> {
  static constexpr std::string_view name = "rsqrt";
};
RLX_OP(op::Rsqrt, "elementwise")

template <>
struct Rules<op::Reciprocal>
    : UnaryScalar<op::Reciprocal, ScalarOp::reciprocal, DTypes::floats_complex> {
  static constexpr std::string_view name = "reciprocal";
};
RLX_OP(op::Reciprocal, "elementwise")

template <>
struct Rules<op::Sin> : UnaryScalar<op::Sin, ScalarOp::sin, DTypes::floats_complex> {
  static constexpr std::string_view name = "sin";
};
RLX_OP(op::Sin, "elementwise")

template <>
struct Rules<op::Cos> : UnaryScalar<op::Cos, ScalarOp::cos, DTypes::floats_complex> {
  static constexpr std::string_view name = "cos";
};
RLX_OP(op::Cos, "elementwise")

template <>
struct Rules<op::Tan> : UnaryScalar<op::Tan, ScalarOp::tan, DTypes::floats> {
  static constexpr std::string_view name = "tan";
};
RLX_OP(op::Tan, "elementwise")

template <>
struct Rules<op::Asin> : UnaryScalar<op::Asin, ScalarOp::asin, DTypes::floats> {
  static constexpr std::string_view name = "asin";
};
RLX_OP(op::Asin, "elementwise")

template <>
struct Rules<op::Acos> : UnaryScalar<op::Acos, ScalarOp::acos, DTypes::floats> {
  static constexpr std::string_view name = "acos";
};
RLX_OP(op::Acos, "elementwise")

template <>
struct Rules<op::Atan> : UnaryScalar<op::Atan, ScalarOp::atan, DTypes::floats> {
  static constexpr std::string_view name = "atan";
};
RLX_OP(op::Atan, "elementwise")

template <>
struct Rules<op::Sinh> : UnaryScalar<op::Sinh, ScalarOp::sinh, DTypes::floats> {
  static constexpr std::string_view name = "sinh";
};
RLX_OP(op::Sinh, "elementwise")

template <>
struct Rules<op::Cosh> : UnaryScalar<op::Cosh, ScalarOp::cosh, DTypes::floats> {
  static constexpr std::string_view name = "cosh";
};
RLX_OP(op::Cosh, "elementwise")

template <>
struct Rules<op::Tanh> : UnaryScalar<op::Tanh, ScalarOp::tanh, DTypes::floats> {
  static constexpr std::string_view name = "tanh";
};
RLX_OP(op::Tanh, "elementwise")

template <>
struct Rules<op::Asinh> : UnaryScalar<op::Asinh, ScalarOp::asinh, DTypes::floats> {
  static constexpr std::string_view name = "asinh";
};
RLX_OP(op::Asinh, "elementwise")

template <>
struct Rules<op::Acosh> : UnaryScalar<op::Acosh, ScalarOp::acosh, DTypes::floats> {
  static constexpr std::string_view name = "acosh";
};
RLX_OP(op::Acosh, "elementwise")

template <>
struct Rules<op::Atanh> : UnaryScalar<op::Atanh, ScalarOp::atanh, DTypes::floats> {
  static constexpr std::string_view name = "atanh";
};
RLX_OP(op::Atanh, "elementwise")

template <>
struct Rules<op::Erf> : UnaryScalar<op::Erf, ScalarOp::erf, DTypes::floats> {
  static constexpr std::string_view name = "erf";
};
RLX_OP(op::Erf, "elementwise")

template <>
struct Rules<op::Floor> : UnaryScalar<op::Floor, ScalarOp::floor, DTypes::numbers> {
  static constexpr std::string_view name = "floor";
};
RLX_OP(op::Floor, "elementwise")

template <>
struct Rules<op::Ceil> : UnaryScalar<op::Ceil, ScalarOp::ceil, DTypes::numbers> {
  static constexpr std::string_view name = "ceil";
};
RLX_OP(op::Ceil, "elementwise")

template <>
struct Rules<op::Round> : UnaryScalar<op::Round, ScalarOp::round, DTypes::numbers> {
  static constexpr std::string_view name = "round";
};
RLX_OP(op::Round, "elementwise")

template <>
struct Rules<op::Trunc> : UnaryScalar<op::Trunc, ScalarOp::trunc, DTypes::numbers> {
  static constexpr std::string_view name = "trunc";
};
RLX_OP(op::Trunc, "elementwise")

template <>
struct Rules<op::Not> : UnaryScalar<op::Not, ScalarOp::bit_not, DTypes::integers_bool> {
  static constexpr std::string_view name = "not";
};
RLX_OP(op::Not, "elementwise")

/// Of complex numbers: the modulus, a real.
template <>
struct Rules<op::Abs> : UnaryScalar<op::Abs, ScalarOp::abs, DTypes::numbers_complex> {
  static constexpr std::string_view name = "abs";
  static Result<std::vector<Type>> infer(const op::Abs& a, const InferArgs& args) {
    RLX_ASSIGN(std::vector<Type> types, UnaryRules::infer(a, args));
    if (is_complex(types[0].dtype)) types[0].dtype = types[0].dtype == c64 ? f32 : f64;
    return types;
  }
};
RLX_OP(op::Abs, "elementwise")

template <>
struct Rules<op::IsNan> : UnaryScalar<op::IsNan, ScalarOp::is_nan, DTypes::floats> {
  static constexpr std::string_view name = "is_nan";
  static Result<std::vector<Type>> infer(const op::IsNan& a, const InferArgs& args) {
    RLX_ASSIGN(std::vector<Type> types, UnaryRules::infer(a, args));
    types[0].dtype = boolean;
    return types;
  }
};
RLX_OP(op::IsNan, "elementwise")

template <>
struct Rules<op::IsInf> : UnaryRules<op::IsInf, DTypes::floats> {
  static constexpr std::string_view name = "is_inf";
  static constexpr auto fields =
      std::tuple{field("positive", &op::IsInf::positive), field("negative", &op::IsInf::negative)};
  static Result<std::vector<Type>> infer(const op::IsInf& a, const InferArgs& args) {
    RLX_ASSIGN(std::vector<Type> types, UnaryRules::infer(a, args));
    types[0].dtype = boolean;
    return types;
  }
  static ScalarValue scalar(const op::IsInf& a, ScalarBuilder& builder,
                            std::span<const ScalarValue> x) {
    ScalarValue result = builder.unary(ScalarOp::is_inf, x[0]);
    if (!a.positive) result = scalar::bit_and(result, x[0] < ScalarValue(0.0));
    if (!a.negative) result = scalar::bit_and(result, x[0] > ScalarValue(0.0));
    return result;
  }
};
RLX_OP(op::IsInf, "elementwise")

/// Floats to integers truncate and saturate; to 8-bit floats `saturate` keeps finite values finite.
template <>
struct Rules<op::Cast> : UnaryRules<op::Cast, DTypes::all> {
  static constexpr std::string_view name = "cast";
  static constexpr auto fields =
      std::tuple{field("dtype", &op::Cast::dtype), field("saturate", &op::Cast::saturate)};
  static Result<std::vector<Type>> infer(const op::Cast& a, const InferArgs& args) {
    if (is_complex(args[0].dtype) && !is_complex(a.dtype)) {
      return bad_input("A cast from {} to {} would drop the imaginary part.", args[0].text(),
                       name_of(a.dtype));
    }
    return std::vector<Type>{{a.dtype, args[0].shape}};
  }
  static ScalarValue scalar(const op::Cast& a, ScalarBuilder& builder,
                            std::span<const ScalarValue> x) {
    const bool narrow_float =
        a.dtype == f8e4m3fn || a.dtype == f8e5m2 || a.dtype == f8e4m3fnuz || a.dtype == f8e5m2fnuz;
    if (!narrow_float || !a.saturate) return builder.cast(x[0], a.dtype);
    const double limit = a.dtype == f8e4m3fn ? 448 : a.dtype == f8e4m3fnuz ? 240 : 57344;
    const ScalarValue wide = builder.cast(x[0], f32);
    return builder.cast(scalar::min(scalar::max(wide, -limit), limit), a.dtype);
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> list;
    for (const DType from : {f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, boolean}) {
      for (const DType to : {f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, boolean}) {
        list.push_back({.op = op::Cast{to}, .inputs = {Type{from, {5, 7}}}, .low = -9, .high = 9});
      }
    }
    return list;
  }
};
RLX_OP(op::Cast, "elementwise")

template <>
struct Rules<op::Bitcast> : UnaryRules<op::Bitcast, DTypes::all> {
  static constexpr std::string_view name = "bitcast";
  static constexpr auto fields = std::tuple{field("dtype", &op::Bitcast::dtype)};
  static Result<std::vector<Type>> infer(const op::Bitcast& a, const InferArgs& args) {
    if (size_of(a.dtype) != size_of(args[0].dtype)) {
      return bad_input("A bitcast keeps the size of elements: {} to {} does not.", args[0].text(),
                       name_of(a.dtype));
    }
    return std::vector<Type>{{a.dtype, args[0].shape}};
  }
  static ScalarValue scalar(const op::Bitcast& a, ScalarBuilder& builder,
                            std::span<const ScalarValue> x) {
    return builder.bitcast(x[0], a.dtype);
  }
  static std::vector<Sample> samples() {
    return {{.op = op::Bitcast{i32}, .inputs = {Type{f32, {9}}}},
            {.op = op::Bitcast{f32}, .inputs = {Type{i32, {9}}}}};
  }
};
RLX_OP(op::Bitcast, "elementwise")

OpList unary_ops() {
  static const OpInfo* const list[] = {
      &info_of<op::Neg>(),        &info_of<op::Abs>(),    &info_of<op::Sign>(),
      &info_of<op::Exp>(),        &info_of<op::Expm1>(),  &info_of<op::Log>(),
      &info_of<op::Log1p>(),      &info_of<op::Sqrt>(),   &info_of<op::Rsqrt>(),
      &info_of<op::Reciprocal>(), &info_of<op::Sin>(),    &info_of<op::Cos>(),
      &info_of<op::Tan>(),        &info_of<op::Asin>(),   &info_of<op::Acos>(),
      &info_of<op::Atan>(),       &info_of<op::Sinh>(),   &info_of<op::Cosh>(),
      &info_of<op::Tanh>(),       &info_of<op::Asinh>(),  &info_of<op::Acosh>(),
      &info_of<op::Atanh>(),      &info_of<op::Erf>(),    &info_of<op::Floor>(),
      &info_of<op::Ceil>(),       &info_of<op::Round>(),  &info_of<op::Trunc>(),
      &info_of<op::Not>(),        &info_of<op::IsNan>(),  &info_of<op::IsInf>(),
      &info_of<op::Cast>(),       &info_of<op::Bitcast>()};
  return list;
}

}  // namespace rlx
