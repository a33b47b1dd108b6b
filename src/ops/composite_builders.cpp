// Builder functions of contractions and composites.
#include <algorithm>

#include "base/error.hpp"
#include "ops/apply.hpp"
#include "ops/families.hpp"
#include "rlx/ops.hpp"

namespace rlx {
namespace {

Shape batch_of(const Value& x) { return {x.shape().begin(), x.shape().end() - 2}; }

Value with_batch(Value x, Shape batch) {
  if (batch_of(x) == batch) return x;
  batch.insert(batch.end(), x.shape().end() - 2, x.shape().end());
  return broadcast(x, std::move(batch));
}

Axes first_axes(std::size_t count) {
  Axes axes;
  for (std::size_t i = 0; i < count; ++i) axes.push_back(static_cast<std::int64_t>(i));
  return axes;
}

}  // namespace

// A vector is contracted along its only axis and leaves none; b without batch dims (or with dims of
// 1 alone) is one matrix for all rows of a, so that a's batch dims are free axes and nothing is
// repeated.
Value matmul(Value a, Value b) {
  common_graph({a, b});
  if (a.rank() == 0 || b.rank() == 0) {
    throw Exception(
        bad_input("A matmul wants operands of at least one axis and was given {} and {}.",
                  a.type().text(), b.type().text()));
  }
  op::DotGeneral attributes{.a_batch = {},
                            .b_batch = {},
                            .a_contract = {a.rank() - 1},
                            .b_contract = {std::max(0, b.rank() - 2)}};
  if (a.rank() == 1 || b.rank() <= 2) return apply(attributes, {a, b});
  const Shape b_batch = batch_of(b);
  const bool one_matrix =
      std::all_of(b_batch.begin(), b_batch.end(), [](const Dim& dim) { return dim == Dim(1); });
  if (one_matrix && b.rank() <= a.rank()) {
    const Value matrix = reshape(b, {b.shape().end() - 2, b.shape().end()});
    attributes.b_contract = {0};
    return apply(attributes, {a, matrix});
  }
  auto batch = broadcast_shapes(batch_of(a), b_batch);
  if (!batch.ok()) {
    throw Exception(std::move(batch.error())
                        .while_("adding matmul(" + a.type().text() + ", " + b.type().text() + ")"));
  }
  a = with_batch(a, *batch);
  b = with_batch(b, *batch);
  attributes = {.a_batch = first_axes(batch->size()),
                .b_batch = first_axes(batch->size()),
                .a_contract = {a.rank() - 1},
                .b_contract = {b.rank() - 2}};
  return apply(attributes, {a, b});
}

Value conv(Value x, Value w, op::Conv attributes, Value bias) {
  return apply_optional(std::move(attributes), {x, w, bias});
}
Value softmax(Value x, op::Softmax attributes) { return apply(attributes, {x}); }
Value layer_norm(Value x, Value scale, Value bias, op::LayerNorm attributes) {
  return apply_optional(attributes, {x, scale, bias});
}
Value rms_norm(Value x, Value scale, op::RmsNorm attributes) {
  return apply_optional(attributes, {x, scale});
}
Value attention(Value q, Value k, Value v, Value mask, op::Attention attributes) {
  return apply_optional(std::move(attributes), {q, k, v, mask});
}
Value welch_peaks(Value spectrum, op::WelchPeaks attributes) {
  return apply(attributes, {spectrum});
}
Value block_fft(Value x, op::BlockFft attributes) { return apply(attributes, {x}); }

}  // namespace rlx
