// rlx explain: the plan of a model, with predicted and measured times, and the reasons.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "tools/answers.hpp"
#include "tools/clock.hpp"
#include "tools/explain.hpp"
#include "tools/model_input.hpp"
#include "tools/page.hpp"

namespace rlx::tools {
namespace {

struct ExplainOptions : ModelOptions {
  bool measure = false;
  std::string trace, page;
};

/// Addresses of the inputs in the program's order; nothing where it wants none by position.
std::vector<const void*> slots_of(const CompiledGraph& program, const PreparedModel& model) {
  std::vector<const void*> slots;
  for (const IoInfo& input : program.inputs()) {
    const auto found = std::find_if(model.inputs.begin(), model.inputs.end(),
                                    [&](const auto& entry) { return entry.first == input.name; });
    if (found == model.inputs.end() || found->second.dtype() != input.dtype) return {};
    slots.push_back(found->second.data());
  }
  return slots;
}

/// Whole runs, and then each kernel apart; the medians. Runs go by position where they can, so that
/// nothing but the program is measured.
Status measure(CompiledGraph& program, const PreparedModel& model, Report& report) {
  const std::vector<NamedInput> inputs = named_inputs(model);
  const bool whole = program.report().stages == 1;
  RLX_TRY(program.run(inputs));
  const std::vector<const void*> slots =
      whole ? slots_of(program, model) : std::vector<const void*>();
  const auto run_once = [&]() -> Status {
    if (slots.empty()) {
      RLX_TRY(program.run(inputs));
    } else {
      RLX_TRY(program.run_slots(slots));
    }
    return {};
  };
  RLX_TRY(run_once());
  std::vector<double> times;
  const auto end = Clock::now() + std::chrono::milliseconds(300);
  while (times.size() < 2 || (Clock::now() < end && times.size() < 1'000)) {
    const int together = times.empty() ? 1 : runs_per_sample(times.back());
    RLX_ASSIGN(const double milliseconds, milliseconds_of(together, run_once));
    times.push_back(milliseconds);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                   times.end());
  report.measured_ms = times[times.size() / 2];
  const int runs = std::clamp(static_cast<int>(300 / std::max(report.measured_ms, 0.01)), 3, 200);
  RLX_ASSIGN(const std::vector<KernelProfile> profiles, program.profile(inputs, runs));
  if (profiles.size() != report.plan.kernels.size()) {
    report.notes.emplace_back("each run has kernels of its own: they are not measured apart");
    return {};
  }
  for (const KernelProfile& profile : profiles) report.measured_us.push_back(profile.median_us);
  return {};
}

std::string display_name(Device device) {
  for (const DeviceInfo& info : devices()) {
    if (info.device == device) return info.display_name;
  }
  return std::string(name_of(device));
}

Result<int> explain_verb(const ExplainOptions& options) {
  RLX_ASSIGN(const PreparedModel model, prepare_model(options));
  RLX_ASSIGN(CompiledGraph program, compile_model(options, model));
  Report report{.model = std::filesystem::path(options.model).filename().string(),
                .notes = model.notes,
                .device = display_name(program.device())};
  Result<Explanation> plan = program.explain();
  if (!plan.ok()) {
    // Data decides shapes: a run makes the parts.
    RLX_TRY(program.run(named_inputs(model)));
    plan = program.explain();
    report.notes.push_back(fmt::format(
        "the data decides shapes and splits the program; these are the kernels of its {} parts",
        program.report().stages));
  }
  RLX_ASSIGN(report.plan, std::move(plan));
  if (options.measure) RLX_TRY(measure(program, model, report));
  if (!options.trace.empty()) RLX_TRY(write_text(options.trace, explain_trace(report)));
  if (!options.page.empty()) RLX_TRY(write_text(options.page, explain_page(report)));
  fmt::print("{}", options.json ? explain_json(report) : explain_text(report));
  return exit_done;
}

}  // namespace

std::string time_text(double us) {
  if (us < 1) return fmt::format("{:.0f} ns", us * 1e3);
  if (us < 100) return fmt::format("{:.1f} us", us);
  if (us < 1e3) return fmt::format("{:.0f} us", us);
  return us < 1e6 ? fmt::format("{:.2f} ms", us / 1e3) : fmt::format("{:.2f} s", us / 1e6);
}

std::string size_text(double bytes) {
  if (bytes < 1e3) return fmt::format("{:.0f} B", bytes);
  if (bytes < 1e6) return fmt::format("{:.1f} KB", bytes / 1e3);
  return bytes < 1e9 ? fmt::format("{:.1f} MB", bytes / 1e6)
                     : fmt::format("{:.2f} GB", bytes / 1e9);
}

std::vector<std::int64_t> live_bytes(const Explanation& plan) {
  std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> ranges(plan.kernels.size());
  for (const Explanation::Buffer& buffer : plan.buffers) {
    if (buffer.storage != "arena") continue;
    const int last = std::min(buffer.last_kernel, static_cast<int>(ranges.size()) - 1);
    for (int step = std::max(buffer.first_kernel, 0); step <= last; ++step)
      ranges[static_cast<std::size_t>(step)].emplace_back(buffer.offset,
                                                          buffer.offset + buffer.bytes);
  }
  std::vector<std::int64_t> live;
  for (auto& used : ranges) {
    std::ranges::sort(used);
    std::int64_t bytes = 0, end = 0;
    for (const auto& [first, last] : used) {
      bytes += std::max<std::int64_t>(last - std::max(first, end), 0);
      end = std::max(end, last);
    }
    live.push_back(bytes);
  }
  return live;
}

std::vector<KernelLine> lines_inside(const KernelLine& loop) {
  std::vector<KernelLine> lines;
  for (std::size_t i = 0; i < loop.kernel->inside.size(); ++i)
    lines.push_back({fmt::format("{}.{}", loop.number, i), &loop.kernel->inside[i]});
  return lines;
}

namespace {

void add_line(const KernelLine& line, std::vector<KernelLine>& lines) {
  lines.push_back(line);
  for (const KernelLine& inside : lines_inside(line)) add_line(inside, lines);
}

}  // namespace

std::vector<KernelLine> kernel_lines(const Report& report) {
  std::vector<KernelLine> lines;
  for (std::size_t i = 0; i < report.plan.kernels.size(); ++i) {
    add_line({std::to_string(i), &report.plan.kernels[i],
              report.is_measured() ? report.measured_us[i] : -1},
             lines);
  }
  return lines;
}

double beside_kernels_us(const Explanation& plan) {
  double kernels = 0;
  for (const Explanation::Kernel& kernel : plan.kernels) kernels += kernel.predicted_us;
  return plan.predicted_ms * 1e3 - kernels;
}

void add_explain(CLI::App& app, Action& action) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* command = app.add_subcommand("explain", "The plan of a model, and why it is so");
  add_model_options(*command, *options);
  add_answer_option(*command, *options);
  command->add_flag("--measure", options->measure, "Time each kernel beside its prediction");
  command->add_option("--trace", options->trace, "Write a trace for Perfetto or chrome://tracing");
  command->add_option("--html", options->page, "Write a page that shows the plan");
  command->callback([options, &action] { action = [options] { return explain_verb(*options); }; });
}

}  // namespace rlx::tools
