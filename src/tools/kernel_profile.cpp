// The table of a profile: each kernel beside the least time that this machine allows for its
// arithmetic and its bytes.
#include "tools/kernel_profile.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace rlx::tools {
namespace {

double rounded(double value) { return std::stod(fmt::format("{:.6f}", value)); }

std::string_view bound_of(const KernelProfile& kernel, const MachinePeaks& peaks) {
  return peaks.bound_by_bytes(kernel) ? "bytes" : "arithmetic";
}

}  // namespace

nlohmann::ordered_json profile_rows(const std::vector<KernelProfile>& kernels,
                                    const MachinePeaks& peaks) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const KernelProfile& kernel : kernels) {
    rows.push_back(
        {{"kernel", kernel.name},
         {"region", kernel.region},
         {"shape", kernel.shape},
         {"threads", kernel.threads},
         {"median_us", rounded(kernel.median_us)},
         {"predicted_us", rounded(kernel.predicted_us)},
         {"flops", kernel.flops},
         {"bytes", kernel.bytes},
         {"limit_us", rounded(peaks.least_us(kernel))},
         {"share_of_limit", rounded(peaks.least_us(kernel) / std::max(kernel.median_us, 1e-3))},
         {"bound", bound_of(kernel, peaks)}});
  }
  return rows;
}

void print_profile(const std::vector<KernelProfile>& kernels, const MachinePeaks& peaks) {
  double total = 0, limit = 0;
  for (const KernelProfile& kernel : kernels) {
    total += kernel.median_us;
    limit += peaks.least_us(kernel);
  }
  fmt::print("\n{:>10} {:>6} {:>10} {:>9} {:>9} {:>9} {:>8} {:>6} {:>2}  kernel [shape]: region\n",
             "us", "share", "predicted", "MFLOP", "GFLOP/s", "KB", "GB/s", "limit", "t");
  for (const KernelProfile& kernel : kernels) {
    const double us = std::max(kernel.median_us, 1e-3);
    fmt::print(
        "{:>10.2f} {:>5.1f}% {:>10.2f} {:>9.3f} {:>9.2f} {:>9.1f} {:>8.2f} {:>5.0f}%{} {:>2}"
        "  {} [{}]: {}\n",
        kernel.median_us, 100 * kernel.median_us / std::max(total, 1e-3), kernel.predicted_us,
        kernel.flops * 1e-6, kernel.flops / us * 1e-3, kernel.bytes * 1e-3,
        kernel.bytes / us * 1e-3, 100 * peaks.least_us(kernel) / us, bound_of(kernel, peaks)[0],
        kernel.threads, kernel.name, kernel.shape, kernel.region);
  }
  fmt::print("{:>10.2f} us in all; at the limit {:.2f} us\n", total, limit);
  fmt::print(
      "limit: share of the least time for the arithmetic (a) or the bytes (b); one core "
      "does {:.0f} GFLOP/s",
      peaks.flops_per_us * 1e-3);
  for (const ReadRate& rate : peaks.reads) {
    fmt::print("{} {:.0f} GB/s of {} KiB", &rate == &peaks.reads.front() ? ", reads" : ",",
               rate.bytes_per_us * 1e-3, rate.working_set_bytes / 1024);
    if (rate.together > rate.bytes_per_us)
      fmt::print(" ({:.0f} with all threads)", rate.together * 1e-3);
  }
  fmt::print("\n");
}

}  // namespace rlx::tools
