// rlx compile: compiles a model and saves the program.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/error.hpp"
#include "tools/model_input.hpp"

namespace rlx::tools {
namespace {

Result<int> compile_verb(const ModelOptions& options, const std::string& file) {
  if (is_saved_program(options.model))
    return bad_input("The model ({}) is a saved program already.", options.model);
  RLX_ASSIGN(const PreparedModel model, prepare_model(options));
  RLX_ASSIGN(const CompiledGraph program, compile_model(options, model));
  RLX_TRY(program.save(file));
  for (const std::string& note : model.notes) {
    // Values of inputs matter for the dims that they give alone.
    if (!note.starts_with("Inputs that nothing gives")) fmt::print("note: {}\n", note);
  }
  const MemoryReport memory = program.query_memory();
  fmt::print("saved: {}\nkernels: {}\nweights_bytes: {}\narena_bytes: {}\n", file,
             program.report().kernels, memory.weights_bytes, memory.arena_bytes);
  return exit_done;
}

}  // namespace

void add_compile(CLI::App& app, Action& action) {
  struct Options : ModelOptions {
    std::string file;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("compile", "Compile a model and save the program");
  add_model_options(*command, *options);
  command->add_option("-o,--output", options->file, "File for the program")->required();
  command->callback(
      [options, &action] { action = [options] { return compile_verb(*options, options->file); }; });
}

}  // namespace rlx::tools
