// Elementary functions of generated code against the C library in the next wider type, over the
// whole range of arguments.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <span>

#include "codegen/host_target.hpp"
#include "nest_build.hpp"
#include "nest_fixture.hpp"

namespace rlx::testing {
namespace {

using Wide = long double;

struct Function {
  ScalarOp op;
  Wide (*exact)(Wide);
  double f32_ulp, f64_ulp;  ///< the largest error allowed, in units of the last place
};

const Function functions[] = {
    {ScalarOp::exp, std::exp, 1.5, 1.5},   {ScalarOp::exp2, std::exp2, 1.5, 2},
    {ScalarOp::expm1, std::expm1, 2, 4.5}, {ScalarOp::log, std::log, 1.5, 1.5},
    {ScalarOp::log1p, std::log1p, 2, 2},   {ScalarOp::log2, std::log2, 1, 2.5},
    {ScalarOp::sin, std::sin, 2, 2.5},     {ScalarOp::cos, std::cos, 2, 2.5},
    {ScalarOp::tan, std::tan, 1, 4},       {ScalarOp::asin, std::asin, 1, 3.5},
    {ScalarOp::acos, std::acos, 1, 3.5},   {ScalarOp::atan, std::atan, 1, 2.5},
    {ScalarOp::sinh, std::sinh, 1, 3.5},   {ScalarOp::cosh, std::cosh, 1, 3.5},
    {ScalarOp::tanh, std::tanh, 2, 3.5},   {ScalarOp::asinh, std::asinh, 1, 3.5},
    {ScalarOp::acosh, std::acosh, 1, 3.5}, {ScalarOp::atanh, std::atanh, 1, 3.5},
    {ScalarOp::erf, std::erf, 2, 2.5},
};

/// Distance in units of the last place of the exact result in T; 0 for the same special value.
template <class T>
double ulp_between(T made, Wide exact) {
  const T rounded = static_cast<T>(exact);
  if (std::isnan(rounded)) return std::isnan(made) ? 0 : INFINITY;
  if (made == rounded) return std::signbit(made) == std::signbit(rounded) ? 0 : INFINITY;
  if (!std::isfinite(made) || std::isnan(made)) {
    // Just below the largest finite number either answer is within the bound.
    const bool edge = std::abs(rounded) >= std::nextafter(std::numeric_limits<T>::max(), T(0));
    return edge && std::isinf(made) ? 1 : INFINITY;
  }
  if (!std::isfinite(rounded)) return INFINITY;
  int exponent = 0;
  std::frexp(exact, &exponent);
  const int least = std::numeric_limits<T>::min_exponent;
  const int digits = std::numeric_limits<T>::digits;
  const Wide unit = std::ldexp(Wide(1), std::max(exponent, least) - digits);
  return static_cast<double>(std::abs(Wide(made) - exact) / unit);
}

/// The op applied to all of `inputs` by generated code.
template <class T>
std::vector<T> apply(const codegen::Target& target, ScalarOp op, DType dtype,
                     const std::vector<T>& inputs, const std::vector<T>* second = nullptr) {
  const auto n = static_cast<std::int64_t>(inputs.size());
  NestBuilder nest({n});
  const int in = nest.buffer(dtype, n), other = nest.buffer(dtype, n), out = nest.buffer(dtype, n);
  const ScalarId a = nest.load(in, {1}), b = second ? nest.load(other, {1}) : -1;
  nest.store(out, nest.add({.op = op, .dtype = dtype, .a = a, .b = b}), {1});
  const loop::Kernel kernel = nest.kernel(1);
  Contents contents;
  for (int i = 0; i < 3; ++i) contents.emplace_back(inputs.size() * sizeof(T) + 64);
  std::memcpy(contents[0].data(), inputs.data(), inputs.size() * sizeof(T));
  if (second) std::memcpy(contents[1].data(), second->data(), inputs.size() * sizeof(T));
  run_generated(kernel, target, contents);
  std::vector<T> results(inputs.size());
  std::memcpy(results.data(), contents[2].data(), inputs.size() * sizeof(T));
  return results;
}

std::vector<float> float_sweep(std::uint32_t step) {
  std::vector<float> values;
  for (std::uint64_t bits = 0; bits <= 0xffffffffu; bits += step) {
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  for (const float special : {0.0f, -0.0f, 1.0f, -1.0f, INFINITY, -INFINITY, NAN, 0x1p-149f,
                              -0x1p-149f, 0x1p-126f, 88.72284f, -103.97208f, 0.5f, 1e30f}) {
    values.push_back(special);
  }
  // Where most arguments lie.
  for (int i = -20000; i <= 20000; ++i) values.push_back(static_cast<float>(i) * 0x1.002p-10f);
  return values;
}

std::vector<double> double_sweep() {
  std::vector<double> values = {0.0,       -0.0,      1.0,    -1.0,   INFINITY, -INFINITY, NAN,
                                0x1p-1074, 0x1p-1022, 709.78, -745.1, 0x1p1023, 1e22,      -1e300};
  std::mt19937_64 random(5);
  for (int i = 0; i < 60000; ++i) {
    const double value = std::bit_cast<double>(random());
    if (!std::isnan(value)) values.push_back(value);
  }
  for (int i = -20000; i <= 20000; ++i) values.push_back(static_cast<double>(i) * 0x1.00002p-10);
  return values;
}

template <class T>
void check(const codegen::Target& target, DType dtype, const Function& function,
           const std::vector<T>& inputs, double allowed) {
  const std::vector<T> made = apply(target, function.op, dtype, inputs);
  double worst = 0;
  T where = 0, got = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const double ulp = ulp_between(made[i], function.exact(Wide(inputs[i])));
    if (!(ulp <= worst)) {
      worst = ulp;
      where = inputs[i];
      got = made[i];
    }
  }
  ::testing::Test::RecordProperty(std::string(name_of(function.op)), std::to_string(worst));
  EXPECT_LE(worst, allowed) << name_of(function.op) << "(" << where << ") = " << got << " on "
                            << codegen::name_of(target.isa);
}

TEST(ScalarMath, FloatsOverTheWholeRange) {
  for (const codegen::Target& target : host_targets()) {
    const std::vector<float> inputs =
        float_sweep(target.isa == codegen::Isa::avx512 ? 10007 : 50021);
    for (const Function& function : functions) {
      check(target, f32, function, inputs, function.f32_ulp);
    }
  }
}

/// What a kernel that reads its first buffer writes to its second one.
std::vector<float> results_of(const loop::Kernel& kernel, const codegen::Target& target,
                              const std::vector<float>& inputs) {
  Contents contents;
  for (int i = 0; i < 2; ++i) contents.emplace_back(inputs.size() * sizeof(float) + 64);
  std::memcpy(contents[0].data(), inputs.data(), inputs.size() * sizeof(float));
  run_generated(kernel, target, contents);
  std::vector<float> made(inputs.size());
  std::memcpy(made.data(), contents[1].data(), made.size() * sizeof(float));
  return made;
}

/// 1 + op(x), whose generated code may differ from that of op(x).
std::vector<float> one_plus(const codegen::Target& target, ScalarOp op,
                            const std::vector<float>& inputs) {
  const auto n = static_cast<std::int64_t>(inputs.size());
  NestBuilder nest({n});
  const int in = nest.buffer(f32, n), out = nest.buffer(f32, n);
  const ScalarId curve = nest.unary(op, nest.load(in, {1}));
  const ScalarId one = nest.add({.op = ScalarOp::constant, .dtype = f32, .value = 1});
  nest.store(out, nest.add({.op = ScalarOp::add, .dtype = f32, .a = one, .b = curve}), {1});
  return results_of(nest.kernel(1), target, inputs);
}

void check_one_plus(const codegen::Target& target, ScalarOp op, double (*exact)(double),
                    const std::vector<float>& inputs) {
  const std::vector<float> made = one_plus(target, op, inputs);
  double worst = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const float x = inputs[i];
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(made[i]));
    } else if (x >= 12) {
      EXPECT_EQ(made[i], 2.0f) << x;
    } else if (op == ScalarOp::erf && x <= -4) {
      EXPECT_EQ(made[i], 0.0f) << x;  // which GELU multiplies by x, however large
    } else {
      worst = std::max(worst, std::abs(made[i] - (1.0 + exact(double{x}))));
    }
  }
  EXPECT_LE(worst, 4e-7) << name_of(op) << " on " << codegen::name_of(target.isa);
}

