// rlx explain as text for a terminal.
#include <fmt/format.h>

#include <algorithm>

#include "tools/explain.hpp"
#include "tools/printable.hpp"

namespace rlx::tools {
namespace {

std::string profile_text(const GraphIoProfile& io) {
  return fmt::format("{} launches, {} syncs, {} to the host, {} traffic", io.kernel_launches,
                     io.sync_points, size_text(static_cast<double>(io.host_output_bytes)),
                     size_text(static_cast<double>(io.device_traffic_bytes)));
}

void add_kernels(const Report& report, std::string& text) {
  text += fmt::format("\nkernels:\n  {:>4} {:<12} {:>10}{} {:>7} {:>9} {:>9} {:<8} {}\n", "#",
                      "kind", "predicted", report.is_measured() ? "   measured" : "", "threads",
                      "MFLOP", "bytes", "limit", "region");
  for (const auto& [number, kernel, measured_us] : kernel_lines(report)) {
    const std::string measured = measured_us < 0 ? "" : time_text(measured_us);
    text += fmt::format("  {:>4} {:<12} {:>10}{} {:>7} {:>9.3f} {:>9} {:<8} {}\n", number,
                        kernel->name, time_text(kernel->predicted_us),
                        report.is_measured() ? fmt::format(" {:>10}", measured) : "",
                        kernel->threads, kernel->flops / 1e6, size_text(kernel->bytes),
                        kernel->bound, shortened(kernel->region, 80));
    if (!kernel->inside.empty())
      text += fmt::format("       {} {} iterations, each of:\n",
                          kernel->assumes_iterations ? "about" : "in", kernel->iterations);
  }
}

std::string work_text(const FusionQuestion& question) {
  std::string text;
  if (question.before_ns > 0)
    text = fmt::format("; planned whole {} before, {} after", time_text(question.before_ns * 1e-3),
                       time_text(question.after_ns * 1e-3));
  if (question.work_added_ns != 0)
    text += fmt::format("; work added {:.0f} ns", question.work_added_ns);
  return text;
}

void add_questions(const Report& report, std::string& text) {
  const auto fused = std::count_if(report.plan.questions.begin(), report.plan.questions.end(),
                                   [](const FusionQuestion& question) { return question.fused; });
  text += fmt::format("\nfusion questions: {} asked, {} fused, planned in {:.2f} ms\n",
                      report.plan.questions.size(), fused, report.plan.planning_ms);
  for (const FusionQuestion& question : report.plan.questions) {
    text += fmt::format("  {} {:<10} {:>12} {}\n", question.fused ? "yes" : "no ", question.kind,
                        fmt::format("{:+.0f} ns", question.score_ns), question.what);
    text += fmt::format("      before: {}\n      after:  {}{}\n", profile_text(question.before),
                        profile_text(question.after), work_text(question));
  }
}

void add_devices(const Report& report, std::string& text) {
  text += fmt::format("\ndevice: {} ({})\n", report.device, report.plan.devices.reason);
  for (const DeviceChoice::Candidate& candidate : report.plan.devices.candidates) {
    const std::string predicted =
        candidate.predicted_ns < 0 ? "no model" : time_text(candidate.predicted_ns / 1e3);
    text += fmt::format("  {:<6} {:>10} {:<12} {}\n", name_of(candidate.device), predicted,
                        candidate.predicted_ns < 0 ? ""
                        : candidate.calibrated     ? "calibrated"
                                                   : "preset",
                        candidate.reason.empty() ? "eligible" : candidate.reason);
  }
}

}  // namespace

std::string explain_text(const Report& report) {
  const Explanation& plan = report.plan;
  std::string text;
  for (const std::string& note : report.notes) text += fmt::format("note: {}\n", note);
  text += fmt::format("{}: {} kernels, predicted {}{}, {} of it beside the kernels\n", report.model,
                      plan.kernels.size(), time_text(plan.predicted_ms * 1e3),
                      report.measured_ms < 0
                          ? ""
                          : fmt::format(", measured {}", time_text(report.measured_ms * 1e3)),
                      time_text(beside_kernels_us(plan)));
  if (plan.clock_ghz > 0)
    text += fmt::format("predicted for the clock of now, {:.2f} GHz\n", plan.clock_ghz);
  text += fmt::format("graph: {}\nplan:  {}\n", profile_text(plan.static_io),
                      profile_text(plan.planned_io));
  const auto bytes = [](std::int64_t value) { return size_text(static_cast<double>(value)); };
  text += fmt::format("memory: weights {}, arena {} (no plan needs less than {}), scratch {}\n",
                      bytes(plan.memory.weights_bytes), bytes(plan.memory.arena_bytes),
                      bytes(plan.memory.arena_lower_bound_bytes), bytes(plan.memory.scratch_bytes));
  add_kernels(report, text);
  for (const Explanation::Kernel& kernel : plan.kernels) {
    if (kernel.name == "host")
      text += fmt::format("  host {}: {}\n", shortened(kernel.region, 40), kernel.reason);
  }
  if (!plan.claims.empty()) text += "\nclaims of the device:\n";
  for (const Explanation::Claim& claim : plan.claims) {
    text += fmt::format("  {:<9} {:<16} {}{}\n", claim.taken ? "taken" : "lowered", claim.op,
                        claim.reason, claim.origin.empty() ? "" : " [" + claim.origin + "]");
  }
  add_questions(report, text);
  add_devices(report, text);
  return printable(text);
}

}  // namespace rlx::tools
