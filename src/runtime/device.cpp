// Devices by name, and which of them are there.
#include "runtime/device.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <map>
#include <mutex>

#include "backends/backend.hpp"
#include "base/cpu_set.hpp"
#include "base/error.hpp"
#include "base/hash.hpp"
#include "cost/calibration.hpp"
#include "graph/op_info.hpp"
#include "rlx/cost.hpp"
#include "rlx/ops.hpp"
#include "runtime/session.hpp"

namespace rlx {
namespace {

constexpr std::array<std::string_view, 8> device_names = {"auto",  "cpu", "cuda", "rocm",
                                                          "metal", "mlx", "gpu",  "tpu"};
constexpr std::array<std::string_view, 8> display_names = {"Automatic", "CPU", "CUDA", "ROCm",
                                                           "Metal",     "MLX", "GPU",  "TPU"};
constexpr std::array<std::string_view, 4> precision_names = {"f32", "bf16", "f16", "int8"};

/// Why no device can run the graph; empty where the reference evaluation at least can.
std::string reason_against(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    const OpInfo& info = node.op.info();
    const bool runs = info.eval || info.body || info.eval_dynamic || info.resolve ||
                      info.traits.metadata || info.traits.control_flow || info.traits.stateful;
    if (!runs) return fmt::format("the op {} has no kernel", info.name);
  }
  return "";
}

/// Calibrated where the cache folder has the figures, else the preset. Measures nothing.
std::optional<BackendCostModel> cost_model_of(const DeviceInfo& info, int threads) {
  if (info.available) {
    const Result<Calibration> calibration = Calibration::load(info.device);
    if (calibration.ok()) return calibration->cost_model();
  }
  return BackendCostModel::preset(info.device, threads);
}

std::vector<DeviceFacts> facts_of_this_machine(const Graph& graph) {
  std::vector<DeviceFacts> facts;
  const std::string against = reason_against(graph);
  const int threads = default_thread_count();
  for (const DeviceInfo& info : devices()) {
    facts.push_back({.device = info.device,
                     .available = info.available,
                     .runs_graph = against.empty(),
                     .reason = info.available ? against : info.reason,
                     .model = cost_model_of(info, threads)});
  }
  return facts;
}

}  // namespace

std::string_view name_of(Device device) { return device_names[static_cast<std::size_t>(device)]; }

std::optional<Device> device_named(std::string_view name) {
  for (std::size_t i = 0; i < device_names.size(); ++i) {
    if (device_names[i] == name) return static_cast<Device>(i);
  }
  return std::nullopt;
}

std::string_view name_of(Precision precision) {
  return precision_names[static_cast<std::size_t>(precision)];
}

std::optional<Precision> precision_named(std::string_view name) {
  for (std::size_t i = 0; i < precision_names.size(); ++i) {
    if (precision_names[i] == name) return static_cast<Precision>(i);
  }
  return std::nullopt;
}

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> list;
  for (std::size_t i = 1; i < device_names.size(); ++i) {
    const auto device = static_cast<Device>(i);
    DeviceInfo info{
        .device = device, .display_name = std::string(display_names[i]), .reason = "not built in"};
    for (const BackendEntry& entry : backends()) {
      if (entry.device == device) info = entry.info();
    }
    list.push_back(std::move(info));
  }
  return list;
}

bool is_available(Device device) {
  for (const DeviceInfo& info : devices()) {
    if (info.device == device) return info.available;
  }
  return device == Device::automatic;
}

std::vector<Device> devices_for(const Graph& graph) {
  std::vector<Device> list;
  for (const DeviceFacts& facts : facts_of_this_machine(graph)) {
    if (facts.available && facts.runs_graph) list.push_back(facts.device);
  }
  return list;
}

std::optional<Device> only_device_for(const Graph& graph, const DevicePolicy& policy) {
  if (backends().size() != 1) return std::nullopt;
  const Device device = backends().front().device;
  const auto full = with_environment(policy);
  const bool undecided = full.ok() && full->allow.empty() && full->deny.empty() &&
                         (full->asked == Device::automatic || full->asked == device);
  if (!undecided || !reason_against(graph).empty()) return std::nullopt;
  return device;
}

RaceFunction race_on_this_machine(const Graph& graph) {
  return [&graph](Device device) -> Result<double> {
    Session session(device);
    RLX_ASSIGN(CompiledGraph program, session.compile(graph));
    for (const Node& node : graph.nodes()) {
      const auto* param = node.op.as<op::Param>();
      if (!param || !param->data.empty()) continue;
      const Tensor zeros(param->dtype, param->dims);
      RLX_TRY(program.set_param_typed(param->name, std::span(zeros.data(), zeros.bytes()),
                                      param->dtype));
    }
    std::vector<Tensor> zeros;
    std::vector<const void*> slots;
    for (const IoInfo& input : program.inputs()) {
      if (std::any_of(input.dims.begin(), input.dims.end(), [](auto dim) { return dim < 0; }))
        return bad_input("A race needs bound shapes; the input ({}) has none.", input.name);
      zeros.emplace_back(input.dtype, input.dims);
      slots.push_back(zeros.back().data());
    }
    double best = std::numeric_limits<double>::infinity();
    for (int run = 0; run < 4; ++run) {
      const auto start = std::chrono::steady_clock::now();
      RLX_TRY(program.run_slots(slots));
      const std::chrono::duration<double, std::nano> time =
          std::chrono::steady_clock::now() - start;
      if (run > 0) best = std::min(best, time.count());  // the first run warms up
    }
    return best;
  };
}

RaceFunction timed_once(const Graph& graph, RaceFunction race) {
  return [&graph, race = std::move(race)](Device device) {
    static std::mutex mutex;
    static std::map<std::pair<Device, std::string>, double> of_this_process;
    const std::lock_guard lock(mutex);  // two races at once would slow each other
    const std::string name = digest(print(graph)).hex();
    const auto known = of_this_process.find({device, name});
    if (known != of_this_process.end()) return Result<double>(known->second);
    if (const auto kept = cost::kept_race(device, name)) return Result<double>(*kept);
    Result<double> ns = race(device);
    if (ns.ok() && !cost::keep_race(device, name, *ns)) of_this_process[{device, name}] = *ns;
    return ns;
  };
}

Result<DeviceChoice> choose_device(const Graph& graph, const DevicePolicy& policy) {
  RLX_ASSIGN(const DevicePolicy full, with_environment(policy));
  return choose_device(graph, full, facts_of_this_machine(graph),
                       timed_once(graph, race_on_this_machine(graph)));
}

Result<Device> fastest_device_for(const Graph& graph, const DevicePolicy& policy) {
  RLX_ASSIGN(const DeviceChoice choice, choose_device(graph, policy));
  return choice.device;
}

}  // namespace rlx
