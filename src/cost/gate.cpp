// The gate: which optional fusions pay on which device.
#include <algorithm>

#include "rlx/cost.hpp"

namespace rlx {

IoFusionGate IoFusionGate::preset(Device device) {
  switch (device) {
    case Device::metal:
    case Device::mlx: return {500, 5'000, 200, 200, true, 2e6, 1'000};
    case Device::cuda:
    case Device::rocm: return {2'000, 20'000, 800, 50, false, 1.5e7, 5'000};
    case Device::gpu:
    case Device::tpu: return {3'000, 30'000, 100, 40, false, 2.5e7, 10'000};
    case Device::automatic:
    case Device::cpu: break;
  }
  return {50, 0, 50, 50, true, 0, 0};
}

double IoFusionGate::score_ns(const GraphIoProfile& before, const GraphIoProfile& after) const {
  const FusionBenefit benefit = fusion_benefit(before, after);
  const double added = std::max(0.0, -static_cast<double>(benefit.syncs_saved));
  return benefit.score_ns(dispatch_ns, roundtrip_ns, memory_bw, host_readback_bw, unified_memory) -
         added * host_thunk_penalty_ns;
}

bool IoFusionGate::should_fuse(const GraphIoProfile& before, const GraphIoProfile& after) const {
  return score_ns(before, after) >= min_gain_ns;
}

}  // namespace rlx
