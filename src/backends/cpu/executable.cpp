// Running a plan on the CPU. The run path allocates nothing and takes no lock.
#include "backends/cpu/executable.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/error.hpp"
#include "graph/op_info.hpp"

namespace rlx::cpu {

Result<std::unique_ptr<Executable>> CpuExecutable::make(
    std::shared_ptr<const Program> program, std::shared_ptr<const plan::Weights> weights) {
  auto executable = std::make_unique<CpuExecutable>();
  executable->program_ = std::move(program);
  executable->weights_ = std::move(weights);
  const Program& p = *executable->program_;
  const std::int64_t arena_bytes = (p.plan.arena_bytes + 63) / 64 * 64;
  Tensor memory(u8, {arena_bytes + p.scratch_bytes * p.threads + 64});
  executable->memory_ = {memory.shared_data(), memory.mutable_data()};
  executable->arena_ = executable->memory_.get();
  executable->scratch_ = executable->arena_ + arena_bytes;
  for (const op::State& state : p.plan.states)
    executable->states_.emplace_back(state.dtype, state.dims);
  executable->bind();
  return std::unique_ptr<Executable>(std::move(executable));
}

void* CpuExecutable::address(std::int32_t index) const {
  const plan::BufferPlan& buffer = plan().buffers[static_cast<std::size_t>(index)];
  switch (buffer.storage) {
    case plan::Storage::arena: return arena_ + buffer.offset;
    case plan::Storage::weight:
      return const_cast<std::byte*>(weights_->data(static_cast<std::size_t>(buffer.index)));
    case plan::Storage::state:
      return const_cast<std::byte*>(states_[static_cast<std::size_t>(buffer.index)].data());
    case plan::Storage::input: return nullptr;  // set by each run
  }
  return nullptr;
}

void CpuExecutable::bind() {
  steps_.clear(), pointers_.clear(), slots_.clear(), calls_.clear();
  for (const plan::HostCall& call : plan().host_calls) bind_call(call);
  for (const plan::Step& step : plan().steps) {
    BoundStep bound{.threads = step.threads,
                    .barrier_before = step.barrier_before,
                    .pointers = static_cast<std::uint32_t>(pointers_.size())};
    if (step.kind == plan::Step::Kind::host) {
      bound.host_call = step.index;
    } else {
      const codegen::LoadedKernel& kernel = program_->kernels[static_cast<std::size_t>(step.index)];
      bound.function = kernel.function;
      bound.work_items = kernel.work_items;
      for (const std::int32_t buffer : step.buffers) {
        const plan::BufferPlan& plan_buffer = plan().buffers[static_cast<std::size_t>(buffer)];
        if (plan_buffer.storage == plan::Storage::input)
          slots_.push_back({static_cast<std::uint32_t>(pointers_.size()), plan_buffer.index});
        pointers_.push_back(address(buffer));
      }
    }
    for (const plan::Condition& condition : step.conditions) {
      const plan::BufferPlan& buffer = plan().buffers[static_cast<std::size_t>(condition.buffer)];
      bound.conditions.push_back(
          {static_cast<const std::byte*>(address(condition.buffer)), condition.holds_if});
      bound.condition_inputs.push_back(buffer.storage == plan::Storage::input ? buffer.index : -1);
    }
    steps_.push_back(std::move(bound));
  }
  error_flag_ =
      plan().error_buffer < 0 ? nullptr : static_cast<std::int32_t*>(address(plan().error_buffer));
}

void CpuExecutable::bind_call(const plan::HostCall& call) {
  BoundCall bound;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    if (call.inputs[i] < 0) {
      bound.inputs.emplace_back();
      bound.input_slots.push_back(-1);
      continue;
    }
    const plan::BufferPlan& buffer = plan().buffers[static_cast<std::size_t>(call.inputs[i])];
    bound.inputs.emplace_back(buffer.dtype, call.input_dims[i],
                              static_cast<const std::byte*>(address(call.inputs[i])));
    bound.input_slots.push_back(buffer.storage == plan::Storage::input ? buffer.index : -1);
  }
  for (std::size_t i = 0; i < call.outputs.size(); ++i) {
    const DType dtype = plan().buffers[static_cast<std::size_t>(call.outputs[i])].dtype;
    bound.outputs.push_back(
        {dtype, call.output_dims[i], static_cast<std::byte*>(address(call.outputs[i]))});
  }
  calls_.push_back(std::move(bound));
}

