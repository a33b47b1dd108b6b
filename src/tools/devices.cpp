// rlx devices: what is there, and why not.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "rlx/runtime.hpp"
#include "tools/options.hpp"
#include "tools/printable.hpp"

namespace rlx::tools {
namespace {

Result<int> devices_verb(bool json) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const DeviceInfo& info : devices()) {
    if (json) {
      list.push_back({{"device", name_of(info.device)},
                      {"name", info.display_name},
                      {"available", info.available},
                      {"reason", info.reason}});
    } else {
      fmt::print("{:<6} {}\n", name_of(info.device),
                 info.available ? info.display_name : "not available: " + info.reason);
    }
  }
  if (json) fmt::print("{}\n", json_text(list));
  return exit_done;
}

}  // namespace

void add_devices(CLI::App& app, Action& action) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("devices", "What devices are there, and why not");
  command->add_flag("--json", *json, "Results as JSON");
  command->callback([json, &action] { action = [json] { return devices_verb(*json); }; });
}

}  // namespace rlx::tools
