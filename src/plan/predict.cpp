// Predicted times of steps, and the threads that make the whole run shortest.
#include "plan/predict.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "cost/touched.hpp"

namespace rlx::plan {
namespace {

using Times = std::vector<cost::KernelTime>;  ///< by number of threads, one first

/// How much more than predicted calls of workers and bytes of other cores count when threads are
/// chosen: they take several times as long where the system has put the cores far apart, while work
/// that is shared in vain never pays.
constexpr double caution_of_calls = 2.5, caution_of_bytes = 2;

/// What limits a kernel, in a word.
std::string bound_of(const cost::KernelTime& time) {
  if (time.overhead > std::max(time.compute, time.memory)) return "launch";
  return time.memory > time.compute ? "memory" : "compute";
}

void set_time(Step& step, const cost::KernelTime& time) {
  step.predicted_ns = time.ns;
  step.bound = bound_of(time);
}

/// A step waits unless it and the one before both run on worker 0 alone.
void set_barriers(std::vector<Step>& steps) {
  for (std::size_t i = 0; i < steps.size(); ++i)
    steps[i].barrier_before = i > 0 && (steps[i].threads > 1 || steps[i - 1].threads > 1);
}

/// Steps by themselves, and what lies between them: barriers, or the head starts of kernels.
double total_of(const std::vector<Step>& steps, const cost::MachineModel& model) {
  double total = 0;
  for (const Step& step : steps) {
    total += step.predicted_ns;
    if (step.barrier_before) {
      total += model.barrier;
    } else if (&step != &steps.front()) {
      total -= std::min(model.head_start, step.predicted_ns / 2);
    }
  }
  return total;
}

bool shares(const Step& step) { return step.threads > 1; }

/// The best number of threads beyond one; 0: there is none.
int best_shared(const Times& times) {
  int best = 0;
  for (int threads = 2; threads <= static_cast<int>(times.size()); ++threads) {
    if (best == 0 || times[static_cast<std::size_t>(threads - 1)].ns <
                         times[static_cast<std::size_t>(best - 1)].ns * 0.98)
      best = threads;
  }
  return best;
}

class Predictor {
 public:
  /// `most`: threads of a step.
  Predictor(Plan& plan, const cost::MachineModel& model, int most,
            const cost::Elsewhere& elsewhere = {})
      : plan_(plan),
        model_(model),
        pieces_(plan, elsewhere.bytes > 0 ? cache_pieces_of_forms : cache_pieces),
        owned_(plan, elsewhere.bytes > 0 ? owner_pieces_of_forms : owner_pieces),
        elsewhere_(elsewhere),
        where_(whereabouts(plan, pieces_, model, most, elsewhere)),
        most_(most) {}

  void choose() {
    // What the members of a team fetch from each other depends on who did what in all other steps.
    // So threads are chosen with what it is where all that can be shared is, and plans compared.
    choose(plan_.steps, Mode::alone);
    Choice best = settle();
    if (most_ > 1) {
      for (const Mode mode : {Mode::all, Mode::best}) {
        choose(plan_.steps, mode);
        if (threads_of_steps() == best.threads) continue;
        Choice other = settle();
        if (other.cautious_ns < best.cautious_ns) best = std::move(other);
      }
      take(best);
    }
    set_total();
  }

  void predict() {
    settle();
    set_total();
  }

 private:
  /// What is known once steps have their numbers of threads: what the first worker finds, and what
  /// members of the team find with each other. Empty where there is no team.
  struct Settled {
    Whereabouts where;
    std::map<const Step*, Crossing> crossings;
  };

  /// Which steps share their work: none, those for which it is best, all that can.
  enum class Mode : std::uint8_t { alone, best, all };

  struct Choice {
    std::vector<std::int32_t> threads;
    Settled settled;
    double cautious_ns = 0;  ///< of a run, the talk between cores counted with caution
  };

