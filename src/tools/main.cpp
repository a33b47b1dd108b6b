// The command: reads the command line, lets the verb act, turns errors into sentences and exit
// codes.
#include <fmt/format.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <exception>
#include <iterator>
#include <new>
#include <string_view>

#include "base/error.hpp"
#include "base/error_in_flight.hpp"
#include "tools/options.hpp"
#include "tools/printable.hpp"

namespace rlx::tools {
namespace {

int report(const Error& error) {
  std::fflush(stdout);
  fmt::print(stderr, "rlx: {}\n", printable(error.message));
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

struct Verb {
  std::string_view name;
  void (*add)(CLI::App&, Action&);
};
constexpr Verb verbs[] = {
    {"run", add_run},         {"check", add_check},         {"bench", add_bench},
    {"compile", add_compile}, {"inspect", add_inspect},     {"explain", add_explain},
    {"devices", add_devices}, {"calibrate", add_calibrate}, {"ops", add_ops},
    {"opt", add_opt},
};

// CLI11 would say that a verb is missing.
bool unknown_verb(int count, char** arguments) {
  if (count < 2 || arguments[1][0] == '-') return false;
  return std::none_of(std::begin(verbs), std::end(verbs),
                      [&](const Verb& verb) { return verb.name == arguments[1]; });
}

int run_command(int count, char** arguments) {
  CLI::App app("rlx: compiles and runs models of machine learning.", "rlx");
  app.require_subcommand(1);
  Action action;
  // Only the verb that is named, where one is: the options of all take memory and time.
  const std::string_view named = count < 2 ? "" : arguments[1];
  const bool is_verb = std::any_of(std::begin(verbs), std::end(verbs),
                                   [&](const Verb& verb) { return verb.name == named; });
  for (const Verb& verb : verbs) {
    if (!is_verb || verb.name == named) verb.add(app, action);
  }
  try {
    app.parse(count, arguments);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    const std::string what = unknown_verb(count, arguments)
                                 ? fmt::format("There is no verb ({}).", arguments[1])
                                 : error.what();
    fmt::print(stderr, "rlx: {}\nTry rlx --help, or rlx VERB --help.\n", printable(what));
    return exit_usage;
  }
  return act(action);
}

}  // namespace
}  // namespace rlx::tools

int main(int count, char** arguments) {
#if defined(__GLIBC__)
  // Blocks as large as weights go back to the system when they are freed. By itself the C library
  // keeps up to twice the largest of them, which is much of a small program's memory.
  mallopt(M_MMAP_THRESHOLD, 1 << 16);
#endif
  std::signal(SIGPIPE, SIG_IGN);
  const int code = rlx::tools::run_command(count, arguments);
  // Results that could not be written are no results.
  if (std::fflush(stdout) != 0 && code == 0) return rlx::tools::exit_input;
  return code;
}
