// The options of verbs that take a model, and how verbs are added to the command line.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "rlx/result.hpp"
#include "rlx/runtime.hpp"

namespace CLI {
class App;
}

namespace rlx::tools {

/// What a verb does once the command line is read: gives the exit code, or an error.
using Action = std::function<Result<int>()>;

/// Exit codes of the command (docs/errors.md).
enum ExitCode : int {
  exit_done = 0,
  exit_failed = 1,
  exit_usage = 2,
  exit_input = 3,
  exit_missing = 4
};
int exit_code_of(ErrorKind kind);

/// Options as they stand on the command line; their values are checked when it is read.
struct ModelOptions {
  std::string model;
  std::vector<std::string> inputs;  ///< NAME=FILE
  std::string case_folder;
  std::vector<std::string> dims;  ///< NAME=N or INPUT:AXIS=N
  std::string device = "auto";
  std::string threads = "auto";
  std::string precision = "f32";
  bool exact = false;
  bool flush_subnormals = false;
  std::vector<std::string> answers;  ///< QUESTION=yes or QUESTION=no
  bool json = false;

  SessionOptions session_options() const;
  CompileOptions compile_options() const;
  Device device_asked() const;
};

void add_model_options(CLI::App& app, ModelOptions& options);
/// The options among them that say how to run, for verbs that name their models otherwise.
void add_run_options(CLI::App& app, ModelOptions& options);

/// "NAME=N" as name and number; the command line has checked the form.
std::pair<std::string, std::int64_t> split_dim(const std::string& option);
/// "NAME=FILE" as name and file.
std::pair<std::string, std::string> split_input(const std::string& option);

// The verbs, each in a file of its own: they add themselves and set the action when they are
// called.
void add_run(CLI::App& app, Action& action);
void add_check(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_compile(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
void add_explain(CLI::App& app, Action& action);
void add_devices(CLI::App& app, Action& action);
void add_calibrate(CLI::App& app, Action& action);
void add_ops(CLI::App& app, Action& action);
void add_opt(CLI::App& app, Action& action);

}  // namespace rlx::tools
