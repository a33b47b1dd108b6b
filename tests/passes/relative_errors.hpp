// Errors of results beside their deviation.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

namespace rlx::testing {

struct Errors {
  double rms, worst;
};

inline Errors errors_of(std::span<const float> found, std::span<const double> expected) {
  double squares = 0, sum = 0, wrong = 0, worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double error = static_cast<double>(found[i]) - expected[i];
    sum += expected[i], squares += expected[i] * expected[i], wrong += error * error;
    worst = std::max(worst, std::abs(error));
  }
  const auto count = static_cast<double>(expected.size());
  const double deviation = std::sqrt(squares / count - sum / count * (sum / count));
  return {std::sqrt(wrong / count) / deviation, worst / deviation};
}

}  // namespace rlx::testing
