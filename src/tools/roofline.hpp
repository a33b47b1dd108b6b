// The roofline chart of a profile (Williams, Waterman and Patterson 2009): kernels by arithmetic
// intensity and speed, under what the machine can do.
#pragma once

#include <string>
#include <vector>

#include "rlx/result.hpp"
#include "rlx/runtime.hpp"
#include "tools/machine_peaks.hpp"

namespace rlx::tools {

/// Is it a name that write_roofline knows to write (.png, .html)?
bool is_roofline_file(const std::string& file);

/// Draws the kernels of a profile under the roofs of `peaks`, and below them the kernels that lose
/// the most time to their limits. Errors: the file cannot be written.
Status write_roofline(const std::string& file, const std::string& title,
                      const std::vector<KernelProfile>& kernels, const MachinePeaks& peaks);

}  // namespace rlx::tools
