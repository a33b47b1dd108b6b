// rlx bench: how long a model takes to load, compile and run, and what it needs.
#include <fmt/format.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "rlx/cost.hpp"
#include "tools/allocation_count.hpp"
#include "tools/answers.hpp"
#include "tools/clock.hpp"
#include "tools/kernel_profile.hpp"
#include "tools/machine_load.hpp"
#include "tools/model_input.hpp"
#include "tools/printable.hpp"
#include "tools/roofline.hpp"

namespace rlx::tools {
namespace {

using Json = nlohmann::ordered_json;

struct BenchOptions : ModelOptions {
  double seconds = 1;
  int runs = 0;
  bool profile = false;
  std::string roofline;
};

// Runs a program again and again, by slots where its shapes are bound, else by names.
class Runner {
 public:
  Runner(CompiledGraph& program, const PreparedModel& model)
      : program_(program), named_(named_inputs(model)) {
    for (const IoInfo& input : program.inputs()) {
      for (const auto& [name, value] : model.inputs) {
        if (name == input.name) slots_.push_back(value.data());
      }
    }
  }

  /// The first run also finds out which way is possible.
  Status first_run() {
    auto result = program_.run_slots(slots_);
    if (result.ok()) return {};
    by_slots_ = false;
    return run();
  }

  Status run() {
    if (by_slots_) {
      RLX_TRY(program_.run_slots(slots_));
    } else {
      RLX_TRY(program_.run(named_));
    }
    return {};
  }

 private:
  CompiledGraph& program_;
  std::vector<NamedInput> named_;
  std::vector<const void*> slots_;
  bool by_slots_ = true;
};

struct Samples {
  /// Of a run, sorted; of all, or of every second, fourth, ... Short ones are timed together.
  std::vector<double> milliseconds;
  double least = std::numeric_limits<double>::infinity();  ///< of all `milliseconds`
  std::size_t taken = 0;                                   ///< what was timed together
  std::size_t runs = 0;
  double others = 0;
  std::optional<double> allocations_per_run;

