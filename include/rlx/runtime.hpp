// Compiling and running: Session makes CompiledGraphs; a CompiledGraph is what the user runs.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rlx/graph.hpp"
#include "rlx/log.hpp"
#include "rlx/result.hpp"
#include "rlx/tensor.hpp"

namespace rlx {

enum class Device : std::uint8_t { automatic, cpu, cuda, rocm, metal, mlx, gpu, tpu };

/// "auto", "cpu", "cuda", ...
std::string_view name_of(Device device);
std::optional<Device> device_named(std::string_view name);

/// One device as `rlx devices` shows it.
struct DeviceInfo {
  Device device = Device::cpu;
  std::string
      display_name;  ///< begins with the device's name: "CPU AMD EPYC ... (2 threads, avx512)"
  bool available = false;
  std::string reason;  ///< why it is not available; empty where it is
};

/// Every device in a fixed order, with what is there and why not.
std::vector<DeviceInfo> devices();
bool is_available(Device device);

/// Which device may serve, and how one is picked.
struct DevicePolicy {
  enum class Pick : std::uint8_t {
    cost,  ///< the lowest predicted time
    race,  ///< the candidates within a factor of 1.5 of the lowest are timed once
    order  ///< the first of the preference order
  };
  /// What a call does when the device asked for is not there: an error, or the best of the others.
  enum class Missing : std::uint8_t { strict, fallback };

  Device asked = Device::automatic;
  std::vector<Device> allow;  ///< empty: every device
  std::vector<Device> deny;
  std::vector<Device> order;  ///< empty: TPU, CUDA, ROCm, MLX, Metal, GPU, CPU
  Pick pick = Pick::cost;
  Missing missing = Missing::strict;
  /// Variables of the environment that the above is from, in part; errors name them.
  std::vector<std::string> variables;
};

/// The device that was picked, and why the others were not.
struct DeviceChoice {
  struct Candidate {
    Device device = Device::cpu;
    bool eligible = false;
    double predicted_ns = -1;  ///< -1: no model
    bool calibrated = false;   ///< else the prediction is by preset
    std::string reason;
  };
  Device device = Device::cpu;
  std::string reason;
  std::vector<Candidate> candidates;
};

/// In what precision products may be computed. f32: as the graph says. bf16: both operands rounded
/// to bf16, sums in f32. f16: weights stored as f16 where that pays. int8: matmuls with weights on
/// bytes, quantised by row and column, the rest as bf16. Each where the machine has the
/// instructions and the cost model sees a gain, otherwise f32 (docs/precision.md).
enum class Precision : std::uint8_t { f32, bf16, f16, int8 };
std::string_view name_of(Precision precision);
std::optional<Precision> precision_named(std::string_view name);

struct CompileOptions {
  /// Symbols of the graph and their values ("batch" -> 8). Naming a symbol that the graph does not
  /// have is an error.
  std::map<std::string, std::int64_t> dims;
  /// Dims of inputs, by input name; an alternative way to bind symbols and unnamed dims.
  std::map<std::string, Dims> input_dims;
  /// Names of the outputs to compute; empty: all of the graph's.
  std::vector<std::string> outputs;
  Precision precision = Precision::f32;
  /// No reordering or algorithm that costs accuracy.
  bool exact = false;
  /// Subnormal operands and results count as zero in all kernels, which some cores compute many
  /// times faster. Without it they are kept, but for weights of products that are nothing beside
  /// the others (docs/precision.md).
  bool flush_subnormals = false;
  /// One kernel per primitive, for finding bugs. Also set by RLX_DISABLE_FUSION=1.
  bool disable_fusion = false;
  /// Answers to fusion questions, by FusionQuestion::what, that count whatever the gate says: to
  /// measure what the other answer costs. One to a question that the plan of a bound program does
  /// not ask is an error.
  std::map<std::string, bool> answers;
  /// Worker threads of a run; 0: the session's.
  int threads = 0;
  /// What this call does where the session's device is not there; none: as the session's policy
  /// says. CompiledGraph::device tells what came of it.
  std::optional<DevicePolicy::Missing> missing;

