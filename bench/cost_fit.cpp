// Fits the figures of a core that no calibration measures (src/cost/overlap.hpp, and some of
// machine_model.hpp) to measured kernels: coordinate by coordinate, smaller and smaller steps.
//
// usage: cost_fit TABLE PROGRAMS [FIGURE=VALUE ...] [FIGURE? ...] [HELD_OUT ...]
//   TABLE     of bench/cost.py --table: measured times of kernels and programs
//   PROGRAMS  of bench/cost.py --programs: name, threads, file and dims of inputs
//   FIGURE=VALUE  begins with that value, and leaves it; FIGURE?: only these are fitted
//   HELD_OUT  programs whose name has one of these in it are reported and not fitted to
// Plans are those of this build's preset for this machine, as in the table; only what they are
// predicted to take changes. TABLE.fitted is the table with what the fitted figures tell.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <thread>

#include "backends/backend.hpp"
#include "base/error.hpp"
#include "cost/clock.hpp"
#include "plan/predict.hpp"
#include "rlx/import.hpp"
#include "runtime/compile.hpp"

namespace rlx {
namespace {

using cost::MachineModel;

/// A measured program and its plan.
struct Program {
  std::string name;
  int threads = 1;
  double clock_ghz = 0;  ///< when it was measured; 0: unknown
  plan::Plan plan;
  double measured_us = 0;
  std::vector<double> kernels_us;  ///< by step; 0: not measured, or too short to tell
  std::vector<double> weights;     ///< by step: kernels alike count as the root of their number
  std::vector<std::map<std::string, std::string>> rows;  ///< of the table
  bool is_held_out = false;
};

std::vector<std::string> fields_of(const std::string& line, char separator) {
  std::vector<std::string> fields;
  std::stringstream stream(line);
  for (std::string field; std::getline(stream, field, separator);) fields.push_back(field);
  return fields;
}

/// Dims of inputs: "INPUT=2x3", separated by commas.
void add_dims(CompileOptions& options, const std::string& text) {
  for (const std::string& binding : fields_of(text, ',')) {
    const std::size_t equals = binding.rfind('=');
    Dims& dims = options.input_dims[binding.substr(0, equals)];
    for (const std::string& dim : fields_of(binding.substr(equals + 1), 'x'))
      dims.push_back(std::stoll(dim));
  }
}

Result<Graph> read_graph(const std::string& file, const CompileOptions& options) {
  if (!file.ends_with(".rlx")) return import_onnx(file, {.input_dims = options.input_dims});
  std::ifstream stream(file);
  std::stringstream text;
  text << stream.rdbuf();
  return parse(text.str());
}

Result<plan::Plan> plan_of(Backend& backend, const std::string& file, const std::string& dims,
                           int threads) {
  CompileOptions options;
  options.threads = threads;
  add_dims(options, dims);
  RLX_ASSIGN(const Graph graph, read_graph(file, options));
  RLX_ASSIGN(Graph bound, specialised(graph, options, {options.dims, options.input_dims}));
  RLX_ASSIGN(const StaticProgram program, compile_static(backend, std::move(bound), options));
  return program.executable->plan();
}

using Table =
    std::map<std::pair<std::string, int>, std::vector<std::map<std::string, std::string>>>;

Table read_table(const std::string& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  if (line.ends_with('\r')) line.pop_back();
  const std::vector<std::string> names = fields_of(line, '\t');
  Table table;
  while (std::getline(stream, line)) {
    if (line.ends_with('\r')) line.pop_back();
    const std::vector<std::string> fields = fields_of(line, '\t');
    std::map<std::string, std::string> row;
    for (std::size_t i = 0; i < std::min(names.size(), fields.size()); ++i)
      row[names[i]] = fields[i];
    table[{row["program"], std::stoi(row["threads"])}].push_back(row);
  }
  return table;
}

/// False where the table has another plan.
bool take_measured(Program& program, const std::vector<std::map<std::string, std::string>>& rows) {
  constexpr double least_us = 0.02;
  std::map<std::string, int> alike;
  program.kernels_us.assign(program.plan.steps.size(), 0);
  for (const auto& row : rows) {
    const int index = std::stoi(row.at("index"));
    const double us = std::stod(row.at("measured_us"));
    if (index < 0) {
      program.measured_us = us;
      const auto ghz = row.find("clock_ghz");
      if (ghz != row.end()) program.clock_ghz = std::stod(ghz->second);
      continue;
    }
    const auto at = static_cast<std::size_t>(index);
    if (at >= program.plan.steps.size() || program.plan.steps[at].name != row.at("kind") ||
        program.plan.steps[at].threads != std::stoi(row.at("kernel_threads")))
      return false;
    if (us >= least_us) program.kernels_us[at] = us, ++alike[row.at("kind") + row.at("shape")];
  }
  program.weights.assign(program.plan.steps.size(), 0);
  for (const auto& row : rows) {
    const int index = std::stoi(row.at("index"));
    if (index < 0 || program.kernels_us[static_cast<std::size_t>(index)] == 0) continue;
    program.weights[static_cast<std::size_t>(index)] =
        1 / std::sqrt(alike[row.at("kind") + row.at("shape")]);
  }
  program.rows = rows;
  return true;
}

/// The table once more, with what the fitted model tells.
void write_table(const std::vector<Program>& programs, const std::string& file) {
  std::ofstream stream(file);
  const std::vector<std::string> names{"program",        "threads",      "index",       "kind",
                                       "kernel_threads", "predicted_us", "measured_us", "bound",
                                       "bytes",          "shape"};
  for (const std::string& name : names) stream << name << '\t';
  stream << '\n';
  for (const Program& program : programs) {
    for (auto row : program.rows) {
      const int index = std::stoi(row["index"]);
      const double ns = index < 0
                            ? program.plan.predicted_ns
                            : program.plan.steps[static_cast<std::size_t>(index)].predicted_ns;
      row["predicted_us"] = std::to_string(ns * 1e-3);
      for (const std::string& name : names) stream << row[name] << '\t';
      stream << '\n';
    }
  }
}

/// Figures that are fitted, by name.
struct Figure {
  std::string name;
  std::function<double&(MachineModel&)> of;
};

std::vector<Figure> figures() {
  std::vector<Figure> all;
  const auto add = [&](const char* name, auto member) {
    all.push_back({name, [member](MachineModel& model) -> double& { return model.*member; }});
  };
  const auto overlap = [&](const char* name, auto member) {
    all.push_back(
        {name, [member](MachineModel& model) -> double& { return model.overlap.*member; }});
  };
  const auto levels = [&](const char* name, auto member) {
    for (std::size_t level = 1; level < cost::level_count; ++level)
      all.push_back({std::string(name) + "[" + std::to_string(level) + "]",
                     [member, level](MachineModel& model) -> double& {
                       return (model.overlap.*member)[level];
                     }});
  };
  using cost::Overlap;
  levels("reads", &Overlap::reads);
  levels("writes", &Overlap::writes);
  levels("recurrent", &Overlap::recurrent);
  for (std::size_t level = 1; level < 3; ++level)
    all.push_back({"room[" + std::to_string(level) + "]",
                   [level](MachineModel& model) -> double& { return model.overlap.room[level]; }});
  overlap("gather", &Overlap::gather);
  overlap("guarded_lane", &Overlap::guarded_lane);
  levels("far_row", &Overlap::far_row);
  levels("store_with_gap", &Overlap::store_with_gap);
  overlap("beside_busiest", &Overlap::beside_busiest);
  overlap("beside_divider", &Overlap::beside_divider);
  overlap("lone_division", &Overlap::lone_division);
  overlap("sum_latency", &Overlap::sum_latency);
  overlap("short_chains", &Overlap::short_chains);
  overlap("max_steps", &Overlap::max_steps);
  overlap("max_latency", &Overlap::max_latency);
  overlap("added_product", &Overlap::added_product);
  overlap("first_pass", &Overlap::first_pass);
  overlap("window", &Overlap::window);
  overlap("window_end", &Overlap::window_end);
  overlap("far_beside", &Overlap::far_beside);
  overlap("asked_beside", &Overlap::asked_beside);
  overlap("vector_start", &Overlap::vector_start);
  overlap("fetched", &Overlap::fetched);
  overlap("taken", &Overlap::taken);
  overlap("first_fetched", &Overlap::first_fetched);
  overlap("fetched_alone", &Overlap::fetched_alone);
  overlap("fetched_beyond", &Overlap::fetched_beyond);
  overlap("torn_line", &Overlap::torn_line);
  overlap("crossing_beside", &Overlap::crossing_beside);
  overlap("fetched_back", &Overlap::fetched_back);
  overlap("taken_alone", &Overlap::taken_alone);
  overlap("taken_beside", &Overlap::taken_beside);
  overlap("taken_apart", &Overlap::taken_apart);
  overlap("fetched_together", &Overlap::fetched_together);
  overlap("fetched_by_blocks", &Overlap::fetched_by_blocks);
  overlap("power", &Overlap::power);
  overlap("stream_power", &Overlap::stream_power);
  overlap("block_power", &Overlap::block_power);
  overlap("asked_power", &Overlap::asked_power);
  overlap("near_power", &Overlap::near_power);
  overlap("row_starts", &Overlap::row_starts);
  overlap("call", &Overlap::call);
  overlap("load_across", &Overlap::load_across);
  overlap("tap_across", &Overlap::tap_across);
  overlap("turned_across", &Overlap::turned_across);
  overlap("exchange", &Overlap::exchange);
  levels("line_across", &Overlap::line_across);
  overlap("store_across", &Overlap::store_across);
  overlap("masked_store", &Overlap::masked_store);
  overlap("guard", &Overlap::guard);
  overlap("tap_guard", &Overlap::tap_guard);
  overlap("looped_guard", &Overlap::looped_guard);
  overlap("known_guard", &Overlap::known_guard);
  overlap("clipped_guard", &Overlap::clipped_guard);
  overlap("index", &Overlap::index);
  overlap("jump", &Overlap::jump);
  overlap("block_step", &Overlap::block_step);
  overlap("block_end", &Overlap::block_end);
  overlap("block_ahead", &Overlap::block_ahead);
  overlap("again_from_l3", &Overlap::again_from_l3);
  overlap("share_of_exp", &Overlap::share_of_exp);
  overlap("logistic", &Overlap::logistic);
  overlap("spills", &Overlap::spills);
  overlap("live_results", &Overlap::live_results);
  overlap("store_lane", &Overlap::store_lane);
  overlap("streams", &Overlap::streams);
  levels("further_line", &Overlap::further_line);
  overlap("crowded_line", &Overlap::crowded_line);
  levels("lone_line", &Overlap::lone_line);
  levels("turned_line", &Overlap::turned_line);
  overlap("turned_ways", &Overlap::turned_ways);
  overlap("crowded_store", &Overlap::crowded_store);
  overlap("crowded_turn", &Overlap::crowded_turn);
  all.push_back({"exp", [](MachineModel& model) -> double& {
                   return model.op_ns[static_cast<std::size_t>(ScalarOp::exp)];
                 }});
  for (std::size_t level = 0; level < 2; ++level)
    all.push_back({"other_core[" + std::to_string(level) + "]",
                   [level](MachineModel& model) -> double& { return model.other_core[level]; }});
  add("kernel", &MachineModel::kernel);
  add("item", &MachineModel::item);
  add("loop", &MachineModel::loop);
  add("row_block", &MachineModel::row_block);
  add("tap", &MachineModel::tap);
  add("join", &MachineModel::join);
  add("recurrent_step", &MachineModel::recurrent_step);
  add("head_start", &MachineModel::head_start);
  add("run", &MachineModel::run);
  add("barrier", &MachineModel::barrier);
  add("team", &MachineModel::team);
  add("member_start", &MachineModel::member_start);
  add("narrow_ns", &MachineModel::narrow_ns);
  add("forgotten", &MachineModel::forgotten);
  add("memory_all", &MachineModel::memory_all);
  add("l3_all", &MachineModel::l3_all);
  for (std::size_t level = 1; level < cost::level_count; ++level) {
    all.push_back({"code_line[" + std::to_string(level) + "]",
                   [level](MachineModel& model) -> double& { return model.code_line[level]; }});
    all.push_back({"first_bytes[" + std::to_string(level) + "]",
                   [level](MachineModel& model) -> double& { return model.first_bytes[level]; }});
  }
  return all;
}

void predict(Program& program, const MachineModel& model) {
  plan::predict_times(program.plan, cost::at_clock(model, program.clock_ghz));
}

/// What is made small: errors of logarithms, none above 1, of kernels and of whole programs.
double loss_of(std::vector<Program>& programs, const MachineModel& model) {
  constexpr double of_programs = 0.15;
  struct Sums {
    double kernels = 0, weights = 0, whole = 0, programs = 0;
  };
  std::array<Sums, 2> part;
  const auto take = [&](std::size_t worker) {
    Sums& sums = part[worker];
    for (std::size_t i = worker; i < programs.size(); i += 2) {
      Program& program = programs[i];
      if (program.is_held_out) continue;
      predict(program, model);
      for (std::size_t step = 0; step < program.plan.steps.size(); ++step) {
        if (program.weights[step] == 0) continue;
        const double q = program.plan.steps[step].predicted_ns * 1e-3 / program.kernels_us[step];
        sums.kernels += program.weights[step] * std::min(std::abs(std::log(q)), 1.0);
        sums.weights += program.weights[step];
      }
      const double q = program.plan.predicted_ns * 1e-3 / program.measured_us;
      sums.whole += std::min(std::abs(std::log(q)), 1.0);
      sums.programs += 1;
    }
  };
  std::thread other([&] { take(1); });
  take(0);
  other.join();
  const auto mean = [&](double Sums::* sum, double Sums::* count) {
    return (part[0].*sum + part[1].*sum) / (part[0].*count + part[1].*count);
  };
  return mean(&Sums::kernels, &Sums::weights) + of_programs * mean(&Sums::whole, &Sums::programs);
}

void report(std::vector<Program>& programs, const MachineModel& model, const char* title) {
  for (const bool held_out : {false, true}) {
    for (const int threads : {1, 2}) {
      std::vector<double> kernels, whole;
      for (Program& program : programs) {
        if (program.is_held_out != held_out || program.threads != threads) continue;
        predict(program, model);
        whole.push_back(std::abs(program.plan.predicted_ns * 1e-3 / program.measured_us - 1));
        for (std::size_t step = 0; step < program.plan.steps.size(); ++step) {
          if (program.weights[step] > 0)
            kernels.push_back(std::abs(
                program.plan.steps[step].predicted_ns * 1e-3 / program.kernels_us[step] - 1));
        }
      }
      if (kernels.empty()) continue;
      std::sort(kernels.begin(), kernels.end());
      std::sort(whole.begin(), whole.end());
      std::printf(
          "%s, %s, %d thread(s): %zu kernels, median %.1f %%, p90 %.1f %%; %zu programs, "
          "median %.1f %%, worst %.1f %%\n",
          title, held_out ? "held out" : "fitted", threads, kernels.size(),
          100 * kernels[kernels.size() / 2], 100 * kernels[kernels.size() * 9 / 10], whole.size(),
          100 * whole[whole.size() / 2], 100 * whole.back());
    }
  }
}

void fit(std::vector<Program>& programs, MachineModel& model, const std::vector<Figure>& all) {
  std::vector<double> begin;
  for (const Figure& figure : all) begin.push_back(figure.of(model));
  double best = loss_of(programs, model);
  for (double step = 0.3; step > 0.04; step *= 0.6) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      double& value = all[i].of(model);
      for (const double direction : {1.0, -1.0}) {
        bool moved = false;
        for (int again = 0; again < 3; ++again) {
          const double old = value;
          value = old == 0 ? step : old * std::exp(direction * step);
          const double loss = loss_of(programs, model);
          // A figure moves for more than the noise of a few kernels.
          if (loss < best - 1e-4) {
            best = loss;
            moved = true;
            continue;
          }
          value = old;
          break;
        }
        if (moved) break;
      }
    }
    std::printf("step %.2f: loss %.4f\n", step, best);
    std::fflush(stdout);
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].of(model) != begin[i])
      std::printf("%-18s %8.3g -> %.3g\n", all[i].name.c_str(), begin[i], all[i].of(model));
  }
}

