// Cost models of devices, and the choice among devices that are described by their presets alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "graph/op_info.hpp"
#include "rlx/rlx.hpp"
#include "runtime/device.hpp"

namespace rlx {
namespace {

using ::testing::HasSubstr;

constexpr Device every_device[] = {Device::cpu, Device::cuda,  Device::rocm,
                                   Device::gpu, Device::metal, Device::mlx};

Graph matmul_graph(std::int64_t m, std::int64_t k, std::int64_t n) {
  Graph graph;
  graph.output("y", matmul(graph.input("a", f32, {m, k}), graph.input("b", f32, {k, n})));
  return graph;
}

/// A transformer layer's products and its attention, `layers` times.
Graph transformer(int layers, std::int64_t sequence, std::int64_t width) {
  Graph graph;
  Value x = graph.input("x", f32, {sequence, width});
  for (int i = 0; i < layers; ++i) {
    const auto weight = [&](const char* name, std::int64_t rows, std::int64_t columns) {
      return graph.param(name + std::to_string(i), f32, {rows, columns});
    };
    const auto heads = [&](Value v) {
      return transpose(reshape(v, {1, sequence, width / 64, 64}), {0, 2, 1, 3});
    };
    const Value q = heads(matmul(x, weight("q", width, width))),
                k = heads(matmul(x, weight("k", width, width))),
                v = heads(matmul(x, weight("v", width, width)));
    const Value mixed = reshape(transpose(attention(q, k, v), {0, 2, 1, 3}), {sequence, width});
    x = x + matmul(mixed, weight("o", width, width));
    x = x +
        matmul(gelu(matmul(x, weight("up", width, 4 * width))), weight("down", 4 * width, width));
  }
  graph.output("y", x);
  return graph;
}

std::vector<BackendCostModel> presets() {
  std::vector<BackendCostModel> models;
  for (const Device device : every_device) models.push_back(*BackendCostModel::preset(device, 2));
  return models;
}

std::vector<DeviceFacts> facts(const std::vector<Device>& available) {
  std::vector<DeviceFacts> list;
  for (const Device device : {Device::cpu, Device::cuda, Device::rocm, Device::gpu, Device::tpu}) {
    const bool there = std::find(available.begin(), available.end(), device) != available.end();
    list.push_back({.device = device,
                    .available = there,
                    .reason = there ? "" : "not built in",
                    .model = BackendCostModel::preset(device, 2)});
  }
  return list;
}

TEST(CostModel, presets_are_those_of_the_specification) {
  const auto cuda = BackendCostModel::preset(Device::cuda);
  EXPECT_DOUBLE_EQ(cuda->sgemm_gflops(512, 512, 512), 12'000);
  EXPECT_EQ(cuda->dispatch_overhead_ns, 3'000);
  EXPECT_EQ(cuda->roundtrip_overhead_ns, 35'000);
  EXPECT_EQ(cuda->memory_bw, 900);
  EXPECT_EQ(cuda->readback_bw(), 900);
  EXPECT_FALSE(cuda->unified_memory);
  EXPECT_FALSE(cuda->calibrated);
  EXPECT_EQ(BackendCostModel::preset(Device::rocm)->roundtrip_overhead_ns, 40'000);
  EXPECT_EQ(BackendCostModel::preset(Device::gpu)->memory_bw, 120);
  EXPECT_TRUE(BackendCostModel::preset(Device::metal)->unified_memory);
  EXPECT_FALSE(BackendCostModel::preset(Device::tpu).has_value());
  const auto mlx = BackendCostModel::preset(Device::mlx);
  EXPECT_LT(mlx->sgemm_gflops(32, 32, 32), mlx->sgemm_gflops(1024, 1024, 1024) / 10);
}

TEST(CostModel, a_larger_product_never_takes_less_time) {
  for (const BackendCostModel& model : presets()) {
    double before = 0;
    for (std::int64_t size = 1; size < 2'000; size = size * 5 / 4 + 1) {
      const double time =
          2.0 * static_cast<double>(size * size * size) / model.sgemm_gflops(size, size, size);
      EXPECT_GE(time, before) << name_of(model.device) << " " << size;
      before = time;
    }
  }
}

TEST(CostModel, costs_are_positive_and_grow_with_the_shape) {
  for (const BackendCostModel& model : presets()) {
    double before = 0;
    for (const std::int64_t size : {1, 2, 8, 31, 32, 33, 100, 1'000}) {
      const double cost = estimate_graph_cost(matmul_graph(size, size, size), model);
      EXPECT_GE(cost, before) << name_of(model.device) << " " << size;
      EXPECT_GT(cost, 0);
      before = cost;
    }
  }
}

TEST(CostModel, the_formula_by_hand) {
  BackendCostModel model{.device = Device::cuda,
                         .gemm_rates = {{0, 100}},
                         .dispatch_overhead_ns = 7,
                         .roundtrip_overhead_ns = 11,
                         .memory_bw = 10,
                         .host_readback_bw = 2};
  const Graph graph = matmul_graph(64, 64, 64);
  const double bytes = 3 * 64 * 64 * 4, flops = 2.0 * 64 * 64 * 64;
  const double readback = (64 * 64 * 4 + bytes / 4) / 2;
  EXPECT_DOUBLE_EQ(estimate_graph_cost(graph, model), 11 + 7 + flops / 100 + readback);
  model.gemm_rates = {{0, 1e6}};  // now bytes are the limit
  EXPECT_DOUBLE_EQ(estimate_graph_cost(graph, model), 11 + 7 + bytes / 10 + readback);
  const GraphIoProfile io{3, 1, 64 * 64 * 4, 40};
  EXPECT_DOUBLE_EQ(estimate_graph_cost(graph, model, io),
                   11 + 3 * 7 + 40 / 10.0 + (64 * 64 * 4 + 10) / 2.0 + 11);
}

TEST(CostModel, flops_come_from_the_rules_of_the_ops) {
  Graph graph;
  const Value q = graph.input("q", f32, {2, 4, 16, 8}), k = graph.input("k", f32, {2, 4, 32, 8}),
              v = graph.input("v", f32, {2, 4, 32, 8});
  const Value mixed = attention(q, k, v);
  EXPECT_DOUBLE_EQ(node_cost(graph, graph.node(mixed.id())).flops, 4.0 * 2 * 4 * 16 * 32 * 8);
  const Value image = graph.input("image", f32, {1, 3, 10, 10}),
              w = graph.input("w", f32, {5, 3, 3, 3});
  const Value pixels = conv(image, w);
  EXPECT_DOUBLE_EQ(node_cost(graph, graph.node(pixels.id())).flops, 2.0 * 5 * 8 * 8 * 27);
  const Value spectrum = block_fft(graph.input("signal", f32, {4, 512}));
  EXPECT_GT(node_cost(graph, graph.node(spectrum.id())).flops, 4 * 256.0 * 8);
  const Value moved = transpose(image, {0, 2, 3, 1});
  EXPECT_EQ(node_cost(graph, graph.node(moved.id())).bytes, 0);
  const Value curve = gelu(q);
  EXPECT_GT(node_cost(graph, graph.node(curve.id())).flops, 10.0 * 2 * 4 * 16 * 8);
}

/// Every op of the table, on its samples: the laws of costs.
TEST(CostModel, no_op_costs_less_than_nothing_or_less_for_a_larger_shape) {
  for (const OpInfo* info : all_ops()) {
    for (const Sample& sample : info->samples()) {
      Graph graph;
      std::vector<Value> inputs;
      for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
        const bool absent = std::find(sample.absent.begin(), sample.absent.end(),
                                      static_cast<int>(i)) != sample.absent.end();
        inputs.push_back(absent ? Value()
                                : graph.input(std::to_string(i), sample.inputs[i].dtype,
                                              sample.inputs[i].shape));
      }
      const std::vector<Value> results = graph.add(sample.op, inputs);
      if (results.empty()) continue;
      const NodeCost cost = node_cost(graph, graph.node(results[0].id()));
      EXPECT_GE(cost.flops, 0) << info->name;
      EXPECT_GE(cost.bytes, 0) << info->name;
      EXPECT_TRUE(std::isfinite(cost.flops)) << info->name;
      // Twice as many rows of an elementwise op are twice the work.
      if (!info->scalar || sample.inputs.size() != 1 || sample.inputs[0].shape.empty()) continue;
      Graph larger;
      Shape shape = sample.inputs[0].shape;
      shape[0] = Dim(2) * shape[0];
      const Value twice = larger.add(
          sample.op, std::vector<Value>{larger.input("x", sample.inputs[0].dtype, shape)})[0];
      EXPECT_DOUBLE_EQ(node_cost(larger, larger.node(twice.id())).flops, 2 * cost.flops)
          << info->name;
    }
  }
}

TEST(CostModel, a_scan_costs_its_body_for_each_step) {
  const auto body = std::make_shared<Graph>();
  body->input("step", i64, {});
  const Value carry = body->input("carry", f32, {16});
  body->output("next", exp(carry));
  double flops[2];
  for (const std::int64_t length : {10, 20}) {
    Graph graph;
    const Value start = graph.input("start", f32, {16});
    const Value last =
        graph.add_one(op::Scan{.body = body, .length = length, .carries = 1}, {start});
    flops[length / 10 - 1] = node_cost(graph, graph.node(last.id())).flops;
  }
  EXPECT_GT(flops[0], 0);
  EXPECT_DOUBLE_EQ(flops[1], 2 * flops[0]);
}

TEST(CostModel, an_op_that_runs_on_the_host_costs_the_trip) {
  Graph graph;
  graph.output("peaks", welch_peaks(graph.input("spectrum", f32, {4'096, 2'048}),
                                    {.k = 16, .n_segments = 2}));
  const auto cuda = *BackendCostModel::preset(Device::cuda);
  BackendCostModel without_host = cuda;
  without_host.device = Device::cpu;  // no op of the CPU's is on another host
  EXPECT_GT(estimate_graph_cost(graph, cuda),
            estimate_graph_cost(graph, without_host) + cuda.roundtrip_overhead_ns);
}

TEST(DeviceChoice, large_goes_to_cuda_and_tiny_stays_on_the_cpu) {
  const auto models = presets();
  EXPECT_EQ(pick_best_device(transformer(12, 512, 768), models), Device::cuda);
  EXPECT_EQ(pick_best_device(matmul_graph(4, 4, 4), models), Device::cpu);
  EXPECT_EQ(pick_best_device(matmul_graph(4, 4, 4), {}), Device::cpu);
  const auto choice =
      choose_device(transformer(12, 512, 768), {}, facts({Device::cpu, Device::cuda})).value();
  EXPECT_EQ(choice.device, Device::cuda);
  EXPECT_THAT(choice.reason, HasSubstr("lowest predicted time"));
  EXPECT_THAT(choice.reason, HasSubstr("uncalibrated preset"));
  ASSERT_EQ(choice.candidates.size(), 5u);
  for (const auto& candidate : choice.candidates) EXPECT_NE(candidate.reason, "");
}

TEST(DeviceChoice, a_device_asked_for_is_used_or_it_is_an_error) {
  const Graph graph = matmul_graph(4, 4, 4);
  const auto there = facts({Device::cpu, Device::cuda});
  EXPECT_EQ(choose_device(graph, {.asked = Device::cuda}, there)->device, Device::cuda);
  const auto absent = choose_device(graph, {.asked = Device::rocm}, there);
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().kind, ErrorKind::not_available);
  EXPECT_THAT(absent.error().message,
              HasSubstr("The device (rocm) is not available: not built in."));
  const auto replaced = choose_device(
      graph, {.asked = Device::rocm, .missing = DevicePolicy::Missing::fallback}, there);
  ASSERT_TRUE(replaced.ok());
  EXPECT_EQ(replaced->device, Device::cpu);
  EXPECT_THAT(replaced->reason, HasSubstr("in place of rocm (not available: not built in)"));
}

TEST(DeviceChoice, allow_deny_and_order) {
  const Graph large = transformer(12, 512, 768);
  const auto there = facts({Device::cpu, Device::cuda, Device::rocm, Device::gpu});
  EXPECT_EQ(choose_device(large, {.deny = {Device::cuda}}, there)->device, Device::rocm);
  EXPECT_EQ(choose_device(large, {.allow = {Device::cpu, Device::gpu}}, there)->device,
            Device::gpu);
  const DevicePolicy ordered{.order = {Device::gpu, Device::cpu},
                             .pick = DevicePolicy::Pick::order};
  EXPECT_EQ(choose_device(large, ordered, there)->device, Device::gpu);
  EXPECT_EQ(choose_device(large, {.pick = DevicePolicy::Pick::order}, there)->device, Device::cuda);
  const auto none = choose_device(large, {.deny = {Device::cpu}}, facts({Device::cpu}));
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message, HasSubstr("cpu: denied by the policy."));
  EXPECT_THAT(none.error().message, HasSubstr("cuda: not available: not built in."));
  EXPECT_FALSE(choose_device(large, {.asked = Device::cuda, .deny = {Device::cuda}}, there).ok());
}

TEST(DeviceChoice, without_models_the_usual_order_decides) {
  auto there = facts({Device::cpu, Device::tpu, Device::cuda});
  for (DeviceFacts& device : there) device.model.reset();
  EXPECT_EQ(choose_device(matmul_graph(4, 4, 4), {}, there)->device, Device::tpu);
}

TEST(DeviceChoice, an_uncalibrated_tpu_is_never_picked_by_cost) {
  const auto there = facts({Device::cpu, Device::tpu});
  EXPECT_EQ(choose_device(transformer(2, 512, 768), {}, there)->device, Device::cpu);
}

TEST(DeviceChoice, close_candidates_race_once_each) {
  const Graph large = transformer(12, 512, 768);
  const auto there = facts({Device::cpu, Device::cuda, Device::rocm});
  std::vector<Device> raced;
  const RaceFunction race = [&](Device device) -> Result<double> {
    raced.push_back(device);
    if (device == Device::cpu) return Error{ErrorKind::internal, "The CPU is not close."};
    return device == Device::rocm ? 1e6 : 2e6;
  };
  const auto choice = choose_device(large, {.pick = DevicePolicy::Pick::race}, there, race).value();
  EXPECT_EQ(choice.device, Device::rocm);
  EXPECT_THAT(choice.reason, HasSubstr("won a race"));
  EXPECT_EQ(raced, (std::vector<Device>{Device::cuda, Device::rocm}));
  EXPECT_THAT(choose_device(large, {.pick = DevicePolicy::Pick::race}, there,
                            [](Device device) -> Result<double> {
                              if (device == Device::rocm) return 1e6;
                              return Error{ErrorKind::internal, "It is busy."};
                            })
                  ->reason,
              HasSubstr("cuda failed (It is busy.), rocm 1.00 ms"));
  raced.clear();
  EXPECT_EQ(choose_device(large, {}, there, race)->device, Device::cuda);
  EXPECT_TRUE(raced.empty());
}

TEST(DeviceChoice, what_was_timed_once_is_not_timed_again) {
  const auto there = facts({Device::cuda, Device::rocm});
  int timed = 0;
  const RaceFunction race = [&](Device device) -> Result<double> {
    ++timed;
    return device == Device::rocm ? 1e6 : 2e6;
  };
  const auto choose = [&](const Graph& graph) {
    return choose_device(graph, {.pick = DevicePolicy::Pick::race}, there, timed_once(graph, race))
        ->device;
  };
  const Graph large = transformer(12, 512, 768);
  EXPECT_EQ(choose(large), Device::rocm);
  EXPECT_EQ(timed, 2);
  EXPECT_EQ(choose(large), Device::rocm);
  EXPECT_EQ(timed, 2);
  EXPECT_EQ(choose(transformer(12, 256, 768)), Device::rocm);
  EXPECT_EQ(timed, 4) << "another graph is another race";
}

TEST(Golden, a_small_matmul_picks_a_device_that_can_run_it) {
  const Graph graph = matmul_graph(4, 4, 4);
  const Device device = fastest_device_for(graph).value();
  EXPECT_TRUE(is_available(device));
  const std::vector<Device> able = devices_for(graph);
  EXPECT_THAT(able, ::testing::Contains(device));
}

class Environment : public testing::Test {
 protected:
  void TearDown() override {
    for (const char* name : {"RLX_DEVICE", "RLX_DEVICES", "RLX_DENY_DEVICES"}) unsetenv(name);
  }
};

TEST_F(Environment, names_devices) {
  setenv("RLX_DEVICE", "cuda", 1);
  setenv("RLX_DEVICES", "cuda, cpu", 1);
  setenv("RLX_DENY_DEVICES", "gpu,", 1);
  const DevicePolicy policy = with_environment({}).value();
  EXPECT_EQ(policy.asked, Device::cuda);
  EXPECT_EQ(policy.allow, (std::vector<Device>{Device::cuda, Device::cpu}));
  EXPECT_EQ(policy.order, policy.allow);
  EXPECT_EQ(policy.deny, std::vector<Device>{Device::gpu});
  EXPECT_EQ(with_environment({.asked = Device::cpu})->asked, Device::cpu);
}

TEST_F(Environment, a_wrong_name_is_an_error) {
  setenv("RLX_DEVICES", "cpu,abacus", 1);
  const auto wrong = with_environment({});
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().kind, ErrorKind::usage);
  EXPECT_THAT(wrong.error().message, HasSubstr("RLX_DEVICES names no device (abacus)."));
}

TEST_F(Environment, a_denied_cpu_compiles_nothing) {
  setenv("RLX_DENY_DEVICES", "cpu", 1);
  Session session;
  const auto program = session.compile(matmul_graph(4, 4, 4));
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.error().kind, ErrorKind::not_available);
  EXPECT_THAT(program.error().message, HasSubstr("cpu: denied by the policy (RLX_DENY_DEVICES)."));
  unsetenv("RLX_DENY_DEVICES");
  setenv("RLX_DEVICE", "cuda", 1);
  const auto asked = Session().compile(matmul_graph(4, 4, 4));
  ASSERT_FALSE(asked.ok());
  EXPECT_THAT(asked.error().message, HasSubstr("It was asked for by name (RLX_DEVICE)."));
}

TEST(DeviceChoice, what_is_asked_for_by_name_says_so) {
  const auto there = facts({Device::cpu, Device::cuda});
  const auto chosen = choose_device(matmul_graph(4, 4, 4), {.asked = Device::cpu}, there);
  ASSERT_TRUE(chosen.ok());
  for (const DeviceChoice::Candidate& candidate : chosen->candidates) {
    if (candidate.device == Device::cpu) {
      EXPECT_EQ(candidate.reason, chosen->reason);
    }
  }
}

}  // namespace
}  // namespace rlx
