// The derivative of log_mel: what a gradient of its result is for the spectrum.
#include <cmath>

#include "graph/rules.hpp"
#include "ops/norm.hpp"
#include "ops/signal_tools.hpp"
#include "rlx/signal.hpp"

namespace rlx {
namespace {

constexpr double least_power = 1e-10, range = 8;

bool has_complex(const Value& x) { return is_complex(x.dtype()); }

/// The gradient of l = log10(energy) behind the floor: floored places hand theirs to the maximum,
/// in equal shares where several places hold it.
Value behind_floor(Value level, Value gradient, op::LogMelFloor floor) {
  if (floor == op::LogMelFloor::none) return gradient;
  Graph& graph = level.graph();
  Axes axes{level.rank() - 1};
  if (floor == op::LogMelFloor::clip && level.rank() > 1)
    axes.insert(axes.begin(), level.rank() - 2);
  const auto number = [&](double value) { return graph.constant(level.dtype(), value); };
  const Value most = max_over(level, axes, true), lowest = most - number(range);
  const Value is_floored = less(level, lowest), is_most = equal(level, most);
  const Value handed = sum(select(is_floored, gradient, number(0)), axes, true);
  const Value holders = sum(cast(is_most, level.dtype()), axes, true);
  const Value kept = select(is_floored, number(0), gradient);
  return kept + cast(is_most, level.dtype()) * (handed / holders);
}

}  // namespace

// of (spectrum, filters, gradient of log_mel's result): with p = re^2 + im^2, e = filters · p,
// l = log10(max(e, 1e-10)), M = max(l) over the floor's span and y = (max(l, M - 8) + 4) / 4
template <>
struct Rules<op::LogMelBackward> {
  using A = op::LogMelBackward;
  static constexpr std::string_view name = "log_mel_backward";
  static constexpr Arity arity{3, 3};
  static constexpr OpTraits traits{.composite = true, .host_only = true};
  static constexpr auto fields = std::tuple{field("floor", &A::floor)};

  static Result<std::vector<Type>> infer(const A& a, const InferArgs& args) {
    const Op forward = op::LogMel{a.floor};
    const Type* const operands[] = {&args[0], &args[1]};
    RLX_ASSIGN(const auto results, forward.info().infer(forward.attributes(), InferArgs{operands}));
    const Type &wanted = results[0], &given = args[2];
    bool fits = wanted.dtype == given.dtype && wanted.rank() == given.rank();
    for (std::size_t i = 0; fits && i < wanted.shape.size(); ++i)
      fits = compatible(wanted.shape[i], given.shape[i]);
    if (!fits) {
      return bad_input("The gradient {} of log_mel_backward is not of its result, {}.",
                       given.text(), wanted.text());
    }
    return std::vector<Type>{args[0]};
  }
  static Values body(const A& a, Graph& graph, std::span<const Value> inputs) {
    const Value spectrum = inputs[0], filters = inputs[1];
    const Dim& width = spectrum.shape().back();
    const std::int64_t bins = filters.shape()[1].value();
    if (!width.is_static())
      throw Exception(
          unsupported("A log_mel_backward of an unbound length ({}) has no body.", width.text()));
    const Parts parts = first_bins(spectrum, bins);
    const Value power = parts.re * parts.re + parts.im * parts.im;
    const auto number = [&](double value) { return graph.constant(power.dtype(), value); };
    const std::int64_t last = power.rank() - 1;
    const Value energy =
        graph.add_one(op::DotGeneral{.a_contract = {last}, .b_contract = {1}}, {power, filters});
    const Value held = max(energy, number(least_power));
    const Value level = log(held) * number(1 / std::log(10.0));
    const Value of_level = behind_floor(level, inputs[2] * number(0.25), a.floor);
    const Value of_energy = select(greater(energy, number(least_power)),
                                   of_level * number(1 / std::log(10.0)) / held, number(0));
    const Value of_power = graph.add_one(op::DotGeneral{.a_contract = {last}, .b_contract = {0}},
                                         {of_energy, filters});
    const Value scale = of_power * number(2);
    return {whole(graph, spectrum, parts.re * scale, parts.im * scale, bins)};
  }
  static OpCost cost(const A&, std::span<const Type* const> inputs, std::span<const Type> results) {
    const auto bins = static_cast<double>(inputs[1]->dims()[1]),
               mels = static_cast<double>(inputs[1]->dims()[0]);
    const double rows = static_cast<double>(inputs[2]->elements()) / std::max(mels, 1.0);
    return {rows * bins * (7 + 4 * mels) + 20 * rows * mels, bytes_of(inputs, results)};
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> list;
    for (const auto floor :
         {op::LogMelFloor::none, op::LogMelFloor::frame, op::LogMelFloor::clip}) {
      list.push_back({.op = A{floor},
                      .inputs = {Type{f64, {2, 5, 32}}, Type{f64, {4, 9}}, Type{f64, {2, 5, 4}}},
                      .low = 0.5,
                      .high = 2});
    }
    list.push_back({.op = A{},
                    .inputs = {Type{c64, {5, 12}}, Type{f32, {4, 9}}, Type{f32, {5, 4}}},
                    .low = 0.5,
                    .high = 2,
                    .tolerance = 1e-4});
    return list;
  }

 private:
  /// Zeros for the bins that no filter reads.
  static Value whole(Graph& graph, Value spectrum, Value re, Value im, std::int64_t bins) {
    const std::int64_t width = spectrum.shape().back().value(),
                       points = has_complex(spectrum) ? width : width / 2;
    const auto filled = [&](Value part) {
      Axes low(static_cast<std::size_t>(part.rank()), 0), high = low;
      high.back() = points - bins;
      return points == bins ? part : pad(part, std::move(low), std::move(high));
    };
    if (has_complex(spectrum)) return graph.add_one(op::MakeComplex{}, {filled(re), filled(im)});
    return concat({filled(re), filled(im)}, spectrum.rank() - 1);
  }
};
RLX_OP(op::LogMelBackward, "signal")

}  // namespace rlx
