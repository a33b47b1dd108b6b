// LIR: the plan of a program as plain data. Kernels in order, each with its buffers; buffers as
// arena offsets, weights, inputs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codegen/loop.hpp"
#include "codegen/pack.hpp"
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
  state,   ///< the named buffer states[index]
};

struct BufferPlan {
  DType dtype = DType::f32;
  std::int64_t elements = 0;
  Storage storage = Storage::arena;
  std::int32_t index = -1;
  std::int64_t offset = 0;       ///< bytes in the arena
  std::int32_t first_step = -1;  ///< of its life, inclusive
  std::int32_t last_step = -1;
  std::string name;  ///< of the value, for people

  std::int64_t bytes() const { return elements * static_cast<std::int64_t>(size_of(dtype)); }
};

/// A value that depends on params and constants alone, in the layout in which kernels read it.
struct WeightPlan {
  View view;  ///< of a weight-only value of the MIR graph
  DType dtype = DType::f32;
  bool packed = false;  ///< else dense, in the view's order
  codegen::PackedLayout layout;
  /// Packed: strides of the view by role.
  std::vector<std::int64_t> batch_extents, batch_strides, k_extents, k_strides;
  std::int64_t n = 0, n_stride = 1;
  std::int64_t bytes = 0;
};

/// An op that runs through its reference evaluation, on worker 0.
struct HostCall {
  Op op;
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
  enum class Kind : std::uint8_t { kernel, host } kind = Kind::kernel;
  std::int32_t index = -1;            ///< kernels[index] or host_calls[index]
  std::vector<std::int32_t> buffers;  ///< kernel: one for each of its buffers
  std::vector<Condition> conditions;  ///< skipped where one does not hold
  std::int32_t threads = 1;
  bool barrier_before = true;  ///< what earlier steps wrote is read
  std::string name;            ///< kernel kind: "matmul", "nest", ...
  std::string region;          ///< the ops inside: "dot_general+add+gelu"
  double flops = 0, bytes = 0;
};

struct Plan {
  std::vector<BufferPlan> buffers;
  std::vector<WeightPlan> weights;
  std::vector<loop::Kernel> kernels;
  std::vector<HostCall> host_calls;
  std::vector<Step> steps;
  std::vector<op::State> states;
  std::vector<std::int32_t> inputs;   ///< buffer of each input
  std::vector<std::int32_t> outputs;  ///< buffer of each output, in the arena
  std::vector<Type> output_types;
  std::int32_t error_buffer = -1;  ///< i32[1] in the arena: set by kernels that saw a bad index
  std::int64_t arena_bytes = 0;
  std::int64_t arena_lower_bound_bytes = 0;
  std::vector<FusionQuestion> questions;  ///< what the planner asked, in its order
  double planning_ms = 0;                 ///< forming the regions took so long
};

/// The text of a plan, byte-stable.
std::string to_text(const Plan& plan);

}  // namespace rlx::plan
