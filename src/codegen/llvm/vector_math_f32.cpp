// Elementary functions in float. Polynomials are minimax fits (Remez) of the stated function on the
// stated interval; functions that are seldom hot go through double.
#include <array>
#include <cmath>
#include <numbers>

#include "codegen/llvm/real_math.hpp"

namespace rlx::codegen {
namespace {

constexpr double ln2_high = 0x1.62e4p-1, ln2_low = 0x1.7f7d1cf79abcap-20;
constexpr double log2_e = 0x1.71547652b82fep+0;

/// A whole number n, below 2^21, and words whose low nine bits are n + bias.
struct Exponent {
  Real n;
  llvm::Value* biased;
};

/// The n nearest to x * factor.
Exponent exponent_of(Real x, double factor, int bias) {
  const Real rounder = x.of(0x1.8p23 + bias);
  const Real shifted = fma(x, factor, rounder);
  return {shifted - rounder, shifted.bits()};
}

/// 2^n from n + 127, if that is 1 to 254: the bits above it are shifted out.
Real power_of_two(Real like, llvm::Value* biased) {
  return like.from_bits(like.builder().CreateShl(biased, 23));
}

/// 2^n = first * second of an exponent with that bias, for n from -252 to 255: more than one float
/// reaches.
constexpr int bias_of_halves = 254;
struct Halves {
  Real first, second;
};
Halves halves_of(Real like, const Exponent& exponent) {
  auto& b = like.builder();
  llvm::Value* half = b.CreateLShr(exponent.biased, 1);
  return {power_of_two(like, half), power_of_two(like, b.CreateSub(exponent.biased, half))};
}

/// x = n ln2 + rest, |rest| <= ln2 / 2.
struct Halved {
  Exponent n;
  Real rest;
};

Halved take_ln2(Real x, int bias) {
  const Exponent n = exponent_of(x, log2_e, bias);
  const Real high = fma(-n.n, ln2_high, x);
  return {n, fma(-n.n, ln2_low, high)};
}

/// e^r = 1 + r + r^2 p(r) on [-ln2/2, ln2/2].
Real exp_tail(Real r) {
  return polynomial(r, {5.e-01, 1.6666514e-01, 4.1666187e-02, 8.369591e-03, 1.3951724e-03});
}

/// e^r - 1.
Real expm1_of_rest(Real r) { return fma(r * r, exp_tail(r), r); }

/// e^x = 2^n e^r for n in steps of 1/32, whose powers are looked up; e^r = 1 + r p(r) on [-ln2/64,
/// ln2/64].
Real exp_by_steps(Real x, std::initializer_list<double> p) {
  const Stepped s = nearest_step(x, log2_e);
  const Real r = fma(-s.n.real, ln2_low, fma(-s.n.real, ln2_high, x));
  return scale(fma(s.power, r * polynomial(r, p), s.power), s.n);
}

/// Where it is neither 0 nor infinite, and at the first numbers where it is.
Real limited_for_exp(Real x) { return at_least(at_most(x, 89), -104); }

/// e^x of what is limited.
Real limited_exp(Real x) {
  if (has_lookups(x)) return exp_by_steps(x, {1.0, 0.500004049, 0.166668049});
  const Halved h = take_ln2(x, bias_of_halves);
  const Real rest = expm1_of_rest(h.rest);
  if (x.emitter->machine.masks) return scale(rest + 1.0, h.n.n);
  const auto [first, second] = halves_of(x, h.n);
  return fma(rest, first, first) * second;
}

Real exp(Real x) { return limited_exp(limited_for_exp(x)); }

/// 1 + e^x = 1 + 2^(n-1) (2 e^r): what is too small for a normal power of two is lost beside 1, and
/// only the sum becomes infinite. Beside it one term less does, within 1e-7.
Real one_plus_exp(Real x, double most = 89) {
  const Real limited = at_least(at_most(x, most), -86);
  if (has_lookups(x)) return exp_by_steps(limited, {1.00001466, 0.500004601}) + 1.0;
  const Halved h = take_ln2(limited, 126);
  const Real twice =
      polynomial(h.rest, {2, 1.99999941, 0.999982957, 0.333352762, 0.0837963193, 0.0165805445});
  return fma(twice, power_of_two(x, h.n.biased), 1.0);
}

/// 2^x = 2^n 2^r, 2^r = 1 + r p(r) on [-1/2, 1/2].
Real exp2(Real x) {
  const Real limited = at_least(at_most(x, 129), -151);
  if (has_lookups(x)) {
    const Stepped s = nearest_step(limited);
    const Real r = limited - s.n.real;
    const Real tail = r * polynomial(r, {0.693147181, 0.240228452, 0.055504569});
    return scale(fma(s.power, tail, s.power), s.n);
  }
  const Exponent n = exponent_of(limited, 1, bias_of_halves);
  const Real r = limited - n.n;
  const Real p = polynomial(
      r, {6.931472e-01, 2.402265e-01, 5.5503245e-02, 9.617998e-03, 1.3401582e-03, 1.5477829e-04});
  if (x.emitter->machine.masks) return scale(fma(r, p, 1.0), n.n);
  const auto [first, second] = halves_of(x, n);
  return fma(p, r * first, first) * second;
}

/// e^x - 1 = 2 (2^(n-1) (e^r - 1) + (2^(n-1) - 1/2)): the halves keep 2^n finite at the upper end.
Real expm1(Real x) {
  const Halved h = take_ln2(at_least(at_most(x, 89), -20), 126);
  const Real p = expm1_of_rest(h.rest);
  const Real half_power = power_of_two(x, h.n.biased);
  const Real result = fma(half_power, p, half_power - 0.5) * 2.0;
  return copysign(select(abs(x) < 0x1p-13, fma(x * x, x.of(0.5), x), result), x);
}

/// log(1 + f) = f - f^2/2 + f^3 p(f) on [sqrt(1/2) - 1, sqrt(2) - 1]; `low` is added before the
/// large parts.
Real log_of_one_plus(Real f, Real low, Real high) {
  const Real p = polynomial(f, {3.3333316e-01, -2.5000796e-01, 2.0002283e-01, -1.6624975e-01,
                                1.4181407e-01, -1.3125236e-01, 1.287927e-01, -7.86568e-02});
  const Real square = f * f;
  const Real tail = fma(square * f, p, low);
  return (fma(square, -0.5, tail) + f) + high;
}

/// The values of a logarithm outside of (0, inf).
Real with_log_limits(Real x, Real result) {
  result = select(x == infinity, infinity, result);
  result = select(x == 0.0, -infinity, result);
  return select((x < 0.0) | is_nan(x), not_a_number, result);
}

Real log(Real x) {
  const Split s = split(x);
  const Real result =
      log_of_one_plus(s.mantissa - 1.0, s.exponent * ln2_low, s.exponent * ln2_high);
  return with_log_limits(x, result);
}

/// log(1 + x) = log(u) + c / u, where u = 1 + x as rounded and c is what rounding lost.
Real log1p(Real x) {
  const Real u = x + 1.0;
  const Real lost = select(abs(x) > 1.0, 1.0 - (u - x), x - (u - 1.0));
  const Split s = split(u);
  const Real result =
      log_of_one_plus(s.mantissa - 1.0, fma(s.exponent, ln2_low, lost / u), s.exponent * ln2_high);
  return select(abs(x) < 0x1p-24, x, with_log_limits(u, result));
}

/// 1 / x for x from 1 to 2^125: Newton's step from what is looked up, which takes a quarter of a
/// division or less.
Real reciprocal_from_one(Real x) {
  if (!has_lookups(x)) return 1.0 / x;
  const Real about = about_reciprocal(x);
  return fma(about, fma(-x, about, x.of(1)), about);
}

/// a / b for b from 1 to 2: what is left of a first quotient is divided in the same way.
Real quotient_from_one(Real a, Real b) {
  if (!has_lookups(a)) return a / b;
  const Real about = about_reciprocal(b);
  const Real first = a * about;
  return fma(fma(-first, b, a), about, first);
}

/// tanh(x) = (1 - e) / (1 + e) for e = e^(-2|x|) = 2^n (1 + 2p): 1 - 2^n and 1 + 2^n are exact, so
/// that small x, whose n is 0, lose nothing. With -2|x| = n ln2 + 2r, p = (e^(2r) - 1) / 2 is
/// r + r^2 q(r).
Real tanh(Real x) {
  const Real y = at_most(abs(x), 10);
  const Exponent n = exponent_of(y, -2 * log2_e, 128);
  const Real r = fma(-n.n, std::numbers::ln2 / 2, -y);
  const Real q = polynomial(r, {1, 6.6666056e-01, 3.33329496e-01, 1.33913456e-01, 4.46455168e-02});
  const Real p = fma(r * r, q, r);
  const Real twice = power_of_two(x, n.biased);
  const Real below = fma(-twice, p, fma(twice, -0.5, x.of(1)));
  const Real above = fma(twice, p, fma(twice, 0.5, x.of(1)));
  return copysign(quotient_from_one(below, above), x);
}

/// erf(x) = x + x p(x^2) up to 0.85; then 1 - e^(x q(x)), where x q(x) fits log(erfc(x)) up to 4.
/// The exponential has one term less than elsewhere: it counts for less than a third of the result.
Real erf(Real x) {
  const Real magnitude = abs(x);
  const Real y = at_most(magnitude, 4);
  const Real p = polynomial(x * x, {1.2837917e-01, -3.7612575e-01, 1.128277e-01, -2.6804572e-02,
                                    5.054272e-03, -6.3326105e-04});
  const Real q = polynomial(y, {-1.1285306e+00, -6.3566285e-01, -1.0533576e-01, 2.2937842e-02,
                                -3.2300265e-03, 2.1582878e-04});
  const Halved h = take_ln2(y * q, 127);
  const Real r = h.rest;
  const Real tail = polynomial(r, {4.9999112e-01, 1.6666448e-01, 4.190286e-02, 8.3754845e-03});
  const Real power = power_of_two(x, h.n.biased);
  const Real e = fma(fma(r * r, tail, r), power, power);
  return select(magnitude < 0.85, fma(p, x, x), copysign(1.0 - e, x));
}

Real sine_of_rest(Real r) {
  const Real z = r * r;
  return fma(z * r, polynomial(z, {-1.6666667e-01, 8.333329e-03, -1.9839258e-04, 2.7175695e-06}),
             r);
}

Real cosine_of_rest(Real r) {
  const Real z = r * r;
  const Real p = polynomial(z, {4.1666646e-02, -1.3887307e-03, 2.443131e-05});
  return fma(z * z, p, fma(z, -0.5, r.of(1)));
}

/// Three parts of pi/2 do below 2^12, where fused steps lose nothing; beyond, double.
Reduced reduce(Real x) {
  Emitter& emitter = *x.emitter;
  auto& b = x.builder();
  const Rounded n = nearest(x, 0x1.45f306dc9c883p-1);
  Real rest = fma(-n.real, 0x1.921fb6p+0, x);
  rest = fma(-n.real, -0x1.777a5cp-25, rest);
  rest = fma(-n.real, -0x1.ee59dap-50, rest);
  const Truth large = abs(x) > 4096.0;
  llvm::BasicBlock* before = b.GetInsertBlock();
  llvm::BasicBlock* inside = nullptr;
  Real exact = rest;
  llvm::Value* quadrant = nullptr;
  emitter.when(any(large), [&] {
    const Reduced wide = reduce_angle(widened(x));
    exact = narrowed(wide.rest);
    quadrant = b.CreateTrunc(wide.quadrant, x.words());
    exact = select(large, exact, rest);
    quadrant = b.CreateSelect(large.value, quadrant, n.integer);
    inside = b.GetInsertBlock();
  });
  llvm::PHINode* merged = b.CreatePHI(x.value->getType(), 2);
  merged->addIncoming(rest.value, before);
  merged->addIncoming(exact.value, inside);
  llvm::PHINode* merged_quadrant = b.CreatePHI(x.words(), 2);
  merged_quadrant->addIncoming(n.integer, before);
  merged_quadrant->addIncoming(quadrant, inside);
  return {{&emitter, merged}, merged_quadrant};
}

/// sin (shift 0) and cos (shift 1): the quadrant picks the polynomial and the sign.
Real sine(Real x, int shift) {
  auto& b = x.builder();
  const Reduced reduced = reduce(x);
  llvm::Value* quadrant = b.CreateAdd(reduced.quadrant, x.word(shift));
  const Truth odd{x.emitter, b.CreateICmpNE(b.CreateAnd(quadrant, x.word(1)), x.word(0))};
  const Real result = select(odd, cosine_of_rest(reduced.rest), sine_of_rest(reduced.rest));
  llvm::Value* sign = b.CreateShl(b.CreateAnd(quadrant, x.word(2)), 30);
  const Real signed_result = x.from_bits(b.CreateXor(result.bits(), sign));
  return shift == 0 ? select(x == 0.0, x, signed_result) : signed_result;
}

/// Coefficients of 1 + erf(n / 4 + r), |r| <= 1/8, by their power of r and the low bits of n from
/// -16 to 15: the polynomial of r through five points of Chebyshev's.
std::array<Lookup, 5> pieces_of_one_plus_erf() {
  std::array<Lookup, 5> pieces;
  for (int n = -16; n < 16; ++n) {
    // Newton's divided differences, then the sum of powers.
    std::array<double, 5> points, differences, sum{};
    for (std::size_t i = 0; i < points.size(); ++i) {
      points[i] = 0.125 * std::cos((2.0 * static_cast<double>(i) + 1) * std::numbers::pi / 10);
      differences[i] = std::erfc(-n / 4.0 - points[i]);
    }
    for (std::size_t k = 1; k < points.size(); ++k) {
      for (std::size_t i = points.size() - 1; i >= k; --i)
        differences[i] = (differences[i] - differences[i - 1]) / (points[i] - points[i - k]);
    }
    for (std::size_t i = points.size(); i-- > 0;) {
      for (std::size_t k = points.size() - 1; k > 0; --k) sum[k] = sum[k - 1] - points[i] * sum[k];
      sum[0] = differences[i] - points[i] * sum[0];
    }
    for (std::size_t k = 0; k < sum.size(); ++k)
      pieces[k][static_cast<std::size_t>(n & 31)] = static_cast<float>(sum[k]);
  }
  // What is never reached is nothing.
  pieces[0][16] = 0;
  return pieces;
}

Real one_plus_erf_by_pieces(Real x) {
  static const std::array<Lookup, 5> pieces = pieces_of_one_plus_erf();
  const Real limited = at_least(at_most(x, 3.874), -4);
  constexpr double rounder = 0x1.8p21;  // the least bit of the sum counts quarters
  const Real shifted = limited + rounder;
  const Real r = limited - (shifted - rounder);
  Real sum = looked_up(pieces.back(), x, shifted.bits());
  for (std::size_t k = pieces.size() - 1; k-- > 0;)
    sum = fma(sum, r, looked_up(pieces[k], x, shifted.bits()));
  return sum;
}

}  // namespace

/// Next to 1 the absolute error counts, so one quotient serves all of erf: x p(x^2) / q(x^2) up to
/// 3.95, where it is 1 exactly; or polynomials that are looked up.
llvm::Value* emit_one_plus_erf(Emitter& emitter, llvm::Value* value) {
  if (const Real any{&emitter, value}; has_lookups(any)) return one_plus_erf_by_pieces(any).value;
  const Real x = at_least(at_most({&emitter, value}, 3.95), -3.95);
  const Real square = x * x;
  const Real p = polynomial(square, {1.12837815, 0.208513007, 0.0517099313, 0.00407007709,
                                     0.000150910608, -1.99085184e-06, 1.96675476e-08});
  const Real q =
      polynomial(square, {0.999999464, 0.518118024, 0.118551508, 0.0150896702, 0.0010464018});
  return ((x * p) / q + 1.0).value;
}

llvm::Value* emit_one_plus_tanh(Emitter& emitter, llvm::Value* value) {
  const Real x{&emitter, value};
  return (2.0 / one_plus_exp(x * -2.0)).value;
}

llvm::Value* emit_one_plus_exp(Emitter& emitter, llvm::Value* x) {
  return one_plus_exp({&emitter, x}).value;
}

llvm::Value* emit_logistic(Emitter& emitter, llvm::Value* value) {
  constexpr double most = 86.5;  // 1 / e^most is a normal number
  const Real x{&emitter, value};
  if (!has_lookups(x)) return (1.0 / one_plus_exp(x)).value;
  return select(x > most, 0.0, reciprocal_from_one(one_plus_exp(x, most))).value;
}

llvm::Value* emit_normal_exp(Emitter& emitter, llvm::Value* value) {
  constexpr double least = -87.336;  // e^x is at least 2^-126
  const Real x{&emitter, value};
  const Real limited = at_least(x, least);
  if (has_lookups(x)) return select(x < least, 0.0, limited_exp(limited)).value;
  const Halved h = take_ln2(limited, 127);
  const Real power = power_of_two(x, h.n.biased);
  return select(x < least, 0.0, fma(expm1_of_rest(h.rest), power, power)).value;
}

Real emit_unary_f32(ScalarOp op, Real x) {
  switch (op) {
    case ScalarOp::exp: return exp(x);
    case ScalarOp::exp2: return exp2(x);
    case ScalarOp::expm1: return expm1(x);
    case ScalarOp::log: return log(x);
    case ScalarOp::log1p: return log1p(x);
    case ScalarOp::tanh: return tanh(x);
    case ScalarOp::erf: return erf(x);
    case ScalarOp::sin:
      if (x.emitter->machine.fma) return sine(x, 0);
      break;
    case ScalarOp::cos:
      if (x.emitter->machine.fma) return sine(x, 1);
      break;
    default: break;
  }
  return narrowed(emit_unary_f64(op, widened(x)));
}

}  // namespace rlx::codegen
