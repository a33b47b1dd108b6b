// What a device offers the runtime: facts, claims, and executables made from MIR graphs.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/logging.hpp"
#include "codegen/code.hpp"
#include "graph/questions.hpp"
#include "plan/build.hpp"
#include "plan/plan.hpp"
#include "rlx/cost.hpp"
#include "rlx/experts.hpp"
#include "rlx/runtime.hpp"

namespace rlx {

/// Yes, or why not.
struct Claim {
  bool taken = false;
  std::string reason;
};

/// What a program needs beside its graph to be there again without compiling or packing.
struct SavedParts {
  /// One entry of the plan's weights; no bytes where a param had no value.
  struct Weight {
    std::shared_ptr<const std::byte> bytes;
    std::int64_t size = 0;
  };
  std::string identity;  ///< of the device, the code generator and the plan
  std::vector<codegen::KernelCode> codes;
  std::vector<Weight> weights;
};

/// The experts of one executable, by layer (experts.hpp). Not while it runs.
class ExpertControl {
 public:
  virtual ~ExpertControl() = default;
  /// How many experts each layer has.
  virtual std::vector<std::int64_t> layers() const = 0;
  /// From now on these live in memory; a mask of the right length for each layer.
  virtual Status set_resident(const std::vector<ExpertMask>& masks) = 0;
  virtual void enable_capture(bool enabled) = 0;
  /// Of the last run; nothing where it was not captured.
  virtual std::optional<std::vector<ExpertChoices>> take_choices() = 0;
  /// Of the last run, by layer.
  virtual std::vector<ExpertCounts> take_counts() = 0;
};

/// One instance of a compiled program: its own arena and states, shared code and weights. One
/// thread at a time.
class Executable {
 public:
  virtual ~Executable() = default;
  virtual const plan::Plan& plan() const = 0;
  /// inputs[i] points at input i. Runs all steps; results lie in the arena.
  virtual Status run(std::span<const void* const> inputs) = 0;
  /// Base of the arena; outputs lie at their buffers' offsets.
  virtual const std::byte* arena() const = 0;
  virtual std::byte* state(std::string_view name) = 0;
  /// From the next run on output `index` is written to `memory`; null: into the arena again.
  virtual void set_output(std::size_t index, void* memory) = 0;
  /// Runs end at their next step or iteration of a loop, and inside a step that takes long, with
  /// the error `cancelled` once the flag is set, which any thread may do. Runs leave it as it is.
  virtual void end_runs_when(std::shared_ptr<const std::atomic<bool>> flag) = 0;
  /// Errors: not_available where the device cannot save programs.
  virtual Result<SavedParts> save() const {
    return Error{ErrorKind::not_available, "This device cannot save programs."};
  }
  /// Null where the program has no grouped matmuls, or the device none of its own.
  virtual ExpertControl* experts() { return nullptr; }
  virtual Status set_param(std::string_view name, const Tensor& value) = 0;
  virtual Result<std::unique_ptr<Executable>> clone() const = 0;
  virtual Result<std::vector<double>> time_steps(std::span<const void* const> inputs, int runs) = 0;
  virtual std::int64_t weights_bytes() const = 0;
  virtual std::int64_t scratch_bytes() const = 0;
};

struct CompileRequest {
  std::shared_ptr<const plan::FlatGraph> graph;
  int threads = 1;
  bool fusion = true;
  bool exact = false;
  bool flush_subnormals = false;
  GivenAnswers given;               ///< answers to fusion questions
  CompileReport* report = nullptr;  ///< filled with kernel counts
  /// Code and weights of an earlier compile of the same graph; another identity is an error.
  const SavedParts* saved = nullptr;
};

/// A device's way in. Found through backends().
class Backend {
 public:
  virtual ~Backend() = default;
  virtual Device device() const = 0;
  virtual DeviceInfo info() const = 0;
  /// Does the device run this composite whole?
  virtual Claim claim(const Graph& graph, const Node& node) const = 0;
  virtual Result<std::unique_ptr<Executable>> compile(const CompileRequest& request) = 0;
  /// A graph planned by itself: what a run takes, its exact launches, syncs and bytes, its memory.
  struct Prospect {
    double ns = 0;
    GraphIoProfile io;
    std::int64_t arena_bytes = 0;
  };
  /// That of a lowered graph on so many threads (0: the device's), as a part of a program that does
  /// this elsewhere. Errors: not_available where the device cannot tell.
  virtual Result<Prospect> prospect(const Graph&, int, const cost::Elsewhere&) const {
    return Error{ErrorKind::not_available, "This device tells nothing of plans."};
  }
  /// Names whatever else prospects depend on: the build, the machine and its figures. Empty: that
  /// cannot be told, and none is kept.
  virtual std::string prospects_identity() const { return {}; }
  /// Programs that gain from running at the same time.
  virtual int lanes() const { return 1; }
  /// Calls body(lane) for lane 0, which must be able to do all of the work, and for others that
  /// are free meanwhile, as often as they come; never for one lane twice at a time.
  virtual void run_lanes(int lanes, const std::function<void(int)>& body) {
    for (int lane = 0; lane < lanes; ++lane) body(lane);
  }
  /// What the device's generated kernels cost; null: it has none, and no other precision than f32.
  virtual const cost::MachineModel* model() const { return nullptr; }
};

/// What a session shares among the programs of one device.
struct BackendOptions {
  int threads = 0;
  std::chrono::microseconds spin = SessionOptions().spin;
  std::int64_t memory_limit_bytes = 0;  ///< 0: none
  Log log;
};

/// The backends that are built in, each made on demand.
struct BackendEntry {
  Device device;
  Result<std::unique_ptr<Backend>> (*open)(const BackendOptions&);
  DeviceInfo (*info)();
  std::string_view name;
};
std::span<const BackendEntry> backends();
/// Backends that no session chooses: "reference" evaluates node by node, "null" computes nothing.
std::span<const BackendEntry> checking_backends();

}  // namespace rlx
