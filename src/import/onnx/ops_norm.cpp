// Softmax and its relatives, normalisations, dropout.
#include <algorithm>

#include "import/onnx/build.hpp"
#include "import/onnx/families.hpp"

namespace rlx::onnx {
namespace {

template <class Attributes>
void along_axis(NodeContext& c) {
  c.set(c.add(Attributes{c.integer("axis", -1)}, {c.in(0)}));
}

// Before opset 13 the axes from `axis` on were flattened into one.
template <class Attributes>
void flattened(NodeContext& c) {
  const Value x = c.in(0);
  const auto axis = c.integer("axis", 1);
  const auto split = axis < 0 ? axis + x.rank() : axis;
  if (split < 0 || split > x.rank()) fail("Axis ({}) is outside the rank ({}).", axis, x.rank());
  const auto middle = x.shape().begin() + split;
  const bool one_axis = split == x.rank() - 1;
  if (one_axis) {
    c.set(c.add(Attributes{-1}, {x}));
    return;
  }
  const Value flat = reshape(x, {product_of(Shape(x.shape().begin(), middle)),
                                 product_of(Shape(middle, x.shape().end()))});
  c.set(reshape(c.add(Attributes{-1}, {flat}), x.shape()));
}

void batch_norm(NodeContext& c) {
  const Value x = c.in(0), scale = c.in(1), bias = c.in(2), mean = c.in(3), variance = c.in(4);
  const double epsilon = c.real("epsilon", 1e-5), momentum = c.real("momentum", 0.9);
  c.ignore({"spatial", "is_test"});
  if (c.version() < 9 && c.integer("spatial", 1) == 0) {
    fail_unsupported("Statistics for each element are not supported.");
  }
  if (!c.flag("training_mode") || c.version() < 14) {
    c.set(c.add(op::BatchNorm{epsilon}, {x, scale, bias, mean, variance}));
    return;
  }
  Axes axes;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != 1) axes.push_back(i);
  }
  const Value batch_mean = rlx::mean(x, axes, true), centred = x - batch_mean;
  const Value batch_variance = rlx::mean(centred * centred, axes);
  const Value flat_mean = reshape(batch_mean, mean.shape());
  c.set(0, c.add(op::BatchNorm{epsilon}, {x, scale, bias, flat_mean, batch_variance}));
  const Value kept = scalar_like(c, mean, momentum), fresh = scalar_like(c, mean, 1 - momentum);
  c.set(1, mean * kept + flat_mean * fresh);
  c.set(2, variance * kept + batch_variance * fresh);
}

void instance_norm(NodeContext& c) {
  c.set(c.add(op::InstanceNorm{c.real("epsilon", 1e-5)}, {c.in(0), c.in(1), c.in(2)}));
}

void layer_normalization(NodeContext& c) {
  const Value x = c.in(0);
  const auto axis = normal_axis(c.integer("axis", -1), x.rank());
  const double epsilon = c.real("epsilon", 1e-5);
  c.ignore({"stash_type"});
  c.set(0, c.add(op::LayerNorm{axis, epsilon}, {x, c.optional(1), c.optional(2)}));
  if (!c.wants(1) && !c.wants(2)) return;
  Axes axes;
  for (auto i = axis; i < x.rank(); ++i) axes.push_back(i);
  const Value wide = x.dtype() == f64 ? x : cast(x, f32);
  const Value centre = mean(wide, axes, true), centred = wide - centre;
  c.set(1, centre);
  c.set(2, rsqrt(mean(centred * centred, axes, true) + scalar_like(c, wide, epsilon)));
}

void rms_normalization(NodeContext& c) {
  const Value x = c.in(0);
  const auto axis = normal_axis(c.integer("axis", -1), x.rank());
  c.ignore({"stash_type"});
  c.set(c.add(op::RmsNorm{axis, c.real("epsilon", 1e-5)}, {x, c.in(1)}));
}

// Until opset 20 scale and bias belonged to groups, since 21 to channels.
void group_normalization(NodeContext& c) {
  const Value x = c.in(0);
  const auto groups = c.integer("num_groups");
  c.ignore({"stash_type"});
  Value scale = c.in(1), bias = c.in(2);
  if (groups <= 0) fail("The number of groups ({}) is not positive.", groups);
  if (c.version() < 21) {
    const auto each = static_dim(x, 1) / groups;
    const auto spread = [&](const Value& v) {
      return reshape(broadcast(reshape(v, {groups, 1}), {groups, each}), {groups * each});
    };
    scale = spread(scale);
    bias = spread(bias);
  }
  c.set(c.add(op::GroupNorm{groups, c.real("epsilon", 1e-5)}, {x, scale, bias}));
}

void lp_normalization(NodeContext& c) {
  c.set(c.add(op::LpNorm{c.integer("axis", -1), c.integer("p", 2)}, {c.in(0)}));
}

void local_response_norm(NodeContext& c) {
  op::LocalResponseNorm attributes{c.integer("size")};
  attributes.alpha = c.real("alpha", 1e-4);
  attributes.beta = c.real("beta", 0.75);
  attributes.bias = c.real("bias", 1);
  c.set(c.add(attributes, {c.in(0)}));
}

// (x - mean) / sqrt(E[x^2] - mean^2 + epsilon), as the standard's function body computes it.
void mean_variance_normalization(NodeContext& c) {
  const Value x = c.in(0);
  const Axes axes = c.integers("axes", {0, 2, 3});
  const Value centre = mean(x, axes, true);
  const Value variance = mean(x * x, axes, true) - centre * centre;
  c.set((x - centre) / (sqrt(variance) + scalar_like(c, x, 1e-9)));
}

// Out of training it hands its input on; in training the ratio must be 0.
void dropout(NodeContext& c) {
  const Value x = c.in(0);
  double ratio = 0;
  c.ignore({"seed", "is_test"});
  if (c.version() < 12) {
    c.ignore({"ratio"});
  } else if (c.has(2)) {
    const auto training = c.known_integers(c.in(2));
    const auto given = c.has(1) ? c.known_reals(c.in(1)) : std::vector<double>{0.5};
    if (!training || !given || training->empty() || given->empty()) {
      fail_unsupported("Whether it trains must be known before it runs.");
    }
    if ((*training)[0] != 0) ratio = (*given)[0];
  }
  if (ratio != 0) fail_unsupported("Dropout in training is not supported.");
  c.set(0, x);
  if (c.wants(1)) {
    const DType dtype = c.version() < 10 ? x.dtype() : boolean;
    c.set(1, filled_like(c, c.scalar(dtype, 1), x));
  }
}

constexpr OpEntry entries[] = {
    {"Softmax", 13, along_axis<op::Softmax>},
    {"Softmax", 1, flattened<op::Softmax>},
    {"LogSoftmax", 13, along_axis<op::LogSoftmax>},
    {"LogSoftmax", 1, flattened<op::LogSoftmax>},
    {"Hardmax", 13, along_axis<op::Hardmax>},
    {"Hardmax", 1, flattened<op::Hardmax>},
    {"BatchNormalization", 1, batch_norm},
    {"InstanceNormalization", 1, instance_norm},
    {"LayerNormalization", 17, layer_normalization},
    {"RMSNormalization", 23, rms_normalization},
    {"GroupNormalization", 18, group_normalization},
    {"LpNormalization", 1, lp_normalization},
    {"LRN", 1, local_response_norm},
    {"Dropout", 1, dropout},
    {"MeanVarianceNormalization", 9, mean_variance_normalization},
};

}  // namespace

OpEntries norm_entries() { return entries; }

}  // namespace rlx::onnx