  /// Follows who has what with the steps' threads, and sets their times.
  Choice settle() {
    const auto work_of = [&](const Step& step) -> const cost::KernelWork& {
      return work(step, where_.data);
    };
    const bool team = std::any_of(plan_.steps.begin(), plan_.steps.end(), shares);
    settled_ = {};
    if (team) {
      settled_.where = whereabouts_of_first(plan_, pieces_, model_, elsewhere_);
      settled_.crossings = crossings(plan_, owned_, settled_.where.data, work_of, model_.overlap);
    }
    predict(plan_.steps);
    set_barriers(plan_.steps);
    double talk = team ? caution_of_calls * model_.team : 0;
    for (const Step& step : plan_.steps) {
      const cost::CrossingTime moved = crossing_time(step);
      talk += shown_ns(step, step.threads, moved * caution_of_bytes) -
              shown_ns(step, step.threads, moved) +
              (step.barrier_before ? (caution_of_calls - 1) * model_.barrier : 0);
    }
    return {threads_of_steps(), settled_, total_of(plan_.steps, model_) + talk};
  }
  /// Goes back to what has been settled.
  void take(const Choice& choice) {
    auto next = choice.threads.begin();
    for_steps([&](Step& step) { step.threads = *next++; });
    settled_ = choice.settled;
    for (LoopPlan& loop : plan_.loops) set_barriers(loop.steps);
    predict(plan_.steps);
    set_barriers(plan_.steps);
  }

  /// Of all steps, those of loops behind the others.
  std::vector<std::int32_t> threads_of_steps() {
    std::vector<std::int32_t> threads;
    for_steps([&](Step& step) { threads.push_back(step.threads); });
    return threads;
  }
  void for_steps(const auto& visit) {
    for (Step& step : plan_.steps) visit(step);
    for (LoopPlan& loop : plan_.loops) std::for_each(loop.steps.begin(), loop.steps.end(), visit);
  }

  /// Gives every step one thread, or the number that is best when barriers count. A barrier stands
  /// between two steps unless both are on one thread.
  void choose(std::vector<Step>& steps, Mode mode) {
    constexpr double never = std::numeric_limits<double>::infinity();
    const std::size_t count = steps.size();
    std::vector<Times> times;
    std::vector<int> shared(count);
    for (std::size_t i = 0; i < count; ++i) {
      times.push_back(times_of(steps[i], mode));
      if (mode != Mode::alone) shared[i] = best_shared(times[i]);
    }
    std::vector<std::array<int, 2>> from(count);
    std::array<double, 2> cost{0, never};  // of the steps so far, the last one alone or shared
    for (std::size_t i = 0; i < count; ++i) {
      std::array<double, 2> next{never, never};
      for (std::size_t state = 0; state < 2; ++state) {
        if (state == 1 && shared[i] == 0) continue;
        if (state == 0 && shared[i] != 0 && mode == Mode::all) continue;
        const double own = times[i][static_cast<std::size_t>(state == 0 ? 0 : shared[i] - 1)].ns;
        for (std::size_t before = 0; before < 2; ++before) {
          const bool talks = i > 0 && (before == 1 || state == 1);
          const double wait = talks ? model_.barrier : 0;
          const cost::CrossingTime moved = !talks               ? cost::CrossingTime()
                                           : before + state < 2 ? turn_time(steps[i], state == 1)
                                                                : crossing_time(steps[i]);
          const double shown =
              shown_ns(steps[i], state == 1 ? shared[i] : 1, moved * caution_of_bytes);
          const double total = cost[before] + own + caution_of_calls * wait + shown;
          // Also where nothing is known of a machine and no time is a number.
          if (!(total < next[state])) continue;
          next[state] = total;
          from[i][state] = static_cast<int>(before);
        }
      }
      cost = next;
    }
    int state = cost[1] < cost[0] ? 1 : 0;
    for (std::size_t i = count; i-- > 0;) {
      steps[i].threads = state == 1 ? shared[i] : 1;
      set_time(steps[i], times[i][static_cast<std::size_t>(steps[i].threads - 1)]);
      if (steps[i].kind == Step::Kind::loop && steps[i].threads == 1)
        choose(loop_of(steps[i]).steps, Mode::alone);
      state = from[i][static_cast<std::size_t>(state)];
    }
    set_barriers(steps);
  }

  void predict(std::vector<Step>& steps) {
    for (Step& step : steps) {
      if (step.kind == Step::Kind::loop) {
        predict(loop_of(step).steps);
        set_time(step, loop_time(loop_of(step)));
        continue;
      }
      set_time(step, settled_time(step));
    }
  }

