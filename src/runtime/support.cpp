// The support matrix: every op's samples are planned, and the plans tell who runs them.
#include "rlx/support.hpp"

#include <algorithm>
#include <set>

#include "backends/backend.hpp"
#include "base/error.hpp"
#include "graph/op_info.hpp"
#include "runtime/compile.hpp"

namespace rlx {
namespace {

/// The op on inputs of its sample's types; operands that tell dims are constants.
Graph graph_of(const Sample& sample) {
  Graph graph;
  std::vector<Value> values;
  const bool fixed = sample.op.info().traits.shape_operands;
  for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
    const bool absent = std::count(sample.absent.begin(), sample.absent.end(), static_cast<int>(i));
    if (absent) {
      values.emplace_back();
    } else if (fixed && i < sample.values.size() && sample.values[i]) {
      values.push_back(graph.constant(*sample.values[i]));
    } else {
      const Type& type = sample.inputs[i];
      values.push_back(graph.input(fmt::format("x{}", i), type.dtype, type.shape));
    }
  }
  const std::vector<Value> results = graph.add(sample.op, values, "");
  for (std::size_t k = 0; k < results.size(); ++k) graph.output(fmt::format("y{}", k), results[k]);
  return graph;
}

struct Tally {
  int samples = 0, planned = 0, on_host = 0, waiting = 0;
  std::set<std::string> host_ops;
  std::string refusal;
};

void plan_sample(Backend& backend, const Sample& sample, Tally& tally) {
  ++tally.samples;
  const auto hir = specialised(graph_of(sample), {}, {});
  if (!hir.ok()) {
    tally.refusal = hir.error().message;
    return;
  }
  if (!is_static(*hir)) {
    ++tally.waiting;
    return;
  }
  const auto program = compile_static(backend, *hir, {});
  if (!program.ok()) {
    tally.refusal = program.error().message;
    return;
  }
  ++tally.planned;
  bool on_host = false;
  for (const plan::HostCall& call : program->executable->plan().host_calls) {
    if (call.work.items > 0) continue;
    on_host = true;
    tally.host_ops.insert(std::string(call.op.name()));
  }
  tally.on_host += on_host ? 1 : 0;
}

OpSupport support_of(const OpInfo& info, const Tally& tally) {
  OpSupport support{std::string(info.name), OpRoute::none, ""};
  if (tally.samples == 0) {
    support.reason = info.family == "leaf" ? "A leaf: it computes nothing." : "It has no samples.";
  } else if (tally.planned == 0 && tally.waiting > 0) {
    support.route = OpRoute::between;
    support.reason = "Data decides its dims: it is evaluated between the parts of a program.";
  } else if (tally.planned == 0) {
    support.reason = tally.refusal;
  } else if (tally.on_host == 0) {
    support.route = OpRoute::kernels;
  } else {
    support.route = tally.on_host == tally.planned ? OpRoute::host : OpRoute::mixed;
    support.reason = fmt::format("No kernel takes ({}) of its ({}) samples: evaluated are {}.",
                                 tally.on_host, tally.planned, fmt::join(tally.host_ops, ", "));
  }
  return support;
}

}  // namespace

std::string_view name_of(OpRoute route) {
  constexpr std::string_view names[] = {"kernels", "mixed", "host", "between", "none"};
  return names[static_cast<std::size_t>(route)];
}

Result<std::vector<OpSupport>> op_support(Device device) {
  for (const DeviceInfo& info : devices()) {
    if (info.device == device && !info.available)
      return not_available("The device ({}) is not available: {}.", name_of(device), info.reason);
  }
  // The null backend plans as the CPU, the one device that is built in, and makes no code.
  for (const BackendEntry& entry : checking_backends()) {
    if (entry.device != device || entry.name != "null") continue;
    RLX_ASSIGN(const std::unique_ptr<Backend> backend, entry.open({}));
    std::vector<OpSupport> list;
    for (const OpInfo* info : all_ops()) {
      Tally tally;
      for (const Sample& sample : info->samples()) plan_sample(*backend, sample, tally);
      list.push_back(support_of(*info, tally));
    }
    return list;
  }
  return not_available("The device ({}) tells no support.", name_of(device));
}

}  // namespace rlx
