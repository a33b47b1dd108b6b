// Judging cases in processes of their own: a crash or a hang costs one case.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace rlx::tools {

/// The outcome of one case: PASS, FAIL, UNSUPPORTED or ERROR, and why.
struct Verdict {
  std::string word;
  std::string reason;
};

struct PoolOptions {
  int jobs = 1;
  double timeout_s = 120;       ///< for each case
  int cases_per_process = 100;  ///< then a fresh process takes over
};

/// Calls `judge(i)` for every i below `count`, in child processes, and `report(i, verdict)` here,
/// in the order of i. The calling process must have one thread. A case whose process dies or hangs
/// gets ERROR.
void judge_isolated(std::size_t count, const PoolOptions& options,
                    const std::function<Verdict(std::size_t)>& judge,
                    const std::function<void(std::size_t, const Verdict&)>& report);

}  // namespace rlx::tools
