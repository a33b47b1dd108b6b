// The builder behind build_plan: what its parts (build.cpp and the files beside it) share.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "graph/byte_weight.hpp"
#include "plan/build.hpp"
#include "plan/build_recurrence.hpp"
#include "plan/domain.hpp"
#include "plan/kernel_builder.hpp"
#include "plan/placement.hpp"

namespace rlx::plan {

/// Turns regions into steps. One use: construct, run.
class PlanBuilder {
 public:
  PlanBuilder(const FlatGraph& flat, const BuildOptions& options)
      : flat_(flat),
        graph_(flat.graph),
        options_(options),
        regions_(form_regions(flat, options.fusion)),
        placement_(flat, regions_, options.threads) {}

  Result<Plan> run();

 private:
  // build.cpp: values, buffers, steps
  void collect_users();
  void add_leaf(std::int32_t index);
  std::int32_t add_buffer(const Type& type, Storage storage, std::int32_t index, std::string name);
  /// The buffer that holds the base of a view; made on first use.
  std::int32_t buffer_of(ValueId base);
  /// The buffer of a weight; of one that is there already, that one's.
  std::int32_t add_weight(WeightPlan weight, const Type& type);
  /// Lets weights that nothing but products reads drop what is nothing beside the rest.
  void let_drop_negligible();
  Located locate(ValueId id);
  std::int32_t error_buffer();
  std::string region_text(const Region& region) const;
  std::vector<Condition> conditions(const Region& region);
  /// A map touches no more elements of a buffer than it has points; 0 points: all of the buffer.
  static double bytes_touched(const BufferPlan& buffer, double points);
  /// `points`: of the domain of a nest that reads and writes one element of a buffer at each; else
  /// 0.
  void add_kernel(loop::Kernel kernel, std::vector<std::int32_t> buffers, std::string name,
                  double flops, double points);
  /// Values of the region that other steps read.
  bool is_stored(std::int32_t index) const;

  // build_nest.cpp: nests and windows
  /// Writes the expressions of the region's nodes into `nest`, which must stay where it is.
  ExpressionBuilder expression_of(const Region& region, const Domain& domain,
                                  KernelBuffers& buffers, loop::Nest& nest);
  /// The nodes that follow the root, whose value here is `root`, and the stores of them all.
  void add_behind_root(const Region& region, ScalarValue root, ExpressionBuilder& expression,
                       loop::Nest& nest);
  /// Finishes a nest whose expression is in `nest`; `points` as for add_kernel.
  void finish_nest(loop::Nest nest, const Domain& domain, KernelBuffers& buffers, bool uses_indices,
                   std::string name, double flops, double points);
  Status add_nest(const Region& region);
  /// A reshape that copies: the operand's points in row-major order are the result's.
  loop::Store store_of_copy(std::int32_t index, const Region& region, const Domain& domain,
                            KernelBuffers& buffers, ExpressionBuilder& expression);
  Status add_window(const Region& region);
  /// w [spatial..., 1, C] read at (c | k...).
  ScalarValue depthwise_weight(const Node& root, const Region& region, const Domain& domain,
                               KernelBuffers& buffers, ExpressionBuilder& expression, bool narrow);

  // build_tiles.cpp
  /// A transform of Winograd's tiles: every point or pixel of a tile is made in one place.
  void add_tiles(const Region& region);
  /// The three steps of a convolution by points as one kernel, a strip of tiles at a time.
  void add_tile_strips(const Region& region);
  /// Rows of channels of planes in workers' scratch, [planes, rows, channels].
  Located worker_planes(const Dims& dims, DType dtype, std::string name);
  /// Gives a value [points, tiles, channels] such a place for so many tiles.
  void place_strip(ValueId id, std::int64_t columns);
  /// What a transform reads.
  Located pixels_or_products(const Region& region);
  /// The transform of a region as the next stages of `strips`. strip_columns: points are those of
  /// the strip that the leading dims name, of so many columns of tiles; 0: of all tiles.
  void add_passes(const Region& region, const Located& source, std::int64_t strip_columns,
                  KernelBuffers& buffers, loop::Strips& strips);
  /// Lets workers share out the points of an image where the last step's kernel, which multiplies
  /// the value `points`, shares them out.
  void share_points(ValueId points);

