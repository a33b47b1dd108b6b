// Quantisation: to and from small integers and 8-bit floats, per tensor, per axis or blocked;
// rounding is half to even.
#include <algorithm>
#include <cmath>

#include "ops/norm.hpp"

namespace rlx {
namespace {

bool is_quantized(DType dtype) {
  switch (dtype) {
    case DType::i2:
    case DType::u2:
    case DType::i4:
    case DType::u4:
    case DType::i8:
    case DType::u8:
    case DType::i16:
    case DType::u16:
    case DType::f8e4m3fn:
    case DType::f8e5m2:
    case DType::f8e4m3fnuz:
    case DType::f8e5m2fnuz:
    case DType::f4e2m1: return true;
    default: return false;
  }
}

/// The finite values of a dtype of at most 32 bits.
struct Range {
  double low, high;
};

Range range_of(DType dtype) {
  if (dtype == f8e4m3fn) return {-448, 448};
  if (dtype == f8e4m3fnuz) return {-240, 240};
  if (dtype == f8e5m2 || dtype == f8e5m2fnuz) return {-57344, 57344};
  if (dtype == f4e2m1) return {-6, 6};
  const int bits = integer_bits(dtype);
  if (is_unsigned_integer(dtype)) return {0, std::ldexp(1.0, bits) - 1};
  return {-std::ldexp(1.0, bits - 1), std::ldexp(1.0, bits - 1) - 1};
}

/// How scales lie over an operand.
struct Granularity {
  std::int64_t axis = 1, block = 0;
};

// One value for the tensor, for each place along the axis, or for each block along it.
Status check_scale(std::string_view name, const Granularity& g, const Type& x, const Type& scale) {
  if (scale.rank() == 0 || (scale.rank() == 1 && scale.shape[0] == Dim(1) && !g.block)) return {};
  RLX_ASSIGN(const std::int64_t axis, normalize_axis(g.axis, x.rank(), x));
  if (!g.block) {
    if (scale.rank() == 1 && compatible(scale.shape[0], x.shape[axis])) return {};
    return bad_input(
        "The scale {} of {} is neither a scalar nor one for each place along axis ({}) of {}.",
        scale.text(), name, axis, x.text());
  }
  bool fits = g.block > 0 && scale.rank() == x.rank();
  for (int i = 0; fits && i < x.rank(); ++i) {
    const Dim blocks =
        i == axis ? floor_div(shifted(x.shape[i], g.block - 1), Dim(g.block)) : x.shape[i];
    fits = compatible(scale.shape[i], blocks);
  }
  if (fits) return {};
  return bad_input("The scale {} of {} is not one for each block of ({}) along axis ({}) of {}.",
                   scale.text(), name, g.block, axis, x.text());
}

// The offset of the scale for an index of x.
class ScaleOffsets {
 public:
  ScaleOffsets(const Granularity& g, std::span<const std::int64_t> x, const TensorView& scale)
      : strides_(x.size(), 0),
        axis_(x.empty() ? 0 : axis_at(g.axis, static_cast<int>(x.size()))),
        block_(1) {
    if (scale.elements() == 1) return;
    if (g.block) {
      strides_ = strides_of(scale.dims);
      block_ = g.block;
    } else {
      strides_[axis_] = 1;
    }
  }
  std::int64_t at(const Dims& index) const {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < index.size(); ++i)
      offset += strides_[i] * (i == axis_ ? index[i] / block_ : index[i]);
    return offset;
  }

