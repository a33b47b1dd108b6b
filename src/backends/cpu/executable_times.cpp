// Times of single steps, such that a second measurement finds nearly the same.
#include <algorithm>
#include <chrono>

#include "backends/cpu/executable.hpp"
#include "base/subnormal_scope.hpp"

namespace rlx::cpu {
namespace {

using Clock = std::chrono::steady_clock;
using Samples = std::vector<double>;  ///< ns

double nanoseconds(Clock::duration time) {
  return std::chrono::duration<double, std::nano>(time).count();
}

/// The mean of all samples that nothing interrupted. Not the median: clocks tick in steps of many
/// ns, through which only a mean sees, and a narrow cut would keep the commoner of two ticks.
double mean_of_uninterrupted(Samples& samples) {
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  const double most = 1.25 * *middle + 20;
  double sum = 0, count = 0;
  for (const double sample : samples) {
    if (sample <= most) sum += sample, ++count;
  }
  return sum / count;
}

/// What a quarter of the batches stay below: others who use the machine for a while only make
/// times longer.
double lower_quartile(Samples& batches) {
  const auto at = batches.begin() + static_cast<std::ptrdiff_t>(batches.size() / 4);
  std::nth_element(batches.begin(), at, batches.end());
  return *at;
}

}  // namespace

Result<std::vector<double>> CpuExecutable::time_steps(std::span<const void* const> inputs,
                                                      int runs) {
  RLX_TRY(check_ready());
  constexpr std::size_t batches = 16, most_runs = 250, clock_reads = 50;
  constexpr auto least_time = std::chrono::milliseconds(200);
  const auto workers = static_cast<std::size_t>(std::max(program_->threads, 1));
  const std::size_t count = steps_.size();
  // Each worker times its own part, so that the barriers between steps, which a run has fewer of,
  // are not in it, and takes off what the clock itself costs it.
  std::vector<Samples> own(workers, Samples(count)), batch(count), means(count);
  std::vector<Samples> reads(workers, Samples(clock_reads));
  Samples costs(workers);
  const auto time_clock = [&] {
    program_->shared->pool->run_team(program_->threads, [&](int worker, Team& team) {
      const auto w = static_cast<std::size_t>(worker);
      for (double& time : reads[w]) {
        team.barrier();
        const auto start = Clock::now();
        time = nanoseconds(Clock::now() - start);
      }
      costs[w] = mean_of_uninterrupted(reads[w]);
    });
  };
  std::size_t team_size = 0;
  const auto time_run = [&]() -> Status {
    set_inputs(inputs);
    program_->shared->pool->run_team(program_->threads, [&](int worker, Team& team) {
      const SubnormalScope scope(program_->flush_subnormals);
      if (worker == 0) team_size = static_cast<std::size_t>(team.size());
      Samples& times = own[static_cast<std::size_t>(worker)];
      for (std::size_t i = 0; i < count; ++i) {
        team.barrier();
        const auto start = Clock::now();
        if (holds(steps_[i])) run_step(steps_[i], worker, &team);
        times[i] = nanoseconds(Clock::now() - start);
      }
    });
    return outcome();
  };
  const auto longest = [&](std::size_t step) {
    const auto sharing = std::min(static_cast<std::size_t>(steps_[step].threads), team_size);
    double time = 0;
    for (std::size_t w = 0; w < sharing; ++w) time = std::max(time, own[w][step] - costs[w]);
    return time;
  };
  RLX_TRY(time_run());  // after which all that a run needs is near
  const auto begin = Clock::now();
  // A team is smaller than asked for while others want its cores. Those are not the times of the
  // plan, unless it stays so.
  const auto counts = [&] { return team_size == workers || Clock::now() - begin > 4 * least_time; };
  for (int done = 0; done < runs || Clock::now() - begin < least_time;) {
    time_clock();
    const auto start = Clock::now();
    std::size_t taken = 0;
    do {
      RLX_TRY(time_run());
      if (!counts()) continue;
      ++done, ++taken;
      for (std::size_t i = 0; i < count; ++i) batch[i].push_back(longest(i));
    } while (taken < most_runs && Clock::now() - start < least_time / batches);
    if (taken == 0) continue;
    for (std::size_t i = 0; i < count; ++i) {
      means[i].push_back(mean_of_uninterrupted(batch[i]));
      batch[i].clear();
    }
  }
  std::vector<double> times;
  for (Samples& list : means) times.push_back(std::max(lower_quartile(list), 1.0) * 1e-3);
  return times;
}

}  // namespace rlx::cpu