/// Instructions of AVX2 read a whole register from memory, or none.
TEST(ScalarMath, NumbersOfPolynomialsAreOperandsInMemory) {
  NestBuilder nest({1000});
  const int in = nest.buffer(f32, 1000), out = nest.buffer(f32, 1000);
  nest.store(out, nest.unary(ScalarOp::erf, nest.load(in, {1})), {1});
  const auto holds = [&](codegen::Isa isa, std::size_t copies) {
    const auto code = generator().generate(nest.kernel(1), {isa, "", ""});
    EXPECT_TRUE(code.ok());
    const std::vector<float> numbers(copies, -0.105335759F);  // one of the polynomials' of erf
    return !std::ranges::search(code->object, std::as_bytes(std::span(numbers))).empty();
  };
  EXPECT_TRUE(holds(codegen::Isa::avx2, 8));
  EXPECT_TRUE(holds(codegen::Isa::avx512, 1));
  EXPECT_FALSE(holds(codegen::Isa::avx512, 8));
}

TEST(ScalarMath, AnyNumberOfLanesGivesTheSameBits) {
  std::vector<float> inputs;
  for (int i = 0; i < 40; ++i) inputs.push_back(0.37f * static_cast<float>(i) - 7);
  for (const codegen::Target& target : host_targets()) {
    for (const ScalarOp op : {ScalarOp::exp, ScalarOp::exp2, ScalarOp::expm1, ScalarOp::tanh,
                              ScalarOp::erf, ScalarOp::log1p, ScalarOp::sin, ScalarOp::atan}) {
      const std::vector<float> all = apply(target, op, f32, inputs);
      for (const std::size_t count : {1, 3, 4, 8, 15, 16, 17, 24, 33}) {
        const std::vector<float> some(inputs.begin(), inputs.begin() + static_cast<int>(count));
        const std::vector<float> made = apply(target, op, f32, some);
        for (std::size_t i = 0; i < count; ++i)
          EXPECT_EQ(std::bit_cast<std::uint32_t>(made[i]), std::bit_cast<std::uint32_t>(all[i]))
              << name_of(op) << "(" << some[i] << ") of " << count;
      }
    }
  }
}

