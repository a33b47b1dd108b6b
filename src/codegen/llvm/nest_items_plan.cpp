// Cuts nests into work items.
#include <algorithm>
#include <cstdlib>

#include "codegen/llvm/nest_plan.hpp"

namespace rlx::codegen {
namespace {

/// Work of one item, in points of the domain; fewer make calls and index arithmetic show.
constexpr std::int64_t points_per_item = 2048;
/// Of f32 in two lines, which come together: workers that write less of them side by side wait for
/// each other at every point.
constexpr std::int64_t unshared_elements = 32;
/// As many items as that are enough to share out.
constexpr std::int64_t enough_items = 64;

/// Items are blocks of `size` points of the dim, and the dims before it but for the tiles'.
void split(NestPlan& plan, int dim, std::int64_t size) {
  const std::int64_t extent = plan.nest.extents[static_cast<std::size_t>(dim)];
  plan.split_dim = dim;
  plan.split_size = size;
  plan.inner_dim = dim > 0 && dim == plan.vector_dim ? dim - 1 : dim;
  plan.items = plan.points(0, plan.inner_dim) * ((extent + size - 1) / size);
}

/// Tiles that are turned make few items along their dim: where two workers could not share them out
/// evenly, items are blocks of the vector dim, unless its rows are so short that they share lines.
void split_along_lanes(NestPlan& plan) {
  constexpr std::int64_t enough = 4, wanted = 16, long_row = 1024;
  if (plan.turned.empty()) return;
  const std::int64_t tiled = plan.nest.extents[static_cast<std::size_t>(plan.tile_dim())],
                     extent = plan.nest.extents[static_cast<std::size_t>(plan.vector_dim)];
  const std::int64_t outer = plan.points(0, plan.tile_dim()), lanes = plan.lanes;
  if (plan.items >= enough || extent < long_row || tiled * extent < 2 * points_per_item) return;
  const std::int64_t least = (points_per_item + tiled - 1) / tiled,
                     blocks = (wanted + outer - 1) / outer,
                     size = std::max(least, (extent + blocks - 1) / blocks);
  const std::int64_t rounded = (size + lanes - 1) / lanes * lanes;
  if (rounded < extent) split(plan, plan.vector_dim, rounded);
}

/// Where points along the tile or vector dim lie farther apart in what is written than those along
/// the first dim, workers that shared out the first would each write a part of nearly every line:
/// they share out blocks of the other one. Not where rows are so long that few lines are shared.
void put_blocks_first(NestPlan& plan) {
  constexpr std::int64_t long_row_bytes = 2048, elements_of_line = 16;
  constexpr std::int64_t fewest_blocks = 4, most_blocks = 8;
  const loop::Nest& nest = plan.nest;
  if (nest.stores.empty() || plan.vector_is_reduced() || plan.row_block > 1) return;
  const loop::Store& store = nest.stores.front();
  const auto apart = [&](int dim) {
    return std::abs(store.access.strides[static_cast<std::size_t>(dim)]);
  };
  const bool has_tiles = plan.tile > 1 && plan.levels == 0;
  const int dim = has_tiles && apart(plan.tile_dim()) > apart(plan.vector_dim) ? plan.tile_dim()
                                                                               : plan.vector_dim;
  const auto size =
      static_cast<std::int64_t>(size_of(nest.nodes[static_cast<std::size_t>(store.node)].dtype));
  if (dim == 0 || apart(dim) <= apart(0) || apart(dim) * size >= long_row_bytes) return;
  const bool by_tiles = dim != plan.vector_dim;
  const std::int64_t extent = nest.extents[static_cast<std::size_t>(dim)],
                     step = std::max<std::int64_t>(elements_of_line,
                                                   by_tiles ? plan.tile : plan.lanes),
                     round = by_tiles ? plan.tile : plan.lanes * plan.unroll;
  if (extent < fewest_blocks * step) return;
  const std::int64_t block = std::max((extent + most_blocks - 1) / most_blocks,
                                      std::min(round, extent / fewest_blocks)),
                     rounded = (block + step - 1) / step * step;
  plan.blocks_first = true;
  split(plan, dim, rounded);
}

/// Where points along the first dim lie side by side in what a map reads, and those along the lanes
/// apart (an image whose channels are turned outwards), workers that shared out the first would
/// each read all lines, of which the steps before gave each a part: they share out blocks of the
/// lanes' dim, which are long rows of what is written. Not where rows are short and end inside of
/// lines, which both would write.
void follow_what_is_read(NestPlan& plan) {
  constexpr std::int64_t shortest = 128, most_blocks = 8, line_bytes = 64, long_row_bytes = 2048;
  const loop::Nest& nest = plan.nest;
  const auto first = std::ranges::find_if(nest.extents, [](std::int64_t n) { return n > 1; });
  const int outer = static_cast<int>(first - nest.extents.begin()), dim = plan.vector_dim;
  if (plan.blocks_first || plan.levels > 0 || plan.row_block > 1 || outer >= dim) return;
  const auto stride = [](const loop::Access& access, int of) {
    return std::abs(access.strides[static_cast<std::size_t>(of)]);
  };
  const bool is_turned = std::ranges::any_of(nest.accesses, [&](const loop::Access& access) {
    return access.indirect.empty() && stride(access, outer) > 0 &&
           stride(access, outer) < stride(access, dim);
  });
  const bool writes_rows = std::ranges::all_of(nest.stores, [&](const loop::Store& store) {
    const DType dtype = nest.nodes[static_cast<std::size_t>(store.node)].dtype;
    const std::int64_t row =
        stride(store.access, outer) * static_cast<std::int64_t>(size_of(dtype));
    return stride(store.access, dim) == 1 && (row % line_bytes == 0 || row >= long_row_bytes);
  });
  const std::int64_t extent = nest.extents[static_cast<std::size_t>(dim)];
  if (!is_turned || !writes_rows || extent < 2 * shortest) return;
  const std::int64_t step = std::max<std::int64_t>(shortest, plan.lanes * plan.unroll),
                     block = (extent + most_blocks - 1) / most_blocks;
  plan.blocks_first = true;
  split(plan, dim, (block + step - 1) / step * step);
}

/// Does every item write its part of each point of the reduced dims (norms over images)?
bool stores_along_sums(const NestPlan& plan) {
  return std::ranges::any_of(plan.nest.stores, [&](const loop::Store& store) {
    const auto& strides = store.access.strides;
    return std::any_of(strides.begin() + plan.nest.parallel_dims, strides.end(),
                       [](std::int64_t stride) { return stride != 0; });
  });
}

/// Of all points the part of who has more of them, where two workers share out `outer` times the
/// blocks of `size` of a dim.
double larger_half(std::int64_t outer, std::int64_t extent, std::int64_t size) {
  const std::int64_t blocks = (extent + size - 1) / size, half = outer * blocks / 2,
                     first = half / blocks * extent + std::min(half % blocks * size, extent);
  return static_cast<double>(std::max(first, outer * extent - first)) /
         static_cast<double>(outer * extent);
}

/// Between a quarter and four thirds of that size the one whose blocks two workers share out most
/// evenly: few blocks, of which the last is a rest, may be far from it (of 14 points in blocks of 4
/// one has 8). And what the steps before and behind are cut in halves alike, so that a worker finds
/// what it wrote: of 1600 points in 19 blocks 50 would change hands.
std::int64_t evenly_shared(std::int64_t outer, std::int64_t extent, std::int64_t size) {
  constexpr std::int64_t most_blocks = 256;  // of more a rest is too small to tell
  if (outer * ((extent + size - 1) / size) >= most_blocks) return size;
  std::int64_t best = size;
  for (std::int64_t other = (size + 3) / 4; other <= std::min(4 * size / 3, extent / 2); ++other) {
    const double is = larger_half(outer, extent, other), was = larger_half(outer, extent, best);
    if (is < was || (is == was && std::abs(other - size) < std::abs(best - size))) best = other;
  }
  return best;
}

/// Points of a reduction's tile and of an item: about 4, and as many tiles as are worth an item,
/// or what two workers share out more evenly.
void choose_tiled_items(NestPlan& plan, std::int64_t extent, std::int64_t size) {
  constexpr std::int64_t sizes[] = {4, 5, 6, 3};
  double best = 2;
  for (const std::int64_t tile : sizes) {
    for (std::int64_t item = (size + tile - 1) / tile * tile; item > 0; item -= tile) {
      const double larger = larger_half(1, extent, std::min(item, extent));
      if (larger >= best) continue;
      best = larger;
      plan.tile = static_cast<unsigned>(tile);
      plan.split_size = std::min(item, extent);
    }
  }
}

/// Items: the first parallel dims, so many that there are enough, and blocks of the dim behind
/// them; with `rows` each point of the parallel dims, with leading dims each point of those.
void choose_items(NestPlan& plan, bool rows) {
  const int parallel = plan.nest.parallel_dims;
  plan.items = 1;
  if (plan.nest.lead > 0) {
    plan.split_dim = plan.nest.lead - 1;
    plan.split_size = 1;
    plan.items = plan.points(0, plan.nest.lead);
    return;
  }
  if (rows && parallel > 0) {
    plan.split_dim = parallel - 1;
    plan.split_size = 1;
    plan.items = plan.points(0, parallel);
    return;
  }
  if (parallel == 0) {
    plan.split_dim = 0;
    plan.split_size = 1;
    return;
  }
  for (int dim = 0; dim < parallel; ++dim) {
    const std::int64_t extent = plan.nest.extents[static_cast<std::size_t>(dim)];
    const std::int64_t inner = std::max<std::int64_t>(plan.points(dim + 1, plan.rank()), 1);
    plan.split_dim = dim;
    plan.split_size = 1;
    if (plan.tile > 1 && dim == plan.tile_dim()) {
      const std::int64_t step = plan.tile;
      const std::int64_t size = std::max<std::int64_t>(points_per_item / inner, 1);
      plan.split_size = std::min((size + step - 1) / step * step, extent);
      const std::int64_t points = plan.points(0, plan.rank());
      if (plan.levels > 0 && plan.items == 1 && points > points_per_item)
        choose_tiled_items(plan, extent, size);
      // Fewer points than a tile at the end of the last item would be read one by one.
      const auto rest = [&] { return extent % plan.split_size; };
      while (!plan.turned.empty() && rest() != 0 && rest() < step)
        plan.split_size = std::min(plan.split_size + step, extent);
      // Windows are cut short at both ends of a row: whole rows have the fewest ends.
      if (plan.levels > 0 && plan.items >= 8) plan.split_size = extent;
      plan.items *= (extent + plan.split_size - 1) / plan.split_size;
      return;
    }
    if (plan.row_block > 1 && dim == plan.row_dim()) {
      plan.split_size = plan.row_block;
      plan.items *= (extent + plan.split_size - 1) / plan.split_size;
      return;
    }
    if (inner <= points_per_item / 2 || dim == parallel - 1) {
      std::int64_t size = std::max<std::int64_t>(points_per_item / inner, 1);
      if (dim == plan.vector_dim) {
        const std::int64_t least = stores_along_sums(plan) ? unshared_elements : 1;
        const std::int64_t step = std::max<std::int64_t>(plan.lanes * plan.unroll, least);
        size = (size + step - 1) / step * step;
      } else if (extent > size) {
        size = evenly_shared(plan.items, extent, size);
      }
      plan.split_size = std::min(size, std::max<std::int64_t>(extent, 1));
      plan.items *= (extent + plan.split_size - 1) / plan.split_size;
      return;
    }
    plan.items *= extent;
    if (plan.items >= enough_items) return;
  }
}

}  // namespace

void plan_items(NestPlan& plan, bool rows) {
  choose_items(plan, rows);
  plan.inner_dim = plan.split_dim;
  if (rows || plan.nest.lead > 0) return;
  split_along_lanes(plan);
  put_blocks_first(plan);
  follow_what_is_read(plan);
}

}  // namespace rlx::codegen
