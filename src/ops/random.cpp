// Random ops: Philox words as an op, numbers made of them as bodies. Equal seeds give equal numbers
// on every device.
#include <cmath>
#include <cstring>
#include <numbers>

#include "base/element.hpp"
#include "graph/rules.hpp"
#include "ops/families.hpp"
#include "ops/philox.hpp"

namespace rlx {
namespace {

using Types = Result<std::vector<Type>>;

Value number(Graph& graph, DType dtype, std::uint64_t value) {
  Tensor tensor(dtype, {});
  store_datum(dtype, tensor.mutable_data(), 0, {0, static_cast<std::int64_t>(value)});
  return graph.constant(std::move(tensor));
}

Value low_word(Graph& graph, Value x) {
  return graph.add_one(op::And{}, {x, number(graph, u64, 0xFFFFFFFF)});
}
Value high_word(Graph& graph, Value x) {
  return graph.add_one(op::ShiftRight{}, {x, number(graph, u64, 32)});
}
Value exclusive_or(Graph& graph, Value a, Value b) { return graph.add_one(op::Xor{}, {a, b}); }

// One round on four words that are held as u64, so that products keep their high halves.
std::array<Value, 4> philox_round(Graph& graph, const std::array<Value, 4>& counter,
                                  const std::array<std::uint32_t, 2>& key) {
  const Value a = counter[0] * number(graph, u64, philox_multiplier[0]);
  const Value b = counter[2] * number(graph, u64, philox_multiplier[1]);
  return {exclusive_or(graph, exclusive_or(graph, high_word(graph, b), counter[1]),
                       number(graph, u64, key[0])),
          low_word(graph, b),
          exclusive_or(graph, exclusive_or(graph, high_word(graph, a), counter[3]),
                       number(graph, u64, key[1])),
          low_word(graph, a)};
}

Status require_random_float(DType dtype, std::string_view op) {
  if (dtype == f32 || dtype == f64 || dtype == f16 || dtype == bf16) return {};
  return bad_input("The op {} makes f32, f64, f16 and bf16, not {}.", op, name_of(dtype));
}

Types random_type(DType dtype, const Shape& shape) {
  RLX_TRY(require_dims(shape));
  return std::vector<Type>{{dtype, shape}};
}

}  // namespace

/// Word i is word i % 4 of the block whose 64-bit counter is offset + i / 4; the key is the seed.
template <>
struct Rules<op::RandomBits> {
  static constexpr std::string_view name = "random_bits";
  static constexpr Arity arity{0, 0};
  static constexpr OpTraits traits{.random = true};
  static constexpr auto fields =
      std::tuple{field("shape", &op::RandomBits::shape), field("seed", &op::RandomBits::seed),
                 field("offset", &op::RandomBits::offset)};
  static Types infer(const op::RandomBits& a, const InferArgs&) {
    return random_type(u32, a.shape);
  }
  static std::array<std::uint32_t, 2> key_of(std::uint64_t seed) {
    return {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  }
  static Status eval(const op::RandomBits& a, const EvalArgs& args) {
    const std::int64_t count = args.out(0).elements();
    auto* words = args.out(0).as<std::uint32_t>();
    std::array<std::uint32_t, 4> block{};
    for (std::int64_t i = 0; i < count; ++i) {
      if (i % 4 == 0) {
        const std::uint64_t counter = a.offset + static_cast<std::uint64_t>(i / 4);
        block = philox(
            {static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0, 0},
            key_of(a.seed));
      }
      words[i] = block[static_cast<std::size_t>(i % 4)];
    }
    return {};
  }
  static Values body(const op::RandomBits& a, Graph& graph, std::span<const Value>) {
    const Type type{u32, a.shape};
    const std::int64_t count = type.elements(), blocks = (count + 3) / 4;
    const Value counter =
        graph.add_one(op::Iota{.dtype = u64, .shape = {blocks, 1}, .axis = 0}, {}) +
        number(graph, u64, a.offset);
    const Value zero = broadcast(number(graph, u64, 0), {blocks, 1});
    std::array<Value, 4> words{low_word(graph, counter), high_word(graph, counter), zero, zero};
    std::array<std::uint32_t, 2> key = key_of(a.seed);
    for (int round = 0; round < philox_rounds; ++round) {
      words = philox_round(graph, words, key);
      key = {key[0] + philox_key_step[0], key[1] + philox_key_step[1]};
    }
    Value all = reshape(concat({words.begin(), words.end()}, 1), {blocks * 4});
    if (blocks * 4 != count) all = slice(all, {0}, {count});
    return {reshape(cast(all, u32), a.shape)};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::RandomBits{{4, 5}, 42, 0}, .inputs = {}},
            {.op = op::RandomBits{{7}, 0xFEDCBA9876543210, 0xFFFFFFFF}, .inputs = {}},
            {.op = op::RandomBits{{}, 1, 2}, .inputs = {}}};
  }
};
RLX_OP(op::RandomBits, "random")

