// rlx opt: runs single passes on a graph in the text form and prints the result.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <iterator>

#include "base/error.hpp"
#include "passes/passes.hpp"
#include "rlx/graph.hpp"
#include "tools/options.hpp"

namespace rlx::tools {
namespace {

struct OptOptions {
  std::string file;
  std::vector<std::string> passes;
};

Result<int> opt_verb(const OptOptions& options) {
  std::ifstream stream(options.file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (!stream) return bad_input("The file ({}) cannot be read.", options.file);
  auto graph = parse(text);
  if (!graph.ok()) return std::move(graph.error()).while_("reading " + options.file);
  RLX_ASSIGN(const Graph changed, passes::run_passes(*std::move(graph), options.passes));
  fmt::print("{}", print(changed));
  return exit_done;
}

std::string known_passes() {
  std::string names;
  for (const passes::Pass& pass : passes::all_passes()) {
    if (!names.empty()) names += ", ";
    names += pass.name;
  }
  return names;
}

std::string check_pass(const std::string& name) {
  for (const passes::Pass& pass : passes::all_passes()) {
    if (pass.name == name) return "";
  }
  return fmt::format("There is no pass ({}); there are {}.", name, known_passes());
}

}  // namespace

void add_opt(CLI::App& app, Action& action) {
  auto options = std::make_shared<OptOptions>();
  CLI::App* command = app.add_subcommand("opt", "Run passes on a graph in the text form");
  command->add_option("FILE", options->file, "A graph in the text form (.rlx)")->required();
  command->add_option("--passes", options->passes, "Names between commas, run in this order")
      ->delimiter(',')
      ->required()
      ->check(check_pass);
  command->callback([options, &action] { action = [options] { return opt_verb(*options); }; });
}

}  // namespace rlx::tools
