// The compile pipeline: one readable page.
#include "runtime/compile.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "base/error.hpp"
#include "cost/composite_gate.hpp"
#include "cost/product_cost.hpp"
#include "graph/byte_weight.hpp"
#include "graph/op_info.hpp"
#include "passes/few_channels.hpp"
#include "passes/joined_slices.hpp"
#include "passes/maps_of_parts.hpp"
#include "passes/merge_products.hpp"
#include "passes/precision.hpp"
#include "passes/quantised.hpp"
#include "passes/recast_norms.hpp"
#include "passes/shared_parts.hpp"
#include "passes/split_batches.hpp"
#include "passes/sub_pixel.hpp"
#include "passes/sums_of_convolutions.hpp"
#include "passes/sums_of_rows.hpp"
#include "passes/thin_groups.hpp"
#include "passes/wide_halves.hpp"
#include "plan/regions.hpp"
#include "rlx/ops.hpp"
#include "rlx/signal.hpp"
#include "runtime/form_choice.hpp"

namespace rlx {
namespace {

/// Applies a pass to the graph and to every graph inside it (branches and loop bodies), inner ones
/// first.
template <class Pass>
Result<Graph> everywhere(Graph graph, const Pass& pass) {
  RLX_ASSIGN(Graph inner, passes::map_subgraphs(std::move(graph), [&](const Graph& subgraph) {
               return everywhere(subgraph, pass);
             }));
  return pass(std::move(inner));
}

/// Names the outputs to keep, in the order in which they were asked for.
Result<Graph> with_outputs(const Graph& graph, const std::vector<std::string>& names) {
  Graph result = graph;
  if (names.empty()) return result;
  std::vector<GraphOutput> kept;
  for (const std::string& name : names) {
    const auto& all = graph.outputs();
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const GraphOutput& output) { return output.name == name; });
    if (found == all.end()) {
      std::string known;
      for (const GraphOutput& output : all) known += (known.empty() ? "" : ", ") + output.name;
      return bad_input("The graph has no output ({}); it has: {}.", name, known);
    }
    kept.push_back(*found);
  }
  result.set_outputs(std::move(kept));
  return result;
}

bool fusion_is_disabled(const CompileOptions& options) {
  const char* variable = std::getenv("RLX_DISABLE_FUSION");
  return options.disable_fusion || (variable && std::string_view(variable) == "1");
}

}  // namespace

void add_options(Hasher& key, const CompileOptions& options) {
  for (const auto& [name, value] : options.dims)
    key.add_field("dim").add_field(name).add_field(static_cast<std::uint64_t>(value));
  for (const auto& [name, dims] : options.input_dims)
    key.add_field("input").add_field(name).add_field(fmt::format("{}", fmt::join(dims, ",")));
  for (const std::string& output : options.outputs) key.add_field("output").add_field(output);
  for (const CompileOptions::Feed& feed : options.feeds)
    key.add_field("feed").add_field(feed.output).add_field(feed.input);
  for (const auto& [question, answer] : options.answers)
    key.add_field("answer").add_field(question).add_field(answer ? "yes" : "no");
  key.add_field(fmt::format("{} {} {} {} {}", name_of(options.precision), options.exact,
                            options.flush_subnormals, options.threads,
                            fusion_is_disabled(options)));
}

