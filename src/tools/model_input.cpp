// Reads models and the values of their inputs.
#include "tools/model_input.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/error.hpp"
#include "rlx/ops.hpp"
#include "tools/clock.hpp"
#include "tools/noise.hpp"
#include "tools/sound_input.hpp"

namespace rlx::tools {
namespace {

Result<Graph> read_text_graph(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (!stream) return bad_input("The file ({}) cannot be read.", file.string());
  auto graph = parse(text);
  if (!graph.ok()) return std::move(graph.error()).while_("reading " + file.string());
  return graph;
}

// FILE.wav, or FILE.wav@RATE where it is to be resampled.
Result<Tensor> read_sound(const std::string& text, const DeclaredInput& input) {
  const auto at = text.rfind(".wav@");
  if (at == std::string::npos) return read_sound_input(text, 0, input);
  const std::string digits = text.substr(at + 5);
  const bool is_rate = !digits.empty() && digits.size() < 8 &&
                       digits.find_first_not_of("0123456789") == std::string::npos;
  if (!is_rate || std::stoll(digits) == 0)
    return bad_input("The sample rate ({}) of ({}) is none.", digits, text);
  return read_sound_input(text.substr(0, at + 4), std::stoll(digits), input);
}

Result<Tensor> read_value(const std::string& text, const DeclaredInput& input) {
  const std::filesystem::path file = text;
  const std::string extension = file.extension().string();
  if (extension == ".npy") return read_npy(file);
  if (extension == ".pb") return read_tensor_proto(file);
  if (extension.starts_with(".wav")) return read_sound(text, input);
  return bad_input("The file ({}) is neither .npy nor .pb nor .wav.", file.string());
}

template <class Attributes>
std::vector<const Attributes*> leaves(const Graph& graph) {
  std::vector<const Attributes*> found;
  for (const Node& node : graph.nodes()) {
    if (const auto* attributes = node.op.as<Attributes>()) found.push_back(attributes);
  }
  return found;
}

std::string names_of(std::span<const DeclaredInput> inputs) {
  std::vector<std::string> names;
  for (const DeclaredInput& input : inputs) names.push_back(input.name);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

bool is_input(std::span<const DeclaredInput> inputs, const std::string& name) {
  return std::any_of(inputs.begin(), inputs.end(), [&](const auto& i) { return i.name == name; });
}

// Values of --case and --input; the latter win. Those of an .rlx file's params are among them.
Result<NamedTensors> given_values(const ModelOptions& options, const ModelFile& file) {
  NamedTensors given;
  if (!options.case_folder.empty()) {
    RLX_ASSIGN(given, read_case(options.case_folder, file.inputs()));
  }
  for (const std::string& option : options.inputs) {
    const auto [name, path] = split_input(option);
    if (!is_input(file.inputs(), name) && !file.has_param(name)) {
      return bad_input("The model has no input ({}); its inputs are {}.", name,
                       names_of(file.inputs()));
    }
    const auto inputs = file.inputs();
    const auto declared = std::find_if(
        inputs.begin(), inputs.end(), [&](const DeclaredInput& each) { return each.name == name; });
    auto value =
        read_value(path, declared == inputs.end() ? DeclaredInput{name, {}, {}} : *declared);
    if (!value.ok()) return std::move(value.error()).while_("reading the input (" + name + ")");
    given[name] = *std::move(value);
  }
  return given;
}

// Makes up what nothing gives. What has no dtype that rlx knows is left to the import to refuse.
Status make_up_inputs(const ModelFile& file, PreparedModel& model, NamedTensors& values) {
  std::vector<std::string> normal, ones;
  std::uint64_t seed = 1;
  for (const DeclaredInput& input : file.inputs()) {
    if (values.contains(input.name) || !input.dtype) continue;
    auto value = noise(*input.dtype, model.input_dims.at(input.name), seed++);
    if (!value.ok()) return std::move(value.error()).while_("making up input (" + input.name + ")");
    (is_float(*input.dtype) || is_complex(*input.dtype) ? normal : ones).push_back(input.name);
    values[input.name] = *std::move(value);
  }
  const auto note = [&](const std::vector<std::string>& names, std::string_view what) {
    if (names.empty()) return;
    model.notes.push_back(
        fmt::format("Inputs that nothing gives are {}: {}.", what, fmt::join(names, ", ")));
  };
  note(normal, "seeded normal noise");
  note(ones, "all 1");
  return {};
}

Status take_inputs(PreparedModel& model, const NamedTensors& values) {
  for (const op::Input* input : leaves<op::Input>(model.graph)) {
    const auto found = values.find(input->name);
    if (found == values.end()) return bad_input("The input ({}) has no value.", input->name);
    model.inputs.emplace_back(input->name, found->second);
  }
  return {};
}

using DimOptions = std::vector<std::pair<std::string, std::int64_t>>;

Status load_with(const ModelFile& file, const DimOptions& dims, const AssumedDims& assumed,
                 PreparedModel& model, NamedTensors& values, bool& any_assumed) {
  RLX_ASSIGN(BoundDims bound, bind_dims(file.inputs(), values, dims, assumed));
  any_assumed = bound.any_assumed;
  model.input_dims = std::move(bound.input_dims);
  model.notes = std::move(bound.notes);
  RLX_TRY(make_up_inputs(file, model, values));
  const auto begin = Clock::now();
  RLX_ASSIGN(model.graph, file.load({model.input_dims, values}));
  model.load_ms += milliseconds_since(begin);
  return {};
}

// Loads the graph. Where the model refuses dims of 1 that nobody gave (an image or a sound that is
// too small), larger ones are tried; the first refusal is the one that is told.
Status load_graph(const ModelFile& file, const DimOptions& dims, PreparedModel& model,
                  NamedTensors& values) {
  const NamedTensors given = values;
  bool any_assumed = false;
  Status first = load_with(file, dims, {}, model, values, any_assumed);
  if (first.ok() || !any_assumed || first.error().kind != ErrorKind::bad_input) return first;
  for (const std::int64_t size : {64, 256, 512, 2048}) {
    for (const bool last_axis_alone : {false, true}) {
      values = given;
      if (load_with(file, dims, {size, last_axis_alone}, model, values, any_assumed).ok())
        return {};
    }
  }
  return first;
}

// Params that the graph has no data for: from --input, from the .npz beside the model, else noise.
Status fill_params(PreparedModel& model, const NamedTensors& given,
                   const std::filesystem::path& file) {
  NamedTensors weights;
  std::filesystem::path archive = file;
  archive.replace_extension(".npz");
  std::error_code ignored;
  if (std::filesystem::exists(archive, ignored)) {
    RLX_ASSIGN(weights, read_npz(archive));
  }
  std::vector<std::string> made_up;
  std::uint64_t seed = 1001;
  for (const op::Param* param : leaves<op::Param>(model.graph)) {
    if (!param->data.empty()) continue;
    const NamedTensors& source = given.contains(param->name) ? given : weights;
    if (const auto found = source.find(param->name); found != source.end()) {
      model.params.emplace_back(param->name, found->second);
      continue;
    }
    auto value = noise(param->dtype, param->dims, seed++);
    if (!value.ok())
      return std::move(value.error()).while_("making up param (" + param->name + ")");
    made_up.push_back(param->name);
    model.params.emplace_back(param->name, *std::move(value));
  }
  if (!made_up.empty()) {
    model.notes.push_back(fmt::format("Params that nothing gives are seeded normal noise: {}.",
                                      fmt::join(made_up, ", ")));
  }
  return {};
}

}  // namespace

Result<ModelFile> ModelFile::open(const std::filesystem::path& file) {
  ModelFile model;
  model.file_ = file;
  model.is_text_ = file.extension() == ".rlx";
  if (model.is_text_) {
    RLX_ASSIGN(model.text_graph_, read_text_graph(file));
    for (const op::Input* input : leaves<op::Input>(model.text_graph_)) {
      model.inputs_.push_back({input->name, input->shape, input->dtype});
    }
  } else {
    RLX_ASSIGN(model.inputs_, onnx_declared_inputs(file));
  }
  return model;
}

Result<ModelFile> ModelFile::of_saved(const CompiledGraph& program) {
  ModelFile model;
  for (const IoInfo& input : program.inputs())
    model.inputs_.push_back({input.name, to_shape(input.dims), input.dtype});
  return model;
}

bool ModelFile::has_param(const std::string& name) const {
  const auto params = leaves<op::Param>(text_graph_);
  return std::any_of(params.begin(), params.end(), [&](const auto* p) { return p->name == name; });
}

Result<Graph> ModelFile::load(const ImportOptions& options) const {
  if (is_text_) return text_graph_;
  return import_onnx(file_, options);
}

std::vector<std::filesystem::path> numbered_files(const std::filesystem::path& folder,
                                                  const std::string& prefix) {
  std::vector<std::filesystem::path> files;
  std::error_code ignored;
  while (true) {
    const auto file = folder / fmt::format("{}_{}.pb", prefix, files.size());
    if (!std::filesystem::exists(file, ignored)) return files;
    files.push_back(file);
  }
}

Result<NamedTensors> read_case(const std::filesystem::path& folder,
                               std::span<const DeclaredInput> inputs) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    return bad_input("There is no folder ({}).", folder.string());
  }
  const auto files = numbered_files(folder, "input");
  if (files.size() > inputs.size()) {
    return bad_input("The folder ({}) has {} inputs; the model has {}.", folder.string(),
                     files.size(), inputs.size());
  }
  NamedTensors values;
  for (std::size_t i = 0; i < files.size(); ++i) {
    auto value = read_tensor_proto(files[i]);
    if (!value.ok()) return std::move(value.error()).while_("reading " + files[i].string());
    values[inputs[i].name] = *std::move(value);
  }
  return values;
}

