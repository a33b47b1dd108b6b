// Activation functions against their definitions, where a formula that computes them is another.
#include <cmath>
#include <limits>

#include "numeric.hpp"

namespace rlx::testing {
namespace {

using Wide = long double;

/// x * tanh(log(1 + e^x)).
Wide mish(Wide x) { return x * std::tanh(std::log1p(std::exp(x))); }

/// The largest error of mish over -60 to 60, in units of the last place of T.
template <class T>
double worst_error_of_mish() {
  std::vector<T> inputs;
  for (int i = -6000; i <= 6000; ++i) inputs.push_back(static_cast<T>(i) / 100);
  const auto count = static_cast<std::int64_t>(inputs.size());
  const Tensor x = Tensor::of<T>({count}, std::span<const T>(inputs));
  const std::vector<double> made = load_all<double>(results_of(op::Mish{}, {x})[0]);
  double worst = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Wide exact = mish(inputs[i]);
    if (exact == 0) {
      EXPECT_EQ(made[i], 0);
      continue;
    }
    const Wide unit = std::abs(exact) * std::numeric_limits<T>::epsilon();
    worst = std::max(worst, static_cast<double>(std::abs(made[i] - exact) / unit));
  }
  return worst;
}

TEST(Activations, MishIsXTimesTheTanhOfSoftplus) {
  EXPECT_LE(worst_error_of_mish<float>(), 3);
  EXPECT_LE(worst_error_of_mish<double>(), 3);
}

TEST(Activations, MishAtTheEndsOfNumbers) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> inputs{0.0F, -0.0F, 20.0F, 88.8F, 3e38F, infinity, -200.0F, NAN};
  const Tensor x = Tensor::of<float>({8}, std::span<const float>(inputs));
  const std::vector<double> made = load_all<double>(results_of(op::Mish{}, {x})[0]);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(made[i], inputs[i]) << inputs[i];
  EXPECT_TRUE(std::signbit(made[1]));
  EXPECT_EQ(made[6], 0);
  EXPECT_TRUE(std::isnan(made[7]));
}

}  // namespace
}  // namespace rlx::testing
