// Winograd's transforms of tiles, and those of lines.
#include "plan/transforms.hpp"

#include "codegen/machine.hpp"
#include "graph/line_points.hpp"
#include "graph/winograd.hpp"
#include "rlx/ops.hpp"

namespace rlx::plan {
namespace {

using Strides = std::vector<std::int64_t>;
using Values = Pass::Values;

/// A guard where a value of the first point, or that of the last one, lies outside of so many.
void add_guard(std::int64_t first, std::int64_t last, std::int64_t extent, Strides coefficients,
               std::vector<loop::Guard>& guards) {
  if (first >= 0 && last < extent) return;
  guards.push_back({.offset = first, .extent = extent, .coefficients = std::move(coefficients)});
}

/// Pixels [N, H, W, C] and points [n * n, tiles, C].
struct Tiles {
  using Transforms = winograd::Transforms<ScalarValue>;

  std::int64_t outputs = 0, stride = 1;
  std::int64_t apart = 0;  ///< from a tile to the next one, in pixels
  std::int64_t images = 0, rows = 0, columns = 0, channels = 0;
  std::int64_t height = 0, width = 0;  ///< of an image, in pixels
  std::int64_t above = 0, left = 0;    ///< zeros before the first pixels
  std::int64_t strips = 1;             ///< of a row of tiles
  std::int64_t passes = 1;             ///< of an image
  std::int64_t blocks = 1;             ///< of channels, where there are two passes
  bool one_strip = false;              ///< points are those of one strip at a time

  std::int64_t side() const { return winograd::side(outputs, stride); }
  /// Pixels from a strip to the next one, and those that its tiles read.
  std::int64_t strip() const { return columns * apart; }
  std::int64_t reach() const { return strip() - apart + side(); }

  /// Strips of so many columns of tiles, the last of which may reach behind the image.
  void cut_into_strips(std::int64_t of_columns) {
    strips = (columns + of_columns - 1) / of_columns;
    columns = of_columns;
    one_strip = true;
  }

  Transform image() const {
    if (passes == 2) return image_in_two_passes();
    return in_one_pass(side(), pixels(side()), points(), [*this](const Transforms::Square& tile) {
      return Transforms(outputs, stride).image(tile);
    });
  }
  Transform results() const {
    return in_one_pass(side(), points(), pixels(outputs), [*this](const Transforms::Square& tile) {
      return Transforms(outputs, stride).outputs(tile);
    });
  }

 private:
  using OfTile = std::function<Transforms::Square(const Transforms::Square&)>;

  static std::int64_t at(std::size_t k) { return static_cast<std::int64_t>(k); }

  Transform in_one_pass(std::int64_t n, Side from, Side to, OfTile of_tile) const;
  Side pixels(std::int64_t n) const;
  Side points() const;

