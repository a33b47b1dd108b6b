// Isolation of cases: what a crash, an early end or a hang of one costs.
#include "tools/worker_pool.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <stdexcept>
#include <vector>

namespace rlx::tools {
namespace {

using ::testing::HasSubstr;

std::vector<Verdict> judged(std::size_t count, const PoolOptions& options,
                            const std::function<Verdict(std::size_t)>& judge) {
  std::vector<Verdict> verdicts;
  judge_isolated(count, options, judge, [&](std::size_t index, const Verdict& verdict) {
    EXPECT_EQ(index, verdicts.size()) << "reports come in order";
    verdicts.push_back(verdict);
  });
  return verdicts;
}

TEST(WorkerPool, OneCaseNeverEndsTheOthers) {
  const auto verdicts = judged(8, {.jobs = 3, .timeout_s = 1}, [](std::size_t index) -> Verdict {
    if (index == 1) raise(SIGKILL);
    if (index == 3) _exit(7);
    if (index == 5) sleep(60);
    if (index == 6) throw std::runtime_error("thrown");
    return {"PASS", "case " + std::to_string(index)};
  });
  ASSERT_EQ(verdicts.size(), 8u);
  EXPECT_THAT(verdicts[1].reason, HasSubstr("the process crashed: Killed"));
  EXPECT_THAT(verdicts[3].reason, HasSubstr("exit code 7"));
  EXPECT_THAT(verdicts[5].reason, HasSubstr("no answer after 1 s"));
  EXPECT_EQ(verdicts[6].reason, "thrown");
  for (const std::size_t i : {1, 3, 5, 6}) EXPECT_EQ(verdicts[i].word, "ERROR");
  for (const std::size_t i : {0, 2, 4, 7}) {
    EXPECT_EQ(verdicts[i].word, "PASS");
    EXPECT_EQ(verdicts[i].reason, "case " + std::to_string(i));
  }
}

TEST(WorkerPool, ProcessesAreReplaced) {
  const auto verdicts = judged(9, {.jobs = 2, .cases_per_process = 2}, [](std::size_t) {
    static int served = 0;
    return Verdict{"PASS", std::to_string(++served)};
  });
  ASSERT_EQ(verdicts.size(), 9u);
  for (const Verdict& verdict : verdicts) EXPECT_THAT(verdict.reason, testing::AnyOf("1", "2"));
}

TEST(WorkerPool, LongReasonsAreCutNotLost) {
  const auto verdicts =
      judged(1, {}, [](std::size_t) { return Verdict{"FAIL", std::string(100000, 'x')}; });
  EXPECT_EQ(verdicts[0].word, "FAIL");
  EXPECT_GT(verdicts[0].reason.size(), 1000u);
}

}  // namespace
}  // namespace rlx::tools
