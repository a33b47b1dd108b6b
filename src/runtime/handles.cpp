// Handles: states of the graph, fed inputs, and inputs bound to a value that runs keep.
#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "base/error_in_flight.hpp"
#include "runtime/compiled_graph.hpp"

namespace rlx {
namespace {

std::string type_text(const IoInfo& info) { return Type{info.dtype, to_shape(info.dims)}.text(); }

std::size_t index_of(const std::vector<IoInfo>& infos, std::string_view name) {
  return static_cast<std::size_t>(std::ranges::find(infos, name, &IoInfo::name) - infos.begin());
}

}  // namespace

const CompiledGraph::Impl::Handle* CompiledGraph::Impl::find_handle(std::string_view name) const {
  const auto found = std::ranges::find(handles, name, &Handle::name);
  return found == handles.end() ? nullptr : &*found;
}

const CompiledGraph::Impl::Handle* CompiledGraph::Impl::handle_of_slot(std::size_t slot) const {
  for (const Handle& handle : handles) {
    if (handle.slot == slot) return &handle;
  }
  return nullptr;
}

bool CompiledGraph::Impl::is_fed_by(std::size_t plan_output) const {
  return std::ranges::any_of(
      handles, [&](const Handle& handle) { return handle.feed == static_cast<int>(plan_output); });
}

CompiledGraph::Impl::Handle& CompiledGraph::Impl::add_handle(std::size_t slot, std::string name) {
  const IoInfo& info = bound->inputs[slot];
  return handles.emplace_back(
      Handle{std::move(name), slot, -1, Tensor(info.dtype, info.dims), Tensor()});
}

Status CompiledGraph::Impl::set_feed(Handle& handle, std::size_t output) {
  const IoInfo& from = bound->outputs[output];
  const IoInfo& to = bound->inputs[handle.slot];
  if (from.dtype != to.dtype || from.dims != to.dims)
    return bad_input("The output ({}) is {} and cannot feed the input ({}), which is {}.",
                     from.name, type_text(from), to.name, type_text(to));
  for (const Handle& other : handles) {
    if (&other != &handle && other.feed == static_cast<int>(output))
      return bad_input("The output ({}) feeds the handle ({}) already.", from.name, other.name);
  }
  handle.next = Tensor(handle.value.dtype(), handle.value.dims());
  if (handle.feed >= 0)
    bound->executable->set_output(static_cast<std::size_t>(handle.feed), nullptr);
  handle.feed = static_cast<int>(output);
  return {};
}

Status CompiledGraph::Impl::apply_feeds(const std::vector<CompileOptions::Feed>& feeds) {
  if (feeds.empty()) return {};
  if (!bound) return bad_input("Feeding outputs back needs bound shapes: give all dims.");
  for (const CompileOptions::Feed& feed : feeds) {
    const std::size_t slot = index_of(bound->inputs, feed.input);
    const std::size_t output = index_of(bound->outputs, feed.output);
    if (slot == bound->inputs.size())
      return bad_input("There is no input ({}) to feed.", feed.input);
    if (output == bound->outputs.size())
      return bad_input("There is no output ({}) that could feed the input ({}).", feed.output,
                       feed.input);
    if (handle_of_slot(slot)) return bad_input("The input ({}) is fed twice.", feed.input);
    RLX_TRY(set_feed(add_handle(slot, feed.input), output));
    std::erase(slot_of, slot);
    std::erase(output_of, output);
  }
  inputs.clear(), outputs.clear();
  for (const std::size_t slot : slot_of) inputs.push_back(bound->inputs[slot]);
  for (const std::size_t output : output_of) outputs.push_back(bound->outputs[output]);
  prepare();
  return {};
}

Status CompiledGraph::Impl::run_bound() {
  if (active) return run_active();
  if (handles.empty()) return bound->executable->run(slots);
  for (Handle& handle : handles) {
    slots[handle.slot] = handle.value.data();
    if (handle.feed >= 0)
      bound->executable->set_output(static_cast<std::size_t>(handle.feed),
                                    handle.next.mutable_data());
  }
  RLX_TRY(bound->executable->run(slots));
  for (Handle& handle : handles) {
    if (handle.feed < 0) continue;
    std::swap(handle.value, handle.next);
    for (std::size_t i = 0; i < output_of.size(); ++i) {
      if (output_of[i] == static_cast<std::size_t>(handle.feed))
        views[i].data = handle.value.data();
    }
  }
  return {};
}

Result<std::pair<TensorView, std::byte*>> CompiledGraph::Impl::handle_memory(
    std::string_view name) const {
  if (const Handle* handle = find_handle(name))
    return std::pair(TensorView(handle->value), const_cast<std::byte*>(handle->value.data()));
  std::string known;
  for (const Handle& handle : handles) known += (known.empty() ? "" : ", ") + handle.name;
  if (bound) {
    for (const op::State& state : bound->executable->plan().states) {
      if (state.name == name) {
        std::byte* memory = bound->executable->state(name);
        return std::pair(TensorView(state.dtype, state.dims, memory), memory);
      }
      known += (known.empty() ? "" : ", ") + state.name;
    }
  }
  return bad_input("There is no handle ({}); the handles are: {}.", name,
                   known.empty() ? "none" : known);
}

Status CompiledGraph::bind_handle(std::string_view name, TensorView value) try {
  RLX_TRY(impl_->need_bound());
  RLX_TRY(impl_->check_idle());
  const std::size_t input = index_of(inputs(), name);
  const bool is_new = !impl_->handle_memory(name).ok();
  if (is_new && input == inputs().size()) return std::move(impl_->handle_memory(name).error());
  const IoInfo* info = is_new ? &inputs()[input] : nullptr;
  const TensorView wanted =
      is_new ? TensorView(info->dtype, info->dims, nullptr) : impl_->handle_memory(name)->first;
  if (value.dtype != wanted.dtype || !std::ranges::equal(value.dims, wanted.dims)) {
    const auto text = [](const TensorView& view) {
      return Type{view.dtype, to_shape(Dims(view.dims.begin(), view.dims.end()))}.text();
    };
    return bad_input("The handle ({}) is {} and was given {}.", name, text(wanted), text(value));
  }
  if (is_new) impl_->add_handle(impl_->slot_of[input], std::string(name));
  std::memcpy(impl_->handle_memory(name)->second, value.data, value.bytes());
  return {};
} catch (...) {
  return error_in_flight();
}

Result<Tensor> CompiledGraph::read_handle(std::string_view name) const try {
  RLX_TRY(impl_->check_idle());
  RLX_ASSIGN(const auto memory, impl_->handle_memory(name));
  const TensorView& view = memory.first;
  Tensor copy(view.dtype, Dims(view.dims.begin(), view.dims.end()));
  std::memcpy(copy.mutable_data(), view.data, view.bytes());
  return copy;
} catch (...) {
  return error_in_flight();
}

bool CompiledGraph::has_gpu_handle(std::string_view name) const {
  return impl_->handle_memory(name).ok();
}

Status CompiledGraph::set_gpu_handle_feed(std::string_view name, int output) try {
  RLX_TRY(impl_->need_bound());
  RLX_TRY(impl_->check_idle());
  const auto found = std::ranges::find(impl_->handles, name, &Impl::Handle::name);
  if (found == impl_->handles.end())
    return bad_input("There is no handle ({}) that an output could feed: bind_handle makes one.",
                     name);
  if (output < 0 || output >= static_cast<int>(outputs().size()))
    return bad_input("There is no output ({}): there are {}.", output, outputs().size());
  RLX_TRY(impl_->set_feed(*found, impl_->output_of[static_cast<std::size_t>(output)]));
  impl_->prepare();
  return {};
} catch (...) {
  return error_in_flight();
}

Status CompiledGraph::run_feed_gpu_handle(std::span<const NamedInput> inputs) try {
  RLX_TRY(impl_->need_bound());
  RLX_TRY(impl_->begin_run());
  if (std::ranges::none_of(impl_->handles, [](const auto& handle) { return handle.feed >= 0; }))
    return bad_input("No output feeds a handle: set_gpu_handle_feed names one.");
  RLX_TRY(impl_->match(inputs, false, nullptr));
  return impl_->run_bound();
} catch (...) {
  return error_in_flight();
}

}  // namespace rlx
