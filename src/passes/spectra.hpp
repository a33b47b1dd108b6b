// Spectra of frames, taken apart by exporters, as the ops that never store them.
#pragma once

#include "passes/pattern.hpp"
#include "passes/rewriter.hpp"

namespace rlx::passes {

/// Replaces the node where it is the end of one of these equations (and nothing else reads what
/// lies between): log(max(filters · |rfft(frame * window)|^2, least)) = log(10) band_levels, also
/// with a number added in place of the maximum and with the bands before the frames; and the mean
/// over frames of |rfft(frame * window)|^2 = mean_power.
/// Pays: a kernel that keeps the spectrum in registers and the first cache.
Result<bool> spectra_of_frames(Rewriter& rewriter, const Pattern& p, std::int32_t index);

}  // namespace rlx::passes
