// Programs on a machine with more to do than cores give what they give on a free one.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "rlx/ops.hpp"
#include "rlx/rlx.hpp"

namespace rlx {
namespace {

Tensor ramp(const Dims& dims) {
  std::vector<float> values(static_cast<std::size_t>(element_count(dims)));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(static_cast<int>(i * 7 % 23) - 11) * 0.0625F;
  return Tensor::of<float>(dims, std::span<const float>(values));
}

/// Products with sums and largest values between them: each reads all that the last one wrote.
Graph layers() {
  Graph graph;
  Value x = graph.input("x", f32, {384, 384});
  for (int i = 0; i < 6; ++i) {
    const Value weight = graph.constant(ramp({384, 384}));
    x = softmax(matmul(x, weight), {1}) + x;
  }
  graph.output("y", x);
  return graph;
}

/// A session, the program of these layers, and what it gave first.
struct Layers {
  explicit Layers(int threads) : session(Device::cpu, {.threads = threads}) {}
  bool gave(const Outputs& got) const {
    return std::memcmp(got[0].data(), wanted[0].data(), wanted[0].bytes()) == 0;
  }
  const Tensor input = ramp({384, 384});
  Session session;
  CompiledGraph program = session.compile(layers()).value();
  const Outputs wanted = program.run({{"x", input}}).value();
};

// Whether runs are loose depends on the machine: what they give must not.
TEST(Crowded, results_are_those_of_a_free_machine) {
  Layers made(2);
  std::atomic<bool> ends = false;
  std::vector<std::thread> others;
  for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency() / 2); ++i) {
    others.emplace_back([&] {
      while (!ends.load(std::memory_order_relaxed)) {
      }
    });
  }
  int wrong = 0;
  for (int run = 0; run < 40; ++run) {
    wrong += !made.gave(made.program.run({{"x", made.input}}).value());
  }
  ends = true;
  for (std::thread& other : others) other.join();
  EXPECT_EQ(wrong, 0);
}

// More members than most machines have cores, some of which come late: the others take their work.
// What a cancelled run has left of it must not come back in the next one.
TEST(Crowded, results_are_the_same_whoever_did_the_work_and_after_cancelled_runs) {
  Layers made(4);
  std::atomic<bool> ends = false;
  std::thread canceller([&] {
    while (!ends.load(std::memory_order_relaxed)) {
      std::this_thread::sleep_for(std::chrono::microseconds(1700));
      made.program.cancel();
    }
  });
  int wrong = 0, whole = 0;
  for (int run = 0; run < 200 || (whole == 0 && run < 2'000); ++run) {
    const auto got = made.program.run({{"x", made.input}});
    if (!got.ok()) {
      EXPECT_EQ(got.error().kind, ErrorKind::cancelled);
      continue;
    }
    ++whole;
    wrong += !made.gave(*got);
  }
  ends = true;
  canceller.join();
  EXPECT_TRUE(made.gave(made.program.run({{"x", made.input}}).value()));
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace rlx
