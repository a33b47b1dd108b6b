// What a call costs beside its kernels: a tiny graph (add and GELU on f32[8]) through every way to
// run, with one and with two threads configured; medians of many short rounds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "rlx/rlx.hpp"

namespace {

using Clock = std::chrono::steady_clock;

double median_us(const std::function<void()>& call) {
  constexpr int rounds = 201, calls = 500;
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count() /
                    calls);
  }
  std::ranges::nth_element(times, times.begin() + rounds / 2);
  return times[rounds / 2];
}

void measure(int threads) {
  rlx::Graph graph;
  const rlx::Value x = graph.input("x", rlx::f32, {8}), y = graph.input("y", rlx::f32, {8});
  graph.output("z", rlx::gelu(x + y));
  rlx::SessionOptions options;
  options.threads = threads;
  rlx::Session session(rlx::Device::cpu, options);
  rlx::CompiledGraph program = session.compile(graph).value();
  const std::vector<float> a(8, 0.5f), b(8, 0.25f);
  std::vector<float> z(8);
  const void* slots[] = {a.data(), b.data()};
  void* results[] = {z.data()};
  const std::vector<rlx::NamedInput> named{{"x", a}, {"y", b}};
  std::printf("%d threads: run_slots %.3f us, run_into %.3f, run_raw %.3f, run %.3f\n", threads,
              median_us([&] { (void)program.run_slots(slots); }),
              median_us([&] { (void)program.run_into(slots, results); }),
              median_us([&] { (void)program.run_raw(named); }),
              median_us([&] { (void)program.run(named); }));
}

}  // namespace

int main() {
  for (const int threads : {1, 2}) measure(threads);
}
