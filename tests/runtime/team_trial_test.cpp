// Short programs leave a team that does not pay, and come back to it.
#include "backends/cpu/team_trial.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "rlx/rlx.hpp"

namespace rlx::cpu {
namespace {

/// Runs on a machine where either way takes so many ns.
struct Machine {
  TeamTrial trial;
  int team = 100, alone = 190;
  int timed = 0;

  /// Whether the run was alone.
  bool run() {
    const TeamTrial::Way way = trial.next();
    if (way.timed) ++timed, trial.took(TeamTrial::Time(way.alone ? alone : team));
    return way.alone;
  }
  int alone_of(int count) {
    int sum = 0;
    for (int i = 0; i < count; ++i) sum += run();
    return sum;
  }
};

constexpr int trial_runs = 2 * TeamTrial::runs_of_a_way;

TEST(TeamTrial, ATeamThatPaysStays) {
  Machine machine;
  EXPECT_EQ(machine.alone_of(TeamTrial::first_wait), 0);
  EXPECT_EQ(machine.timed, 0);
  EXPECT_EQ(machine.alone_of(trial_runs), TeamTrial::runs_of_a_way);
  EXPECT_EQ(machine.timed, trial_runs);
  EXPECT_EQ(machine.alone_of(TeamTrial::least_wait), 0);
  // Where nothing changes trials become rare.
  const int many = 1'000'000;
  EXPECT_LT(machine.alone_of(many), 3 * many / TeamTrial::most_wait + 24);
}

TEST(TeamTrial, ATeamThatTakesLongerIsLeft) {
  Machine machine;
  machine.team = 360;
  machine.alone_of(TeamTrial::first_wait + trial_runs);
  EXPECT_EQ(machine.alone_of(TeamTrial::least_wait), TeamTrial::least_wait);
  // The host moves the cores together again.
  machine.team = 100;
  machine.alone_of(TeamTrial::most_wait + trial_runs);
  EXPECT_EQ(machine.alone_of(TeamTrial::least_wait), 0);
}

TEST(TeamTrial, ASmallGainIsNone) {
  Machine machine;
  machine.team = 109, machine.alone = 100;
  machine.alone_of(TeamTrial::first_wait + trial_runs);
  EXPECT_EQ(machine.alone_of(TeamTrial::least_wait), 0);
  machine.team = 120;
  machine.alone_of(2 * TeamTrial::least_wait + trial_runs);
  EXPECT_EQ(machine.alone_of(100), 100);
}

/// Of three runs of a way the least counts: others interrupt some.
TEST(TeamTrial, SlowRunsBesideAQuickOneDecideNothing) {
  TeamTrial trial;
  for (int i = 0; i < TeamTrial::first_wait; ++i) trial.next();
  for (int i = 0; i < trial_runs; ++i) {
    const TeamTrial::Way way = trial.next();
    EXPECT_TRUE(way.timed);
    EXPECT_EQ(way.alone, i >= TeamTrial::runs_of_a_way);
    trial.took(TeamTrial::Time(way.alone ? 190 : i == 1 ? 100 : 5000));
  }
  EXPECT_FALSE(trial.next().alone);
}

TEST(TeamTrial, IsForShortProgramsWhoseTeamGainsLittle) {
  const auto is_worth = [](double step_ns, int threads, double others_ns) {
    plan::Plan plan;
    plan.steps.resize(2);
    plan.steps[0].threads = threads, plan.steps[0].predicted_ns = step_ns;
    plan.steps[1].predicted_ns = others_ns;
    plan.predicted_ns = step_ns + others_ns;
    return is_worth_a_trial(plan);
  };
  EXPECT_TRUE(is_worth(20e3, 2, 0));
  EXPECT_TRUE(is_worth(900e3, 2, 90e3));
  EXPECT_FALSE(is_worth(900e3, 2, 110e3)) << "more than 1 ms";
  EXPECT_FALSE(is_worth(20e3, 16, 0));
  EXPECT_TRUE(is_worth(20e3, 16, 100e3)) << "most of it on one thread";
}

TEST(TeamTrial, RunsOfEitherWayGiveTheSameBits) {
  const auto ramp = [](const Dims& dims) {
    std::vector<float> values(static_cast<std::size_t>(element_count(dims)));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(static_cast<int>(i * 7 % 23) - 11) * 0.0625F;
    return Tensor::of<float>(dims, std::span<const float>(values));
  };
  Graph graph;
  const Value x = graph.input("x", f32, {300, 128});
  const Value y = softmax(matmul(relu(x), graph.constant(ramp({128, 128}))), {1});
  graph.output("y", y + x);
  Session session(Device::cpu, {.threads = 2});
  CompiledGraph program = session.compile(graph).value();
  ASSERT_EQ(program.report().threads, 2) << "there is a team to leave";
  const Tensor input = ramp({300, 128});
  const Outputs first = program.run({{"x", input}}).value();
  // The first trial is among them.
  for (int i = 0; i < TeamTrial::first_wait + 2 * trial_runs; ++i) {
    const Outputs again = program.run({{"x", input}}).value();
    ASSERT_EQ(std::memcmp(again[0].data(), first[0].data(), first[0].bytes()), 0) << i;
  }
}

}  // namespace
}  // namespace rlx::cpu
