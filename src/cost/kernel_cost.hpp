// Predicts how long a generated kernel takes, from its loop IR alone: the blocks and loops that its
// code will have, what their instructions cost, and where its data comes from.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "codegen/loop.hpp"
#include "cost/items.hpp"
#include "cost/machine_model.hpp"
#include "cost/shares.hpp"

namespace rlx::cost {

/// Where the bytes of one of a kernel's buffers lie when it starts.
struct Residency {
  std::array<double, level_count> bytes{};  ///< by level; their sum is what the kernel may touch
};

/// Adds bytes to the levels from `nearest` on that they are found in when `distance` other bytes
/// were touched since; negative: they were never touched. `age`: ns since then.
void add_found(Residency& residency, double distance, double bytes, const MachineModel& model,
               std::size_t nearest, double age = 0);

/// What else a core does between two runs of a plan: the rest of the program that it is a part of.
struct Elsewhere {
  double bytes = 0;  ///< touched
  double ns = 0;
};

/// What so much arithmetic, and so many bytes from the caches that cores share, take one of them,
/// roughly.
double about_ns(double flops, double bytes, const MachineModel& model);

/// What one register of points of such an expression takes a core, data in L1 and waits left out.
double expression_ns(std::span<const ScalarNode> nodes, const MachineModel& model);

/// The machine whose caches of single cores are those of a whole team.
MachineModel with_caches_of_team(const MachineModel& model, int workers);

/// A prediction for one kernel on so many threads. All in ns, of the slowest worker.
struct KernelTime {
  double ns = 0;        ///< the whole
  double compute = 0;   ///< instructions, data in L1
  double memory = 0;    ///< moving the data, instructions free
  double overhead = 0;  ///< calls, items, loops
  double flops = 0;     ///< of all workers; a transcendental counts as what it costs
};

/// What a kernel does, without threads: so that trying thread counts costs little.
struct KernelWork {
  Items items;         ///< what workers share out
  double compute = 0;  ///< ns of one worker doing all
  double overhead = 0;
  double flops = 0;
  std::array<double, level_count> read{}, written{};  ///< bytes that come from, go to each level
  std::array<double, level_count> streamed{};  ///< bytes read again, beside all of the compute
  double starts = 0;                           ///< ns that streams of rows take to begin anew
  double jumps = 0;                            ///< rows whose place only data tells
  double turned_lines = 0;                     ///< cache lines that turned tiles read and write
  double lone_lines = 0;                       ///< cache lines that do not follow each other
  double far_rows = 0;          ///< rows that begin far from where the ones before ended
  double lines_across = 0;      ///< lines that are read by registers which lie across two of them
  double further_lines = 0;     ///< lines of more streams than are fetched ahead at once
  double loads_apart = 0;       ///< of a map's loads the part in such streams
  double stores_apart = 0;      ///< the same of its stores
  double stores_with_gaps = 0;  ///< lines stored in rows behind each of which some are left out
  double fetched_more = 0;      ///< times more that lines of another core are waited for
  double crowded = 0;           ///< ns that lines take which share too few sets of L1
  double first = 0;             ///< ns until the first bytes are there
  double copied = 0;            ///< ns that every worker spends anew (panels copied by each)
  double beside = 1;            ///< share of compute during which far data still arrives
  double far_beside = 1;    ///< share of the time of bytes from memory that is beside compute, too
  double asked_beside = 0;  ///< the same of bytes that the kernel asks for ahead, if it is more
  double power = 3;         ///< of the p-norm in which instructions and streams add up
  double near_power = 0;  ///< the same of streams from L2, by themselves; 0: they are as all others
  double b_share = 1;     ///< of a contraction's B: the part that is read
  double code_lines = 8;  ///< cache lines of code that a call runs through
  std::vector<Share> shares;  ///< how its buffers fall on a team

  /// Of the lines that it moves, so many of them.
  double share_of(double lines) const;
};

/// All of it but where its data comes from: the costlier part.
KernelWork instructions_of(const loop::Kernel& kernel, const MachineModel& model);
/// The rest. residencies[i] is that of kernel.buffers[i]; empty: all is in L1 or as near as it
/// fits.
KernelWork with_traffic(KernelWork instructions, const loop::Kernel& kernel,
                        std::span<const Residency> residencies, const MachineModel& model);
/// Both at once.
KernelWork work_of(const loop::Kernel& kernel, std::span<const Residency> residencies,
                   const MachineModel& model);

/// Cache lines of code and of what belongs to it that a call reads at least once, roughly.
double code_lines_of(const loop::Kernel& kernel);

/// What a worker waits for lines from the caches of others, in ns: that it reads, beside whatever
/// hides memory, and that it writes.
struct CrossingTime {
  double fetched = 0, taken = 0;
  /// What these lines are of all that the kernel reads, and of all that it writes.
  double part_read = 0, part_written = 0;

  bool is_nothing() const { return fetched == 0 && taken == 0; }
  CrossingTime operator*(double times) const {
    return {fetched * times, taken * times, part_read, part_written};
  }
};

/// The time of that work on `threads` workers, barriers not counted. A line of the program's code
/// is there after `code_line` ns.
KernelTime time_of(const KernelWork& work, const MachineModel& model, int threads,
                   double code_line = 0, const CrossingTime& crossing = {});

/// Barriers that an iteration of a loop costs a team beside those between its steps: before and
/// behind them.
inline constexpr double loop_barriers = 2;

/// How the code generator cuts a contraction into blocks.
struct ContractionCut {
  std::int64_t row_blocks = 1, column_blocks = 1, block_columns = 1;
  bool by_batch = false;  ///< workers share out the batch
};
ContractionCut cut_of(const loop::Kernel& contraction, const codegen::Machine& machine);

/// Whether it makes dot products of a contraction (one column, both operands side by side along k).
bool becomes_dots(const loop::Contraction& contraction, DType a, DType b,
                  const codegen::Machine& machine);

/// The work and its time at once.
KernelTime predict(const loop::Kernel& kernel, std::span<const Residency> residencies,
                   const MachineModel& model, int threads);

/// Products that a unit makes in the time of one of f32: 2 of bf16 or 16-bit integers and 4 of
/// bytes in a lane of 32 bits, eight times as many of each where tiles are multiplied. The kernel's
/// extents must be at least 1.
int products_together(const loop::Kernel& kernel, const codegen::Machine& machine);

}  // namespace rlx::cost
