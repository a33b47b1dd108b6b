// Running a plan on the CPU. The run path allocates nothing and takes no lock.
#include "backends/cpu/executable.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/cancel_scope.hpp"
#include "base/error.hpp"
#include "base/error_in_flight.hpp"
#include "base/hash.hpp"
#include "base/subnormal_scope.hpp"
#include "graph/op_info.hpp"

namespace rlx::cpu {

Result<std::unique_ptr<Executable>> CpuExecutable::make(
    std::shared_ptr<const Program> program, std::shared_ptr<const plan::Weights> weights) {
  auto executable = std::make_unique<CpuExecutable>();
  executable->program_ = std::move(program);
  executable->weights_ = std::move(weights);
  const Program& p = *executable->program_;
  const std::int64_t arena_bytes = (p.plan.arena_bytes + 63) / 64 * 64;
  const std::int64_t bytes = arena_bytes + p.scratch_bytes * p.threads + 64;
  RLX_ASSIGN(executable->share_,
             MemoryShare::take(p.shared->weights.budget, bytes, "arena and scratch"));
  Tensor memory(u8, {bytes});
  executable->memory_ = {memory.shared_data(), memory.mutable_data()};
  executable->arena_ = executable->memory_.get();
  executable->scratch_ = executable->arena_ + arena_bytes;
  for (const op::State& state : p.plan.states)
    executable->states_.emplace_back(state.dtype, state.dims);
  executable->bind();
  executable->experts_ = ExpertSteps(executable->program_, executable->weights_);
  return std::unique_ptr<Executable>(std::move(executable));
}

void* CpuExecutable::address(std::int32_t index) const {
  const plan::BufferPlan& buffer = plan().buffers[static_cast<std::size_t>(index)];
  switch (buffer.storage) {
    case plan::Storage::arena: return arena_ + buffer.offset;
    case plan::Storage::weight:
      return const_cast<std::byte*>(weights_->data(static_cast<std::size_t>(buffer.index)));
    case plan::Storage::state:
      if (buffer.index < 0) return cancel_address();
      return const_cast<std::byte*>(states_[static_cast<std::size_t>(buffer.index)].data());
    case plan::Storage::input:
    case plan::Storage::slot: return nullptr;  // set by each run, each iteration
    case plan::Storage::worker: return nullptr;
  }
  return nullptr;
}

std::uint32_t CpuExecutable::position_of(std::int32_t buffer) {
  const auto position = static_cast<std::uint32_t>(pointers_.size());
  pointers_.push_back(buffer < 0 ? nullptr : address(buffer));
  if (buffer < 0) return position;
  const plan::BufferPlan& plan_buffer = plan().buffers[static_cast<std::size_t>(buffer)];
  const auto index = static_cast<std::size_t>(plan_buffer.index);
  if (plan_buffer.storage == plan::Storage::input) input_positions_[index].push_back(position);
  if (plan_buffer.storage == plan::Storage::slot) slot_positions_[index].push_back(position);
  if (plan_buffer.storage == plan::Storage::weight) weight_positions_[index].push_back(position);
  if (plan_buffer.storage == plan::Storage::state && plan_buffer.index < 0)
    cancel_positions_.push_back(position);
  note_output(buffer, position);
  return position;
}

void CpuExecutable::bind() {
  input_positions_.assign(plan().inputs.size(), {});
  slot_positions_.assign(static_cast<std::size_t>(plan().slots), {});
  output_positions_.assign(plan().outputs.size(), {});
  weight_positions_.assign(plan().weights.size(), {});
  for (const plan::HostCall& call : plan().host_calls) bind_call(call);
  for (const plan::LoopPlan& loop : plan().loops) loops_.push_back(bind_loop(loop));
  for (const plan::Step& step : plan().steps) steps_.push_back(bind_step(step));
  ranges_ = std::make_unique<Range[]>(ranges_count_);
  tries_alone_ = is_worth_a_trial(plan());
  allow_loose_runs();
  error_flag_ =
      plan().error_buffer < 0 ? nullptr : static_cast<std::int32_t*>(address(plan().error_buffer));
}

namespace {

/// Items that a worker does between two looks at the cancel flag: all of a short step, and of a
/// long one so many as take about 4 ms, beside which calling a kernel once more is nothing.
std::int64_t piece_of(const plan::Step& step, std::int64_t items) {
  constexpr double longest_ns = 4e6;
  const double all_ns = step.predicted_ns * step.threads;
  if (step.predicted_ns <= longest_ns) return items;
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(static_cast<double>(items) * (longest_ns / all_ns)));
}

}  // namespace

