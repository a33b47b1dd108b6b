// Mixture of experts: the choice of experts for each token, and products of rows with the matrices
// of their experts.
#include "rlx/experts.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "ops/apply.hpp"
#include "ops/index.hpp"
#include "ops/norm.hpp"

namespace rlx {
namespace {

using Types = Result<std::vector<Type>>;

/// The positions of the k largest logits in falling order, lower ones first on ties.
std::vector<std::int64_t> largest(const double* logits, std::int64_t experts, std::int64_t k) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(experts));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [logits](std::int64_t a, std::int64_t b) {
    if (std::isnan(logits[b])) return false;
    return std::isnan(logits[a]) || logits[a] > logits[b];
  });
  order.resize(static_cast<std::size_t>(k));
  return order;
}

double sum_of_exponentials(std::span<const double> values, double largest) {
  double sum = 0;
  for (const double value : values) sum += std::exp(value - largest);
  return sum;
}

/// Rows of x [.., K] by row of the experts: 1, or the choices of a token where they share its row.
std::int64_t rows_per_source(const TensorView& x, const TensorView& experts) {
  return x.rank() == experts.rank() ? experts.dims.back() : 1;
}

template <class T>
Tensor list_of(Dims dims, std::vector<T> values) {
  return Tensor::of<T>(std::move(dims), std::span<const T>(values));
}

}  // namespace

// weights = exp(chosen - max) / sum(exp(all or chosen - max))
template <>
struct Rules<op::MoeRouter> {
  static constexpr std::string_view name = "moe_router";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{.composite = true};
  static constexpr auto fields =
      std::tuple{field("k", &op::MoeRouter::k), field("choose_first", &op::MoeRouter::choose_first),
                 field("renormalize", &op::MoeRouter::renormalize)};
  static Types infer(const op::MoeRouter& a, const InferArgs& args) {
    const Type& logits = args[0];
    RLX_TRY(require(is_float(logits.dtype) && logits.rank() >= 1, name, "floats [..., E]", logits));
    const Dim& experts = logits.shape.back();
    if (a.k < 1 || (experts.is_static() && a.k > experts.value()))
      return bad_input("The k ({}) of moe_router lies outside 1..{}, the experts of {}.", a.k,
                       experts.text(), logits.text());
    Shape shape = logits.shape;
    shape.back() = Dim(a.k);
    return std::vector<Type>{{i32, shape}, {logits.dtype, shape}};
  }
  static Status eval(const op::MoeRouter& a, const EvalArgs& args) {
    const std::vector<double> logits = load_all<double>(args.in(0));
    const std::int64_t experts = args.in(0).dims.back();
    std::vector<std::int64_t> chosen;
    std::vector<double> weights;
    for (std::size_t row = 0; row < logits.size(); row += static_cast<std::size_t>(experts)) {
      const double* from = logits.data() + row;
      const std::vector<std::int64_t> order = largest(from, experts, a.k);
      std::vector<double> picked;
      for (const std::int64_t expert : order) picked.push_back(from[expert]);
      const bool of_chosen = a.choose_first || a.renormalize;
      const std::span<const double> all(from, static_cast<std::size_t>(experts));
      const double sum = sum_of_exponentials(of_chosen ? picked : all, picked[0]);
      for (const double value : picked) weights.push_back(std::exp(value - picked[0]) / sum);
      chosen.insert(chosen.end(), order.begin(), order.end());
    }
    store_all<std::int64_t>(args.out(0), chosen);
    store_all<double>(args.out(1), weights);
    return {};
  }
  static Values body(const op::MoeRouter& a, Graph& graph, std::span<const Value> inputs) {
    const Value logits = inputs[0];
    const Values top = graph.add(op::TopK{.k = a.k}, std::span(&logits, 1));
    const Value chosen = widened(top[0]);
    const Value best = max_over(chosen, {-1}, true);
    const Value powers = exp(chosen - best);
    const bool of_chosen = a.choose_first || a.renormalize;
    const Value all = of_chosen ? powers : exp(widened(logits) - best);
    return {cast(top[1], i32), cast(powers * reciprocal(sum(all, {-1}, true)), logits.dtype())};
  }
  static OpCost cost(const op::MoeRouter&, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    return {6.0 * static_cast<double>(inputs[0]->elements()), bytes_of(inputs, results)};
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> list;
    for (const DType dtype : {f32, f64, f16, bf16})
      list.push_back({.op = op::MoeRouter{.k = 2}, .inputs = {Type{dtype, {5, 8}}}});
    list.push_back(
        {.op = op::MoeRouter{.k = 3, .choose_first = true}, .inputs = {Type{f32, {2, 3, 7}}}});
    list.push_back({.op = op::MoeRouter{.k = 2, .renormalize = true},
                    .inputs = {Type{f32, {4, 4}}},
                    .values = {list_of<float>({4, 4}, {1, 1, 1, 1, 0, 2, 2, -1,  //
                                                       3, -4, 5, 5, -0.0F, 0, -3, 0})}});
    list.push_back({.op = op::MoeRouter{.k = 6}, .inputs = {Type{f32, {6}}}});
    return list;
  }
};
RLX_OP(op::MoeRouter, "experts")

