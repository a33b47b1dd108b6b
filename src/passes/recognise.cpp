// Composites that an exporter took apart, found again: a table of equations. Only those that pay
// are here. Softmax, SiLU, biases, residuals and attention taken apart make the same kernels as
// their composites, because regions are formed from primitives.
#include <algorithm>
#include <cmath>

#include "passes/passes.hpp"
#include "passes/pattern.hpp"
#include "passes/rewriter.hpp"
#include "passes/spectra.hpp"

namespace rlx::passes {
namespace {

/// What stands for a node of the source: an op and its operands there.
struct Match {
  Op op;
  std::vector<ValueId> operands;
};

using Rule = std::optional<Match> (*)(const Pattern&, ValueId);

// gelu(x) = x * (1 + erf(x / sqrt(2))) / 2, or with
// tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)) for the erf; the factors in any order.
// Pays: a division and, in older exports, a power less for each element.
std::optional<Match> gelu(const Pattern& p, ValueId id) {
  if (!p.is<op::Mul>(id) && !p.is<op::Div>(id)) return std::nullopt;
  const Pattern::Product product = p.product(id);
  if (product.values.size() != 2) return std::nullopt;
  for (std::size_t k = 0; k < 2; ++k) {
    const ValueId x = product.values[k], share = product.values[1 - k];
    if (!p.is<op::Add>(share) || !p.read_once(share)) continue;
    for (std::size_t side = 0; side < 2; ++side) {
      const Pattern::Product part = p.product(p.in(share, side));
      const auto constant = p.number(p.in(share, 1 - side));
      if (part.values.size() != 1 || !constant) continue;
      const ValueId curve = part.values[0];
      const bool erf = p.is<op::Erf>(curve);
      if ((!erf && !p.is<op::Tanh>(curve)) || !p.read_once(curve)) continue;
      const auto inside = p.polynomial(p.in(curve, 0), x);
      const double linear = erf ? 0.70710678118654752 : 0.79788456080286536;
      const double cube = erf ? 0 : 0.044715 * 0.79788456080286536;
      const bool fits = inside && (*inside)[0] == 0 && (*inside)[2] == 0 &&
                        close((*inside)[1], linear) && close((*inside)[3], cube) &&
                        close(product.factor * *constant, 0.5) &&
                        close(product.factor * part.factor, 0.5);
      if (fits && p.graph().type(x) == p.graph().type(id))
        return Match{op::Gelu{.tanh = !erf}, {x}};
    }
  }
  return std::nullopt;
}

// mish(x) = x * tanh(softplus(x)), in any order.
// Pays: one exponential and a division instead of an exponential, a logarithm and a tanh.
std::optional<Match> mish(const Pattern& p, ValueId id) {
  if (!p.is<op::Mul>(id)) return std::nullopt;
  for (std::size_t k = 0; k < 2; ++k) {
    const ValueId x = p.in(id, k), curve = p.in(id, 1 - k);
    if (p.is<op::Tanh>(curve) && p.read_once(curve) && p.is<op::Softplus>(p.in(curve, 0)) &&
        p.in(p.in(curve, 0), 0) == x)
      return Match{op::Mish{}, {x}};
  }
  return std::nullopt;
}

/// mean(v * v) or mean(pow(v, 2)) over trailing axes that are kept; gives v and the first axis.
std::optional<std::pair<ValueId, std::int64_t>> mean_square(const Pattern& p, ValueId id,
                                                            const Reduction kind) {
  if (!p.is<op::Reduce>(id)) return std::nullopt;
  const auto& reduce = *p.node(id).op.as<op::Reduce>();
  const int rank = p.graph().type(p.in(id, 0)).rank();
  Axes axes = reduce.axes;
  for (std::int64_t& axis : axes) axis += axis < 0 ? rank : 0;
  std::sort(axes.begin(), axes.end());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] != rank - static_cast<std::int64_t>(axes.size() - i)) return std::nullopt;
  }
  if (reduce.kind != kind || !reduce.keep_dims || axes.empty()) return std::nullopt;
  return std::pair(p.in(id, 0), axes[0]);
}

std::optional<ValueId> squared(const Pattern& p, ValueId id) {
  if (p.is<op::Mul>(id) && p.in(id, 0) == p.in(id, 1)) return p.in(id, 0);
  if (p.is<op::Pow>(id) && p.number(p.in(id, 1)) == 2.0) return p.in(id, 0);
  return std::nullopt;
}

/// id = v / sqrt(w + epsilon), however the root is written: v, w and epsilon.
struct Quotient {
  ValueId v, w;
  double epsilon = 0;
};
std::optional<Quotient> over_root(const Pattern& p, ValueId id) {
  const auto with_epsilon = [&](ValueId v, ValueId sum) -> std::optional<Quotient> {
    for (std::size_t k = 0; p.is<op::Add>(sum) && k < 2; ++k) {
      if (const auto epsilon = p.number(p.in(sum, k)))
        return Quotient{v, p.in(sum, 1 - k), *epsilon};
    }
    return std::nullopt;
  };
  if (p.is<op::Div>(id) && p.is<op::Sqrt>(p.in(id, 1)))
    return with_epsilon(p.in(id, 0), p.in(p.in(id, 1), 0));
  for (std::size_t k = 0; p.is<op::Mul>(id) && k < 2; ++k) {
    const ValueId inverse = p.in(id, k), v = p.in(id, 1 - k);
    if (p.is<op::Rsqrt>(inverse)) return with_epsilon(v, p.in(inverse, 0));
    if (p.is<op::Reciprocal>(inverse) && p.is<op::Sqrt>(p.in(inverse, 0)))
      return with_epsilon(v, p.in(p.in(inverse, 0), 0));
    if (p.is<op::Div>(inverse) && p.number(p.in(inverse, 0)) == 1.0 &&
        p.is<op::Sqrt>(p.in(inverse, 1)))
      return with_epsilon(v, p.in(p.in(inverse, 1), 0));
  }
  return std::nullopt;
}

