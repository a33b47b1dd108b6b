// What programs cost: IO profiles, the gate of fusions, cost models of devices, and the explanation
// of a plan.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rlx/graph.hpp"
#include "rlx/result.hpp"
#include "rlx/runtime.hpp"

namespace rlx {

// ---- IO profiles --------------------------------------------------------------------------------

/// What one forward pass moves and launches. Counts are not negative; byte sums saturate at the
/// largest std::int64_t.
struct GraphIoProfile {
  std::int64_t kernel_launches = 0;
  std::int64_t sync_points = 0;           ///< ops that the host runs while the device waits
  std::int64_t host_output_bytes = 0;     ///< outputs that the host reads back
  std::int64_t device_traffic_bytes = 0;  ///< read and written by all kernels

  bool operator==(const GraphIoProfile&) const = default;

  /// Bytes that cross to the host: host_output_bytes on unified memory; otherwise those and a
  /// quarter of the device traffic. Saturates.
  std::int64_t host_readback_bytes(bool unified) const;
};

/// The sum of two profiles, field by field; saturates.
GraphIoProfile operator+(const GraphIoProfile& a, const GraphIoProfile& b);

struct GraphIoOptions {
  /// The device has no FFT of its own: the fft family runs on the host too.
  bool fft_host_sync = false;
};

/// Names of the ops that a device other than the CPU can only run on the host: log_mel,
/// log_mel_backward, custom, welch_peaks; with fft_host_sync also fft, ifft, rfft, irfft,
/// block_fft.
std::vector<std::string_view> host_sync_op_kinds(const GraphIoOptions& options = {});

/// The static form: every node that is no metadata op (input, param, constant, state, reshape,
/// transpose, slice with steps of 1) is one launch that reads each of its operands once and writes
/// its results; nodes of host_sync_op_kinds are one sync point each; the bytes of all outputs are
/// host output. A dim that is not bound counts as 1.
GraphIoProfile profile_graph_io(const Graph& graph, const GraphIoOptions& options = {});

/// The same where only these outputs are read back, by index; an output named twice counts once.
/// Errors: an index that the graph does not have.
Result<GraphIoProfile> profile_graph_io_outputs(const Graph& graph, std::span<const int> outputs,
                                                const GraphIoOptions& options = {});
/// The same by node: values that are read back whether they are outputs or not.
Result<GraphIoProfile> profile_graph_io_outputs(const Graph& graph, std::span<const Value> outputs,
                                                const GraphIoOptions& options = {});

/// The planned form: launches, syncs and bytes of the plan of a program with bound shapes; zeros
/// where it has no plan yet.
GraphIoProfile profile_plan_io(const CompiledGraph& program);

// ---- the gate of fusions ------------------------------------------------------------------------

/// before - after, field by field; negative where the rewrite costs more.
struct FusionBenefit {
  std::int64_t launches_saved = 0;
  std::int64_t syncs_saved = 0;
  std::int64_t readback_saved = 0;  ///< of host_output_bytes
  std::int64_t traffic_saved = 0;   ///< of device_traffic_bytes

  /// Nanoseconds won: launches_saved * dispatch_ns + syncs_saved * roundtrip_ns
  /// + traffic_saved / max(memory_bw, 1) + readback_saved / r, where r = max(host_readback_bw, 1),
  /// and 1 on unified memory (the host's first touch of the pages: an upper estimate on purpose).
  /// Bandwidths in bytes/ns.
  double score_ns(double dispatch_ns, double roundtrip_ns, double memory_bw,
                  double host_readback_bw, bool unified) const;
  /// score_ns >= min_gain_ns.
  bool should_fuse(double dispatch_ns, double roundtrip_ns, double memory_bw,
                   double host_readback_bw, bool unified, double min_gain_ns) const;
};

FusionBenefit fusion_benefit(const GraphIoProfile& before, const GraphIoProfile& after);

/// Decides optional fusions by the IO of both alternatives. Times in ns, bandwidths in bytes/ns.
struct IoFusionGate {
  double dispatch_ns = 0;
  double roundtrip_ns = 0;
  double memory_bw = 1;
  double host_readback_bw = 1;
  bool unified_memory = false;
  double host_thunk_penalty_ns = 0;  ///< for every sync point that the rewrite adds
  double min_gain_ns = 0;

