// Elementary functions in double. Polynomials are minimax fits (Remez) of the stated function on
// the stated interval.
#include "codegen/llvm/real_math.hpp"

namespace rlx::codegen {
namespace {

constexpr double ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;
constexpr double ln2 = 0x1.62e42fefa39efp-1, log2_e = 0x1.71547652b82fep+0;
constexpr double half_pi = 0x1.921fb54442d18p+0, half_pi_low = 0x1.1a62633145c07p-54;
constexpr double quarter_pi = half_pi / 2, quarter_pi_low = half_pi_low / 2;

struct Halved {
  Rounded n;
  Real rest;
};

/// x + low = n ln2 + rest.
Halved take_ln2(Real x) {
  const Rounded n = nearest(x, log2_e);
  return {n, fma(-n.real, ln2_low, fma(-n.real, ln2_high, x))};
}

/// e^r - 1 on [-ln2/2, ln2/2].
Real expm1_of_rest(Real r) {
  const Real p =
      polynomial(r, {0.5, 0.16666666666666685, 0.041666666666666734, 0.008333333333315417,
                     0.0013888888888855958, 0.00019841269900377893, 2.4801587738073167e-05,
                     2.755723088558577e-06, 2.755722997316733e-07, 2.5113417513295264e-08,
                     2.0927921096652527e-09});
  return fma(r * r, p, r);
}

/// e^(x + low), low far smaller than x.
Real exp(Real x, Real low) {
  const Halved h = take_ln2(at_least(at_most(x, 710), -746));
  return scale(expm1_of_rest(h.rest + low) + 1.0, h.n);
}

Real exp(Real x) {
  const Halved h = take_ln2(at_least(at_most(x, 710), -746));
  return scale(expm1_of_rest(h.rest) + 1.0, h.n);
}

Real exp2(Real x) {
  const Real limited = at_least(at_most(x, 1025), -1076);
  const Rounded n = nearest(limited);
  return scale(expm1_of_rest((limited - n.real) * ln2) + 1.0, n);
}

/// e^x - 1 = 2 (2^(n-1) (e^r - 1) + (2^(n-1) - 1/2)).
Real expm1(Real x) {
  const Real limited = at_least(at_most(x, 710), -50);
  const Rounded n = nearest(limited, log2_e);
  // What rounding the rest loses counts: for n = 1 the result is smaller than its parts.
  const Real high = fma(-n.real, ln2_high, limited);
  const Real low = n.real * ln2_low;
  const Real rest = high - low;
  const Real lost = (high - rest) - low;
  const Real p = expm1_of_rest(rest) + fma(rest, lost, lost);
  auto& b = x.builder();
  const Real half = x.from_bits(b.CreateShl(b.CreateAdd(n.integer, x.word(1022)), 52));
  return select(abs(x) < 0x1p-53, x, fma(half, p, half - 0.5) * 2.0);
}

/// log(1 + f) with s = f / (2 + f): f - f^2/2 + s (f^2/2 + R), R = 2 s^2/3 + 2 s^4/5 + ... (the
/// series of atanh).
Real log_of_one_plus(Real f, Real low, Real high) {
  const Real s = f / (f + 2.0);
  const Real z = s * s;
  const Real r = z * polynomial(z, {2. / 3, 2. / 5, 2. / 7, 2. / 9, 2. / 11, 2. / 13, 2. / 15,
                                    2. / 17, 2. / 19, 2. / 21});
  const Real half_square = f * f * 0.5;
  return high - ((half_square - fma(s, half_square + r, low)) - f);
}

Real with_log_limits(Real x, Real result) {
  result = select(x == infinity, infinity, result);
  result = select(x == 0.0, -infinity, result);
  return select((x < 0.0) | is_nan(x), not_a_number, result);
}

Real log(Real x) {
  const Split s = split(x);
  return with_log_limits(
      x, log_of_one_plus(s.mantissa - 1.0, s.exponent * ln2_low, s.exponent * ln2_high));
}

Real log2(Real x) {
  const Split s = split(x);
  const Real fraction = log_of_one_plus(s.mantissa - 1.0, x.of(0), x.of(0));
  return with_log_limits(x, fma(fraction, log2_e, s.exponent));
}

/// log(1 + x) = log(u) + c / u, where u = 1 + x as rounded and c is what rounding lost.
Real log1p(Real x) {
  const Real u = x + 1.0;
  const Real lost = select(abs(x) > 1.0, 1.0 - (u - x), x - (u - 1.0));
  const Split s = split(u);
  const Real result =
      log_of_one_plus(s.mantissa - 1.0, fma(s.exponent, ln2_low, lost / u), s.exponent * ln2_high);
  return select(abs(x) < 0x1p-53, x, with_log_limits(u, result));
}

Real sine_of_rest(Real r) {
  const Real z = r * r;
  const Real p = polynomial(z, {-0.16666666666666666, 0.008333333333333321, -0.00019841269841253635,
                                2.755731921343425e-06, -2.5052104711750078e-08,
                                1.6058340850223148e-10, -7.577406220096244e-13});
  return fma(z * r, p, r);
}

Real cosine_of_rest(Real r) {
  const Real z = r * r;
  const Real p =
      polynomial(z, {0.041666666666666664, -0.0013888888888888872, 2.4801587301570066e-05,
                     -2.7557319214746003e-07, 2.087675422163766e-09, -1.1470276628020984e-11,
                     4.737349894835984e-14});
  return fma(z * z, p, fma(z, -0.5, z.of(1)));
}

Real sine(Real x, int shift) {
  auto& b = x.builder();
  const Reduced reduced = reduce_angle(x);
  llvm::Value* quadrant = b.CreateAdd(reduced.quadrant, x.word(shift));
  const Truth odd{x.emitter, b.CreateICmpNE(b.CreateAnd(quadrant, x.word(1)), x.word(0))};
  const Real result = select(odd, cosine_of_rest(reduced.rest), sine_of_rest(reduced.rest));
  llvm::Value* sign = b.CreateShl(b.CreateAnd(quadrant, x.word(2)), 62);
  const Real signed_result = x.from_bits(b.CreateXor(result.bits(), sign));
  return shift == 0 ? select(x == 0.0, x, signed_result) : signed_result;
}

Real tangent(Real x) {
  auto& b = x.builder();
  const Reduced reduced = reduce_angle(x);
  const Truth odd{x.emitter, b.CreateICmpNE(b.CreateAnd(reduced.quadrant, x.word(1)), x.word(0))};
  const Real s = sine_of_rest(reduced.rest), c = cosine_of_rest(reduced.rest);
  return select(x == 0.0, x, select(odd, -c, s) / select(odd, s, c));
}

Real sinh(Real x) {
  const Real y = abs(x);
  const Real t = expm1(at_most(y, 40));
  const Real h = exp(y * 0.5);
  const Real small = (t + t / (t + 1.0)) * 0.5;
  return copysign(select(y > 22.0, h * 0.5 * h, small), x);
}

Real cosh(Real x) {
  const Real h = exp(abs(x) * 0.5);
  const Real e = h * h;
  const Real precise = exp(at_most(abs(x), 40));
  return select(abs(x) > 22.0, e.of(0.5) * h * h, (precise + 1.0 / precise) * 0.5);
}

Real tanh(Real x) {
  const Real t = expm1(at_most(abs(x), 22) * 2.0);
  return copysign(t / (t + 2.0), x);
}

Real asinh(Real x) {
  const Real y = abs(x);
  const Real square = at_most(y, 0x1p500) * at_most(y, 0x1p500);
  const Real small = log1p(y + square / (sqrt(square + 1.0) + 1.0));
  return copysign(select(y > 0x1p28, log(y) + ln2, small), x);
}

Real acosh(Real x) {
  const Real t = x - 1.0;
  const Real small = log1p(t + sqrt(fma(t, t, t * 2.0)));
  const Real result = select(x > 0x1p28, log(x) + ln2, small);
  return select(x < 1.0, not_a_number, result);
}

Real atanh(Real x) {
  const Real y = abs(x);
  return copysign(log1p(y * 2.0 / (1.0 - y)) * 0.5, x);
}

/// erf = x + x p(x^2) up to 0.9; then 1 - exp(-x^2) q(t), q fitting erfcx with t = (x - 5/2) / (x +
/// 5/2) up to 6.
Real erf(Real x) {
  const Real z = x * x;
  const Real small =
      fma(polynomial(z, {0.12837916709551256, -0.3761263890318355, 0.11283791670945253,
                         -0.02686617064327622, 0.005223977607423468, -0.0008548325989696758,
                         0.00012055295320494294, -1.4924744663335489e-05, 1.6447517677871873e-06,
                         -1.6209175911748696e-07, 1.3722976265924504e-08, -7.801188874097751e-10}),
          x, x);
  const Real y = at_most(abs(x), 6);
  const Real q = polynomial(
      (y - 2.5) / (y + 2.5),
      {0.21080636406114356, -0.3717367339489728, 0.2517131932174567, -0.12503305237895318,
       0.03992253907475147, -0.003993701158124509, -0.0026423659278913135, 0.0008759152391417497,
       0.00022837958146608805, -0.00012887424651310874, -3.4172586440073136e-05,
       1.859309936121067e-05, 7.486970411449122e-06, -2.2218055797623268e-06,
       -1.5671525636638593e-06, -1.2431589464541584e-08});
  const Real large = 1.0 - exp(-(y * y)) * q;
  return select(abs(x) < 0.95, small, copysign(large, x));
}

// Double-double arithmetic: a value is high + low, |low| at most half a step of high.
struct Pair {
  Real high, low;
};

Pair add_exactly(Real a, Real b) {
  const Real sum = a + b;
  const Real part = sum - a;
  return {sum, (a - (sum - part)) + (b - part)};
}

Pair multiply_exactly(Real a, Real b) {
  const Real product = a * b;
  if (a.emitter->machine.fma) return {product, fma(a, b, -product)};
  // Dekker: halves of 26 bits, whose products are exact.
  auto halves = [](Real x) {
    const Real high = x.from_bits(x.builder().CreateAnd(x.bits(), x.word(-(1 << 27))));
    return Pair{high, x - high};
  };
  const Pair p = halves(a), q = halves(b);
  const Real error =
      ((p.high * q.high - product) + p.high * q.low + p.low * q.high) + p.low * q.low;
  return {product, error};
}

Pair multiply(Pair a, Pair b) {
  const Pair product = multiply_exactly(a.high, b.high);
  return add_exactly(product.high, product.low + (a.high * b.low + a.low * b.high));
}

/// log(x) to about 2^-65: 2 s (1 + s^2/3 + s^4/5 + ...), s = f / (2 + f), the leading terms in
/// double-double.
Pair precise_log(Real x) {
  const Split parts = split(x);
  const Real f = parts.mantissa - 1.0;
  const Pair divisor = add_exactly(f.of(2), f);
  const Real quotient = f / divisor.high;
  const Pair back = multiply_exactly(quotient, divisor.high);
  const Real error = ((f - back.high) - back.low - quotient * divisor.low) / divisor.high;
  const Pair s = add_exactly(quotient, error);
  const Pair z = multiply(s, s);
  const Real tail = z.high * polynomial(z.high, {1. / 5, 1. / 7, 1. / 9, 1. / 11, 1. / 13, 1. / 15,
                                                 1. / 17, 1. / 19, 1. / 21});
  Pair w = add_exactly(f.of(1. / 3), tail);
  w.low = w.low + 0x1.5555555555555p-56;
  const Pair u = multiply(z, w);
  const Pair product = multiply(s, u);
  const Pair base = add_exactly(parts.exponent * ln2_high, s.high * 2.0);
  const Real low = base.low + (s.low + product.low) * 2.0 + parts.exponent * ln2_low;
  const Pair sum = add_exactly(base.high, product.high * 2.0);
  return add_exactly(sum.high, sum.low + low);
}

}  // namespace

Reduced reduce_angle(Real x) {
  Emitter& emitter = *x.emitter;
  auto& b = x.builder();
  // Three parts of pi/2 with 33 bits each: their products with n are exact up to 2^20.
  const Rounded n = nearest(x, 0x1.45f306dc9c883p-1);
  Real rest = fma(-n.real, 0x1.921fb544p+0, x);
  rest = fma(-n.real, 0x1.0b4611a6p-34, rest);
  rest = fma(-n.real, 0x1.3198a2ep-69, rest);
  const Truth large = abs(x) > 0x1p20;
  llvm::BasicBlock* before = b.GetInsertBlock();
  llvm::BasicBlock* inside = nullptr;
  Reduced exact{rest, nullptr};
  emitter.when(any(large), [&] {
    exact = reduce_large_angle(x);
    exact.rest = select(large, exact.rest, rest);
    exact.quadrant = b.CreateSelect(large.value, exact.quadrant, n.integer);
    inside = b.GetInsertBlock();
  });
  llvm::PHINode* merged = b.CreatePHI(x.value->getType(), 2);
  merged->addIncoming(rest.value, before);
  merged->addIncoming(exact.rest.value, inside);
  llvm::PHINode* quadrant = b.CreatePHI(x.words(), 2);
  quadrant->addIncoming(n.integer, before);
  quadrant->addIncoming(exact.quadrant, inside);
  return {{&emitter, merged}, quadrant};
}

/// With a = max, b = min of |x| and |y|: atan(b / a) from [0, pi/4], turned into the octant.
Real atan2_f64(Real y, Real x) {
  const Real ax = abs(x), ay = abs(y);
  const Truth steep = ay > ax;
  const Real larger = select(steep, ay, ax), smaller = select(steep, ax, ay);
  const Truth equal = larger == smaller;
  const Truth upper = smaller > larger * 0.41421356237309503;
  const Real ratio =
      select(upper, (smaller - larger), smaller) / select(upper, (smaller + larger), larger);
  const Real z = select(larger == 0.0, 0.0, select(equal, 0.0, ratio));
  const Real square = z * z;
  const Real p = polynomial(
      square, {-0.3333333333333333, 0.1999999999999991, -0.1428571428569844, 0.11111111109746948,
               -0.09090909022630415, 0.07692305511922207, -0.06666619763991191, 0.05881651508416066,
               -0.05255750197920506, 0.04706533965282706, -0.0405811589326139, 0.029668325173802437,
               -0.013027590312723422});
  // The equal case: pi/4 exactly, also for two infinities; both zero: 0.
  const Truth eighth = (upper | equal) & !(larger == 0.0);
  const Real base = select(eighth, quarter_pi, x.of(0));
  const Real base_low = select(eighth, quarter_pi_low, x.of(0));
  Real angle = base + (fma(square * z, p, z) + base_low);
  angle = select(steep, (half_pi - angle) + half_pi_low, angle);
  angle = select(is_negative(x), (2 * half_pi - angle) + 2 * half_pi_low, angle);
  angle = select(is_nan(x) | is_nan(y), not_a_number, angle);
  return copysign(angle, y);
}

Real power_f64(Real x, Real y, bool precise) {
  const Real magnitude = abs(x);
  const Real limited = at_least(at_most(y, 0x1p64), -0x1p64);
  const Real ordinary = select((magnitude == 0.0) | (magnitude == infinity), 1.0, magnitude);
  Real result = x;
  if (precise) {
    const Pair l = precise_log(ordinary);
    const Pair product = multiply_exactly(limited, l.high);
    const Pair exponent = add_exactly(product.high, fma(limited, l.low, product.low));
    result = exp(exponent.high, exponent.low);
  } else {
    result = exp(limited * log(ordinary));
  }
  // |y| from 2^53 on is an even integer, below it adding 2^52 rounds to an integer whose last bit
  // is its parity.
  const Real ay = abs(y);
  const Real shifted = at_most(ay, 0x1p52) + 0x1p52;
  const Truth small = ay < 0x1p52;
  const Truth whole = (!small) | ((shifted - 0x1p52) == ay);
  auto& b = x.builder();
  llvm::Value* low_bit = b.CreateAnd(select(small, shifted, ay).bits(), x.word(1));
  const Truth odd = Truth{x.emitter, b.CreateICmpNE(low_bit, x.word(0))} & whole & (ay < 0x1p53);

  const Truth falls = (magnitude < 1.0) ^ (y < 0.0);
  const Real limit = select(magnitude == 1.0, 1.0, select(falls, 0.0, x.of(infinity)));
  const Truth extreme = (magnitude == 0.0) | (magnitude == infinity) | (ay == infinity);
  result = select(extreme, limit, result);
  result = select(is_negative(x) & odd, -result, result);
  const Truth undefined = (x < 0.0) & !whole & !(magnitude == infinity);
  result = select(undefined | is_nan(x) | is_nan(y), not_a_number, result);
  return select((y == 0.0) | (x == 1.0), 1.0, result);
}

Real emit_unary_f64(ScalarOp op, Real x) {
  switch (op) {
    case ScalarOp::exp: return exp(x);
    case ScalarOp::exp2: return exp2(x);
    case ScalarOp::expm1: return expm1(x);
    case ScalarOp::log: return log(x);
    case ScalarOp::log1p: return log1p(x);
    case ScalarOp::log2: return log2(x);
    case ScalarOp::sin: return sine(x, 0);
    case ScalarOp::cos: return sine(x, 1);
    case ScalarOp::tan: return tangent(x);
    case ScalarOp::asin: return atan2_f64(x, sqrt((1.0 - x) * (x + 1.0)));
    case ScalarOp::acos: return atan2_f64(sqrt((1.0 - x) * (x + 1.0)), x);
    case ScalarOp::atan: return atan2_f64(x, x.of(1));
    case ScalarOp::sinh: return sinh(x);
    case ScalarOp::cosh: return cosh(x);
    case ScalarOp::tanh: return tanh(x);
    case ScalarOp::asinh: return asinh(x);
    case ScalarOp::acosh: return acosh(x);
    case ScalarOp::atanh: return atanh(x);
    default: return erf(x);
  }
}

}  // namespace rlx::codegen
