// Predicted times of a plan: where each step's data lies when it starts, what the step takes on
// every number of threads, and which number is best.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "cost/kernel_cost.hpp"
#include "plan/pieces.hpp"
#include "plan/plan.hpp"

namespace rlx::plan {

/// By step, those inside loops too: the residency of each of its buffers.
using Residencies = std::map<const Step*, std::vector<cost::Residency>>;

/// Where data and code lie when a step starts.
struct Whereabouts {
  Residencies data;
  std::map<const Step*, cost::Residency> code;  ///< of kernels: lines of their code
  Residencies data_of_team;  ///< where each worker has its part in its own caches; of one: none
};

/// Bytes of each buffer of each step, and lines of its code, by the level that they come from when
/// the plan runs again and again. `pieces`: its memory. `workers`: of the team that may share
/// steps. `elsewhere`: what is done between two runs; weights and code are further away then.
Whereabouts whereabouts(const Plan& plan, const Pieces& pieces, const cost::MachineModel& model,
                        int workers = 1, const cost::Elsewhere& elsewhere = {});

/// The same where every step runs on its number of threads: what the first worker finds, through
/// whose caches only its part of shared steps passes. `data` and `code` alone.
Whereabouts whereabouts_of_first(const Plan& plan, const Pieces& pieces,
                                 const cost::MachineModel& model,
                                 const cost::Elsewhere& elsewhere = {});

/// Bytes that a member of a team finds in the caches of the others when a step starts: of the one
/// that finds most.
struct Crossing {
  /// By the level (L1, L2) that holds them.
  std::array<double, 2> read{}, written{};
  /// Of what is read, what windows read beyond their worker's part.
  std::array<double, 2> beyond{};
  double torn_lines = 0;  ///< that two workers write a part of, row by row

  double all_read() const { return read[0] + read[1]; }
  double all_written() const { return written[0] + written[1]; }
  void add(const Crossing& other, double times) {
    for (std::size_t level = 0; level < read.size(); ++level) {
      read[level] += times * other.read[level];
      written[level] += times * other.written[level];
      beyond[level] += times * other.beyond[level];
    }
    torn_lines += times * other.torn_lines;
  }
};

/// Those of every step, loops' own steps too, where the plan runs on its numbers of threads again
/// and again. `pieces`: its memory, cut fine enough for planes of kernels with many accesses.
/// `where`: each worker's part in its own caches. `work_of`: a kernel's, whose items and buffers
/// fall on the team.
std::map<const Step*, Crossing> crossings(
    const Plan& plan, const Pieces& pieces, const Residencies& where,
    const std::function<const cost::KernelWork&(const Step&)>& work_of,
    const cost::Overlap& overlap);

/// Sets the number of threads of every step, 1 to `most`, so that the whole run is predicted to
/// take least time, and the predicted times of steps and plan. Barriers follow from the threads.
void choose_threads(Plan& plan, const cost::MachineModel& model, int most,
                    const cost::Elsewhere& elsewhere = {});

/// The predicted times for the numbers of threads that the plan has.
void predict_times(Plan& plan, const cost::MachineModel& model);

/// What all products of the plan would take if nothing kept the units of its cores from them: of
/// its predicted time the share in which they are busy.
double product_ns(const Plan& plan, const cost::MachineModel& model);

}  // namespace rlx::plan
