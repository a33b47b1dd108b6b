// The CPU backend: claims, and compiling plans to executables.
#include "backends/cpu/backend.hpp"

#include <fstream>

#include "backends/cpu/executable.hpp"
#include "backends/own_kernels.hpp"
#include "base/cpu_set.hpp"
#include "base/error.hpp"
#include "base/own_file.hpp"
#include "base/thread_pool.hpp"
#include "codegen/host_target.hpp"
#include "cost/calibration.hpp"
#include "cost/recurrence_cost.hpp"
#include "graph/op_info.hpp"
#include "graph/recurrent_cell.hpp"
#include "graph/weight_only.hpp"
#include "plan/build_recurrence.hpp"
#include "plan/plan_io.hpp"
#include "plan/second_thoughts.hpp"

namespace rlx::cpu {
namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "processor";
}

/// A chain of buffers in place that ends in an output lies where the output does.
std::vector<std::int32_t> outputs_of_buffers(const plan::Plan& plan) {
  std::vector<std::int32_t> output_of(plan.buffers.size(), -1);
  for (std::size_t i = 0; i < plan.outputs.size(); ++i) {
    for (std::int32_t buffer = plan.outputs[i]; buffer >= 0;
         buffer = plan.buffers[static_cast<std::size_t>(buffer)].takes_over)
      output_of[static_cast<std::size_t>(buffer)] = static_cast<std::int32_t>(i);
  }
  return output_of;
}

/// The kernels of the host calls that have one.
void add_step_kernels(Program& program) {
  for (const plan::HostCall& call : program.plan.host_calls) {
    program.step_kernels.emplace_back();
    if (call.work.items == 0) continue;
    const auto types_of = [&](const std::vector<std::int32_t>& buffers,
                              const std::vector<Dims>& dims) {
      std::vector<Type> types;
      for (std::size_t i = 0; i < buffers.size(); ++i) {
        const auto buffer = static_cast<std::size_t>(std::max(buffers[i], 0));
        types.push_back(
            {program.plan.buffers[buffer].dtype, Shape(dims[i].begin(), dims[i].end())});
      }
      return types;
    };
    const std::vector<Type> inputs = types_of(call.inputs, call.input_dims),
                            results = types_of(call.outputs, call.output_dims);
    std::vector<const Type*> given;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      given.push_back(call.inputs[i] < 0 ? nullptr : &inputs[i]);
    auto& kernel = program.step_kernels.back();
    kernel = own_kernel(call.op, given, results, program.shared->library->target().isa);
    program.scratch_bytes = std::max(program.scratch_bytes, kernel->scratch_bytes());
  }
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(std::shared_ptr<Shared> shared, int threads)
      : shared_(std::move(shared)), threads_(threads) {}

  Device device() const override { return Device::cpu; }
  DeviceInfo info() const override { return cpu::info(); }

  Claim claim(const Graph& graph, const Node& node) const override {
    // What has a scalar meaning is generated as it is; what has no body is a primitive or
    // evaluated.
    if (node.op.info().scalar) return {true, "elementwise"};
    if (!node.op.info().body) return {true, "a primitive"};
    if (has_own_kernel(graph, node)) return {true, "a kernel of the device's own"};
    if (plan::suits_grouped_kernels(graph, node))
      return {true, "rows put together by expert, generated kernels for a few rows"};
    if (recurrent_cell(node.op)) {
      const auto layout = plan::recurrent_layout(graph, node, weight_only_nodes(graph));
      if (!layout.ok()) return {false, "its body is a loop: " + layout.error().message};
      const std::int64_t r_bytes = layout->units * layout->columns() * 4;
      if (threads_for(0) > 1 &&
          cost::pays_as_products(layout->steps, layout->directions, r_bytes, shared_->model))
        return {false, "its body: workers share out products with the recurrent weights"};
      return {true, "a kernel that walks over the steps, or makes one of them"};
    }
    return {false, "its body fuses"};
  }

  Result<std::unique_ptr<Executable>> compile(const CompileRequest& request) override {
    auto program = std::make_shared<Program>();
    program->shared = shared_;
    program->graph = request.graph;
    program->flush_subnormals = request.flush_subnormals;
    const int threads = threads_for(request.threads);
    plan::FusionPolicy policy = plan::fusion_policy(shared_->model, threads, request.fusion);
    policy.exact = request.exact;
    policy.given = request.given;
    RLX_ASSIGN(program->plan, plan::build_plan_with_second_thoughts(
                                  *request.graph, build_options(threads, std::move(policy), {})));
    add_step_kernels(*program);
    const codegen::CodeStatistics before = shared_->library->statistics();
    if (request.saved &&
        request.saved->identity != saved_identity(*shared_->library, program->plan))
      return not_available(
          "The saved program was made by another rlx, for another machine or for more threads.");
    RLX_ASSIGN(program->kernels, request.saved ? codegen::CodeLibrary::adopt(request.saved->codes)
                                               : shared_->library->load(program->plan.kernels));
    const codegen::CodeStatistics after = shared_->library->statistics();
    for (const codegen::LoadedKernel& kernel : program->kernels)
      program->scratch_bytes = std::max(program->scratch_bytes, kernel.scratch_bytes);
    RLX_TRY(add_grouped_scratch(*program));
    program->scratch_bytes = (program->scratch_bytes + 127) / 64 * 64;
    program->output_of_buffer = outputs_of_buffers(program->plan);
    for (const plan::Step& step : program->plan.steps)
      program->threads = std::max(program->threads, static_cast<int>(step.threads));
    if (request.report) {
      request.report->kernels = static_cast<int>(program->plan.steps.size());
      request.report->generated_kernels = static_cast<int>(after.generated - before.generated);
      request.report->cached_kernels = static_cast<int>(after.cached - before.cached);
      request.report->threads = program->threads;
    }
    if (request.saved) {
      std::vector<std::shared_ptr<const std::byte>> bytes;
      for (const SavedParts::Weight& weight : request.saved->weights) bytes.push_back(weight.bytes);
      auto weights = plan::Weights::adopt(request.graph, program->plan, std::move(bytes),
                                          shared_->weights.budget);
      return CpuExecutable::make(std::move(program), std::move(weights));
    }
    RLX_ASSIGN(auto weights, plan::Weights::prepare(request.graph, program->plan, shared_->weights,
                                                    *shared_->pool));
    return CpuExecutable::make(std::move(program), std::move(weights));
  }

  const cost::MachineModel* model() const override { return &shared_->model; }
  Result<Prospect> prospect(const Graph& graph, int threads,
                            const cost::Elsewhere& elsewhere) const override {
    RLX_ASSIGN(const plan::FlatGraph flat, plan::flatten(graph));
    // As the gate alone decides.
    const int most = threads_for(threads);
    RLX_ASSIGN(
        const plan::Plan plan,
        plan::build_plan(
            flat, build_options(most, plan::fusion_policy(shared_->model, most, true), elsewhere)));
    return Prospect{plan.predicted_ns, plan::profile_plan_io(plan), plan.arena_bytes};
  }

  std::string prospects_identity() const override {
    if (own_identity().empty()) return {};
    return fmt::format("{} threads {} of {} {} model {}", own_identity(), threads_,
                       shared_->pool->threads(), shared_->library->identity(),
                       cost::digest_of(shared_->model).hex());
  }

  int lanes() const override { return threads_; }

  void run_lanes(int lanes, const std::function<void(int)>& body) override {
    shared_->pool->run_loosely(std::min(lanes, shared_->pool->threads()),
                               [&](int lane, LooseTeam& team) {
                                 team.call_helpers();
                                 body(lane);
                               });
  }

 private:
  int threads_for(int asked) const {
    return asked > 0 ? std::min(asked, shared_->pool->threads()) : threads_;
  }

  plan::BuildOptions build_options(int threads, plan::FusionPolicy policy,
                                   const cost::Elsewhere& elsewhere) const {
    return {.target = shared_->library->target(),
            .model = shared_->model,
            .threads = threads,
            .fusion = std::move(policy),
            .step_work = own_kernel_work,
            .elsewhere = elsewhere};
  }

  std::shared_ptr<Shared> shared_;
  int threads_;
};

}  // namespace