/// What follows TABLE and PROGRAMS.
struct Wishes {
  std::vector<std::pair<Figure, double>> given;
  std::vector<Figure> fitted;  ///< all where none is named
  std::vector<std::string> held_out;
};

Result<Wishes> wishes_of(int count, char** arguments) {
  const std::vector<Figure> all = figures();
  Wishes wishes;
  for (int i = 0; i < count; ++i) {
    const std::string text = arguments[i];
    const std::size_t end = text.find_first_of("=?");
    if (end == std::string::npos) {
      wishes.held_out.push_back(text);
      continue;
    }
    const auto figure = std::ranges::find(all, text.substr(0, end), &Figure::name);
    if (figure == all.end()) return bad_input("There is no figure ({}).", text.substr(0, end));
    if (text[end] == '?') {
      wishes.fitted.push_back(*figure);
    } else {
      double value = 0;
      const char* const last = text.data() + text.size();
      if (std::from_chars(text.data() + end + 1, last, value).ptr != last)
        return bad_input("The figure ({}) wants a number.", text);
      wishes.given.emplace_back(*figure, value);
    }
  }
  if (!wishes.fitted.empty()) return wishes;
  std::ranges::copy_if(all, std::back_inserter(wishes.fitted), [&](const Figure& figure) {
    return std::ranges::none_of(wishes.given,
                                [&](const auto& pair) { return pair.first.name == figure.name; });
  });
  return wishes;
}

