// How a nest becomes loops: dims dropped and merged, the dim that lanes run along, and what a work
// item is.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "codegen/index_range.hpp"
#include "codegen/machine.hpp"

namespace rlx::codegen {

/// Bit i: dim i.
using DimSet = std::uint64_t;

/// Guards that differ in their offsets alone and tell nothing of single lanes: where 0 <= first + p
/// and last + p < extent for p = sum(coefficients[i] * d[i]), all of them hold.
struct Border {
  std::int64_t first = 0, last = 0, extent = 0;
  std::vector<std::int64_t> coefficients;
};

/// The nest in the form that code is made from, and the decisions.
///
/// Loops, outer to inner: work items (all parallel dims before `split_dim`, and blocks of
/// `split_size` of that dim, or the blocks before those dims), the rest of the parallel dims, then
/// the reduced dims once for each pass. The vector dim is the last parallel dim or the last reduced
/// one. All of it depends on the kernel and the ISA alone, so results never depend on the number of
/// threads.
struct NestPlan {
  loop::Nest nest;  ///< no dim of extent 1 but the last; neighbours merged; the vector dim last of
                    ///< its kind
  int vector_dim = 0;
  unsigned lanes = 1;
  unsigned unroll = 1;        ///< vectors that one round of the vector loop takes
  bool abreast = false;       ///< each series is computed for all vectors of a round
  bool pairs_series = false;  ///< and for two of them with the instructions of both in turns
  /// Points of the dim before the vector dim that are computed together, sharing loads (the taps of
  /// depthwise convolutions).
  unsigned tile = 1;
  unsigned single_unroll = 1;  ///< unroll of points that are in no tile
  /// Where lanes run along reduced dims: each pass is made for so many rows before the next pass,
  /// so that the rows' series and sums overlap.
  std::int64_t row_block = 1;
  unsigned rows = 1;      ///< rows of a block whose lanes are joined together
  bool any_rows = false;  ///< nothing says how many rows there will be at once
  /// Accesses that run along the tile dim: a tile of lanes x lanes elements is read in runs and
  /// turned.
  std::vector<int> turned;
  /// Stores write every `tile`-th element along the vector dim, and along the tile dim those
  /// between: the vectors of a tile are woven into runs.
  bool woven = false;
  /// Of a map with many guarded loads: blocks of lanes that lie inside of all borders have code of
  /// their own, which asks for none of them.
  std::vector<Border> borders;
  /// Of a reduction whose guards run along its lanes: the indices of the vector dim for which they
  /// all hold, whatever is reduced. Lanes take these without asking, the others come one by one.
  IndexRange inside;
  /// No store changes what a load reads: points may be computed twice, so that the last vector of a
  /// row reaches back into the one before it.
  bool may_repeat = false;
  int split_dim = 0;
  std::int64_t split_size = 1;
  bool blocks_first = false;  ///< items are in the order of the blocks, not of the dims before
  /// The first of the dims whose loops lie inside of an item: tiles go on along theirs where items
  /// are blocks of the vector dim.
  int inner_dim = 0;
  std::int64_t items = 1;

  std::vector<DimSet>
      node_dims;  ///< dims that a node depends on, other than inside of its reductions
  std::vector<int> node_level;  ///< reductions on the longest way to the node, itself included
  int levels = 0;               ///< passes of reductions

  int tile_dim() const { return vector_dim - 1; }
  int row_dim() const { return nest.parallel_dims - 1; }
  bool vector_is_reduced() const { return vector_dim >= nest.parallel_dims; }
  int rank() const { return static_cast<int>(nest.extents.size()); }
  std::int64_t points(int first, int last) const;  ///< product of extents
  DimSet reduced_dims() const;
  bool has_inside() const { return inside.size() > 0; }
  /// Does code of points inside of all borders leave the guard out?
  bool is_of_border(const loop::Guard& guard) const;
};

/// Windows of tiles up to this length have no loop.
inline constexpr std::int64_t longest_unrolled = 7;

/// With `rows` a work item is one point of the parallel dims, in row-major order, and lanes run
/// along the last dim.
NestPlan plan_nest(const loop::Nest& nest, const Machine& machine, bool rows = false);

/// Decides on `row_block` and `rows`; a step of plan_nest.
void plan_rows(NestPlan& plan, bool rows);

/// Cuts a plan whose tiles and row blocks are known into work items; a step of plan_nest.
void plan_items(NestPlan& plan, bool rows);

/// Finds which points have code that asks no guards; a step of plan_nest behind all others.
void find_borders(NestPlan& plan);

/// Of a nest that reduces: the indices of a parallel dim for which no guard along it fails,
/// whatever is reduced. Empty where no guard runs along it, or where they fill no register of
/// `lanes` or leave more than a fifth to the borders.
IndexRange inside_along(const loop::Nest& nest, int dim, unsigned lanes);

/// The parallel dim, beside the vector dim, along which neighbours lie closest in the first store;
/// or -1.
int column_dim_of(const NestPlan& plan);

/// How a window walks where L1 does not hold what the points of a row read: down the rows of a band
/// with some of the channels, then with the next ones.
struct WindowBands {
  std::int64_t channels = 0;  ///< 0: along the rows with all of them
  std::int64_t count = 1;     ///< of bands, by the last parallel dim beside columns and channels
};
WindowBands bands_of_window(const NestPlan& plan, std::span<const loop::Buffer> buffers,
                            const Machine& machine);

/// Dims that an access depends on; node_dims of its indirect parts included.
DimSet dims_of(const loop::Access& access, const std::vector<DimSet>& node_dims);

/// The part of an access whose places lie so close to each other along the lanes that registers are
/// read whole, as many as its `step`, and lanes picked from those; or null.
const loop::Indirect* picked_part(const loop::Access& access, DType dtype,
                                  std::span<const ScalarNode> nodes,
                                  std::span<const loop::Access> accesses, int vector_dim,
                                  unsigned lanes, const Machine& machine);

/// Node_dims for the nodes of a nest.
std::vector<DimSet> node_dims_of(const loop::Nest& nest);

/// What an element takes of a register.
unsigned register_bytes(DType dtype);

/// Rough cost of one operation in instructions.
int cost_of(const ScalarNode& node);

/// Whether it is computed by a series of dependent operations (exp, tanh, ...).
bool is_series(const ScalarNode& node);

/// The curve x of a node 1 + x in f32 that code makes in one go, of an erf, a tanh or an exp; or
/// -1.
ScalarId curve_beside_one(const ScalarNode& node, std::span<const ScalarNode> nodes);

/// The node x of 1 / (1 + e^x) in f32, which code with masked registers makes without a division;
/// or -1.
ScalarId logistic_of(const ScalarNode& node, std::span<const ScalarNode> nodes);

/// 4 |exponent| of a power that code makes of products and square roots: whole, to 16; else -1.
int quarters_of(double exponent);

/// The nodes from which code computes this one, -1 for none: its operands, or what a curve beside 1
/// or a logistic is a curve of.
std::array<ScalarId, 3> sources_of(const ScalarNode& node, std::span<const ScalarNode> nodes,
                                   const Machine& machine);

/// The series that code computes for the nodes that are `needed` and all that these need, each
/// behind those that it waits for; of what is made in one go the node that it ends in. Sums are
/// there already, as are the `known` nodes.
std::vector<ScalarId> series_of(const loop::Nest& nest, std::vector<bool> needed,
                                std::span<const ScalarId> known, const Machine& machine);

}  // namespace rlx::codegen
