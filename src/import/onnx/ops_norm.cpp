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

// What training keeps: the mean as result 1, one over the deviation from it as result 2.
void set_statistics(NodeContext& c, const Value& x, std::int64_t axis, double epsilon) {
  if (!c.wants(1) && !c.wants(2)) return;
  Axes axes;
  for (auto i = axis; i < x.rank(); ++i) axes.push_back(i);
  const Value wide = x.dtype() == f64 ? x : cast(x, f32);
  const Value centre = mean(wide, axes, true), centred = wide - centre;
  c.set(1, centre);
  c.set(2, rsqrt(mean(centred * centred, axes, true) + scalar_like(c, wide, epsilon)));
}

void layer_normalization(NodeContext& c) {
  const Value x = c.in(0);
  const auto axis = normal_axis(c.integer("axis", -1), x.rank());
  const double epsilon = c.real("epsilon", 1e-5);
  c.ignore({"stash_type"});
  c.set(0, c.add(op::LayerNorm{axis, epsilon}, {x, c.optional(1), c.optional(2)}));
  set_statistics(c, x, axis, epsilon);
}

// ONNX Runtime's name of it has one over the root of the mean square, which training keeps, as
// another result.
void rms_normalization(NodeContext& c) {
  const Value x = c.in(0);
  const auto axis = normal_axis(c.integer("axis", -1), x.rank());
  c.ignore({"stash_type"});
  if (c.wants(1)) fail_unsupported("Its result for training is not supported.");
  c.set(c.add(op::RmsNorm{axis, c.real("epsilon", 1e-5)}, {x, c.in(1)}));
}

constexpr double least_variance = 1e-12;  // of ONNX Runtime's fused norms

// ONNX Runtime's: (x, skip, scale, bias?, bias of the sum?); the sum is result 3.
void skip_layer_normalization(NodeContext& c) {
  Value sum = c.in(0) + c.in(1);
  if (c.has(4)) sum = sum + c.in(4);
  const double epsilon = c.real("epsilon", least_variance);
  c.set(0, c.add(op::LayerNorm{-1, epsilon}, {sum, c.in(2), c.optional(3)}));
  set_statistics(c, sum, sum.rank() - 1, epsilon);
  c.set(3, sum);
}

// ONNX Runtime's: (x, skip, scale, bias of the sum?)
void skip_rms_normalization(NodeContext& c) {
  Value sum = c.in(0) + c.in(1);
  if (c.has(3)) sum = sum + c.in(3);
  if (c.wants(1) || c.wants(2)) fail_unsupported("Its results for training are not supported.");
  c.set(0, c.add(op::RmsNorm{-1, c.real("epsilon", least_variance)}, {sum, c.in(2)}));
  c.set(3, sum);
}

// ONNX Runtime's embeddings of BERT: of words, places and segments, as they are or as bytes.
struct Tables {
  Value words, places, segments, scale, bias;
};

void embed_layer_normalization(NodeContext& c, const Tables& tables, int place_input) {
  const Value ids = c.in(0);
  require_rank(ids, 2);
  const Value places = place_input >= 0 && c.has(place_input)
                           ? c.in(place_input)
                           : c.add(op::Iota{i64, {ids.shape()[1]}, 0}, {});
  Value sum = gather(tables.words, ids) + gather(tables.places, places);
  if (tables.segments) sum = sum + gather(tables.segments, c.in(1));
  c.set(0, c.add(op::LayerNorm{-1, c.real("epsilon", least_variance)},
                 {sum, tables.scale, tables.bias}));
  if (c.wants(1)) {
    // How many words the mask lets through.
    const Value none = broadcast(c.scalar(i32, 0), {ids.shape()[0]});
    const Value mask = c.optional(7);
    const Value seen = mask ? cast(equal(mask, scalar_like(c, mask, 1)), i32) : Value();
    c.set(1, mask ? rlx::sum(seen, {1}) : none);
  }
  c.set(2, sum);
}

// (ids, segments?, tables of words, places, segments?, scale, bias, mask?, places?)
void embed_layer_normalization_node(NodeContext& c) {
  c.ignore({"mask_index_type"});
  embed_layer_normalization(c, {c.in(2), c.in(3), c.optional(4), c.in(5), c.in(6)}, 8);
}

// The same of bytes, whose scales are inputs 8 to 12 and zero points 13 to 17.
void quantised_embed_layer_normalization(NodeContext& c) {
  const auto real = [&](int i) {
    if (!c.has(i)) return Value();
    return c.add(op::Dequantize{},
                 {c.in(i), scalar_if_single(c.in(i + 6)), scalar_if_single(c.optional(i + 11))});
  };
  embed_layer_normalization(c, {real(2), real(3), real(4), real(5), real(6)}, -1);
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
    {"LayerNormalization", 1, layer_normalization},  // ONNX Runtime writes it for older opsets, too
    {"RMSNormalization", 23, rms_normalization},
    {"SimplifiedLayerNormalization", 1, rms_normalization},
    {"SkipLayerNormalization", 1, skip_layer_normalization, onnx_runtime},
    {"SkipSimplifiedLayerNormalization", 1, skip_rms_normalization, onnx_runtime},
    {"EmbedLayerNormalization", 1, embed_layer_normalization_node, onnx_runtime},
    {"QEmbedLayerNormalization", 1, quantised_embed_layer_normalization, onnx_runtime},
    {"GroupNormalization", 18, group_normalization},
    {"LpNormalization", 1, lp_normalization},
    {"LRN", 1, local_response_norm},
    {"Dropout", 1, dropout},
    {"MeanVarianceNormalization", 9, mean_variance_normalization},
};

}  // namespace

OpEntries norm_entries() { return entries; }

}  // namespace rlx::onnx
