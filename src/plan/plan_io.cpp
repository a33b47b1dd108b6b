// IO profiles of plans.
#include "plan/plan_io.hpp"

#include <algorithm>

namespace rlx::plan {

namespace {

/// Each of the steps as often as that.
GraphIoProfile profile_of(const Plan& plan, const std::vector<Step>& steps, double times) {
  const auto whole = [](double value) {
    constexpr double most = 9e18;
    return static_cast<std::int64_t>(std::min(value, most));
  };
  GraphIoProfile profile;
  for (const Step& step : steps) {
    if (step.kind == Step::Kind::loop) {
      const LoopPlan& loop = plan.loops[static_cast<std::size_t>(step.index)];
      profile =
          profile + profile_of(plan, loop.steps, times * static_cast<double>(iterations_of(loop)));
      continue;
    }
    const bool host = step.kind == Step::Kind::host;
    double bytes = step.bytes;
    if (host) {
      for (const std::int32_t buffer : step.buffers)
        bytes += static_cast<double>(plan.buffers[static_cast<std::size_t>(buffer)].bytes());
    }
    profile =
        profile + GraphIoProfile{whole(times), host ? whole(times) : 0, 0, whole(times * bytes)};
  }
  return profile;
}

}  // namespace

GraphIoProfile profile_plan_io(const Plan& plan) {
  GraphIoProfile profile = profile_of(plan, plan.steps, 1);
  for (const std::int32_t output : plan.outputs) {
    profile =
        profile + GraphIoProfile{0, 0, plan.buffers[static_cast<std::size_t>(output)].bytes(), 0};
  }
  return profile;
}

}  // namespace rlx::plan
