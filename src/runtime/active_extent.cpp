// Runs on the live rows of a bucket: a program of the smaller size on the same weights.
#include <algorithm>

#include "base/error.hpp"
#include "base/error_in_flight.hpp"
#include "runtime/compiled_graph.hpp"
#include "runtime/overlap.hpp"

namespace rlx {
namespace {

/// Do the first elements of `whole` lie as `part` wants them? They do where the outermost axis of
/// more than one row is the one that is cut.
bool is_begin_of(const Dims& part, const Dims& whole) {
  std::size_t axis = 0;
  while (axis < part.size() && part[axis] == whole[axis] && whole[axis] == 1) ++axis;
  for (++axis; axis < part.size(); ++axis) {
    if (part[axis] != whole[axis]) return false;
  }
  return true;
}

}  // namespace

Status CompiledGraph::set_active_extent(
    std::optional<std::pair<std::int64_t, std::int64_t>> extent) try {
  Impl& impl = *impl_;
  RLX_TRY(impl.need_bound());
  RLX_TRY(impl.check_idle());
  impl.active = nullptr;
  if (!extent) return {};
  const auto [actual, upper] = *extent;
  if (!impl.handles.empty() || !impl.bound->executable->plan().states.empty())
    return bad_input("A program with handles or states has no active extent.");
  CompileOptions options = impl.source_options;
  bool found = false;
  std::string known;
  for (auto& [name, value] : options.dims) {
    known += fmt::format("{}{}={}", known.empty() ? "" : ", ", name, value);
    if (value != upper) continue;
    value = actual;
    found = true;
  }
  if (!found)
    return bad_input("No symbol is bound to ({}); bound are: {}.", upper,
                     known.empty() ? "none" : known);
  if (actual < 1 || actual > upper)
    return bad_input("The active extent ({}) lies outside 1..{}.", actual, upper);
  if (actual == upper) return {};
  std::unique_ptr<Impl>& program = impl.extents[actual];
  if (!program) {
    auto made = Impl::make(impl.session, *impl.backend, *impl.source, options);
    if (!made.ok()) {
      impl.extents.erase(actual);
      return std::move(made.error()).while_(fmt::format("compiling for {} live rows", actual));
    }
    program = *std::move(made);
    program->cancel_flag = impl.cancel_flag;
    for (const auto& [name, value] : impl.params) {
      RLX_TRY(program->bound->executable->set_param(name, value));
    }
    program->prepare();
    RLX_TRY(impl.hand_experts_to(*program));
  }
  impl.cropped.clear();
  for (std::size_t i = 0; i < impl.inputs.size(); ++i) {
    const IoInfo& input = program->inputs[i];
    const bool stays = is_begin_of(input.dims, impl.inputs[i].dims);
    impl.cropped.push_back(stays ? Tensor() : Tensor(input.dtype, input.dims));
  }
  impl.active = program.get();
  return {};
} catch (...) {
  return error_in_flight();
}

Status CompiledGraph::Impl::run_active() {
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (cropped[i].empty()) {
      active->slots[i] = slots[i];
      continue;
    }
    const IoInfo& info = inputs[i];
    const TensorView whole(info.dtype, info.dims, static_cast<const std::byte*>(slots[i]));
    copy_overlap(whole, {info.dtype, cropped[i].dims(), cropped[i].mutable_data()});
    active->slots[i] = cropped[i].data();
  }
  RLX_TRY(active->bound->executable->run(active->slots));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    copy_overlap(active->views[i],
                 {views[i].dtype, views[i].dims, static_cast<std::byte*>(targets[i])});
  }
  return {};
}

}  // namespace rlx