namespace {

/// A saved program has its dims, code and weights: only its inputs want values.
Result<PreparedModel> prepare_saved(const ModelOptions& options) {
  const auto begin = Clock::now();
  if (!options.dims.empty())
    return error(ErrorKind::usage, "A saved program has its dims: --dim cannot change them.");
  const bool is_as_saved = options.precision == "f32" && !options.exact &&
                           !options.flush_subnormals && options.answers.empty();
  if (!is_as_saved)
    return error(
        ErrorKind::usage,
        "A saved program is compiled already: --precision, --exact, --flush-subnormals and "
        "--answer cannot change it.");
  PreparedModel model;
  Session session(options.device_asked(), options.session_options());
  RLX_ASSIGN(CompiledGraph program, session.load(options.model));
  model.saved = std::make_shared<CompiledGraph>(std::move(program));
  for (const IoInfo& input : model.saved->inputs()) model.input_dims[input.name] = input.dims;
  RLX_ASSIGN(const ModelFile file, ModelFile::of_saved(*model.saved));
  model.load_ms = milliseconds_since(begin);
  RLX_ASSIGN(NamedTensors values, given_values(options, file));
  RLX_TRY(make_up_inputs(file, model, values));
  for (const IoInfo& input : model.saved->inputs())
    model.inputs.emplace_back(input.name, values.at(input.name));
  return model;
}

}  // namespace

