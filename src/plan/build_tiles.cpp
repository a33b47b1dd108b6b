// Plan steps of transforms of tiles: Winograd's, and those of lines.
#include <memory>
#include <numeric>

#include "codegen/machine.hpp"
#include "graph/line_points.hpp"
#include "graph/winograd.hpp"
#include "plan/plan_builder.hpp"
#include "rlx/ops.hpp"

namespace rlx::plan {
namespace {

using Strides = std::vector<std::int64_t>;

/// How the tiles of a transform lie in pixels and in points, and what it computes.
class Transform {
 public:
  using Square = winograd::Transforms<ScalarValue>::Square;

  virtual ~Transform() = default;
  /// Of the domain that kernels run over, one channel of one tile at a point.
  virtual std::vector<std::int64_t> extents() const = 0;
  /// Rows and columns of places that a tile has in points; no fewer than it has in pixels.
  virtual std::array<std::size_t, 2> sides() const = 0;
  /// Strides over the axes of pixels or points -> strides over the kernel's domain.
  virtual Strides over(bool pixels, const Strides& strides) const = 0;
  /// Pixel or point (i, j) of the first tile.
  virtual Dims place(bool pixels, std::size_t row, std::size_t column) const = 0;
  /// For pixel (i, j) of all tiles, where some do not lie in the image.
  virtual std::vector<loop::Guard> guards(bool pixels, std::size_t row,
                                          std::size_t column) const = 0;
  virtual Square points(const Square& pixels) const = 0;
  virtual Square pixels(const Square& products) const = 0;
};

/// A guard where a pixel of the first tile, or that of the last one, lies outside of so many.
void add_guard(std::int64_t first, std::int64_t last, std::int64_t pixels, Strides coefficients,
               std::vector<loop::Guard>& guards) {
  if (first >= 0 && last < pixels) return;
  guards.push_back({.offset = first, .extent = pixels, .coefficients = std::move(coefficients)});
}

/// Pixels [N, H, W, C] and points [n * n, tiles, C]. Kernels run over (image, row of tiles, strip
/// of that row, column of the tile in its strip, channel).
struct Tiles final : Transform {
  std::int64_t outputs = 0, stride = 1;
  std::int64_t apart = 0;  ///< from a tile to the next one, in pixels
  std::int64_t images = 0, rows = 0, columns = 0, channels = 0;
  std::int64_t height = 0, width = 0;  ///< of an image, in pixels
  std::int64_t above = 0, left = 0;    ///< zeros before the first pixels
  std::int64_t strips = 1;             ///< of a row of tiles
  bool one_strip = false;              ///< points are those of one strip at a time

  /// Strips of so many columns of tiles, the last of which may reach behind the image.
  void cut_into_strips(std::int64_t of_columns) {
    strips = (columns + of_columns - 1) / of_columns;
    columns = of_columns;
    one_strip = true;
  }
  std::vector<std::int64_t> extents() const override {
    return {images, rows, strips, columns, channels};
  }

  std::int64_t side() const { return winograd::side(outputs, stride); }
  std::array<std::size_t, 2> sides() const override {
    return {static_cast<std::size_t>(side()), static_cast<std::size_t>(side())};
  }

  Strides over(bool pixels, const Strides& s) const override {
    if (pixels) return {s[0], s[1] * apart, s[2] * apart * columns, s[2] * apart, s[3]};
    if (one_strip) return {0, 0, 0, s[1], s[2]};
    return {s[1] * rows * columns, s[1] * columns, 0, s[1], s[2]};
  }
  Dims place(bool pixels, std::size_t row, std::size_t column) const override {
    const auto i = static_cast<std::int64_t>(row), j = static_cast<std::int64_t>(column);
    return pixels ? Dims{0, i - above, j - left, 0} : Dims{i * side() + j, 0, 0};
  }
  std::vector<loop::Guard> guards(bool pixels, std::size_t row, std::size_t column) const override {
    std::vector<loop::Guard> guards;
    if (!pixels) return guards;
    const std::int64_t top = static_cast<std::int64_t>(row) - above,
                       first = static_cast<std::int64_t>(column) - left;
    add_guard(top, top + (rows - 1) * apart, height, {0, apart, 0, 0, 0}, guards);
    add_guard(first, first + (strips * columns - 1) * apart, width,
              {0, 0, columns * apart, apart, 0}, guards);
    return guards;
  }
  Square points(const Square& pixels) const override { return transforms().image(pixels); }
  Square pixels(const Square& products) const override { return transforms().outputs(products); }

