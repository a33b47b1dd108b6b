// Where values lie: slices that kernels walk through side by side do not share the sets of a cache.
#include "plan/placement.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "computed.hpp"
#include "plan/build.hpp"
#include "rlx/rlx.hpp"

namespace rlx::plan {
namespace {

using testing::expect_computed;

constexpr std::int64_t slices = 16;

/// Products of `rows` rows of 128 columns, and the sum of the first `summed` of them.
Graph summed_slices(std::int64_t rows, std::int64_t summed) {
  Graph graph;
  const Value a = graph.input("a", f32, {slices, rows, 32}),
              b = graph.input("b", f32, {slices, 32, 128});
  const Value products = matmul(a, b);
  Value sum = slice(products, {0, 0, 0}, {1, rows, 128});
  for (std::int64_t i = 1; i < summed; ++i)
    sum = sum + slice(products, {i, 0, 0}, {i + 1, rows, 128});
  graph.output("y", sum);
  return graph;
}

/// As many values side by side, then multiplied; and summed.
Graph stacked_slices(std::int64_t rows) {
  Graph graph;
  const Value x = graph.input("x", f32, {1, rows, 128}),
              b = graph.input("b", f32, {slices, 128, 8});
  Values parts;
  for (std::int64_t i = 0; i < slices; ++i)
    parts.push_back(x * graph.constant(f32, 1 + static_cast<double>(i)));
  const Value stack = concat(parts, 0);
  Value sum = slice(stack, {0, 0, 0}, {1, rows, 128});
  for (std::int64_t i = 1; i < slices; ++i) sum = sum + slice(stack, {i, 0, 0}, {i + 1, rows, 128});
  graph.output("y", matmul(stack, b));
  graph.output("sum", sum);
  return graph;
}

/// The buffer of the largest value whose op has that name, in elements beyond the value's own.
std::int64_t gaps(const Graph& graph, std::string_view op) {
  const FlatGraph flat = flatten(graph).value();
  const Regions regions = form_regions(flat, {});
  const Placement placement(flat, regions, 1);
  std::int64_t found = 0;
  for (std::size_t i = 0; i < flat.graph.nodes().size(); ++i) {
    const Node& node = flat.graph.nodes()[i];
    if (node.op.name() != op) continue;
    const ValueId id{static_cast<std::int32_t>(i), 0};
    found = std::max(found, placement.elements(id) - node.results[0].elements());
  }
  return found;
}

TEST(Placement, slices_a_multiple_of_pages_apart_get_a_line_between_them) {
  constexpr std::int64_t line = 16;
  EXPECT_EQ(gaps(summed_slices(8, slices), "dot_general"), slices * line);
  EXPECT_EQ(gaps(stacked_slices(8), "concat"), slices * line);
}

TEST(Placement, other_slices_lie_close) {
  EXPECT_EQ(gaps(summed_slices(9, slices), "dot_general"), 0);  // in other sets already
  EXPECT_EQ(gaps(summed_slices(8, 8), "dot_general"), 0);       // as many as a set has ways
  EXPECT_EQ(gaps(stacked_slices(9), "concat"), 0);
  Graph output;  // the caller's memory has no gaps
  const Value products =
      matmul(output.input("a", f32, {slices, 8, 32}), output.input("b", f32, {slices, 32, 128}));
  Value sum = slice(products, {0, 0, 0}, {1, 8, 128});
  for (std::int64_t i = 1; i < slices; ++i) sum = sum + slice(products, {i, 0, 0}, {i + 1, 8, 128});
  output.output("sum", sum);
  output.output("all", products);
  EXPECT_EQ(gaps(output, "dot_general"), 0);
}

TEST(Placement, programs_with_gaps_compute_the_same) {
  for (const Graph& graph : {summed_slices(8, slices), stacked_slices(8)}) expect_computed(graph);
}

/// relu(a), a depthwise convolution over so many taps on a side, and both joined or not.
Graph seen_through_windows(std::int64_t channels, std::int64_t taps, bool joined) {
  Graph graph;
  const Value a = relu(graph.input("a", f32, {2, 6, 5, channels})),
              w = testing::weight(graph, {taps, taps, 1, channels}, 3);
  const op::Conv conv{.pad_low = {taps / 2, taps / 2},
                      .pad_high = {taps / 2, taps / 2},
                      .groups = channels,
                      .channels_last = true};
  const Value seen = graph.add_one(conv, {a, w});
  graph.output("y", relu(joined ? concat({a, seen}, 3) : seen) * graph.constant(f32, 0.5));
  return graph;
}

/// Elements that the weights of the graph take beyond their own.
std::int64_t gaps_of_taps(const Graph& graph, std::int64_t elements) {
  const Plan plan = build_plan(flatten(graph).value(), {}).value();
  std::int64_t found = 0;
  for (const BufferPlan& buffer : plan.buffers)
    if (buffer.storage == Storage::weight && buffer.elements >= elements)
      found = std::max(found, buffer.elements - elements);
  return found;
}

TEST(Placement, points_that_windows_see_together_get_a_line_between_them) {
  constexpr std::int64_t line = 16, points = 2 * 6 * 5;
  EXPECT_EQ(gaps(seen_through_windows(512, 5, false), "relu"), points * line);
  EXPECT_EQ(gaps(seen_through_windows(528, 5, false), "relu"), 0);  // in other sets already
  EXPECT_EQ(gaps(seen_through_windows(512, 1, false), "relu"), 0);  // five points at a time
  // Where the image is a part of another one, that has them.
  EXPECT_EQ(gaps(seen_through_windows(256, 5, true), "relu"), 0);
  EXPECT_EQ(gaps(seen_through_windows(256, 5, true), "concat"), points * line);
  // And so have taps, which all points read again.
  EXPECT_EQ(gaps_of_taps(seen_through_windows(512, 5, false), 25 * 512), 25 * line);
  EXPECT_EQ(gaps_of_taps(seen_through_windows(512, 3, false), 9 * 512), 0);
  EXPECT_EQ(gaps_of_taps(seen_through_windows(1024, 3, false), 9 * 1024), 9 * line);
}

TEST(Placement, windows_over_points_with_gaps_compute_the_same) {
  for (const std::int64_t channels : {256, 512, 1024}) {
    for (const bool joined : {false, true})
      expect_computed(seen_through_windows(channels, 5, joined));
  }
}

/// An output in another order is stored so by the map that makes it.
TEST(Placement, outputs_are_stored_in_their_order) {
  const auto expect_kernels = [](const Graph& graph, int count) {
    Session session(Device::cpu, {.threads = 1});
    EXPECT_EQ(session.compile(graph, {}).value().report().kernels, count);
    expect_computed(graph);
  };
  for (const std::int64_t rows : {3, 17, 200}) {
    SCOPED_TRACE(rows);
    Graph map, part, twice, read, product;
    map.output("y", transpose(exp(map.input("x", f32, {rows, 2, 300})), {1, 2, 0}));
    expect_kernels(map, rows < 16 ? 2 : 1);  // fewer fill no tile
    // A part of a value, a value and itself turned, and one that a kernel reads: copies.
    part.output(
        "y", slice(transpose(exp(part.input("x", f32, {rows, 30})), {1, 0}), {1, 0}, {30, rows}));
    expect_kernels(part, 2);
    const Value both = exp(twice.input("x", f32, {rows, 30}));
    twice.output("x", both);
    twice.output("y", transpose(both, {1, 0}));
    expect_kernels(twice, 2);
    const Value first = exp(read.input("x", f32, {rows, 30}));
    read.output("y", transpose(first, {1, 0}));
    read.output("z", matmul(first, read.input("w", f32, {30, 5})));
    expect_kernels(read, 3);
    // Kernels that would store lane by lane.
    const Value a = product.input("a", f32, {rows, 20}), b = product.input("b", f32, {20, 30});
    product.output("y", transpose(matmul(a, b), {1, 0}));
    expect_kernels(product, 2);
  }
}

/// A copy that is a part of a concatenation is made where it belongs.
TEST(Placement, copies_are_made_within_concatenations) {
  Graph graph;
  const Value x = relu(graph.input("x", f32, {3, 5, 8})), y = graph.input("y", f32, {6, 5, 8});
  const Value twice = reshape(broadcast(reshape(x, {3, 1, 5, 8}), {3, 2, 5, 8}), {6, 5, 8});
  graph.output("z", relu(concat({twice, y}, 2)));
  Session session(Device::cpu, {.threads = 1});
  const CompiledGraph program = session.compile(graph, {.disable_fusion = true}).value();
  // Two maps, the copy, the part y.
  EXPECT_EQ(program.explain().value().kernels.size(), 4u);
  expect_computed(graph);
}

/// A copy alone moves elements of any type, also such as no kernel computes with.
TEST(Placement, copies_of_complex_numbers_are_made) {
  Graph graph;
  const Value x = graph.input("x", c64, {3, 4, 5});
  const Tensor twice = Tensor::of<std::int64_t>({6}, {0, 0, 1, 1, 2, 2});
  graph.output("turned", reshape(transpose(x, {1, 0, 2}), {12, 5}));
  graph.output("repeated", gather(x, graph.constant(twice), 0));
  const std::vector<Tensor> inputs = testing::noise_inputs(graph);
  const std::vector<Tensor> wanted = evaluate_graph(graph, inputs).value();
  Session session(Device::cpu);
  CompiledGraph program = session.compile(graph, {}).value();
  const Outputs found = program.run({{"x", inputs[0]}}).value();
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    ASSERT_EQ(found[k].bytes(), wanted[k].bytes());
    EXPECT_EQ(
        std::memcmp(found[k].data(), wanted[k].data(), static_cast<std::size_t>(wanted[k].bytes())),
        0)
        << k;
  }
}

/// Concatenations, and copies by reshaping what was turned, of each other in any order: what holds
/// the parts of another value stays where it is.
class Copies {
 public:
  explicit Copies(unsigned seed) : random_(seed) {}

