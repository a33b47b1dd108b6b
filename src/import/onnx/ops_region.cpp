// Regions of images: DeformConv, RoiAlign.
#include <algorithm>

#include "import/onnx/build.hpp"
#include "import/onnx/families.hpp"
#include "import/onnx/sample.hpp"
#include "import/onnx/windows.hpp"

namespace rlx::onnx {
namespace {

// ---- DeformConv ---------------------------------------------------------------------------------

struct Deformed {
  Value x, offset, mask;  ///< mask may be left out
  Windows windows;
  Axes out;  ///< spatial size of the result
  std::int64_t groups = 1, offset_groups = 1, places = 1;
};

// Places of the window's taps along one spatial axis, [taps, out...], without offsets.
Value regular_places(NodeContext& c, const Deformed& d, std::size_t axis) {
  Shape all = to_shape(d.windows.sizes);
  for (const auto n : d.out) all.emplace_back(n);
  const auto tap = static_cast<std::int64_t>(axis);
  const auto step = tap + static_cast<std::int64_t>(d.out.size());
  const auto number = [&](std::int64_t v) { return c.scalar(f32, static_cast<double>(v)); };
  return c.add(op::Iota{f32, all, step}, {}) * number(d.windows.strides[axis]) +
         c.add(op::Iota{f32, all, tap}, {}) * number(d.windows.dilations[axis]) -
         number(d.windows.pad_low[axis]);
}

// The pixels of one offset group under all taps: [N, C / groups, taps * out].
Value sampled(NodeContext& c, const Deformed& d, std::int64_t group) {
  const auto channels = static_dim(d.x, 1) / d.offset_groups;
  const auto spatial = static_cast<std::int64_t>(d.out.size());
  const Dim points = Dim(d.places) * product_of(to_shape(d.out));
  const Shape& s = d.x.shape();
  const Value image = slice_axis(d.x, 1, group * channels, (group + 1) * channels);
  const auto first = group * d.places * spatial;
  const Value offsets = slice_axis(d.offset, 1, first, first + d.places * spatial);
  const Value apart =
      reshape(cast(offsets, f32), {s[0], d.places, spatial, product_of(to_shape(d.out))});
  std::vector<std::vector<Neighbour>> axes;
  for (std::int64_t i = 0; i < spatial; ++i) {
    const Value moved = reshape(slice_axis(apart, 2, i, i + 1), {s[0], points});
    const Value place =
        moved + reshape(regular_places(c, d, static_cast<std::size_t>(i)), {1, points});
    axes.push_back(neighbours(c, place, "linear", {.size = static_dim(d.x, i + 2)}));
  }
  Value pixels = weighted_pixels(c, cast(image, f32), axes);
  if (d.mask) {
    const Value mask = slice_axis(d.mask, 1, group * d.places, (group + 1) * d.places);
    pixels = pixels * reshape(cast(mask, f32), {s[0], 1, points});
  }
  return pixels;
}

void deform_conv(NodeContext& c) {
  Deformed d;
  d.x = c.in(0);
  const Value w = c.in(1);
  d.offset = c.in(2);
  d.mask = c.optional(4);
  d.windows = windows_of(c, d.x, w.shape());
  d.groups = c.integer("group", 1);
  d.offset_groups = c.integer("offset_group", 1);
  const auto channels = static_dim(d.x, 1), results = static_dim(w, 0);
  if (d.groups <= 0 || d.offset_groups <= 0 || channels % d.offset_groups != 0 ||
      results % d.groups != 0 || d.offset.rank() != d.x.rank()) {
    fail("The groups do not fit ({}) channels.", channels);
  }
  for (std::size_t i = 0; i < d.windows.sizes.size(); ++i) {
    d.places *= d.windows.sizes[i];
    d.out.push_back(static_dim(d.offset, static_cast<std::int64_t>(i) + 2));
  }
  Values parts;
  for (std::int64_t g = 0; g < d.offset_groups; ++g) parts.push_back(sampled(c, d, g));
  const Dim batch = d.x.shape()[0], positions = product_of(to_shape(d.out));
  const Dim taps = Dim(channels / d.groups) * Dim(d.places);
  const Value columns = reshape(concat(parts, 1), {batch, d.groups, taps, positions});
  const Value weights = reshape(cast(w, f32), {1, d.groups, results / d.groups, taps});
  Shape shape{batch, results};
  for (const auto n : d.out) shape.emplace_back(n);
  Value y = reshape(matmul(weights, columns), shape);
  if (c.has(3)) {
    Shape along_channels(shape.size(), Dim(1));
    along_channels[1] = results;
    y = y + reshape(cast(c.in(3), f32), along_channels);
  }
  c.set(cast(y, d.x.dtype()));
}

// ---- RoiAlign -----------------------------------------------------------------------------------

struct Region {
  Value start, size;  ///< [R, 1]
};

// Sampling places along one axis, [R, bins * samples].
Value region_places(NodeContext& c, const Region& region, std::int64_t bins, std::int64_t samples) {
  const Value index = c.add(op::Iota{f32, {1, bins * samples}, 1}, {});
  const Value step = region.size * c.scalar(f32, 1.0 / static_cast<double>(bins * samples));
  return region.start + (index + c.scalar(f32, 0.5)) * step;
}

// Places up to one pixel outside count as the border, others as nothing.
std::vector<Neighbour> region_neighbours(NodeContext& c, const Value& place, std::int64_t size) {
  const Value inside = logical_and(less_equal(c.scalar(f32, -1), place),
                                   less_equal(place, c.scalar(f32, static_cast<double>(size))));
  const Value last = c.scalar(f32, static_cast<double>(size - 1));
  auto pair = neighbours(c, clamp(place, c.scalar(f32, 0), last), "linear",
                         {.size = size, .outside = Outside::border});
  for (Neighbour& neighbour : pair) {
    neighbour.weight = select(inside, neighbour.weight, c.scalar(f32, 0));
  }
  return pair;
}

// Pixels as rows of channels, so that a sample reads channels side by side. The row of zeros at the
// end makes a dense copy of them: a view would leave each pixel's channels apart.
Value pixel_rows(NodeContext& c, const Value& x) {
  const Shape& s = x.shape();
  const Value rows = reshape(transpose(cast(x, f32), {0, 2, 3, 1}), {s[0] * s[2] * s[3], s[1]});
  return concat({rows, broadcast(c.scalar(f32, 0), {1, s[1]})}, 0);
}

// The bins and samples of all regions: axes (region, bin row, sample row, bin column, sample
// column).
struct RegionGrid {
  Dim regions;
  std::int64_t height = 1, width = 1, samples = 1;
  Shape down() const { return {regions, height, samples, 1, 1}; }
  Shape across() const { return {regions, 1, 1, width, samples}; }
};

// All samples, with the axes of the grid and then channels.
Value region_samples(NodeContext& c, const Value& x, const Value& items, const RegionGrid& grid,
                     const std::vector<Neighbour>& down, const std::vector<Neighbour>& across,
                     bool maximum) {
  const auto number = [&](std::int64_t value) { return c.scalar(i64, static_cast<double>(value)); };
  const std::int64_t height = static_dim(x, 2), width = static_dim(x, 3);
  const Value pixels = pixel_rows(c, x);
  const Value first_row = reshape(cast(items, i64), {grid.regions, 1, 1, 1, 1}) * number(height);
  Shape down_weights = grid.down(), across_weights = grid.across();
  down_weights.emplace_back(1);
  across_weights.emplace_back(1);
  Value total;
  for (const Neighbour& y : down) {
    for (const Neighbour& z : across) {
      const Value place = (first_row + reshape(y.place, grid.down())) * number(width) +
                          reshape(z.place, grid.across());
      const Value term = gather(pixels, place, 0) *
                         (reshape(y.weight, down_weights) * reshape(z.weight, across_weights));
      total = !total ? term : maximum ? max(total, term) : total + term;
    }
  }
  return total;
}

void roi_align(NodeContext& c) {
  const Value x = c.in(0), regions = cast(c.in(1), f32), items = c.in(2);
  const auto height = c.integer("output_height", 1), width = c.integer("output_width", 1);
  const auto samples = c.integer("sampling_ratio", 0);
  const double scale = c.real("spatial_scale", 1);
  const std::string mode = c.text("mode", "avg");
  const std::string transform = c.text("coordinate_transformation_mode",
                                       c.version() < 16 ? "output_half_pixel" : "half_pixel");
  const bool half_pixel = transform == "half_pixel";
  if (mode != "avg" && mode != "max") fail("The mode ({}) is unknown.", mode);
  if (samples <= 0) fail_unsupported("A sampling ratio that data decides is not supported.");
  if (height <= 0 || width <= 0 || x.rank() != 4) fail("The output size does not fit.");
  require_rank(regions, 2);
  const Dim count = regions.shape()[0];
  const auto axis_of = [&](std::int64_t first) {
    const auto edge = [&](std::int64_t column) {
      const Value v = slice_axis(regions, 1, column, column + 1) * c.scalar(f32, scale);
      return half_pixel ? v - c.scalar(f32, 0.5) : v;
    };
    const Value start = edge(first);
    Value size = edge(first + 2) - start;
    if (!half_pixel) size = max(size, c.scalar(f32, 1));
    return Region{start, size};
  };
  const auto down =
      region_neighbours(c, region_places(c, axis_of(1), height, samples), static_dim(x, 2));
  const auto across =
      region_neighbours(c, region_places(c, axis_of(0), width, samples), static_dim(x, 3));
  const RegionGrid grid{count, height, width, samples};
  const Value all = region_samples(c, x, items, grid, down, across, mode == "max");
  const Value bins = mode == "max" ? max_over(all, {2, 4}) : mean(all, {2, 4});
  c.set(cast(transpose(bins, {0, 3, 1, 2}), x.dtype()));
}

constexpr OpEntry entries[] = {{"DeformConv", 19, deform_conv}, {"RoiAlign", 10, roi_align}};

}  // namespace

OpEntries region_entries() { return entries; }

}  // namespace rlx::onnx
