// The command: reads the command line, lets the verb act, turns errors into sentences and exit
// codes.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <exception>
#include <new>

#include "base/error.hpp"
#include "base/error_in_flight.hpp"
#include "tools/options.hpp"

namespace rlx::tools {
namespace {

int report(const Error& error) {
  std::fflush(stdout);
  fmt::print(stderr, "rlx: {}\n", error.message);
  return exit_code_of(error.kind);
}

int act(const Action& action) {
  try {
    const Result<int> code = action();
    return code.ok() ? *code : report(code.error());
  } catch (...) {
    return report(error_in_flight());
  }
}

// CLI11 would say that a verb is missing.
bool unknown_verb(const CLI::App& app, int count, char** arguments) {
  if (count < 2 || arguments[1][0] == '-') return false;
  const auto verbs = app.get_subcommands([](const CLI::App*) { return true; });
  return std::none_of(verbs.begin(), verbs.end(),
                      [&](const CLI::App* verb) { return verb->check_name(arguments[1]); });
}

int run_command(int count, char** arguments) {
  CLI::App app("rlx: compiles and runs models of machine learning.", "rlx");
  app.require_subcommand(1);
  Action action;
  add_run(app, action);
  add_check(app, action);
  add_bench(app, action);
  add_compile(app, action);
  add_inspect(app, action);
  add_explain(app, action);
  add_devices(app, action);
  add_calibrate(app, action);
  add_ops(app, action);
  add_opt(app, action);
  try {
    app.parse(count, arguments);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    const std::string what = unknown_verb(app, count, arguments)
                                 ? fmt::format("There is no verb ({}).", arguments[1])
                                 : error.what();
    fmt::print(stderr, "rlx: {}\nTry rlx --help, or rlx VERB --help.\n", what);
    return exit_usage;
  }
  return act(action);
}

}  // namespace
}  // namespace rlx::tools

int main(int count, char** arguments) {
  std::signal(SIGPIPE, SIG_IGN);
  const int code = rlx::tools::run_command(count, arguments);
  // Results that could not be written are no results.
  if (std::fflush(stdout) != 0 && code == 0) return rlx::tools::exit_input;
  return code;
}