namespace {

/// How many workers runs have, at most.
int threads_of(const Backend& backend, const CompileOptions& options) {
  return std::max(1, options.threads > 0 ? options.threads : backend.lanes());
}

passes::PrecisionPolicy precision_policy(const Backend& backend, const CompileOptions& options) {
  const cost::MachineModel* model = backend.model();
  if (!model || options.precision == Precision::f32) return {};
  const int threads = threads_of(backend, options);
  return {options.precision, model->machine.bf16_dot, model->machine.vnni,
          [model, threads](const ProductShape& shape, DType a, DType b, bool weight) {
            return cost::product_ns(shape, a, b, weight, *model, threads);
          }};
}

/// Composites whose kernel is a fusion that the gate decides.
bool may_be_taken_apart(const Op& op) { return op.is<op::BandLevels>() || op.is<op::MeanPower>(); }

/// The gate that the planner asks, too: with the figures of a calibration where there is one.
IoFusionGate gate_of(const Backend& backend, const CompileOptions& options) {
  const cost::MachineModel* model = backend.model();
  if (!model) return IoFusionGate::preset(backend.device());
  return plan::fusion_policy(*model, threads_of(backend, options), true).gate;
}

/// Profiles of the plans of graphs by themselves.
cost::Profiler planned_by(const Backend& backend, int threads) {
  return [&backend, threads](const Graph& graph) -> Result<GraphIoProfile> {
    RLX_ASSIGN(Graph lowered, passes::lower(graph, [&](const Graph& within, const Node& node) {
                 return backend.claim(within, node).taken;
               }));
    RLX_ASSIGN(lowered, passes::canonicalise(std::move(lowered)));
    RLX_ASSIGN(lowered, passes::simplify(std::move(lowered)));
    RLX_ASSIGN(lowered, passes::merge_equal(std::move(lowered)));
    RLX_ASSIGN(lowered, passes::drop_dead(std::move(lowered)));
    RLX_ASSIGN(const Backend::Prospect alone, backend.prospect(lowered, threads, {}));
    return alone.io;
  };
}

IoInfo io_info(std::string name, const Type& type) {
  IoInfo info{std::move(name), type.dtype, {}, {}};
  for (const Dim& dim : type.shape) {
    info.dims.push_back(dim.value());
    info.dim_names.push_back(dim.text());
  }
  return info;
}

}  // namespace

std::vector<IoInfo> input_infos(const Graph& graph) {
  std::vector<IoInfo> infos;
  for (const Node& node : graph.nodes()) {
    if (const auto* input = node.op.as<op::Input>())
      infos.push_back(io_info(input->name, node.results[0]));
  }
  return infos;
}

std::vector<IoInfo> output_infos(const Graph& graph) {
  std::vector<IoInfo> infos;
  for (const GraphOutput& output : graph.outputs())
    infos.push_back(io_info(output.name, graph.type(output.value)));
  return infos;
}

bool is_static(const Graph& graph) {
  return std::all_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& node) {
    const OpTraits& traits = node.op.info().traits;
    // A loop whose results keep their dims waits for no data, however often it runs.
    return (!traits.data_dependent || traits.control_flow) && !traits.shape_operands &&
           std::all_of(node.results.begin(), node.results.end(),
                       [](const Type& type) { return type.is_static(); });
  });
}

Result<Graph> specialised(const Graph& graph, const CompileOptions& options,
                          const passes::Bindings& bindings) {
  RLX_ASSIGN(Graph hir, with_outputs(graph, options.outputs));
  RLX_TRY(verify(hir));
  RLX_ASSIGN(hir, passes::specialise(hir, bindings));
  RLX_ASSIGN(hir, passes::simplify(std::move(hir)));
  return passes::drop_dead(std::move(hir));
}

namespace {

/// One compilation: what its steps share, and where they say what they decided.
struct Lowering {
  Backend& backend;
  const CompileOptions& options;
  const bool fusion;
  const IoFusionGate gate;
  FormChoice forms;
  StaticProgram& program;

  Result<Graph> primitives(Graph result);
  Result<Graph> region_forms(Graph result, const passes::PrecisionPolicy& policy);
  /// Convolutions in the forms that are the fastest: layer by layer, or in the whole program.
  Result<Graph> in_forms(const Graph& graph, const passes::PrecisionPolicy& policy);
  /// Products as regions want them, by what the gate and the policy say; notes why.
  Result<Graph> joined(Graph result, const passes::PrecisionPolicy& policy,
                       std::vector<FusionQuestion>& questions,
                       std::vector<Explanation::Claim>& claims) const;

