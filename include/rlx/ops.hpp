// The operations: a documented attribute struct for each, and a builder function. Builders throw
// Exception on a wrong call. Elementwise ops broadcast their operands as NumPy does and want equal
// dtypes. Negative axes count from the end.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rlx/graph.hpp"

namespace rlx {

using Axes = std::vector<std::int64_t>;
using Values = std::vector<Value>;

enum class Reduction : std::uint8_t { sum, mean, prod, min, max, any, all };
constexpr auto enum_names(Reduction) {
  return std::array<std::string_view, 7>{"sum", "mean", "prod", "min", "max", "any", "all"};
}
enum class PadMode : std::uint8_t { constant, reflect, edge, wrap };
constexpr auto enum_names(PadMode) {
  return std::array<std::string_view, 4>{"constant", "reflect", "edge", "wrap"};
}
enum class ScatterMode : std::uint8_t { assign, add, mul, min, max };
constexpr auto enum_names(ScatterMode) {
  return std::array<std::string_view, 5>{"assign", "add", "mul", "min", "max"};
}
/// How FFTs scale (NumPy's norm): backward scales the inverse by 1/N, none scales nothing.
enum class FftNorm : std::uint8_t { backward, ortho, forward, none };
constexpr auto enum_names(FftNorm) {
  return std::array<std::string_view, 4>{"backward", "ortho", "forward", "none"};
}
enum class Direction : std::uint8_t { forward, reverse, bidirectional };
constexpr auto enum_names(Direction) {
  return std::array<std::string_view, 3>{"forward", "reverse", "bidirectional"};
}

namespace op {

// ---- leaves -----------------------------------------------------------------------------------
struct Input {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
};
/// `data` may be empty until set_param.
struct Param {
  std::string name;
  DType dtype = DType::f32;
  Dims dims;
  Tensor data;
};
struct Constant {
  Tensor value;
};
struct State {
  std::string name;
  DType dtype = DType::f32;
  Dims dims;
};
/// Inputs: state, value. No result is used; keeps its state's name.
struct Update {
  std::string name;
};
/// 0, 1, 2, ... along `axis`.
struct Iota {
  DType dtype = DType::i64;
  Shape shape;
  std::int64_t axis = 0;
};

// ---- elementwise, unary
// ---------------------------------------------------------------------------
struct Neg {};
struct Abs {};
struct Sign {};
struct Exp {};
struct Expm1 {};
struct Log {};
struct Log1p {};
struct Sqrt {};
struct Rsqrt {};
struct Reciprocal {};
struct Sin {};
struct Cos {};
struct Tan {};
struct Asin {};
struct Acos {};
struct Atan {};
struct Sinh {};
struct Cosh {};
struct Tanh {};
struct Asinh {};
struct Acosh {};
struct Atanh {};
struct Erf {};
struct Floor {};
struct Ceil {};
struct Round {};
struct Trunc {};
struct Not {};  ///< logical on bool, bits on integers
struct IsNan {};
/// Which infinities count.
struct IsInf {
  bool positive = true;
  bool negative = true;
};
struct Cast {
  DType dtype = DType::f32;
  bool saturate = true;
};
struct Bitcast {
  DType dtype = DType::f32;
};
/// Limits as optional inputs: clamp(x, low?, high?).
struct Clamp {};

// activations (elementwise composites)
struct Relu {};
struct Sigmoid {};
struct Softsign {};
struct HardSwish {};
struct Mish {};
struct LeakyRelu {
  double alpha = 0.01;
};
struct Elu {
  double alpha = 1;
};
struct Celu {
  double alpha = 1;
};
struct Selu {
  double alpha = 1.67326319217681884765625;
  double gamma = 1.05070102214813232421875;
};
/// Exact (erf), or the tanh form.
struct Gelu {
  bool tanh = false;
};
/// x * sigmoid(beta * x); beta 1 is SiLU.
struct Swish {
  double beta = 1;
};
/// log(1 + exp(x)).
struct Softplus {};
struct HardSigmoid {
  double alpha = 0.2;
  double beta = 0.5;
};
struct ThresholdedRelu {
  double alpha = 1;
};
struct Shrink {
  double lambd = 0.5;
  double bias = 0;
};

// ---- elementwise, binary and ternary
// -----------------------------------------------------------------
struct Add {};
struct Sub {};
struct Mul {};
struct Div {};  ///< integers truncate
struct Rem {};  ///< sign of the dividend (C fmod)
struct Mod {};  ///< sign of the divisor (Python %)
struct Pow {};  ///< the exponent may have another dtype; result has the base's
struct Atan2 {};
struct Min {};
struct Max {};
struct And {};
struct Or {};
struct Xor {};  ///< logical on bool, bits on integers
struct ShiftLeft {};
struct ShiftRight {};
struct Equal {};
struct NotEqual {};
struct Less {};
struct LessEqual {};
struct Greater {};
struct GreaterEqual {};
struct Select {};  ///< (bool condition, a, b)
struct Prelu {};   ///< (x, slope)

// ---- shape
// ----------------------------------------------------------------------------------------
/// Same elements in row-major order. One dim may be -1: what is left.
struct Reshape {
  Shape shape;
};
struct Transpose {
  Axes perm;
};
/// NumPy's broadcast_to.
struct Broadcast {
  Shape shape;
};
/// start, limit, step for every axis (no steps: ones); negative steps walk down (limit may then be
/// -1). Already clamped, but slice_end stands for the end of an axis whose dim may still be a
/// symbol: as limit of a positive step, as start (the last element) of a negative one.
inline constexpr std::int64_t slice_end = std::numeric_limits<std::int64_t>::max();
struct Slice {
  Axes starts, limits, steps;
};
/// Inputs: x, optional scalar fill value. low and high for every axis; negative crops.
struct Pad {
  Axes low, high;
  PadMode mode = PadMode::constant;
};
struct Concat {
  std::int64_t axis = 0;
};
struct Reverse {
  Axes axes;
};
/// (x, i64 start for each axis as scalars...): sizes stay static, starts are clamped into range.
struct DynamicSlice {
  Axes sizes;
};
/// (x, update, starts...).
struct DynamicUpdateSlice {};
/// The shape of x as i64[rank].
struct ShapeOf {};

/// x, whose dims have these names, or are these numbers, where nothing else is known of them. A
/// name that nothing told before is bound once the dims of x are numbers.
struct NameDims {
  Shape shape;
};

// shapes that operands tell; 'specialise' turns them into the ops above once the operands are known
struct DynamicReshape {
  bool allow_zero = false;
};  ///< (x, shape i64[r]); 0 copies unless allow_zero, -1 infers
struct DynamicBroadcast {};   ///< (x, shape i64[r]): two-way broadcast, as ONNX Expand
struct DynamicSliceRange {};  ///< (x, starts, ends, axes?, steps?) as ONNX Slice
struct DynamicPad {
  PadMode mode = PadMode::constant;
};  ///< (x, pads, fill?, axes?) as ONNX Pad
struct DynamicFill {};   ///< (scalar value, shape i64[r])
struct DynamicRange {};  ///< (start, limit, delta) scalars
struct DynamicTile {};   ///< (x, repeats)
struct DynamicTopK {
  std::int64_t axis = -1;
  bool largest = true;
  bool sorted = true;
};  ///< (x, k i64[1])
struct DynamicOneHot {
  std::int64_t axis = -1;
};  ///< (indices, depth, values[2])

// results whose dims the data tells; evaluated on the host between two parts of a program
struct NonZero {};  ///< i64[rank, count]
struct Compress {
  std::optional<std::int64_t> axis;
};  ///< (x, bool condition)
struct Unique {
  std::optional<std::int64_t> axis;
  bool sorted = true;
};  ///< values, first indices, inverse, counts
/// (boxes f32[b,n,4], scores f32[b,c,n], max per class?, iou threshold?, score threshold?) ->
/// i64[count,3]
struct NonMaxSuppression {
  bool center_point_box = false;
};

// ---- indexing
// -----------------------------------------------------------------------------------------
/// result[..., i..., ...] = x[..., indices[i...], ...] on `axis`. Negative indices count from the
/// end.
struct Gather {
  std::int64_t axis = 0;
};
struct GatherElements {
  std::int64_t axis = 0;
};
struct GatherNd {
  std::int64_t batch_dims = 0;
};
/// (x, indices, updates).
struct ScatterElements {
  std::int64_t axis = 0;
  ScatterMode mode = ScatterMode::assign;
};
struct ScatterNd {
  ScatterMode mode = ScatterMode::assign;
};
/// (indices, depth known, values[off, on]).
struct OneHot {
  std::int64_t axis = -1;
  std::int64_t depth = 0;
};

// ---- reductions, order
// -----------------------------------------------------------------------------------
/// Empty axes: all of them. f16 and bf16 sums accumulate in f32.
struct Reduce {
  Reduction kind = Reduction::sum;
  Axes axes;
  bool keep_dims = false;
};
/// i64 positions; the first wins unless select_last.
struct ArgReduce {
  bool max = true;
  std::int64_t axis = 0;
  bool keep_dims = false;
  bool select_last = false;
};
struct Cumulative {
  Reduction kind = Reduction::sum;
  std::int64_t axis = 0;
  bool exclusive = false;
  bool reverse = false;
};
/// (values, i64 indices), stable; NaN counts as the largest.
struct Sort {
  std::int64_t axis = -1;
  bool descending = false;
};
/// (values, i64 indices); the lower index first on ties.
struct TopK {
  std::int64_t k = 1;
  std::int64_t axis = -1;
  bool largest = true;
  bool sorted = true;
};

// ---- contractions
// --------------------------------------------------------------------------------------------
/// sum over the contracting axes; result: batch axes, free axes of a, free axes of b. Accumulates
/// f16, bf16 in f32.
struct DotGeneral {
  Axes a_batch, b_batch, a_contract, b_contract;
};
/// x [N, C, spatial...], w [O, C/groups, spatial...], optional bias [O]. Channels-last: x [N,
/// spatial..., C], w [spatial..., C/groups, O]. Zero padding. transposed: w [C, O/groups,
/// spatial...] (never channels-last).
struct Conv {
  Axes strides, pad_low, pad_high, dilations;  ///< empty: ones, zeros
  std::int64_t groups = 1;
  bool transposed = false;
  Axes output_padding;  ///< of transposed ones
  bool channels_last = false;
};
/// Pools: reduce over windows of the spatial axes of [N, C, spatial...] (channels-last: [N,
/// spatial..., C]). max: padding never wins. mean: divides by the elements inside x, or by the
/// window's size if count_include_pad.
struct WindowReduce {
  Reduction kind = Reduction::max;
  Axes window, strides, pad_low, pad_high, dilations;
  bool count_include_pad = false;
  bool channels_last = false;
};
/// Positions (i64, flattened over N,C,spatial; column-major spatial if asked) of the maxima that
/// WindowReduce finds.
struct WindowArgMax {
  Axes window, strides, pad_low, pad_high, dilations;
  bool column_major = false;
};
/// i8/u8 (a, b, a zero point?, b zero point?) -> i32.
struct IntegerMatmul {};
/// As Conv on i8/u8 with zero points (x, w, x zero point?, w zero point?) -> i32.
struct IntegerConv {
  Axes strides, pad_low, pad_high, dilations;
  std::int64_t groups = 1;
};

// ---- normalisation, softmax
// --------------------------------------------------------------------------------------
struct Softmax {
  std::int64_t axis = -1;
};
struct LogSoftmax {
  std::int64_t axis = -1;
};
struct Hardmax {
  std::int64_t axis = -1;
};
/// (x, scale?, bias?) over the axes from `axis` on; statistics in f32.
struct LayerNorm {
  std::int64_t axis = -1;
  double epsilon = 1e-5;
};
struct RmsNorm {
  std::int64_t axis = -1;
  double epsilon = 1e-5;
};
/// (x [N,C,...], scale [C], bias [C]).
struct GroupNorm {
  std::int64_t groups = 1;
  double epsilon = 1e-5;
};
struct InstanceNorm {
  double epsilon = 1e-5;
};
/// (x [N,C,...], scale, bias, mean, variance [C]).
struct BatchNorm {
  double epsilon = 1e-5;
};
struct LpNorm {
  std::int64_t axis = -1;
  std::int64_t p = 2;
};
/// Across channels: x / (bias + alpha / size * sum of squares)^beta.
struct LocalResponseNorm {
  std::int64_t size = 1;
  double alpha = 1e-4, beta = 0.75, bias = 1;
};

// ---- attention, recurrence
// ---------------------------------------------------------------------------------------------
/// (q [B,Hq,Sq,D], k, v [B,Hkv,Skv,D], mask?): SPEC section 3. bshd: [B,S,H,D] instead.
/// mask: bool or additive, broadcastable to [B,Hq,Sq,Skv].
struct Attention {
  std::optional<double> scale;  ///< 1/sqrt(D) unless given
  double softcap = 0;           ///< 0: none
  bool causal = false;
  std::optional<std::int64_t> causal_offset;  ///< Skv - Sq unless given
  std::int64_t window = -1;                   ///< -1: none
  bool bshd = false;
  bool blind_rows_are_nan = false;  ///< of a query that sees no key, as softmax says; else zeros
};
/// (x [B,H,S,D] or [B,S,H,D] with bshd, cos, sin [B or 1,S,rotary/2]): pairs (i, i + rotary/2), or
/// neighbours if interleaved.
struct Rope {
  std::int64_t rotary = 0;
  bool interleaved = false;
  bool bshd = false;
};
/// x [S,B,I], w [D,4H,I], r [D,4H,H], b? [D,8H], lengths? i32[B], h0? c0? [D,B,H], peephole?
/// [D,3H]; gates i,o,f,c. Results y [S,D,B,H], h [D,B,H], c [D,B,H].
struct Lstm {
  Direction direction = Direction::forward;
  std::vector<std::string> activations;  ///< three a direction; empty: sigmoid, tanh, tanh
  std::vector<double> alphas, betas;
  double clip = 0;
  bool input_forget = false;
};
/// Gates z,r,h. Results y, h.
struct Gru {
  Direction direction = Direction::forward;
  std::vector<std::string> activations;
  std::vector<double> alphas, betas;
  double clip = 0;
  bool linear_before_reset = false;
};
struct Rnn {
  Direction direction = Direction::forward;
  std::vector<std::string> activations;
  std::vector<double> alphas, betas;
  double clip = 0;
};

// ---- quantisation
// -------------------------------------------------------------------------------------------------
/// (x, scale, zero point?): per tensor, per axis, or blocked along axis.
struct Quantize {
  DType dtype = DType::u8;
  std::int64_t axis = 1;
  std::int64_t block = 0;
  bool saturate = true;
};
struct Dequantize {
  DType dtype = DType::f32;
  std::int64_t axis = 1;
  std::int64_t block = 0;
};
/// x -> (u8, scale f32, zero point u8), as ONNX DynamicQuantizeLinear.
struct DynamicQuantize {};
/// u8 [..., n] -> integers of four or two bits (u4, i4, u2, i2) [..., n * 8 / bits]: those that
/// each byte holds, the one in its lowest bits first.
struct UnpackBits {
  DType dtype = DType::u4;
};
/// (x, scale, zero point of any dtype?): quantised to [low, high] and back, per tensor or per axis.
struct FakeQuantize {
  std::int64_t axis = 1;
  std::int64_t low = -128, high = 127;
};

// ---- resize, signal, random
// -----------------------------------------------------------------------------------------------
enum class ResizeMode : std::uint8_t { nearest, linear, cubic };
constexpr auto enum_names(ResizeMode) {
  return std::array<std::string_view, 3>{"nearest", "linear", "cubic"};
}
enum class ResizeCoordinates : std::uint8_t {
  half_pixel,
  half_pixel_symmetric,
  pytorch_half_pixel,
  align_corners,
  asymmetric,
  tf_crop_and_resize,
  tf_half_pixel_for_nn  ///< (i + 0.5) / scale
};
constexpr auto enum_names(ResizeCoordinates) {
  return std::array<std::string_view, 7>{
      "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel",  "align_corners",
      "asymmetric", "tf_crop_and_resize",   "tf_half_pixel_for_nn"};
}
enum class ResizeNearest : std::uint8_t { round_prefer_floor, round_prefer_ceil, floor, ceil };
constexpr auto enum_names(ResizeNearest) {
  return std::array<std::string_view, 4>{"round_prefer_floor", "round_prefer_ceil", "floor",
                                         "ceil"};
}
/// Sizes for every axis, -1 keeping it, and scales (empty: size / dim; a scale may be rounded away
/// from that: both are needed).
struct Resize {
  Axes sizes;
  std::vector<double> scales;
  ResizeMode mode = ResizeMode::nearest;
  ResizeCoordinates coordinates = ResizeCoordinates::half_pixel;
  ResizeNearest nearest = ResizeNearest::round_prefer_floor;
  double cubic_coefficient = -0.75;
  bool exclude_outside = false;
  bool antialias = false;
  double extrapolation = 0;
  std::vector<double> roi;  ///< starts then ends, for tf_crop_and_resize
};
/// What to do where sizes ask for other scales along one axis than along another.
enum class ResizePolicy : std::uint8_t { stretch, not_larger, not_smaller };
constexpr auto enum_names(ResizePolicy) {
  return std::array<std::string_view, 3>{"stretch", "not_larger", "not_smaller"};
}
/// (x, sizes i64[axes] or scales f32[axes]): a resize along `axes`; its own sizes and scales are
/// not read.
struct DynamicResize : Resize {
  Axes axes;
  ResizePolicy policy = ResizePolicy::stretch;
};
/// The resize of a value of that shape by scales along `axes`, whose dims are numbers; the other
/// axes stay.
Result<Resize> resize_by(Resize how, const Shape& x, const Axes& axes,
                         const std::vector<double>& scales);
/// The same to sizes. Axes without elements have no scale, and stay.
Result<Resize> resize_to(Resize how, const Shape& x, const Axes& axes, Axes sizes,
                         ResizePolicy policy);
/// Complex to complex along an axis, any length.
struct Fft {
  std::int64_t axis = -1;
  bool inverse = false;
  FftNorm norm = FftNorm::backward;
};
/// Real to complex, n/2+1 bins; complex to real of length n.
struct Rfft {
  std::int64_t axis = -1;
  FftNorm norm = FftNorm::backward;
};
struct Irfft {
  std::int64_t axis = -1;
  std::int64_t length = 0;
  FftNorm norm = FftNorm::backward;
};
/// [..., 2N] -> [..., 2N]: N real parts then N imaginary parts (SPEC section 4).
struct BlockFft {
  bool inverse = false;
  FftNorm norm = FftNorm::backward;
};
struct MakeComplex {};
struct Real {};
struct Imag {};
struct Conj {};
/// (signal [..., T]) -> frames [..., count, length].
struct Frame {
  std::int64_t length = 0, hop = 1;
};
/// Philox4x32-10 words u32[shape...]; counter starts at `offset`.
struct RandomBits {
  Shape shape;
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
};
/// Uniform in [low, high), or normal(mean low, deviation high), made of random bits.
struct RandomUniform {
  DType dtype = DType::f32;
  Shape shape;
  double low = 0, high = 1;
  std::uint64_t seed = 0;
};
struct RandomNormal {
  DType dtype = DType::f32;
  Shape shape;
  double mean = 0, deviation = 1;
  std::uint64_t seed = 0;
};
/// (spectrum, filters): SPEC section 4.
enum class LogMelFloor : std::uint8_t { none, frame, clip };
constexpr auto enum_names(LogMelFloor) {
  return std::array<std::string_view, 3>{"none", "frame", "clip"};
}
struct LogMel {
  LogMelFloor floor = LogMelFloor::clip;
};
struct WelchPeaks {
  std::int64_t k = 1;
  std::int64_t n_segments = 1;
};

// ---- control flow
// -------------------------------------------------------------------------------------------------
/// (bool condition, operands...): both graphs take the operands as their inputs, in order; results
/// as their outputs.
struct If {
  std::shared_ptr<const Graph> then_branch, else_branch;
};
/// (carries...): `condition` and `body` take the carries; condition gives one bool scalar, body the
/// next carries.
struct While {
  std::shared_ptr<const Graph> condition, body;
};
/// (carries..., scanned..., captures...): body takes (i64 step, carries..., one slice of each
/// scanned, captures...) and gives (carries..., emitted...). Results: last carries, emitted stacked
/// on axis 0. reverse takes the slices from the last to the first and puts what is emitted where
/// its slice stood; steps count up from 0 all the same.
struct Scan {
  std::shared_ptr<const Graph> body;
  std::int64_t length = 0, carries = 0, scanned = 0;
  bool reverse = false;
};
/// A loop whose trip count or emitted count only the data tells, evaluated on the host:
/// (trip count i64?, condition bool?, carries..., captures...), body (i64 step, bool condition,
/// carries..., captures...)
/// -> (bool condition, carries..., emitted...).
struct HostLoop {
  std::shared_ptr<const Graph> body;
  std::int64_t carries = 0;
};

// ---- linear algebra
// -------------------------------------------------------------------------------------------------
struct Determinant {};

}  // namespace op

// ---- builders
// -------------------------------------------------------------------------------------------------
// The common ones. Any op can be added by Graph::add(op::X{...}, {inputs}).

Value operator+(Value a, Value b);
Value operator-(Value a, Value b);
Value operator*(Value a, Value b);
Value operator/(Value a, Value b);
Value operator-(Value x);
Value neg(Value x);
Value abs(Value x);
Value sign(Value x);
Value exp(Value x);
Value log(Value x);
Value sqrt(Value x);
Value rsqrt(Value x);
Value reciprocal(Value x);
Value sin(Value x);
Value cos(Value x);
Value tanh(Value x);
Value erf(Value x);
Value floor(Value x);
Value ceil(Value x);
Value round(Value x);
Value logical_not(Value x);
Value cast(Value x, DType dtype);
Value clamp(Value x, Value low, Value high);
Value relu(Value x);
Value sigmoid(Value x);
Value gelu(Value x, op::Gelu attributes = {});
Value silu(Value x);
Value leaky_relu(Value x, op::LeakyRelu attributes = {});
Value pow(Value x, Value y);
Value min(Value a, Value b);
Value max(Value a, Value b);
Value equal(Value a, Value b);
Value less(Value a, Value b);
Value less_equal(Value a, Value b);
Value greater(Value a, Value b);
Value logical_and(Value a, Value b);
Value logical_or(Value a, Value b);
Value select(Value condition, Value a, Value b);

Value reshape(Value x, Shape shape);
Value transpose(Value x, Axes perm);
Value broadcast(Value x, Shape shape);
/// Adds axes of size 1 / removes them; positions refer to the result / to x.
Value unsqueeze(Value x, Axes axes);
Value squeeze(Value x, Axes axes);
Value slice(Value x, Axes starts, Axes limits, Axes steps = {});
Value concat(const Values& parts, std::int64_t axis);
Value pad(Value x, Axes low, Axes high, double value = 0);
Value gather(Value x, Value indices, std::int64_t axis = 0);
/// Rows of `table` [V, D] by integer ids.
Value embedding(Value table, Value ids);

Value reduce(Value x, Reduction kind, Axes axes, bool keep_dims = false);
Value sum(Value x, Axes axes, bool keep_dims = false);
Value mean(Value x, Axes axes, bool keep_dims = false);
Value max_over(Value x, Axes axes, bool keep_dims = false);

/// NumPy's matmul, batch dims broadcast.
Value matmul(Value a, Value b);
Value conv(Value x, Value w, op::Conv attributes = {}, Value bias = {});
Value softmax(Value x, op::Softmax attributes = {});
Value layer_norm(Value x, Value scale, Value bias, op::LayerNorm attributes = {});
Value rms_norm(Value x, Value scale, op::RmsNorm attributes = {});
Value attention(Value q, Value k, Value v, Value mask = {}, op::Attention attributes = {});
Value welch_peaks(Value spectrum, op::WelchPeaks attributes);
Value block_fft(Value x, op::BlockFft attributes = {});

}  // namespace rlx
