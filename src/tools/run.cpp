// rlx run: compiles a model, runs it once, prints and writes its outputs.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "tools/model_input.hpp"
#include "tools/printable.hpp"
#include "tools/values.hpp"

namespace rlx::tools {
namespace {

using Json = nlohmann::ordered_json;

// output_K.npy for each, and outputs.json that lists them.
Status write_outputs(const Outputs& outputs, const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    return bad_input("The folder ({}) cannot be made: {}.", folder.string(), error.message());
  Json list = Json::array();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto& [name, tensor] = outputs.items[i];
    const std::string file = fmt::format("output_{}.npy", i);
    RLX_TRY(write_npy(folder / file, tensor));
    list.push_back({{"name", name},
                    {"dtype", name_of(tensor.dtype())},
                    {"shape", tensor.dims()},
                    {"file", file}});
  }
  std::ofstream stream(folder / "outputs.json");
  stream << json_text(list) << '\n';
  if (!stream.flush()) return bad_input("The folder ({}) cannot be written to.", folder.string());
  return {};
}

void print_outputs(const Outputs& outputs, const PreparedModel& model, const CompiledGraph& program,
                   bool json) {
  if (!json) {
    for (const std::string& note : model.notes) fmt::print("note: {}\n", note);
    fmt::print("device: {}\n", name_of(program.device()));
    for (const auto& [name, tensor] : outputs.items) {
      fmt::print("{}  {}  {}\n", name, type_text(tensor), summary(tensor));
    }
    return;
  }
  Json document{{"device", name_of(program.device())}, {"notes", model.notes}};
  document["outputs"] = Json::array();
  for (const auto& [name, tensor] : outputs.items) {
    document["outputs"].push_back({{"name", name},
                                   {"dtype", name_of(tensor.dtype())},
                                   {"shape", tensor.dims()},
                                   {"summary", summary(tensor)}});
  }
  fmt::print("{}\n", json_text(document));
}

Result<int> run_verb(const ModelOptions& options, const std::string& folder) {
  RLX_ASSIGN(const PreparedModel model, prepare_model(options));
  RLX_ASSIGN(CompiledGraph program, compile_model(options, model));
  RLX_ASSIGN(const Outputs outputs, program.run(named_inputs(model)));
  print_outputs(outputs, model, program, options.json);
  if (!folder.empty()) RLX_TRY(write_outputs(outputs, folder));
  return exit_done;
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
  struct Options : ModelOptions {
    std::string out;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("run", "Compile a model and run it once");
  add_model_options(*command, *options);
  command->add_option("--out", options->out, "Folder for output_K.npy and outputs.json");
  command->callback(
      [options, &action] { action = [options] { return run_verb(*options, options->out); }; });
}

}  // namespace rlx::tools
