// Plan steps of Winograd's transforms of tiles.
#include <numeric>

#include "codegen/machine.hpp"
#include "graph/winograd.hpp"
#include "plan/plan_builder.hpp"
#include "rlx/ops.hpp"

namespace rlx::plan {
namespace {

using Strides = std::vector<std::int64_t>;

/// How the tiles of a transform lie in pixels [N, H, W, C] and in points [n * n, tiles, C]. Kernels
/// run over (image, row and column of the tile, channel).
struct Tiles {
  std::int64_t outputs, stride;
  std::int64_t apart;  ///< from a tile to the next one, in pixels
  std::int64_t images, rows, columns, channels;
  std::int64_t height, width;        ///< of an image, in pixels
  std::int64_t above = 0, left = 0;  ///< zeros before the first pixels

  std::int64_t side() const { return winograd::side(outputs, stride); }  ///< in points

  /// Strides over the axes of pixels or points -> strides over the kernel's domain.
  Strides over(bool pixels, const Strides& s) const {
    if (pixels) return {s[0], s[1] * apart, s[2] * apart, s[3]};
    return {s[1] * rows * columns, s[1] * columns, s[1], s[2]};
  }
  /// Pixel or point (i, j) of the first tile.
  Dims place(bool pixels, std::size_t row, std::size_t column) const {
    const auto i = static_cast<std::int64_t>(row), j = static_cast<std::int64_t>(column);
    return pixels ? Dims{0, i - above, j - left, 0} : Dims{i * side() + j, 0, 0};
  }
  /// For pixel (i, j) of all tiles, where some do not lie in the image.
  std::vector<loop::Guard> guards(bool pixels, std::size_t row, std::size_t column) const {
    std::vector<loop::Guard> guards;
    const auto add = [&](std::int64_t first, std::int64_t tiles, std::int64_t extent, Strides way) {
      if (first >= 0 && first + (tiles - 1) * apart < extent) return;
      guards.push_back({.offset = first, .extent = extent, .coefficients = std::move(way)});
    };
    if (!pixels) return guards;
    add(static_cast<std::int64_t>(row) - above, rows, height, {0, apart, 0, 0});
    add(static_cast<std::int64_t>(column) - left, columns, width, {0, 0, apart, 0});
    return guards;
  }
};

Tiles tiles_of(const Op& op, const Dims& read, const Dims& written) {
  if (const auto* made = op.as<op::WinogradOutputs>()) {
    return {made->outputs, made->stride, made->outputs, written[0], made->rows,
            made->columns, written[3],   written[1],    written[2]};
  }
  const auto& image = *op.as<op::WinogradImage>();
  const auto tiles = [&](std::size_t axis) {
    const std::int64_t pixels = read[axis + 1] + image.low[axis] + image.high[axis];
    return winograd::tiles_along(pixels, image.outputs, image.stride);
  };
  return {image.outputs, image.stride, image.outputs * image.stride,
          read[0],       tiles(0),     tiles(1),
          read[3],       read[1],      read[2],
          image.low[0],  image.low[1]};
}

}  // namespace

void PlanBuilder::add_tiles(const Region& region) {
  const Node& root = graph_.nodes()[static_cast<std::size_t>(region.root)];
  const bool from_pixels = root.op.is<op::WinogradImage>();
  const Located source =
      from_pixels ? channels_side_by_side(root.inputs[0]) : locate(root.inputs[0]);
  const Tiles tiles = tiles_of(root.op, source.view.dims, region.dims);
  const Domain domain{{tiles.images, tiles.rows, tiles.columns, tiles.channels},
                      4,
                      [=](const Strides& strides) { return tiles.over(!from_pixels, strides); }};
  KernelBuffers buffers(plan_.buffers);
  loop::Nest nest;
  ExpressionBuilder expression = expression_of(region, domain, buffers, nest);

  const Strides& strides = source.view.strides;
  const auto read = [&](std::size_t i, std::size_t j) {
    const Dims place = tiles.place(from_pixels, i, j);
    return expression.load({.buffer = buffers.number(source.buffer, false),
                            .offset = std::inner_product(place.begin(), place.end(),
                                                         strides.begin(), source.view.offset),
                            .strides = tiles.over(from_pixels, strides),
                            .indirect = {},
                            .guards = tiles.guards(from_pixels, i, j)},
                           root.results[0].dtype);
  };
  const auto side = static_cast<std::size_t>(tiles.side());
  winograd::Transforms<ScalarValue>::Square square(side);
  for (std::size_t i = 0; i < side; ++i)
    for (std::size_t j = 0; j < side; ++j) square[i].push_back(read(i, j));
  const winograd::Transforms<ScalarValue> transforms(tiles.outputs, tiles.stride);
  square = from_pixels ? transforms.image(square) : transforms.outputs(square);
  for (std::size_t i = 0; i < square.size(); ++i) {
    for (std::size_t j = 0; j < square.size(); ++j) {
      expression.move_to(tiles.place(!from_pixels, i, j), tiles.guards(!from_pixels, i, j));
      add_behind_root(region, square[i][j], expression, nest);
    }
  }
  finish_nest(std::move(nest), domain, buffers, expression.uses_indices(), "tiles",
              node_cost(graph_, root).flops, 0);
  if (from_pixels) images_[region.root] = plan_.kernels.size() - 1;
}

// What a worker makes it then finds in its own caches, and it takes nothing from those of the
// others when the next layer writes there. The pixels, which all read then, are fewer than the
// points. Where no cache of a core holds its points they come from farther away anyway.
void PlanBuilder::share_points(ValueId points) {
  const auto image = images_.find(points.node);
  if (image == images_.end() || options_.threads == 1) return;
  const auto bytes = static_cast<std::int64_t>(graph_.type(points).bytes());
  if (bytes > options_.threads * options_.model.cache_bytes[1]) return;
  const codegen::Machine machine = codegen::machine_of(options_.target);
  if (!cost::cut_of(plan_.kernels.back(), machine).by_batch) return;
  std::get<loop::Nest>(plan_.kernels[image->second].body).parts = 2;
}

}  // namespace rlx::plan
