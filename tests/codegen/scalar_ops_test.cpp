// Every scalar operation on every element type, at the edges of its range, exactly as the
// interpreter has it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "codegen/host_target.hpp"
#include "graph/elementwise_eval.hpp"
#include "nest_build.hpp"
#include "nest_fixture.hpp"

namespace rlx::testing {
namespace {

constexpr DType real_types[] = {f32, f64, f16, bf16, f8e4m3fn, f8e5m2};
constexpr DType integer_types[] = {i8, i16, i32, i64, u8, u16, u32, u64, i4, u4};

std::vector<ScalarDatum> edges(DType dtype) {
  std::vector<ScalarDatum> data;
  if (is_float(dtype)) {
    for (const double value : {0.0,
                               -0.0,
                               1.0,
                               -1.0,
                               0.5,
                               -0.5,
                               1.5,
                               2.5,
                               -2.5,
                               0.49999997,
                               3.7,
                               -3.7,
                               100.0,
                               254.6,
                               300.0,
                               -300.0,
                               448.0,
                               480.0,
                               65504.0,
                               70000.0,
                               8388607.5,
                               2147483520.0,
                               2147483648.0,
                               -2147483904.0,
                               4294967040.0,
                               9.3e18,
                               -9.3e18,
                               1.9e19,
                               1e-3,
                               2e-6,
                               6e-8,
                               1e-40,
                               3e38,
                               static_cast<double>(INFINITY),
                               -static_cast<double>(INFINITY),
                               static_cast<double>(NAN)}) {
      data.push_back({value, 0});
    }
    return data;
  }
  if (dtype == boolean) return {{0, 0}, {0, 1}};
  const auto lowest = std::numeric_limits<std::int64_t>::min();
  for (const std::int64_t value : {std::int64_t{0},
                                   std::int64_t{1},
                                   std::int64_t{-1},
                                   std::int64_t{2},
                                   std::int64_t{-2},
                                   std::int64_t{3},
                                   std::int64_t{-3},
                                   std::int64_t{7},
                                   std::int64_t{-8},
                                   std::int64_t{15},
                                   std::int64_t{100},
                                   std::int64_t{127},
                                   std::int64_t{-128},
                                   std::int64_t{200},
                                   std::int64_t{32767},
                                   std::int64_t{-32768},
                                   std::int64_t{65535},
                                   std::int64_t{2147483647},
                                   std::int64_t{-2147483648},
                                   std::int64_t{16777217},
                                   std::int64_t{1} << 53,
                                   lowest,
                                   lowest + 1,
                                   -(lowest + 1)}) {
    if (dtype == DType::i4 && (value < -8 || value > 7)) continue;
    if (dtype == DType::u4 && (value < 0 || value > 15)) continue;
    data.push_back({0, value});
  }
  return data;
}

/// All edges (or all pairs of them) through each of the operations.
void check(const std::vector<ScalarNode>& operations, DType operand, bool pairs) {
  const std::vector<ScalarDatum> values = edges(operand);
  const auto n = static_cast<std::int64_t>(values.size());
  NestBuilder nest(pairs ? std::vector<std::int64_t>{n, n} : std::vector<std::int64_t>{n});
  const int in = nest.buffer(operand, n);
  const ScalarId a =
      nest.load(in, pairs ? std::vector<std::int64_t>{1, 0} : std::vector<std::int64_t>{1});
  const ScalarId b = pairs ? nest.load(in, {0, 1}) : -1;
  std::string names;
  for (ScalarNode node : operations) {
    node.a = a;
    node.b = b;
    const int out = nest.buffer(node.dtype, pairs ? n * n : n);
    names += fmt::format("b{} = {} to {}; ", out, name_of(node.op), name_of(node.dtype));
    nest.store(out, nest.add(node),
               pairs ? std::vector<std::int64_t>{n, 1} : std::vector<std::int64_t>{1});
  }
  const loop::Kernel kernel = nest.kernel(pairs ? 2 : 1);
  std::mt19937 random(1);
  Contents start = random_contents(kernel, random);
  for (std::int64_t i = 0; i < n; ++i) {
    store_datum(operand, start[0].data(), i, values[static_cast<std::size_t>(i)]);
  }
  SCOPED_TRACE(fmt::format("{}: {}", name_of(operand), names));
  expect_as_interpreted(kernel, start, 0);
}

std::vector<ScalarNode> nodes_of(std::initializer_list<ScalarOp> ops, DType dtype) {
  std::vector<ScalarNode> nodes;
  for (const ScalarOp op : ops) nodes.push_back({.op = op, .dtype = dtype});
  return nodes;
}

TEST(ScalarOps, CastsBetweenAllTypes) {
  std::vector<DType> all(std::begin(real_types), std::end(real_types));
  all.insert(all.end(), std::begin(integer_types), std::end(integer_types));
  all.push_back(boolean);
  for (const DType from : all) {
    std::vector<ScalarNode> casts;
    for (const DType to : all) casts.push_back({.op = ScalarOp::cast, .dtype = to});
    check(casts, from, false);
  }
}

TEST(ScalarOps, BitcastsBetweenTypesOfOneSize) {
  for (const auto& [from, to] : {std::pair{f32, i32},
                                 {i32, f32},
                                 {f64, u64},
                                 {f16, i16},
                                 {u16, bf16},
                                 {bf16, f16},
                                 {i8, u8},
                                 {f32, u32}}) {
    check({{.op = ScalarOp::bitcast, .dtype = to}}, from, false);
  }
}

TEST(ScalarOps, OpsOnFloats) {
  for (const DType dtype : real_types) {
    check(nodes_of(
              {ScalarOp::neg, ScalarOp::abs, ScalarOp::sign, ScalarOp::sqrt, ScalarOp::reciprocal,
               ScalarOp::floor, ScalarOp::ceil, ScalarOp::round, ScalarOp::trunc},
              dtype),
          dtype, false);
    check(nodes_of({ScalarOp::is_nan, ScalarOp::is_inf}, boolean), dtype, false);
    check(nodes_of({ScalarOp::add, ScalarOp::sub, ScalarOp::mul, ScalarOp::div, ScalarOp::min,
                    ScalarOp::max},
                   dtype),
          dtype, true);
    check(nodes_of({ScalarOp::equal, ScalarOp::not_equal, ScalarOp::less, ScalarOp::less_equal,
                    ScalarOp::greater, ScalarOp::greater_equal},
                   boolean),
          dtype, true);
  }
}

// Registers beside constants take fewer instructions.
TEST(ScalarOps, BoundsThatAreKnown) {
  for (const DType dtype : {f32, f64}) {
    const std::vector<ScalarDatum> values = edges(dtype);
    const auto n = static_cast<std::int64_t>(values.size());
    NestBuilder nest({n});
    const int in = nest.buffer(dtype, n);
    const ScalarId x = nest.load(in, {1});
    for (const double bound : {0.0, 255.0, -128.0, static_cast<double>(NAN)}) {
      const ScalarId known = nest.constant(dtype, bound);
      for (const ScalarOp op : {ScalarOp::min, ScalarOp::max}) {
        nest.store(nest.buffer(dtype, n), nest.binary(op, x, known), {1});
        nest.store(nest.buffer(dtype, n), nest.binary(op, known, x), {1});
        nest.store(nest.buffer(DType::u8, n), nest.cast(nest.binary(op, x, known), DType::u8), {1});
        nest.store(nest.buffer(DType::i8, n), nest.cast(nest.binary(op, x, known), DType::i8), {1});
      }
    }
    const loop::Kernel kernel = nest.kernel(1);
    std::mt19937 random(1);
    Contents start = random_contents(kernel, random);
    for (std::int64_t i = 0; i < n; ++i)
      store_datum(dtype, start[0].data(), i, values[static_cast<std::size_t>(i)]);
    expect_as_interpreted(kernel, start, 0);
  }
}

TEST(ScalarOps, OpsOnIntegers) {
  for (const DType dtype : integer_types) {
    check(nodes_of({ScalarOp::neg, ScalarOp::abs, ScalarOp::sign, ScalarOp::bit_not}, dtype), dtype,
          false);
    check(
        nodes_of({ScalarOp::add, ScalarOp::sub, ScalarOp::mul, ScalarOp::div, ScalarOp::rem,
                  ScalarOp::mod, ScalarOp::min, ScalarOp::max, ScalarOp::bit_and, ScalarOp::bit_or,
                  ScalarOp::bit_xor, ScalarOp::shift_left, ScalarOp::shift_right},
                 dtype),
        dtype, true);
    // The interpreter takes the largest u64 exponents for negative ones.
    if (dtype != u64) check(nodes_of({ScalarOp::pow}, dtype), dtype, true);
    check(nodes_of({ScalarOp::equal, ScalarOp::less, ScalarOp::greater_equal}, boolean), dtype,
          true);
  }
}

TEST(ScalarOps, OpsOnBool) {
  check(nodes_of({ScalarOp::bit_and, ScalarOp::bit_or, ScalarOp::bit_xor, ScalarOp::min,
                  ScalarOp::max, ScalarOp::equal, ScalarOp::less, ScalarOp::add, ScalarOp::mul},
                 boolean),
        boolean, true);
  check(nodes_of({ScalarOp::bit_not}, boolean), boolean, false);
}

}  // namespace
}  // namespace rlx::testing
