// Winograd's minimal filtering F(m x m, 3x3) by interpolation at 0, +-p for each p of a list, and
// infinity (Lavin and Gray, arXiv 1509.09308): what its passes and ops share. With stride 2 the
// even pixels of a line meet two taps and the odd ones one: F(2, 2) of the former and the products
// of the latter, 5 multiplications for 2 outputs, and neither factors nor differences of sums.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "rlx/ops.hpp"

namespace rlx::op {

/// An op that users do not write: the winograd pass makes it, weights are prepared by it. Filters w
/// [K, C, 3, 3] as the points of F(outputs x outputs, 3x3) want them, [n * n, C, K] with n =
/// winograd::side: result[n * i + j] of a pair of channels is entry (i, j) of G g G^T, taken in
/// f64. A row of G is (1, x, x^2) / N(x) for an interpolation point x, where N(x) is the product of
/// its distances from the others, and (0, 0, 1) for infinity. With stride 2 its rows are (1, 0, 0),
/// (1, 0, 1), (0, 0, 1), and (0, 1, 0) twice. f32, of f16 or bf16 too; or, with outputs 2 and
/// stride 1, u8, i8 or i16, of which the results are i16, four times as large: G has halves.
struct WinogradFilters {
  std::int64_t outputs = 2;  ///< 2, or 4 with stride 1
  std::int64_t stride = 1;   ///< 1 or 2
};

/// Made by the same pass: the points B^T d B of every tile d of n x n pixels, n = winograd::side,
/// of channels-last images x [N, H, W, C] with zeros around them, whose tiles begin outputs *
/// stride pixels apart: with their zeros H and W are whole multiples of that, and 3 - stride more.
/// The result [n * n, N * tiles, C] is what winograd_filters multiply. f32; or i16 with outputs 2
/// and stride 1.
struct WinogradImage {
  std::int64_t outputs = 2;          ///< 2, or 4 with stride 1
  std::int64_t stride = 1;           ///< 1 or 2
  Axes low = {0, 0}, high = {0, 0};  ///< rows and columns of zeros before and behind
};

/// Made by the same pass: A^T m A for the products m [n * n, N * rows * columns, K] of every tile,
/// n = winograd::side, put together: images [N, rows * outputs - cut[0], columns * outputs -
/// cut[1], K]. f32; or i32 with outputs 2 and stride 1, 2^winograd::integer_shift times the
/// convolution's sums.
struct WinogradOutputs {
  std::int64_t outputs = 2;            ///< 2, or 4 with stride 1
  std::int64_t rows = 1, columns = 1;  ///< of tiles in an image
  std::int64_t stride = 1;             ///< 1 or 2
  Axes cut = {0, 0};  ///< last rows and columns of the last tiles that are left out
  /// Points, products and pixels are best made by the same worker, a row of tiles at a time. A
  /// matter of time alone, chosen with the form.
  bool by_rows = false;
};

}  // namespace rlx::op