  Transform image_in_two_passes() const;
  Side columns_of_pixels() const;
  Side rows_of_points() const;
};

// One pass runs over (image, row of tiles, strip of that row, column of the tile in its strip,
// channel) and reads n x n values.
Transform Tiles::in_one_pass(std::int64_t n, Side from, Side to, OfTile of_tile) const {
  const auto of_values = [n, of_tile = std::move(of_tile)](const Values& values) {
    Transforms::Square tile;
    for (auto row = values.begin(); row != values.end(); row += n) tile.emplace_back(row, row + n);
    Values made;
    for (const Values& row : of_tile(tile)) made.insert(made.end(), row.begin(), row.end());
    return made;
  };
  const auto count = static_cast<std::size_t>(n * n);
  return {{{{images, rows, strips, columns, channels},
            count,
            of_values,
            std::move(from),
            std::move(to)}},
          one_strip ? 3 : 0,
          {}};
}

/// Those of tiles of n x n.
Side Tiles::pixels(std::int64_t n) const {
  return {.over =
              [*this](const Strides& s) {
                return Strides{s[0], s[1] * apart, s[2] * strip(), s[2] * apart, s[3]};
              },
          .place = [*this,
                    n](std::size_t k) { return Dims{0, at(k) / n - above, at(k) % n - left, 0}; },
          .guards =
              [*this, n](std::size_t k) {
                std::vector<loop::Guard> guards;
                const std::int64_t top = at(k) / n - above, first = at(k) % n - left;
                add_guard(top, top + (rows - 1) * apart, height, {0, apart, 0, 0, 0}, guards);
                add_guard(first, first + (strips * columns - 1) * apart, width,
                          {0, 0, strip(), apart, 0}, guards);
                return guards;
              }};
}

Side Tiles::points() const {
  return {.over =
              [*this](const Strides& s) {
                const std::int64_t row = one_strip ? 0 : s[1] * columns;
                return Strides{row * rows, row, 0, s[1], s[2]};
              },
          .place = [](std::size_t k) { return Dims{at(k), 0, 0}; }};
}

// Two passes run over (image, row of tiles, strip of that row, block of channels | line, place
// along it, channel). Halves are [line, pixel of the strip, channel of the block].
Transform Tiles::image_in_two_passes() const {
  const std::int64_t channels_of_block = channels / blocks;
  const auto extents = [&](std::int64_t lines, std::int64_t places) {
    return Dims{images, rows, strips, blocks, lines, places, channels_of_block};
  };
  const auto of_line = [transforms = Transforms(outputs, stride)](const Values& line) {
    return transforms.image(line);
  };
  const Side columns_of_halves{
      .over = [](const Strides& s) { return Strides{0, 0, 0, 0, 0, s[1], s[2]}; },
      .place = [](std::size_t k) { return Dims{at(k), 0, 0}; }};
  const Side rows_of_halves{
      .over = [*this](const Strides& s) { return Strides{0, 0, 0, 0, s[0], s[1] * apart, s[2]}; },
      .place = [](std::size_t k) { return Dims{0, at(k), 0}; }};
  const auto count = static_cast<std::size_t>(side());
  return {{{extents(1, reach()), count, of_line, columns_of_pixels(), columns_of_halves},
           {extents(side(), columns), count, of_line, rows_of_halves, rows_of_points()}},
          4,
          {side(), reach(), channels_of_block}};
}

Side Tiles::columns_of_pixels() const {
  return {.over =
              [*this](const Strides& s) {
                const std::int64_t block = s[3] * (channels / blocks);
                return Strides{s[0], s[1] * apart, s[2] * strip(), block, 0, s[2], s[3]};
              },
          .place = [*this](std::size_t k) { return Dims{0, at(k) - above, -left, 0}; },
          .guards =
              [*this](std::size_t k) {
                std::vector<loop::Guard> guards;
                const std::int64_t top = at(k) - above;
                add_guard(top, top + (rows - 1) * apart, height, {0, apart, 0, 0, 0, 0, 0}, guards);
                add_guard(-left, (strips - 1) * strip() + reach() - 1 - left, width,
                          {0, 0, strip(), 0, 0, 1, 0}, guards);
                return guards;
              }};
}

Side Tiles::rows_of_points() const {
  return {.over =
              [*this](const Strides& s) {
                const std::int64_t row = one_strip ? 0 : s[1] * columns,
                                   block = s[2] * (channels / blocks);
                return Strides{row * rows, row, 0, block, s[0] * side(), s[1], s[2]};
              },
          .place = [](std::size_t k) { return Dims{at(k), 0, 0}; }};
}

Tiles tiles_of(const Op& op, const Dims& read, const Dims& written) {
  Tiles tiles;
  if (const auto* made = op.as<op::WinogradOutputs>()) {
    tiles.outputs = tiles.apart = made->outputs;
    tiles.stride = made->stride;
    tiles.rows = made->rows;
    tiles.columns = made->columns;
  } else {
    const auto& image = *op.as<op::WinogradImage>();
    const auto [rows, columns] = winograd::tiles_of(image, read);
    tiles.outputs = image.outputs;
    tiles.stride = image.stride;
    tiles.apart = image.outputs * image.stride;
    tiles.rows = rows;
    tiles.columns = columns;
    tiles.above = image.low[0];
    tiles.left = image.low[1];
  }
  const Dims& images = op.is<op::WinogradOutputs>() ? written : read;
  tiles.images = images[0];
  tiles.height = images[1];
  tiles.width = images[2];
  tiles.channels = images[3];
  return tiles;
}

/// Pixels [.., W, .., C] and points [.., tiles, dilation, .., n * C]. Kernels run over the points'
/// axes, but over the channels of one point.
struct LineTiles {
  lines::Tile tile{};
  std::size_t axis = 0;
  std::int64_t before = 0;  ///< zeros before the first pixels
  std::int64_t width = 0;   ///< of a line, in pixels
  Dims domain;

  Transform image() const {
    return {{{domain, count(),
              [tile = tile](const Values& line) {
                return lines::transforms<ScalarValue>(tile).image(line);
              },
              pixels(), points()}}};
  }
  Transform results() const {
    return {{{domain, count(),
              [tile = tile](const Values& line) {
                return lines::transforms<ScalarValue>(tile).outputs(line);
              },
              points(), pixels()}}};
  }