bool CpuExecutable::holds(const BoundStep& step, std::span<const void* const> inputs) const {
  for (std::size_t i = 0; i < step.conditions.size(); ++i) {
    const std::int32_t slot = step.condition_inputs[i];
    const auto* value = slot >= 0
                            ? static_cast<const std::byte*>(inputs[static_cast<std::size_t>(slot)])
                            : step.conditions[i].first;
    if ((*value != std::byte{0}) != step.conditions[i].second) return false;
  }
  return true;
}

void CpuExecutable::run_host(const BoundStep& step) {
  if (!host_status_.ok()) return;
  const BoundCall& call = calls_[static_cast<std::size_t>(step.host_call)];
  const Op& op = plan().host_calls[static_cast<std::size_t>(step.host_call)].op;
  try {
    host_status_ = op.info().eval(op.attributes(), EvalArgs{call.inputs, call.outputs});
  } catch (const Exception& exception) {
    host_status_ = exception.error();
  } catch (const std::bad_alloc&) {
    host_status_ = bad_input("Not enough memory to run {}.", op.name());
  }
}

void CpuExecutable::run_step(const BoundStep& step, int worker, int workers) {
  if (step.host_call >= 0) {
    if (worker == 0) run_host(step);
    return;
  }
  const int sharing = std::min<int>(step.threads, workers);
  if (worker >= sharing) return;
  const std::int64_t begin = step.work_items * worker / sharing,
                     end = step.work_items * (worker + 1) / sharing;
  if (begin == end) return;
  step.function(pointers_.data() + step.pointers, begin, end,
                scratch_ + program_->scratch_bytes * worker);
}

void CpuExecutable::set_inputs(std::span<const void* const> inputs) {
  inputs_ = inputs;
  for (const InputSlot& slot : slots_)
    pointers_[slot.pointer] = const_cast<void*>(inputs[static_cast<std::size_t>(slot.input)]);
  for (BoundCall& call : calls_) {
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      if (call.input_slots[i] < 0) continue;
      call.inputs[i].data =
          static_cast<const std::byte*>(inputs[static_cast<std::size_t>(call.input_slots[i])]);
    }
  }
  if (error_flag_) *error_flag_ = 0;
  host_status_ = Status();
}

Status CpuExecutable::check_ready() const {
  if (weights_->missing().empty()) return {};
  return bad_input("The param ({}) has no value: set_param gives it one.", weights_->missing());
}

Status CpuExecutable::outcome() const {
  if (!host_status_.ok()) return host_status_;
  if (error_flag_ && *error_flag_ != 0)
    return bad_input("An index of a gather lies outside its axis.");
  return {};
}

Status CpuExecutable::run(std::span<const void* const> inputs) {
  RLX_TRY(check_ready());
  set_inputs(inputs);
  if (program_->threads == 1) {
    for (const BoundStep& step : steps_) {
      if (step.conditions.empty() || holds(step, inputs)) run_step(step, 0, 1);
    }
    return outcome();
  }
  program_->shared->pool->run_team(program_->threads, [this](int worker, Team& team) {
    for (const BoundStep& step : steps_) {
      if (step.barrier_before) team.barrier();
      if (step.conditions.empty() || holds(step, inputs_)) run_step(step, worker, team.size());
    }
  });
  return outcome();
}

Result<std::vector<double>> CpuExecutable::time_steps(std::span<const void* const> inputs,
                                                      int runs) {
  RLX_TRY(check_ready());
  std::vector<std::vector<double>> samples(steps_.size());
  for (int run = 0; run < runs; ++run) {
    set_inputs(inputs);
    program_->shared->pool->run_team(program_->threads, [&](int worker, Team& team) {
      for (std::size_t i = 0; i < steps_.size(); ++i) {
        team.barrier();
        const auto start = std::chrono::steady_clock::now();
        if (holds(steps_[i], inputs)) run_step(steps_[i], worker, team.size());
        team.barrier();
        if (worker == 0)
          samples[i].push_back(
              std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
                  .count());
      }
    });
    RLX_TRY(outcome());
  }
  std::vector<double> medians;
  for (std::vector<double>& list : samples) {
    std::nth_element(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(list.size() / 2),
                     list.end());
    medians.push_back(list[list.size() / 2]);
  }
  return medians;
}

std::byte* CpuExecutable::state(std::string_view name) {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (plan().states[i].name == name) return states_[i].mutable_data();
  }
  return nullptr;
}

Status CpuExecutable::set_param(std::string_view name, const Tensor& value) {
  RLX_ASSIGN(weights_, weights_->with_param(name, value, plan(), program_->shared->weights,
                                            *program_->shared->pool));
  bind();
  return {};
}

Result<std::unique_ptr<Executable>> CpuExecutable::clone() const {
  return make(program_, weights_);
}

}  // namespace rlx::cpu
