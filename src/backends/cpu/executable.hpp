// A program on the CPU: generated kernels and host calls, run step by step by a team of workers.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <vector>

#include "backends/backend.hpp"
#include "backends/cpu/executable_experts.hpp"
#include "backends/cpu/team_trial.hpp"
#include "base/memory_budget.hpp"
#include "base/thread_pool.hpp"
#include "codegen/code_library.hpp"
#include "cost/machine_model.hpp"
#include "plan/weights.hpp"

namespace rlx::cpu {

/// Whatever code and packed weights depend on.
std::string saved_identity(const codegen::CodeLibrary& library, const plan::Plan& plan);

class CpuExecutable final : public Executable {
 public:
  static Result<std::unique_ptr<Executable>> make(std::shared_ptr<const Program> program,
                                                  std::shared_ptr<const plan::Weights> weights);

  const plan::Plan& plan() const override { return program_->plan; }
  Status run(std::span<const void* const> inputs) override;
  const std::byte* arena() const override { return arena_; }
  std::byte* state(std::string_view name) override;
  void set_output(std::size_t index, void* memory) override;
  void end_runs_when(std::shared_ptr<const std::atomic<bool>> flag) override {
    cancel_flag_ = std::move(flag);
    for (const std::uint32_t position : cancel_positions_) pointers_[position] = cancel_address();
  }
  Result<SavedParts> save() const override;
  ExpertControl* experts() override { return experts_.empty() ? nullptr : &experts_; }
  Status set_param(std::string_view name, const Tensor& value) override;
  Result<std::unique_ptr<Executable>> clone() const override;
  Result<std::vector<double>> time_steps(std::span<const void* const> inputs, int runs) override;
  std::int64_t weights_bytes() const override {
    return weights_->bytes_total() + experts_.resident_bytes();
  }
  std::int64_t scratch_bytes() const override {
    return program_->scratch_bytes * program_->threads;
  }

 private:
  /// A step with everything resolved to addresses. Positions count in pointers_.
  struct BoundStep {
    codegen::KernelFunction function = nullptr;
    const codegen::StepKernel* own = nullptr;  ///< not generated
    std::int64_t work_items = 0;
    std::int64_t piece = 0;        ///< most items between two looks at the cancel flag
    std::int64_t loose_piece = 0;  ///< items that a member of a loose team takes at once
    std::int64_t grains = 0;       ///< pieces that members take from each other; 0: they do not
    std::uint32_t ranges = 0;      ///< position of the first member's range, where they do
    std::int32_t threads = 1;
    bool barrier_before = false;
    std::int32_t host_call = -1, loop = -1, grouped = -1;
    std::uint32_t pointers = 0;  ///< position of the step's first address
    std::vector<std::pair<std::uint32_t, bool>> conditions;  ///< position of a bool, and its value
  };
  struct BoundCall {
    std::vector<TensorView> inputs;
    std::vector<MutableTensorView> outputs;
    std::uint32_t pointers = 0;  ///< of the inputs, then of the outputs
  };
  /// Positions of a loop's buffers, in the order of its plan.
  struct BoundLoop {
    struct Carry {
      std::uint32_t initial = 0, result = 0, spare = 0;
    };
    std::vector<BoundStep> steps;
    std::uint32_t trip_count = 0, start = 0, condition = 0, counter = 0, going_on = 0;
    std::vector<Carry> carries;
    std::vector<std::uint32_t> wholes;  ///< of the slices
    std::int64_t trips = 0;             ///< at most, of the run
    bool goes_on = true;                ///< worker 0's word to all before each iteration
  };

