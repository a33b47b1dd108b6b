// Recognises reductions over windows and cuts them into tiles and items.
#include <algorithm>

#include "codegen/llvm/nest_window.hpp"

namespace rlx::codegen {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// Multiply-adds of a tile's taps that are written out at most.
constexpr std::int64_t most_steps = 128;
/// Longer reductions gain more from reading far along the channels.
constexpr std::int64_t most_taps = 512;

bool has_index_nodes_reduced(const NestPlan& plan) {
  const DimSet reduced = plan.reduced_dims();
  return std::any_of(plan.nest.nodes.begin(), plan.nest.nodes.end(), [&](const ScalarNode& node) {
    return node.op == ScalarOp::domain_index && (reduced >> node.index & 1);
  });
}

/// One level of reductions without positions, nothing indirect, no guard left but the clips.
bool suits(const NestPlan& plan, const std::vector<NestPass>& passes) {
  if (plan.levels != 1 || passes.size() != 2 || !passes[1].stores.empty()) return false;
  if (plan.points(plan.nest.parallel_dims, plan.rank()) > most_taps) return false;
  if (plan.vector_is_reduced() || plan.has_inside() || has_index_nodes_reduced(plan)) return false;
  const NestPass& pass = passes[0];
  if (!pass.saved.empty() || pass.reductions.empty() || pass.reductions.size() > 2) return false;
  for (const ReductionEmitter& reduction : pass.reductions) {
    if (reduction.has_position()) return false;
  }
  const auto plain = [&](const loop::Access& access) {
    const std::int64_t along = access.strides[at(plan.vector_dim)];
    return access.indirect.empty() && access.guards.empty() && (along == 0 || along == 1);
  };
  for (const loop::Store& store : plan.nest.stores) {
    if (!plain(store.access)) return false;
  }
  return std::all_of(pass.accesses.begin(), pass.accesses.end(), plain);
}

/// Sorts the reduced dims into the one whose guards go with the columns and those that are loops.
bool choose_tap_dim(const NestPlan& plan, const NestPass& pass, WindowPlan& window) {
  const auto column = at(window.column_dim);
  std::vector<bool> guarded(plan.nest.extents.size(), false);
  for (const NestPass::Clip& clip : pass.clips) {
    const std::vector<std::int64_t>& c = clip.guard.coefficients;
    guarded[at(clip.dim)] = true;
    if (c[column] == 0) continue;
    if (c[column] < 0 || (window.tap_dim >= 0 && window.tap_dim != clip.dim)) return false;
    window.tap_dim = clip.dim;
  }
  for (const NestPass::Clip& clip : pass.clips) {
    if (clip.dim != window.tap_dim) continue;
    for (int dim = 0; dim < plan.nest.parallel_dims; ++dim) {
      if (dim != window.column_dim && clip.guard.coefficients[at(dim)] != 0) return false;
    }
  }
  for (int dim = plan.rank(); window.tap_dim < 0 && dim-- > plan.nest.parallel_dims;) {
    if (!guarded[at(dim)] && plan.nest.extents[at(dim)] <= 16) window.tap_dim = dim;
  }
  for (int dim = plan.nest.parallel_dims; dim < plan.rank(); ++dim) {
    if (dim != window.tap_dim) window.loop_dims.push_back(dim);
  }
  return true;
}

/// Whether an element belongs to more than two windows in a row of the image, or to all of them.
bool windows_overlap(const NestPlan& plan, const WindowPlan& window) {
  if (window.tap_dim < 0) return false;
  const std::int64_t taps = plan.nest.extents[at(window.tap_dim)];
  return std::any_of(plan.nest.accesses.begin(), plan.nest.accesses.end(),
                     [&](const loop::Access& access) {
                       const std::int64_t step = std::abs(access.strides[at(window.column_dim)]);
                       const std::int64_t tap = std::abs(access.strides[at(window.tap_dim)]);
                       return step == 0 ? tap != 0 : (taps - 1) * tap >= 2 * step;
                     });
}

void choose_tile(const NestPlan& plan, const NestPass& pass, const Machine& machine,
                 WindowPlan& window) {
  const std::int64_t columns = plan.nest.extents[at(window.column_dim)];
  const std::int64_t sums = static_cast<std::int64_t>(pass.reductions.size());
  const std::int64_t taps = window.tap_dim < 0 ? 1 : plan.nest.extents[at(window.tap_dim)];
  // A tile reads tile + taps - 1 columns for tile * taps steps: long windows gain by wide tiles.
  constexpr std::int64_t long_window = 5, narrow = 8, wide = 16;
  const std::int64_t room =
      taps < long_window ? narrow : std::clamp(most_steps / taps, narrow, wide);
  const std::int64_t most = (machine.registers > 16 ? room : 6) / sums;
  const std::int64_t channels = plan.nest.extents[at(plan.vector_dim)];
  // Without masks the rest of the channels goes lane by lane.
  const std::int64_t registers =
      machine.masks ? (channels + plan.lanes - 1) / plan.lanes : channels / plan.lanes;
  const auto choose_vectors = [&](std::int64_t room) {
    for (std::int64_t vectors = 1; vectors <= room; ++vectors) {
      if (registers % vectors == 0) window.vectors = static_cast<unsigned>(vectors);
    }
  };
  // Wide tiles save loads where windows overlap. Others are read in the order in which they lie.
  if (!windows_overlap(plan, window)) choose_vectors(most);
  const std::int64_t widest = most / window.vectors;
  window.tiles = (columns + widest - 1) / widest;
  // Where tiles alone are shared out, two workers have as many of them: of three each would have a
  // half of the channels of the one in the middle, which the steps before share out by columns.
  std::int64_t others = 1;
  for (int dim = 0; dim < plan.nest.parallel_dims; ++dim) {
    if (dim != window.column_dim && dim != plan.vector_dim) others *= plan.nest.extents[at(dim)];
  }
  if (others == 1 && window.tiles > 1 && columns >= 2 * window.tiles)
    window.tiles += window.tiles % 2;
  window.tile = (columns + window.tiles - 1) / window.tiles;
  window.tiles = (columns + window.tile - 1) / window.tile;
  choose_vectors(most / window.tile);
  window.blocks = registers / window.vectors;
}

/// How many tiles lack taps at either end; false where most of them do.
bool find_borders(const NestPlan& plan, const NestPass& pass, WindowPlan& window) {
  const std::int64_t columns = plan.nest.extents[at(window.column_dim)];
  std::int64_t begin = 0, end = columns;  // columns that have all taps
  for (const NestPass::Clip& clip : pass.clips) {
    if (clip.dim != window.tap_dim) continue;
    const std::int64_t step = clip.guard.coefficients[at(window.column_dim)];
    const std::int64_t tap = clip.guard.coefficients[at(clip.dim)];
    const std::int64_t reach = clip.guard.offset + tap * (plan.nest.extents[at(clip.dim)] - 1);
    if (step == 0) return false;
    const std::int64_t first = std::max<std::int64_t>(-clip.guard.offset, 0);
    const std::int64_t room = std::max<std::int64_t>(clip.guard.extent - reach, 0);
    begin = std::max(begin, (first + step - 1) / step);
    end = std::min(end, (room + step - 1) / step);
  }
  end = std::max(end, begin);
  window.first_tiles = std::min((begin + window.tile - 1) / window.tile, window.tiles);
  const std::int64_t whole_end = end >= columns ? columns / window.tile : end / window.tile;
  window.last_tiles = window.tiles - std::clamp(whole_end, window.first_tiles, window.tiles);
  return window.first_tiles + window.last_tiles <= 4;
}

/// Units that make an item: so many that the items suffice beside `others`, and worth their calls.
std::int64_t item_size(std::int64_t units, std::int64_t others, std::int64_t unit_steps) {
  constexpr std::int64_t enough_items = 32;
  constexpr std::int64_t steps_per_item = 256;  // multiply-adds of whole registers
  const std::int64_t wanted = (enough_items + others - 1) / others;
  const std::int64_t least = (steps_per_item + unit_steps - 1) / unit_steps;
  return std::min(units, std::max(least, (units + wanted - 1) / wanted));
}

/// Bytes of the image that the points of one row read.
std::int64_t window_bytes(const NestPlan& plan, std::span<const loop::Buffer> buffers,
                          const WindowPlan& window) {
  std::int64_t most = 0;
  for (const loop::Access& access : plan.nest.accesses) {
    const auto size = static_cast<std::int64_t>(size_of(buffers[at(access.buffer)].dtype));
    std::int64_t bytes = plan.nest.extents[at(window.column_dim)] *
                         std::abs(access.strides[at(window.column_dim)]) * size;
    for (const int dim : window.loop_dims)
      bytes *= access.strides[at(dim)] != 0 ? plan.nest.extents[at(dim)] : 1;
    most = std::max(most, bytes);
  }
  return most;
}

/// Does a row of windows read what the row before it has read?
bool rows_overlap(const NestPlan& plan, const WindowPlan& window) {
  return std::ranges::any_of(plan.nest.accesses, [&](const loop::Access& access) {
    const auto step = [&](int dim) { return std::abs(access.strides[at(dim)]); };
    return std::ranges::any_of(window.row_dims, [&](int row) {
      return step(row) > 0 && std::ranges::any_of(window.loop_dims, [&](int dim) {
               return step(dim) > 0 && step(dim) * (plan.nest.extents[at(dim)] - 1) >= step(row);
             });
    });
  });
}

/// Channels in pieces where L2 could not keep the lines of an image from one row to the next.
void choose_pieces(const NestPlan& plan, std::span<const loop::Buffer> buffers,
                   WindowPlan& window) {
  if (!rows_overlap(plan, window)) return;
  constexpr std::int64_t kept_bytes = 512 * 1024, piece_bytes = 128 * 1024;
  const std::int64_t bytes = window_bytes(plan, buffers, window);
  if (bytes <= kept_bytes) return;
  const std::int64_t pieces = std::min((bytes + piece_bytes - 1) / piece_bytes, window.blocks);
  window.blocks_per_item = (window.blocks + pieces - 1) / pieces;
  window.block_items = (window.blocks + window.blocks_per_item - 1) / window.blocks_per_item;
  window.pieces_outermost = window.block_items > 1;
}

/// Rows first; where they are few, tiles and then channels are shared out, too.
void choose_items(const NestPlan& plan, WindowPlan& window) {
  const std::int64_t taps = plan.points(plan.nest.parallel_dims, plan.rank());
  const std::int64_t steps = window.tile * window.vectors * taps;
  window.tiles_per_item = item_size(window.tiles, window.rows, steps * window.blocks);
  // Two workers have a half of the tiles each where those are all that is shared out.
  const auto halves = [&](std::int64_t size) { return window.tiles % (2 * size) == 0; };
  for (std::int64_t size = window.tiles_per_item; window.rows == 1 && size > 0; --size) {
    if (!halves(size)) continue;
    window.tiles_per_item = size;
    break;
  }
  window.column_items = (window.tiles + window.tiles_per_item - 1) / window.tiles_per_item;
  window.blocks_per_item =
      item_size(window.blocks, window.rows * window.column_items, steps * window.tiles_per_item);
  window.block_items = (window.blocks + window.blocks_per_item - 1) / window.blocks_per_item;
}

/// Down the rows of bands, where that keeps what is read in L1.
bool choose_bands(const NestPlan& plan, std::span<const loop::Buffer> buffers,
                  const Machine& machine, WindowPlan& window) {
  const WindowBands bands = bands_of_window(plan, buffers, machine);
  if (bands.channels == 0) return false;
  window.bands = bands.count;
  window.rows = window.rows / plan.nest.extents[at(window.row_dims.back())] * bands.count;
  window.tiles_per_item = window.tiles;
  const std::int64_t of_block = std::int64_t{window.vectors} * plan.lanes;
  const std::int64_t most = std::max<std::int64_t>(bands.channels / of_block, 1);
  std::int64_t pieces = (window.blocks + most - 1) / most;
  if (bands.count == 1) pieces = std::min(pieces + pieces % 2, window.blocks);
  window.blocks_per_item = (window.blocks + pieces - 1) / pieces;
  window.block_items = (window.blocks + window.blocks_per_item - 1) / window.blocks_per_item;
  return true;
}

}  // namespace

std::optional<WindowPlan> plan_window(const NestPlan& plan, const std::vector<NestPass>& passes,
                                      std::span<const loop::Buffer> buffers,
                                      const Machine& machine) {
  if (!suits(plan, passes)) return std::nullopt;
  WindowPlan window;
  window.column_dim = column_dim_of(plan);
  if (window.column_dim < 0) return std::nullopt;
  if (!choose_tap_dim(plan, passes[0], window)) return std::nullopt;
  choose_tile(plan, passes[0], machine, window);
  const std::int64_t taps = window.tap_dim < 0 ? 1 : plan.nest.extents[at(window.tap_dim)];
  if (taps * window.tile * window.vectors > most_steps) return std::nullopt;
  if (!find_borders(plan, passes[0], window)) return std::nullopt;
  for (int dim = 0; dim < plan.nest.parallel_dims; ++dim) {
    if (dim == window.column_dim || dim == plan.vector_dim) continue;
    window.row_dims.push_back(dim);
    window.rows *= plan.nest.extents[at(dim)];
  }
  if (choose_bands(plan, buffers, machine, window)) return window;
  choose_items(plan, window);
  choose_pieces(plan, buffers, window);
  return window;
}

}  // namespace rlx::codegen