 private:
  winograd::Transforms<ScalarValue> transforms() const { return {outputs, stride}; }
};

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
struct LineTiles final : Transform {
  lines::Tile tile{};
  std::size_t axis = 0;
  std::int64_t before = 0;  ///< zeros before the first pixels
  std::int64_t width = 0;   ///< of a line, in pixels
  Dims domain;

  std::int64_t dilation() const { return domain[axis + 1]; }
  std::int64_t apart() const { return tile.outputs * dilation(); }

  std::vector<std::int64_t> extents() const override { return domain; }
  std::array<std::size_t, 2> sides() const override {
    return {1, static_cast<std::size_t>(tile.points())};
  }
  Strides over(bool pixels, const Strides& strides) const override {
    Strides over = strides;
    if (!pixels) return over;
    over.insert(over.begin() + static_cast<std::ptrdiff_t>(axis), strides[axis] * apart());
    return over;
  }
  Dims place(bool pixels, std::size_t, std::size_t column) const override {
    const auto at = static_cast<std::int64_t>(column);
    Dims place(domain.size() - (pixels ? 1 : 0), 0);
    if (pixels) {
      place[axis] = at * dilation() - before;
    } else {
      place.back() = at * domain.back();
    }
    return place;
  }
  std::vector<loop::Guard> guards(bool pixels, std::size_t row, std::size_t column) const override {
    std::vector<loop::Guard> guards;
    if (!pixels) return guards;
    Strides along(domain.size(), 0);
    along[axis] = apart();
    along[axis + 1] = 1;
    const std::int64_t first = place(true, row, column)[axis],
                       last = first + (domain[axis] - 1) * apart() + dilation() - 1;
    add_guard(first, last, width, along, guards);
    return guards;
  }
  Square points(const Square& pixels) const override {
    return {lines::transforms<ScalarValue>(tile).image(pixels[0])};
  }
  Square pixels(const Square& products) const override {
    return {lines::transforms<ScalarValue>(tile).outputs(products[0])};
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

bool reads_pixels(const Op& op) { return op.is<op::WinogradImage>() || op.is<op::LinePoints>(); }

/// strip_columns: as of tiles_nest.
std::unique_ptr<Transform> transform_of(const Op& op, const Dims& read, const Dims& written,
                                        std::int64_t strip_columns) {
  if (op.is<op::LinePoints>() || op.is<op::LineOutputs>())
    return std::make_unique<LineTiles>(line_tiles_of(op, read, written));
  auto tiles = std::make_unique<Tiles>(tiles_of(op, read, written));
  if (strip_columns > 0) tiles->cut_into_strips(strip_columns);
  return tiles;
}

/// So many columns of tiles that points [n * n, tiles, C] and products [n * n, tiles, K] of a strip
/// stay in a core's L2 beside the weights; not so few that products run over short rows.
std::int64_t columns_of_strip(std::int64_t columns, const Dims& points, const Dims& products,
                              std::int64_t l2_bytes) {
  constexpr std::int64_t fewest = 14, element = sizeof(float);
  const std::int64_t planes = points[0] * element, tile = planes * (points[2] + products[2]),
                     weights = planes * points[2] * products[2],
                     most = std::max((l2_bytes * 3 / 5 - weights) / tile, fewest),
                     strips = (columns + most - 1) / most;
  return (columns + strips - 1) / strips;
}

}  // namespace

loop::Nest PlanBuilder::tiles_nest(const Region& region, const Located& source,
                                   std::int64_t strip_columns, KernelBuffers& buffers) {
  const Node& root = graph_.nodes()[static_cast<std::size_t>(region.root)];
  const bool from_pixels = reads_pixels(root.op);
  const std::shared_ptr<const Transform> tiles =
      transform_of(root.op, source.view.dims, region.dims, strip_columns);
  const std::vector<std::int64_t> extents = tiles->extents();
  const Domain domain{extents, static_cast<std::int32_t>(extents.size()),
                      [=](const Strides& strides) { return tiles->over(!from_pixels, strides); }};
  loop::Nest nest;
  nest.extents = domain.extents;
  nest.parallel_dims = domain.parallel_dims;
  nest.lead = strip_columns > 0 ? 3 : 0;
  ExpressionBuilder expression = expression_of(region, domain, buffers, nest);

  const Strides& strides = source.view.strides;
  const auto read = [&](std::size_t i, std::size_t j) {
    const Dims place = tiles->place(from_pixels, i, j);
    return expression.load({.buffer = buffers.number(source.buffer, false),
                            .offset = std::inner_product(place.begin(), place.end(),
                                                         strides.begin(), source.view.offset),
                            .strides = tiles->over(from_pixels, strides),
                            .indirect = {},
                            .guards = tiles->guards(from_pixels, i, j)},
                           root.results[0].dtype);
  };
  const auto [rows, columns] = tiles->sides();
  Transform::Square square(rows);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) square[i].push_back(read(i, j));
  square = from_pixels ? tiles->points(square) : tiles->pixels(square);
  for (std::size_t i = 0; i < square.size(); ++i) {
    for (std::size_t j = 0; j < square[i].size(); ++j) {
      expression.move_to(tiles->place(!from_pixels, i, j), tiles->guards(!from_pixels, i, j));
      add_behind_root(region, square[i][j], expression, nest);
    }
  }
  if (expression.uses_indices()) nest.error_buffer = buffers.number(error_buffer(), true);
  return nest;
}

Located PlanBuilder::pixels_or_products(const Region& region) {
  const Node& root = graph_.nodes()[static_cast<std::size_t>(region.root)];
  return reads_pixels(root.op) ? channels_side_by_side(root.inputs[0]) : locate(root.inputs[0]);
}

void PlanBuilder::add_tiles(const Region& region) {
  if (!region.before.empty()) return add_tile_strips(region);
  const Node& root = graph_.nodes()[static_cast<std::size_t>(region.root)];
  const Located source = pixels_or_products(region);
  KernelBuffers buffers(plan_.buffers);
  loop::Nest nest = tiles_nest(region, source, 0, buffers);
  loop::Kernel kernel{buffers.declared, std::move(nest)};
  add_kernel(std::move(kernel), buffers.plan_buffers, "tiles", node_cost(graph_, root).flops, 0);
  if (root.op.is<op::WinogradImage>()) images_[region.root] = plan_.kernels.size() - 1;
}

// Rows are whole lines, in which no register lies across two. Planes of points lie an odd number of
// lines apart: those of a tile, which are written and read one after the other, then fall into all
// sets of the caches.
void PlanBuilder::place_strip(ValueId id, std::int64_t columns) {
  const Type& type = graph_.type(id);
  const Dims dims = type.dims();
  const std::int64_t line = 64 / static_cast<std::int64_t>(size_of(type.dtype)),
                     row = (dims[2] + line - 1) / line * line,
                     plane = (columns * row / line | 1) * line;
  const std::int32_t buffer = add_buffer({type.dtype, {dims[0] * plane}}, Storage::worker, -1,
                                         "strip_" + std::to_string(id.node));
  worker_rows_[id] = {buffer, {id, 0, dims, {plane, row, 1}}};
}

void PlanBuilder::add_tile_strips(const Region& region) {
  const Region& image = region.before[0];
  const Region& product = region.before[1];
  const auto root_of = [&](const Region& of) -> const Node& {
    return graph_.nodes()[static_cast<std::size_t>(of.root)];
  };
  const auto& outputs = *root_of(region).op.as<op::WinogradOutputs>();
  const Located pixels = pixels_or_products(image);
  const std::int64_t columns =
      columns_of_strip(outputs.columns, graph_.type({image.root, 0}).dims(),
                       graph_.type({product.root, 0}).dims(), options_.model.cache_bytes[1]);
  worker_rows_.clear();
  for (const Region* stage : {&image, &product}) place_strip({stage->root, 0}, columns);
  KernelBuffers buffers(plan_.buffers);
  loop::Strips strips;
  strips.stages.emplace_back(tiles_nest(image, pixels, columns, buffers));
  loop::Contraction products;
  Domain domain;
  describe_dot(root_of(product), *root_of(product).op.as<op::DotGeneral>(), product, products,
               domain, buffers);
  products.m_extents = {columns};
  set_domain(products, domain);
  add_epilogue(product, domain, products, buffers);
  strips.stages.emplace_back(std::move(products));
  strips.stages.emplace_back(tiles_nest(region, pixels_or_products(region), columns, buffers));
  worker_rows_.clear();
  double flops = 0;
  for (const Region* stage : {&image, &product, &region})
    flops += node_cost(graph_, root_of(*stage)).flops;
  loop::Kernel kernel{buffers.declared, std::move(strips)};
  add_kernel(std::move(kernel), buffers.plan_buffers, "winograd", flops, 0);
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
