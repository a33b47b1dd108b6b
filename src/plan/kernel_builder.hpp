// Writes the loop IR of one region: expressions over its nodes, loads and stores through affine
// maps.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "codegen/loop.hpp"
#include "graph/scalar_value.hpp"
#include "plan/placement.hpp"
#include "plan/plan.hpp"
#include "plan/regions.hpp"

namespace rlx::plan {

/// Buffers of one kernel: plan buffers in the order in which the kernel numbers them.
class KernelBuffers {
 public:
  explicit KernelBuffers(const std::vector<BufferPlan>& all) : all_(all) {}
  std::int32_t number(std::int32_t plan_buffer, bool written);
  std::vector<loop::Buffer> declared;
  std::vector<std::int32_t> plan_buffers;

 private:
  const std::vector<BufferPlan>& all_;
};

/// Where a value lies: a plan buffer and a view of it.
struct Located {
  std::int32_t buffer = -1;
  View view;
};

using Locate = std::function<Located(ValueId)>;

/// Strides over the region's axes -> strides over the kernel's domain.
using MapStrides = std::function<std::vector<std::int64_t>(const std::vector<std::int64_t>&)>;

/// Builds the expression of region nodes into `nodes` and `accesses`.
class ExpressionBuilder {
 public:
  ExpressionBuilder(const Graph& graph, const Dims& dims, MapStrides map, Locate locate,
                    KernelBuffers& buffers, std::vector<ScalarNode>& nodes,
                    std::vector<loop::Access>& accesses)
      : graph_(graph),
        dims_(dims),
        map_(std::move(map)),
        locate_(std::move(locate)),
        buffers_(buffers),
        accesses_(accesses),
        builder_(nodes) {}

  /// Nodes whose expressions are evaluated where they are read.
  void recompute(std::vector<std::int32_t> nodes) { recomputed_ = std::move(nodes); }
  /// From here on expressions are of the points `origin` behind those of the domain, over the
  /// region's axes; none is known yet. Where a guard fails there is no such point: nothing of it is
  /// read or written.
  void move_to(Dims origin, std::vector<loop::Guard> guards = {}) {
    origin_ = std::move(origin);
    guards_ = std::move(guards);
    values_.clear();
  }
  /// The value of an operand: an expression that is there or can be made, or a load.
  ScalarValue operand(ValueId id);
  /// Adds the node's expression.
  void add(std::int32_t index);
  /// Declares what a value is here (the accumulator, a pool's sum).
  void set(ValueId id, ScalarValue value) { values_[id] = value; }
  bool has(ValueId id) const { return values_.contains(id); }
  ScalarValue load(loop::Access access, DType dtype);
  loop::Access access_of(ValueId id, bool written);
  /// Of a buffer from `offset` on, with these strides over the region's axes.
  loop::Access access(std::int32_t buffer, std::int64_t offset,
                      const std::vector<std::int64_t>& strides, bool written);
  loop::Store store(ValueId id);
  ScalarBuilder& builder() { return builder_; }
  bool uses_indices() const { return uses_indices_; }

 private:
  ScalarValue gather(const Node& node);
  ScalarValue gather_elements(const Node& node);
  ScalarValue gather_nd(const Node& node);
  ScalarValue dynamic_slice(const Node& node);
  ScalarValue padded(const Node& node);
  ScalarValue reduction(const Node& node);

  const Graph& graph_;
  const Dims& dims_;
  MapStrides map_;
  Locate locate_;
  KernelBuffers& buffers_;
  std::vector<loop::Access>& accesses_;
  ScalarBuilder builder_;
  std::map<ValueId, ScalarValue> values_;
  std::vector<std::int32_t> recomputed_;
  Dims origin_;  ///< empty: that of the region
  std::vector<loop::Guard> guards_;
  bool uses_indices_ = false;
};

/// What is filled in where a reduction sees no element.
double reduction_identity(Reduction kind, DType dtype);
ReduceKind reduce_kind_of(Reduction kind);

}  // namespace rlx::plan