 private:
  std::int64_t dilation() const { return domain[axis + 1]; }
  std::int64_t apart() const { return tile.outputs * dilation(); }
  std::size_t count() const { return static_cast<std::size_t>(tile.points()); }

  Side pixels() const {
    const auto column = [*this](std::size_t k) {
      return static_cast<std::int64_t>(k) * dilation() - before;
    };
    return {.over =
                [*this](Strides strides) {
                  const auto at = strides.begin() + static_cast<std::ptrdiff_t>(axis);
                  strides.insert(at, strides[axis] * apart());
                  return strides;
                },
            .place =
                [*this, column](std::size_t k) {
                  Dims place(domain.size() - 1, 0);
                  place[axis] = column(k);
                  return place;
                },
            .guards =
                [*this, column](std::size_t k) {
                  std::vector<loop::Guard> guards;
                  Strides along(domain.size(), 0);
                  along[axis] = apart();
                  along[axis + 1] = 1;
                  const std::int64_t last = (domain[axis] - 1) * apart() + dilation() - 1;
                  add_guard(column(k), column(k) + last, width, along, guards);
                  return guards;
                }};
  }
  Side points() const {
    return {.over = [](const Strides& strides) { return strides; },
            .place =
                [domain = domain](std::size_t k) {
                  Dims place(domain.size(), 0);
                  place.back() = static_cast<std::int64_t>(k) * domain.back();
                  return place;
                }};
  }
};

LineTiles line_tiles_of(const Op& op, const Dims& read, const Dims& written) {
  LineTiles lines;
  if (const auto* made = op.as<op::LineOutputs>()) {
    lines.tile = {made->outputs, made->taps};
    lines.axis = static_cast<std::size_t>(made->axis);
    lines.before = 0;
    lines.width = written[lines.axis];
    lines.domain = read;
    lines.domain.back() = written.back();
  } else {
    const auto& image = *op.as<op::LinePoints>();
    lines.tile = {image.outputs, image.taps};
    lines.axis = static_cast<std::size_t>(image.axis);
    lines.before = image.low;
    lines.width = read[lines.axis];
    lines.domain = written;
    lines.domain.back() = read.back();
  }
  return lines;
}

/// Tiles of more than twice as many pixels as there are registers are mostly in memory anyway. In
/// two passes those that overlap share the halves of their columns, and points are written along
/// few planes at a time.
std::int64_t passes_of(const Tiles& tiles, const codegen::Machine& machine) {
  return tiles.side() * tiles.side() > 2 * std::int64_t{machine.registers} ? 2 : 1;
}

/// Blocks of channels, whole lines of them: so many that workers share out rows of tiles evenly and
/// what the first of two passes hands on stays in a core's L2.
std::int64_t blocks_of(const Tiles& tiles, int threads, std::int64_t l2_bytes) {
  constexpr std::int64_t line = 16, fewest = 32;
  constexpr double even = 0.95, own = 0.4;
  const double halves = static_cast<double>(tiles.side() * tiles.reach() * tiles.channels *
                                            std::int64_t{sizeof(float)});
  std::int64_t best = 1;
  for (std::int64_t blocks = 1; tiles.channels / blocks >= fewest; ++blocks) {
    if (tiles.channels % (blocks * line) != 0) continue;
    best = blocks;
    const std::int64_t items = tiles.images * tiles.rows * blocks,
                       most = (items + threads - 1) / threads;
    const bool shares_out =
        static_cast<double>(items) >= even * static_cast<double>(most * threads);
    const bool stays = halves / static_cast<double>(blocks) <= own * static_cast<double>(l2_bytes);
    if (shares_out && stays) break;
  }
  return best;
}

}  // namespace

bool reads_pixels(const Op& op) { return op.is<op::WinogradImage>() || op.is<op::LinePoints>(); }

Transform transform_of(const Op& op, const Dims& read, const Dims& written,
                       std::int64_t strip_columns, const BuildOptions& options) {
  if (op.is<op::LinePoints>() || op.is<op::LineOutputs>()) {
    const LineTiles lines = line_tiles_of(op, read, written);
    return reads_pixels(op) ? lines.image() : lines.results();
  }
  Tiles tiles = tiles_of(op, read, written);
  tiles.passes = passes_of(tiles, codegen::machine_of(options.target));
  if (strip_columns > 0) {
    tiles.cut_into_strips(strip_columns);
  } else if (reads_pixels(op) && tiles.passes == 2) {
    tiles.blocks = blocks_of(tiles, options.threads, options.model.cache_bytes[1]);
  }
  return reads_pixels(op) ? tiles.image() : tiles.results();
}

}  // namespace rlx::plan