  /// An output whose value of one run is an input of the next. Both leave the program's lists; the
  /// value starts with zeros and is a handle under the input's name (read_handle, bind_handle).
  struct Feed {
    std::string output, input;
  };
  std::vector<Feed> feeds;
  CompileOptions& feed(std::string output, std::string input) {
    feeds.push_back({std::move(output), std::move(input)});
    return *this;
  }
};

/// Name, dtype and dims of an input or output of a program. Dims are -1 where the data tells them
/// or symbols are unbound.
struct IoInfo {
  std::string name;
  DType dtype = DType::f32;
  Dims dims;
  /// The dims as text: numbers, symbols or "?".
  std::vector<std::string> dim_names;
};

/// A named input of a run. A plain span of float takes the dims of the program's input (f32 and
/// other float inputs alone).
struct NamedInput {
  NamedInput(std::string name, const Tensor& tensor) : name(std::move(name)), view(tensor) {}
  NamedInput(std::string name, TensorView view) : name(std::move(name)), view(view) {}
  NamedInput(std::string name, std::span<const float> values)
      : name(std::move(name)), values(values) {}
  NamedInput(std::string name, const std::vector<float>& values)
      : name(std::move(name)), values(values) {}

  std::string name;
  std::optional<TensorView> view;
  std::span<const float> values;
};

/// Owned outputs in the program's order.
class Outputs {
 public:
  std::vector<std::pair<std::string, Tensor>> items;
  /// By name; throws Exception for an unknown one.
  const Tensor& operator[](std::string_view name) const;
  const Tensor& operator[](std::size_t index) const { return items[index].second; }
  std::size_t size() const { return items.size(); }
};

/// A piece of the arena: bytes from arena_ptr().
struct ArenaSlice {
  std::int64_t offset = 0;
  std::int64_t length = 0;
};

/// Memory of a program, known before its first run. Bytes.
struct MemoryReport {
  std::int64_t weights_bytes = 0;            ///< params and constants as the plan stores them
  std::int64_t arena_bytes = 0;              ///< activations, inputs and outputs included
  std::int64_t arena_lower_bound_bytes = 0;  ///< the largest sum of bytes alive at once
  std::int64_t scratch_bytes = 0;            ///< of all workers
};

/// How the program was made, for `rlx bench` and `rlx inspect`.
struct CompileReport {
  double compile_ms = 0;
  int kernels = 0;            ///< kernels of the plan that runs launch
  int generated_kernels = 0;  ///< compiled now
  int cached_kernels = 0;     ///< taken from the code cache
  int threads = 1;
  int stages = 1;  ///< parts that shapes told by data split the program into
};

/// One kernel's share of profiled runs.
struct KernelProfile {
  std::string name;    ///< kernel kind and variant
  std::string region;  ///< the nodes inside
  std::string shape;   ///< the extents it runs over: "m 56x56, n 64, k 3x3x64"
  int threads = 1;
  double median_us = 0;
  /// Products that a unit makes in the time of one of f32: 2 of bf16 or 16-bit integers, 4 of
  /// bytes; 16 and 32 with AMX.
  int products = 1;
  double flops = 0;
  double bytes = 0;
  double predicted_us = 0;  ///< what the cost model says of it
};

struct Explanation;
struct ExpertChoices;
struct ExpertCounts;

/// A compiled program with its arena. Movable; one thread at a time per program, clones may run
/// concurrently. Outlives the Graph and the Session that made it. Params that a graph has as plain
/// tensors stay in memory beside what is packed of them (the graph is kept), those in mapped files
/// (imported, or by in_file of rlx/mapped.hpp) do not. A call that runs out of memory is an error
/// of kind out_of_memory, and the program and its session stay as usable as before.
class CompiledGraph {
 public:
  struct Impl;
  explicit CompiledGraph(std::unique_ptr<Impl> impl);
  CompiledGraph(CompiledGraph&&) noexcept;
  CompiledGraph& operator=(CompiledGraph&&) noexcept;
  ~CompiledGraph();

  const std::vector<IoInfo>& inputs() const;
  const std::vector<IoInfo>& outputs() const;

  /// Binds a weight between runs. Values are row-major and of the param's element count; floats are
  /// rounded to the param's float dtype, to nearest even. A plain copy stays beside what is packed
  /// only where later calls may want it: dims are open or were bound by symbols, a packed weight is
  /// made of several params, experts without a mask. Errors: unknown name, count, no float param.
  Status set_param(std::string_view name, std::span<const float> values);
  /// The same from bytes of `dtype`; float dtypes convert, any other difference is an error.
  Status set_param_typed(std::string_view name, std::span<const std::byte> bytes, DType dtype);

  /// Named inputs in, owned outputs back. Where symbols are unbound or data decides shapes, plans
  /// are specialised on first sight of a shape and kept (LRU).
  Result<Outputs> run(std::span<const NamedInput> inputs);
  Result<Outputs> run(std::initializer_list<NamedInput> inputs) {
    return run(std::span<const NamedInput>(inputs.begin(), inputs.size()));
  }
  /// The same, but every tensor must have exactly the declared dtype.
  Result<Outputs> run_typed(std::span<const NamedInput> inputs);
  /// Runs, and reads back only the outputs with these indices, in this order.
  Result<Outputs> run_read_outputs(std::span<const NamedInput> inputs,
                                   std::span<const int> indices);
  /// Row `row` of `row_elements` elements of a row-major f32 output of the last run.
  Result<std::vector<float>> read_output_row(int output, std::int64_t row,
                                             std::int64_t row_elements) const;

