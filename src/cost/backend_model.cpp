// Cost models of devices: presets, and what a graph takes under one.
#include <algorithm>

#include "cost/op_cost.hpp"
#include "rlx/cost.hpp"

namespace rlx {
namespace {

/// Share of a device's matmul rate that code without matmuls reaches.
constexpr double scalar_share = 0.25;

constexpr double no_limit = 0;

double saturating_product(std::int64_t m, std::int64_t k, std::int64_t n) {
  return std::max(1.0, static_cast<double>(m)) * std::max(1.0, static_cast<double>(k)) *
         std::max(1.0, static_cast<double>(n));
}

bool runs_on_host(const Node& node, const BackendCostModel& model,
                  std::span<const std::string_view> host) {
  return model.device != Device::cpu && cost::is_sync_point(node.op, host);
}

/// FLOPs of the node over its rate, in ns.
double compute_ns(const Graph& graph, const Node& node, double flops,
                  const BackendCostModel& model) {
  if (flops <= 0) return 0;
  if (const auto shape = cost::matmul_shape(graph, node))
    return flops / model.sgemm_gflops(shape->m, shape->k, shape->n);
  constexpr std::int64_t large = 1 << 10;
  return flops / (scalar_share * model.sgemm_gflops(large, large, large));
}

struct NodeTimes {
  double compute_ns = 0, bytes_ns = 0;
};

NodeTimes node_times(const Graph& graph, const Node& node, const BackendCostModel& model,
                     std::span<const std::string_view> host) {
  const NodeCost cost = node_cost(graph, node);
  if (!runs_on_host(node, model, host)) {
    return {compute_ns(graph, node, cost.flops, model),
            cost.bytes / std::max(model.memory_bw, 1e-9)};
  }
  const BackendCostModel cpu = *BackendCostModel::preset(Device::cpu);
  const double bandwidth = model.unified_memory ? cpu.memory_bw : model.readback_bw();
  return {compute_ns(graph, node, cost.flops, cpu), cost.bytes / std::max(bandwidth, 1e-9)};
}

double readback_ns(const GraphIoProfile& io, const BackendCostModel& model) {
  return static_cast<double>(io.host_readback_bytes(model.unified_memory)) /
         std::max(model.readback_bw(), 1e-9);
}

}  // namespace

double BackendCostModel::sgemm_gflops(std::int64_t m, std::int64_t k, std::int64_t n) const {
  const double work = saturating_product(m, k, n);
  double done = 0, time = 0;
  for (std::size_t i = 0; i < gemm_rates.size() && done < work; ++i) {
    const bool last = i + 1 == gemm_rates.size();
    const double upto = last ? work : std::min(work, gemm_rates[i].work_max);
    if (upto <= done) continue;
    time += (upto - done) / std::max(gemm_rates[i].gflops, 1e-3);
    done = upto;
  }
  return time > 0 ? work / time : 1e-3;
}

std::optional<BackendCostModel> BackendCostModel::preset(Device device, int num_threads) {
  const auto model = [&](std::vector<GemmRate> rates, double dispatch, double roundtrip,
                         double bandwidth, bool unified) {
    return BackendCostModel{.device = device,
                            .gemm_rates = std::move(rates),
                            .dispatch_overhead_ns = dispatch,
                            .roundtrip_overhead_ns = roundtrip,
                            .memory_bw = bandwidth,
                            .unified_memory = unified,
                            .num_threads = device == Device::cpu ? std::max(num_threads, 1) : 1};
  };
  const double threads = std::max(num_threads, 1);
  switch (device) {
    case Device::cuda: return model({{no_limit, 12'000}}, 3'000, 35'000, 900, false);
    case Device::rocm: return model({{no_limit, 10'000}}, 3'000, 40'000, 800, false);
    case Device::gpu: return model({{no_limit, 2'500}}, 5'000, 80'000, 120, false);
    case Device::metal: return model({{no_limit, 3'000}}, 2'000, 20'000, 200, true);
    case Device::mlx: return model({{32'768, 100}, {no_limit, 3'500}}, 2'000, 20'000, 200, true);
    case Device::tpu: return std::nullopt;
    case Device::automatic:
    case Device::cpu: break;
  }
  device = Device::cpu;
  return model({{no_limit, 60 * threads}}, 300, 0, 20, true);
}

double estimate_graph_cost(const Graph& graph, const BackendCostModel& model) {
  const std::vector<std::string_view> host = host_sync_op_kinds(model.io);
  double total = model.roundtrip_overhead_ns;
  for (const Node& node : graph.nodes()) {
    if (cost::is_view(node.op)) continue;
    const NodeTimes times = node_times(graph, node, model, host);
    total += model.dispatch_overhead_ns + std::max(times.compute_ns, times.bytes_ns);
  }
  const GraphIoProfile io = profile_graph_io(graph, model.io);
  const double syncs = model.device == Device::cpu ? 0 : static_cast<double>(io.sync_points);
  return total + readback_ns(io, model) + syncs * model.roundtrip_overhead_ns;
}

double estimate_graph_cost(const Graph& graph, const BackendCostModel& model,
                           const GraphIoProfile& io) {
  const std::vector<std::string_view> host = host_sync_op_kinds(model.io);
  double compute = 0;
  for (const Node& node : graph.nodes()) {
    if (!cost::is_view(node.op)) compute += node_times(graph, node, model, host).compute_ns;
  }
  const double memory =
      static_cast<double>(io.device_traffic_bytes) / std::max(model.memory_bw, 1e-9);
  return model.roundtrip_overhead_ns +
         static_cast<double>(io.kernel_launches) * model.dispatch_overhead_ns +
         std::max(compute, memory) + readback_ns(io, model) +
         static_cast<double>(io.sync_points) * model.roundtrip_overhead_ns;
}

}  // namespace rlx