Result<PreparedModel> prepare_model(const ModelOptions& options) {
  if (is_saved_program(options.model)) return prepare_saved(options);
  PreparedModel model;
  const auto begin = Clock::now();
  RLX_ASSIGN(const ModelFile file, ModelFile::open(options.model));
  model.load_ms = milliseconds_since(begin);
  RLX_ASSIGN(NamedTensors values, given_values(options, file));
  std::vector<std::pair<std::string, std::int64_t>> dims;
  for (const std::string& option : options.dims) dims.push_back(split_dim(option));
  RLX_TRY(load_graph(file, dims, model, values));
  RLX_TRY(take_inputs(model, values));
  RLX_TRY(fill_params(model, values, options.model));
  return model;
}

Result<CompiledGraph> compile_model(const ModelOptions& options, const PreparedModel& model) {
  if (model.saved) return std::move(*model.saved);
  CompileOptions compile = options.compile_options();
  // An imported graph has these dims already.
  for (const op::Input* input : leaves<op::Input>(model.graph)) {
    const auto dims = model.input_dims.find(input->name);
    const bool bound = Type{input->dtype, input->shape}.is_static();
    if (!bound && dims != model.input_dims.end()) compile.input_dims.insert(*dims);
  }
  Session session(options.device_asked(), options.session_options());
  RLX_ASSIGN(CompiledGraph program, session.compile(model.graph, compile));
  for (const auto& [name, value] : model.params) {
    RLX_TRY(program.set_param_typed(name, {value.data(), value.bytes()}, value.dtype()));
  }
  return program;
}

std::vector<NamedInput> named_inputs(const PreparedModel& model) {
  std::vector<NamedInput> inputs;
  for (const auto& [name, value] : model.inputs) inputs.emplace_back(name, value);
  return inputs;
}

}  // namespace rlx::tools
