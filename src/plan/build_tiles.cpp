// Plan steps of Winograd's transforms of tiles.
#include "graph/winograd.hpp"
#include "plan/plan_builder.hpp"
#include "rlx/ops.hpp"

namespace rlx::plan {
namespace {

using Strides = std::vector<std::int64_t>;

/// How the tiles of a transform lie in images [N, H, W, C] and in points [n * n, tiles, C]. Kernels
/// run over (image, row and column of the tile, channel).
struct Tiles {
  std::int64_t side;     ///< of a tile of what is read, in pixels or points
  std::int64_t outputs;  ///< from a tile to the next one, in pixels
  std::int64_t images, rows, columns, channels;

  Strides over_image(const Strides& s) const {
    return {s[0], s[1] * outputs, s[2] * outputs, s[3]};
  }
  Strides over_points(const Strides& s) const {
    return {s[1] * rows * columns, s[1] * columns, s[1], s[2]};
  }
};

Tiles tiles_of_image(const op::WinogradImage& op, const Dims& image) {
  const std::int64_t side = op.outputs + winograd::taps - 1;
  const auto count = [&](std::size_t axis) { return (image[axis] - side) / op.outputs + 1; };
  return {side, op.outputs, image[0], count(1), count(2), image[3]};
}

}  // namespace

void PlanBuilder::add_tiles(const Region& region) {
  const Node& root = graph_.nodes()[static_cast<std::size_t>(region.root)];
  const auto* image = root.op.as<op::WinogradImage>();
  const auto* outputs = root.op.as<op::WinogradOutputs>();
  const Located source = locate(root.inputs[0]);
  const View& read = source.view;
  const Tiles tiles = image ? tiles_of_image(*image, read.dims)
                            : Tiles{outputs->outputs + winograd::taps - 1,
                                    outputs->outputs,
                                    region.dims[0],
                                    outputs->rows,
                                    outputs->columns,
                                    region.dims[3]};
  Domain domain{{tiles.images, tiles.rows, tiles.columns, tiles.channels}, 4, {}};
  domain.map = [&](const Strides& strides) {
    return image ? tiles.over_points(strides) : tiles.over_image(strides);
  };
  KernelBuffers buffers(plan_.buffers);
  loop::Nest nest;
  ExpressionBuilder expression(
      graph_, region.dims, domain.map, [this](ValueId id) { return locate(id); }, buffers,
      nest.nodes, nest.accesses);
  expression.recompute(region.recomputed);

  winograd::Transforms<ScalarValue>::Square square;
  for (std::int64_t i = 0; i < tiles.side; ++i) {
    square.emplace_back();
    for (std::int64_t j = 0; j < tiles.side; ++j) {
      const std::int64_t offset = image ? i * read.strides[1] + j * read.strides[2]
                                        : (i * tiles.side + j) * read.strides[0];
      square.back().push_back(expression.load(
          {.buffer = buffers.number(source.buffer, false),
           .offset = read.offset + offset,
           .strides = image ? tiles.over_image(read.strides) : tiles.over_points(read.strides)},
          root.results[0].dtype));
    }
  }
  const winograd::Transforms<ScalarValue> transforms(tiles.outputs);
  const auto made = image ? transforms.image(square) : transforms.outputs(square);
  const auto across = static_cast<std::int64_t>(made.size());
  for (std::int64_t i = 0; i < across; ++i) {
    for (std::int64_t j = 0; j < across; ++j) {
      expression.move_to(image ? Dims{i * across + j, 0, 0} : Dims{0, i, j, 0});
      expression.set({region.root, 0},
                     made[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)]);
      for (const std::int32_t index : region.nodes) {
        if (index != region.root) expression.add(index);
      }
      for (const std::int32_t index : region.nodes) {
        if (is_stored(index)) nest.stores.push_back(expression.store({index, 0}));
      }
    }
  }
  nest.extents = domain.extents;
  nest.parallel_dims = domain.parallel_dims;
  if (expression.uses_indices()) nest.error_buffer = buffers.number(error_buffer(), true);
  add_kernel({buffers.declared, std::move(nest)}, buffers.plan_buffers, "tiles",
             node_cost(graph_, root).flops, 0);
}

}  // namespace rlx::plan
