// IO profiles of graphs, the static form, and the score of a fusion.
#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "cost/op_cost.hpp"
#include "cost/saturating.hpp"
#include "rlx/ops.hpp"

namespace rlx {

using cost::saturating_add;
using cost::saturating_subtract;

std::int64_t GraphIoProfile::host_readback_bytes(bool unified) const {
  if (unified) return host_output_bytes;
  return saturating_add(host_output_bytes, device_traffic_bytes / 4);
}

GraphIoProfile operator+(const GraphIoProfile& a, const GraphIoProfile& b) {
  return {saturating_add(a.kernel_launches, b.kernel_launches),
          saturating_add(a.sync_points, b.sync_points),
          saturating_add(a.host_output_bytes, b.host_output_bytes),
          saturating_add(a.device_traffic_bytes, b.device_traffic_bytes)};
}

std::vector<std::string_view> host_sync_op_kinds(const GraphIoOptions& options) {
  std::vector<std::string_view> kinds = {"log_mel", "log_mel_backward", "custom", "welch_peaks"};
  if (options.fft_host_sync)
    kinds.insert(kinds.end(), {"fft", "ifft", "rfft", "irfft", "block_fft"});
  return kinds;
}

namespace {

GraphIoProfile profile_nodes(const Graph& graph, const GraphIoOptions& options) {
  const std::vector<std::string_view> host = host_sync_op_kinds(options);
  GraphIoProfile profile;
  for (const Node& node : graph.nodes()) {
    if (cost::is_metadata(node.op)) continue;
    const bool syncs = cost::is_sync_point(node.op, host);
    profile = profile + GraphIoProfile{1, syncs ? 1 : 0, 0,
                                       saturating_add(cost::operand_bytes(graph, node),
                                                      cost::result_bytes(node))};
  }
  return profile;
}

}  // namespace

GraphIoProfile profile_graph_io(const Graph& graph, const GraphIoOptions& options) {
  GraphIoProfile profile = profile_nodes(graph, options);
  for (const GraphOutput& output : graph.outputs()) {
    profile.host_output_bytes =
        saturating_add(profile.host_output_bytes, cost::bytes_of(graph.type(output.value)));
  }
  return profile;
}

Result<GraphIoProfile> profile_graph_io_outputs(const Graph& graph, std::span<const int> outputs,
                                                const GraphIoOptions& options) {
  GraphIoProfile profile = profile_nodes(graph, options);
  for (const int index : std::set<int>(outputs.begin(), outputs.end())) {
    if (index < 0 || static_cast<std::size_t>(index) >= graph.outputs().size())
      return bad_input("There is no output ({}): there are {}.", index, graph.outputs().size());
    const ValueId value = graph.outputs()[static_cast<std::size_t>(index)].value;
    profile.host_output_bytes =
        saturating_add(profile.host_output_bytes, cost::bytes_of(graph.type(value)));
  }
  return profile;
}

Result<GraphIoProfile> profile_graph_io_outputs(const Graph& graph, std::span<const Value> outputs,
                                                const GraphIoOptions& options) {
  GraphIoProfile profile = profile_nodes(graph, options);
  std::set<ValueId> seen;
  for (const Value& value : outputs) {
    if (!value || &value.graph() != &graph)
      return bad_input("A value that is to be read back ({}) is no value of this graph.",
                       value ? value.id().node : -1);
    if (!seen.insert(value.id()).second) continue;
    profile.host_output_bytes =
        saturating_add(profile.host_output_bytes, cost::bytes_of(graph.type(value.id())));
  }
  return profile;
}

FusionBenefit fusion_benefit(const GraphIoProfile& before, const GraphIoProfile& after) {
  return {saturating_subtract(before.kernel_launches, after.kernel_launches),
          saturating_subtract(before.sync_points, after.sync_points),
          saturating_subtract(before.host_output_bytes, after.host_output_bytes),
          saturating_subtract(before.device_traffic_bytes, after.device_traffic_bytes)};
}

double FusionBenefit::score_ns(double dispatch_ns, double roundtrip_ns, double memory_bw,
                               double host_readback_bw, bool unified) const {
  const double readback_rate = unified ? 1.0 : std::max(host_readback_bw, 1.0);
  return static_cast<double>(launches_saved) * dispatch_ns +
         static_cast<double>(syncs_saved) * roundtrip_ns +
         static_cast<double>(traffic_saved) / std::max(memory_bw, 1.0) +
         static_cast<double>(readback_saved) / readback_rate;
}

bool FusionBenefit::should_fuse(double dispatch_ns, double roundtrip_ns, double memory_bw,
                                double host_readback_bw, bool unified, double min_gain_ns) const {
  return score_ns(dispatch_ns, roundtrip_ns, memory_bw, host_readback_bw, unified) >= min_gain_ns;
}

}  // namespace rlx