CpuExecutable::BoundStep CpuExecutable::bind_step(const plan::Step& step) {
  BoundStep bound{.threads = step.threads,
                  .barrier_before = step.barrier_before,
                  .pointers = static_cast<std::uint32_t>(pointers_.size())};
  switch (step.kind) {
    case plan::Step::Kind::host:
      bound.host_call = step.index;
      bound.own = program_->step_kernels[static_cast<std::size_t>(step.index)].get();
      if (!bound.own) break;
      bound.work_items = bound.own->work_items();
      bound.pointers = calls_[static_cast<std::size_t>(step.index)].pointers;
      break;
    case plan::Step::Kind::loop: bound.loop = step.index; break;
    case plan::Step::Kind::experts:
      bound.grouped = step.index;
      for (const std::int32_t buffer : step.buffers) position_of(buffer);
      break;
    case plan::Step::Kind::kernel:
      const codegen::LoadedKernel& kernel = program_->kernels[static_cast<std::size_t>(step.index)];
      bound.function = kernel.function;
      bound.work_items = kernel.work_items;
      for (const std::int32_t buffer : step.buffers) position_of(buffer);
      break;
  }
  bound.piece = piece_of(step, bound.work_items);
  let_share(step, bound);
  for (const plan::Condition& condition : step.conditions)
    bound.conditions.emplace_back(position_of(condition.buffer), condition.holds_if);
  return bound;
}

void CpuExecutable::bind_call(const plan::HostCall& call) {
  BoundCall bound{.inputs = {}, .outputs = {}, .pointers = 0};
  bound.pointers = static_cast<std::uint32_t>(pointers_.size());
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    position_of(call.inputs[i]);
    bound.inputs.emplace_back();
    if (call.inputs[i] < 0) continue;
    const DType dtype = plan().buffers[static_cast<std::size_t>(call.inputs[i])].dtype;
    bound.inputs.back() = {dtype, call.input_dims[i], nullptr};
  }
  for (std::size_t i = 0; i < call.outputs.size(); ++i) {
    position_of(call.outputs[i]);
    const DType dtype = plan().buffers[static_cast<std::size_t>(call.outputs[i])].dtype;
    bound.outputs.push_back({dtype, call.output_dims[i], nullptr});
  }
  calls_.push_back(std::move(bound));
}

bool CpuExecutable::holds(const BoundStep& step) const {
  return std::all_of(step.conditions.begin(), step.conditions.end(), [&](const auto& condition) {
    return is_true(condition.first) == condition.second;
  });
}

void CpuExecutable::run_host(const BoundStep& step) {
  if (!host_status_.ok() || host_failure_) return;
  BoundCall& call = calls_[static_cast<std::size_t>(step.host_call)];
  std::uint32_t at = call.pointers;
  for (TensorView& input : call.inputs) input.data = static_cast<std::byte*>(pointers_[at++]);
  for (MutableTensorView& out : call.outputs) out.data = static_cast<std::byte*>(pointers_[at++]);
  const Op& op = plan().host_calls[static_cast<std::size_t>(step.host_call)].op;
  const CancelScope scope(cancel_flag_.get());
  try {
    host_status_ = op.info().eval(op.attributes(), EvalArgs{call.inputs, call.outputs});
  } catch (...) {
    note_failure();
  }
}

void CpuExecutable::note_failure() {
  if (!failed_.exchange(true)) host_failure_ = std::current_exception();
}

void CpuExecutable::run_step(const BoundStep& step, int worker, Team* team) {
  const int workers = team ? team->size() : 1;
  if (step.loop >= 0) {
    const bool alone = step.threads == 1;
    if (!alone || worker == 0) run_loop(step.loop, worker, alone ? nullptr : team);
    return;
  }
  if (is_cancelled()) [[unlikely]]
    return;
  if (step.host_call >= 0 && !step.own) {
    if (worker == 0) run_host(step);
    return;
  }
  const int sharing = std::min<int>(step.threads, workers);
  if (worker >= sharing) return;
  if (step.grouped >= 0) {
    Status status = experts_.run(step.grouped, pointers_.data() + step.pointers, worker, sharing,
                                 scratch_ + program_->scratch_bytes * worker, *cancel_flag_);
    if (worker == 0 && !status.ok() && host_status_.ok()) host_status_ = std::move(status);
    return;
  }
  if (step.grains > 0 && sharing > 1) return run_share(step, worker, sharing);
  const std::int64_t begin = step.work_items * worker / sharing;
  const std::int64_t end = step.work_items * (worker + 1) / sharing;
  if (begin != end) run_items(step, worker, begin, end);
}

void CpuExecutable::run_items(const BoundStep& step, int worker, std::int64_t begin,
                              std::int64_t end) {
  std::byte* const scratch = scratch_ + program_->scratch_bytes * worker;
  void* const* buffers = pointers_.data() + step.pointers;
  try {
    do {
      const std::int64_t next = end - begin <= step.piece ? end : begin + step.piece;
      if (step.own) {
        step.own->run(buffers, begin, next, scratch);
      } else {
        step.function(buffers, begin, next, scratch);
      }
      begin = next;
    } while (begin != end && !is_cancelled());
  } catch (...) {
    note_failure();
  }
}

void CpuExecutable::set_inputs(std::span<const void* const> inputs) {
  for (std::size_t i = 0; i < input_positions_.size(); ++i) {
    for (const std::uint32_t position : input_positions_[i])
      pointers_[position] = const_cast<void*>(inputs[i]);
  }
  if (error_flag_) *error_flag_ = 0;
  experts_.begin_run();
  if (!host_status_.ok()) host_status_ = Status();
  if (host_failure_) {
    host_failure_ = nullptr;
    failed_ = false;
  }
}

