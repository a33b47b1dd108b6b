// Reference evaluation of scalar expressions: one switch over the scalar ops, in double precision,
// rounded node by node.
#include "graph/elementwise_eval.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/error.hpp"
#include "base/half.hpp"
#include "graph/elementwise_blocks.hpp"
#include "graph/op_info.hpp"

namespace rlx {
namespace {

using Complex = std::complex<double>;

template <class T>
T read(const std::byte* data, std::int64_t index) {
  T value;
  std::memcpy(&value, data + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
void write(std::byte* data, std::int64_t index, T value) {
  std::memcpy(data + index * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

// Integers wrap to the width of their dtype.
std::int64_t wrap(DType dtype, std::int64_t value) {
  switch (dtype) {
    case DType::boolean: return value != 0;
    case DType::i4:
      return static_cast<std::int64_t>((static_cast<std::uint64_t>(value) & 15) ^ 8) - 8;
    case DType::u4: return value & 15;
    case DType::i2:
      return static_cast<std::int64_t>((static_cast<std::uint64_t>(value) & 3) ^ 2) - 2;
    case DType::u2: return value & 3;
    case DType::i8: return static_cast<std::int8_t>(value);
    case DType::u8: return static_cast<std::uint8_t>(value);
    case DType::i16: return static_cast<std::int16_t>(value);
    case DType::u16: return static_cast<std::uint16_t>(value);
    case DType::i32: return static_cast<std::int32_t>(value);
    case DType::u32: return static_cast<std::uint32_t>(value);
    default: return value;
  }
}

double round_float(DType dtype, double value) {
  switch (dtype) {
    case DType::f32:
    case DType::c64: return static_cast<float>(value);
    case DType::f16: return to_float(Half(static_cast<float>(value)));
    case DType::bf16: return to_float(BFloat16(static_cast<float>(value)));
    case DType::f8e4m3fn: return to_float(Float8E4M3FN(static_cast<float>(value)));
    case DType::f8e5m2: return to_float(Float8E5M2(static_cast<float>(value)));
    case DType::f8e4m3fnuz: return to_float(Float8E4M3FNUZ(static_cast<float>(value)));
    case DType::f8e5m2fnuz: return to_float(Float8E5M2FNUZ(static_cast<float>(value)));
    case DType::f4e2m1: return to_float(Float4E2M1(static_cast<float>(value)));
    default: return value;
  }
}

bool holds_number(DType dtype) { return is_float(dtype) || is_complex(dtype); }

ScalarDatum number(DType dtype, Complex value) {
  if (is_complex(dtype))
    return {{round_float(dtype, value.real()), round_float(dtype, value.imag())}, 0};
  return {round_float(dtype, value.real()), 0};
}

ScalarDatum integer(DType dtype, std::int64_t value) { return {0, wrap(dtype, value)}; }
ScalarDatum truth(bool value) { return {0, value}; }

std::int64_t saturate_to_integer(DType dtype, double value) {
  if (std::isnan(value)) return 0;
  const bool is_signed = is_signed_integer(dtype);
  const int width = integer_bits(dtype);
  const double low = is_signed ? -std::ldexp(1.0, width - 1) : 0.0;
  const double high = std::ldexp(1.0, is_signed ? width - 1 : width);
  if (value <= low)
    return is_signed ? (width == 64 ? std::numeric_limits<std::int64_t>::min()
                                    : static_cast<std::int64_t>(low))
                     : 0;
  if (value >= high) {
    if (width == 64) return is_signed ? std::numeric_limits<std::int64_t>::max() : -1;
    return static_cast<std::int64_t>(high) - 1;
  }
  if (dtype == DType::u64) return static_cast<std::int64_t>(static_cast<std::uint64_t>(value));
  return static_cast<std::int64_t>(value);
}

double integer_as_double(DType dtype, std::int64_t value) {
  return dtype == DType::u64 ? static_cast<double>(static_cast<std::uint64_t>(value))
                             : static_cast<double>(value);
}

ScalarDatum cast_datum(DType from, DType to, const ScalarDatum& a) {
  if (holds_number(to)) {
    return holds_number(from) ? number(to, a.number)
                              : number(to, integer_as_double(from, a.integer));
  }
  if (to == DType::boolean)
    return truth(holds_number(from) ? a.number != Complex(0) : a.integer != 0);
  if (holds_number(from)) return integer(to, saturate_to_integer(to, a.number.real()));
  return integer(to, a.integer);
}

ScalarDatum bitcast_datum(DType from, DType to, const ScalarDatum& a) {
  std::array<std::byte, 16> bytes{};
  store_datum(from, bytes.data(), 0, a);
  return load_datum(to, bytes.data(), 0);
}

double round_half_even(double x) { return std::nearbyint(x); }

Complex unary_number(ScalarOp op, Complex z, bool complex) {
  const double x = z.real();
  switch (op) {
    case ScalarOp::neg: return -z;
    case ScalarOp::abs: return std::abs(z);
    case ScalarOp::exp: return complex ? std::exp(z) : Complex(std::exp(x));
    case ScalarOp::log: return complex ? std::log(z) : Complex(std::log(x));
    case ScalarOp::sqrt: return complex ? std::sqrt(z) : Complex(std::sqrt(x));
    case ScalarOp::reciprocal: return complex ? 1.0 / z : Complex(1.0 / x);
    case ScalarOp::sin: return complex ? std::sin(z) : Complex(std::sin(x));
    case ScalarOp::cos: return complex ? std::cos(z) : Complex(std::cos(x));
    case ScalarOp::sign: return std::isnan(x) ? x : static_cast<double>((x > 0) - (x < 0));
    case ScalarOp::expm1: return std::expm1(x);
    case ScalarOp::exp2: return std::exp2(x);
    case ScalarOp::log1p: return std::log1p(x);
    case ScalarOp::log2: return std::log2(x);
    case ScalarOp::rsqrt: return 1.0 / std::sqrt(x);
    case ScalarOp::tan: return std::tan(x);
    case ScalarOp::asin: return std::asin(x);
    case ScalarOp::acos: return std::acos(x);
    case ScalarOp::atan: return std::atan(x);
    case ScalarOp::sinh: return std::sinh(x);
    case ScalarOp::cosh: return std::cosh(x);
    case ScalarOp::tanh: return std::tanh(x);
    case ScalarOp::asinh: return std::asinh(x);
    case ScalarOp::acosh: return std::acosh(x);
    case ScalarOp::atanh: return std::atanh(x);
    case ScalarOp::erf: return std::erf(x);
    case ScalarOp::floor: return std::floor(x);
    case ScalarOp::ceil: return std::ceil(x);
    case ScalarOp::round: return round_half_even(x);
    case ScalarOp::trunc: return std::trunc(x);
    default:
      throw Exception(internal_error("Scalar op ({}) is no unary op on floats.", name_of(op)));
  }
}

std::int64_t unary_integer(ScalarOp op, DType dtype, std::int64_t x) {
  switch (op) {
    case ScalarOp::neg: return static_cast<std::int64_t>(-static_cast<std::uint64_t>(x));
    case ScalarOp::abs:
      return is_unsigned_integer(dtype) || x >= 0
                 ? x
                 : static_cast<std::int64_t>(-static_cast<std::uint64_t>(x));
    case ScalarOp::sign: return is_unsigned_integer(dtype) ? x != 0 : (x > 0) - (x < 0);
    case ScalarOp::bit_not: return dtype == DType::boolean ? x == 0 : ~x;
    case ScalarOp::floor:
    case ScalarOp::ceil:
    case ScalarOp::round:
    case ScalarOp::trunc: return x;
    default:
      throw Exception(internal_error("Scalar op ({}) is no unary op on integers.", name_of(op)));
  }
}

Complex binary_number(ScalarOp op, Complex a, Complex b, bool complex) {
  const double x = a.real(), y = b.real();
  switch (op) {
    case ScalarOp::add: return a + b;
    case ScalarOp::sub: return a - b;
    case ScalarOp::mul: return complex ? a * b : Complex(x * y);
    case ScalarOp::div: return complex ? a / b : Complex(x / y);
    case ScalarOp::pow: return complex ? std::pow(a, b) : Complex(std::pow(x, y));
    case ScalarOp::rem: return std::fmod(x, y);
    case ScalarOp::mod: {
      const double r = std::fmod(x, y);
      return r != 0 && (r < 0) != (y < 0) ? r + y : r;
    }
    case ScalarOp::atan2: return std::atan2(x, y);
    case ScalarOp::min:
      return std::isnan(x) || std::isnan(y) ? std::numeric_limits<double>::quiet_NaN()
                                            : std::min(x, y);
    case ScalarOp::max:
      return std::isnan(x) || std::isnan(y) ? std::numeric_limits<double>::quiet_NaN()
                                            : std::max(x, y);
    default:
      throw Exception(internal_error("Scalar op ({}) is no binary op on floats.", name_of(op)));
  }
}

std::int64_t integer_power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  std::uint64_t result = 1, factor = static_cast<std::uint64_t>(base);
  for (; exponent; exponent >>= 1, factor *= factor) {
    if (exponent & 1) result *= factor;
  }
  return static_cast<std::int64_t>(result);
}

template <class T>
T divide(ScalarOp op, T x, T y) {
  if (y == 0) return 0;
  if constexpr (std::is_signed_v<T>) {
    if (y == -1) return op == ScalarOp::div ? static_cast<T>(-static_cast<std::uint64_t>(x)) : 0;
  }
  if (op == ScalarOp::div) return x / y;
  const T r = x % y;
  if constexpr (std::is_signed_v<T>) {
    if (op == ScalarOp::mod && r != 0 && (r < 0) != (y < 0)) return r + y;
  }
  return r;
}

std::int64_t shift(ScalarOp op, DType dtype, std::int64_t x, std::int64_t y) {
  const int bits = static_cast<int>(size_of(dtype)) * 8;
  const bool too_far = y < 0 || y >= bits;
  if (op == ScalarOp::shift_left)
    return too_far ? 0 : static_cast<std::int64_t>(static_cast<std::uint64_t>(x) << y);
  if (is_signed_integer(dtype)) return too_far ? (x < 0 ? -1 : 0) : x >> y;
  return too_far ? 0 : static_cast<std::int64_t>(static_cast<std::uint64_t>(x) >> y);
}

std::int64_t binary_integer(ScalarOp op, DType dtype, std::int64_t x, std::int64_t y) {
  const auto ux = static_cast<std::uint64_t>(x), uy = static_cast<std::uint64_t>(y);
  const bool is_unsigned = dtype == DType::u64;
  switch (op) {
    case ScalarOp::add: return static_cast<std::int64_t>(ux + uy);
    case ScalarOp::sub: return static_cast<std::int64_t>(ux - uy);
    case ScalarOp::mul: return static_cast<std::int64_t>(ux * uy);
    case ScalarOp::div:
    case ScalarOp::rem:
    case ScalarOp::mod:
      return is_unsigned ? static_cast<std::int64_t>(divide(op, ux, uy)) : divide(op, x, y);
    case ScalarOp::pow: return integer_power(x, y);
    case ScalarOp::min:
      return is_unsigned ? static_cast<std::int64_t>(std::min(ux, uy)) : std::min(x, y);
    case ScalarOp::max:
      return is_unsigned ? static_cast<std::int64_t>(std::max(ux, uy)) : std::max(x, y);
    case ScalarOp::bit_and: return x & y;
    case ScalarOp::bit_or: return x | y;
    case ScalarOp::bit_xor: return x ^ y;
    case ScalarOp::shift_left:
    case ScalarOp::shift_right: return shift(op, dtype, x, y);
    default:
      throw Exception(internal_error("Scalar op ({}) is no binary op on integers.", name_of(op)));
  }
}

template <class T>
bool compare(ScalarOp op, T x, T y) {
  switch (op) {
    case ScalarOp::equal: return x == y;
    case ScalarOp::not_equal: return x != y;
    case ScalarOp::less: return x < y;
    case ScalarOp::less_equal: return x <= y;
    case ScalarOp::greater: return x > y;
    default: return x >= y;
  }
}

bool compare_data(ScalarOp op, DType dtype, const ScalarDatum& a, const ScalarDatum& b) {
  if (is_complex(dtype)) return (a.number == b.number) == (op == ScalarOp::equal);
  if (is_float(dtype)) return compare(op, a.number.real(), b.number.real());
  if (dtype == DType::u64)
    return compare(op, static_cast<std::uint64_t>(a.integer),
                   static_cast<std::uint64_t>(b.integer));
  return compare(op, a.integer, b.integer);
}

}  // namespace

ScalarDatum load_datum(DType dtype, const std::byte* data, std::int64_t index) {
  switch (dtype) {
    case DType::f32: return {read<float>(data, index), 0};
    case DType::f64: return {read<double>(data, index), 0};
    case DType::f16: return {to_float(read<Half>(data, index)), 0};
    case DType::bf16: return {to_float(read<BFloat16>(data, index)), 0};
    case DType::f8e4m3fn: return {to_float(read<Float8E4M3FN>(data, index)), 0};
    case DType::f8e5m2: return {to_float(read<Float8E5M2>(data, index)), 0};
    case DType::f8e4m3fnuz: return {to_float(read<Float8E4M3FNUZ>(data, index)), 0};
    case DType::f8e5m2fnuz: return {to_float(read<Float8E5M2FNUZ>(data, index)), 0};
    case DType::f4e2m1: return {to_float(read<Float4E2M1>(data, index)), 0};
    case DType::c64:
      return {Complex(read<float>(data, 2 * index), read<float>(data, 2 * index + 1)), 0};
    case DType::c128:
      return {Complex(read<double>(data, 2 * index), read<double>(data, 2 * index + 1)), 0};
    case DType::i8:
    case DType::i4:
    case DType::i2: return {0, read<std::int8_t>(data, index)};
    case DType::i16: return {0, read<std::int16_t>(data, index)};
    case DType::i32: return {0, read<std::int32_t>(data, index)};
    case DType::u16: return {0, read<std::uint16_t>(data, index)};
    case DType::u32: return {0, read<std::uint32_t>(data, index)};
    case DType::i64:
    case DType::u64: return {0, read<std::int64_t>(data, index)};
    default: return {0, read<std::uint8_t>(data, index)};
  }
}

void store_datum(DType dtype, std::byte* data, std::int64_t index, const ScalarDatum& datum) {
  const double x = datum.number.real();
  const std::int64_t i = datum.integer;
  switch (dtype) {
    case DType::f32: return write(data, index, static_cast<float>(x));
    case DType::f64: return write(data, index, x);
    case DType::f16: return write(data, index, Half(static_cast<float>(x)));
    case DType::bf16: return write(data, index, BFloat16(static_cast<float>(x)));
    case DType::f8e4m3fn: return write(data, index, Float8E4M3FN(static_cast<float>(x)));
    case DType::f8e5m2: return write(data, index, Float8E5M2(static_cast<float>(x)));
    case DType::f8e4m3fnuz: return write(data, index, Float8E4M3FNUZ(static_cast<float>(x)));
    case DType::f8e5m2fnuz: return write(data, index, Float8E5M2FNUZ(static_cast<float>(x)));
    case DType::f4e2m1: return write(data, index, Float4E2M1(static_cast<float>(x)));
    case DType::c64:
      write(data, 2 * index, static_cast<float>(x));
      return write(data, 2 * index + 1, static_cast<float>(datum.number.imag()));
    case DType::c128:
      write(data, 2 * index, x);
      return write(data, 2 * index + 1, datum.number.imag());
    case DType::i8:
    case DType::u8:
    case DType::i4:
    case DType::u4:
    case DType::i2:
    case DType::u2:
    case DType::boolean: return write(data, index, static_cast<std::uint8_t>(i));
    case DType::i16:
    case DType::u16: return write(data, index, static_cast<std::uint16_t>(i));
    case DType::i32:
    case DType::u32: return write(data, index, static_cast<std::uint32_t>(i));
    case DType::i64:
    case DType::u64: return write(data, index, i);
  }
}

ScalarDatum constant_datum(const ScalarNode& node) {
  return holds_number(node.dtype) ? number(node.dtype, node.value)
                                  : integer(node.dtype, node.integer);
}

ScalarDatum apply_scalar(const ScalarNode& node, DType operand, const ScalarDatum& a,
                         const ScalarDatum& b, const ScalarDatum& c) {
  const bool floats = holds_number(operand);
  switch (node.op) {
    case ScalarOp::cast: return cast_datum(operand, node.dtype, a);
    case ScalarOp::bitcast: return bitcast_datum(operand, node.dtype, a);
    case ScalarOp::is_nan:
      return truth(floats && (std::isnan(a.number.real()) || std::isnan(a.number.imag())));
    case ScalarOp::is_inf:
      return truth(floats && (std::isinf(a.number.real()) || std::isinf(a.number.imag())));
    case ScalarOp::select: return a.integer ? b : c;
    case ScalarOp::equal:
    case ScalarOp::not_equal:
    case ScalarOp::less:
    case ScalarOp::less_equal:
    case ScalarOp::greater:
    case ScalarOp::greater_equal: return truth(compare_data(node.op, operand, a, b));
    default: break;
  }
  if (node.b < 0) {
    return floats ? number(node.dtype, unary_number(node.op, a.number, is_complex(operand)))
                  : integer(node.dtype, unary_integer(node.op, operand, a.integer));
  }
  return floats
             ? number(node.dtype, binary_number(node.op, a.number, b.number, is_complex(operand)))
             : integer(node.dtype, binary_integer(node.op, operand, a.integer, b.integer));
}

namespace {

// Walks the elements of a broadcast operand in the result's row-major order.
class BroadcastWalk {
 public:
  BroadcastWalk(std::span<const std::int64_t> operand, std::span<const std::int64_t> result)
      : dims_(result.begin(), result.end()), strides_(result.size(), 0), index_(result.size(), 0) {
    std::int64_t stride = 1;
    for (std::size_t i = operand.size(); i-- > 0;) {
      const std::size_t at = i + result.size() - operand.size();
      strides_[at] = operand[i] == 1 ? 0 : stride;
      stride *= operand[i];
    }
  }
  std::int64_t next() {
    const std::int64_t current = offset_;
    for (std::size_t i = dims_.size(); i-- > 0;) {
      offset_ += strides_[i];
      if (++index_[i] < dims_[i]) break;
      offset_ -= strides_[i] * dims_[i];
      index_[i] = 0;
    }
    return current;
  }

 private:
  std::vector<std::int64_t> dims_, strides_, index_;
  std::int64_t offset_ = 0;
};

DType operand_dtype(const std::vector<ScalarNode>& nodes, const ScalarNode& node) {
  const ScalarId id = node.op == ScalarOp::select ? node.b : node.a;
  return nodes[static_cast<std::size_t>(id)].dtype;
}

}  // namespace

Status evaluate_elementwise(const OpInfo& info, const void* attributes, const EvalArgs& args) {
  std::vector<ScalarNode> nodes;
  ScalarBuilder builder(nodes);
  std::vector<ScalarValue> operands(args.inputs.size());
  std::vector<BroadcastWalk> walks;
  std::vector<const std::byte*> data;
  for (std::size_t i = 0; i < args.inputs.size(); ++i) {
    if (!args.inputs[i].data) continue;
    operands[i] = builder.add({.op = ScalarOp::load,
                               .dtype = args.inputs[i].dtype,
                               .index = static_cast<std::int32_t>(walks.size())});
    walks.emplace_back(args.inputs[i].dims, args.out(0).dims);
    data.push_back(args.inputs[i].data);
  }
  const ScalarValue result = info.scalar(attributes, builder, operands);
  if (evaluate_in_blocks(nodes, result.id(), args)) return {};
  std::vector<ScalarDatum> values(nodes.size());
  const std::int64_t count = args.out(0).elements();
  for (std::int64_t point = 0; point < count; ++point) {
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      const ScalarNode& node = nodes[n];
      const auto value = [&](ScalarId id) {
        return id < 0 ? ScalarDatum{} : values[static_cast<std::size_t>(id)];
      };
      if (node.op == ScalarOp::load) {
        const auto i = static_cast<std::size_t>(node.index);
        values[n] = load_datum(node.dtype, data[i], walks[i].next());
      } else if (node.op == ScalarOp::constant) {
        values[n] = constant_datum(node);
      } else {
        values[n] = apply_scalar(node, operand_dtype(nodes, node), value(node.a), value(node.b),
                                 value(node.c));
      }
    }
    store_datum(args.out(0).dtype, args.out(0).data, point,
                values[static_cast<std::size_t>(result.id())]);
  }
  return {};
}

}  // namespace rlx
