// Weights of a plan: what params and constants become before the first run, computed once and
// shared.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/memory_budget.hpp"
#include "base/thread_pool.hpp"
#include "plan/expert_store.hpp"
#include "plan/plan.hpp"
#include "plan/regions.hpp"

namespace rlx::plan {

/// Packs panels [first_panel, last_panel) of one matrix of a packed weight; `matrix` is where that
/// matrix begins.
void pack_panels(const WeightPlan& weight, const Tensor& source, std::int64_t batch,
                 std::int64_t first_panel, std::int64_t last_panel, std::byte* matrix);

/// Names what the packed bytes are made of, for plans that share a model's weights.
std::string weight_key(const WeightPlan& weight, const Tensor& source);

/// Packed layouts of weights that lie in memory, found again by the plans of other shapes. Holds
/// nothing alive. Thread-safe.
class WeightCache {
 public:
  /// `sources`: what they were packed from, whose addresses the key has. Null where nothing is
  /// known of these very sources.
  std::shared_ptr<const std::byte> find(const std::string& key, std::span<const Tensor> sources);
  void keep(const std::string& key, const std::shared_ptr<const std::byte>& bytes,
            std::span<const Tensor> sources);
  /// The matrices of a weight of experts; made where nobody holds them.
  std::shared_ptr<ExpertStore> experts(const WeightPlan& weight, const Tensor& source);
  /// What packed weights are taken from.
  std::shared_ptr<MemoryBudget> budget = std::make_shared<MemoryBudget>();

 private:
  std::mutex mutex_;
  struct Known {
    std::weak_ptr<const std::byte> bytes;
    /// Where one is gone another tensor may have its address: then the entry counts no more.
    std::vector<std::weak_ptr<const std::byte>> sources;
  };
  std::map<std::string, Known> known_;
  std::map<std::string, std::weak_ptr<ExpertStore>> experts_;
};

/// The bytes of every entry of plan.weights.
class Weights {
 public:
  /// Params that have no data yet leave their weights without bytes (see missing()). Packs on all
  /// free threads of the pool.
  static Result<std::shared_ptr<const Weights>> prepare(std::shared_ptr<const FlatGraph> graph,
                                                        const Plan& plan, WeightCache& cache,
                                                        ThreadPool& pool);
  /// The same with one param set anew; shares all that does not depend on it.
  Result<std::shared_ptr<const Weights>> with_param(std::string_view name, const Tensor& value,
                                                    const Plan& plan, WeightCache& cache,
                                                    ThreadPool& pool) const;

  /// Weights that an earlier process packed; null bytes where a param had no value.
  static std::shared_ptr<const Weights> adopt(std::shared_ptr<const FlatGraph> graph,
                                              const Plan& plan,
                                              std::vector<std::shared_ptr<const std::byte>> bytes,
                                              const std::shared_ptr<MemoryBudget>& budget);

  const std::shared_ptr<const std::byte>& shared_data(std::size_t index) const {
    return bytes_[index];
  }
  const std::byte* data(std::size_t index) const { return bytes_[index].get(); }
  /// Of a weight of experts, which has no bytes of its own; null where its param has no value.
  const std::shared_ptr<ExpertStore>& experts(std::size_t index) const { return experts_[index]; }
  /// The name of a param that is needed and has no value; empty where all have one.
  const std::string& missing() const { return missing_; }
  std::int64_t bytes_total() const { return bytes_total_; }

 private:
  struct Fresh;
  struct Kept;
  struct Values;
  std::vector<Values> values_of(const Plan& plan, const std::vector<bool>& wanted) const;
  /// Drops the set params that no later call can want in their plain form.
  void forget_params(const Plan& plan);
  /// Sums up what is there and what is missing.
  void count(const Plan& plan);
  Status fill(const Plan& plan, const std::vector<bool>& wanted, WeightCache& cache,
              ThreadPool& pool);
  /// The bytes of a weight that kernels read as it is.
  static Result<std::shared_ptr<const std::byte>> whole(const WeightPlan& weight,
                                                        const Tensor& source, bool is_own,
                                                        WeightCache& cache);
  /// `read`: begins of values that kernels read where they are.
  Status pack_fresh(const Plan& plan, std::span<const Fresh> fresh, std::span<const Values> values,
                    std::set<const std::byte*> read, WeightCache& cache, ThreadPool& pool);

  std::shared_ptr<const FlatGraph> graph_;
  std::map<std::string, Tensor> params_;
  std::vector<std::shared_ptr<const std::byte>> bytes_;
  std::vector<std::shared_ptr<ExpertStore>> experts_;
  std::vector<std::string> missing_of_;  ///< by weight: a param that it needs and that has no value
  std::string missing_;
  std::int64_t bytes_total_ = 0;
};

}  // namespace rlx::plan
