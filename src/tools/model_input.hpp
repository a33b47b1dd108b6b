// From a model's path and options to a graph with bound dims and a value for every input.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rlx/graph.hpp"
#include "rlx/import.hpp"
#include "rlx/runtime.hpp"
#include "tools/options.hpp"

namespace rlx::tools {

/// A model file of either kind, with what it declares about its inputs.
class ModelFile {
 public:
  /// Reads what the model declares; an .rlx file whole.
  static Result<ModelFile> open(const std::filesystem::path& file);
  /// What a loaded program wants; it has no graph to load.
  static Result<ModelFile> of_saved(const CompiledGraph& program);
  const std::vector<DeclaredInput>& inputs() const { return inputs_; }
  /// Whether an .rlx file has a param of that name; those of ONNX models have their values.
  bool has_param(const std::string& name) const;
  /// The graph; an ONNX model is imported with what is known of its inputs.
  Result<Graph> load(const ImportOptions& options) const;

 private:
  std::filesystem::path file_;
  bool is_text_ = false;
  Graph text_graph_;
  std::vector<DeclaredInput> inputs_;
};

/// Values by the name of their input.
using NamedTensors = std::map<std::string, Tensor>;

/// Dims of all inputs whose dims are known now, and sentences about what was assumed.
struct BoundDims {
  std::map<std::string, Dims> input_dims;
  std::vector<std::string> notes;
  bool any_assumed = false;
};

/// What dims that nothing gives are taken as.
struct AssumedDims {
  std::int64_t size = 1;
  bool last_axis_alone = false;  ///< of the last axis; else of every axis but the first, which is 1
};

/// Dims of given values bind the symbols of their inputs; then `dims` (name or INPUT:AXIS, value)
/// do; what is left is assumed, with a note. Errors: names that the model does not have, dims that
/// contradict.
Result<BoundDims> bind_dims(std::span<const DeclaredInput> inputs, const NamedTensors& given,
                            std::span<const std::pair<std::string, std::int64_t>> dims,
                            const AssumedDims& assumed = {});

/// The values input_K of a test_data_set folder, by the order of the declared inputs.
Result<NamedTensors> read_case(const std::filesystem::path& folder,
                               std::span<const DeclaredInput> inputs);

/// The files PREFIX_0.pb, PREFIX_1.pb, ... of a folder, up to the first that is missing.
std::vector<std::filesystem::path> numbered_files(const std::filesystem::path& folder,
                                                  const std::string& prefix);

/// Everything that a run of a model needs.
struct PreparedModel {
  Graph graph;
  std::vector<std::pair<std::string, Tensor>> inputs;  ///< in the order of the graph's inputs
  std::vector<std::pair<std::string, Tensor>> params;  ///< values of params that the graph lacks
  std::map<std::string, Dims> input_dims;
  std::vector<std::string> notes;  ///< what was assumed, as sentences
  double load_ms = 0;  ///< reading and importing the model; values of inputs are not in it
  std::shared_ptr<CompiledGraph> saved;  ///< where the model is a saved program
};

Result<PreparedModel> prepare_model(const ModelOptions& options);

/// Compiles for the device of the options and sets the params.
Result<CompiledGraph> compile_model(const ModelOptions& options, const PreparedModel& model);

/// Inputs as run takes them.
std::vector<NamedInput> named_inputs(const PreparedModel& model);

}  // namespace rlx::tools
