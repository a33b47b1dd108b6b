// rlx calibrate: measures this machine's devices and keeps the figures in the user's cache folder.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "rlx/calibration.hpp"
#include "tools/options.hpp"
#include "tools/printable.hpp"

namespace rlx::tools {
namespace {

struct CalibrateOptions {
  std::string device = "auto";
  bool json = false;
};

/// One line that is written anew on a terminal, a line for each part elsewhere.
void show(std::string_view what, double done) {
  const bool terminal = isatty(STDERR_FILENO);
  fmt::print(stderr, "{}{:3.0f} % {:<24}{}", terminal ? "\r" : "", 100 * done, what,
             terminal && done < 1 ? "" : "\n");
  std::fflush(stderr);
}

Result<int> calibrate_verb(const CalibrateOptions& options) {
  const auto device = device_named(options.device);
  if (!device)
    return Error{ErrorKind::usage, fmt::format("There is no device ({}).", options.device)};
  const auto before = Calibration::load(*device);
  if (!before.ok() && before.error().kind == ErrorKind::bad_input)
    fmt::print(stderr, "{}\n", before.error().message);
  RLX_ASSIGN(const Calibration calibration, Calibration::measure(*device, show));
  const auto path = calibration.save();
  if (!path.ok()) fmt::print(stderr, "The calibration is not kept: {}\n", path.error().message);
  if (options.json) {
    auto json = nlohmann::ordered_json::parse(calibration.text());
    json["file"] = nullptr;
    if (path.ok()) json["file"] = *path;
    fmt::print("{}\n", json_text(json));
    return exit_done;
  }
  for (const MeasuredGemm& gemm : calibration.gemms()) {
    fmt::print("matmul {:>4} x {:>4} x {:>4} {:<5} {} thread{}: {:8.1f} GFLOP/s\n", gemm.m, gemm.n,
               gemm.k, name_of(gemm.dtype), gemm.threads, gemm.threads == 1 ? " " : "s",
               gemm.gflops);
  }
  const BackendCostModel model = calibration.cost_model();
  fmt::print("memory {:.1f} GB/s, a kernel {:.1f} ns\n", model.memory_bw,
             model.dispatch_overhead_ns);
  if (path.ok()) fmt::print("kept in {}\n", *path);
  return exit_done;
}

}  // namespace

void add_calibrate(CLI::App& app, Action& action) {
  auto options = std::make_shared<CalibrateOptions>();
  CLI::App* command = app.add_subcommand("calibrate", "Measure this machine for the cost model");
  command->add_option("--device", options->device, "The device to measure (default auto: the CPU)");
  command->add_flag("--json", options->json, "The figures as JSON");
  command->callback(
      [options, &action] { action = [options] { return calibrate_verb(*options); }; });
}

}  // namespace rlx::tools