  /// Views into the output memory, valid until the next run. Needs bound shapes.
  Result<std::span<const TensorView>> run_raw(std::span<const NamedInput> inputs);
  /// By position in declaration order: no look-up, no allocation. slot_inputs[i] points at the
  /// whole input i, aligned for its dtype, which kernels read where it lies, without a copy. The
  /// result is owned by the program: a slice for each output, in bytes from arena_ptr().
  Result<std::span<const ArenaSlice>> run_slots(std::span<const void* const> slot_inputs);
  const std::byte* arena_ptr() const;
  /// Kernels write the outputs into the caller's memory, without a copy: outputs[i] has room for
  /// output i, aligned for its dtype, and overlaps no other. Allocates nothing.
  Status run_into(std::span<const void* const> slot_inputs, std::span<void* const> outputs);

  // Handles: named values that outlive runs. A handle is a state of the graph (updated in place), a
  // fed input, or any input that was bound to one. A run that fails leaves fed values as they were.

  /// Sets a handle's value, which is copied; an input that is no handle yet becomes one, and is not
  /// given to runs any more (run_slots ignores its pointer). Needs bound shapes. Errors: unknown
  /// name, other dtype or dims.
  Status bind_handle(std::string_view name, TensorView value);
  /// A copy of a handle's value. Errors: unknown name.
  Result<Tensor> read_handle(std::string_view name) const;
  /// The same on the device's memory; on the CPU that is where handles are anyway.
  Status bind_gpu_handle(std::string_view name, TensorView value) {
    return bind_handle(name, value);
  }
  bool has_gpu_handle(std::string_view name) const;
  /// From the next run on, output `output` becomes the handle's next value without a copy. It
  /// stays readable through run, run_read_outputs and run_raw; run_slots gives it an empty slice.
  /// Errors: no such handle or output, other dtype or dims, an output that feeds another handle.
  Status set_gpu_handle_feed(std::string_view name, int output);
  Result<Tensor> read_gpu_handle(std::string_view name) const { return read_handle(name); }
  /// Runs, feeds the handles, reads nothing back. Errors: no handle is fed.
  Status run_feed_gpu_handle(std::span<const NamedInput> inputs);

  /// Queues a run behind those that are queued; inputs are copied. The calls above are errors until
  /// sync_pending.
  Status commit_no_wait(std::span<const NamedInput> inputs);
  /// Waits for all queued runs and gives their outputs in order. A run that failed is the error,
  /// with its index (from 0); runs queued behind it are dropped.
  Result<std::vector<Outputs>> sync_pending();
  /// Runs every input set and gives [run][output], each its own. Sets run at the same time on
  /// clones, one for each thread of the session, unless a handle or state ties each to the one
  /// before. The first failure is the error, with its index.
  Result<std::vector<Outputs>> run_pipelined(std::span<const std::vector<NamedInput>> input_sets);
  /// Ends the run or run_pipelined in flight, if any: it returns the error "The run was cancelled."
  /// of kind `cancelled`. From any thread. Queued runs are dropped. Runs look at it before each
  /// kernel and iteration of a loop; in kernels predicted to take more than 4 ms about every 4 ms,
  /// or after each work item (most have dozens) where these take longer; in recurrent layers before
  /// each step, in grouped matmuls before each expert. Not cut: one work item of a library kernel
  /// (the sort of one row), and one op without a kernel (`host` in the plan's text; custom ones).
  void cancel();

  /// Works on the first `actual` of `upper` rows only, from the next run on: `upper` is the value
  /// that a symbol of the graph was bound to. Inputs and outputs keep their dims; results of the
  /// live rows equal those of a program compiled for `actual`, dead rows are zeros. A new extent
  /// compiles (weights are shared); the 16 used last are kept, each with an arena of its own, and
  /// going back to one of them compiles and allocates nothing. None: all rows again; clones begin
  /// with all rows. Errors, which leave the extent as it was: no symbol has that value (loaded
  /// programs have none), actual outside 1..upper, a program with handles or states.
  Status set_active_extent(std::optional<std::pair<std::int64_t, std::int64_t>> extent);

  // Mixture of experts (rlx/experts.hpp). A layer is the grouped matmuls that read the same choice
  // of experts, in the order in which they run. All calls need bound shapes and no queued runs;
  // they are errors where the program has no grouped matmuls.

