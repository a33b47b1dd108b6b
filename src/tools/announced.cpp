// Verbs of the contract that are not there yet.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "tools/options.hpp"

namespace rlx::tools {

void add_announced(CLI::App& app, Action& action) {
  for (const char* verb : {"compile"}) {
    CLI::App* command = app.add_subcommand(verb, "Not available yet (exit code 4)");
    command->allow_extras();
    command->callback([&action, verb] {
      action = [verb]() -> Result<int> {
        return Error{ErrorKind::not_available,
                     fmt::format("The verb ({}) is not available yet.", verb)};
      };
    });
  }
}

}  // namespace rlx::tools
