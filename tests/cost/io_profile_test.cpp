// IO profiles of graphs, benefits, the gate: golden values 1 to 4 of the specification, and laws.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "rlx/rlx.hpp"

namespace rlx {
namespace {

using ::testing::HasSubstr;

Graph fft_graph() {
  Graph graph;
  const Value x = graph.input("x", f32, {8, 512});
  graph.output("y", block_fft(concat({x, x - x}, 1)));
  return graph;
}

Graph peaks_graph() {
  Graph graph;
  const Value spectrum = graph.input("spectrum", f32, {4, 512});
  graph.output("peaks", welch_peaks(spectrum, {.k = 16, .n_segments = 2}));
  return graph;
}

TEST(Golden, fft_graph_launches_and_output_bytes) {
  const GraphIoProfile profile = profile_graph_io(fft_graph());
  EXPECT_GE(profile.kernel_launches, 3);
  EXPECT_EQ(profile.host_output_bytes, 32'768);
  EXPECT_EQ(profile.sync_points, 0);
  EXPECT_EQ(profile_graph_io(fft_graph(), {.fft_host_sync = true}).sync_points, 1);
}

TEST(Golden, peaks_graph_reads_back_little) {
  const GraphIoProfile profile = profile_graph_io(peaks_graph());
  EXPECT_EQ(profile.host_output_bytes, 256);
  EXPECT_GT(profile.device_traffic_bytes, 256);
  EXPECT_EQ(profile.sync_points, 1);
}

TEST(Golden, benefit_of_reading_back_less) {
  const FusionBenefit benefit = fusion_benefit({2, 1, 8'192, 16'384}, {1, 1, 512, 16'384});
  EXPECT_GT(benefit.readback_saved, 0);
  EXPECT_GE(benefit.launches_saved, 0);
  EXPECT_EQ(benefit.readback_saved, 7'680);
  EXPECT_EQ(benefit.syncs_saved, 0);
  EXPECT_EQ(benefit.traffic_saved, 0);
}

TEST(Golden, gate_answers_by_device) {
  const GraphIoProfile before{3, 0, 33'554'432, 184'549'376};
  const GraphIoProfile after{4, 1, 1'048'576, 219'152'384};
  const IoFusionGate metal = IoFusionGate::preset(Device::metal);
  EXPECT_NEAR(metal.score_ns(before, after), 30'327'341, 1);
  EXPECT_TRUE(metal.should_fuse(before, after));
  const IoFusionGate portable{3'000, 30'000, 100, 40, false, 2.5e7, 1e4};
  EXPECT_NEAR(portable.score_ns(before, after), -24'566'384, 1);
  EXPECT_FALSE(portable.should_fuse(before, after));
  EXPECT_NEAR(IoFusionGate::preset(Device::gpu).score_ns(before, after), -24'566'384, 1);
}

TEST(IoProfile, metadata_ops_are_free) {
  Graph graph;
  const Value x = graph.input("x", f32, {4, 6});
  const Value w = graph.param("w", f32, {6, 4});
  graph.output("y", slice(reshape(transpose(x, {1, 0}), {24}), {0}, {8}) +
                        slice(reshape(w, {24}), {8}, {16}));
  const GraphIoProfile profile = profile_graph_io(graph);
  EXPECT_EQ(profile.kernel_launches, 1);
  EXPECT_EQ(profile.device_traffic_bytes, 3 * 32);
}

TEST(IoProfile, an_operand_read_twice_is_moved_once) {
  Graph graph;
  const Value x = graph.input("x", f32, {8});
  graph.output("y", x * x);
  EXPECT_EQ(profile_graph_io(graph).device_traffic_bytes, 64);
}

TEST(IoProfile, only_the_selected_outputs_are_read_back) {
  Graph graph;
  const Value x = graph.input("x", f32, {8});
  const Value y = exp(x), z = sum(y, {0});
  graph.output("y", y);
  graph.output("z", z);
  const GraphIoProfile all = profile_graph_io(graph);
  EXPECT_EQ(all.host_output_bytes, 36);
  const GraphIoProfile by_index = profile_graph_io_outputs(graph, std::vector<int>{1, 1}).value();
  EXPECT_EQ(by_index.host_output_bytes, 4);
  EXPECT_EQ(by_index.kernel_launches, all.kernel_launches);
  EXPECT_EQ(by_index.device_traffic_bytes, all.device_traffic_bytes);
  EXPECT_EQ(profile_graph_io_outputs(graph, std::vector<Value>{z}).value(), by_index);
  const auto wrong = profile_graph_io_outputs(graph, std::vector<int>{2});
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(wrong.error().message, HasSubstr("There is no output (2): there are 2."));
  Graph other;
  const Value foreign = other.input("x", f32, {1});
  EXPECT_FALSE(profile_graph_io_outputs(graph, std::vector<Value>{foreign}).ok());
}

TEST(IoProfile, sums_saturate) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const GraphIoProfile large{1, 0, most - 1, most / 2 + 1};
  EXPECT_EQ((large + large).host_output_bytes, most);
  EXPECT_EQ((large + large).device_traffic_bytes, most);
  EXPECT_EQ(large.host_readback_bytes(false), most);
  EXPECT_EQ(large.host_readback_bytes(true), most - 1);
  EXPECT_EQ(fusion_benefit({0, 0, -2, 0}, {0, 0, most, 0}).readback_saved,
            std::numeric_limits<std::int64_t>::min());
}

TEST(IoProfile, readback_on_discrete_memory_adds_a_quarter_of_the_traffic) {
  const GraphIoProfile profile{1, 0, 100, 1'000};
  EXPECT_EQ(profile.host_readback_bytes(true), 100);
  EXPECT_EQ(profile.host_readback_bytes(false), 350);
}

TEST(IoProfile, unbound_dims_count_as_one) {
  Graph graph;
  const Value x = graph.input("x", f32, {"batch", 4});
  graph.output("y", exp(x));
  EXPECT_EQ(profile_graph_io(graph).device_traffic_bytes, 32);
}

TEST(Gate, presets_are_those_of_the_specification) {
  const IoFusionGate cpu = IoFusionGate::preset(Device::cpu);
  EXPECT_EQ(cpu.dispatch_ns, 50);
  EXPECT_EQ(cpu.roundtrip_ns, 0);
  EXPECT_EQ(cpu.memory_bw, 50);
  EXPECT_EQ(cpu.host_readback_bw, 50);
  EXPECT_TRUE(cpu.unified_memory);
  EXPECT_EQ(cpu.host_thunk_penalty_ns, 0);
  EXPECT_EQ(cpu.min_gain_ns, 0);
  EXPECT_EQ(IoFusionGate::preset(Device::cuda).host_thunk_penalty_ns, 1.5e7);
  EXPECT_EQ(IoFusionGate::preset(Device::rocm).min_gain_ns, 5'000);
  EXPECT_FALSE(IoFusionGate::preset(Device::tpu).unified_memory);
  EXPECT_EQ(IoFusionGate::preset(Device::mlx).memory_bw, 200);
}

TEST(Gate, added_syncs_pay_the_penalty_once_more_and_saved_ones_do_not) {
  const IoFusionGate gate{0, 10, 1, 1, false, 1'000, 0};
  EXPECT_EQ(gate.score_ns({1, 0, 0, 0}, {1, 2, 0, 0}), -2 * 10 - 2 * 1'000);
  EXPECT_EQ(gate.score_ns({1, 2, 0, 0}, {1, 0, 0, 0}), 2 * 10);
}

TEST(Gate, bandwidths_below_one_count_as_one) {
  const FusionBenefit benefit{.readback_saved = 10, .traffic_saved = 10};
  EXPECT_EQ(benefit.score_ns(0, 0, 0, 0, false), 20);
  EXPECT_EQ(benefit.score_ns(0, 0, 10, 10, true), 11);
  EXPECT_TRUE(benefit.should_fuse(0, 0, 10, 10, false, 2));
  EXPECT_FALSE(benefit.should_fuse(0, 0, 10, 10, false, 2.5));
}

TEST(IoProfile, host_kinds) {
  EXPECT_EQ(host_sync_op_kinds(), (std::vector<std::string_view>{"log_mel", "log_mel_backward",
                                                                 "custom", "welch_peaks"}));
  const auto with_fft = host_sync_op_kinds({.fft_host_sync = true});
  EXPECT_THAT(with_fft, ::testing::Contains("fft"));
  EXPECT_THAT(with_fft, ::testing::Contains("log_mel"));
}

TEST(IoProfile, a_plan_moves_less_than_its_graph) {
  Graph graph;
  const Value x = graph.input("x", f32, {64, 64});
  graph.output("y", sqrt(exp(x) + x) * x);
  Session session(Device::cpu);
  const CompiledGraph program = session.compile(graph).value();
  const GraphIoProfile planned = profile_plan_io(program), graphs = profile_graph_io(graph);
  EXPECT_EQ(planned.kernel_launches, 1);
  EXPECT_EQ(planned.sync_points, 0);
  EXPECT_EQ(planned.host_output_bytes, graphs.host_output_bytes);
  EXPECT_EQ(planned.device_traffic_bytes, 2 * 64 * 64 * 4);
  EXPECT_LT(planned.device_traffic_bytes, graphs.device_traffic_bytes);
}

}  // namespace
}  // namespace rlx
