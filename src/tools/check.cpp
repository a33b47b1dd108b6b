// rlx check: judges cases of the ONNX backend layout (model.onnx, test_data_set_K with inputs and
// outputs).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/cpu_set.hpp"
#include "base/error.hpp"
#include "tools/model_input.hpp"
#include "tools/printable.hpp"
#include "tools/values.hpp"
#include "tools/worker_pool.hpp"

namespace rlx::tools {
namespace {

struct CheckOptions : ModelOptions {
  std::vector<std::string> folders;
  Tolerance tolerance;
  int jobs = 0;
  double timeout_s = 120;
};

Verdict verdict_of(const Error& error) {
  return {error.kind == ErrorKind::unsupported ? "UNSUPPORTED" : "ERROR", error.message};
}

Result<std::vector<std::filesystem::path>> data_sets(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> sets;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("test_data_set_")) sets.push_back(entry.path());
  }
  if (error)
    return bad_input("The folder ({}) cannot be read: {}.", folder.string(), error.message());
  if (sets.empty()) return bad_input("The folder ({}) has no test_data_set_0.", folder.string());
  // By length first: 10 comes after 9.
  std::sort(sets.begin(), sets.end(), [](const auto& a, const auto& b) {
    const std::string x = a.string(), y = b.string();
    return std::pair(x.size(), x) < std::pair(y.size(), y);
  });
  return sets;
}

// Judges case after case; programs are kept only as long as the data sets of one case share their
// dims.
class CaseJudge {
 public:
  explicit CaseJudge(const CheckOptions& options) : options_(options) {}

  Verdict judge(const std::string& folder) {
    const auto wrong = wrong_of(folder);
    if (!wrong.ok()) return verdict_of(wrong.error());
    return wrong->empty() ? Verdict{"PASS", ""} : Verdict{"FAIL", *wrong};
  }

 private:
  struct Compiled {
    ImportOptions known;
    CompiledGraph program;
  };

  // The first thing wrong, or an empty text.
  Result<std::string> wrong_of(const std::filesystem::path& folder) {
    const auto path = folder / "model.onnx";
    RLX_ASSIGN(const ModelFile file, ModelFile::open(path));
    RLX_ASSIGN(const auto sets, data_sets(folder));
    std::optional<Compiled> compiled;
    for (const auto& set : sets) {
      RLX_ASSIGN(const NamedTensors given, given_values(file, set));
      RLX_ASSIGN(const BoundDims bound, bind_dims(file.inputs(), given, {}));
      const ImportOptions known{bound.input_dims, given};
      if (!compiled || !same(compiled->known, known)) {
        RLX_ASSIGN(CompiledGraph program, compile(file, known));
        compiled.emplace(Compiled{known, std::move(program)});
      }
      RLX_ASSIGN(std::string wrong, wrong_of_set(compiled->program, given, set));
      if (!wrong.empty()) return set.filename().string() + ": " + wrong;
    }
    return std::string();
  }

  // Values that are no tensors (sequences, optionals, strings) cannot be read: the import tells all
  // that is missing.
  Result<NamedTensors> given_values(const ModelFile& file, const std::filesystem::path& set) {
    auto given = read_case(set, file.inputs());
    if (given.ok()) return given;
    const auto graph = file.load({});
    const bool missing = !graph.ok() && graph.error().kind == ErrorKind::unsupported;
    return missing ? Result<NamedTensors>(graph.error()) : given;
  }

  // Whether a program that was made for one serves the other: dims, and values that the import may
  // have fixed.
  static bool same(const ImportOptions& a, const ImportOptions& b) {
    constexpr std::int64_t looked_at = 1024;
    return a.input_dims == b.input_dims &&
           std::equal(a.input_values.begin(), a.input_values.end(), b.input_values.begin(),
                      b.input_values.end(), [](const auto& x, const auto& y) {
                        const Tensor &u = x.second, &v = y.second;
                        return x.first == y.first && u.dtype() == v.dtype() &&
                               (u.elements() > looked_at ||
                                std::equal(u.data(), u.data() + u.bytes(), v.data()));
                      });
  }

  Result<CompiledGraph> compile(const ModelFile& file, const ImportOptions& known) {
    PreparedModel model;
    RLX_ASSIGN(model.graph, file.load(known));
    model.input_dims = known.input_dims;
    return compile_model(options_, model);
  }

  Result<std::string> wrong_of_set(CompiledGraph& program, const NamedTensors& given,
                                   const std::filesystem::path& set) {
    std::vector<NamedInput> inputs;
    for (const auto& [name, value] : given) inputs.emplace_back(name, value);
    RLX_ASSIGN(const Outputs outputs, program.run_typed(inputs));
    const auto wanted = numbered_files(set, "output");
    if (wanted.size() != outputs.size()) {
      return fmt::format("{} outputs instead of {}", outputs.size(), wanted.size());
    }
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      RLX_ASSIGN(const Tensor value, read_tensor_proto(wanted[i]));
      if (const auto wrong = difference(outputs[i], value, options_.tolerance)) {
        return fmt::format("output {} ({}) {}", i, outputs.items[i].first, *wrong);
      }
    }
    return std::string();
  }

  const CheckOptions& options_;
};

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

Result<int> check_verb(CheckOptions options) {
  const PoolOptions pool{options.jobs > 0 ? options.jobs : usable_cores(), options.timeout_s};
  // Processes share the cores: each keeps to one, unless told otherwise.
  if (pool.jobs > 1 && options.threads == "auto") options.threads = "1";
  int passed = 0, failed = 0, skipped = 0;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  const auto report = [&](std::size_t index, const Verdict& verdict) {
    ++(verdict.word == "PASS" ? passed : verdict.word == "UNSUPPORTED" ? skipped : failed);
    const std::string& folder = options.folders[index];
    const std::string reason = one_line(verdict.reason);
    if (options.json) {
      list.push_back({{"verdict", verdict.word}, {"case", folder}, {"reason", reason}});
    } else {
      fmt::print("{} {}{}{}\n", verdict.word, folder, reason.empty() ? "" : " ", reason);
      std::fflush(stdout);
    }
  };
  CaseJudge judge(options);
  judge_isolated(
      options.folders.size(), pool,
      [&](std::size_t index) { return judge.judge(options.folders[index]); }, report);
  if (options.json) {
    const nlohmann::ordered_json document{
        {"cases", list}, {"passed", passed}, {"failed", failed}, {"skipped", skipped}};
    fmt::print("{}\n", json_text(document));
  } else {
    fmt::print("{} passed, {} failed, {} skipped\n", passed, failed, skipped);
  }
  return failed ? exit_failed : exit_done;
}

}  // namespace

void add_check(CLI::App& app, Action& action) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* command = app.add_subcommand("check", "Judge cases of the ONNX backend layout");
  command->add_option("CASE_DIR", options->folders, "Folders with model.onnx and test_data_set_K")
      ->required();
  command->add_option("--rtol", options->tolerance.rtol, "Relative tolerance (default 1e-3)")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--atol", options->tolerance.atol, "Absolute tolerance (default 1e-5)")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--jobs", options->jobs, "Processes at a time (default: the cores)")
      ->check(CLI::Range(1, 256));
  command->add_option("--timeout", options->timeout_s, "Seconds for each case (default 120)")
      ->check(CLI::PositiveNumber);
  add_run_options(*command, *options);
  command->add_flag("--json", options->json, "Results as JSON");
  command->callback([options, &action] { action = [options] { return check_verb(*options); }; });
}

}  // namespace rlx::tools