namespace rlx::winograd {

inline constexpr std::int64_t taps = 3;

/// Pixels of a tile along one axis, and as many points.
constexpr std::int64_t side(std::int64_t outputs, std::int64_t stride) {
  return (outputs - 1) * stride + taps;
}

/// Whole tiles along an axis of so many pixels.
constexpr std::int64_t tiles_along(std::int64_t pixels, std::int64_t outputs, std::int64_t stride) {
  return (pixels - taps + stride) / (outputs * stride);
}

/// Rows and columns of tiles of images x [N, H, W, C].
inline std::array<std::int64_t, 2> tiles_of(const op::WinogradImage& image, const Dims& x) {
  const auto along = [&](std::size_t axis) {
    return tiles_along(x[axis + 1] + image.low[axis] + image.high[axis], image.outputs,
                       image.stride);
  };
  return {along(0), along(1)};
}

/// The points of integers, and sums of their products, are 2 to this times those of the formula.
inline constexpr int integer_shift = 2;

/// The p of F(m x m, 3x3), for m = 2 and 4. With 5/8 and 3/2 errors are less than half those of the
/// usual 1 and 2, and f32 holds all factors of the transforms of images and results.
inline std::span<const double> magnitudes(std::int64_t outputs) {
  static constexpr double of_2[] = {1}, of_4[] = {0.625, 1.5};
  return outputs == 2 ? std::span<const double>(of_2) : std::span<const double>(of_4);
}

/// Largest error beside the deviation of all results, images positive: see docs/adr/0031.
inline constexpr std::string_view error_of(std::int64_t outputs) {
  return outputs == 2 ? "2.4e-6" : "1.3e-5";
}

/// Coefficients of the product of (z - p^2) over all p but number `without`, that of z^0 first.
inline std::vector<double> polynomial(std::span<const double> magnitudes, std::size_t without) {
  std::vector<double> product{1};
  for (std::size_t i = 0; i < magnitudes.size(); ++i) {
    if (i == without) continue;
    product.insert(product.begin(), 0);
    for (std::size_t k = 0; k + 1 < product.size(); ++k)
      product[k] -= magnitudes[i] * magnitudes[i] * product[k + 1];
  }
  return product;
}

inline std::vector<double> polynomial(std::span<const double> magnitudes) {
  return polynomial(magnitudes, magnitudes.size());
}

/// The matrix G of so many taps: (1, x, x^2, ..) / N(x) for each of the points 0 and +-p, where
/// N(x) is the product of a finite point's distances from the other ones, and (.., 0, 1) for
/// infinity.
inline std::vector<std::vector<double>> filter_rows(std::span<const double> magnitudes,
                                                    bool infinity, std::size_t taps) {
  const auto row = [&](double x, double distances) {
    std::vector<double> powers(taps, 0);
    double power = 1;
    for (double& entry : powers) {
      entry = power / distances;
      power *= x;
    }
    return powers;
  };
  std::vector<std::vector<double>> rows{row(0, polynomial(magnitudes)[0])};
  for (const double p : magnitudes) {
    double distances = 2 * p * p;
    for (const double other : magnitudes)
      if (other != p) distances *= p * p - other * other;
    rows.push_back(row(p, distances));
    rows.push_back(row(-p, distances));
  }
  if (infinity) {
    rows.emplace_back(taps, 0);
    rows.back().back() = 1;
  }
  return rows;
}

/// The transforms of one line for values of a type V: numbers, or expressions of a kernel.
template <class V>
class LineTransforms {
 public:
  using Line = std::vector<V>;

  LineTransforms(std::int64_t outputs, std::span<const double> magnitudes, bool infinity)
      : outputs_(static_cast<std::size_t>(outputs)), magnitudes_(magnitudes), infinity_(infinity) {}

  /// B^T d. The row of a point x holds the coefficients of the product of all (t - y) for the other
  /// points y; those of p and -p have the same even and odd parts. Zero takes the first even part
  /// along, infinity the last odd one.
  Line image(const Line& d) const {
    Line pairs;
    std::optional<V> zero, infinity;
    for (std::size_t i = 0; i < magnitudes_.size(); ++i) {
      const double p = magnitudes_[i];
      const std::vector<double> others = polynomial(magnitudes_, i);
      const V even = evaluated(others, d, 2), odd = evaluated(others, d, 1);
      if (!zero) zero = plus(even, -p * p, evaluated(others, d, 0));
      if (infinity_ && i + 1 == magnitudes_.size())
        infinity = plus(evaluated(others, d, 3), -p * p, odd);
      pairs.push_back(plus(even, p, odd));
      pairs.push_back(plus(even, -p, odd));
    }
    Line points{*zero};
    points.insert(points.end(), pairs.begin(), pairs.end());
    if (infinity) points.push_back(*infinity);
    return points;
  }