  /// Are results free to differ from the ops' own order of operations?
  bool reorders() const { return fusion && !options.exact; }
};

/// HIR -> MIR: composites that the device does not take become primitives.
Result<Graph> Lowering::primitives(Graph result) {
  if (backend.model()) {
    if (!options.exact) {
      RLX_ASSIGN(result, passes::wide_halves(std::move(result), f16, &program.claims));
      if (!backend.model()->machine.bf16_dot) {
        RLX_ASSIGN(result, passes::wide_halves(std::move(result), bf16, &program.claims));
      }
      RLX_ASSIGN(result, passes::quantised(std::move(result)));
    }
    RLX_ASSIGN(result, passes::byte_tables(std::move(result)));
    RLX_ASSIGN(result,
               passes::byte_operands(result, backend.model()->machine.vnni, &program.claims));
  }
  if (reorders()) {
    RLX_ASSIGN(result, passes::recognise(std::move(result)));
  }
  // Many rows are faster with weights in the precision that the rows are rounded to.
  const bool narrow = options.precision == Precision::bf16 || options.precision == Precision::int8;
  return passes::lower(std::move(result), [&](const Graph& within, const Node& node) {
    if (node.op.is<op::Dequantize>() && backend.model() && is_read_as_bytes(within, node, narrow)) {
      program.claims.push_back({std::string(node.op.name()), node.origin, true,
                                "products read its numbers as they are stored"});
      return true;
    }
    Claim claim = backend.claim(within, node);
    if (claim.taken && may_be_taken_apart(node.op)) {
      program.questions.push_back(cost::ask_composite(
          within, node, gate, planned_by(backend, options.threads), options.answers));
      if (!program.questions.back().fused) claim = {false, "the gate: its body pays"};
    }
    program.claims.push_back({std::string(node.op.name()), node.origin, claim.taken, claim.reason});
    return claim.taken;
  });
}

/// The forms of primitives that regions want, of which the fastest.
Result<Graph> Lowering::region_forms(Graph result, const passes::PrecisionPolicy& policy) {
  const passes::ChooseForms fastest = [&](const Graph& within,
                                          std::span<const passes::FormQuestion> asked) {
    return forms.fastest(within, asked);
  };
  RLX_ASSIGN(result, passes::transforms_as_products(std::move(result)));
  RLX_ASSIGN(result, passes::joined_slices(std::move(result), fusion ? fastest : nullptr));
  RLX_ASSIGN(result, passes::sub_pixel(std::move(result), fusion ? fastest : nullptr));
  RLX_ASSIGN(result, passes::integer_products(std::move(result)));
  RLX_ASSIGN(result, passes::padded_windows(std::move(result)));
  RLX_ASSIGN(result, passes::canonicalise(std::move(result)));
  RLX_ASSIGN(result, passes::nest_concats(std::move(result)));
  if (reorders()) {
    RLX_ASSIGN(result, passes::sums_of_convolutions(std::move(result)));
    RLX_ASSIGN(result, passes::shared_parts(std::move(result)));
    RLX_ASSIGN(result, passes::single_columns(std::move(result)));
  }
  if (reorders() && backend.model()) {
    RLX_ASSIGN(result, passes::thin_groups(std::move(result), backend.model()->machine.lanes(4)));
  }
  RLX_ASSIGN(result, passes::channels_last(result));
  RLX_ASSIGN(result, passes::known_gathers(std::move(result)));
  if (reorders()) {
    const int workers = backend.model() ? threads_of(backend, options) : 1;
    RLX_ASSIGN(result, passes::recast_norms(std::move(result), workers));
    RLX_ASSIGN(result, passes::sums_of_rows(std::move(result), workers));
    RLX_ASSIGN(result, passes::few_channels(std::move(result), fastest));
    RLX_ASSIGN(result, passes::line_points(std::move(result), fastest));
    RLX_ASSIGN(result, in_forms(result, policy));
  }
  return joined(std::move(result), policy, program.questions, program.claims);
}

Result<Graph> Lowering::in_forms(const Graph& graph, const passes::PrecisionPolicy& policy) {
  using Questions = std::span<const passes::FormQuestion>;
  const auto predict = [&](const FormChoice::Choice& choice) -> Result<double> {
    std::vector<FusionQuestion> questions;
    std::vector<Explanation::Claim> claims;
    RLX_ASSIGN(Graph whole,
               passes::winograd(graph, [&](const Graph&, Questions) { return choice; }));
    RLX_ASSIGN(whole, joined(std::move(whole), policy, questions, claims));
    RLX_ASSIGN(const Backend::Prospect planned, backend.prospect(whole, options.threads, {}));
    return planned.ns;
  };
  return passes::winograd(graph, [&](const Graph& within, Questions asked) {
    return forms.fastest(within, asked, predict);
  });
}

Result<Graph> Lowering::joined(Graph result, const passes::PrecisionPolicy& policy,
                               std::vector<FusionQuestion>& questions,
                               std::vector<Explanation::Claim>& claims) const {
  RLX_ASSIGN(result, passes::unflatten_products(std::move(result)));
  if (fusion) {
    RLX_ASSIGN(result, passes::maps_of_parts(std::move(result), gate, &questions, options.answers));
    RLX_ASSIGN(result, passes::split_batches(std::move(result), gate, &questions, options.answers));
  }
  RLX_ASSIGN(result, passes::simplify(std::move(result)));
  RLX_ASSIGN(result, passes::merge_equal(std::move(result)));
  if (fusion) {
    RLX_ASSIGN(result,
               passes::stack_products(std::move(result), gate, &questions, options.answers));
    RLX_ASSIGN(result,
               passes::merge_products(std::move(result), gate, &questions, options.answers));
  }
  if (policy.asked != Precision::f32) {
    RLX_ASSIGN(result, passes::narrow_products(result, policy, claims));
  }
  if (backend.model()) {
    RLX_ASSIGN(result, passes::casts_of_products(std::move(result)));
  }
  return passes::drop_dead(std::move(result));
}

}  // namespace