  Graph graph() {
    Graph graph;
    for (const char* name : {"a", "b", "c"})
      values_.push_back(relu(graph.input(name, f32, {2, 3, 4, 5})));
    for (int step = 0; step < 9; ++step) values_.push_back(next());
    for (std::size_t i = 3; i < values_.size(); ++i)
      if (below(3) > 0) graph.output("y" + std::to_string(i), values_[i] + values_[i]);
    graph.output("last", relu(values_.back()));
    return graph;
  }

 private:
  Value next() {
    const Value x = any();
    switch (below(4)) {
      case 0: return relu(x);
      case 1: return concat({x, any_like(x)}, static_cast<std::int64_t>(below(x.type().rank())));
      default: return turned_copy(x);
    }
  }
  Value turned_copy(const Value& x) {
    Axes perm(static_cast<std::size_t>(x.type().rank()));
    std::iota(perm.begin(), perm.end(), 0);
    std::ranges::shuffle(perm, random_);
    const Value turned = transpose(x, perm);
    const Dims dims = turned.type().dims();
    // Two axes as one, and a new one in front.
    const std::size_t at = below(static_cast<std::int64_t>(dims.size()) - 1);
    Shape shape;
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (i == at + 1) {
        shape.back() = Dim(dims[at] * dims[i]);
      } else {
        shape.emplace_back(dims[i]);
      }
    }
    shape.insert(shape.begin(), Dim(1));
    return reshape(turned, shape);
  }
  Value any() { return values_[below(static_cast<std::int64_t>(values_.size()))]; }
  /// Of the same shape: another one where there is one.
  Value any_like(const Value& x) {
    for (int tries = 0; tries < 8; ++tries) {
      const Value other = any();
      if (other.type() == x.type() && other.id() != x.id()) return other;
    }
    return relu(x);
  }
  std::size_t below(std::int64_t count) {
    return static_cast<std::size_t>(random_() % static_cast<unsigned>(count));
  }

