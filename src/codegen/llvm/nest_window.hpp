// Reductions over small windows with lanes across channels: depthwise convolutions and pools.
#pragma once

#include <optional>

#include "codegen/llvm/nest.hpp"

namespace rlx::codegen {

/// How the points of a window reduction are computed together: tiles of `tile` neighbours along the
/// column dim by `vectors` registers of channels, whose running values stay in registers while the
/// taps go by. What a tile misses at the borders of the image is known when code is made.
struct WindowPlan {
  int column_dim = -1;           ///< parallel; tiles run along it
  int tap_dim = -1;              ///< reduced; its taps are written out. -1: all taps are loops
  std::vector<int> row_dims;     ///< the other parallel dims but the vector dim
  std::vector<int> loop_dims;    ///< the other reduced dims
  std::int64_t tile = 1;         ///< columns
  std::int64_t tiles = 1;        ///< along the column dim; the last one may be narrower
  std::int64_t first_tiles = 0;  ///< tiles at the beginning that miss taps
  std::int64_t last_tiles = 0;   ///< tiles at the end that miss taps or columns
  unsigned vectors = 1;
  std::int64_t blocks = 1;  ///< of `vectors` registers, across the channels
  std::int64_t tiles_per_item = 1, column_items = 1;
  std::int64_t blocks_per_item = 1, block_items = 1;
  /// Items walk over all rows with one piece of the channels before the next one.
  bool pieces_outermost = false;
  std::int64_t rows = 1;
  /// Items go down all rows of a band, by the last row dim; 0: an item has one row.
  std::int64_t bands = 0;

  std::int64_t items() const { return rows * column_items * block_items; }
};

/// The plan where the nest is of that kind: one level of reductions with everything stored once,
/// guards that cut the window at borders and nothing else.
std::optional<WindowPlan> plan_window(const NestPlan& plan, const std::vector<NestPass>& passes,
                                      std::span<const loop::Buffer> buffers,
                                      const Machine& machine);

/// Of the accesses of a nest, then of its stores.
const loop::Access& access_of(const loop::Nest& nest, std::size_t number);

/// Asks L2 for what the same tile of the next row is the first to read, or for where it stores:
/// some columns of some channels are runs too short for the machine to ask for by itself. Of images
/// of fewer than 4 MB L3 has the lines as fast without (128 channels of 150 x 150, one thread: 4.4
/// ms without, 2.5 with; 64 of 112 x 112: 0.27 and 0.31). pointer: of the tile at `channel`.
void ask_for_next_row(Emitter& emitter, const NestPlan& plan, const WindowPlan& window,
                      std::size_t number, llvm::Value* pointer, llvm::Value* channel);

/// Asks for the line in which the same vector of the next tile ends, where columns end inside of
/// lines: registers that are stored across two lines wait for both, one after the other.
void ask_for_next_tile(Emitter& emitter, const NestPlan& plan, const WindowPlan& window,
                       std::size_t number, llvm::Value* pointer);

/// Emits the whole body.
KernelShape emit_window(Emitter& emitter, const NestPlan& plan, const std::vector<NestPass>& passes,
                        const WindowPlan& window);

}  // namespace rlx::codegen
