// Transforms of Winograd's tiles as kernels: what joins them, where their points lie, what they
// compute.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../cost/presets.hpp"
#include "computed.hpp"
#include "cost/kernel_cost.hpp"
#include "graph/winograd.hpp"
#include "plan/build.hpp"
#include "plan/placement.hpp"
#include "rlx/rlx.hpp"

namespace rlx::plan {
namespace {

using testing::expect_computed;

/// What a layer by points does behind its products, for [2, 8, 12, channels] or a part of it.
using Behind = std::function<Value(Graph&, Value)>;

Graph layer(std::int64_t outputs, std::int64_t channels, const Behind& behind,
            bool by_rows = false) {
  Graph graph;
  const Value x = graph.input("x", f32, {2, 10, 14, channels});
  const std::int64_t points = (outputs + 2) * (outputs + 2);
  const Value w = testing::weight(graph, {points, channels, channels}, 3);
  const Value products = matmul(graph.add_one(op::WinogradImage{outputs}, {x}), w);
  const op::WinogradOutputs results{
      .outputs = outputs, .rows = 8 / outputs, .columns = 12 / outputs, .by_rows = by_rows};
  const Value y = graph.add_one(results, {products});
  graph.output("y", behind(graph, y));
  return graph;
}

/// The same with zeros around images that end within tiles, on both sides of the products.
Graph layer_with_borders(std::int64_t outputs, std::int64_t channels, const Behind& behind,
                         bool by_rows = false) {
  Graph graph;
  const Value x = graph.input("x", f32, {2, 7, 13, channels});
  const std::int64_t points = (outputs + 2) * (outputs + 2);
  const Value w = testing::weight(graph, {points, channels, channels}, 3);
  const op::WinogradImage image{.outputs = outputs, .low = {1, 0}, .high = {2, 1}};
  const Value products = matmul(graph.add_one(image, {x}), w);
  const op::WinogradOutputs results{.outputs = outputs,
                                    .rows = 8 / outputs,
                                    .columns = 12 / outputs,
                                    .cut = {1, outputs - 1},
                                    .by_rows = by_rows};
  graph.output("y", behind(graph, graph.add_one(results, {products})));
  return graph;
}

Value residual(Graph& graph, Value y) {
  const Value bias = testing::weight(graph, {19}, 5);
  const Shape columns{2, 1, y.shape()[2], 1};
  return relu(y + bias + graph.input("r", f32, y.shape())) * graph.input("s", f32, columns);
}

/// Values that kernels fetch at places that depend on the point, at each pixel of a tile.
Value picked(Graph& graph, Value y) {
  const std::int64_t height = y.shape()[1].value(), width = y.shape()[2].value();
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < height; ++row) rows.push_back(row * 5 % height);
  const Value table = graph.input("t", f32, y.shape());
  const Value border =
      pad(graph.input("p", f32, {2, height - 3, width - 3, 19}), {0, 2, 1, 0}, {0, 1, 2, 0});
  const Tensor picks = Tensor::of<std::int64_t>({height}, std::span<const std::int64_t>(rows));
  return y + gather(table, graph.constant(picks), 1) + border;
}

TEST(Tiles, what_follows_at_the_same_pixels_joins_the_transform) {
  const Graph graph = layer(4, 19, residual);
  const FlatGraph flat = flatten(graph).value();
  const Regions regions = form_regions(flat, {});
  ASSERT_EQ(regions.list.size(), 3u);  // the image, the products, the outputs with their maps
  EXPECT_EQ(regions.list[0].kind, Region::Kind::tiles);
  EXPECT_EQ(regions.list[2].kind, Region::Kind::tiles);
  EXPECT_GE(regions.list[2].nodes.size(), 5u);
}

Value nothing(Graph&, Value y) { return y; }
Value sum_of_channels(Graph&, Value y) { return reduce(y, Reduction::sum, {3}); }

TEST(Tiles, compute_what_the_reference_does) {
  for (const bool by_rows : {false, true}) {
    for (const std::int64_t outputs : {2, 4}) {
      expect_computed(layer(outputs, 19, residual, by_rows), 2e-3);
      expect_computed(layer(outputs, 19, picked, by_rows), 2e-3);
      expect_computed(layer(outputs, 19, sum_of_channels, by_rows), 5e-3);
    }
  }
}

TEST(Tiles, compute_what_the_reference_does_at_borders) {
  for (const bool by_rows : {false, true}) {
    for (const std::int64_t outputs : {2, 4}) {
      for (const std::int64_t channels : {19, 64})
        expect_computed(layer_with_borders(outputs, channels, nothing, by_rows), 2e-3);
      expect_computed(layer_with_borders(outputs, 19, residual, by_rows), 2e-3);
      expect_computed(layer_with_borders(outputs, 19, picked, by_rows), 2e-3);
    }
  }
}

/// Every second pixel and row of a window, 5 x 5 points for 2 x 2 results.
TEST(Tiles, compute_what_the_reference_does_with_stride_2) {
  for (const bool by_rows : {false, true}) {
    Graph graph;
    const Value x = graph.input("x", f32, {2, 15, 23, 19});
    const Value w = testing::weight(graph, {25, 19, 21}, 3);
    const op::WinogradImage image{.outputs = 2, .stride = 2, .low = {1, 1}, .high = {1, 1}};
    const Value products = matmul(graph.add_one(image, {x}), w);
    const op::WinogradOutputs results{
        .outputs = 2, .rows = 4, .columns = 6, .stride = 2, .cut = {0, 1}, .by_rows = by_rows};
    graph.output("y", relu(graph.add_one(results, {products})));
    expect_computed(graph, 2e-3);
  }
}

/// 29 columns of tiles, cut where the image ends; with so many channels in three strips a row.
Graph wide_layer(std::int64_t channels, bool by_rows = true) {
  Graph graph;
  const Value x = graph.input("x", f32, {1, 7, 117, channels});
  const Value w = testing::weight(graph, {36, channels, channels}, 3);
  const op::WinogradImage image{.outputs = 4, .low = {1, 1}, .high = {2, 0}};
  const Value products = matmul(graph.add_one(image, {x}), w);
  const op::WinogradOutputs results{
      .outputs = 4, .rows = 2, .columns = 29, .cut = {1, 3}, .by_rows = by_rows};
  graph.output("y", relu(graph.add_one(results, {products})));
  return graph;
}

TEST(Tiles, compute_what_the_reference_does_in_strips) { expect_computed(wide_layer(130), 2e-2); }

TEST(Tiles, strips_are_as_wide_as_caches_hold) {
  const FlatGraph flat = flatten(wide_layer(64)).value();
  const auto strips = [&](std::int64_t l2_bytes) {
    BuildOptions options;
    options.target = cost::zen5_target;
    options.model = cost::model_of_zen5();
    options.model.cache_bytes[1] = l2_bytes;
    const Plan plan = build_plan(flat, options).value();
    EXPECT_EQ(plan.steps.size(), 1u);
    const auto& kernel = plan.kernels.at(0);
    for (const loop::Buffer& buffer : kernel.buffers)
      EXPECT_TRUE(!buffer.local || buffer.elements * 4 < std::max<std::int64_t>(l2_bytes, 600'000));
    return std::get<loop::Strips>(kernel.body).count();
  };
  EXPECT_EQ(strips(8 << 20), 2);  // rows of tiles
  EXPECT_EQ(strips(1 << 20), 6);  // no narrower than 14 columns, which take a third strip
}

/// Products over other axes than points, and images that are put together otherwise, take the
/// ordinary way; axes may count from the end.
TEST(Tiles, only_rows_of_the_same_tiles_are_one_kernel) {
  const auto layer_of = [](const op::DotGeneral& dot, std::int64_t rows, std::int64_t columns) {
    Graph graph;
    const Value x = graph.input("x", f32, {1, 10, 14, 6});
    const Value points = graph.add_one(op::WinogradImage{4}, {x});
    const Value w = testing::weight(graph, {36, 6, 6}, 3);
    const op::WinogradOutputs results{
        .outputs = 4, .rows = rows, .columns = columns, .by_rows = true};
    graph.output("y", graph.add_one(results, {graph.add_one(dot, {points, w})}));
    return graph;
  };
  const op::DotGeneral plain{{0}, {0}, {2}, {1}}, from_end{{-3}, {-3}, {-1}, {-2}},
      over_tiles{{0}, {0}, {1}, {1}};
  const auto kernels = [](const Graph& graph) {
    return build_plan(flatten(graph).value(), {}).value().steps.size();
  };
  EXPECT_EQ(kernels(layer_of(plain, 2, 3)), 1u);
  EXPECT_EQ(kernels(layer_of(plain, 3, 2)), 3u);
  EXPECT_EQ(kernels(layer_of(over_tiles, 2, 3)), 3u);
  for (const op::DotGeneral& dot : {plain, from_end, over_tiles}) {
    expect_computed(layer_of(dot, 2, 3), 2e-3);
    expect_computed(layer_of(dot, 3, 2), 2e-3);
  }
}

/// Strips are told what their stages take, without the way of points and products through memory,
/// and fall on workers as whole strips.
TEST(Tiles, strips_take_about_as_long_as_their_stages) {
  const auto kernels_ns = [](bool by_rows, int threads) {
    BuildOptions options;
    options.target = cost::zen5_target;
    options.model = cost::model_of_zen5();
    const FlatGraph flat = flatten(wide_layer(64, by_rows)).value();
    const Plan plan = build_plan(flat, options).value();
    double sum = 0;
    for (const loop::Kernel& kernel : plan.kernels)
      sum += cost::predict(kernel, {}, options.model, threads).ns;
    return sum;
  };
  const double apart = kernels_ns(false, 1), strips = kernels_ns(true, 1);
  EXPECT_GT(strips, 0.8 * apart);
  EXPECT_LT(strips, 1.15 * apart);
  const double shared = kernels_ns(true, 2);
  EXPECT_GT(shared, 0.5 * strips);
  EXPECT_LT(shared, 0.55 * strips);
  // Six strips: of four workers two make two.
  EXPECT_NEAR(kernels_ns(true, 4), shared * 2 / 3, 0.03 * shared);
}

/// The three steps are one kernel where nobody else reads what they hand on.
TEST(Tiles, rows_of_tiles_are_one_kernel) {
  const auto names = [](const Graph& graph) {
    std::vector<std::string> list;
    const Plan plan = build_plan(flatten(graph).value(), {}).value();
    for (const Step& step : plan.steps) list.push_back(step.name);
    return list;
  };
  EXPECT_THAT(names(layer(4, 19, residual, true)), ::testing::ElementsAre("winograd"));
  EXPECT_THAT(names(layer(4, 19, residual)), ::testing::ElementsAre("tiles", "matmul", "tiles"));
  Graph twice = layer(4, 19, nothing, true);
  for (std::size_t i = 0; i < twice.nodes().size(); ++i) {
    const Node& node = twice.nodes()[i];
    if (!node.op.is<op::WinogradImage>()) continue;
    twice.output("points", twice.handle({static_cast<std::int32_t>(i), 0}));
    break;
  }
  EXPECT_THAT(names(twice), ::testing::ElementsAre("tiles", "matmul", "tiles"));
}

/// Only what is of a pixel asks whether that is there: a bias is read once for all of them.
TEST(Tiles, what_all_pixels_share_has_no_guards) {
  const Graph graph = layer_with_borders(4, 19, residual);
  const Plan plan = build_plan(flatten(graph).value(), {}).value();
  const auto& nest = std::get<loop::Nest>(plan.kernels.back().body);
  int shared = 0, guarded = 0;
  for (const loop::Access& access : nest.accesses) {
    const bool is_shared = access.strides[1] == 0 && access.strides[2] == 0;
    shared += is_shared;
    guarded += !access.guards.empty();
    EXPECT_TRUE(!is_shared || access.guards.empty());
  }
  EXPECT_EQ(shared, 1);
  EXPECT_GT(guarded, 0);
  EXPECT_TRUE(std::ranges::any_of(
      nest.stores, [](const loop::Store& store) { return !store.access.guards.empty(); }));
}

/// Zeros around an image are no pass over it, and what tiles have too much none over the results.
TEST(Tiles, a_layer_by_points_has_no_pad_and_no_copy) {
  Graph graph;
  const Value x = relu(graph.input("x", f32, {1, 27, 27, 64}));
  const Value w = testing::weight(graph, {3, 3, 64, 64}, 3);
  const op::Conv conv{.pad_low = {1, 1}, .pad_high = {1, 1}, .channels_last = true};
  const Value y = relu(graph.add_one(conv, {x, w}));
  graph.output("y", concat({y, x}, 3));
  Session session(Device::cpu);
  const auto regions = [&](const std::string& how) {
    CompileOptions options;
    options.answers["write conv (0) by Winograd's F(4x4, 3x3)" + how] = true;
    const Explanation explained = session.compile(graph, options).value().explain().value();
    std::vector<std::string> list;
    for (const Explanation::Kernel& kernel : explained.kernels) list.push_back(kernel.region);
    return list;
  };
  EXPECT_THAT(regions(""), ::testing::ElementsAre("relu", "winograd_image", "dot_general",
                                                  "winograd_outputs+relu"));
  EXPECT_THAT(regions(" row by row"),
              ::testing::ElementsAre("relu", "winograd_image+dot_general+winograd_outputs+relu"));
}

BuildOptions machine_of(const codegen::Target& target, const cost::MachineModel& model) {
  BuildOptions options;
  options.target = target;
  options.model = model;
  return options;
}
/// With 32 registers, and with 16.
BuildOptions wide_machine() { return machine_of(cost::zen5_target, cost::model_of_zen5()); }
BuildOptions narrow_machine() {
  return machine_of(cost::zen2_target, cost::model_of_narrow_zen4());
}

/// Products of one image with the weights of two convolutions.
Graph two_layers(std::int64_t channels) {
  Graph graph;
  const Value x = graph.input("x", f32, {2, 10, 14, channels});
  const Value points = graph.add_one(op::WinogradImage{4}, {x});
  for (const std::string name : {"a", "b"}) {
    const Value w = testing::weight(graph, {36, channels, channels}, name == "a" ? 3 : 7);
    const op::WinogradOutputs results{.outputs = 4, .rows = 2, .columns = 3};
    graph.output(name, graph.add_one(results, {matmul(points, w)}));
  }
  return graph;
}

TEST(Tiles, workers_share_out_the_points_that_their_caches_hold) {
  const auto parts_of_image = [](const Graph& graph, const BuildOptions& machine, int threads,
                                 std::int64_t cache_bytes) {
    BuildOptions options = machine;
    options.model.cache_bytes[1] = cache_bytes;
    options.threads = threads;
    const Plan plan = build_plan(flatten(graph).value(), options).value();
    const auto& body = plan.kernels.at(0).body;
    if (const auto* nest = std::get_if<loop::Nest>(&body)) return nest->parts;
    const auto& passes = std::get<loop::Strips>(body).stages;
    const auto& columns = std::get<loop::Nest>(passes[0]);
    const auto& rows = std::get<loop::Nest>(passes[1]);
    EXPECT_EQ(rows.lead, columns.lead + (columns.parts > 1));
    return columns.parts;
  };
  for (const BuildOptions& machine : {wide_machine(), narrow_machine()}) {
    for (const std::int64_t outputs : {2, 4}) {
      const Graph graph = layer(outputs, 130, nothing);
      EXPECT_EQ(parts_of_image(graph, machine, 1, 1 << 20), 1);
      EXPECT_EQ(parts_of_image(graph, machine, 2, 1 << 20), 2);
      EXPECT_EQ(parts_of_image(graph, machine, 2, 1 << 10), 1);
    }
  }
  const Graph two = two_layers(130);
  EXPECT_EQ(parts_of_image(two, narrow_machine(), 2, 1 << 20), 2);
  expect_computed(two, 2e-2);
}

/// Tiles that find no room in registers: along the columns and then along the rows, in blocks of
/// channels that workers share out evenly and of which L2 holds what is made in between.
TEST(Tiles, images_of_large_tiles_take_two_passes) {
  const auto image = [](const Graph& graph, BuildOptions options, int threads,
                        std::int64_t l2_bytes) {
    options.model.cache_bytes[1] = l2_bytes;
    options.threads = threads;
    return build_plan(flatten(graph).value(), options).value().kernels.at(0);
  };
  const auto blocks = [](const loop::Kernel& kernel) {
    const auto& columns = std::get<loop::Nest>(std::get<loop::Strips>(kernel.body).stages.at(0));
    EXPECT_EQ(columns.extents.back() * columns.extents[3], 96);
    return columns.extents[3];
  };
  const auto is_nest = [](const loop::Kernel& kernel) {
    return std::holds_alternative<loop::Nest>(kernel.body);
  };
  const Graph small = layer(2, 96, nothing), large = wide_layer(96, false);
  const BuildOptions narrow = narrow_machine();
  EXPECT_TRUE(is_nest(image(small, narrow, 1, 1 << 20)));
  EXPECT_TRUE(is_nest(image(large, wide_machine(), 1, 1 << 20)));
  EXPECT_EQ(blocks(image(large, narrow, 1, 1 << 20)), 1);
  EXPECT_EQ(blocks(image(large, narrow, 2, 1 << 20)), 1);  // two rows of tiles
  EXPECT_EQ(blocks(image(large, narrow, 3, 1 << 20)), 3);
  EXPECT_EQ(blocks(image(large, narrow, 1, 800 << 10)), 1);
  EXPECT_EQ(blocks(image(large, narrow, 1, 600 << 10)), 2);
  std::int64_t local = 0;
  for (const loop::Buffer& buffer : image(large, narrow, 1, 600 << 10).buffers)
    if (buffer.local) local += buffer.elements;
  // 29 tiles of 4 columns and two more, in six planes an odd number of lines apart.
  EXPECT_EQ(local, 6 * ((29 * 4 + 2) * 48 / 16 + 1) * 16);
}

TEST(Tiles, points_a_multiple_of_pages_apart_get_a_line_between_them) {
  const auto gaps = [](std::int64_t channels) {
    const Graph graph = layer(2, channels, [](Graph&, Value y) { return y; });
    const FlatGraph flat = flatten(graph).value();
    const Regions regions = form_regions(flat, {});
    const Placement placement(flat, regions, 1);
    std::int64_t all = 0;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(flat.graph.nodes().size()); ++i)
      all += placement.elements({i, 0}) - flat.graph.type({i, 0}).elements();
    return all;
  };
  constexpr std::int64_t line = 16, points = 16;
  EXPECT_EQ(gaps(128), 2 * points * line);  // 48 tiles: the points of the image, and the products
  EXPECT_EQ(gaps(9), 0);
}

}  // namespace
}  // namespace rlx::plan