// layer_norm(x) = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon)
// rms_norm(x) = x / sqrt(mean(x^2) + epsilon)
// Scale and bias stay maps: they join the same kernel. Pays: one root for a row instead of a
// division for each element.
std::optional<Match> norm(const Pattern& p, ValueId id) {
  const auto quotient = over_root(p, id);
  if (!quotient) return std::nullopt;
  const auto square = mean_square(p, quotient->w, Reduction::mean);
  if (!square || !is_float(p.graph().type(id).dtype)) return std::nullopt;
  // Some exporters subtract the mean twice: the square's own difference counts as well.
  const auto v = squared(p, square->first);
  if (!v) return std::nullopt;
  const auto centred = [&](ValueId d) -> std::optional<ValueId> {
    if (!p.is<op::Sub>(d)) return std::nullopt;
    const auto mean = mean_square(p, p.in(d, 1), Reduction::mean);
    if (!mean || mean->first != p.in(d, 0) || mean->second != square->second) return std::nullopt;
    return p.in(d, 0);
  };
  const auto x = centred(quotient->v);
  if (x && centred(*v) == x)
    return Match{op::LayerNorm{.axis = square->second, .epsilon = quotient->epsilon}, {*x}};
  if (*v == quotient->v && p.graph().type(*v) == p.graph().type(id))
    return Match{op::RmsNorm{.axis = square->second, .epsilon = quotient->epsilon}, {*v}};
  return std::nullopt;
}

/// The table: tried in order at every node.
constexpr Rule rules[] = {gelu, mish, norm};

// (c * x) . y = c * (x . y)
// Pays where x is a view: the product would be a kernel of its own that copies x, and behind the
// contraction it joins the epilogue.
Result<bool> move_scale(Rewriter& rewriter, const Pattern& p, std::int32_t index) {
  const ValueId id{index, 0};
  if (!p.is<op::DotGeneral>(id)) return false;
  double factor = 1;
  std::vector<ValueId> operands;
  for (std::size_t k = 0; k < 2; ++k) {
    const ValueId operand = p.in(id, k);
    const Pattern::Product product = p.product(operand);
    const bool moves =
        (p.is<op::Mul>(operand) || p.is<op::Div>(operand)) && p.read_once(operand) &&
        product.values.size() == 1 && std::isfinite(product.factor) &&
        (p.is<op::Transpose>(product.values[0]) || p.is<op::Reshape>(product.values[0])) &&
        p.graph().type(product.values[0]) == p.graph().type(operand);
    if (moves) factor *= product.factor;
    operands.push_back(rewriter(moves ? product.values[0] : operand));
  }
  const Type& type = p.graph().type(id);
  // A narrow product is rounded before the scale: it could leave the type's range.
  if (factor == 1 || size_of(type.dtype) < 4) return false;
  Graph& target = rewriter.target();
  RLX_ASSIGN(const auto made, target.try_add(p.node(id).op, operands, {}, p.node(id).origin));
  rewriter.replace(index, Values{target.handle(made[0]) * target.constant(type.dtype, factor)});
  return true;
}

// x / c = x * (1 / c)
// Pays: a division costs ten products, and keeps an epilogue out of the registers.
Result<bool> divide_by_number(Rewriter& rewriter, const Pattern& p, std::int32_t index) {
  const ValueId id{index, 0};
  if (!p.is<op::Div>(id) || p.number(p.in(id, 0))) return false;
  const Type& type = p.graph().type(id);
  const auto divisor = p.number(p.in(id, 1));
  const bool wide = type.dtype == f32 || type.dtype == f64;
  if (!divisor || !wide || !(type == p.graph().type(p.in(id, 0)))) return false;
  const double factor = 1 / *divisor;
  // Beyond these the inverse could be subnormal or infinite in f32.
  if (!(std::abs(factor) > 1e-30 && std::abs(factor) < 1e30)) return false;
  Graph& target = rewriter.target();
  const Value x = target.handle(rewriter(p.in(id, 0)));
  rewriter.replace(index, Values{x * target.constant(type.dtype, factor)});
  return true;
}

}  // namespace

Result<Graph> recognise(Graph graph) {
  const Pattern pattern(graph);
  return rewrite(std::move(graph),
                 [&](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
                   if (node.results.size() != 1) return false;
                   for (const Rule rule : rules) {
                     const auto match = rule(pattern, {index, 0});
                     if (!match) continue;
                     std::vector<ValueId> operands;
                     for (const ValueId id : match->operands) operands.push_back(rewriter(id));
                     RLX_TRY(rewriter.add(index, match->op, std::move(operands)));
                     return true;
                   }
                   RLX_ASSIGN(const bool spectra, spectra_of_frames(rewriter, pattern, index));
                   if (spectra) return true;
                   RLX_ASSIGN(const bool moved, move_scale(rewriter, pattern, index));
                   return moved ? Result<bool>(true) : divide_by_number(rewriter, pattern, index);
                 });
}

}  // namespace rlx::passes