Result<std::unique_ptr<Backend>> open(const BackendOptions& options) {
  auto shared = std::make_shared<Shared>();
  constexpr int most_threads = pool_detail::threads_limit;
  if (options.threads > most_threads)
    return bad_input("A session has at most ({}) threads; ({}) were asked for.", most_threads,
                     options.threads);
  const int threads =
      options.threads > 0 ? options.threads : std::min(default_thread_count(), most_threads);
  RLX_ASSIGN(shared->library, codegen::CodeLibrary::open_for_host(threads));
  cost::HostModel host = cost::model_for(shared->library->target());
  shared->model = std::move(host.model);
  if (!host.note.empty()) options.log(LogLevel::warning, "{}", host.note);
  shared->pool = std::make_unique<ThreadPool>(threads, options.spin);
  shared->weights.budget = std::make_shared<MemoryBudget>(options.memory_limit_bytes);
  if (!shared->library->cache().enabled())
    options.log(LogLevel::warning, "{}", shared->library->cache().reason_off());
  return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(std::move(shared), threads));
}

DeviceInfo info() {
  const auto target = codegen::host_target();
  const std::string isa = target.ok() ? std::string(codegen::name_of(target->isa)) : "unknown ISA";
  return {.device = Device::cpu,
          .display_name =
              fmt::format("CPU {} ({} threads, {})", processor_name(), default_thread_count(), isa),
          .available = target.ok(),
          .reason = target.ok() ? "" : target.error().message};
}

}  // namespace rlx::cpu