TEST(ScalarMath, CurvesBesideOneAreTheSameInAnyNumberOfLanes) {
  std::vector<float> inputs;
  for (int i = 0; i < 40; ++i) inputs.push_back(0.23f * static_cast<float>(i) - 4.5f);
  for (const codegen::Target& target : host_targets()) {
    for (const ScalarOp op : {ScalarOp::erf, ScalarOp::exp, ScalarOp::tanh}) {
      const std::vector<float> all = one_plus(target, op, inputs);
      for (const std::size_t count : {1, 3, 4, 8, 15, 16, 17, 33}) {
        const std::vector<float> some(inputs.begin(), inputs.begin() + static_cast<int>(count));
        const std::vector<float> made = one_plus(target, op, some);
        for (std::size_t i = 0; i < count; ++i)
          EXPECT_EQ(made[i], all[i]) << name_of(op) << "(" << some[i] << ") of " << count;
      }
    }
  }
}

TEST(ScalarMath, CurvesBesideOne) {
  const std::vector<float> inputs = float_sweep(10007);
  for (const codegen::Target& target : host_targets()) {
    check_one_plus(target, ScalarOp::erf, std::erf, inputs);
    check_one_plus(target, ScalarOp::tanh, std::tanh, inputs);
  }
}

TEST(ScalarMath, ExponentialsBesideOne) {
  const std::vector<float> inputs = float_sweep(10007);
  for (const codegen::Target& target : host_targets()) {
    const std::vector<float> made = one_plus(target, ScalarOp::exp, inputs);
    double worst = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const double exact = 1 + std::exp(double{inputs[i]});
      if (std::isnan(inputs[i])) {
        EXPECT_TRUE(std::isnan(made[i]));
      } else if (std::isinf(static_cast<float>(exact))) {
        EXPECT_EQ(made[i], std::numeric_limits<float>::infinity()) << inputs[i];
      } else {
        worst = std::max(worst, std::abs(made[i] - exact) / exact);
      }
    }
    EXPECT_LE(worst, 2.5e-7) << codegen::name_of(target.isa);
  }
}

/// 1 / (1 + e^x), by a division or a reciprocal.
std::vector<float> logistic(const codegen::Target& target, bool divides,
                            const std::vector<float>& inputs) {
  const auto n = static_cast<std::int64_t>(inputs.size());
  NestBuilder nest({n});
  const int in = nest.buffer(f32, n), out = nest.buffer(f32, n);
  const ScalarId curve = nest.unary(ScalarOp::exp, nest.load(in, {1}));
  const ScalarId one = nest.add({.op = ScalarOp::constant, .dtype = f32, .value = 1});
  const ScalarId sum = nest.add({.op = ScalarOp::add, .dtype = f32, .a = one, .b = curve});
  const ScalarId result = divides
                              ? nest.add({.op = ScalarOp::div, .dtype = f32, .a = one, .b = sum})
                              : nest.add({.op = ScalarOp::reciprocal, .dtype = f32, .a = sum});
  nest.store(out, result, {1});
  return results_of(nest.kernel(1), target, inputs);
}

