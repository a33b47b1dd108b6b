// How the times of kernels are told, as JSON and as a table.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "rlx/runtime.hpp"
#include "tools/machine_peaks.hpp"

namespace rlx::tools {

/// One object a kernel: kernel, region, shape, threads, median_us, flops, bytes, limit_us, bound.
nlohmann::ordered_json profile_rows(const std::vector<KernelProfile>& kernels,
                                    const MachinePeaks& peaks);

/// The same as lines on the standard output.
void print_profile(const std::vector<KernelProfile>& kernels, const MachinePeaks& peaks);

}  // namespace rlx::tools
