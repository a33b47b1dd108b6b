// IO profiles of plans.
#include "plan/plan_io.hpp"

#include <algorithm>

namespace rlx::plan {

GraphIoProfile profile_plan_io(const Plan& plan) {
  constexpr double most = 9e18;
  GraphIoProfile profile;
  for (const Step& step : plan.steps) {
    const bool host = step.kind == Step::Kind::host;
    double bytes = step.bytes;
    if (host) {
      for (const std::int32_t buffer : step.buffers)
        bytes += static_cast<double>(plan.buffers[static_cast<std::size_t>(buffer)].bytes());
    }
    profile = profile +
              GraphIoProfile{1, host ? 1 : 0, 0, static_cast<std::int64_t>(std::min(bytes, most))};
  }
  for (const std::int32_t output : plan.outputs) {
    profile =
        profile + GraphIoProfile{0, 0, plan.buffers[static_cast<std::size_t>(output)].bytes(), 0};
  }
  return profile;
}

}  // namespace rlx::plan
