// Values of nodes that depend on params and constants alone.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/byte_sums.hpp"
#include "rlx/graph.hpp"
#include "rlx/ops.hpp"
#include "rlx/tensor.hpp"

namespace rlx::plan {

/// Computes values when they are first needed. Where uses are announced, what only they read is
/// dropped behind the last of them.
class WeightValues {
 public:
  using Params = std::map<std::string, Tensor>;

  /// `common`: values that are there already; it must not change meanwhile.
  WeightValues(const Graph& graph, const Params& params, const WeightValues* common = nullptr)
      : graph_(graph), params_(params), common_(common) {}

  /// The value, or nothing where a param has no data (its name is then in `missing`).
  Result<std::optional<Tensor>> value(ValueId id);

  /// The value, for the only use of it; drops what was computed on the way.
  Result<std::optional<Tensor>> take(ValueId id);

  /// The value, where nothing has to be computed for it.
  std::optional<Tensor> ready(ValueId id) const;

  /// Announces one use of the value. It stays, as nobody says when that use is over.
  void announce(ValueId id);

  std::string missing;

 private:
  void release(ValueId id);
  bool is_for_one(ValueId id) const;
  bool is_for_many(ValueId id) const;
  Result<std::optional<Tensor>> summed(ValueId id, const ByteSum& sum);
  const std::vector<Tensor>* known(ValueId id) const;

  const Graph& graph_;
  const Params& params_;
  const WeightValues* common_;
  std::map<std::int32_t, std::vector<Tensor>> values_;
  std::map<std::int32_t, int> uses_;  ///< announced and still to come
};

/// What goes on while the node is evaluated, for errors.
std::string preparing(const Node& node);

/// By node: which base it belongs to alone, of those that were added.
class Owners {
 public:
  explicit Owners(const Graph& graph) : graph_(graph), owner_(graph.nodes().size(), nobody) {}

  /// Marks all that the base depends on.
  void add(ValueId base) { mark(base.node, base.node); }
  /// What the base depends on, and it itself, belongs to nobody alone.
  void add_common(ValueId base) { mark(base.node, many); }
  bool is_common(ValueId id) const { return owner_[static_cast<std::size_t>(id.node)] == many; }

 private:
  static constexpr std::int32_t nobody = -1, many = -2;
  void mark(std::int32_t node, std::int32_t owner);

  const Graph& graph_;
  std::vector<std::int32_t> owner_;
};

}  // namespace rlx::plan