TEST(ScalarMath, Logistic) {
  const std::vector<float> inputs = float_sweep(10007);
  for (const codegen::Target& target : host_targets()) {
    const bool without_division = target.isa == codegen::Isa::avx512;
    for (const bool divides : {true, false}) {
      const std::vector<float> made = logistic(target, divides, inputs);
      double worst = 0;
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        const double exact = 1 / (1 + std::exp(double{inputs[i]}));
        if (std::isnan(inputs[i])) {
          EXPECT_TRUE(std::isnan(made[i]));
        } else if (without_division && inputs[i] > 86.5f) {
          EXPECT_EQ(made[i], 0.0f) << inputs[i];
        } else if (exact < 0x1p-126) {
          EXPECT_NEAR(made[i], exact, 0x1p-127) << inputs[i];
        } else {
          worst = std::max(worst, std::abs(made[i] - exact) / exact);
        }
      }
      EXPECT_LE(worst, 4e-7) << codegen::name_of(target.isa);
    }
  }
}

TEST(ScalarMath, LogisticIsTheSameInAnyNumberOfLanes) {
  std::vector<float> inputs;
  for (int i = 0; i < 40; ++i) inputs.push_back(0.43f * static_cast<float>(i) - 8);
  for (const codegen::Target& target : host_targets()) {
    const std::vector<float> all = logistic(target, true, inputs);
    for (const std::size_t count : {1, 3, 4, 8, 15, 16, 17, 33}) {
      const std::vector<float> some(inputs.begin(), inputs.begin() + static_cast<int>(count));
      const std::vector<float> made = logistic(target, true, some);
      for (std::size_t i = 0; i < count; ++i)
        EXPECT_EQ(made[i], all[i]) << some[i] << " of " << count;
    }
  }
}

TEST(ScalarMath, DoublesOverTheWholeRange) {
  const std::vector<double> inputs = double_sweep();
  for (const codegen::Target& target : host_targets()) {
    for (const Function& function : functions) {
      check(target, f64, function, inputs, function.f64_ulp);
    }
  }
}

template <class T>
void check_pairs(DType dtype, ScalarOp op, Wide (*exact)(Wide, Wide), double allowed, double span) {
  std::vector<T> a, b;
  const T specials[] = {T(0),  T(-0.0), T(1),        T(-1),        T(2),   T(-2),  T(3),    T(-3),
                        T(.5), T(-.5),  T(INFINITY), T(-INFINITY), T(NAN), T(1e9), T(1e-30)};
  for (const T x : specials) {
    for (const T y : specials) {
      a.push_back(x);
      b.push_back(y);
    }
  }
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> uniform(-span, span), small(-9, 9);
  for (int i = 0; i < 40000; ++i) {
    const double sign = random() % 2 ? 1 : -1;
    a.push_back(static_cast<T>(op == ScalarOp::pow ? std::exp(uniform(random))
                                                   : sign * std::exp(uniform(random))));
    b.push_back(static_cast<T>(i % 2 ? small(random) : std::round(small(random) * 3)));
  }
  for (const codegen::Target& target : host_targets()) {
    const std::vector<T> made = apply(target, op, dtype, a, &b);
    double worst = 0;
    std::size_t where = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double ulp = ulp_between(made[i], exact(Wide(a[i]), Wide(b[i])));
      if (!(ulp <= worst)) {
        worst = ulp;
        where = i;
      }
    }
    EXPECT_LE(worst, allowed) << name_of(op) << "(" << a[where] << ", " << b[where]
                              << ") = " << made[where] << " on " << codegen::name_of(target.isa);
  }
}

Wide floored_remainder(Wide a, Wide b) {
  const Wide rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(rest, b);
  return std::signbit(rest) != std::signbit(b) ? rest + b : rest;
}

TEST(ScalarMath, PairsOfFloats) {
  check_pairs<float>(f32, ScalarOp::pow, std::pow, 1, 20);
  check_pairs<float>(f32, ScalarOp::atan2, std::atan2, 1, 20);
  check_pairs<float>(f32, ScalarOp::rem, std::fmod, 0, 20);
  check_pairs<float>(f32, ScalarOp::mod, floored_remainder, 0.5, 20);
}

TEST(ScalarMath, PairsOfDoubles) {
  check_pairs<double>(f64, ScalarOp::pow, std::pow, 2, 60);
  check_pairs<double>(f64, ScalarOp::atan2, std::atan2, 2.5, 20);
  check_pairs<double>(f64, ScalarOp::rem, std::fmod, 0, 60);
}

}  // namespace
}  // namespace rlx::testing
