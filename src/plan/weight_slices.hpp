// Weights that are computed and packed some columns at a time, in memory that stays in the caches:
// their values are never in memory as a whole.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "plan/weight_values.hpp"
#include "plan/weights.hpp"

namespace rlx::plan {

/// Memory that slices are computed in: a block for each thread that is at it, used again.
class SliceMemory {
 public:
  void reserve(std::int64_t bytes) { bytes_ = std::max(bytes_, bytes); }
  /// As many bytes as were reserved at most, with anything in them.
  std::shared_ptr<std::byte> take();
  void give(std::shared_ptr<std::byte> block);

 private:
  std::int64_t bytes_ = 0;
  std::mutex mutex_;
  std::vector<std::shared_ptr<std::byte>> free_;
};

/// A value whose columns, the last of its axes, come from rows of another.
struct ColumnwiseValue {
  const Node* node;  ///< of an op with the trait rows_to_columns
  Tensor rows;       ///< its operand
  Type type;         ///< of the value

  std::int64_t columns() const { return type.shape.back().value(); }
  /// Of so many columns.
  std::int64_t bytes(std::int64_t width) const;
};

/// The value as such a one, where its operand is there already.
std::optional<ColumnwiseValue> columnwise(const Graph& graph, ValueId id,
                                          const WeightValues& values);

/// A weight, and where its packed bytes go.
struct WeightTarget {
  const WeightPlan* weight;
  std::byte* memory;
};

/// So many columns at a time fill whole panels of all the weights and lie in a cache; 0 where the
/// weights want the value as a whole.
std::int64_t columns_at_a_time(const ColumnwiseValue& value, std::span<const WeightTarget> targets);

/// Computes these columns and packs them into every target: the bytes that come of the whole.
Status pack_columns(const ColumnwiseValue& value, std::int64_t first, std::int64_t last,
                    std::span<const WeightTarget> targets, SliceMemory& memory);

}  // namespace rlx::plan
