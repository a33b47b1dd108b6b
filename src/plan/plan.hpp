// LIR: the plan of a program as plain data. Kernels in order, each with its buffers; buffers as
// arena offsets, weights, inputs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "codegen/loop.hpp"
#include "codegen/pack.hpp"
#include "codegen/step_kernel.hpp"
#include "plan/view.hpp"
#include "rlx/cost.hpp"
#include "rlx/graph.hpp"
#include "rlx/ops.hpp"
#include "rlx/tensor.hpp"

namespace rlx::plan {

/// Where a buffer lives.
enum class Storage : std::uint8_t {
  arena,   ///< arena + offset
  input,   ///< the caller's memory of input `index`
  weight,  ///< weights[index], prepared once
  state,   ///< the named buffer states[index]; -1: the flag that ends the run, one bool
  slot,    ///< where the loop that owns slot `index` says, for each iteration anew
  worker,  ///< in the scratch of each worker, inside one kernel; no address
};

struct BufferPlan {
  DType dtype = DType::f32;
  std::int64_t elements = 0;
  Storage storage = Storage::arena;
  std::int32_t index = -1;
  std::int64_t offset = 0;       ///< bytes in the arena
  std::int32_t first_step = -1;  ///< of its life, inclusive
  std::int32_t last_step = -1;
  std::int32_t within = -1;      ///< the buffer that holds this one; its offset counts from there
  std::int32_t takes_over = -1;  ///< the buffer whose bytes it takes over in place, or -1
  std::string name;              ///< of the value, for people

  std::int64_t bytes() const { return elements * static_cast<std::int64_t>(size_of(dtype)); }
};

/// A value that depends on params and constants alone, in the layout in which kernels read it.
struct WeightPlan {
  View view;               ///< of a weight-only value of the MIR graph, or of a loop's body
  std::int32_t graph = 0;  ///< which: a position in graphs_of
  DType dtype = DType::f32;
  bool packed = false;        ///< else dense, in the view's order
  std::optional<DType> from;  ///< packed: of the view's elements, where packing converts them
  codegen::PackedLayout layout;
  /// Packed: strides of the view by role.
  std::vector<std::int64_t> batch_extents, batch_strides, k_extents, k_strides;
  std::int64_t n = 0, n_stride = 1;
  std::int64_t bytes = 0;
  /// Packed matrices of so many experts, which may live apart (expert_store.hpp); 0: an ordinary
  /// weight.
  std::int64_t experts = 0;
  /// Of f32: what is nothing beside others counts as zero (negligible.hpp).
  bool drops_negligible = false;

  bool operator==(const WeightPlan&) const = default;
};

/// An op that runs through its reference evaluation, on worker 0, or through a kernel of the
/// backend's own.
struct HostCall {
  Op op;
  codegen::StepWork work;            ///< of the backend's kernel; no items: it is evaluated
  std::vector<std::int32_t> inputs;  ///< buffers, dense; -1: left out
  std::vector<Dims> input_dims;
  std::vector<std::int32_t> outputs;
  std::vector<Dims> output_dims;
};

/// Holds where the bool scalar in `buffer` equals holds_if.
struct Condition {
  std::int32_t buffer = -1;
  bool holds_if = true;
};

struct Step {
  enum class Kind : std::uint8_t { kernel, host, loop, experts } kind = Kind::kernel;
  std::int32_t index = -1;            ///< kernels, host_calls, loops or grouped[index]
  std::vector<std::int32_t> buffers;  ///< kernel: one for each of its buffers
  std::vector<Condition> conditions;  ///< skipped where one does not hold
  std::int32_t threads = 1;
  bool barrier_before = true;  ///< what earlier steps wrote is read
  std::string name;            ///< kernel kind: "matmul", "nest", ...
  std::string region;          ///< the ops inside: "dot_general+add+gelu"
  double flops = 0, bytes = 0;
  double predicted_ns = 0;  ///< on `threads` threads, barriers not counted
  std::string bound;        ///< what the prediction says limits it: compute, memory, launch
};

/// A loop: steps that run once for each iteration, on buffers of the same plan.
struct LoopPlan {
  /// A value that iterations hand on: read from `initial` at first, then from `result` and `spare`
  /// in turn; ends up in `result`.
  struct Carry {
    std::int32_t initial = -1, result = -1, spare = -1;
    std::int32_t read_slot = -1, write_slot = -1;
  };
  /// A tensor of which each iteration reads or writes one slice along the first axis.
  struct Slice {
    std::int32_t whole = -1, slot = -1;
    std::int64_t bytes = 0;  ///< of one slice
    bool reversed = false, written = false;
  };
  std::vector<Step> steps;
  std::int64_t trips = -1;       ///< known when the plan is made; -1: no
  std::int32_t trip_count = -1;  ///< i64 buffer; -1: none
  std::int32_t start = -1;       ///< bool buffer that says whether there is a first iteration
  std::int32_t condition = -1;   ///< bool buffer that the steps write; -1: it always goes on
  std::int32_t counter = -1;     ///< i64 buffer with the number of the iteration
  std::int32_t going_on = -1;    ///< bool buffer that is true inside; -1: not read
  std::vector<Carry> carries;
  std::vector<Slice> slices;
};

/// How often a loop goes round, or is taken to where only data tells.
inline std::int64_t iterations_of(const LoopPlan& loop) {
  constexpr std::int64_t assumed = 8;
  return loop.trips >= 0 ? loop.trips : assumed;
}

/// A grouped matmul: rows are put together by expert, and the rows of each expert are multiplied
/// with its matrix by kernels for a few rows.
struct GroupedPlan {
  /// A [rows, depth] dense, B one matrix, C [rows, columns] dense. All have the same work items,
  /// one for each block of columns.
  struct Height {
    std::int64_t rows = 1;
    std::int32_t kernel = -1;
  };
  std::vector<Height> heights;  ///< tallest first; the last one has one row
  std::int64_t column_blocks = 1, block_columns = 1;
  std::int64_t experts = 1, rows = 1, depth = 1, columns = 1;
  std::int64_t rows_per_source = 1;  ///< so many rows one after the other read one row of x
  std::int32_t x = -1, w = -1, chosen = -1, result = -1;  ///< buffers, dense
  std::int32_t weight = -1;  ///< packed matrices: an entry of weights; -1: w lies as it is
  std::int32_t layer = -1;   ///< grouped matmuls that read the same choice
  bool is_first = false;     ///< of its layer
};

struct Plan {
  std::vector<BufferPlan> buffers;
  std::vector<WeightPlan> weights;
  std::vector<loop::Kernel> kernels;
  std::vector<HostCall> host_calls;
  std::vector<LoopPlan> loops;
  std::vector<GroupedPlan> grouped;
  std::int32_t layers = 0;  ///< of grouped matmuls
  std::vector<Step> steps;
  std::vector<op::State> states;
  std::int32_t slots = 0;             ///< addresses that loops set
  std::vector<std::int32_t> inputs;   ///< buffer of each input
  std::vector<std::int32_t> outputs;  ///< buffer of each output, in the arena
  std::vector<Type> output_types;
  std::int32_t error_buffer = -1;  ///< i32[1] in the arena: set by kernels that saw a bad index
  std::int64_t arena_bytes = 0;
  std::int64_t arena_lower_bound_bytes = 0;
  std::vector<FusionQuestion> questions;  ///< what the planner asked, in its order
  double planning_ms = 0;                 ///< forming the regions took so long
  double predicted_ns = 0;                ///< of a run, barriers included
};

/// The text of a plan, byte-stable.
std::string to_text(const Plan& plan);

}  // namespace rlx::plan