namespace {

// Random words of the shape with one more axis in front.
Value words_of(Graph& graph, const Shape& shape, std::int64_t count, std::uint64_t seed) {
  Shape longer = shape;
  longer.insert(longer.begin(), Dim(count));
  return graph.add_one(op::RandomBits{std::move(longer), seed, 0}, {});
}

Value word(Value words, std::int64_t index) {
  Axes starts(words.shape().size(), 0), limits = words.type().dims();
  starts[0] = index;
  limits[0] = index + 1;
  return squeeze(slice(words, std::move(starts), std::move(limits)), {0});
}

Value shifted_right(Graph& graph, Value bits, std::uint64_t by) {
  return graph.add_one(op::ShiftRight{}, {bits, number(graph, u32, by)});
}

// In [0, 1): the 24 (f64: 53) highest bits.
Value unit_interval(Graph& graph, DType dtype, const Shape& shape, std::uint64_t seed) {
  if (dtype != f64) {
    const Value bits = squeeze(words_of(graph, shape, 1, seed), {0});
    return cast(shifted_right(graph, bits, 8), f32) * graph.constant(f32, 0x1p-24);
  }
  const Value words = words_of(graph, shape, 2, seed);
  const Value high = cast(shifted_right(graph, word(words, 0), 5), f64),
              low = cast(shifted_right(graph, word(words, 1), 6), f64);
  return (high * graph.constant(f64, 0x1p26) + low) * graph.constant(f64, 0x1p-53);
}

// The largest number of the dtype below x: rounding must not reach the open end of an interval.
double below(DType dtype, double x) {
  std::byte bytes[8] = {};
  store_datum(dtype, bytes, 0, {x, 0});
  if (load_datum(dtype, bytes, 0).number.real() < x)
    return load_datum(dtype, bytes, 0).number.real();
  if (dtype == f64) return std::nextafter(x, -INFINITY);
  if (dtype == f32) return std::nextafter(static_cast<float>(x), -INFINITY);
  // The half types are ordered as their bits are, negative ones the other way round.
  std::uint16_t bits;
  std::memcpy(&bits, bytes, sizeof bits);
  bits =
      (bits & 0x7FFF) == 0 ? 0x8001 : static_cast<std::uint16_t>(bits + (bits & 0x8000 ? 1 : -1));
  std::memcpy(bytes, &bits, sizeof bits);
  return load_datum(dtype, bytes, 0).number.real();
}

DType computing_type(DType dtype) { return dtype == f64 ? f64 : f32; }

}  // namespace

/// low + (high - low) u, u uniform in [0, 1).
template <>
struct Rules<op::RandomUniform> {
  static constexpr std::string_view name = "random_uniform";
  static constexpr Arity arity{0, 0};
  static constexpr OpTraits traits{.composite = true, .random = true};
  static constexpr auto fields =
      std::tuple{field("dtype", &op::RandomUniform::dtype),
                 field("shape", &op::RandomUniform::shape), field("low", &op::RandomUniform::low),
                 field("high", &op::RandomUniform::high), field("seed", &op::RandomUniform::seed)};
  static Types infer(const op::RandomUniform& a, const InferArgs&) {
    RLX_TRY(require_random_float(a.dtype, name));
    if (!(a.low <= a.high) || !std::isfinite(a.low) || !std::isfinite(a.high))
      return bad_input("The interval [{}, {}) of random_uniform holds no numbers.", a.low, a.high);
    return random_type(a.dtype, a.shape);
  }
  static Values body(const op::RandomUniform& a, Graph& graph, std::span<const Value>) {
    const DType wide = computing_type(a.dtype);
    const Value unit = unit_interval(graph, a.dtype, a.shape, a.seed);
    const Value result =
        cast(unit * graph.constant(wide, a.high - a.low) + graph.constant(wide, a.low), a.dtype);
    if (a.low == a.high) return {result};
    return {min(result, graph.constant(a.dtype, below(a.dtype, a.high)))};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::RandomUniform{f32, {3, 5}, -1, 1, 7}, .inputs = {}},
            {.op = op::RandomUniform{f64, {9}, 0, 1, 7}, .inputs = {}},
            {.op = op::RandomUniform{f16, {6}, 1, 2, 7}, .inputs = {}}};
  }
};
RLX_OP(op::RandomUniform, "random")

/// Box and Muller: sqrt(-2 ln u) cos(2 pi v), u in (0, 1), v in [0, 1).
template <>
struct Rules<op::RandomNormal> {
  static constexpr std::string_view name = "random_normal";
  static constexpr Arity arity{0, 0};
  static constexpr OpTraits traits{.composite = true, .random = true};
  static constexpr auto fields = std::tuple{
      field("dtype", &op::RandomNormal::dtype), field("shape", &op::RandomNormal::shape),
      field("mean", &op::RandomNormal::mean), field("deviation", &op::RandomNormal::deviation),
      field("seed", &op::RandomNormal::seed)};
  static Types infer(const op::RandomNormal& a, const InferArgs&) {
    RLX_TRY(require_random_float(a.dtype, name));
    return random_type(a.dtype, a.shape);
  }
  static Values body(const op::RandomNormal& a, Graph& graph, std::span<const Value>) {
    const DType wide = computing_type(a.dtype);
    const Value words = words_of(graph, a.shape, 2, a.seed);
    const auto unit = [&](std::int64_t index, double shift) {
      const Value bits = cast(shifted_right(graph, word(words, index), 9), wide);
      return (bits + graph.constant(wide, shift)) * graph.constant(wide, 0x1p-23);
    };
    const Value radius = sqrt(log(unit(0, 0.5)) * graph.constant(wide, -2));
    const Value angle = unit(1, 0) * graph.constant(wide, 2 * std::numbers::pi);
    return {
        cast(radius * cos(angle) * graph.constant(wide, a.deviation) + graph.constant(wide, a.mean),
             a.dtype)};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::RandomNormal{f32, {3, 5}, 0, 1, 7}, .inputs = {}},
            {.op = op::RandomNormal{f64, {9}, 2, 0.5, 7}, .inputs = {}},
            {.op = op::RandomNormal{bf16, {6}, 0, 1, 7}, .inputs = {}}};
  }
};
RLX_OP(op::RandomNormal, "random")

OpList random_ops() {
  static const OpInfo* const list[] = {&info_of<op::RandomBits>(), &info_of<op::RandomUniform>(),
                                       &info_of<op::RandomNormal>()};
  return list;
}

}  // namespace rlx
