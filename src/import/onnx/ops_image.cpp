// Sampling of images: GridSample, AffineGrid, Col2Im, MaxUnpool.
#include <algorithm>

#include "import/onnx/build.hpp"
#include "import/onnx/families.hpp"
#include "import/onnx/sample.hpp"

namespace rlx::onnx {
namespace {

// [-1, 1] -> places of pixels.
Value denormalized(NodeContext& c, const Value& x, const PixelAxis& axis) {
  const auto size = static_cast<double>(axis.size);
  const Value one = scalar_like(c, x, 1);
  if (axis.align_corners) return (x + one) * scalar_like(c, x, (size - 1) / 2);
  return ((x + one) * scalar_like(c, x, size) - one) * scalar_like(c, x, 0.5);
}

void grid_sample(NodeContext& c) {
  const Value x = c.in(0), grid = c.in(1);
  std::string mode = c.text("mode", c.version() < 20 ? "bilinear" : "linear");
  if (mode == "bilinear") mode = "linear";
  if (mode == "bicubic") mode = "cubic";
  if (mode != "nearest" && mode != "linear" && mode != "cubic") {
    fail("The mode ({}) is unknown.", mode);
  }
  const std::string padding = c.text("padding_mode", "zeros");
  if (padding != "zeros" && padding != "border" && padding != "reflection") {
    fail("The padding ({}) is unknown.", padding);
  }
  const auto spatial = static_cast<std::int64_t>(x.rank()) - 2;
  if (spatial < 1 || grid.rank() != x.rank() || static_dim(grid, -1) != spatial) {
    fail("The grid {} does not fit {}.", grid.type().text(), x.type().text());
  }
  const Shape& g = grid.shape();
  const Shape out(g.begin() + 1, g.end() - 1);
  const Value points = reshape(cast(grid, f32), {g[0], product_of(out), spatial});
  std::vector<std::vector<Neighbour>> axes;
  for (std::int64_t i = 0; i < spatial; ++i) {
    PixelAxis axis{static_dim(x, i + 2), c.flag("align_corners"),
                   padding == "zeros"    ? Outside::zeros
                   : padding == "border" ? Outside::border
                                         : Outside::reflection};
    // The last coordinate of a point is the first of its axes.
    const auto at = spatial - 1 - i;
    const Value coordinate = reshape(slice_axis(points, 2, at, at + 1), {g[0], product_of(out)});
    axes.push_back(neighbours(c, denormalized(c, coordinate, axis), mode, axis));
  }
  const Value wide = cast(x, f32);
  Shape shape{x.shape()[0], x.shape()[1]};
  shape.insert(shape.end(), out.begin(), out.end());
  c.set(cast(reshape(weighted_pixels(c, wide, axes), shape), x.dtype()));
}

// theta [N, r, r+1] times the points (x, y[, z], 1) of a regular grid in [-1, 1].
void affine_grid(NodeContext& c) {
  const Value theta = c.in(0);
  const Axes size = known_or_fail(c, 1, "size");
  const bool align = c.flag("align_corners");
  if (size.size() != 4 && size.size() != 5) fail("The size has ({}) dims.", size.size());
  checked_elements(size, "The grid");
  const auto rank = static_cast<std::int64_t>(size.size()) - 2;
  const Shape shape = to_shape(Axes(size.begin() + 2, size.end()));
  Values coordinates;
  for (std::int64_t i = rank - 1; i >= 0; --i) {
    const auto n = static_cast<double>(size[static_cast<std::size_t>(i) + 2]);
    // Corners lie on pixel centres, or half a pixel outside of them.
    const double step = align ? (n > 1 ? 2 / (n - 1) : 0) : 2 / n;
    const double start = align ? (n > 1 ? -1 : 0) : -1 + step / 2;
    const Value index = c.add(op::Iota{f32, shape, i}, {});
    coordinates.push_back(index * c.scalar(f32, step) + c.scalar(f32, start));
  }
  coordinates.push_back(broadcast(c.scalar(f32, 1), shape));
  Values columns;
  for (const Value& v : coordinates) columns.push_back(reshape(v, {product_of(shape), 1}));
  const Value points = cast(concat(columns, 1), theta.dtype());
  const Value grid = matmul(points, transpose(theta, {0, 2, 1}));
  Shape result{theta.shape()[0]};
  result.insert(result.end(), shape.begin(), shape.end());
  result.emplace_back(rank);
  c.set(reshape(grid, result));
}

// Column (c, kernel place) x block -> image: every element is added at its place.
void col2im(NodeContext& c) {
  const Value x = c.in(0);
  const Axes image = known_or_fail(c, 1, "image shape"), block = known_or_fail(c, 2, "block shape");
  const std::size_t rank = image.size();
  const Axes strides = c.integers("strides", Axes(rank, 1));
  const Axes dilations = c.integers("dilations", Axes(rank, 1));
  const Axes pads = c.integers("pads", Axes(2 * rank, 0));
  if (x.rank() != 3 || rank == 0 || block.size() != rank || strides.size() != rank ||
      dilations.size() != rank || pads.size() != 2 * rank) {
    fail("Shapes and attributes do not fit {}.", x.type().text());
  }
  checked_elements(image, "The image");
  const auto places = checked_elements(block, "The block");
  if (places == 0) fail("The block is empty.");
  // Flat places in the padded image, [block places, positions].
  Value flat = c.scalar(i64, 0);
  Axes padded, counts;
  for (std::size_t i = 0; i < rank; ++i) {
    constexpr std::int64_t most = std::int64_t{1} << 31;
    for (const auto n : {strides[i], dilations[i], pads[i] + 1, pads[i + rank] + 1}) {
      if (n <= 0 || n > most) fail("Strides, dilations or padding are wrong.");
    }
    padded.push_back(image[i] + pads[i] + pads[i + rank]);
    counts.push_back((padded[i] - dilations[i] * (block[i] - 1) - 1) / strides[i] + 1);
  }
  Shape all = to_shape(block);
  for (const auto count : counts) all.emplace_back(std::max<std::int64_t>(count, 0));
  for (std::size_t i = 0; i < rank; ++i) {
    const auto axis = static_cast<std::int64_t>(i);
    const auto number = [&](std::int64_t v) { return c.scalar(i64, static_cast<double>(v)); };
    const Value inside = c.add(op::Iota{i64, all, axis}, {}) * number(dilations[i]);
    const Value outside =
        c.add(op::Iota{i64, all, axis + static_cast<std::int64_t>(rank)}, {}) * number(strides[i]);
    flat = flat * number(padded[i]) + inside + outside;
  }
  const auto channels = static_dim(x, 1) / places;
  const Dim columns = floor_div(product_of(all), Dim(places));
  const Dim total = product_of(to_shape(padded));
  const Value values = reshape(x, {x.shape()[0], channels, Dim(places) * columns});
  const Value index = broadcast(reshape(flat, {1, 1, Dim(places) * columns}), values.shape());
  const Value zeros = broadcast(scalar_like(c, x, 0), {x.shape()[0], channels, total});
  Value result = c.add(op::ScatterElements{2, ScatterMode::add}, {zeros, index, values});
  Shape shape{x.shape()[0], channels};
  for (const auto n : padded) shape.emplace_back(n);
  result = reshape(result, shape);
  Axes starts{0, 0}, limits{op::slice_end, channels};
  for (std::size_t i = 0; i < rank; ++i) {
    starts.push_back(pads[i]);
    limits.push_back(pads[i] + image[i]);
  }
  c.set(slice(result, starts, limits));
}

// Values go back to the places that MaxPool gave; everything else is 0.
void max_unpool(NodeContext& c) {
  const Value x = c.in(0), indices = c.in(1);
  const Axes window = c.integers("kernel_shape");
  const std::size_t rank = window.size();
  const Axes strides = c.integers("strides", Axes(rank, 1)),
             pads = c.integers("pads", Axes(2 * rank, 0));
  if (static_cast<std::size_t>(x.rank()) != rank + 2 || strides.size() != rank ||
      pads.size() != 2 * rank) {
    fail("The window does not fit {}.", x.type().text());
  }
  Shape inferred{x.shape()[0], x.shape()[1]};
  for (std::size_t i = 0; i < rank; ++i) {
    const auto in = static_dim(x, static_cast<std::int64_t>(i) + 2);
    inferred.emplace_back((in - 1) * strides[i] - pads[i] - pads[i + rank] + window[i]);
  }
  Shape shape = inferred;
  if (c.has(2)) {
    shape = to_shape(known_or_fail(c, 2, "output shape"));
    if (shape.size() != inferred.size()) fail("The output shape has ({}) dims.", shape.size());
  }
  const Dim elements = product_of(inferred), count = product_of(x.shape());
  Value result = c.add(op::ScatterElements{0, ScatterMode::assign},
                       {broadcast(scalar_like(c, x, 0), {elements}), reshape(indices, {count}),
                        reshape(x, {count})});
  result = reshape(result, inferred);
  Axes low(shape.size(), 0), high(shape.size(), 0);
  bool larger = false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (!inferred[i].is_static()) continue;  // a batch that is told later
    high[i] = shape[i].value() - inferred[i].value();
    larger |= high[i] != 0;
  }
  c.set(larger ? pad(result, low, high) : result);
}

constexpr OpEntry entries[] = {{"GridSample", 16, grid_sample},
                               {"AffineGrid", 20, affine_grid},
                               {"Col2Im", 18, col2im},
                               {"MaxUnpool", 9, max_unpool}};

}  // namespace

OpEntries image_entries() { return entries; }

}  // namespace rlx::onnx