 private:
  Dims strides_;
  std::size_t axis_;
  std::int64_t block_;
};

// Calls visit(element, scale, zero) -> value for every element of x.
template <class Visit>
std::vector<double> map_quantized(const Granularity& g, const EvalArgs& args, Visit visit) {
  const TensorView &x = args.in(0), &scale = args.in(1);
  std::vector<double> values = load_all<double>(x);
  const std::vector<double> scales = load_all<double>(scale);
  std::vector<double> zeros = args.has(2) ? load_all<double>(args.in(2)) : std::vector<double>{};
  zeros.resize(scales.size(), 0.0);
  const ScaleOffsets offsets(g, x.dims, scale);
  std::size_t i = 0;
  for_each_index(x.dims, [&](const Dims& index) {
    const std::int64_t at = offsets.at(index);
    values[i] = visit(values[i], scales[at], zeros[at]);
    ++i;
  });
  return values;
}

// Division in f32, as every runtime does it: a double quotient would round other halves.
double divided(double x, double scale) {
  return static_cast<double>(static_cast<float>(x) / static_cast<float>(scale));
}

// A scale or zero point under a shape that broadcasts to x; blocks are repeated.
Value spread(Value scale, Value x, const Granularity& g) {
  const Shape& dims = x.shape();
  if (scale.rank() == 0 || scale.type().shape == Shape{Dim(1)}) return reshape(scale, {});
  const std::int64_t axis = g.axis < 0 ? g.axis + x.rank() : g.axis;
  if (!g.block) {
    Shape line(dims.size(), Dim(1));
    line[axis] = dims[axis];
    return reshape(scale, std::move(line));
  }
  Shape repeated = scale.shape(), joined = scale.shape();
  repeated.insert(repeated.begin() + axis + 1, Dim(g.block));
  joined[axis] = joined[axis] * Dim(g.block);
  const Value all = reshape(broadcast(unsqueeze(scale, {axis + 1}), repeated), joined);
  if (joined[axis] == dims[axis]) return all;
  if (!dims[axis].is_static())
    throw Exception(
        unsupported("Blocks along an unbound dim ({}) have no body.", dims[axis].text()));
  Axes limits(dims.size(), op::slice_end);
  limits[axis] = dims[axis].value();
  return slice(all, Axes(dims.size(), 0), std::move(limits));
}

Status check_zero_point(std::string_view name, const Type& scale, const Type& zero, DType dtype) {
  if (zero.dtype == dtype && zero.shape.size() == scale.shape.size() &&
      std::equal(zero.shape.begin(), zero.shape.end(), scale.shape.begin(), compatible)) {
    return {};
  }
  return bad_input("The zero point {} of {} is not {} of the shape of its scale {}.", zero.text(),
                   name, name_of(dtype), scale.text());
}

Type vector_type(DType dtype, std::int64_t size) { return {dtype, {Dim(size)}}; }

}  // namespace

// saturate(round(x / scale) + zero point)
template <>
struct Rules<op::Quantize> {
  static constexpr std::string_view name = "quantize";
  static constexpr Arity arity{2, 3};
  static constexpr OpTraits traits{.composite = true};
  static constexpr auto fields =
      std::tuple{field("dtype", &op::Quantize::dtype), field("axis", &op::Quantize::axis),
                 field("block", &op::Quantize::block), field("saturate", &op::Quantize::saturate)};
  static Result<std::vector<Type>> infer(const op::Quantize& a, const InferArgs& args) {
    RLX_TRY(
        require(is_float(args[0].dtype) || args[0].dtype == i32, name, "floats or i32", args[0]));
    RLX_TRY(require(is_float(args[1].dtype), name, "a scale of floats", args[1]));
    if (!is_quantized(a.dtype))
      return unsupported("The op quantize makes no {}.", name_of(a.dtype));
    RLX_TRY(check_scale(name, {a.axis, a.block}, args[0], args[1]));
    if (args.has(2)) RLX_TRY(check_zero_point(name, args[1], args[2], a.dtype));
    return std::vector<Type>{{a.dtype, args[0].shape}};
  }
  static Status eval(const op::Quantize& a, const EvalArgs& args) {
    const Range range = range_of(a.dtype);
    const bool to_float = is_float(a.dtype), saturate = !to_float || a.saturate;
    const auto values =
        map_quantized({a.axis, a.block}, args, [&](double x, double scale, double zero) {
          double value = divided(x, scale);
          if (!to_float) value = std::nearbyint(value);
          value += zero;
          if (std::isnan(value)) return to_float ? value : 0.0;
          return saturate ? std::clamp(value, range.low, range.high) : value;
        });
    store_all<double>(args.out(0), values);
    return {};
  }
  static Values body(const op::Quantize& a, Graph& graph, std::span<const Value> inputs) {
    const Granularity g{a.axis, a.block};
    const Value x = cast(inputs[0], f32);
    const bool to_float = is_float(a.dtype);
    Value value = x / spread(cast(inputs[1], f32), x, g);
    if (!to_float) value = round(value);
    if (inputs.size() > 2 && inputs[2]) value = value + spread(cast(inputs[2], f32), x, g);
    const Range range = range_of(a.dtype);
    if (!to_float)
      value = clamp(value, graph.constant(f32, range.low), graph.constant(f32, range.high));
    return {graph.add_one(op::Cast{.dtype = a.dtype, .saturate = a.saturate}, {value})};
  }
  static OpCost cost(const op::Quantize&, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    return cost_per_element(5, inputs, results);
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> list;
    for (const DType dtype : {u8, i8, u16, i16, u4, i4, f8e4m3fn, f8e5m2}) {
      list.push_back({.op = op::Quantize{.dtype = dtype},
                      .inputs = {Type{f32, {3, 9}}, Type{f32, {}}},
                      .values = {{}, Tensor::scalar(0.03f)}});
    }
    const Tensor scales = Tensor::of<float>({3}, {0.01f, 0.5f, 2.0f}),
                 zeros = Tensor::of<std::uint8_t>({3}, {0, 128, 7});
    list.push_back({.op = op::Quantize{.axis = 0},
                    .inputs = {Type{f32, {3, 9}}, vector_type(f32, 3), vector_type(u8, 3)},
                    .values = {{}, scales, zeros}});
    list.push_back({.op = op::Quantize{.dtype = i8, .axis = -1, .block = 4},
                    .inputs = {Type{f16, {3, 9}}, Type{f16, {3, 3}}},
                    .low = 0.1,
                    .high = 3});
    list.push_back({.op = op::Quantize{.dtype = f8e4m3fn, .saturate = false},
                    .inputs = {Type{f32, {9}}, Type{f32, {}}},
                    .values = {{}, Tensor::scalar(1.0f)},
                    .low = -900,
                    .high = 900});
    return list;
  }
};
RLX_OP(op::Quantize, "quantize")