  /// The uncalibrated gate of a device (SPEC section 6); automatic counts as the CPU.
  static IoFusionGate preset(Device device);
  /// FusionBenefit::score_ns, less the penalty for every sync point added.
  double score_ns(const GraphIoProfile& before, const GraphIoProfile& after) const;
  /// score_ns >= min_gain_ns.
  bool should_fuse(const GraphIoProfile& before, const GraphIoProfile& after) const;
};

/// One question that the planner asked the gate, with both alternatives and the answer.
struct FusionQuestion {
  std::string what;  ///< "join add %7 to matmul %3"
  std::string kind;  ///< "consumer", "producer", "sibling", "recompute", ...
  GraphIoProfile before, after;
  double before_ns = 0, after_ns = 0;  ///< predicted, where both were planned whole; else 0
  /// Time of recomputing and of other loops, taken off the score; below 0: saved.
  double work_added_ns = 0;
  double score_ns = 0;  ///< of the gate, less work_added_ns
  bool fused = false;
};

// ---- cost models of devices ---------------------------------------------------------------------

/// The sustained rate of matmuls with at most `work_max` = m * k * n.
struct GemmRate {
  double work_max = 0;
  double gflops = 0;
};

/// What a device takes for a graph. Times in ns, bandwidths in bytes/ns (= GB/s), rates in GFLOP/s
/// (= FLOPs/ns).
struct BackendCostModel {
  Device device = Device::cpu;
  /// By falling smallness; a matmul takes the first rate for the work up to its limit, the next for
  /// the work beyond, so that a larger one never takes less time. The last has no limit.
  std::vector<GemmRate> gemm_rates;
  double dispatch_overhead_ns = 0;
  double roundtrip_overhead_ns = 0;
  double memory_bw = 1;
  double host_readback_bw = 0;  ///< 0: memory_bw
  bool unified_memory = false;
  int num_threads = 1;
  bool calibrated = false;
  GraphIoOptions io;  ///< which ops the host must run

  /// Sustained GFLOP/s of an m x k by k x n matmul. Positive.
  double sgemm_gflops(std::int64_t m, std::int64_t k, std::int64_t n) const;
  double readback_bw() const { return host_readback_bw > 0 ? host_readback_bw : memory_bw; }