  void bind();
  void* address(std::int32_t buffer) const;
  /// For kernels, which only read it.
  void* cancel_address() const { return const_cast<std::atomic<bool>*>(cancel_flag_.get()); }
  /// A new entry of pointers_ for the buffer (-1: null); runs and loops keep it up to date.
  std::uint32_t position_of(std::int32_t buffer);
  void note_output(std::int32_t buffer, std::uint32_t position);
  BoundStep bind_step(const plan::Step& step);
  void bind_call(const plan::HostCall& call);
  BoundLoop bind_loop(const plan::LoopPlan& loop);
  bool holds(const BoundStep& step) const;
  void run_alone();
  void run_team();
  /// The one or the other, whichever takes less.
  void run_as_pays();
  /// `team` is null where one worker runs all.
  void run_step(const BoundStep& step, int worker, Team* team);
  void run_items(const BoundStep& step, int worker, std::int64_t begin, std::int64_t end);
  // executable_share.cpp
  void let_share(const plan::Step& step, BoundStep& bound);
  void run_share(const BoundStep& step, int worker, int sharing);
  // executable_loose.cpp
  void allow_loose_runs();
  bool runs_loosely() const { return progress_ && program_->shared->pool->is_crowded(); }
  void run_loosely();
  void walk_loosely(int worker, LooseTeam& team);
  void run_host(const BoundStep& step);
  /// For the exception that is being handled: nothing may leave a team's body, so outcome() throws
  /// it again.
  void note_failure();
  void set_inputs(std::span<const void* const> inputs);
  Status check_ready();
  Status outcome() const;
  bool is_cancelled() const { return cancel_flag_->load(std::memory_order_relaxed); }
  // executable_loops.cpp
  /// Called by all members of a team, or with a null team by one worker.
  void run_loop(std::int32_t index, int worker, Team* team);
  std::int64_t most_trips(const plan::LoopPlan& plan, const BoundLoop& loop) const;
  static bool writes_result(const plan::LoopPlan& plan, std::int64_t step);
  void lead_loop(const plan::LoopPlan& plan, BoundLoop& loop, std::int64_t step);
  void begin_iteration(const plan::LoopPlan& plan, const BoundLoop& loop, std::int64_t step);
  void finish_loop(const plan::LoopPlan& plan, const BoundLoop& loop, std::int64_t steps);
  void set_slot(std::int32_t slot, void* address);
  bool is_true(std::uint32_t position) const {
    return *static_cast<const std::byte*>(pointers_[position]) != std::byte{0};
  }

  std::shared_ptr<const Program> program_;
  std::shared_ptr<const plan::Weights> weights_;
  std::shared_ptr<std::byte> memory_;  ///< arena, then the workers' scratch
  std::byte* arena_ = nullptr;
  std::byte* scratch_ = nullptr;
  std::vector<Tensor> states_;
  std::vector<BoundStep> steps_;
  /// Of a step in a loose run: items that were handed out, and that are done.
  struct Progress {
    std::atomic<std::int64_t> next = 0, done = 0;
  };
  std::unique_ptr<Progress[]> progress_;  ///< by step; null where runs cannot be loose
  /// What is left of a member's part of a step: the first grain and the one behind the last, 32
  /// bits each. Nothing, while the member is in no such step.
  struct alignas(pool_detail::line_bytes) Range {
    std::atomic<std::uint64_t> left = 0;
  };
  std::unique_ptr<Range[]> ranges_;  ///< by shared step and member
  std::uint32_t ranges_count_ = 0;
  std::vector<void*> pointers_;
  std::vector<std::vector<std::uint32_t>> input_positions_;   ///< by input: set by every run
  std::vector<std::vector<std::uint32_t>> slot_positions_;    ///< by slot: set by loops
  std::vector<std::vector<std::uint32_t>> output_positions_;  ///< by output
  std::vector<std::vector<std::uint32_t>> weight_positions_;  ///< by weight: set_param moves them
  std::vector<std::uint32_t> cancel_positions_;               ///< of the cancel flag
  std::vector<BoundCall> calls_;
  std::vector<BoundLoop> loops_;
  std::int32_t* error_flag_ = nullptr;
  Status host_status_;
  std::exception_ptr host_failure_;   ///< what a host call or a kernel threw
  std::atomic<bool> failed_ = false;  ///< by the first worker that sets the failure
  std::shared_ptr<const std::atomic<bool>> cancel_flag_ = std::make_shared<std::atomic<bool>>();
  bool tries_alone_ = false;
  TeamTrial trial_;
  ExpertSteps experts_;
  MemoryShare share_;  ///< of the session's budget
};

}  // namespace rlx::cpu
