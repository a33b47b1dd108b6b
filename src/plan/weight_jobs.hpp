// What threads make side by side when weights are prepared: pieces of weights whose sources are
// there, and weights of values that have to be computed first.
#pragma once

#include <memory>
#include <set>
#include <span>
#include <vector>

#include "base/thread_pool.hpp"
#include "plan/weight_pieces.hpp"
#include "plan/weight_slices.hpp"
#include "plan/weight_values.hpp"

namespace rlx::plan {

/// Collects the work of one fill, then does it. What it is given must stay until it is done.
class WeightJobs {
 public:
  /// `read`: begins of values that kernels read where they are; these stay in memory.
  WeightJobs(const WeightValues::Params& params, std::set<const std::byte*> read)
      : params_(params), read_(std::move(read)) {}

  /// Packs or copies a value that is there to `target`.
  void add(const WeightPlan& weight, const Tensor& source, std::byte* target);

  /// The same of a value that the thread computes, from `sources` among the common values.
  void derive(const WeightPlan& weight, const Graph& graph, const WeightValues& common,
              std::span<const Tensor> sources, std::byte* target);

  /// Keeps the whole of such a value as `bytes`.
  void derive_whole(const WeightPlan& weight, const Graph& graph, const WeightValues& common,
                    std::span<const Tensor> sources, std::shared_ptr<const std::byte>* bytes);

  Status run(ThreadPool& pool);

 private:
  /// What is made of one value that has to be computed before.
  struct Derived {
    const Graph* graph;
    const WeightValues* common;
    ValueId base;
    std::vector<Tensor> sources;
    std::int64_t bytes = 0;
    std::vector<WeightTarget> targets;
    std::vector<std::shared_ptr<const std::byte>*> whole;
    bool drops_negligible = true;               ///< all that keep the whole of it do
    std::optional<ColumnwiseValue> by_columns;  ///< computed in slices
  };
  /// What one thread does at a time: a piece; or columns of a value, or the whole of what has no
  /// slices.
  struct Job {
    const WeightPiece* piece = nullptr;
    const Derived* derived = nullptr;
    std::int64_t first = 0, last = 0;
    std::vector<Tensor> sources;  ///< forgotten behind the last job that reads them
    Status outcome;
  };

  Derived& derived_of(const WeightPlan& weight, const Graph& graph, const WeightValues& common,
                      std::span<const Tensor> sources);
  void choose_slices();
  void add_jobs(const Derived& from);
  void order();
  Status derive(const Job& job);
  void make(const WeightPiece& piece) const;

  const WeightValues::Params& params_;
  std::set<const std::byte*> read_;
  std::vector<WeightPiece> pieces_;
  std::vector<Derived> derived_;
  std::vector<Job> jobs_;
  SliceMemory memory_;
};

}  // namespace rlx::plan
