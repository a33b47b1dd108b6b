// How a contraction is cut into register blocks, column blocks and work items, and how its dims are
// merged for addressing. Plain data: no LLVM here.
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/loop.hpp"
#include "codegen/machine.hpp"

namespace rlx::codegen {

/// One dim of the addressing of A and B: how far a step along it moves in each of them.
struct AddressDim {
  std::int64_t extent = 1;
  std::int64_t a = 0;                ///< elements of A
  std::int64_t b = 0;                ///< elements of B
  std::int64_t column = 0;           ///< k dims: elements of the columns that are multiplied with
  std::vector<std::int64_t> guards;  ///< step of each guard's value
  std::int64_t scale = 0;            ///< k dims: elements of B's scales and zeros
};

std::vector<std::int64_t> extents_of(const std::vector<AddressDim>& dims);

/// Where the micro-kernel finds the columns of B that it multiplies with.
enum class ColumnSource : std::uint8_t {
  packed,    ///< in panels, as loop.hpp says
  in_place,  ///< unit stride along n, element type of any width
  scratch,   ///< copied by the worker into a panel of its scratch
};

/// What one step of the micro-kernel multiplies.
enum class Products : std::uint8_t {
  single,      ///< one k, in the type of the sums
  word_pairs,  ///< i16, or 8-bit elements widened to it: two k
  bf16_pairs,  ///< two k of bf16
  byte_quads,  ///< four k of u8 in A and i8 in B
};

/// The bounds of a guard that can fail; its steps stand in the dims.
struct GuardBounds {
  std::int64_t offset = 0, extent = 0;
};

/// Lines of A that a worker copies into its scratch, with zeros around them, before it computes the
/// rows of C that read them: the micro-kernel then meets no guards, and runs of k that lie in one
/// line are one run. A segment is what one copy serves: the rows along the last m dim.
struct LinePlan {
  std::int64_t segments = 0;                    ///< 0: A is read where it lies
  std::vector<AddressDim> outer;                ///< m dims but the last one: place of a segment
  std::vector<AddressDim> lines;                ///< k dims across lines
  std::int64_t positions = 0;                   ///< in a line
  std::int64_t valid_begin = 0, valid_end = 0;  ///< positions that A has; zeros elsewhere
  std::int64_t channels = 1;                    ///< elements of a position
  std::int64_t apart = 1;                       ///< elements from position to position in A
  std::int64_t pitch = 0;                       ///< elements from line to line in scratch
  std::vector<GuardBounds> guards;              ///< of whole lines

  std::int64_t count() const;
};

struct ContractionPlan {
  std::vector<AddressDim> batch, m;
  std::vector<AddressDim> k;       ///< never empty; no guard depends on the last one
  std::vector<AddressDim> k_open;  ///< the same with dims merged that only guards hold apart
  std::vector<GuardBounds> guards;

  /// With lines `rows` are those of a segment.
  std::int64_t batches = 1, rows = 1, columns = 1, depth = 1;
  std::int64_t packed_depth = 1;  ///< of packed B, with runs filled up to whole groups
  LinePlan line;

  ColumnSource column_source = ColumnSource::packed;
  unsigned lanes = 1;              ///< accumulator elements of a vector register
  unsigned vectors = 1;            ///< registers across a column block
  std::int64_t block_columns = 1;  ///< lanes * vectors
  std::int64_t column_blocks = 1;
  std::int64_t panel_width = 0;  ///< of packed B and of the scratch panel

  /// How many k one step multiplies, side by side in 32 bits of the panel.
  Products products = Products::single;
  std::int64_t unit = 1;
  std::int64_t panel_steps = 1;  ///< steps over all of k
  /// Steps that one instruction makes for 16 rows and 16 columns (AMX); 0: registers are
  /// multiplied, not tiles.
  std::int64_t tile_steps = 0;

  /// Rows fall into `short_blocks` blocks of block_rows, then blocks of block_rows + 1 rows.
  std::int64_t block_rows = 1, row_blocks = 1, short_blocks = 1;
  /// The code of tall blocks serves the few short ones, too: their last row is the first one of the
  /// next block, computed and thrown away.
  bool one_height = false;
  bool uniform_rows = true;  ///< all rows of A lie at one distance: one pointer serves a block

  /// Work items: row groups of so many row blocks, with lines of so many segments.
  std::int64_t group_blocks = 1, row_groups = 1;
  bool whole_rows = false;  ///< an item covers all columns of its rows (a row epilogue follows)
  /// Items walk over the batches and columns of one row group after the other: a worker gets a
  /// range of rows, and most of what it reads there it wrote itself.
  bool rows_outermost = false;
  /// There are two such groups, long ones: in each, blocks ask for panels and rows as they do where
  /// columns are shared out.
  bool in_halves = false;
  std::int64_t work_items = 1;

  /// The first `asking_blocks` row blocks of a column block ask for the panel behind theirs, each
  /// for so many bytes in a step of k; 0: nobody does.
  std::int64_t asking_blocks = 0, asked_bytes = 0;

  /// Row blocks ask for the rows of the block behind them, which lie side by side.
  bool asks_for_rows = false;
  /// Columns that one block of rows alone reads are asked for from afar, a line in each step.
  bool asks_for_pages = false;
  /// Row blocks ask for the lines of their results before they make them.
  bool asks_for_results = false;

