// The null backend: plans as the CPU does and computes nothing, so that what a run costs besides
// its kernels can be measured.
#include "backends/backend.hpp"
#include "backends/own_kernels.hpp"
#include "base/cpu_set.hpp"
#include "base/error.hpp"
#include "codegen/host_target.hpp"
#include "graph/op_info.hpp"

namespace rlx::null {
namespace {

class NullExecutable final : public Executable {
 public:
  explicit NullExecutable(std::shared_ptr<const plan::Plan> plan)
      : plan_(std::move(plan)), memory_(u8, {plan_->arena_bytes + 1}) {
    for (const op::State& state : plan_->states) states_.emplace_back(state.dtype, state.dims);
  }
  const plan::Plan& plan() const override { return *plan_; }
  Status run(std::span<const void* const>) override { return {}; }
  const std::byte* arena() const override { return memory_.data(); }
  std::byte* state(std::string_view name) override {
    for (std::size_t i = 0; i < states_.size(); ++i) {
      if (plan_->states[i].name == name) return const_cast<std::byte*>(states_[i].data());
    }
    return nullptr;
  }
  void set_output(std::size_t, void*) override {}
  void end_runs_when(std::shared_ptr<const std::atomic<bool>>) override {}
  Status set_param(std::string_view, const Tensor&) override { return {}; }
  Result<std::unique_ptr<Executable>> clone() const override {
    return std::unique_ptr<Executable>(std::make_unique<NullExecutable>(plan_));
  }
  Result<std::vector<double>> time_steps(std::span<const void* const>, int) override {
    return std::vector<double>(plan_->steps.size(), 0.0);
  }
  std::int64_t weights_bytes() const override { return 0; }
  std::int64_t scratch_bytes() const override { return 0; }

 private:
  std::shared_ptr<const plan::Plan> plan_;
  Tensor memory_;  ///< the arena: zeros
  std::vector<Tensor> states_;
};

class NullBackend final : public Backend {
 public:
  NullBackend(codegen::Target target, int threads)
      : target_(std::move(target)), threads_(threads) {}
  Device device() const override { return Device::cpu; }
  DeviceInfo info() const override {
    return {.device = Device::cpu, .display_name = "CPU without kernels", .available = true};
  }
  Claim claim(const Graph& graph, const Node& node) const override {
    if (has_own_kernel(graph, node)) return {true, "a kernel of the device's own"};
    return {!node.op.info().body, node.op.info().body ? "its body fuses" : "a primitive"};
  }
  Result<std::unique_ptr<Executable>> compile(const CompileRequest& request) override {
    const int threads = request.threads > 0 ? request.threads : threads_;
    RLX_ASSIGN(plan::Plan plan, plan::build_plan(*request.graph, {.target = target_,
                                                                  .threads = threads,
                                                                  .fusion = {request.fusion},
                                                                  .step_work = own_kernel_work}));
    if (request.report) request.report->kernels = static_cast<int>(plan.steps.size());
    return std::unique_ptr<Executable>(
        std::make_unique<NullExecutable>(std::make_shared<const plan::Plan>(std::move(plan))));
  }

 private:
  const codegen::Target target_;
  const int threads_;
};

}  // namespace

Result<std::unique_ptr<Backend>> open(const BackendOptions& options) {
  RLX_ASSIGN(codegen::Target target, codegen::host_target());
  const int threads = options.threads > 0 ? options.threads : default_thread_count();
  return std::unique_ptr<Backend>(std::make_unique<NullBackend>(std::move(target), threads));
}

DeviceInfo info() { return NullBackend({}, 1).info(); }

}  // namespace rlx::null
