// What a CompiledGraph holds: one bound program, or programs made on first sight of a shape.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rlx/runtime.hpp"
#include "runtime/compile.hpp"
#include "runtime/session.hpp"
#include "runtime/stages.hpp"

namespace rlx {

struct CompiledGraph::Impl {
  std::shared_ptr<Session::Impl> session;  ///< keeps the backend alive
  Backend* backend = nullptr;
  std::shared_ptr<const Graph> graph;  ///< with the asked outputs and the symbols that were bound
  CompileOptions options;
  std::vector<IoInfo> inputs, outputs;
  std::optional<StaticProgram> bound;  ///< where all shapes are known

  /// Programs of shapes seen by run, most recently used first.
  struct Specialisation {
    std::vector<Dims> dims;
    std::unique_ptr<Stage> stage;
  };
  std::list<Specialisation> specialisations;
  std::map<std::string, Tensor> params;  ///< set by the user, for programs made later
  Stage* last_stage = nullptr;

  // reused by every run
  std::vector<const void*> slots;
  std::vector<Tensor> converted;
  std::vector<ArenaSlice> slices;
  std::vector<Dims> output_dims;
  std::vector<TensorView> views;

  static Result<std::unique_ptr<Impl>> make(std::shared_ptr<Session::Impl> session,
                                            Backend& backend, const Graph& graph,
                                            const CompileOptions& options);

  /// Prepares what bound runs reuse.
  void prepare();
  /// Fills `slots` in declaration order; `typed` accepts only the declared dtypes. `dims` gets the
  /// dims of each input.
  Status match(std::span<const NamedInput> named, bool typed, std::vector<Dims>* dims);
  Status match_one(const NamedInput& input, bool typed, std::vector<Dims>* dims,
                   std::vector<bool>& given);
  Result<Outputs> run(std::span<const NamedInput> named, bool typed);
  Result<Stage*> stage_for(const std::vector<Dims>& dims);
  Result<StaticProgram*> need_bound();
  Tensor read(std::size_t output) const;
};

}  // namespace rlx