  std::mt19937 random_;
  Values values_;
};

TEST(Placement, copies_of_copies_compute_the_same) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    expect_computed(Copies(seed).graph());
  }
}

/// x + exp(w)^T, of so many columns.
Graph sum_with_turned(std::int64_t columns) {
  Graph graph;
  const Value x = graph.input("x", f32, {3, 32, columns});
  graph.output("y", x + transpose(exp(testing::weight(graph, {columns, 32}, 1)), {1, 0}));
  return graph;
}

// Lanes read a small weight side by side, whichever way the graph shows it.
TEST(Placement, small_weights_are_kept_as_maps_read_them) {
  for (const std::int64_t columns : {48, 16384}) {
    const Graph graph = sum_with_turned(columns);
    const Plan plan = build_plan(flatten(graph).value(), {}).value();
    ASSERT_EQ(plan.kernels.size(), 1U);
    ASSERT_EQ(plan.weights.size(), 1U);
    const bool is_small = columns * 32 * 4 <= 1 << 20;
    EXPECT_EQ(plan.weights[0].view.is_turned(), is_small);
    for (const loop::Access& access : std::get<loop::Nest>(plan.kernels[0].body).accesses)
      EXPECT_EQ(access.strides.back(), is_small || access.buffer == 0 ? 1 : 32);
    expect_computed(graph);
  }
}

}  // namespace
}  // namespace rlx::plan
