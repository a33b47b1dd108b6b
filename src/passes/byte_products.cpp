// What quantised matmuls are in MIR.
#include "passes/byte_products.hpp"

namespace rlx::passes {
namespace {

constexpr double row_steps = 255, column_steps = 127;
constexpr double least = 1e-30;  // rows and columns without any range divide by it

}  // namespace

// q = round((a - min a) * 255 / (max a - min a))
ByteRows quantised_rows(const Value& a) {
  const auto number = [&](double value) { return a.graph().constant(f32, value); };
  const Axes last{a.rank() - 1};
  const Value low = reduce(a, Reduction::min, last, true);
  const Value range = max_over(a, last, true) - low;
  const Value per_step = number(row_steps) / max(range, number(least));
  const Value bytes = cast(round((a - low) * per_step), u8);
  return {cast(bytes, f32), range * number(1 / row_steps), low};
}

// sum (low + scale q) w = scale sum q w + low sum w
Value byte_product(Graph& graph, const op::DotGeneral& dot, const ByteRows& rows, const Value& b,
                   std::int64_t contracted) {
  const auto number = [&](double value) { return graph.constant(f32, value); };
  const Value largest = max_over(abs(b), {contracted}, true);
  const Value per_step = number(column_steps) / max(largest, number(least));
  const Value bytes = cast(round(b * per_step), i8);
  const Dim n = b.shape()[static_cast<std::size_t>(1 - contracted)];
  const Value totals = reshape(sum(cast(bytes, f32), {contracted}, true), {n});
  const Value scales = reshape(largest * number(1 / column_steps), {n});
  // A cast that nothing but the product reads: it multiplies the bytes themselves.
  const Value sums = graph.add(Op(dot), Values{rows.values, cast(bytes, f32)})[0];
  return (sums * rows.scales + rows.lows * totals) * scales;
}

}  // namespace rlx::passes
