// Runs on the live rows of a bucket: a program of the smaller size on the same weights, of which
// those used last are kept (docs/adr/0019).
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/error_in_flight.hpp"
#include "runtime/compiled_graph.hpp"
#include "runtime/overlap.hpp"

namespace rlx {
namespace {

/// Programs for live rows that are kept.
constexpr std::size_t extents_kept = 16;

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

/// The options with every symbol that is bound to `upper` bound to `actual`.
Result<CompileOptions> cut_options(CompileOptions options, std::int64_t actual,
                                   std::int64_t upper) {
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
  return options;
}

}  // namespace

/// Makes a program for the live rows with the weights and settings of this one.
Result<CompiledGraph::Impl::Extent> CompiledGraph::Impl::make_extent(
    const std::pair<std::int64_t, std::int64_t>& rows, const CompileOptions& cut) const {
  auto made = make(session, *backend, *source, cut);
  if (!made.ok())
    return std::move(made.error()).while_(fmt::format("compiling for {} live rows", rows.first));
  Extent extent{.rows = rows, .program = nullptr, .cropped = {}, .in_place = {}};
  extent.program = *std::move(made);
  extent.program->cancel_flag = cancel_flag;
  for (const auto& [name, value] : params)
    RLX_TRY(extent.program->bound->executable->set_param(name, value));
  extent.program->prepare();
  RLX_TRY(hand_experts_to(*extent.program));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const IoInfo& input = extent.program->inputs[i];
    const bool stays = is_begin_of(input.dims, inputs[i].dims);
    extent.cropped.push_back(stays ? Tensor() : Tensor(input.dtype, input.dims));
  }
  for (std::size_t i = 0; i < outputs.size(); ++i)
    extent.in_place.push_back(is_begin_of(extent.program->outputs[i].dims, outputs[i].dims));
  Log(session->options.log, session->options.log_level)(
      LogLevel::info, "Compiled a program for {} of {} rows in {:.1f} ms.", rows.first, rows.second,
      extent.program->bound->report.compile_ms);
  return extent;
}

Status CompiledGraph::set_active_extent(
    std::optional<std::pair<std::int64_t, std::int64_t>> wanted) try {
  Impl& impl = *impl_;
  RLX_TRY(impl.need_bound());
  RLX_TRY(impl.check_idle());
  if (!wanted) {
    impl.active = nullptr;
    return {};
  }
  if (!impl.handles.empty() || !impl.bound->executable->plan().states.empty())
    return bad_input("A program with handles or states has no active extent.");
  std::list<Impl::Extent>& extents = impl.extents;
  const auto known = std::ranges::find(extents, *wanted, &Impl::Extent::rows);
  if (known != extents.end()) {
    extents.splice(extents.begin(), extents, known);
  } else {
    RLX_ASSIGN(const CompileOptions cut,
               cut_options(impl.source_options, wanted->first, wanted->second));
    if (wanted->first == wanted->second) {
      impl.active = nullptr;
      return {};
    }
    RLX_ASSIGN(Impl::Extent made, impl.make_extent(*wanted, cut));
    extents.push_front(std::move(made));
    if (extents.size() > extents_kept) extents.pop_back();
  }
  impl.active = &extents.front();
  return {};
} catch (...) {
  return error_in_flight();
}

Status CompiledGraph::Impl::run_active() {
  Impl& program = *active->program;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    Tensor& cropped = active->cropped[i];
    if (cropped.empty()) {
      program.slots[i] = slots[i];
      continue;
    }
    const IoInfo& info = inputs[i];
    const TensorView whole(info.dtype, info.dims, static_cast<const std::byte*>(slots[i]));
    copy_overlap(whole, {info.dtype, cropped.dims(), cropped.mutable_data()});
    program.slots[i] = cropped.data();
  }
  Executable& executable = *program.bound->executable;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (active->in_place[i]) executable.set_output(i, targets[i]);
  }
  RLX_TRY(executable.run(program.slots));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    auto* const target = static_cast<std::byte*>(targets[i]);
    if (active->in_place[i]) {
      const std::size_t live = program.views[i].bytes();
      std::memset(target + live, 0, views[i].bytes() - live);
    } else {
      copy_overlap(program.views[i], {views[i].dtype, views[i].dims, target});
    }
  }
  return {};
}

}  // namespace rlx