  /// Of a step that is no loop, on its number of threads.
  cost::KernelTime settled_time(const Step& step) {
    if (step.kind != Step::Kind::kernel || settled_.where.data.empty())
      return time_of(step, step.threads, crossing_time(step));
    const cost::KernelWork work = cost::with_traffic(instructions(step), kernel_of(step),
                                                     settled_.where.data.at(&step), model_);
    return cost::time_of(work, model_, step.threads, code_line(step, settled_.where),
                         crossing_time(step));
  }

  /// Of a step that is no loop, on that many threads, or as many as it can use; `crossing` ns of
  /// them for what lies in the caches of others.
  cost::KernelTime time_of(const Step& step, int threads, const cost::CrossingTime& crossing) {
    const Times& times = times_of(step);
    threads = std::min(threads, static_cast<int>(times.size()));
    if (crossing.is_nothing() || step.kind != Step::Kind::kernel)
      return times[static_cast<std::size_t>(threads - 1)];
    return cost::time_of(work(step, threads == 1 ? where_.data : where_.data_of_team), model_,
                         threads, code_line(step, where_), crossing);
  }
  /// What so much crossing adds to a step's time.
  double shown_ns(const Step& step, int threads, const cost::CrossingTime& crossing) {
    if (crossing.is_nothing()) return 0;
    return time_of(step, threads, crossing).ns - time_of(step, threads, {}).ns;
  }

  /// What it costs that data lies in the other workers' caches, for who does that work.
  cost::CrossingTime crossing_time(const Crossing& crossing, const cost::KernelWork& work = {},
                                   int threads = 1) const {
    const cost::Overlap& overlap = model_.overlap;
    const double fetched =
        overlap.fetched * (1 - overlap.fetched_together * work.loads_apart) *
        (1 + overlap.fetched_alone * work.share_of(work.turned_lines + work.lone_lines)) *
        (1 + work.fetched_more);
    const double taken = overlap.taken * (1 + overlap.taken_apart * work.stores_apart) *
                         (1 + overlap.taken_alone * work.share_of(work.lone_lines));
    cost::CrossingTime time{.taken = overlap.torn_line * crossing.torn_lines};
    constexpr double line_bytes = 64;
    if (threads == 1)
      time.fetched = overlap.first_fetched * std::min(1.0, crossing.all_read() / line_bytes);
    for (std::size_t level = 0; level < model_.other_core.size(); ++level) {
      const double read = crossing.read[level] + overlap.fetched_beyond * crossing.beyond[level];
      time.fetched += fetched * read / model_.other_core[level];
      time.taken += taken * crossing.written[level] / model_.other_core[level];
    }
    const auto part = [](double bytes, const auto& by_level) {
      const double all = by_level[0] + by_level[1] + by_level[2] + by_level[3];
      return all > 0 ? std::min(1.0, bytes / all) : 0;
    };
    time.part_read = part(crossing.all_read(), work.read);
    time.part_written = part(crossing.all_written(), work.written);
    return time;
  }
  /// The same of a step of the plan as it is.
  cost::CrossingTime crossing_time(const Step& step) {
    const auto known = settled_.crossings.find(&step);
    if (known == settled_.crossings.end()) return {};
    if (step.kind != Step::Kind::kernel) return crossing_time(known->second);
    return crossing_time(known->second, work(step, where_.data), step.threads);
  }
  /// About the same where either the step before or this one runs on one worker, who has the part
  /// of the others or leaves them theirs.
  cost::CrossingTime turn_time(const Step& step, bool shared) const {
    if (step.kind != Step::Kind::kernel) return {};
    double bytes = 0;
    const loop::Kernel& kernel = kernel_of(step);
    for (std::size_t i = 0; i < step.buffers.size(); ++i) {
      const BufferPlan& buffer = plan_.buffers[static_cast<std::size_t>(step.buffers[i])];
      if (buffer.storage == Storage::arena && !kernel.buffers[i].local)
        bytes += std::min(static_cast<double>(buffer.bytes()), cost::touched_bytes(kernel, i));
    }
    // The rest lies in the caches that all share.
    const auto near = near_bytes_.find(&step);
    if (near == near_bytes_.end()) return {};
    const auto [of_l1, of_l2] = near->second;
    // One worker fetches what all others have, or each of them its part.
    const double part = std::min(1.0, bytes / std::max(of_l1 + of_l2, 1.0)) *
                        (shared ? 1.0 / most_ : 1 - 1.0 / most_);
    return crossing_time({.read = {of_l1 * part, of_l2 * part}});
  }

