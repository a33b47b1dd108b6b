// What rlx explain shows, and the forms in which it shows it.
#pragma once

#include <string>
#include <vector>

#include "rlx/cost.hpp"

namespace rlx::tools {

/// A plan with what was measured beside what was predicted.
struct Report {
  std::string model;  ///< the file's name
  Explanation plan;
  std::vector<double> measured_us;  ///< by kernel; empty: not measured
  double measured_ms = -1;          ///< of a whole run; -1: not measured
  std::vector<std::string> notes;   ///< what was assumed
  std::string device;               ///< display name

  bool is_measured() const { return !measured_us.empty(); }
};

std::string explain_text(const Report& report);
std::string explain_json(const Report& report);
/// Chrome's trace event format, as Perfetto opens it: predicted kernels on one track, measured on
/// another, the arena's live bytes as a counter; below a loop its first iteration, as predicted.
std::string explain_trace(const Report& report);
/// One self-contained page of HTML.
std::string explain_page(const Report& report);

// Shared by the forms.

/// "12.3 us", "4.56 ms".
std::string time_text(double us);
/// "1.5 KB", "23.4 MB".
std::string size_text(double bytes);
/// What a run is predicted to take beside its kernels: the call, the team, barriers between them.
/// Below 0 where kernels save more by beginning before those before them have ended.
double beside_kernels_us(const Explanation& plan);
/// The kernels in the order in which they are shown: those inside of a loop follow it.
struct KernelLine {
  std::string number;  ///< "3"; "3.0": the first one of an iteration of loop 3
  const Explanation::Kernel* kernel;
  double measured_us = -1;  ///< -1: not measured
};
std::vector<KernelLine> kernel_lines(const Report& report);
/// The kernels of one iteration of a loop.
std::vector<KernelLine> lines_inside(const KernelLine& loop);
/// Bytes of the arena in use at each kernel; a buffer that takes another one's place counts once.
std::vector<std::int64_t> live_bytes(const Explanation& plan);

}  // namespace rlx::tools
