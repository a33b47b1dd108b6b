// The compiled program: how it is made and copied, and the run calls.
#include "runtime/compiled_graph.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "base/error_in_flight.hpp"

namespace rlx {
namespace {

// Specialisations of one program kept for shapes seen lately.
constexpr std::size_t specialisations_kept = 16;

}  // namespace

const Tensor& Outputs::operator[](std::string_view name) const {
  for (const auto& [known, tensor] : items) {
    if (known == name) return tensor;
  }
  throw Exception(bad_input("There is no output ({}).", name));
}

Result<std::unique_ptr<CompiledGraph::Impl>> CompiledGraph::Impl::make(
    std::shared_ptr<Session::Impl> session, Backend& backend, const Graph& graph,
    const CompileOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->session = std::move(session);
  impl->backend = &backend;
  impl->options = options;
  RLX_ASSIGN(Graph hir, specialised(graph, options, {options.dims, options.input_dims}));
  impl->options.outputs.clear();  // the graph has no others now
  impl->inputs = input_infos(hir);
  impl->outputs = output_infos(hir);
  if (is_static(hir)) {
    RLX_ASSIGN(impl->bound, compile_static(backend, hir, impl->options));
  }
  impl->graph = std::make_shared<const Graph>(std::move(hir));
  impl->prepare();
  RLX_TRY(impl->apply_feeds(options.feeds));
  if (!options.dims.empty()) {
    impl->source = std::make_shared<const Graph>(graph);
    impl->source_options = options;
  }
  return impl;
}

Status CompiledGraph::Impl::check_answers() const {
  if (!bound) return {};
  const auto asks = [](const std::vector<FusionQuestion>& questions, const std::string& what) {
    return std::ranges::any_of(questions, [&](const auto& asked) { return asked.what == what; });
  };
  for (const auto& [what, answer] : options.answers) {
    if (!asks(bound->questions, what) && !asks(bound->executable->plan().questions, what))
      return bad_input("The plan asks no question ({}); rlx explain names those that it asks.",
                       what);
  }
  return {};
}

void CompiledGraph::Impl::prepare() {
  if (slot_of.empty() && output_of.empty()) {
    for (std::size_t i = 0; i < inputs.size(); ++i) slot_of.push_back(i);
    for (std::size_t i = 0; i < outputs.size(); ++i) output_of.push_back(i);
  }
  slots.assign(bound ? bound->inputs.size() : inputs.size(), nullptr);
  converted.resize(inputs.size());
  if (!bound) return;
  bound->executable->end_runs_when(cancel_flag);
  // Made whole before anything is replaced: a lack of memory leaves the program as it was.
  const plan::Plan& plan = bound->executable->plan();
  std::vector<Dims> new_dims;
  std::vector<ArenaSlice> new_slices;
  std::vector<TensorView> new_views;
  std::vector<void*> new_targets;
  for (const Type& type : plan.output_types) new_dims.push_back(type.dims());
  for (const std::size_t output : output_of) {
    const plan::BufferPlan& buffer = plan.buffers[static_cast<std::size_t>(plan.outputs[output])];
    new_slices.push_back({buffer.offset, buffer.bytes()});
    new_views.emplace_back(buffer.dtype, new_dims[output],
                           bound->executable->arena() + buffer.offset);
  }
  for (const std::int32_t output : plan.outputs) {
    const plan::BufferPlan& buffer = plan.buffers[static_cast<std::size_t>(output)];
    new_targets.push_back(const_cast<std::byte*>(bound->executable->arena() + buffer.offset));
  }
  for (const Handle& handle : handles) {
    const auto shown = std::find(output_of.begin(), output_of.end(), handle.feed);
    if (handle.feed >= 0 && shown != output_of.end())
      new_slices[static_cast<std::size_t>(shown - output_of.begin())] = {};
  }
  output_dims = std::move(new_dims);
  slices = std::move(new_slices);
  views = std::move(new_views);
  targets = std::move(new_targets);
}

Result<std::unique_ptr<CompiledGraph::Impl>> CompiledGraph::Impl::clone() const {
  auto copy = std::make_unique<Impl>(static_cast<const ProgramSettings&>(*this));
  if (bound) {
    RLX_ASSIGN(copy->bound, bound->clone());
  }
  for (const Handle& handle : handles) {
    Handle& twin = copy->handles.emplace_back(handle);
    twin.value = Tensor(handle.value.dtype(), handle.value.dims());
    std::memcpy(twin.value.mutable_data(), handle.value.data(), handle.value.bytes());
    if (handle.feed >= 0) twin.next = Tensor(handle.value.dtype(), handle.value.dims());
  }
  copy->prepare();
  return copy;
}

Result<CompiledGraph> CompiledGraph::clone() const try {
  RLX_TRY(impl_->check_idle());
  RLX_ASSIGN(auto copy, impl_->clone());
  return CompiledGraph(std::move(copy));
} catch (...) {
  return error_in_flight();
}

CompiledGraph::CompiledGraph(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CompiledGraph::CompiledGraph(CompiledGraph&&) noexcept = default;
CompiledGraph& CompiledGraph::operator=(CompiledGraph&&) noexcept = default;
CompiledGraph::~CompiledGraph() = default;

const std::vector<IoInfo>& CompiledGraph::inputs() const { return impl_->inputs; }
const std::vector<IoInfo>& CompiledGraph::outputs() const { return impl_->outputs; }
Device CompiledGraph::device() const { return impl_->backend->device(); }

Tensor CompiledGraph::Impl::read(std::size_t output) const {
  const TensorView& view = views[output];
  Tensor tensor(view.dtype, output_dims[output_of[output]]);
  std::memcpy(tensor.mutable_data(), view.data, view.bytes());
  return tensor;
}

Result<Stage*> CompiledGraph::Impl::stage_for(const std::vector<Dims>& dims) {
  for (auto it = specialisations.begin(); it != specialisations.end(); ++it) {
    if (it->dims != dims) continue;
    specialisations.splice(specialisations.begin(), specialisations, it);
    return last_stage = specialisations.front().stage.get();
  }
  passes::Bindings bindings;
  for (std::size_t i = 0; i < inputs.size(); ++i) bindings.input_dims[inputs[i].name] = dims[i];
  RLX_ASSIGN(Graph hir, specialised(*graph, {}, bindings));
  RLX_ASSIGN(auto stage, Stage::make(*backend, std::move(hir), options, params, cancel_flag));
  specialisations.push_front({dims, std::move(stage)});
  if (specialisations.size() > specialisations_kept) specialisations.pop_back();
  return last_stage = specialisations.front().stage.get();
}

std::map<std::string, Tensor> CompiledGraph::Impl::borrowed_inputs(
    const std::vector<Dims>& dims) const {
  std::map<std::string, Tensor> values;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    values[inputs[i].name] =
        Tensor(inputs[i].dtype, dims[i],
               std::shared_ptr<const std::byte>(std::shared_ptr<void>(),
                                                static_cast<const std::byte*>(slots[i])));
  }
  return values;
}

Result<std::vector<double>> CompiledGraph::Impl::time_steps(std::span<const NamedInput> named,
                                                            int runs) {
  std::vector<Dims> dims(bound ? 0 : inputs.size());
  RLX_TRY(match(named, false, bound ? nullptr : &dims));
  if (bound) {
    RLX_TRY(run_bound());
    return bound->executable->time_steps(slots, runs);
  }
  RLX_ASSIGN(Stage* const stage, stage_for(dims));
  return stage->time_steps(borrowed_inputs(dims), runs);
}

Result<Outputs> CompiledGraph::Impl::run(std::span<const NamedInput> named, bool typed) {
  std::vector<Dims> dims(bound ? 0 : inputs.size());
  RLX_TRY(match(named, typed, bound ? nullptr : &dims));
  Outputs result;
  result.items.reserve(outputs.size());
  if (bound) {
    RLX_TRY(run_bound());
    for (std::size_t i = 0; i < outputs.size(); ++i)
      result.items.emplace_back(outputs[i].name, read(i));
    return result;
  }
  RLX_ASSIGN(Stage* const stage, stage_for(dims));
  RLX_ASSIGN(std::vector<Tensor> tensors, stage->run(borrowed_inputs(dims)));
  for (std::size_t i = 0; i < outputs.size(); ++i)
    result.items.emplace_back(outputs[i].name, std::move(tensors[i]));
  return result;
}

Result<Outputs> CompiledGraph::run(std::span<const NamedInput> inputs) try {
  RLX_TRY(impl_->begin_run());
  return impl_->run(inputs, false);
} catch (...) {
  return error_in_flight();
}

Result<Outputs> CompiledGraph::run_typed(std::span<const NamedInput> inputs) try {
  RLX_TRY(impl_->begin_run());
  return impl_->run(inputs, true);
} catch (...) {
  return error_in_flight();
}

Result<Outputs> CompiledGraph::run_read_outputs(std::span<const NamedInput> inputs,
                                                std::span<const int> indices) try {
  for (const int index : indices) {
    if (index < 0 || index >= static_cast<int>(outputs().size()))
      return bad_input("There is no output ({}): there are {}.", index, outputs().size());
  }
  RLX_TRY(impl_->begin_run());
  Outputs result;
  if (!impl_->bound) {
    RLX_ASSIGN(Outputs all, impl_->run(inputs, false));
    for (const int index : indices)
      result.items.push_back(all.items[static_cast<std::size_t>(index)]);
    return result;
  }
  RLX_TRY(impl_->match(inputs, false, nullptr));
  RLX_TRY(impl_->run_bound());
  for (const int index : indices)
    result.items.emplace_back(outputs()[static_cast<std::size_t>(index)].name,
                              impl_->read(static_cast<std::size_t>(index)));
  return result;
} catch (...) {
  return error_in_flight();
}

Result<StaticProgram*> CompiledGraph::Impl::need_bound() {
  if (bound) return &*bound;
  const bool told = std::ranges::all_of(inputs, [](const IoInfo& input) {
    return std::ranges::all_of(input.dims, [](std::int64_t dim) { return dim >= 0; });
  });
  if (told)
    return bad_input(
        "This call needs bound shapes, and data decides some dims within the program: its parts "
        "are compiled as they run.");
  return bad_input("This call needs bound shapes: compile with all dims given.");
}

Result<std::vector<float>> CompiledGraph::read_output_row(int output, std::int64_t row,
                                                          std::int64_t row_elements) const try {
  RLX_TRY(impl_->need_bound());
  if (output < 0 || output >= static_cast<int>(outputs().size()))
    return bad_input("There is no output ({}): there are {}.", output, outputs().size());
  const TensorView& view = impl_->views[static_cast<std::size_t>(output)];
  if (view.dtype != f32)
    return bad_input("The output ({}) is {}; rows are read from f32.",
                     outputs()[static_cast<std::size_t>(output)].name, name_of(view.dtype));
  if (row_elements <= 0 || row < 0 || row >= view.elements() / row_elements) {
    return bad_input("Row ({}) of ({}) elements lies outside the output's {}.", row, row_elements,
                     view.elements());
  }
  const float* data = view.as<float>() + row * row_elements;
  return std::vector<float>(data, data + row_elements);
} catch (...) {
  return error_in_flight();
}

Result<std::span<const TensorView>> CompiledGraph::run_raw(std::span<const NamedInput> inputs) try {
  RLX_TRY(impl_->need_bound());
  RLX_TRY(impl_->begin_run());
  RLX_TRY(impl_->match(inputs, false, nullptr));
  RLX_TRY(impl_->run_bound());
  return std::span<const TensorView>(impl_->views);
} catch (...) {
  return error_in_flight();
}

Status CompiledGraph::Impl::take_slots(std::span<const void* const> slot_inputs) {
  RLX_TRY(need_bound());
  RLX_TRY(begin_run());
  if (slot_inputs.size() != inputs.size())
    return bad_input("The program has {} inputs and was given ({}).", inputs.size(),
                     slot_inputs.size());
  for (std::size_t i = 0; i < slot_inputs.size(); ++i) {
    slots[slot_of[i]] = slot_inputs[i];
    if (!slot_inputs[i] && element_count(inputs[i].dims) > 0 && !handle_of_slot(slot_of[i]))
      return bad_input("The input ({}) is a null pointer.", inputs[i].name);
  }
  return {};
}

Result<std::span<const ArenaSlice>> CompiledGraph::run_slots(
    std::span<const void* const> slot_inputs) try {
  RLX_TRY(impl_->take_slots(slot_inputs));
  RLX_TRY(impl_->run_bound());
  return std::span<const ArenaSlice>(impl_->slices);
} catch (...) {
  return error_in_flight();
}

const std::byte* CompiledGraph::arena_ptr() const {
  return impl_->bound ? impl_->bound->executable->arena() : nullptr;
}

Status CompiledGraph::run_into(std::span<const void* const> slot_inputs,
                               std::span<void* const> results) try {
  Impl& impl = *impl_;
  if (results.size() != outputs().size())
    return bad_input("The program has {} outputs and was given ({}).", outputs().size(),
                     results.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i] && element_count(outputs()[i].dims) > 0)
      return bad_input("The output ({}) is a null pointer.", outputs()[i].name);
  }
  RLX_TRY(impl.take_slots(slot_inputs));
  Executable& executable = *impl.bound->executable;
  for (std::size_t i = 0; i < results.size(); ++i) {
    impl.targets[impl.output_of[i]] = results[i];
    if (!impl.is_fed_by(impl.output_of[i])) executable.set_output(impl.output_of[i], results[i]);
  }
  const Status status = impl.run_bound();
  for (std::size_t i = 0; i < results.size(); ++i) {
    impl.targets[impl.output_of[i]] = const_cast<std::byte*>(impl.views[i].data);
    if (!impl.is_fed_by(impl.output_of[i])) {
      executable.set_output(impl.output_of[i], nullptr);
    } else if (status.ok()) {
      std::memcpy(results[i], impl.views[i].data, impl.views[i].bytes());
    }
  }
  return status;
} catch (...) {
  return error_in_flight();
}

}  // namespace rlx