  double median() const {
    const std::size_t half = milliseconds.size() / 2;
    return milliseconds.size() % 2 ? milliseconds[half]
                                   : (milliseconds[half - 1] + milliseconds[half]) / 2;
  }
  double p90() const {
    return milliseconds[std::min(milliseconds.size() * 9 / 10, milliseconds.size() - 1)];
  }
};

// Notes a sample, or every 2^n-th: a million samples tell nothing more, and would be
// most of a small program's memory.
void note(Samples& samples, std::size_t& stride, double milliseconds) {
  samples.least = std::min(samples.least, milliseconds);
  std::vector<double>& kept = samples.milliseconds;
  if (samples.taken++ % stride != 0) return;
  if (kept.size() == kept.capacity()) {
    for (std::size_t i = 0; 2 * i < kept.size(); ++i) kept[i] = kept[2 * i];
    kept.resize((kept.size() + 1) / 2);
    stride *= 2;
    if ((samples.taken - 1) % stride != 0) return;
  }
  kept.push_back(milliseconds);
}

// Room for the samples is made before, so that what is counted is the program's.
Result<Samples> sample(Runner& runner, int runs, double seconds) {
  constexpr std::size_t max_kept = 1 << 14;
  Samples samples;
  samples.milliseconds.reserve(runs > 0 ? std::min(static_cast<std::size_t>(runs), max_kept)
                                        : max_kept);
  std::size_t stride = 1;
  const LoadWatch watch;
  const auto allocations = allocations_so_far();
  const Clock::time_point begin = Clock::now();
  const auto enough = [&] {
    if (runs > 0) return samples.runs >= static_cast<std::size_t>(runs);
    return samples.taken >= 5 && milliseconds_since(begin) >= seconds * 1e3;
  };
  while (!enough()) {
    // A number of runs that is asked for is timed one by one.
    const int together = runs > 0 || samples.runs == 0 ? 1 : runs_per_sample(samples.least);
    RLX_ASSIGN(const double milliseconds, milliseconds_of(together, [&] { return runner.run(); }));
    samples.runs += static_cast<std::size_t>(together);
    note(samples, stride, milliseconds);
  }
  if (allocations) {
    samples.allocations_per_run = static_cast<double>(*allocations_so_far() - *allocations) /
                                  static_cast<double>(samples.runs);
  }
  samples.others = watch.others();
  std::sort(samples.milliseconds.begin(), samples.milliseconds.end());
  return samples;
}

// The quietest of at most three samples: others' load makes times that are nobody's.
Result<Samples> quiet_sample(Runner& runner, const BenchOptions& options) {
  constexpr double quiet = 0.05;
  RLX_ASSIGN(Samples best, sample(runner, options.runs, options.seconds));
  for (int again = 0; again < 2 && options.runs == 0 && best.others >= quiet; ++again) {
    RLX_ASSIGN(Samples next, sample(runner, 0, options.seconds));
    if (next.others < best.others) best = std::move(next);
  }
  return best;
}

// The number that prints with so many digits behind the point.
double rounded(double value, int digits) {
  return std::stod(fmt::format("{:.{}f}", value, digits));
}

Json figures(const BenchOptions& options, const PreparedModel& model, const CompiledGraph& program,
             double compile_ms, double first_run_ms, double predicted_ms, const Samples& samples) {
  const CompileReport& report = program.report();
  const MemoryReport memory = program.query_memory();
  Json json{{"model", options.model},
            {"device", name_of(program.device())},
            {"threads", report.threads},
            {"precision", options.precision},
            {"kernels", report.kernels},
            {"load_ms", rounded(model.load_ms, 3)},
            {"compile_ms", rounded(compile_ms, 3)},
            {"first_run_ms", rounded(first_run_ms, 4)},
            {"min_ms", rounded(samples.least, 7)},
            {"median_ms", rounded(samples.median(), 7)},
            {"p90_ms", rounded(samples.p90(), 7)},
            {"runs", samples.runs},
            {"allocations_per_run", nullptr},
            {"weights_bytes", memory.weights_bytes},
            {"arena_bytes", memory.arena_bytes},
            {"arena_lower_bound_bytes", memory.arena_lower_bound_bytes},
            {"peak_rss_bytes", peak_rss_bytes()},
            {"predicted_ms", rounded(predicted_ms, 5)},
            {"others", rounded(samples.others, 3)}};
  if (samples.allocations_per_run) json["allocations_per_run"] = *samples.allocations_per_run;
  return json;
}

void print_figures(const Json& json, const PreparedModel& model) {
  for (const std::string& note : model.notes) fmt::print("note: {}\n", note);
  for (const auto& [key, value] : json.items()) {
    fmt::print("{}: {}\n", key, value.is_string() ? value.get<std::string>() : value.dump());
  }
}

std::string roofline_title(const Json& json) {
  return fmt::format("{}, {}, {} thread(s): {} ms",
                     std::filesystem::path(json["model"].get<std::string>()).filename().string(),
                     json["precision"].get<std::string>(), json["threads"].dump(),
                     json["median_ms"].dump());
}

/// From run to run the C library keeps what is freed, as it learns to in any program that runs a
/// model again and again: main() forbids it for what loading frees.
void keep_freed_blocks() {
#if defined(__GLIBC__)
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
#endif
}

Result<int> bench_verb(const BenchOptions& options) {
  if (!options.roofline.empty() && !is_roofline_file(options.roofline))
    return bad_input("A roofline is written as .png or .html, not as ({}).", options.roofline);
  RLX_ASSIGN(const PreparedModel model, prepare_model(options));
  Clock::time_point begin = Clock::now();
  RLX_ASSIGN(CompiledGraph program, compile_model(options, model));
  const double compile_ms = milliseconds_since(begin);
  Runner runner(program, model);
  begin = Clock::now();
  RLX_TRY(runner.first_run());
  const double first_run_ms = milliseconds_since(begin);
  keep_freed_blocks();
  RLX_ASSIGN(const Samples samples, quiet_sample(runner, options));
  RLX_ASSIGN(const Explanation plan, program.explain());
  Json json =
      figures(options, model, program, compile_ms, first_run_ms, plan.predicted_ms, samples);
  std::vector<KernelProfile> kernels;
  if (options.profile || !options.roofline.empty()) {
    RLX_ASSIGN(kernels, program.profile(named_inputs(model), std::max(options.runs, 20)));
  }
  const MachinePeaks peaks =
      kernels.empty() ? MachinePeaks() : measure_peaks(program.report().threads);
  if (!options.roofline.empty())
    RLX_TRY(write_roofline(options.roofline, roofline_title(json), kernels, peaks));
  if (options.json) {
    json["notes"] = model.notes;
    if (options.profile) json["profile"] = profile_rows(kernels, peaks);
    fmt::print("{}\n", json_text(json));
  } else {
    print_figures(json, model);
    if (options.profile) print_profile(kernels, peaks);
  }
  return exit_done;
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command = app.add_subcommand("bench", "Time a model");
  add_model_options(*command, *options);
  add_answer_option(*command, *options);
  command->add_option("--seconds", options->seconds, "Seconds to sample for (default 1)")
      ->check(CLI::PositiveNumber);
  command->add_option("--runs", options->runs, "Exactly so many timed runs")
      ->check(CLI::Range(1, 1 << 24));
  command->add_flag("--profile", options->profile, "Times of the kernels too");
  command->add_option("--roofline", options->roofline,
                      "Draw the kernels under the machine's limits: FILE.png or FILE.html");
  command->callback([options, &action] { action = [options] { return bench_verb(*options); }; });
}

}  // namespace rlx::tools
