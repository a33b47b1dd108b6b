// rlx inspect: what a model is made of, and its text at the stages of compilation.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "graph/op_info.hpp"
#include "tools/answers.hpp"
#include "tools/model_input.hpp"
#include "tools/printable.hpp"

namespace rlx::tools {
namespace {

using Json = nlohmann::ordered_json;

struct InspectOptions : ModelOptions {
  std::string stage;
};

struct Contents {
  std::vector<std::pair<std::string, Type>> inputs, outputs;
  std::map<std::string, int> ops;   ///< by name; leaves left out
  std::vector<std::string> splits;  ///< nodes whose dims the data tells
  int params = 0;
  std::int64_t param_elements = 0, param_bytes = 0;
};

Contents contents_of(const Graph& graph) {
  Contents contents;
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (const auto* input = node.op.as<op::Input>()) {
      contents.inputs.emplace_back(input->name, node.results[0]);
    } else if (node.op.is<op::Param>()) {
      ++contents.params;
      contents.param_elements += node.results[0].elements();
      contents.param_bytes += node.results[0].bytes();
    } else {
      ++contents.ops[std::string(node.op.name())];
    }
    if (node.op.info().traits.data_dependent) {
      contents.splits.push_back(fmt::format("%{} {} {}", i, node.op.name(), node.origin.text()));
    }
  }
  for (const GraphOutput& output : graph.outputs()) {
    contents.outputs.emplace_back(output.name, graph.type(output.value));
  }
  return contents;
}

Json types_json(const std::vector<std::pair<std::string, Type>>& values) {
  Json list = Json::array();
  for (const auto& [name, type] : values) {
    Json shape = Json::array();
    for (const Dim& dim : type.shape) {
      shape.push_back(dim.is_static() ? Json(dim.value()) : Json(dim.text()));
    }
    list.push_back({{"name", name}, {"dtype", name_of(type.dtype)}, {"shape", shape}});
  }
  return list;
}

void print_text(const Contents& contents, const std::vector<std::string>& notes) {
  for (const std::string& note : notes) fmt::print("note: {}\n", note);
  fmt::print("inputs:\n");
  for (const auto& [name, type] : contents.inputs) fmt::print("  {}  {}\n", name, type.text());
  fmt::print("outputs:\n");
  for (const auto& [name, type] : contents.outputs) fmt::print("  {}  {}\n", name, type.text());
  fmt::print("ops:\n");
  for (const auto& [name, count] : contents.ops) fmt::print("  {:>6} {}\n", count, name);
  fmt::print("parameters: {} with {} elements, {} bytes\n", contents.params,
             contents.param_elements, contents.param_bytes);
  if (!contents.splits.empty()) {
    fmt::print("the program splits where the data tells dims:\n");
    for (const std::string& split : contents.splits) fmt::print("  {}\n", split);
  }
}

void print_memory(const CompiledGraph& program) {
  const MemoryReport memory = program.query_memory();
  fmt::print("program: {} kernels in {} part(s) on {}\n", program.report().kernels,
             program.report().stages, name_of(program.device()));
  fmt::print("memory: weights {} bytes, arena {} bytes (lower bound {}), scratch {} bytes\n",
             memory.weights_bytes, memory.arena_bytes, memory.arena_lower_bound_bytes,
             memory.scratch_bytes);
}

Json contents_json(const Contents& contents, const std::vector<std::string>& notes) {
  return {{"notes", notes},
          {"inputs", types_json(contents.inputs)},
          {"outputs", types_json(contents.outputs)},
          {"ops", contents.ops},
          {"parameters",
           {{"count", contents.params},
            {"elements", contents.param_elements},
            {"bytes", contents.param_bytes}}},
          {"splits", contents.splits}};
}

Json memory_json(const CompiledGraph& program) {
  const MemoryReport memory = program.query_memory();
  return {{"weights_bytes", memory.weights_bytes},
          {"arena_bytes", memory.arena_bytes},
          {"arena_lower_bound_bytes", memory.arena_lower_bound_bytes},
          {"scratch_bytes", memory.scratch_bytes}};
}

Result<int> inspect_verb(const InspectOptions& options) {
  RLX_ASSIGN(const PreparedModel model, prepare_model(options));
  const Contents contents = contents_of(model.graph);
  // What does not compile can still be looked at.
  if (options.stage.empty() && !options.json) print_text(contents, model.notes);
  RLX_ASSIGN(const CompiledGraph program, compile_model(options, model));
  if (!options.stage.empty()) {
    RLX_ASSIGN(const std::string text, program.stage_text(options.stage));
    fmt::print("{}", text);
  } else if (options.json) {
    Json json = contents_json(contents, model.notes);
    json["device"] = name_of(program.device());
    json["kernels"] = program.report().kernels;
    json["parts"] = program.report().stages;
    json["memory"] = memory_json(program);
    fmt::print("{}\n", json_text(json));
  } else {
    print_memory(program);
  }
  return exit_done;
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command = app.add_subcommand("inspect", "Look into a model");
  add_model_options(*command, *options);
  add_answer_option(*command, *options);
  command->add_option("--stage", options->stage, "hir, mir or lir: the text at that stage")
      ->check([](const std::string& text) {
        const bool good = text == "hir" || text == "mir" || text == "lir";
        return good ? "" : fmt::format("({}) is none of hir, mir, lir.", text);
      });
  command->callback([options, &action] { action = [options] { return inspect_verb(*options); }; });
}

}  // namespace rlx::tools
