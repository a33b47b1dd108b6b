// A program on the CPU: generated kernels and host calls, run step by step by a team of workers.
#pragma once

#include <memory>
#include <vector>

#include "backends/backend.hpp"
#include "base/thread_pool.hpp"
#include "codegen/code_library.hpp"
#include "plan/weights.hpp"

namespace rlx::cpu {

/// What all programs of a session share.
struct Shared {
  std::unique_ptr<codegen::CodeLibrary> library;
  std::unique_ptr<ThreadPool> pool;
  plan::WeightCache weights;
};

/// What the clones of a program share.
struct Program {
  std::shared_ptr<Shared> shared;
  std::shared_ptr<const plan::FlatGraph> graph;
  plan::Plan plan;
  std::vector<codegen::LoadedKernel> kernels;
  std::int64_t scratch_bytes = 0;  ///< of one worker
  int threads = 1;                 ///< the most that a step uses
};

class CpuExecutable final : public Executable {
 public:
  static Result<std::unique_ptr<Executable>> make(std::shared_ptr<const Program> program,
                                                  std::shared_ptr<const plan::Weights> weights);

  const plan::Plan& plan() const override { return program_->plan; }
  Status run(std::span<const void* const> inputs) override;
  const std::byte* arena() const override { return arena_; }
  std::byte* state(std::string_view name) override;
  Status set_param(std::string_view name, const Tensor& value) override;
  Result<std::unique_ptr<Executable>> clone() const override;
  Result<std::vector<double>> time_steps(std::span<const void* const> inputs, int runs) override;
  std::int64_t weights_bytes() const override { return weights_->bytes_total(); }
  std::int64_t scratch_bytes() const override {
    return program_->scratch_bytes * program_->threads;
  }

 private:
  /// A step with everything resolved to addresses.
  struct BoundStep {
    codegen::KernelFunction function = nullptr;
    std::int64_t work_items = 0;
    std::int32_t threads = 1;
    bool barrier_before = false;
    std::int32_t host_call = -1;
    std::uint32_t pointers = 0;  ///< first of the step's addresses in pointers_
    std::vector<std::pair<const std::byte*, bool>> conditions;
    std::vector<std::int32_t> condition_inputs;
  };
  /// An address that every run sets anew.
  struct InputSlot {
    std::uint32_t pointer = 0;
    std::int32_t input = 0;
  };
  struct BoundCall {
    std::vector<TensorView> inputs;
    std::vector<MutableTensorView> outputs;
    std::vector<std::int32_t> input_slots;  ///< by operand: the program's input, or -1
  };

  void bind();
  void* address(std::int32_t buffer) const;
  void bind_call(const plan::HostCall& call);
  bool holds(const BoundStep& step, std::span<const void* const> inputs) const;
  void run_step(const BoundStep& step, int worker, int workers);
  void run_host(const BoundStep& step);
  void set_inputs(std::span<const void* const> inputs);
  Status check_ready() const;
  Status outcome() const;

  std::shared_ptr<const Program> program_;
  std::shared_ptr<const plan::Weights> weights_;
  std::shared_ptr<std::byte> memory_;  ///< arena, then the workers' scratch
  std::byte* arena_ = nullptr;
  std::byte* scratch_ = nullptr;
  std::vector<Tensor> states_;
  std::vector<BoundStep> steps_;
  std::vector<void*> pointers_;
  std::vector<InputSlot> slots_;
  std::vector<BoundCall> calls_;
  std::int32_t* error_flag_ = nullptr;
  Status host_status_;
  std::span<const void* const> inputs_;
};

}  // namespace rlx::cpu