// (x - zero point) * scale
template <>
struct Rules<op::Dequantize> {
  static constexpr std::string_view name = "dequantize";
  static constexpr Arity arity{2, 3};
  static constexpr OpTraits traits{.composite = true};
  static constexpr auto fields =
      std::tuple{field("dtype", &op::Dequantize::dtype), field("axis", &op::Dequantize::axis),
                 field("block", &op::Dequantize::block)};
  static Result<std::vector<Type>> infer(const op::Dequantize& a, const InferArgs& args) {
    RLX_TRY(require(is_quantized(args[0].dtype) || args[0].dtype == i32, name,
                    "quantised integers, f8 or i32", args[0]));
    RLX_TRY(require(is_float(args[1].dtype), name, "a scale of floats", args[1]));
    if (!is_float(a.dtype)) return unsupported("The op dequantize makes no {}.", name_of(a.dtype));
    RLX_TRY(check_scale(name, {a.axis, a.block}, args[0], args[1]));
    if (args.has(2)) RLX_TRY(check_zero_point(name, args[1], args[2], args[0].dtype));
    return std::vector<Type>{{a.dtype, args[0].shape}};
  }
  static Status eval(const op::Dequantize& a, const EvalArgs& args) {
    store_all<double>(args.out(0), map_quantized({a.axis, a.block}, args,
                                                 [](double x, double scale, double zero) {
                                                   return (x - zero) * scale;
                                                 }));
    return {};
  }
  static Values body(const op::Dequantize& a, Graph&, std::span<const Value> inputs) {
    const Granularity g{a.axis, a.block};
    const DType wide = wide_dtype(a.dtype), exact = is_float(inputs[0].dtype()) ? wide : i32;
    Value x = cast(inputs[0], exact);
    if (inputs.size() > 2 && inputs[2]) x = x - spread(cast(inputs[2], exact), x, g);
    return {cast(cast(x, wide) * spread(cast(inputs[1], wide), x, g), a.dtype)};
  }
  static OpCost cost(const op::Dequantize&, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    return cost_per_element(2, inputs, results);
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> list;
    for (const DType dtype : {u8, i8, u16, i16, u4, i4, f8e4m3fn, f8e5m2, i32}) {
      list.push_back({.op = op::Dequantize{},
                      .inputs = {Type{dtype, {3, 9}}, Type{f32, {}}},
                      .low = 0,
                      .high = 7});
    }
    const Tensor scales = Tensor::of<float>({3}, {0.01f, 0.5f, 2.0f}),
                 zeros = Tensor::of<std::uint8_t>({3}, {0, 128, 7});
    list.push_back({.op = op::Dequantize{.axis = 0},
                    .inputs = {Type{u8, {3, 9}}, vector_type(f32, 3), vector_type(u8, 3)},
                    .values = {{}, scales, zeros},
                    .low = 0,
                    .high = 255});
    list.push_back({.op = op::Dequantize{.dtype = f16, .axis = 0, .block = 2},
                    .inputs = {Type{i8, {5, 3}}, Type{f16, {3, 3}}, Type{i8, {3, 3}}}});
    return list;
  }
};
RLX_OP(op::Dequantize, "quantize")