Result<StaticProgram> compile_static(Backend& backend, Graph hir, const CompileOptions& options,
                                     const SavedParts* saved) {
  const auto start = std::chrono::steady_clock::now();
  if (options.precision != Precision::f32 && !backend.model()) {
    return not_available("The precision ({}) is not available on {}; f32 is.",
                         name_of(options.precision), name_of(backend.device()));
  }
  StaticProgram program;
  program.inputs = input_infos(hir);
  program.outputs = output_infos(hir);

  const passes::PrecisionPolicy policy = precision_policy(backend, options);
  Lowering lowering{backend,
                    options,
                    !fusion_is_disabled(options),
                    gate_of(backend, options),
                    FormChoice(backend, options.threads, gate_of(backend, options), options.answers,
                               hir, policy, !options.exact),
                    program};
  RLX_ASSIGN(Graph mir, passes::loop_forms(hir));
  RLX_ASSIGN(mir, everywhere(std::move(mir),
                             [&](Graph graph) { return lowering.primitives(std::move(graph)); }));
  // Bodies of recurrent layers are loops too.
  RLX_ASSIGN(mir, passes::loop_forms(std::move(mir)));
  RLX_ASSIGN(mir, everywhere(std::move(mir), [&](Graph graph) {
               return lowering.region_forms(std::move(graph), policy);
             }));
  FormChoice& forms = lowering.forms;
  forms.claim_memory();
  program.claims.insert(program.claims.end(), forms.claims.begin(), forms.claims.end());
  program.questions.insert(program.questions.end(), forms.questions.begin(), forms.questions.end());
#ifndef NDEBUG
  RLX_TRY(verify(mir));
#endif

  // MIR -> LIR -> code: branches side by side, then regions, memory, kernels.
  RLX_ASSIGN(plan::FlatGraph flat, plan::flatten(mir));
  const CompileRequest request{std::make_shared<const plan::FlatGraph>(std::move(flat)),
                               options.threads,
                               lowering.fusion,
                               options.exact,
                               options.flush_subnormals,
                               options.answers,
                               &program.report,
                               saved};
  RLX_ASSIGN(program.executable, backend.compile(request));
  program.hir_graph = std::make_shared<const Graph>(std::move(hir));
  program.mir_graph = std::make_shared<const Graph>(std::move(mir));
  program.report.compile_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return program;
}

Result<StaticProgram> StaticProgram::clone() const {
  StaticProgram copy{*this, nullptr};
  RLX_ASSIGN(copy.executable, executable->clone());
  return copy;
}

}  // namespace rlx