  /// A^T m, the outputs: output i is the sum of x^i m over the points x.
  Line outputs(const Line& m) const {
    Line even, odd;  // of p and -p
    for (std::size_t k = 1; k <= 2 * magnitudes_.size(); k += 2) {
      even.push_back(plus(m[k], 1, m[k + 1]));
      odd.push_back(plus(m[k], -1, m[k + 1]));
    }
    Line results;
    for (std::size_t i = 0; i < outputs_; ++i) {
      const Line& pairs = i % 2 == 0 ? even : odd;
      const auto factor = [&](std::size_t k) {
        return std::pow(magnitudes_[k], static_cast<double>(i));
      };
      V sum = scaled(factor(0), pairs[0]);
      for (std::size_t k = 1; k < pairs.size(); ++k) sum = plus(sum, factor(k), pairs[k]);
      if (i == 0) sum = plus(sum, 1, m[0]);
      if (infinity_ && i + 1 == outputs_) sum = plus(sum, 1, m.back());
      results.push_back(sum);
    }
    return results;
  }

  /// sum + factor * x.
  static V plus(const V& sum, double factor, const V& x) {
    return static_cast<V>(factor < 0 ? sum - scaled(-factor, x) : sum + scaled(factor, x));
  }

 private:
  static V scaled(double factor, const V& x) {
    if (factor == 1) return x;
    if constexpr (std::is_arithmetic_v<V>) return static_cast<V>(static_cast<V>(factor) * x);
    else return x * factor;
  }

  /// The polynomial, whose last coefficient is 1, with d[first + 2k] for z^k.
  static V evaluated(const std::vector<double>& polynomial, const Line& d, std::size_t first) {
    std::size_t k = polynomial.size() - 1;
    V sum = d[first + 2 * k];
    while (k-- > 0) sum = plus(sum, polynomial[k], d[first + 2 * k]);
    return sum;
  }

  const std::size_t outputs_;
  const std::span<const double> magnitudes_;
  const bool infinity_;
};

/// The transforms of images and results, both ways of a tile.
template <class V>
class Transforms {
 public:
  using Line = std::vector<V>;
  using Square = std::vector<Line>;

  Transforms(std::int64_t outputs, std::int64_t stride)
      : line_(outputs, winograd::magnitudes(outputs), true), stride_(stride) {}

  /// B^T d of one line.
  Line image(const Line& d) const {
    if (stride_ == 1) return line_.image(d);
    return {difference(d[0], d[2]), d[2], difference(d[4], d[2]), d[1], d[3]};
  }
  /// A^T m of one line.
  Line outputs(const Line& m) const {
    if (stride_ == 1) return line_.outputs(m);
    return {sum(sum(m[0], m[1]), m[3]), sum(sum(m[1], m[2]), m[4])};
  }

  /// B^T d B of a tile of the image.
  Square image(const Square& d) const {
    return both_ways(d, [&](const Line& line) { return image(line); });
  }

  /// A^T m A of the products of a tile.
  Square outputs(const Square& m) const {
    return both_ways(m, [&](const Line& line) { return outputs(line); });
  }

 private:
  static V sum(const V& a, const V& b) { return LineTransforms<V>::plus(a, 1, b); }
  static V difference(const V& a, const V& b) { return LineTransforms<V>::plus(a, -1, b); }

  /// The transform along the columns, then along the rows.
  template <class Transform>
  static Square both_ways(const Square& square, const Transform& transform) {
    Square half, whole;
    for (std::size_t j = 0; j < square.size(); ++j) {
      Line column;
      for (const Line& row : square) column.push_back(row[j]);
      const Line made = transform(column);
      half.resize(made.size());
      for (std::size_t i = 0; i < made.size(); ++i) half[i].push_back(made[i]);
    }
    for (const Line& row : half) whole.push_back(transform(row));
    return whole;
  }

  const LineTransforms<V> line_;
  const std::int64_t stride_;
};

}  // namespace rlx::winograd