namespace {

/// What ONNX's DynamicQuantizeLinear takes from the smallest and largest element: the range always
/// holds 0.
struct DynamicScale {
  float scale, zero;
};

DynamicScale dynamic_scale(float low, float high) {
  low = std::min(low, 0.0f);
  high = std::max(high, 0.0f);
  const float scale = high == low ? 1.0f : (high - low) / 255.0f;
  return {scale, std::nearbyint(std::clamp(-low / scale, 0.0f, 255.0f))};
}

}  // namespace

// scale = (max(x, 0) - min(x, 0)) / 255, zero = round(-min / scale), y = saturate(round(x / scale)
// + zero)
template <>
struct Rules<op::DynamicQuantize> {
  static constexpr std::string_view name = "dynamic_quantize";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{.composite = true};
  static constexpr auto fields = std::tuple{};
  static Result<std::vector<Type>> infer(const op::DynamicQuantize&, const InferArgs& args) {
    RLX_TRY(require(args[0].dtype == f32, name, "f32", args[0]));
    return std::vector<Type>{{u8, args[0].shape}, {f32, {}}, {u8, {}}};
  }
  static Status eval(const op::DynamicQuantize&, const EvalArgs& args) {
    std::vector<double> values = load_all<double>(args.in(0));
    float low = 0, high = 0;
    for (const double value : values) {
      low = std::min(low, static_cast<float>(value));
      high = std::max(high, static_cast<float>(value));
    }
    const DynamicScale s = dynamic_scale(low, high);
    for (double& value : values) {
      value = std::clamp(std::nearbyint(divided(value, s.scale)) + s.zero, 0.0, 255.0);
      if (std::isnan(value)) value = 0;
    }
    store_all<double>(args.out(0), values);
    store_all<double>(args.out(1), std::vector<double>{s.scale});
    store_all<double>(args.out(2), std::vector<double>{s.zero});
    return {};
  }
  static Values body(const op::DynamicQuantize&, Graph& graph, std::span<const Value> inputs) {
    const auto number = [&](double value) { return graph.constant(f32, value); };
    const Value x = inputs[0], none = number(0), most = number(255);
    const Value low = min(reduce(x, Reduction::min, {}), none),
                high = max(reduce(x, Reduction::max, {}), none);
    const Value scale = select(equal(high, low), number(1), (high - low) / most);
    const Value zero = round(clamp(neg(low) / scale, none, most));
    return {cast(clamp(round(x / scale) + zero, none, most), u8), scale, cast(zero, u8)};
  }
  static OpCost cost(const op::DynamicQuantize&, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    return cost_per_element(6, inputs, results);
  }
  static std::vector<Sample> samples() {
    return {
        {.op = op::DynamicQuantize{}, .inputs = {Type{f32, {3, 17}}}},
        {.op = op::DynamicQuantize{}, .inputs = {Type{f32, {33}}}, .low = 1, .high = 9},
        {.op = op::DynamicQuantize{}, .inputs = {Type{f32, {33}}}, .low = -9, .high = -1},
        {.op = op::DynamicQuantize{}, .inputs = {Type{f32, {3}}}, .values = {Tensor(f32, {3})}}};
  }
};
RLX_OP(op::DynamicQuantize, "quantize")

