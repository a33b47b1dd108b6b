// The compile pipeline, and what it makes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/backend.hpp"
#include "base/hash.hpp"
#include "passes/passes.hpp"
#include "rlx/cost.hpp"

namespace rlx {

/// What is known of a program whose shapes are all known; its clones share it.
struct ProgramFacts {
  std::vector<IoInfo> inputs, outputs;
  std::shared_ptr<const Graph> hir_graph, mir_graph;
  CompileReport report;
  std::vector<Explanation::Claim> claims;  ///< what the device said of each composite
  std::vector<FusionQuestion> questions;   ///< that passes asked; the planner's are in the plan
};

/// Such a program, ready to run.
struct StaticProgram : ProgramFacts {
  std::unique_ptr<Executable> executable;

  Result<StaticProgram> clone() const;
};

/// The graph with only the named outputs (all where none are named), its symbols bound, and
/// everything folded that folds.
Result<Graph> specialised(const Graph& graph, const CompileOptions& options,
                          const passes::Bindings& bindings);

/// Feeds all that decides what a program is to a key, RLX_DISABLE_FUSION included: every option but
/// `missing`, which decides whether there is one.
void add_options(Hasher& key, const CompileOptions& options);

/// True where every result has static dims and no op waits for data.
bool is_static(const Graph& graph);

/// The pipeline for a graph that is_static: HIR -> MIR -> LIR -> code.
Result<StaticProgram> compile_static(Backend& backend, Graph graph, const CompileOptions& options,
                                     const SavedParts* saved = nullptr);

/// Inputs and outputs as a user sees them.
std::vector<IoInfo> input_infos(const Graph& graph);
std::vector<IoInfo> output_infos(const Graph& graph);

}  // namespace rlx
