// Runs on a machine with more to do than cores: steps are handed out piece by piece, so that a
// thread that has lost its core holds up nobody.
#include <algorithm>

#include "backends/cpu/executable.hpp"
#include "base/subnormal_scope.hpp"

namespace rlx::cpu {
namespace {

/// Items that one thread does between two looks at whether others want its core. Shorter pieces
/// share a step out more evenly, and cost more.
std::int64_t loose_piece_of(const plan::Step& step, std::int64_t items) {
  if (step.threads == 1) return items;
  constexpr double pieces = 8, shortest_ns = 25e3, longest_ns = 400e3;
  const double all_ns = step.predicted_ns * step.threads;
  const double piece_ns = std::clamp(all_ns / pieces, shortest_ns, longest_ns);
  if (all_ns <= piece_ns) return items;
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(static_cast<double>(items) * (piece_ns / all_ns)));
}

}  // namespace

// Steps under conditions are left out: a late helper would ask when the answer is overwritten.
void CpuExecutable::allow_loose_runs() {
  if (program_->threads == 1) return;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    BoundStep& step = steps_[i];
    const bool in_pieces = step.function != nullptr || step.own != nullptr;
    if (!in_pieces || !step.conditions.empty()) return;
    step.loose_piece = loose_piece_of(plan().steps[i], step.work_items);
  }
  progress_ = std::make_unique<Progress[]>(steps_.size());
}

void CpuExecutable::run_loosely() {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    progress_[i].next.store(0, std::memory_order_relaxed);
    progress_[i].done.store(0, std::memory_order_relaxed);
  }
  program_->shared->pool->run_loosely(
      program_->threads, [this](int worker, LooseTeam& team) { walk_loosely(worker, team); });
}

void CpuExecutable::walk_loosely(int worker, LooseTeam& team) {
  const SubnormalScope scope(program_->flush_subnormals);
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const BoundStep& step = steps_[i];
    Progress& progress = progress_[i];
    const std::int64_t items = step.work_items;
    team.call_helpers();
    while (progress.next.load(std::memory_order_relaxed) < items) {
      const std::int64_t begin = progress.next.fetch_add(step.loose_piece);
      if (begin >= items) break;
      const std::int64_t end = std::min(begin + step.loose_piece, items);
      if (!is_cancelled()) run_items(step, worker, begin, end);
      progress.done.fetch_add(end - begin, std::memory_order_acq_rel);
      if (team.gives_way()) return;
    }
    while (progress.done.load(std::memory_order_acquire) < items) {
      if (team.waits()) return;
    }
  }
}

}  // namespace rlx::cpu