int run(int count, char** arguments) {
  if (count < 3) {
    std::fprintf(
        stderr, "usage: cost_fit TABLE PROGRAMS [FIGURE=VALUE ...] [FIGURE? ...] [HELD_OUT ...]\n");
    return 2;
  }
  const Result<Wishes> wishes = wishes_of(count - 3, arguments + 3);
  if (!wishes.ok()) {
    std::fprintf(stderr, "%s\n", wishes.error().message.c_str());
    return 2;
  }
  const Table table = read_table(arguments[1]);
  std::map<int, std::unique_ptr<Backend>> backends_by_threads;
  std::vector<Program> programs;
  std::ifstream list(arguments[2]);
  for (std::string line; std::getline(list, line);) {
    std::vector<std::string> fields = fields_of(line, '\t');
    fields.resize(4);
    const int threads = std::stoi(fields[1]);
    const auto rows = table.find({fields[0], threads});
    if (rows == table.end()) continue;
    std::unique_ptr<Backend>& backend = backends_by_threads[threads];
    if (!backend) {
      for (const BackendEntry& entry : backends())
        if (entry.device == Device::cpu) backend = entry.open({.threads = threads}).value();
    }
    Result<plan::Plan> plan = plan_of(*backend, fields[2], fields[3], threads);
    if (!plan) {
      std::printf("left out: %s: %s\n", fields[0].c_str(), plan.error().message.c_str());
      continue;
    }
    Program program;
    program.name = fields[0];
    program.threads = threads;
    program.plan = std::move(plan).value();
    for (const std::string& part : wishes->held_out)
      program.is_held_out |= fields[0].find(part) != std::string::npos;
    if (take_measured(program, rows->second)) programs.push_back(std::move(program));
    else std::printf("left out, another plan: %s, %d thread(s)\n", program.name.c_str(), threads);
  }
  const auto is_fitted = [](const Program& program) { return !program.is_held_out; };
  if (std::none_of(programs.begin(), programs.end(), is_fitted)) {
    std::fprintf(stderr, "The table %s has none of the programs of %s to fit to.\n", arguments[1],
                 arguments[2]);
    return 3;
  }
  MachineModel model = *backends_by_threads.begin()->second->model();
  report(programs, model, "before");
  for (const auto& [figure, value] : wishes->given) figure.of(model) = value;
  if (!wishes->given.empty()) report(programs, model, "given");
  fit(programs, model, wishes->fitted);
  report(programs, model, "after");
  write_table(programs, std::string(arguments[1]) + ".fitted");
  return 0;
}

}  // namespace
}  // namespace rlx

int main(int count, char** arguments) { return rlx::run(count, arguments); }
