// Experts of a program: which live in memory, who was chosen, and the policy that follows.
#include "rlx/experts.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "base/error_in_flight.hpp"
#include "runtime/compiled_graph.hpp"

namespace rlx {

Result<ExpertControl*> CompiledGraph::Impl::expert_control() {
  RLX_TRY(need_bound());
  RLX_TRY(check_idle());
  if (ExpertControl* const control = bound->executable->experts()) return control;
  return bad_input("The program has no grouped matmuls whose experts could be told apart.");
}

Status CompiledGraph::Impl::hand_experts_to(Impl& program) const {
  ExpertControl* const control = program.bound->executable->experts();
  if (!control) return {};
  control->enable_capture(experts.captures);
  if (experts.masks.empty()) return {};
  return control->set_resident(experts.masks);
}

template <class Change>
Status CompiledGraph::Impl::change_experts(Change change) {
  companions.clear();  // they have the settings of before
  for (const Extent& extent : extents) {
    if (ExpertControl* const control = extent.program->bound->executable->experts())
      RLX_TRY(change(*control));
  }
  return change(*bound->executable->experts());
}

Result<std::vector<std::int64_t>> CompiledGraph::moe_layers() const try {
  RLX_ASSIGN(const ExpertControl* const control, impl_->expert_control());
  return control->layers();
} catch (...) {
  return error_in_flight();
}

Status CompiledGraph::set_moe_resident_experts(const std::vector<bool>& mask) try {
  RLX_ASSIGN(const ExpertControl* const control, impl_->expert_control());
  return set_moe_resident_experts_per_layer(
      std::vector<ExpertMask>(control->layers().size(), mask));
} catch (...) {
  return error_in_flight();
}

Status CompiledGraph::set_moe_resident_experts_per_layer(
    const std::vector<std::vector<bool>>& masks) try {
  RLX_ASSIGN(const ExpertControl* const control, impl_->expert_control());
  const std::vector<std::int64_t> layers = control->layers();
  if (masks.size() != layers.size())
    return bad_input("The program has {} layers of experts and was given masks for ({}).",
                     layers.size(), masks.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (masks[i].size() != static_cast<std::size_t>(layers[i]))
      return bad_input("Layer {} has {} experts and was given a mask of ({}).", i, layers[i],
                       masks[i].size());
  }
  impl_->experts.masks = masks;
  return impl_->change_experts([&](ExpertControl& each) { return each.set_resident(masks); });
} catch (...) {
  return error_in_flight();
}

Status CompiledGraph::enable_moe_topk_capture(bool enabled) try {
  RLX_TRY(impl_->expert_control());
  impl_->experts.captures = enabled;
  return impl_->change_experts([enabled](ExpertControl& each) -> Status {
    each.enable_capture(enabled);
    return {};
  });
} catch (...) {
  return error_in_flight();
}

Result<std::vector<ExpertChoices>> CompiledGraph::take_moe_topk_capture() try {
  RLX_ASSIGN(ExpertControl * control, impl_->expert_control());
  if (impl_->active) control = impl_->active->program->bound->executable->experts();
  std::optional<std::vector<ExpertChoices>> choices = control->take_choices();
  if (choices) return *std::move(choices);
  return bad_input("No run was captured: enable_moe_topk_capture, then run.");
} catch (...) {
  return error_in_flight();
}

Result<std::vector<ExpertCounts>> CompiledGraph::take_moe_residency_stats() try {
  RLX_ASSIGN(ExpertControl * control, impl_->expert_control());
  if (impl_->active) control = impl_->active->program->bound->executable->experts();
  return control->take_counts();
} catch (...) {
  return error_in_flight();
}

// ---- the policy

ExpertResidencyPolicy::ExpertResidencyPolicy(Options options)
    : options_(options), counts_(), mask_() {
  if (options.experts < 1)
    throw Exception(bad_input("A policy wants at least one expert, not ({}).", options.experts));
  if (options.resident < 0 || options.resident > options.experts)
    throw Exception(bad_input("The resident experts ({}) lie outside 0..{}.", options.resident,
                              options.experts));
  if (!(options.decay >= 0 && options.decay <= 1))
    throw Exception(bad_input("The decay ({}) lies outside 0..1.", options.decay));
  if (!(options.reluctance >= 1))
    throw Exception(bad_input("The reluctance ({}) lies below 1.", options.reluctance));
  counts_.assign(static_cast<std::size_t>(options.experts), 0.0);
  mask_.assign(counts_.size(), false);
  std::fill_n(mask_.begin(), options.resident, true);
}

const ExpertMask& ExpertResidencyPolicy::observe(std::span<const std::uint32_t> chosen) {
  for (double& count : counts_) count *= options_.decay;
  for (const std::uint32_t expert : chosen)
    if (expert < counts_.size()) ++counts_[expert];
  // Those in memory count a little more and win ties.
  std::vector<std::size_t> order(counts_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto worth = [this](std::size_t expert) {
    return counts_[expert] * (mask_[expert] ? options_.reluctance : 1.0);
  };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (worth(a) != worth(b)) return worth(a) > worth(b);
    return mask_[a] && !mask_[b];
  });
  ExpertMask next(counts_.size(), false);
  for (std::int64_t i = 0; i < options_.resident; ++i)
    next[order[static_cast<std::size_t>(i)]] = true;
  mask_ = std::move(next);
  return mask_;
}

}  // namespace rlx
