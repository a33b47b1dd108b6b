// Which part of a kernel's buffers each worker of a team touches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codegen/loop.hpp"

namespace rlx::codegen {
struct ContractionPlan;
struct NestPlan;
}  // namespace rlx::codegen

namespace rlx::cost {

/// Elements of a buffer that a kernel reads or writes, and how they fall on workers that take its
/// items in equal parts, one after the other.
struct Share {
  enum class Kind : std::uint8_t {
    each,      ///< every worker touches all of them
    in_order,  ///< the first worker the first ones
    reversed,  ///< the first worker the last ones
    woven,     ///< worker after worker, again and again
  };
  std::int32_t buffer = 0;  ///< of the kernel
  std::int64_t first = 0, last = 0;
  std::int64_t elements = 1;  ///< of those from first to last, how many come in whole lines
  Kind kind = Kind::each;
  /// In order: where the points' elements begin and end, be they outside of the buffer, and how
  /// many workers share out. Windows reach over into the part of the next one by what is left.
  std::int64_t begin = 0, end = 0, shared_out = 0;
  std::int64_t reach() const { return shared_out > 0 ? end - begin - shared_out : 0; }
  std::int64_t period = 0;  ///< woven: elements until the first worker comes again
  std::int64_t run = 0;     ///< woven: the first so many of a period, which workers share out
  std::int64_t unit = 1;    ///< elements of a period that a worker takes at once
  bool written = false;
  /// Only the workers of one part of so many equal ones touch them, as `kind` says.
  std::int32_t part = 0, parts = 1;
};

/// Adds those of a nest that is planned so; of local buffers none.
void add_shares(std::vector<Share>& shares, const codegen::NestPlan& plan,
                std::span<const loop::Buffer> buffers);

/// The same of a contraction; packed B, a weight, left out.
void add_shares(std::vector<Share>& shares, const loop::Contraction& contraction,
                const codegen::ContractionPlan& plan, std::span<const loop::Buffer> buffers);

/// The same of a recurrence; R left out.
void add_shares(std::vector<Share>& shares, const loop::Recurrence& recurrence,
                std::span<const loop::Buffer> buffers);

}  // namespace rlx::cost
