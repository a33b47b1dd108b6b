// What sums wait for: passes over rows that lanes run along, each of which needs the sums of the
// one before it, and columns whose values are added up one after the other.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "cost/nest_view.hpp"

namespace rlx::cost {

/// What rows take that go through their passes in blocks, each pass over all rows of a block.
class RowPasses {
 public:
  RowPasses(const MachineModel& model, std::int64_t block) : model_(model), block_(block) {}

  /// A pass over a row: what it executes, and how many cycles its slowest chain takes.
  void add(const Body& pass, double chain_cycles) {
    const bool is_first = row_.loads == 0 && row_.alu == 0;
    row_ = row_ + pass;
    const double chain = chain_cycles * model_.cycle, work = pass.ns(model_);
    // Rows of a block work while the last of them waits; a row alone waits for its own chain.
    const bool alone = block_ == 1;
    work_ += alone ? 0 : work;
    // Nothing decides what a first pass begins with: it runs beside the end of the block before.
    const double shown = is_first ? model_.overlap.first_pass : 1;
    wait_ += alone ? std::max(work, chain) : shown * chain;
  }

  /// Rows overlap as far as the processor looks ahead, those of a block in each pass.
  double ns(double rows) const {
    const auto block = static_cast<double>(block_);
    const double blocks = std::ceil(rows / block), ahead = (row_ * block).ahead(model_);
    // The last block may have fewer rows than the others.
    const double waits = wait_ * (1 + (blocks - 1) / ahead);
    const double works = work_ * block * (1 + (std::max(rows / block, 1.0) - 1) / ahead);
    return std::max(rows * row_.ns(model_), works + waits);
  }

 private:
  const MachineModel& model_;
  std::int64_t block_;
  Body row_;                    ///< all passes of a row
  double work_ = 0, wait_ = 0;  ///< ns of a row of a block, and of the block behind it
};

/// Sums of columns, in blocks of columns whose sums do not wait for each other.
class ColumnSums {
 public:
  explicit ColumnSums(const MachineModel& model) : model_(model) {}

  /// A pass over all blocks: what it executes for one of them, `work` ns for all, and `chain` ns
  /// where each block waits for the one before it.
  void add(const Body& block, double work, double chain) {
    block_ = block_ + block;
    passes_.push_back({work, chain});
  }

  /// ns that the passes wait, above what they work: the processor looks ahead to blocks behind,
  /// whose work hides a part of it. `behind`: what a block executes once its sums are known.
  double waits(const Body& behind, double blocks) const {
    constexpr double beside_work = 0.6;
    const double ahead = (block_ + behind).ahead(model_);
    const double shown = (1 + (blocks - 1) / ahead) / blocks;
    double ns = 0;
    for (const Pass& pass : passes_) {
      const double wait = pass.chain * shown, hidden = std::min(wait, pass.work);
      const double filled = pass.work > 0 ? hidden / pass.work : 1;
      const double shows = std::max(filled, model_.overlap.short_chains);
      ns += wait - hidden + beside_work * shows * hidden * (1 - 1 / blocks);
    }
    return ns;
  }

 private:
  struct Pass {
    double work, chain;
  };
  const MachineModel& model_;
  Body block_;  ///< all passes
  std::vector<Pass> passes_;
};

}  // namespace rlx::cost
