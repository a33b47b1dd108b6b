// Winograd's minimal filtering F(m x m, 3x3) by interpolation at 0, +-p for each p of a list, and
// infinity (Lavin and Gray, arXiv 1509.09308): what its passes and ops share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace rlx::op {

/// An op that users do not write: the winograd pass makes it, weights are prepared by it. Filters w
/// [K, C, 3, 3] as the points of F(outputs x outputs, 3x3) want them, [n * n, C, K] with n =
/// outputs + 2: result[n * i + j] of a pair of channels is entry (i, j) of G g G^T, taken in f64.
/// A row of G is (1, x, x^2) / N(x) for an interpolation point x, where N(x) is the product of its
/// distances from the others, and (0, 0, 1) for infinity. f32, of f16 or bf16 too; or u8, i8 or i16
/// with outputs 2, of which the results are i16, four times as large: G has halves.
struct WinogradFilters {
  std::int64_t outputs = 2;  ///< 2 or 4
};

}  // namespace rlx::op

namespace rlx::winograd {

inline constexpr std::int64_t taps = 3;

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

}  // namespace rlx::winograd