  Times times_of(const Step& step, Mode mode) {
    return step.kind == Step::Kind::loop ? loop_times(step, mode) : times_of(step);
  }
  /// Of a step that is no loop. Threads are chosen more than once.
  const Times& times_of(const Step& step) {
    Times& times = times_[&step];
    if (!times.empty()) return times;
    if (step.kind == Step::Kind::kernel) times = kernel_times(step);
    if (step.kind == Step::Kind::host) times = host_times(step);
    if (step.kind == Step::Kind::experts) times = grouped_times(step);
    return times;
  }

  Times kernel_times(const Step& step) {
    const cost::KernelWork& alone = work(step, where_.data);
    near_bytes_[&step] = {alone.read[0] + alone.written[0], alone.read[1] + alone.written[1]};
    const double line = code_line(step, where_);
    Times times{cost::time_of(alone, model_, 1, line)};
    const int useful = std::max(
        1, std::min(most_, static_cast<int>(std::min<std::int64_t>(alone.items.count(), 1 << 20))));
    if (useful == 1) return times;
    const cost::KernelWork& shared = work(step, where_.data_of_team);
    for (int threads = 2; threads <= useful; ++threads)
      times.push_back(cost::time_of(shared, model_, threads, line));
    return times;
  }
  /// Of a step's kernel where its data lies so.
  const cost::KernelWork& work(const Step& step, const Residencies& where) {
    const auto [known, is_new] = works_.try_emplace({&step, &where});
    if (is_new)
      known->second =
          cost::with_traffic(instructions(step), kernel_of(step), where.at(&step), model_);
    return known->second;
  }
  const loop::Kernel& kernel_of(const Step& step) const {
    return plan_.kernels[static_cast<std::size_t>(step.index)];
  }
  const cost::KernelWork& instructions(const Step& step) {
    const auto [known, is_new] = instructions_.try_emplace(step.index);
    if (is_new) known->second = cost::instructions_of(kernel_of(step), model_);
    return known->second;
  }

  /// Kernels of the backend's own: what they tell, or a quarter of the machine's peak, shared
  /// evenly; without arithmetic an element a cycle.
  Times host_times(const Step& step) const {
    const HostCall& call = plan_.host_calls[static_cast<std::size_t>(step.index)];
    const codegen::StepWork& work = call.work;
    if (work.items == 0) return {host_time(step)};
    constexpr double share_of_peak = 0.25;
    const double flops_per_cycle = model_.fma_per_cycle * model_.machine.vector_bytes / 2.0;
    double cycles = work.cycles > 0 ? work.cycles : step.flops / (flops_per_cycle * share_of_peak);
    if (cycles <= 0) cycles = elements_of(call.outputs);
    Times times;
    for (int threads = 1; threads <= most_ && threads <= work.items; ++threads) {
      const double compute = (cycles / threads + work.cycles_each) * model_.cycle;
      times.push_back(
          {.ns = model_.kernel + compute, .compute = compute, .overhead = model_.kernel});
    }
    return times;
  }
  /// Rows spread over the experts; their matrices come from memory.
  Times grouped_times(const Step& step) const {
    const GroupedPlan& grouped = plan_.grouped[static_cast<std::size_t>(step.index)];
    const auto rows = static_cast<double>(grouped.rows);
    const double read = std::min(rows, static_cast<double>(grouped.experts));
    const double blocks = read * static_cast<double>(grouped.column_blocks);
    // Short groups leave multipliers waiting for each other.
    const double share_of_peak = std::min(0.85, 0.2 * rows / read);
    const double flops_per_cycle =
        2 * model_.fma_per_cycle * model_.machine.vector_bytes /
        static_cast<double>(std::max<std::size_t>(4, size_of(dtype_of(grouped.result))));
    const double compute = step.flops * model_.cycle / (flops_per_cycle * share_of_peak);
    const double calls = blocks * model_.item * std::max(1.0, rows / read / 6);
    Times times;
    for (int threads = 1; threads <= most_ && threads <= blocks; ++threads) {
      const double rate = std::min(threads * model_.read[3], model_.memory_all);
      const cost::KernelTime time{.ns = 0,
                                  .compute = compute / threads,
                                  .memory = step.bytes / rate,
                                  .overhead = model_.kernel + calls / threads};
      times.push_back(time);
      times.back().ns = std::max(time.compute, time.memory) + time.overhead;
    }
    return times;
  }
  DType dtype_of(std::int32_t buffer) const {
    return plan_.buffers[static_cast<std::size_t>(buffer)].dtype;
  }
  double elements_of(const std::vector<std::int32_t>& buffers) const {
    double elements = 0;
    for (const std::int32_t buffer : buffers) {
      if (buffer >= 0)
        elements += static_cast<double>(plan_.buffers[static_cast<std::size_t>(buffer)].elements);
    }
    return elements;
  }
  cost::KernelTime host_time(const Step& step) const {
    const double ns = model_.host_call + elements_of(step.buffers) * model_.host_element;
    return {.ns = ns, .overhead = ns};
  }

