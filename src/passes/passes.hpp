// Passes, each a free function from graph to graph; those that ask a policy have own headers here.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/op_info.hpp"
#include "passes/choose_form.hpp"
#include "rlx/graph.hpp"
#include "rlx/ops.hpp"
#include "rlx/result.hpp"

namespace rlx::passes {

/// What binds a graph's symbols: values by symbol, and dims by input name.
struct Bindings {
  std::map<std::string, std::int64_t> dims;
  std::map<std::string, Dims> input_dims;
};

/// Binds symbols and runs inference again with numbers; folds shape arithmetic, small constants,
/// and turns ops whose shapes operands tell into static ones. What data alone can tell stays.
/// Errors: unknown symbols or inputs, dims that contradict.
Result<Graph> specialise(const Graph& graph, const Bindings& bindings);

/// Does the device take that node of that graph whole?
using Keep = std::function<bool(const Graph&, const Node&)>;

/// Replaces composites by their bodies, except those to keep.
Result<Graph> lower(Graph graph, const Keep& keep);

/// Loops and branches in the forms that plans want: weights that their graphs capture stand inside
/// them, with the operands' static types bound; carries that no iteration changes are captures; a
/// while is a host_loop.
Result<Graph> loop_forms(Graph graph);

/// Recognises composites that an exporter took apart (table of equations in recognise.cpp).
Result<Graph> recognise(Graph graph);

/// Real and imaginary parts of short real Fourier transforms as matrix products.
Result<Graph> transforms_as_products(Graph graph);

/// Products of integers as sums over elementwise products.
Result<Graph> integer_products(Graph graph);

/// The forms that regions want: reductions keep their dims, contractions have one free dim of b,
/// convolutions have no bias and are not transposed, means are sums, pads that take from x and
/// assignments to boxes of x are concatenations.
Result<Graph> canonicalise(Graph graph);

/// conv(pad(x)) with zeros around the image = conv(x) with more padding.
Result<Graph> padded_windows(Graph graph);

/// concat(x, y, z) = concat(concat(x, y), z) where the graph has concat(x, y) before: dense blocks
/// that join all of their layers' results for each layer anew.
Result<Graph> nest_concats(Graph graph);

/// Convolutions and pools over channels-last images; transposes move down through what does not
/// care and cancel.
Result<Graph> channels_last(const Graph& graph);

/// Gathers by constant places: those that repeat elements become broadcasts, others of two
/// neighbouring axes one of both. Images have the order in which they stay.
Result<Graph> known_gathers(Graph graph);

/// Rows of tables that dequantize makes of weights are looked up as the numbers that are stored,
/// and made real behind that: gather(dequantize(w, s), i) = dequantize(gather(w, i), gather(s, i)).
Result<Graph> byte_tables(Graph graph);

/// Casts of their own, apart from equal ones that others read, for operands that products read as
/// they are stored: narrow integers, and halves that a product waits for. The planner lets products
/// read through casts that nobody else wants.
Result<Graph> casts_of_products(Graph graph);

/// a b = sum(a * b^T) for batches of products with one column, b no weight. Sums in another order.
/// Wants canonical contractions.
Result<Graph> single_columns(Graph graph);

/// Matrix products whose rows are taken apart behind them, after maps that treat all rows alike, in
/// the shape that they take: what follows meets them in its own shape and can join their kernels.
/// Wants canonical contractions.
Result<Graph> unflatten_products(Graph graph);

/// Channels-last f32 convolutions with 3x3 windows of weights and stride 1 or 2 by Winograd's
/// F(2x2, 3x3) or, with stride 1, F(4x4, 3x3), where the choice falls on them. The maps behind them
/// that treat all points of a channel alike come along. Rounding errors: graph/winograd.hpp.
Result<Graph> winograd(Graph graph, const ChooseForms& choose);

/// Other channels-last f32 convolutions with windows of weights, by minimal filtering along the
/// axis where it multiplies the least, where the choice falls on them: stride and dilation are 1
/// there. Maps come along as in `winograd`. Rounding errors: graph/line_points.hpp.
Result<Graph> line_points(Graph graph, const ChooseForms& choose);

/// Products of one value with several weights become one, with the weights side by side; where the
/// parts are only read through views (projections of queries, keys and values). Wants canonical
/// contractions.
Result<Graph> merge_products(Graph graph);

/// Algebraic identities, each under its equation.
Result<Graph> simplify(Graph graph);

/// Equal nodes once; nodes that no output needs, never.
Result<Graph> merge_equal(Graph graph);
Result<Graph> drop_dead(Graph graph);

/// Applies `map` to every graph among the attributes of the graph's nodes (branches, loop bodies),
/// not to the graph itself.
Result<Graph> map_subgraphs(Graph graph, const std::function<Result<Graph>(const Graph&)>& map);
Result<Op> with_mapped_graphs(const Op& op, const std::function<Result<Graph>(const Graph&)>& map);

/// Adds the nodes of `graph` to `target` with `operands` for its inputs; gives its outputs.
Result<Values> inline_graph(Graph& target, const Graph& graph, std::span<const Value> operands);

/// A pass by its name, for `rlx opt` and the pipeline's log.
struct Pass {
  std::string_view name;
  Result<Graph> (*run)(Graph);
};
std::span<const Pass> all_passes();
Result<Graph> run_passes(Graph graph, std::span<const std::string> names);

}  // namespace rlx::passes