  /// The uncalibrated model; nothing for the TPU, which is never picked by cost while uncalibrated.
  /// `num_threads` scales the CPU's rate.
  static std::optional<BackendCostModel> preset(Device device, int num_threads = 1);
};

/// FLOPs and bytes of one node, from its op's cost rule; composites without one cost what their
/// body costs, other ops one operation for each scalar operation of each element. Metadata ops and
/// views cost nothing. A dim that is not bound counts as 1.
struct NodeCost {
  double flops = 0;
  double bytes = 0;  ///< operands and results, each once
};
NodeCost node_cost(const Graph& graph, const Node& node);

/// Predicted ns of one run: round trip + for each node (dispatch + max(FLOPs / rate, bytes /
/// bandwidth)) + host readback / readback bandwidth + syncs * round trip. Matmuls, convolutions and
/// attention run at sgemm_gflops, other ops at a quarter of it. An op of host_sync_op_kinds on a
/// device other than the CPU runs at the CPU preset's rate, its bytes at the readback bandwidth.
double estimate_graph_cost(const Graph& graph, const BackendCostModel& model);
/// The io form: launches, syncs, readback and traffic are those of `io` (a plan's, say), the FLOPs
/// the graph's: round trip + launches * dispatch + max(sum of FLOPs / rate, traffic / bandwidth)
/// + host readback + syncs * round trip.
double estimate_graph_cost(const Graph& graph, const BackendCostModel& model,
                           const GraphIoProfile& io);

// ---- choosing a device --------------------------------------------------------------------------

/// The model under which the graph is cheapest; ties go to the first in the order of SPEC section 7
/// (TPU, CUDA, ROCm, MLX, Metal, GPU, CPU). Without models: the CPU.
Device pick_best_device(const Graph& graph, std::span<const BackendCostModel> models);

/// What the choice knows of a device.
struct DeviceFacts {
  Device device = Device::cpu;
  bool available = false;
  bool runs_graph = true;
  std::string reason;  ///< why not available, or why it cannot run the graph
  std::optional<BackendCostModel> model;
};

/// Measures a run in ns on a device, for races.
using RaceFunction = std::function<Result<double>(Device)>;

/// Picks by the policy among the devices described by `facts`; a pure function of its arguments.
/// Errors: not_available where a device asked for by name (policy.asked) is not there and missing
/// devices are not replaced, or where no device is left, with the reason of each.
Result<DeviceChoice> choose_device(const Graph& graph, const DevicePolicy& policy,
                                   std::span<const DeviceFacts> facts,
                                   const RaceFunction& race = {});

/// Devices that are available and can run every op of the graph, in the fixed order of devices().
std::vector<Device> devices_for(const Graph& graph);
/// The choice among this machine's devices, with what the environment says (RLX_DEVICE,
/// RLX_DEVICES, RLX_DENY_DEVICES) applied to the policy.
Result<DeviceChoice> choose_device(const Graph& graph, const DevicePolicy& policy = {});
Result<Device> fastest_device_for(const Graph& graph, const DevicePolicy& policy = {});
/// The policy with the environment's wishes: RLX_DEVICE is the device asked for where none is;
/// RLX_DEVICES (comma separated) is allow list and order where there are none; RLX_DENY_DEVICES
/// adds to the deny list. Errors: usage, where a variable names no device.
Result<DevicePolicy> with_environment(DevicePolicy policy);

// ---- explanations -------------------------------------------------------------------------------

/// A plan for people: what runs, where it lies, and why.
struct Explanation {
  struct Buffer {
    std::string name, dtype;
    /// arena, input, weight, state, slot (where a loop says), worker (in the scratch of each
    /// worker, inside one kernel), flag (set by kernels that saw a bad index)
    std::string storage;
    std::int64_t bytes = 0, offset = 0;
    int first_kernel = -1, last_kernel = -1;  ///< of its life; -1: the whole run
  };
  struct Kernel {
    std::string name, region;
    std::vector<int> reads, writes;  ///< buffers
    int threads = 1;
    double flops = 0, bytes = 0;
    double predicted_us = 0;
    std::string bound;   ///< what the prediction says limits it: "compute", "memory", "launch", ...
    std::string reason;  ///< why it is this kernel, or why it is no generated one
    /// Of a loop: the kernels of one iteration, with what each takes in it; and the number of
    /// iterations, assumed where only data tells it.
    std::vector<Kernel> inside;
    std::int64_t iterations = 0;
    bool assumes_iterations = false;
  };
  struct Claim {
    std::string op, origin;
    bool taken = false;
    std::string reason;
  };
  std::vector<Buffer> buffers;
  std::vector<Kernel> kernels;
  std::vector<FusionQuestion> questions;
  std::vector<Claim> claims;
  DeviceChoice devices;
  GraphIoProfile static_io, planned_io;
  MemoryReport memory;
  /// Clock of the CPU's cores that predicted times are for, measured when this was made; 0: they
  /// are for the one at which the processor's family was measured.
  double clock_ghz = 0;
  double predicted_ms = 0;
  double planning_ms = 0;  ///< of forming regions
};

}  // namespace rlx
