// What a CompiledGraph holds: one bound program, or programs made on first sight of a shape.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rlx/runtime.hpp"
#include "runtime/compile.hpp"
#include "runtime/run_queue.hpp"
#include "runtime/session.hpp"
#include "runtime/stages.hpp"

namespace rlx {

/// What a program was made from and what was set since: a clone begins with a copy of it.
struct ProgramSettings {
  std::shared_ptr<Session::Impl> session;  ///< keeps the backend alive
  Backend* backend = nullptr;
  std::optional<DeviceChoice> choice;  ///< of the backend; nothing where there was none to make
  std::shared_ptr<const Graph> graph;  ///< with the asked outputs and the symbols that were bound
  CompileOptions options;
  std::vector<IoInfo> inputs, outputs;
  std::map<std::string, Tensor> params;  ///< set by the user, for programs made later
  /// The plan's inputs and outputs by the program's: fed ones are not among the latter.
  std::vector<std::size_t> slot_of, output_of;

  // set_active_extent
  std::shared_ptr<const Graph> source;  ///< as it was given, its symbols not bound
  CompileOptions source_options;

  /// What the user asked of experts; programs made later take it over.
  struct Experts {
    std::vector<ExpertMask> masks;  ///< by layer; empty: all in memory
    bool captures = false;
  } experts;
};

struct CompiledGraph::Impl : ProgramSettings {
  Impl() = default;
  explicit Impl(const ProgramSettings& settings) : ProgramSettings(settings) {}
  ~Impl() { queue.reset(); }           // before all that its run in flight uses
  std::optional<StaticProgram> bound;  ///< where all shapes are known

  /// Programs of shapes seen by run, most recently used first.
  struct Specialisation {
    std::vector<Dims> dims;
    std::unique_ptr<Stage> stage;
  };
  std::list<Specialisation> specialisations;
  Stage* last_stage = nullptr;

  /// The bound program, or those of the parts that the last run went through.
  std::vector<const StaticProgram*> programs() const;

  /// A value that runs keep in place of an input. Where an output feeds it, the run writes `next`,
  /// and the two change places.
  struct Handle {
    std::string name;
    std::size_t slot = 0;  ///< the plan's input
    int feed = -1;         ///< the plan's output that becomes the next value
    Tensor value, next;
  };
  std::vector<Handle> handles;

  /// A program for some live rows.
  struct Extent {
    std::pair<std::int64_t, std::int64_t> rows;  ///< the live ones, and the value that they cut
    std::unique_ptr<Impl> program;
    std::vector<Tensor> cropped;  ///< by input; empty: its live rows are read where they are
    std::vector<char> in_place;   ///< by output: the live rows are written where they belong
  };
  std::list<Extent> extents;   ///< most recently used first
  Extent* active = nullptr;    ///< one of them; null: all rows
  std::vector<void*> targets;  ///< by the plan's output: where its value goes

  /// Set by cancel(), cleared where a run begins; all executables of this program look at it.
  std::shared_ptr<std::atomic<bool>> cancel_flag = std::make_shared<std::atomic<bool>>(false);
  std::unique_ptr<RunQueue> queue;                ///< made by the first commit_no_wait
  std::atomic<RunQueue*> seen_queue{nullptr};     ///< the same, for cancel() on other threads
  std::vector<std::unique_ptr<Impl>> companions;  ///< clones for run_pipelined

  // reused by every run
  std::vector<const void*> slots;  ///< by the plan's inputs
  std::vector<char> given;         ///< by input, of the call that is being matched
  std::vector<Tensor> converted;
  std::vector<ArenaSlice> slices;
  std::vector<Dims> output_dims;
  std::vector<TensorView> views;

  static Result<std::unique_ptr<Impl>> make(std::shared_ptr<Session::Impl> session,
                                            Backend& backend, const Graph& graph,
                                            const CompileOptions& options);

  /// Errors: an answer of the options to a question that the bound program's plan does not ask.
  Status check_answers() const;
  /// Prepares what bound runs reuse.
  void prepare();
  /// Takes fed inputs and outputs out of the lists. Errors: unknown names, types that differ.
  Status apply_feeds(const std::vector<CompileOptions::Feed>& feeds);
  /// Makes an input of the plan a handle of zeros.
  Handle& add_handle(std::size_t slot, std::string name);
  Status set_feed(Handle& handle, std::size_t output);
  const Handle* find_handle(std::string_view name) const;
  const Handle* handle_of_slot(std::size_t slot) const;
  /// Dtype and dims of a handle or state by name.
  Result<std::pair<TensorView, std::byte*>> handle_memory(std::string_view name) const;
  /// Checks pointers by position and notes them in `slots`.
  Status take_slots(std::span<const void* const> slot_inputs);
  bool is_fed_by(std::size_t plan_output) const;
  /// One run of the bound program on `slots`.
  Status run_bound();
  /// Errors where runs are queued.
  Status check_idle() const;
  /// check_idle; cancels from before the run do not count any more.
  Status begin_run();
  Result<std::unique_ptr<Impl>> clone() const;
  Status run_active();
  Result<Extent> make_extent(const std::pair<std::int64_t, std::int64_t>& rows,
                             const CompileOptions& cut) const;
  /// Errors: no grouped matmuls, queued runs.
  Result<ExpertControl*> expert_control();
  /// Settings of experts, for a program of other live rows.
  Status hand_experts_to(Impl& program) const;
  /// Calls `change(control)` on every program that runs may use.
  template <class Change>
  Status change_experts(Change change);
  Status set_derived_param(const std::string& name, const Tensor& value);
  static Result<std::unique_ptr<Impl>> load(std::shared_ptr<Session::Impl> session,
                                            const std::string& file,
                                            std::optional<DevicePolicy::Missing> missing);
  /// Fills `slots` in declaration order; `typed` accepts only the declared dtypes. `dims` gets the
  /// dims of each input.
  Status match(std::span<const NamedInput> named, bool typed, std::vector<Dims>* dims);
  Status match_one(const NamedInput& input, bool typed, std::vector<Dims>* dims);
  Result<Outputs> run(std::span<const NamedInput> named, bool typed);
  /// Runs once, then times each kernel and what is evaluated between parts; in us, by step.
  Result<std::vector<double>> time_steps(std::span<const NamedInput> named, int runs);
  /// The slots as tensors that own nothing, for the length of a run.
  std::map<std::string, Tensor> borrowed_inputs(const std::vector<Dims>& dims) const;
  Result<Outputs> run_guarded(std::span<const NamedInput> named);
  Result<Stage*> stage_for(const std::vector<Dims>& dims);
  Result<StaticProgram*> need_bound();
  Tensor read(std::size_t output) const;
};

/// Values of one float dtype in another, rounded to nearest even; as many as `to` holds.
void convert_floats(std::span<const std::byte> bytes, DType from, Tensor& to);

}  // namespace rlx
