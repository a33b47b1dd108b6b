// Losses of classifiers.
#include "import/onnx/build.hpp"
#include "import/onnx/families.hpp"

namespace rlx::onnx {
namespace {

// -log_p[class] * weight of each target; ignored targets count as nothing. The mean divides by the
// sum of the weights.
Value class_loss(NodeContext& c, const Value& log_p, Value target, const Value& weights) {
  const std::string reduction = c.text("reduction", "mean");
  const bool ignores = c.has_attribute("ignore_index");
  if (target.dtype() != i64) target = cast(target, i64);
  Value ignored;
  if (ignores) {
    ignored = equal(target, c.scalar(i64, static_cast<double>(c.integer("ignore_index"))));
    target = select(ignored, c.scalar(i64, 0), target);
  }
  const Value picked = c.add(op::GatherElements{1}, {log_p, unsqueeze_axes(target, {1})});
  Value loss = neg(reshape(picked, target.shape()));
  Value weight = weights ? gather(weights, target) : Value();
  if (ignores) {
    const Value one = scalar_like(c, log_p, 1), zero = scalar_like(c, log_p, 0);
    weight = select(ignored, zero, weight ? weight : one);
    // A weight of zero must win over an infinite loss.
    loss = select(ignored, zero, loss);
  }
  if (weight) loss = loss * weight;
  if (reduction == "none") return loss;
  Axes all;
  for (int i = 0; i < target.rank(); ++i) all.push_back(i);
  if (reduction == "sum") return sum(loss, all);
  if (reduction != "mean") fail("The reduction ({}) is unknown.", reduction);
  return weight ? sum(loss, all) / sum(weight, all) : mean(loss, all);
}

void negative_log_likelihood(NodeContext& c) {
  c.set(class_loss(c, c.in(0), c.in(1), c.optional(2)));
}

void softmax_cross_entropy(NodeContext& c) {
  const Value log_p = c.add(op::LogSoftmax{1}, {c.in(0)});
  c.set(0, class_loss(c, log_p, c.in(1), c.optional(2)));
  c.set(1, log_p);
}

constexpr OpEntry entries[] = {{"NegativeLogLikelihoodLoss", 12, negative_log_likelihood},
                               {"SoftmaxCrossEntropyLoss", 12, softmax_cross_entropy}};

}  // namespace

OpEntries loss_entries() { return entries; }

}  // namespace rlx::onnx