  /// Who calls a row block says how many k count: A is zero behind them.
  bool ends_early = false;

  /// Whether workers share out the rows of all of the batch; else, where there are several, its
  /// matrices.
  bool shares_rows_first() const { return rows_outermost && row_groups > 1; }
  bool shares_batch() const { return batches > 1 && !shares_rows_first(); }
  /// Whether blocks could end early: they walk over k in one run.
  bool may_end_early() const {
    return k.size() == 1 && k_open.size() == 1 && guards.empty() && line.segments == 0 &&
           asking_blocks == 0 && m.size() <= 1 && k.back().a == 1;
  }
  /// Of the blocks that have most.
  std::int64_t tallest_rows() const { return block_rows + (short_blocks < row_blocks ? 1 : 0); }
  bool tail() const { return columns % block_columns != 0; }
};

/// So far ahead `asks_for_pages` asks: four small pages.
inline constexpr std::int64_t pages_ahead_bytes = 4 * 4096;

/// Rows and columns of a tile of sums, and the most steps of k in one of operands.
inline constexpr std::int64_t tile_rows = 16, tile_columns = 16, most_tile_steps = 16;

/// How a block of so many rows falls into tiles: two of rows and two of columns, or one of rows and
/// four of columns, each pass over k.
struct TileCut {
  std::int64_t row_tiles = 1;
  std::int64_t first_rows = 1, last_rows = 1;  ///< of the first row tile and of the last one
  std::int64_t together = 1;                   ///< tiles of columns in a pass

  explicit TileCut(std::int64_t rows)
      : row_tiles(rows > tile_rows ? 2 : 1),
        first_rows((rows + row_tiles - 1) / row_tiles),
        last_rows(rows - first_rows * (row_tiles - 1)),
        together(row_tiles == 2 ? 2 : 4) {}
};

struct PlanMachine {
  unsigned vector_bytes = 16;
  unsigned registers = 16;
  bool bf16_dot = false, vnni = false;
  bool bf16_tiles = false, byte_tiles = false, large_l2 = false;

  explicit PlanMachine(const Machine& machine)
      : vector_bytes(machine.vector_bytes),
        registers(machine.registers),
        bf16_dot(machine.bf16_dot),
        vnni(machine.vnni),
        bf16_tiles(machine.bf16_tiles),
        byte_tiles(machine.byte_tiles),
        large_l2(machine.large_l2) {}
};

/// Few accumulators do not cover the latency of a multiply-add: so many sets are summed at the end
/// of a block of so many rows. The last column block, narrow as it may be, has as many as all
/// others: equal columns have equal sums, wherever they lie.
std::int64_t accumulator_sets(const ContractionPlan& plan, std::int64_t rows,
                              const PlanMachine& machine);

/// Registers of the last column block that hold columns.
unsigned last_vectors(const ContractionPlan& plan);

/// The plan of the last column block, of which only the first registers may hold columns.
ContractionPlan narrow_plan(ContractionPlan plan);

/// The plan of the other column blocks where the last one has code of its own: all of theirs exist.
/// What they count as left are more columns than there are, by the difference of both plans'.
ContractionPlan full_plan(ContractionPlan plan);

/// Copies lines of A where that pays: replaces the plan's m and k by those in the copy and drops
/// its guards. `guards`: those that can fail; `k`: the k dims as they are, with B's steps.
/// `tiles`: the products are made in tiles where rows lie at one distance and meet no guards.
void plan_lines(const loop::Contraction& contraction, const std::vector<const loop::Guard*>& guards,
                std::vector<AddressDim> k, const PlanMachine& machine, bool tiles,
                ContractionPlan& plan);

/// Whether the rows of a result end inside of a line, as elements of the accumulator's type.
/// Workers that shared out its columns would write the line in the middle by turns, and wait for
/// each other there.
bool tears_lines(const loop::Contraction& contraction);

/// Cuts a plan whose blocks are known into work items.
void plan_items(const loop::Contraction& contraction, DType a_dtype, DType b_dtype,
                const PlanMachine& machine, ContractionPlan& plan);

/// Neighbours merged where A, B and the guards allow it; dims of extent 1 left out.
std::vector<AddressDim> merge(const std::vector<AddressDim>& dims);

/// The plan; the contraction's extents must be at least 1.
ContractionPlan plan_contraction(const loop::Contraction& contraction, DType a_dtype, DType b_dtype,
                                 const PlanMachine& machine);

/// Whether the contraction becomes dot products (emit_dots): one column, of which B lies side by
/// side along the run of k. A block of them has as many rows as a register has lanes.
bool is_dots(const loop::Contraction& contraction, const ContractionPlan& plan, DType a_dtype,
             DType b_dtype);

/// Blocks of a work item of dot products whose A is read where it lies.
std::int64_t dot_blocks_per_item(const ContractionPlan& plan);

/// Rows of a block of dot products that are read side by side. Long rows are streams from memory,
/// of which the processor follows a few better than many.
std::int64_t dot_rows_together(const ContractionPlan& plan);

/// The dims of `extents` that are longer than 1, neighbours merged where every list in `strides`
/// allows it. Result: dims with guards[i] = stride of list i.
std::vector<AddressDim> merge_dims(const std::vector<std::int64_t>& extents,
                                   const std::vector<std::vector<std::int64_t>>& strides);

}  // namespace rlx::codegen
