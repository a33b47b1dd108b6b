// Minimal filtering F(m, r) of lines (docs/adr/0067): convolutions along one axis with r taps, or a
// multiple of r, by interpolation at 0, +-p for each p of a list, and infinity where the points are
// even. What its pass and ops share; the transforms of a line are those of winograd.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "graph/winograd.hpp"

namespace rlx::op {

/// An op that users do not write: the line_points pass makes it. Lines along `axis` of
/// channels-last values x [.., W, .., C], with zeros around them, of which taps meet every
/// dilation-th place: the points B^T d of every piece d of so many such places as a tile has
/// points; pieces begin `outputs` of them apart. The result is [.., tiles, dilation, .., points *
/// C], the channels of a point side by side. With its zeros W is dilation * (outputs * tiles + taps
/// - 1). f32.
struct LinePoints {
  std::int64_t axis = 1;
  std::int64_t outputs = 4, taps = 4;  ///< one of lines::tiles
  std::int64_t dilation = 1;
  std::int64_t low = 0, high = 0;  ///< zeros before and behind
};

/// Made by the same pass, weights are prepared by it: filters w [K, C, ..] as the convolution of
/// points wants them. The taps along spatial axis `axis`, with `delay` zeros before the first one,
/// lie in pixels of `stride` taps, of which the first `phases` are kept, and these in parts of
/// `taps` pixels; a part has the points G g. The result is [.., parts, 1, .., phases * C, points *
/// K], the filters of a point side by side. f32, taken in f64.
struct LineFilters {
  std::int64_t axis = 0;
  std::int64_t outputs = 4, taps = 4;  ///< as of the points
  std::int64_t stride = 1;
  std::int64_t delay = 0;   ///< less than the stride
  std::int64_t phases = 1;  ///< up to the stride
};

/// Made by the same pass: the results A^T m of the products m [.., tiles, dilation, .., points * K]
/// of every tile, put together: [.., dilation * outputs * tiles - cut, .., K]. f32.
struct LineOutputs {
  std::int64_t axis = 1;
  std::int64_t outputs = 4, taps = 4;  ///< as of the points
  std::int64_t cut = 0;  ///< last results that are left out, fewer than those of a tile
};

}  // namespace rlx::op

namespace rlx::lines {

/// Results of a tile, and taps of a filter or of each of its parts.
struct Tile {
  std::int64_t outputs, taps;

  /// Pixels that a tile reads, and as many points.
  constexpr std::int64_t points() const { return outputs + taps - 1; }
  bool operator==(const Tile&) const = default;
};

/// Filters of 2 to 5 taps, or of any number in parts that are as long as tiles, which then share
/// the points. Those that err less come first; F(5, 5) would err twice as much as any other.
inline constexpr std::array<Tile, 5> tiles{{{4, 2}, {4, 3}, {3, 3}, {4, 4}, {4, 5}}};

/// The p of the points. No choice among thirteen magnitudes between 1/4 and 3 has errors that are
/// much smaller, and f32 holds all factors of the transforms of lines and results.
inline std::span<const double> magnitudes(const Tile& tile) {
  static constexpr double of_5[] = {0.75, 2}, of_6[] = {0.625, 1.5}, of_7[] = {0.625, 1.25, 3},
                          of_8[] = {0.5, 1, 2};
  static constexpr std::array<std::span<const double>, 4> by_points{of_5, of_6, of_7, of_8};
  return by_points[static_cast<std::size_t>(tile.points() - 5)];
}

constexpr bool has_infinity(const Tile& tile) { return tile.points() % 2 == 0; }

/// Largest error beside the deviation of all results, images positive: see docs/adr/0067.
inline std::string_view error_of(const Tile& tile) {
  static constexpr std::array<std::string_view, 4> by_points{"8e-6", "5e-6", "1.3e-5", "7e-6"};
  return by_points[static_cast<std::size_t>(tile.points() - 5)];
}

template <class V>
winograd::LineTransforms<V> transforms(const Tile& tile) {
  return {tile.outputs, magnitudes(tile), has_infinity(tile)};
}

/// The matrix G [points, taps].
inline std::vector<std::vector<double>> filter_rows(const Tile& tile) {
  return winograd::filter_rows(magnitudes(tile), has_infinity(tile),
                               static_cast<std::size_t>(tile.taps));
}

}  // namespace rlx::lines