  /// On one thread; and with the steps inside on the threads that are best for them, which is how
  /// they are left.
  Times loop_times(const Step& step, Mode mode) {
    LoopPlan& loop = loop_of(step);
    choose(loop.steps, Mode::alone);
    Times times{loop_time(loop)};
    if (mode == Mode::alone || most_ == 1) return times;
    choose(loop.steps, mode);
    const bool shared = std::any_of(loop.steps.begin(), loop.steps.end(), shares);
    if (!shared) return times;
    // The steps inside need the whole team.
    times.resize(static_cast<std::size_t>(most_), {.ns = std::numeric_limits<double>::infinity()});
    times.back() = loop_time(loop);
    return times;
  }

  cost::KernelTime loop_time(const LoopPlan& loop) const {
    const auto trips = static_cast<double>(iterations_of(loop));
    const bool team = std::any_of(loop.steps.begin(), loop.steps.end(), shares);
    const double trip = model_.loop_trip + (team ? cost::loop_barriers * model_.barrier : 0);
    const double ns = trips * (total_of(loop.steps, model_) + trip);
    return {.ns = ns, .compute = ns};
  }

  LoopPlan& loop_of(const Step& step) { return plan_.loops[static_cast<std::size_t>(step.index)]; }

  void set_total() {
    const bool team = std::any_of(plan_.steps.begin(), plan_.steps.end(), shares);
    plan_.predicted_ns = model_.run + total_of(plan_.steps, model_) + (team ? model_.team : 0);
  }

  /// ns for a line of a kernel's code when its turn comes again.
  double code_line(const Step& step, const Whereabouts& where) const {
    const cost::Residency& code = where.code.at(&step);
    double bytes = 0, sum = 0;
    for (std::size_t level = 0; level < cost::level_count; ++level) {
      bytes += code.bytes[level];
      sum += code.bytes[level] * model_.code_line[level];
    }
    return bytes > 0 ? sum / bytes : 0;
  }

  Plan& plan_;
  const cost::MachineModel& model_;
  const Pieces pieces_, owned_;
  const cost::Elsewhere elsewhere_;
  const Whereabouts where_;  ///< as if all steps were on one worker, and as if all were shared
  std::map<const Step*, Times> times_;
  std::map<std::pair<const Step*, const Residencies*>, cost::KernelWork> works_;
  std::map<std::int32_t, cost::KernelWork> instructions_;  ///< by kernel
  Settled settled_;                                        ///< of the plan looked at last
  /// What a step finds in its core's own L1 and L2.
  std::map<const Step*, std::array<double, 2>> near_bytes_;
  const int most_;
};

}  // namespace

void choose_threads(Plan& plan, const cost::MachineModel& model, int most,
                    const cost::Elsewhere& elsewhere) {
  Predictor(plan, model, std::max(most, 1), elsewhere).choose();
}

void predict_times(Plan& plan, const cost::MachineModel& model) {
  int most = 1;
  for (const Step& step : plan.steps) most = std::max(most, step.threads);
  Predictor(plan, model, most).predict();
}

double product_ns(const Plan& plan, const cost::MachineModel& model) {
  const double flops_per_ns = model.fma_per_cycle * model.machine.vector_bytes / 2.0 / model.cycle;
  double ns = 0;
  for (const Step& step : plan.steps) {
    const int together =
        step.kind == Step::Kind::kernel && step.flops > 0
            ? cost::products_together(plan.kernels[static_cast<std::size_t>(step.index)],
                                      model.machine)
            : 1;
    ns += step.flops / together / step.threads / flops_per_ns;
  }
  return ns;
}

}  // namespace rlx::plan
