// Whole signal programs: log-mel features of 30 s of speech, Welch's estimate of 32 channels, one
// long transform. One line each: name, median and least microseconds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "rlx/rlx.hpp"
#include "rlx/signal.hpp"

namespace {

using namespace rlx;

Tensor wave(Dims dims) {
  Tensor x(f32, std::move(dims));
  auto* values = reinterpret_cast<float*>(x.mutable_data());
  for (std::int64_t i = 0; i < x.elements(); ++i)
    values[i] = static_cast<float>(i * 7919 % 1000) * 1e-3f - 0.5f;
  return x;
}

/// Triangles between bins that rise quadratically, about as wide as mel filters are.
Tensor triangles(std::int64_t bands, std::int64_t bins) {
  std::vector<float> values(static_cast<std::size_t>(bands * bins), 0.0f);
  const auto edge = [&](std::int64_t i) {
    return 2 + i + i * i * (bins - bands - 6) / (bands * bands);
  };
  for (std::int64_t band = 0; band < bands; ++band) {
    for (std::int64_t k = edge(band); k < std::min(edge(band + 2), bins); ++k)
      values[static_cast<std::size_t>(band * bins + k)] = 0.5f / static_cast<float>(1 + k % 7);
  }
  return Tensor::of<float>({bands, bins}, std::span<const float>(values));
}

void time_program(const char* name, const Graph& graph, const Tensor& x, int threads) {
  Session session(Device::cpu, {.threads = threads});
  CompiledGraph program = session.compile(graph).value();
  const std::vector<const void*> inputs{x.data()};
  std::vector<double> times;
  // Long enough that clocks and workers are awake in most of the runs.
  for (int i = 0; i < 401; ++i) {
    const auto start = std::chrono::steady_clock::now();
    if (!program.run_slots(inputs).ok()) std::exit(1);
    times.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
            .count());
  }
  std::sort(times.begin(), times.end());
  std::printf("%s %.1f %.1f\n", name, times[200], times[0]);
}

}  // namespace

int main(int count, char** arguments) {
  const int threads = count > 1 ? std::atoi(arguments[1]) : 2;
  {
    Graph graph;
    const Value x = graph.input("x", f32, {480000});
    graph.output("y", log_mel_features(x, graph.constant(triangles(80, 201)), 400, 160));
    time_program("log_mel_30s", graph, wave({480000}), threads);
  }
  {
    Graph graph;
    const Value x = graph.input("x", f32, {32, 30720});
    graph.output("y", welch(x, {.sample_rate = 512, .length = 512, .overlap = 256}));
    time_program("welch_32x60s", graph, wave({32, 30720}), threads);
  }
  {
    Graph graph;
    const Value x = graph.input("x", f32, {1 << 20});
    graph.output("y", graph.add_one(op::Rfft{}, {x}));
    time_program("rfft_2^20", graph, wave({1 << 20}), threads);
  }
}