  /// How many experts each layer has.
  Result<std::vector<std::int64_t>> moe_layers() const;
  /// From the next run on the experts with true live in memory; the others lie packed in an unnamed
  /// file in the user's cache folder (a saved program: in its file) and are mapped while they are
  /// used. Results do not change. At first all live in memory; before a first run nothing is
  /// packed, so that a mask set then bounds the memory from the start. Clones made later take it
  /// over; each program has its own, and shares with others what lives in memory in both. The mask
  /// is for all layers. Errors: another length than a layer's experts, the memory limit, a cache
  /// folder that cannot be written.
  Status set_moe_resident_experts(const std::vector<bool>& mask);
  /// The same with a mask for each layer.
  Status set_moe_resident_experts_per_layer(const std::vector<std::vector<bool>>& masks);
  /// From the next run on the choices of each layer are kept.
  Status enable_moe_topk_capture(bool enabled = true);
  /// By layer, of the last run. Errors: it was not captured.
  Result<std::vector<ExpertChoices>> take_moe_topk_capture();
  /// By layer, of the last run: rows served by experts in memory and by others.
  Result<std::vector<ExpertCounts>> take_moe_residency_stats();

  /// Writes the program (graph, machine code, packed weights) to a file that Session::load reads.
  /// Errors: the file cannot be written, shapes are not bound.
  Status save(const std::string& file) const;

  /// An independent copy that shares the weights; handles are copied.
  Result<CompiledGraph> clone() const;
  Device device() const;

  /// Of all parts that the last run went through, where data decides shapes; nothing before it.
  MemoryReport query_memory() const;
  CompileReport report() const;
  /// The text form at that stage: "hir", "mir" or "lir", part after part. Byte-stable.
  Result<std::string> stage_text(std::string_view stage) const;
  /// The plan with its reasons (rlx/cost.hpp). Needs bound shapes, or a run before: then it holds
  /// the plans of all parts of that run, and between them what is evaluated on the host.
  Result<Explanation> explain() const;
  /// Runs on these inputs, and times every kernel over `runs` more runs, in the order of explain().
  Result<std::vector<KernelProfile>> profile(std::span<const NamedInput> inputs, int runs);

 private:
  std::unique_ptr<Impl> impl_;
};

struct SessionOptions {
  /// 0: one for each core that the process may use, of one NUMA node and within its CPU quota. At
  /// most 128.
  int threads = 0;
  /// How long the session's threads spin for the next run before they sleep (at most 24 hours). To
  /// wake them costs a run 25-55 us; until they sleep they take processor time from others.
  std::chrono::microseconds spin = std::chrono::milliseconds(3);
  DevicePolicy devices;  ///< `asked` is the Session's device
  /// Most bytes that the arenas, scratch and packed weights of the session's programs may take
  /// together; 0: no limit. A program that would need more is an error of compile and clone.
  std::int64_t memory_limit_bytes = 0;
  /// Gets messages of at least `log_level`.
  LogCallback log;
  LogLevel log_level = LogLevel::info;
};

/// Does the file begin like a program that CompiledGraph::save wrote? False where it cannot be
/// read.
bool is_saved_program(const std::string& file);

/// Compiles graphs for one device, or each for the one that the policy picks. Thread-safe.
class Session {
 public:
  struct Impl;
  /// An unavailable device is an error of compile ("not available: <why>"), not of this.
  explicit Session(Device device = Device::automatic, SessionOptions options = {});
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  Result<CompiledGraph> compile(const Graph& graph, const CompileOptions& options = {});
  /// A program that CompiledGraph::save wrote: nothing is compiled or packed, weights are mapped
  /// and shared with other processes. The file and its folders must be the user's own. `missing`:
  /// as CompileOptions::missing. Errors: no such file or not trusted; damaged; made by another rlx
  /// or for another machine; no device.
  Result<CompiledGraph> load(const std::string& file,
                             std::optional<DevicePolicy::Missing> missing = std::nullopt);
  /// The device of the program made last; before there is one, the device that was asked for. Where
  /// none was asked for each program is placed by itself, with the dims that its options bind
  /// (others count as 1); CompiledGraph::device tells where.
  Device device() const;

 private:
  std::shared_ptr<Impl> impl_;
};

/// Programs of one graph for several shapes: least recently used ones are dropped beyond the
/// capacity. Thread-safe; each of the programs is run by one thread at a time, as any other.
class CompileCache {
 public:
  CompileCache(Session& session, Graph graph, std::size_t capacity = 16);
  ~CompileCache();
  CompileCache(CompileCache&&) noexcept;
  /// The program for these symbol values; compiled on first sight. Valid until dropped.
  Result<std::shared_ptr<CompiledGraph>> get(const CompileOptions& options);
  std::size_t size() const;
  std::size_t misses() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rlx
