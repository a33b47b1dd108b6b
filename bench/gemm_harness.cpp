// Measuring in turns.
#include "gemm_harness.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <random>
#include <vector>

#include "codegen/generator_source.hpp"
#include "codegen/host_target.hpp"
#include "codegen/object_loader.hpp"

namespace rlx::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// Seconds of one call.
double seconds_of(const std::function<void()>& call, int batch) {
  const auto start = Clock::now();
  for (int i = 0; i < batch; ++i) call();
  return std::chrono::duration<double>(Clock::now() - start).count() / batch;
}

}  // namespace

void FreeMemory::operator()(void* memory) const { std::free(memory); }

Memory noise(std::int64_t elements) {
  const std::size_t bytes = static_cast<std::size_t>(elements * 4 + 4096) / 4096 * 4096;
  Memory memory(static_cast<float*>(std::aligned_alloc(4096, bytes)));
  std::mt19937 generator(7);
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < elements; ++i) memory.get()[i] = normal(generator);
  return memory;
}

void measure(const codegen::CodeGenerator& generator, const codegen::Target& target,
             const Measurement& measurement) {
  double compile_ms = 1e9;
  codegen::KernelCode code;
  for (int i = 0; i < 3; ++i) {
    const auto start = Clock::now();
    code = generator.generate(measurement.kernel, target).value();
    const std::chrono::duration<double, std::milli> took = Clock::now() - start;
    compile_ms = std::min(compile_ms, took.count());
  }
  const auto image = codegen::ObjectImage::load(code.object).value();
  const auto run = reinterpret_cast<codegen::KernelFunction>(image.symbol(code.symbol));
  const Memory scratch = noise(code.scratch_bytes / 4 + 16);
  const std::function<void()> ours = [&] {
    run(measurement.buffers, 0, code.work_items, scratch.get());
  };
  ours();
  const int batch = std::max(1, static_cast<int>(0.002 / seconds_of(ours, 1)));
  std::vector<double> our_times, their_times;
  for (int round = 0; round < 31; ++round) {
    our_times.push_back(seconds_of(ours, batch));
    if (measurement.peer) their_times.push_back(seconds_of(measurement.peer, batch));
  }
  const double mine =
      measurement.operations / *std::min_element(our_times.begin(), our_times.end()) * 1e-9;
  fmt::print("{:<28} {:7.1f} GFLOP/s  {:9.1f} us  compile {:5.2f} ms  {:6} B", measurement.name,
             mine, measurement.operations / mine * 1e-3, compile_ms, code.object.size());
  if (measurement.peer) {
    const double other =
        measurement.operations / *std::min_element(their_times.begin(), their_times.end()) * 1e-9;
    const auto* result = static_cast<const float*>(measurement.buffers[2]);
    double worst = 0;
    for (std::int64_t i = 0; i < measurement.kernel.buffers[2].elements; ++i) {
      worst = std::max(worst, std::abs(double{result[i]} - double{measurement.peer_result[i]}));
    }
    fmt::print("  oneDNN {:7.1f}  ratio {:5.3f}  difference {:.1e}", other, mine / other, worst);
  }
  fmt::print("\n");
}

int run_benchmark(
    char** arguments,
    const std::function<void(const codegen::CodeGenerator&, const codegen::Target&)>& body) {
  // OpenMP reads this before main.
  if (!std::getenv("OMP_NUM_THREADS")) {
    setenv("OMP_NUM_THREADS", "1", 1);
    execv("/proc/self/exe", arguments);
  }
  const auto generator = codegen::GeneratorSource::find().open();
  const auto target = codegen::host_target();
  if (!generator || !target) {
    fmt::print(stderr, "{}\n", generator ? target.error().message : generator.error().message);
    return 4;
  }
  body(**generator, *target);
  return 0;
}

}  // namespace rlx::bench
