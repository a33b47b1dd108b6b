// Predicted times of steps, and the threads that make the whole run shortest.
#include "plan/predict.hpp"

#include <algorithm>
#include <limits>

namespace rlx::plan {
namespace {

/// What limits a kernel, in a word.
std::string bound_of(const cost::KernelTime& time) {
  if (time.overhead > std::max(time.compute, time.memory)) return "launch";
  return time.memory > time.compute ? "memory" : "compute";
}

/// The times of a step by number of threads, one first.
std::vector<cost::KernelTime> times_of(const Plan& plan, const Step& step,
                                       std::span<const cost::Residency> where,
                                       const cost::MachineModel& model, int most) {
  if (step.kind == Step::Kind::host) {
    double elements = 0;
    for (const std::int32_t buffer : step.buffers)
      elements += static_cast<double>(plan.buffers[static_cast<std::size_t>(buffer)].elements);
    const double ns = model.host_call + elements * model.host_element;
    return {{.ns = ns, .overhead = ns}};
  }
  const loop::Kernel& kernel = plan.kernels[static_cast<std::size_t>(step.index)];
  const cost::KernelWork work = cost::work_of(kernel, where, model);
  std::vector<cost::KernelTime> times;
  const int useful = std::max(1, std::min(most, static_cast<int>(std::min(work.items, 1e6))));
  for (int threads = 1; threads <= useful; ++threads)
    times.push_back(cost::time_of(work, model, threads));
  return times;
}

void set_time(Step& step, const cost::KernelTime& time) {
  step.predicted_ns = time.ns;
  step.bound = bound_of(time);
}

double barriers_between(bool before_shares, bool shares, const cost::MachineModel& model) {
  return before_shares || shares ? model.barrier : 0;
}

/// The best number of threads beyond one; 0: there is none.
int best_shared(const std::vector<cost::KernelTime>& times) {
  int best = 0;
  for (int threads = 2; threads <= static_cast<int>(times.size()); ++threads) {
    if (best == 0 || times[static_cast<std::size_t>(threads - 1)].ns <
                         times[static_cast<std::size_t>(best - 1)].ns * 0.98)
      best = threads;
  }
  return best;
}

/// A step waits unless it and the one before both run on worker 0 alone.
void set_barriers(Plan& plan) {
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    plan.steps[i].barrier_before =
        i > 0 && (plan.steps[i].threads > 1 || plan.steps[i - 1].threads > 1);
  }
}

void set_total(Plan& plan, const cost::MachineModel& model) {
  double total = model.run;
  bool team = false;
  for (const Step& step : plan.steps) {
    total += step.predicted_ns + (step.barrier_before ? model.barrier : 0);
    team = team || step.threads > 1;
  }
  plan.predicted_ns = total + (team ? model.team : 0);
}

}  // namespace

void choose_threads(Plan& plan, const cost::MachineModel& model, int most) {
  const auto where = residencies(plan, model);
  const std::size_t count = plan.steps.size();
  std::vector<std::vector<cost::KernelTime>> times;
  std::vector<int> shared(count);
  for (std::size_t i = 0; i < count; ++i) {
    times.push_back(times_of(plan, plan.steps[i], where[i], model, most));
    shared[i] = best_shared(times[i]);
  }
  // cost[s]: of the steps so far, the last of them alone (0) or shared (1). A barrier stands
  // between two steps unless both are on one thread.
  constexpr double never = std::numeric_limits<double>::infinity();
  std::vector<std::array<int, 2>> from(count);
  std::array<double, 2> cost{0, never};
  double alone = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::array<double, 2> next{never, never};
    for (int state = 0; state < 2; ++state) {
      if (state == 1 && shared[i] == 0) continue;
      const double own = times[i][static_cast<std::size_t>(state == 0 ? 0 : shared[i] - 1)].ns;
      for (int before = 0; before < 2; ++before) {
        const double wait = i == 0 ? 0 : barriers_between(before == 1, state == 1, model);
        const double total = cost[static_cast<std::size_t>(before)] + wait + own;
        if (total >= next[static_cast<std::size_t>(state)]) continue;
        next[static_cast<std::size_t>(state)] = total;
        from[i][static_cast<std::size_t>(state)] = before;
      }
    }
    alone += times[i][0].ns;
    cost = next;
  }
  int state = cost[1] < cost[0] ? 1 : 0;
  const bool team = cost[static_cast<std::size_t>(state)] + model.team < alone;
  for (std::size_t i = count; i-- > 0;) {
    Step& step = plan.steps[i];
    step.threads = team && state == 1 ? shared[i] : 1;
    set_time(step, times[i][static_cast<std::size_t>(step.threads - 1)]);
    state = from[i][static_cast<std::size_t>(state)];
  }
  set_barriers(plan);
  set_total(plan, model);
}

void predict_times(Plan& plan, const cost::MachineModel& model) {
  const auto where = residencies(plan, model);
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    Step& step = plan.steps[i];
    const std::vector<cost::KernelTime> times = times_of(plan, step, where[i], model, step.threads);
    set_time(step, times[std::min(times.size(), static_cast<std::size_t>(step.threads)) - 1]);
  }
  set_total(plan, model);
}

}  // namespace rlx::plan