Status CpuExecutable::check_ready() {
  if (weights_->missing().empty()) return experts_.prepare();
  return bad_input("The param ({}) has no value: set_param gives it one.", weights_->missing());
}

Status CpuExecutable::outcome() const {
  if (host_failure_) {
    try {
      std::rethrow_exception(host_failure_);
    } catch (...) {
      return error_in_flight();
    }
  }
  if (!host_status_.ok()) return host_status_;
  if (is_cancelled()) return run_was_cancelled();
  if (error_flag_ && *error_flag_ != 0)
    return bad_input("An index of a gather lies outside its axis.");
  return {};
}

Status CpuExecutable::run(std::span<const void* const> inputs) {
  RLX_TRY(check_ready());
  set_inputs(inputs);
  if (program_->threads == 1) {
    run_alone();
  } else if (runs_loosely()) [[unlikely]] {
    run_loosely();
  } else if (tries_alone_) {
    run_as_pays();
  } else {
    run_team();
  }
  return outcome();
}

void CpuExecutable::run_alone() {
  const SubnormalScope scope(program_->flush_subnormals);
  for (const BoundStep& step : steps_) {
    if (step.conditions.empty() || holds(step)) run_step(step, 0, nullptr);
  }
}

void CpuExecutable::run_team() {
  program_->shared->pool->run_team(program_->threads, [this](int worker, Team& team) {
    const SubnormalScope scope(program_->flush_subnormals);
    for (const BoundStep& step : steps_) {
      if (step.barrier_before) team.barrier();
      if (step.conditions.empty() || holds(step)) run_step(step, worker, &team);
    }
  });
}

void CpuExecutable::run_as_pays() {
  using Clock = std::chrono::steady_clock;
  const TeamTrial::Way way = trial_.next();
  const Clock::time_point begin = way.timed ? Clock::now() : Clock::time_point();
  if (way.alone) run_alone();
  else run_team();
  if (way.timed) trial_.took(Clock::now() - begin);
}

std::byte* CpuExecutable::state(std::string_view name) {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (plan().states[i].name == name) return states_[i].mutable_data();
  }
  return nullptr;
}

// What takes over bytes in place takes them over wherever they lie: the whole chain moves.
void CpuExecutable::note_output(std::int32_t buffer, std::uint32_t position) {
  const std::vector<std::int32_t>& output_of = program_->output_of_buffer;
  const std::int32_t output = output_of[static_cast<std::size_t>(buffer)];
  if (output >= 0) output_positions_[static_cast<std::size_t>(output)].push_back(position);
}

void CpuExecutable::set_output(std::size_t index, void* memory) {
  if (memory == nullptr) memory = address(plan().outputs[index]);
  for (const std::uint32_t position : output_positions_[index]) pointers_[position] = memory;
}

std::string saved_identity(const codegen::CodeLibrary& library, const plan::Plan& plan) {
  Hasher hasher;
  for (const loop::Kernel& kernel : plan.kernels) hasher.add_field(loop::to_text(kernel));
  for (const plan::WeightPlan& weight : plan.weights) {
    hasher.add_field(fmt::format("{} {} {} {} {}", weight.view.base.node, weight.view.offset,
                                 weight.packed, weight.layout.panel_width, weight.bytes));
  }
  return library.identity() + " plan " + hasher.finish().hex();
}

Result<SavedParts> CpuExecutable::save() const {
  SavedParts parts;
  parts.identity = saved_identity(*program_->shared->library, plan());
  RLX_ASSIGN(parts.codes, program_->shared->library->codes(plan().kernels));
  for (std::size_t i = 0; i < plan().weights.size(); ++i) {
    std::shared_ptr<const std::byte> bytes = weights_->shared_data(i);
    if (const auto& matrices = weights_->experts(i)) {
      RLX_ASSIGN(bytes, matrices->whole(*program_->shared->pool));
    }
    parts.weights.push_back({std::move(bytes), plan().weights[i].bytes});
  }
  return parts;
}

Status CpuExecutable::set_param(std::string_view name, const Tensor& value) {
  RLX_ASSIGN(weights_, weights_->with_param(name, value, plan(), program_->shared->weights,
                                            *program_->shared->pool));
  experts_.set_weights(weights_);
  // Nothing below fails: the program has all of the new value or, after an error, all of the old.
  for (std::size_t i = 0; i < weight_positions_.size(); ++i) {
    for (const std::uint32_t position : weight_positions_[i])
      pointers_[position] = const_cast<std::byte*>(weights_->data(i));
  }
  return {};
}

Result<std::unique_ptr<Executable>> CpuExecutable::clone() const {
  RLX_ASSIGN(auto made, make(program_, weights_));
  static_cast<CpuExecutable&>(*made).experts_.share(experts_);
  return made;
}

}  // namespace rlx::cpu
