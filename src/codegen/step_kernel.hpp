// Steps of a plan that no generator makes: kernels in C++ that workers share, as generated ones.
#pragma once

#include <cstdint>

namespace rlx::codegen {

/// What a planner asks of such a kernel.
struct StepWork {
  std::int64_t items = 0;  ///< that workers can share; 0: there is no kernel
  double cycles = 0;       ///< for all items on one worker; 0: the op's cost rule tells
  double cycles_each = 0;  ///< that every worker spends besides, however many share
  /// The operand whose bytes the first result may take over; -1: none. The kernel then finds both
  /// at one address.
  std::int32_t in_place = -1;
};

/// Work on inputs and outputs that several workers share. Immutable: runs from many threads.
class StepKernel {
 public:
  virtual ~StepKernel() = default;
  /// The range that workers share out.
  virtual std::int64_t work_items() const = 0;
  /// For each worker, aligned to 64.
  virtual std::int64_t scratch_bytes() const = 0;
  /// Items [begin, end). buffers: the inputs (null: left out), then the outputs, dense. Allocates
  /// nothing. Throws Exception where the data is wrong (an index outside its axis).
  virtual void run(void* const* buffers, std::int64_t begin, std::int64_t end,
                   void* scratch) const = 0;
};

}  // namespace rlx::codegen
