// Design of filters: windowed sincs; Butterworth's and Chebyshev's poles as second-order sections.
#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

#include "base/error.hpp"
#include "rlx/signal.hpp"

namespace rlx {
namespace {

constexpr double pi = std::numbers::pi;
using Complex = std::complex<double>;

double sinc(double x) { return x == 0 ? 1 : std::sin(pi * x) / (pi * x); }

void check_cutoffs(std::span<const double> cutoffs, double sample_rate) {
  double before = 0;
  for (const double cutoff : cutoffs) {
    if (!(cutoff > before) || !(cutoff < sample_rate / 2)) {
      throw Exception(
          bad_input("The cutoff ({}) does not rise between 0 and half the sample rate ({}).",
                    cutoff, sample_rate / 2));
    }
    before = cutoff;
  }
  if (cutoffs.empty()) throw Exception(bad_input("A filter with ({}) cutoffs is none.", 0));
}

/// Passing bands, in units of half the sample rate.
std::vector<std::pair<double, double>> passing_bands(std::span<const double> cutoffs,
                                                     double sample_rate, bool pass_zero) {
  std::vector<double> edges;
  if (pass_zero) edges.push_back(0);
  for (const double cutoff : cutoffs) edges.push_back(2 * cutoff / sample_rate);
  if (edges.size() % 2 == 1) edges.push_back(1);
  std::vector<std::pair<double, double>> bands;
  for (std::size_t i = 0; i + 1 < edges.size(); i += 2) bands.emplace_back(edges[i], edges[i + 1]);
  return bands;
}

/// Poles of Butterworth's analog filter with a cutoff of 1.
std::vector<Complex> circle_of_poles(int order) {
  std::vector<Complex> poles;
  for (int m = -order + 1; m < order; m += 2)
    poles.push_back(m == 0 ? Complex(-1) : -std::exp(Complex(0, pi * m / (2.0 * order))));
  return poles;
}

/// A section with these poles (both real, or conjugate) and zeros at z0 and z1.
Section section_of(Complex p0, Complex p1, double z0, double z1) {
  return {1, -(z0 + z1), z0 * z1, 1, -(p0 + p1).real(), (p0 * p1).real()};
}

Complex response(const std::vector<Section>& sections, double angle) {
  const Complex z = std::exp(Complex(0, -angle));
  Complex total = 1;
  for (const Section& s : sections)
    total *= (s[0] + z * (s[1] + z * s[2])) / (s[3] + z * (s[4] + z * s[5]));
  return total;
}

void check_order(int order, std::span<const double> cutoffs, double sample_rate, bool highpass) {
  check_cutoffs(cutoffs, sample_rate);
  if (order < 1 || order > 64 || cutoffs.size() > 2 || (highpass && cutoffs.size() == 2)) {
    throw Exception(
        bad_input("A filter of order ({}) with ({}) cutoffs is none.", order, cutoffs.size()));
  }
}

/// The sections of an analog filter with a cutoff of 1 that passes 0 Hz by `passed`.
std::vector<Section> sections_of(const std::vector<Complex>& prototype, double passed,
                                 std::span<const double> cutoffs, double sample_rate,
                                 bool highpass) {
  const bool band = cutoffs.size() == 2;
  // Frequencies as the bilinear transform bends them, for a sample rate of 2.
  const auto bent = [&](double f) { return 4 * std::tan(pi * f / sample_rate); };
  const double low = bent(cutoffs[0]), high = bent(cutoffs.back());
  std::vector<Complex> poles;
  for (const Complex p : prototype) {
    if (band) {
      const Complex half = p * (high - low) / 2.0, root = std::sqrt(half * half - low * high);
      poles.push_back(half + root);
      poles.push_back(half - root);
    } else {
      poles.push_back(highpass ? low / p : low * p);
    }
  }
  for (Complex& p : poles) p = (4.0 + p) / (4.0 - p);
  // Conjugate poles share a section; so do two real ones.
  std::vector<Section> sections;
  std::vector<double> real;
  const double z0 = highpass || band ? 1 : -1, z1 = band ? -1 : z0;
  for (const Complex p : poles) {
    if (std::abs(p.imag()) <= 1e-14 * std::abs(p)) {
      real.push_back(p.real());
    } else if (p.imag() > 0) {
      sections.push_back(section_of(p, std::conj(p), z0, z1));
    }
  }
  for (std::size_t i = 0; i + 1 < real.size(); i += 2)
    sections.push_back(section_of(real[i], real[i + 1], z0, z1));
  if (real.size() % 2 == 1) sections.push_back(section_of(real.back(), 0, z0, 0));
  const double centre = band ? 2 * std::atan(std::sqrt(low * high) / 4) : highpass ? pi : 0;
  const double gain = std::abs(response(sections, centre)) / passed;
  for (int i = 0; i < 3; ++i) sections.front()[static_cast<std::size_t>(i)] /= gain;
  return sections;
}

}  // namespace

Tensor firwin(std::int64_t taps, std::span<const double> cutoffs, double sample_rate,
              bool pass_zero, Window kind, double parameter) {
  check_cutoffs(cutoffs, sample_rate);
  if (taps < 1) throw Exception(bad_input("A filter of ({}) taps is none.", taps));
  const auto bands = passing_bands(cutoffs, sample_rate, pass_zero);
  if (taps % 2 == 0 && bands.back().second == 1) {
    throw Exception(bad_input(
        "A filter of an even number ({}) of taps cannot pass half the sample rate.", taps));
  }
  const Tensor weights = window(kind, taps, false, parameter);
  const auto [left, right] = bands.front();
  const double at = left == 0 ? 0 : right == 1 ? 1 : (left + right) / 2;
  std::vector<double> h;
  double gain = 0;
  for (std::int64_t n = 0; n < taps; ++n) {
    const double m = static_cast<double>(n) - static_cast<double>(taps - 1) / 2;
    double value = 0;
    for (const auto& [low, high] : bands) value += high * sinc(high * m) - low * sinc(low * m);
    value *= weights.as<double>()[static_cast<std::size_t>(n)];
    h.push_back(value);
    gain += value * std::cos(pi * m * at);
  }
  for (double& value : h) value /= gain;
  return Tensor::of<double>({taps}, std::span<const double>(h));
}

std::vector<Section> butterworth(int order, std::span<const double> cutoffs, double sample_rate,
                                 bool highpass) {
  check_order(order, cutoffs, sample_rate, highpass);
  return sections_of(circle_of_poles(order), 1, cutoffs, sample_rate, highpass);
}

std::vector<Section> chebyshev(int order, double ripple, std::span<const double> cutoffs,
                               double sample_rate, bool highpass) {
  check_order(order, cutoffs, sample_rate, highpass);
  if (!(ripple > 0) || !(ripple < 1000))
    throw Exception(bad_input("A ripple of ({}) decibels is none.", ripple));
  // The circle of poles becomes an ellipse.
  const double bend = std::asinh(1 / std::sqrt(std::expm1(ripple / 10 * std::log(10)))) / order;
  std::vector<Complex> poles = circle_of_poles(order);
  for (Complex& p : poles) p = {p.real() * std::sinh(bend), p.imag() * std::cosh(bend)};
  // Filters of an even order ripple downwards at 0 Hz.
  const double passed = order % 2 == 0 ? std::pow(10, -ripple / 20) : 1;
  return sections_of(poles, passed, cutoffs, sample_rate, highpass);
}

}  // namespace rlx