  // build_contraction.cpp
  Status add_contraction(const Region& region);
  /// build_weight_rows.cpp: the same for one row times a weight that is read where it lies; false
  /// (and nothing added) where the product is not of that kind.
  bool add_weight_rows(const Region& region);
  static void set_domain(const loop::Contraction& c, Domain& domain);
  void describe_dot(const Node& root, const op::DotGeneral& dot, const Region& region,
                    loop::Contraction& c, Domain& domain, KernelBuffers& buffers);
  /// A product's B: where it is read, and the element type that it is stored in. A weight that is
  /// rounded from f32, or widened from bytes or halves, is read before that, and packing converts
  /// it; halves that are waited for stay halves.
  struct Operand {
    View view;
    DType dtype = f32;
  };
  Operand b_of(const Node& product) const;
  /// So many k of a packed B side by side as the machine multiplies at once.
  std::int64_t k_group(const loop::Contraction& c, DType a, DType b) const;
  /// B as the numbers that it is stored as, with their scales and zeros beside it; c's k dims
  /// become (blocks, k of a block).
  void set_bytes(const ByteWeight& b, loop::Contraction& c, KernelBuffers& buffers);
  /// The buffer of a matrix of c.n columns in panels, with so many k.
  std::int32_t packed_matrix(View view, DType dtype, bool nibbles, std::int64_t k,
                             std::int64_t k_stride, std::int64_t n_stride,
                             const loop::Contraction& c);
  /// B packed once where it is a weight, else read where it lies.
  void set_b(ValueId value, const Operand& b, loop::Contraction& c, KernelBuffers& buffers);
  /// B of a convolution to one channel, dense in the order of its k dims.
  void set_column(const View& w, loop::Contraction& c, KernelBuffers& buffers);
  void describe_conv(const Node& root, const op::Conv& conv, const Region& region,
                     loop::Contraction& c, Domain& domain, KernelBuffers& buffers);
  /// The nodes behind a contraction: maps on its tiles; from the first reduction on, a nest over
  /// whole rows.
  void add_epilogue(const Region& region, const Domain& domain, loop::Contraction& c,
                    KernelBuffers& buffers);

  // build_recurrence.cpp
  /// x * W for all steps at once, then the walk over the steps, or a loop of single steps where
  /// that is predicted faster.
  void add_recurrence(const Region& region);
  /// That loop: the walk's kernel, which reads and writes `buffers`, once for each step.
  void add_steps(loop::Recurrence walk, KernelBuffers buffers, double flops);
  void add_projection(const Node& root, const RecurrentLayout& layout, std::int32_t target);

  // build_chain.cpp: two contractions as one kernel
  Status add_chain(const Region& region);
  /// The value of `before` that the root of a chain reads.
  ValueId rows_of(const Region& region) const {
    const Node& root = graph_.nodes()[static_cast<std::size_t>(region.root)];
    return operand_read(graph_, regions_, root.inputs[0]);
  }
  void place_rows(const Region& first, ValueId rows);
  loop::Contraction chain_stage(const Region& region, KernelBuffers& buffers);

  // build_copies.cpp: copies, host calls, outputs
  /// Copies `from` (a view of some buffer) to a view of the same dims in the buffer `to`.
  void add_copy(const Located& from, std::int32_t to, const View& target, const std::string& name);
  void add_concat(const Region& region);
  /// A buffer that holds the value densely from its first byte on.
  std::int32_t dense_buffer(ValueId id);
  /// Where a value lies, or a dense copy of it where its last axis does not lie side by side: for
  /// kernels whose lanes run along it and which read every element several times.
  Located channels_side_by_side(ValueId id);
  /// The same for a value that depends on params and constants alone.
  std::int32_t dense_weight(ValueId id);
  /// A depthwise convolution's constant weights [taps.., 1, channels], with their channels side by
  /// side, as lanes read them, and gaps between taps that would crowd the sets of a cache.
  Located taps_of_channels(ValueId id);
  /// Where maps read a value: a small weight that is shown turned is kept turned, since lanes would
  /// gather its elements in every run.
  Located locate_for_lanes(ValueId id);
  Status add_host(const Region& region);
  Status add_call(const Region& region);
  /// Every output has a dense buffer of its own in the arena.
  void add_outputs();
  void add_output_copy(ValueId value, const Located& located, std::int32_t target);

  // build_experts.cpp
  /// A grouped matmul as one step with kernels for groups of a few rows.
  Status add_grouped(const Region& region);
  /// Where the matrices of experts lie: packed apart where they are weights, else dense.
  void place_matrices(ValueId w, GroupedPlan& grouped, loop::Contraction& c);
  /// The same for all grouped matmuls that read one choice; sets is_first.
  void set_layer(ValueId chosen, GroupedPlan& grouped);

  // build_loops.cpp
  /// A loop as a step whose body is a plan of its own, merged into this one.
  Status add_loop(const Region& region, const FlatGraph& body);
  /// The buffers of a loop's operands and results, given to the inputs and outputs of its body;
  /// `touched` gets those that the loop's step reads or writes.
  std::vector<std::int32_t> bind_body(const Region& region, const Plan& body, LoopPlan& loop,
                                      std::vector<std::int32_t>& touched);
  std::int32_t add_slot(const Type& type, const char* name);
  /// Takes over everything of the body's plan; gives the bytes set apart for its buffers.
  std::int32_t merge_body(const Region& region, Plan body, std::vector<std::int32_t> renamed,
                          LoopPlan& loop);

  const FlatGraph& flat_;
  const Graph& graph_;
  const BuildOptions& options_;
  const Regions regions_;
  const Placement placement_;
  Plan plan_;
  const Region* current_ = nullptr;
  std::map<ValueId, std::int32_t> buffer_of_, dense_of_, layer_of_;
  std::map<std::int32_t, std::size_t> images_;  ///< kernels that make the points of images, by node
  std::map<ValueId, Located> worker_rows_;      ///< of the first contraction of the chain in work
  std::set<std::int32_t> products_;             ///< kernels that multiply
  std::vector<bool> read_outside_;
};

}  // namespace rlx::plan
