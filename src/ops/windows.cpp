// Windows by the formulas of scipy.signal.windows.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "base/error.hpp"
#include "rlx/signal.hpp"

namespace rlx {
namespace {

constexpr double pi = std::numbers::pi;

/// Sums of cosines, with alternating signs.
double cosine_sum(std::initializer_list<double> coefficients, double turn) {
  double sum = 0, sign = 1;
  int k = 0;
  for (const double coefficient : coefficients) {
    sum += sign * coefficient * std::cos(2 * pi * k++ * turn);
    sign = -sign;
  }
  return sum;
}

/// The modified Bessel function of the first kind and order 0, by its power series.
double bessel_0(double x) {
  double term = 1, sum = 1;
  for (int k = 1; term > sum * 1e-18; ++k) {
    term *= x / (2 * k) * (x / (2 * k));
    sum += term;
  }
  return sum;
}

double parzen(double from_middle, double points) {
  const double away = std::abs(from_middle), share = away / (points / 2);
  if (away > (points - 1) / 4) return 2 * std::pow(1 - share, 3);
  return 1 - 6 * share * share + 6 * share * share * share;
}

double tukey(double j, double last, double taper) {
  if (taper <= 0) return 1;
  const double share = std::min(taper, 1.0), width = std::floor(share * last / 2);
  if (j <= width) return 0.5 * (1 + std::cos(pi * (-1 + 2 * j / share / last)));
  if (j < last - width) return 1;
  return 0.5 * (1 + std::cos(pi * (-2 / share + 1 + 2 * j / share / last)));
}

double triangle(double j, double last) {
  const double points = last + 1, place = std::min(j, last - j) + 1;
  return std::fmod(points, 2) == 1 ? 2 * place / (points + 1) : (2 * place - 1) / points;
}

/// Point j of a symmetric window over 0..last.
double window_value(Window kind, double j, double last, double parameter) {
  const double turn = j / last, from_middle = j - last / 2, side = 2 * turn - 1;
  switch (kind) {
    case Window::boxcar: return 1;
    case Window::hann: return cosine_sum({0.5, 0.5}, turn);
    case Window::hamming: return cosine_sum({0.54, 0.46}, turn);
    case Window::blackman: return cosine_sum({0.42, 0.5, 0.08}, turn);
    case Window::flat_top:
      return cosine_sum({0.21557895, 0.41663158, 0.277263158, 0.083578947, 0.006947368}, turn);
    case Window::blackman_harris: return cosine_sum({0.35875, 0.48829, 0.14128, 0.01168}, turn);
    case Window::nuttall: return cosine_sum({0.3635819, 0.4891775, 0.1365995, 0.0106411}, turn);
    case Window::kaiser:
      return bessel_0(parameter * std::sqrt(std::max(0.0, 1 - side * side))) / bessel_0(parameter);
    case Window::gaussian:
      return std::exp(-from_middle * from_middle / (2 * parameter * parameter));
    case Window::bartlett: return 1 - std::abs(side);
    case Window::bohman: {
      const double away = std::abs(side);
      if (away >= 1) return 0;
      return (1 - away) * std::cos(pi * away) + std::sin(pi * away) / pi;
    }
    case Window::cosine: return std::sin(pi / (last + 1) * (j + 0.5));
    case Window::parzen: return parzen(from_middle, last + 1);
    case Window::tukey: return tukey(j, last, parameter);
    case Window::triangle: return triangle(j, last);
    case Window::povey: return std::pow(std::max(0.0, cosine_sum({0.5, 0.5}, turn)), 0.85);
  }
  return 0;
}

}  // namespace

Tensor window(Window kind, std::int64_t length, bool periodic, double parameter) {
  if (length < 1) throw Exception(bad_input("A window of ({}) points is none.", length));
  if (kind == Window::gaussian && !(parameter > 0))
    throw Exception(bad_input("The deviation ({}) of a Gaussian must be positive.", parameter));
  if (kind == Window::kaiser && !(std::abs(parameter) <= 700))
    throw Exception(bad_input("The beta ({}) of a Kaiser window is too large.", parameter));
  if (kind == Window::tukey && !std::isfinite(parameter))
    throw Exception(bad_input("The tapered share ({}) of a Tukey window is none.", parameter));
  std::vector<double> values;
  const auto last = static_cast<double>(periodic ? length : length - 1);
  for (std::int64_t j = 0; j < length; ++j)
    values.push_back(length == 1 ? 1 : window_value(kind, static_cast<double>(j), last, parameter));
  return Tensor::of<double>({length}, std::span<const double>(values));
}

}  // namespace rlx