// result[r, :] = sum over k of x[r, k] * w[experts[r], k, :]
template <>
struct Rules<op::GroupedMatmul> {
  static constexpr std::string_view name = "grouped_matmul";
  static constexpr Arity arity{3, 3};
  static constexpr OpTraits traits{.composite = true};
  static constexpr auto fields = std::tuple{};
  static Types infer(const op::GroupedMatmul&, const InferArgs& args) {
    const Type &x = args[0], &w = args[1], &experts = args[2];
    RLX_TRY(require(is_float(x.dtype), name, "floats", x));
    RLX_TRY(require_same_dtype(name, x, w));
    RLX_TRY(require(w.rank() == 3, name, "weights [E, K, N]", w));
    RLX_TRY(require((experts.dtype == i32 || experts.dtype == i64) && experts.rank() >= 1, name,
                    "i32 or i64 as experts", experts));
    const bool shares = x.rank() == experts.rank();
    bool fits = (shares || x.rank() == experts.rank() + 1) && x.rank() >= 2;
    for (int i = 0; fits && i + 1 < x.rank(); ++i)
      fits = compatible(x.shape[static_cast<std::size_t>(i)],
                        experts.shape[static_cast<std::size_t>(i)]);
    if (!fits || !compatible(x.shape.back(), w.shape[1])) {
      return bad_input("The operands of grouped_matmul do not fit: x {}, weights {}, experts {}.",
                       x.text(), w.text(), experts.text());
    }
    Shape shape = experts.shape;
    shape.push_back(w.shape[2]);
    return std::vector<Type>{{x.dtype, std::move(shape)}};
  }
  static Status eval(const op::GroupedMatmul&, const EvalArgs& args) {
    const TensorView &w = args.in(1), &experts = args.in(2);
    const std::int64_t count = w.dims[0], depth = w.dims[1], columns = w.dims[2];
    const std::int64_t shared = rows_per_source(args.in(0), experts);
    const std::vector<double> x = load_all<double>(args.in(0)), weights = load_all<double>(w);
    std::vector<double> result;
    for (std::int64_t row = 0; row < experts.elements(); ++row) {
      const std::int64_t expert = read_index(experts, row);
      if (expert < 0 || expert >= count)
        return bad_input("The expert ({}) of a grouped matmul lies outside the {} that there are.",
                         expert, count);
      std::vector<double> sums(static_cast<std::size_t>(columns), 0.0);
      for (std::int64_t k = 0; k < depth; ++k) {
        const double factor = x[static_cast<std::size_t>(row / shared * depth + k)];
        const double* from = weights.data() + (expert * depth + k) * columns;
        for (std::int64_t n = 0; n < columns; ++n)
          sums[static_cast<std::size_t>(n)] += factor * from[n];
      }
      result.insert(result.end(), sums.begin(), sums.end());
    }
    store_all<double>(args.out(0), result);
    return {};
  }
  // The matrix of every row, then a product for each row: right, and wasteful.
  static Values body(const op::GroupedMatmul&, Graph&, std::span<const Value> inputs) {
    const Value &x = inputs[0], &w = inputs[1], &experts = inputs[2];
    const std::int64_t rank = experts.rank();
    const bool shares = x.rank() == rank;
    const Value matrices = gather(w, experts, 0);
    Shape rows = experts.shape();
    rows.insert(rows.end(), {Dim(1), x.shape().back()});
    const Value row = unsqueeze(shares ? unsqueeze(x, {rank - 1}) : x, {rank});
    const Value product = matmul(broadcast(row, std::move(rows)), matrices);
    return {squeeze(product, {rank})};
  }
  static OpCost cost(const op::GroupedMatmul&, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    const Type& w = *inputs[1];
    const auto rows = static_cast<double>(inputs[2]->elements());
    const double matrix =
        static_cast<double>(w.bytes()) / std::max(1.0, static_cast<double>(w.shape[0].value()));
    const double read = std::min(rows, static_cast<double>(w.shape[0].value())) * matrix;
    return {
        2 * static_cast<double>(results[0].elements()) * static_cast<double>(w.shape[1].value()),
        read + static_cast<double>(inputs[0]->bytes() + inputs[2]->bytes() + results[0].bytes())};
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> list;
    for (const DType dtype : {f32, f64, f16, bf16}) {
      list.push_back({.op = op::GroupedMatmul{},
                      .inputs = {Type{dtype, {7, 5}}, Type{dtype, {3, 5, 18}}, Type{i32, {7}}},
                      .values = {std::nullopt, std::nullopt,
                                 list_of<std::int32_t>({7}, {2, 0, 2, 2, 0, 2, 2})}});
    }
    list.push_back({.op = op::GroupedMatmul{},
                    .inputs = {Type{f32, {3, 6}}, Type{f32, {4, 6, 70}}, Type{i64, {3, 2}}},
                    .values = {std::nullopt, std::nullopt,
                               list_of<std::int64_t>({3, 2}, {3, 1, 0, 3, 1, 1})}});
    list.push_back(
        {.op = op::GroupedMatmul{},
         .inputs = {Type{f32, {2, 2, 6}}, Type{f32, {2, 6, 3}}, Type{i32, {2, 2}}},
         .values = {std::nullopt, std::nullopt, list_of<std::int32_t>({2, 2}, {1, 0, 0, 0})}});
    return list;
  }
};
RLX_OP(op::GroupedMatmul, "experts")

OpList expert_ops() {
  static const OpInfo* const list[] = {&info_of<op::MoeRouter>(), &info_of<op::GroupedMatmul>()};
  return list;
}

Routing moe_router(Value logits, op::MoeRouter attributes) {
  const Values results =
      common_graph({logits}).add(std::move(attributes), std::span<const Value>(&logits, 1));
  return {results[0], results[1]};
}

Value grouped_matmul(Value x, Value w, Value experts) {
  return apply(op::GroupedMatmul{}, {x, w, experts});
}

Value moe_feed_forward(Value x, Value logits, Value gate, Value up, Value down,
                       op::MoeRouter attributes) {
  const Routing routing = moe_router(logits, attributes);
  const Value inner =
      silu(grouped_matmul(x, gate, routing.experts)) * grouped_matmul(x, up, routing.experts);
  const Value outer = grouped_matmul(inner, down, routing.experts);
  return sum(outer * unsqueeze(routing.weights, {-1}), {-2});
}

}  // namespace rlx
