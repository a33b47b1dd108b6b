// The law of larger shapes: of the same op they are never predicted to take less, by more than what
// fits registers better may gain.
#include <gtest/gtest.h>

#include <algorithm>

#include "cost/presets.hpp"
#include "passes/passes.hpp"
#include "plan/build.hpp"
#include "plan/regions.hpp"
#include "rlx/rlx.hpp"

namespace rlx::plan {
namespace {

/// As `Session::compile` plans it, apart from forms that need a device.
double predicted_ns(Graph graph, const cost::MachineModel& model, int threads) {
  graph = passes::lower(std::move(graph), [](const Graph&, const Node& node) {
            return node.op.is<op::Attention>();
          }).value();
  graph = passes::canonicalise(std::move(graph)).value();
  graph = passes::channels_last(graph).value();
  graph = passes::drop_dead(passes::simplify(std::move(graph)).value()).value();
  BuildOptions options;
  options.target = cost::zen5_target;
  options.model = model;
  options.threads = threads;
  return build_plan(flatten(graph).value(), options).value().predicted_ns;
}

/// What `build` makes of a size, for sizes that grow.
template <class Build>
void expect_no_less(const char* name, const Build& build, const std::vector<std::int64_t>& sizes) {
  constexpr double as_large = 0.9;
  for (const cost::MachineModel& model :
       {cost::model_of_zen4(), cost::model_of_zen5(), cost::model_of_rapids(true)}) {
    for (const int threads : {1, 2}) {
      double most = 0;
      for (const std::int64_t size : sizes) {
        Graph graph;
        graph.output("y", build(graph, size));
        const double ns = predicted_ns(std::move(graph), model, threads);
        EXPECT_GE(ns, most * as_large)
            << name << " of " << size << " on " << model.family << ", threads " << threads;
        most = std::max(most, ns);
      }
    }
  }
}

using ImageOp = Value (*)(Value);

Value convolved(Value x, std::int64_t channels, op::Conv attributes) {
  const std::int64_t of = x.shape()[1].value() / attributes.groups;
  attributes.pad_low = attributes.pad_high = {1, 1};
  return conv(x, x.graph().param("w", f32, {channels, of, 3, 3}), attributes);
}

TEST(ShapeLaws, LargerImagesTakeNoLess) {
  struct Case {
    const char* name;
    ImageOp op;
    // Rows that end inside of a register, or of a line, take longer than the next whole ones: 12
    // channels of a depthwise convolution twice as long as 16.
    bool whole_registers = false;
  };
  const Case cases[] = {
      {"conv", [](Value x) { return convolved(x, x.shape()[1].value(), {}); }},
      {"strided conv", [](Value x) { return convolved(x, 24, {.strides = {2, 2}}); }},
      {"depthwise",
       [](Value x) {
         const std::int64_t channels = x.shape()[1].value();
         return convolved(x, channels, {.groups = channels});
       },
       true},
      {"pool",
       [](Value x) {
         return x.graph().add_one(
             op::WindowReduce{.kind = Reduction::max, .window = {2, 2}, .strides = {2, 2}}, {x});
       }},
      {"mean", [](Value x) { return reduce(x, Reduction::mean, {2, 3}, false); }},
      {"maximum of channels", [](Value x) { return reduce(x, Reduction::max, {1}, false); }},
      {"softmax of channels", [](Value x) { return softmax(x, {.axis = 1}); }},
      {"channels last", [](Value x) { return transpose(x, {0, 2, 3, 1}); }, true},
      {"joined", [](Value x) { return concat({x, relu(x)}, 1); }},
      {"padded", [](Value x) { return pad(x, {0, 0, 1, 1}, {0, 0, 1, 1}); }},
  };
  for (const auto& [name, op, whole_registers] : cases) {
    const auto of_pixels = [op = op](Graph& graph, std::int64_t pixels) {
      return op(graph.input("x", f32, {1, 32, pixels, pixels}));
    };
    const auto of_channels = [op = op](Graph& graph, std::int64_t channels) {
      return op(graph.input("x", f32, {1, channels, 28, 28}));
    };
    expect_no_less(name, of_pixels, {4, 7, 14, 20, 33, 56, 112});
    expect_no_less(name, of_channels,
                   whole_registers ? std::vector<std::int64_t>{16, 32, 48, 64, 128, 256}
                                   : std::vector<std::int64_t>{3, 8, 16, 30, 48, 64, 130, 256});
  }
}

// Dilated so far that only the middle one of nine taps meets the image, which is all that is read
// of the weights (atrous pyramids).
TEST(ShapeLaws, TapsThatLieOutsideTakeLittle) {
  const auto pyramid = [](Graph& graph, std::int64_t taps) {
    op::Conv attributes{.dilations = {12, 12}};
    attributes.pad_low = attributes.pad_high = Axes(2, taps == 3 ? 12 : 0);
    const Value x =
        conv(graph.input("x", f32, {1, 8, 10, 10}), graph.param("first", f32, {960, 8, 1, 1}));
    return relu(conv(x, graph.param("w", f32, {256, 960, taps, taps}), attributes));
  };
  for (const cost::MachineModel& model :
       {cost::model_of_zen4(), cost::model_of_zen5(), cost::model_of_rapids(true)}) {
    Graph one, nine;
    one.output("y", pyramid(one, 1));
    nine.output("y", pyramid(nine, 3));
    const double least = predicted_ns(std::move(one), model, 1);
    const double ns = predicted_ns(std::move(nine), model, 1);
    EXPECT_GE(ns, least) << model.family;
    EXPECT_LE(ns, 1.5 * least) << model.family;
  }
}

TEST(ShapeLaws, LongerSequencesTakeNoLess) {
  const std::vector<std::int64_t> lengths{1, 4, 16, 33, 64, 128, 300, 1024};
  expect_no_less(
      "attention",
      [](Graph& graph, std::int64_t length) {
        const Value x = graph.input("x", f32, {1, 4, length, 64});
        return attention(x, x, x);
      },
      lengths);
  expect_no_less(
      "gather",
      [](Graph& graph, std::int64_t length) {
        return gather(graph.param("table", f32, {1000, 96}), graph.input("ids", i64, {length}));
      },
      lengths);
  expect_no_less(
      "layer norm",
      [](Graph& graph, std::int64_t length) {
        const Value x = graph.input("x", f32, {length, 96});
        return layer_norm(x, graph.param("scale", f32, {96}), graph.param("bias", f32, {96}));
      },
      lengths);
  expect_no_less(
      "running sum",
      [](Graph& graph, std::int64_t length) {
        return graph.add_one(op::Cumulative{.axis = 1}, {graph.input("x", f32, {8, length})});
      },
      lengths);
  expect_no_less(
      "positions",
      [](Graph& graph, std::int64_t length) {
        return graph.add_one(op::ArgReduce{.axis = 1}, {graph.input("x", f32, {length, 200})});
      },
      lengths);
}

/// One root for each row of 64, where registers take twenty cycles for theirs.
TEST(ShapeLaws, ARootOfARowIsNotThatOfARegister) {
  const auto ns_of = [&](bool root) {
    Graph graph;
    const Value x = graph.input("x", f32, {1000, 64});
    const Value centred = x - reduce(x, Reduction::mean, {1}, true);
    const Value variance = reduce(centred * centred, Reduction::mean, {1}, true);
    graph.output("y", centred * (root ? rsqrt(variance) : variance));
    return predicted_ns(std::move(graph), cost::model_of_rapids(true), 1);
  };
  EXPECT_GE(ns_of(true), ns_of(false));
  EXPECT_LT(ns_of(true), 1.2 * ns_of(false));
}

}  // namespace
}  // namespace rlx::plan