// (clamp(round(x / scale) + zero, low, high) - zero) * scale
template <>
struct Rules<op::FakeQuantize> {
  using Fake = op::FakeQuantize;
  static constexpr std::string_view name = "fake_quantize";
  static constexpr Arity arity{2, 3};
  static constexpr OpTraits traits{.composite = true};
  static constexpr auto fields =
      std::tuple{field("axis", &Fake::axis), field("low", &Fake::low), field("high", &Fake::high)};
  static Result<std::vector<Type>> infer(const Fake& a, const InferArgs& args) {
    RLX_TRY(require(is_float(args[0].dtype), name, "floats", args[0]));
    RLX_TRY(require(is_float(args[1].dtype), name, "a scale of floats", args[1]));
    if (a.low > a.high)
      return bad_input("The limits of fake_quantize ({} to {}) hold no value.", a.low, a.high);
    RLX_TRY(check_scale(name, {a.axis, 0}, args[0], args[1]));
    if (args.has(2)) RLX_TRY(check_zero_point(name, args[1], args[2], args[2].dtype));
    return std::vector<Type>{args[0]};
  }
  static Status eval(const Fake& a, const EvalArgs& args) {
    const auto low = static_cast<double>(a.low), high = static_cast<double>(a.high);
    store_all<double>(
        args.out(0), map_quantized({a.axis, 0}, args, [&](double x, double scale, double zero) {
          return (std::clamp(std::nearbyint(divided(x, scale)) + zero, low, high) - zero) * scale;
        }));
    return {};
  }
  static Values body(const Fake& a, Graph& graph, std::span<const Value> inputs) {
    const Granularity g{a.axis, 0};
    const Value x = cast(inputs[0], f32), scale = spread(cast(inputs[1], f32), x, g);
    const Value low = graph.constant(f32, static_cast<double>(a.low)),
                high = graph.constant(f32, static_cast<double>(a.high));
    Value value = round(x / scale);
    if (inputs.size() < 3 || !inputs[2])
      return {cast(clamp(value, low, high) * scale, inputs[0].dtype())};
    const Value zero = spread(cast(inputs[2], f32), x, g);
    return {cast((clamp(value + zero, low, high) - zero) * scale, inputs[0].dtype())};
  }
  static OpCost cost(const Fake&, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    return cost_per_element(7, inputs, results);
  }
  static std::vector<Sample> samples() {
    const Tensor scales = Tensor::of<float>({3}, {0.01f, 0.5f, 0.02f}),
                 zeros = Tensor::of<std::int32_t>({3}, {0, 12, -7});
    return {{.op = Fake{},
             .inputs = {Type{f32, {3, 9}}, Type{f32, {}}},
             .values = {{}, Tensor::scalar(0.01f)}},
            {.op = Fake{.axis = 0, .low = 0, .high = 15},
             .inputs = {Type{f32, {3, 9}}, vector_type(f32, 3), vector_type(i32, 3)},
             .values = {{}, scales, zeros}}};
  }
};
RLX_OP(op::FakeQuantize, "quantize")

// y[..., i * 8 / bits + j] = bits j * bits to (j + 1) * bits of x[..., i]
template <>
struct Rules<op::UnpackBits> {
  static constexpr std::string_view name = "unpack_bits";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{};
  static constexpr auto fields = std::tuple{field("dtype", &op::UnpackBits::dtype)};
  static Result<std::vector<Type>> infer(const op::UnpackBits& a, const InferArgs& args) {
    RLX_TRY(require(args[0].dtype == u8 && args[0].rank() > 0, name, "u8 with an axis", args[0]));
    const int bits = integer_bits(a.dtype);
    if (bits != 4 && bits != 2)
      return unsupported("The op unpack_bits makes no {}.", name_of(a.dtype));
    Type type{a.dtype, args[0].shape};
    type.shape.back() = type.shape.back() * Dim(8 / bits);
    return std::vector<Type>{std::move(type)};
  }
  static Status eval(const op::UnpackBits& a, const EvalArgs& args) {
    const auto bits = static_cast<unsigned>(integer_bits(a.dtype)), each = 8 / bits;
    const unsigned mask = (1U << bits) - 1,
                   sign = is_unsigned_integer(a.dtype) ? 0 : (mask + 1) / 2;
    const auto* from = reinterpret_cast<const std::uint8_t*>(args.in(0).data);
    auto* to = reinterpret_cast<std::uint8_t*>(args.out(0).data);
    const std::int64_t bytes = element_count(args.in(0).dims);
    for (std::int64_t i = 0; i < bytes; ++i) {
      for (unsigned j = 0; j < each; ++j) {
        const unsigned number = from[i] >> j * bits & mask;
        to[i * each + j] = static_cast<std::uint8_t>((number ^ sign) - sign);
      }
    }
    return {};
  }
  static OpCost cost(const op::UnpackBits&, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    return cost_per_element(2, inputs, results);
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> list;
    for (const DType dtype : {u4, i4, u2, i2})
      list.push_back(
          {.op = op::UnpackBits{dtype}, .inputs = {Type{u8, {3, 5}}}, .low = 0, .high = 255});
    return list;
  }
};
RLX_OP(op::UnpackBits, "quantize")

OpList quantize_ops() {
  static const OpInfo* const list[] = {&info_of<op::Quantize>(), &info_of<op::Dequantize>(),
                                       &info_of<op::DynamicQuantize>(), &info_of<op::UnpackBits>(),
                                       &info_of<op::FakeQuantize>()};
  return list;
}

}  // namespace rlx
