// The strongest bins of Welch's estimate.
#pragma once

#include <memory>

#include "rlx/ops.hpp"
#include "signal/transform.hpp"

namespace rlx::signal {

/// The kernel of welch_peaks for a dense spectrum f32[rows, 2 n]; workers share the items.
std::unique_ptr<LineKernel> peaks_kernel(const op::WelchPeaks& a, const Type& spectrum);

}  // namespace rlx::signal
