// Gathers, scatters, one-hot, and results whose number only the data tells.
#include "import/onnx/build.hpp"
#include "import/onnx/families.hpp"

namespace rlx::onnx {
namespace {

void gather_node(NodeContext& c) {
  c.set(c.add(op::Gather{c.integer("axis", 0)}, {c.in(0), c.in(1)}));
}

void gather_elements(NodeContext& c) {
  c.set(c.add(op::GatherElements{c.integer("axis", 0)}, {c.in(0), c.in(1)}));
}

void gather_nd(NodeContext& c) {
  c.set(c.add(op::GatherNd{c.integer("batch_dims", 0)}, {c.in(0), c.in(1)}));
}

ScatterMode scatter_mode(NodeContext& c) {
  const std::string mode = c.text("reduction", "none");
  if (mode == "none") return ScatterMode::assign;
  for (const ScatterMode m :
       {ScatterMode::add, ScatterMode::mul, ScatterMode::min, ScatterMode::max}) {
    if (enum_names(m)[static_cast<std::size_t>(m)] == mode) return m;
  }
  fail("The reduction ({}) is unknown.", mode);
}

void scatter_elements(NodeContext& c) {
  const op::ScatterElements attributes{c.integer("axis", 0), scatter_mode(c)};
  c.set(c.add(attributes, {c.in(0), c.in(1), c.in(2)}));
}

void scatter_nd(NodeContext& c) {
  c.set(c.add(op::ScatterNd{scatter_mode(c)}, {c.in(0), c.in(1), c.in(2)}));
}

void one_hot(NodeContext& c) {
  const Value indices = c.in(0).dtype() == i64 ? c.in(0) : cast(c.in(0), i64);
  const auto axis = c.integer("axis", -1);
  const auto depth = c.known_reals(c.in(1));
  if (depth && depth->size() == 1) {
    const op::OneHot attributes{axis, static_cast<std::int64_t>((*depth)[0])};
    c.set(c.add(attributes, {indices, c.in(2)}));
    return;
  }
  c.set(c.add(op::DynamicOneHot{axis}, {indices, cast(c.in(1), i64), c.in(2)}));
}

// Row t of sequence b comes from row length - 1 - t while t lies inside the length.
void reverse_sequence(NodeContext& c) {
  const Value x = c.in(0);
  const auto time = normal_axis(c.integer("time_axis", 0), x.rank());
  const auto batch = normal_axis(c.integer("batch_axis", 1), x.rank());
  if (time == batch) fail("Time and batch lie on the same axis ({}).", time);
  Shape along_batch(static_cast<std::size_t>(x.rank()), Dim(1));
  along_batch[static_cast<std::size_t>(batch)] = x.shape()[static_cast<std::size_t>(batch)];
  const Value lengths = reshape(cast(c.in(1), i64), along_batch);
  const Value steps = c.add(op::Iota{i64, x.shape(), time}, {});
  const Value reversed = lengths - c.scalar(i64, 1) - steps;
  c.set(c.add(op::GatherElements{time}, {x, select(less(steps, lengths), reversed, steps)}));
}

void non_zero(NodeContext& c) { c.set(c.add(op::NonZero{}, {c.in(0)})); }

void compress(NodeContext& c) {
  op::Compress attributes;
  if (c.has_attribute("axis")) attributes.axis = c.integer("axis");
  c.set(c.add(attributes, {c.in(0), c.in(1)}));
}

void unique(NodeContext& c) {
  op::Unique attributes;
  if (c.has_attribute("axis")) attributes.axis = c.integer("axis");
  attributes.sorted = c.flag("sorted", true);
  const Values results = c.add_all(attributes, {c.in(0)});
  for (std::size_t i = 0; i < results.size(); ++i) c.set(static_cast<int>(i), results[i]);
}

void non_max_suppression(NodeContext& c) {
  const op::NonMaxSuppression attributes{c.flag("center_point_box")};
  c.set(c.add(attributes, {c.in(0), c.in(1), c.optional(2), c.optional(3), c.optional(4)}));
}

constexpr OpEntry entries[] = {
    {"Gather", 1, gather_node},
    {"GatherElements", 11, gather_elements},
    {"GatherND", 11, gather_nd},
    {"Scatter", 9, scatter_elements},
    {"ScatterElements", 11, scatter_elements},
    {"ScatterND", 11, scatter_nd},
    {"OneHot", 9, one_hot},
    {"ReverseSequence", 10, reverse_sequence},
    {"NonZero", 9, non_zero},
    {"Compress", 9, compress},
    {"Unique", 11, unique},
    {"NonMaxSuppression", 10, non_max_suppression},
};

}  // namespace

OpEntries index_entries() { return entries; }

}  // namespace rlx::onnx
