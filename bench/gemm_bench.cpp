// GFLOP/s of generated GEMM kernels on one thread, beside oneDNN in turns.
// Usage: gemm_bench [text that the shapes' names must hold]
#include "gemm_bench.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <memory>
#include <string>
#include <vector>

#include "codegen/generator_source.hpp"
#include "codegen/host_target.hpp"
#include "codegen/object_loader.hpp"
#include "codegen/pack.hpp"

namespace {

using namespace rlx;
using bench::GemmShape;
using Clock = std::chrono::steady_clock;

struct AlignedFree {
  void operator()(void* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<float, AlignedFree>;

/// Normal noise, on a page of its own.
Memory noise(std::int64_t elements) {
  const std::size_t bytes = static_cast<std::size_t>(elements * 4 + 4095) / 4096 * 4096;
  Memory memory(static_cast<float*>(std::aligned_alloc(4096, bytes)));
  std::mt19937 generator(7);
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < elements; ++i) memory.get()[i] = normal(generator);
  return memory;
}

/// y = gelu(sum + bias) = z * (0.5 + 0.5 * erf(z / sqrt 2)), or the sum alone.
loop::Kernel gemm_kernel(const GemmShape& shape, const codegen::PackedLayout& layout) {
  loop::Contraction c;
  c.m_extents = {shape.m};
  c.k_extents = {shape.k};
  c.n = shape.n;
  c.a_buffer = 0;
  c.a_m_strides = {shape.k};
  c.a_k_strides = {1};
  c.b_buffer = 1;
  c.b_packed = true;
  c.panel_width = static_cast<std::int32_t>(layout.panel_width);
  c.nodes.push_back({.op = ScalarOp::accumulator});
  const loop::Access out{2, 0, {shape.n, 1}, {}, {}, 0};
  ScalarId result = 0;
  if (shape.gelu) {
    c.accesses.push_back({3, 0, {0, 1}, {}, {}, 0});
    c.nodes.push_back({.op = ScalarOp::load, .index = 0});
    c.nodes.push_back({.op = ScalarOp::add, .a = 0, .b = 1});
    c.nodes.push_back({.op = ScalarOp::constant, .value = 0.70710678118654752});
    c.nodes.push_back({.op = ScalarOp::mul, .a = 2, .b = 3});
    c.nodes.push_back({.op = ScalarOp::erf, .a = 4});
    c.nodes.push_back({.op = ScalarOp::constant, .value = 0.5});
    c.nodes.push_back({.op = ScalarOp::mul, .a = 5, .b = 6});
    c.nodes.push_back({.op = ScalarOp::add, .a = 7, .b = 6});
    c.nodes.push_back({.op = ScalarOp::mul, .a = 2, .b = 8});
    result = 9;
  }
  c.stores.push_back({out, result});
  loop::Kernel kernel;
  kernel.buffers = {{f32, shape.m * shape.k, false},
                    {f32, layout.elements(), false},
                    {f32, shape.m * shape.n, true},
                    {f32, shape.n, false}};
  kernel.body = std::move(c);
  return kernel;
}

/// Seconds of one call, the median of `rounds` batches that last a millisecond or more.
template <class Call>
double seconds_of(const Call& call, int batch) {
  const auto start = Clock::now();
  for (int i = 0; i < batch; ++i) call();
  return std::chrono::duration<double>(Clock::now() - start).count() / batch;
}

double median(std::vector<double>& values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void measure(const codegen::CodeGenerator& generator, const codegen::Target& target,
             const GemmShape& shape) {
  const auto layout = codegen::choose_packed_layout(shape.n, shape.k, f32, target);
  const loop::Kernel kernel = gemm_kernel(shape, layout);
  double compile_ms = 1e9;
  codegen::KernelCode code;
  for (int i = 0; i < 3; ++i) {
    const auto start = Clock::now();
    code = generator.generate(kernel, target).value();
    const std::chrono::duration<double, std::milli> took = Clock::now() - start;
    compile_ms = std::min(compile_ms, took.count());
  }
  const auto image = codegen::ObjectImage::load(code.object).value();
  const auto run = reinterpret_cast<codegen::KernelFunction>(image.symbol(code.symbol));

  Memory a = noise(shape.m * shape.k), b = noise(shape.k * shape.n), c = noise(shape.m * shape.n);
  Memory bias = noise(shape.n), packed = noise(layout.elements()), peer = noise(shape.m * shape.n);
  Memory scratch = noise(code.scratch_bytes / 4 + 16);
  codegen::pack({.data = b.get(), .k_extents = {shape.k}, .k_strides = {shape.n}}, layout,
                packed.get());
  void* buffers[] = {a.get(), packed.get(), c.get(), bias.get()};
  const auto ours = [&] { run(buffers, 0, code.work_items, scratch.get()); };
  std::function<void()> theirs;
#ifdef RLX_BENCH_DNNL
  theirs = bench::dnnl_gemm(shape, a.get(), b.get(), bias.get(), peer.get());
#endif
  ours();
  const int batch = std::max(1, static_cast<int>(0.002 / seconds_of(ours, 1)));
  std::vector<double> our_times, their_times;
  for (int round = 0; round < 41; ++round) {
    our_times.push_back(seconds_of(ours, batch));
    if (theirs) their_times.push_back(seconds_of(theirs, batch));
  }
  const double flop = 2.0 * static_cast<double>(shape.m * shape.n * shape.k);
  const double mine = flop / median(our_times) * 1e-9;
  fmt::print("{:<28} {:7.1f} GFLOP/s  {:9.1f} us  compile {:5.2f} ms  {:6} B", shape.name, mine,
             flop / mine * 1e-3, compile_ms, code.object.size());
  if (theirs) {
    const double other = flop / median(their_times) * 1e-9;
    double worst = 0;
    for (std::int64_t i = 0; i < shape.m * shape.n; ++i) {
      worst = std::max(worst, std::abs(double{c.get()[i]} - double{peer.get()[i]}));
    }
    fmt::print("  oneDNN {:7.1f}  ratio {:5.3f}  difference {:.1e}", other, mine / other, worst);
  }
  fmt::print("\n");
}

constexpr GemmShape shapes[] = {
    {"128x3072x768", 128, 3072, 768, false},     {"128x3072x768 gelu", 128, 3072, 768, true},
    {"128x384x384", 128, 384, 384, false},       {"128x384x384 gelu", 128, 384, 384, true},
    {"128x384x1536", 128, 384, 1536, false},     {"128x1536x384 gelu", 128, 1536, 384, true},
    {"16x1536x384", 16, 1536, 384, false},       {"16x1536x384 gelu", 16, 1536, 384, true},
    {"1024x1024x1024", 1024, 1024, 1024, false}, {"1024x1024x1024 gelu", 1024, 1024, 1024, true},
    {"1x3072x768", 1, 3072, 768, false},         {"2x3072x768", 2, 3072, 768, false},
    {"3x3072x768", 3, 3072, 768, false},         {"5x3072x768", 5, 3072, 768, false},
    {"100x1000x2048", 100, 1000, 2048, false},   {"49x64x576", 49, 64, 576, false},
    {"3136x64x64", 3136, 64, 64, false},         {"3136x64x64 gelu", 3136, 64, 64, true},
};

}  // namespace

int main(int argc, char** argv) {
  // The peer must use one thread as we do, and OpenMP reads this before main.
  if (!std::getenv("OMP_NUM_THREADS")) {
    setenv("OMP_NUM_THREADS", "1", 1);
    execv("/proc/self/exe", argv);
  }
  const auto opened = codegen::GeneratorSource::find().open();
  if (!opened) {
    fmt::print(stderr, "{}\n", opened.error().message);
    return 4;
  }
  const codegen::CodeGenerator& generator = **opened;
  const codegen::Target target = codegen::host_target().value();
  for (const GemmShape& shape : shapes) {
    if (argc > 1 && std::string(shape.name).find(argv[1]) == std::string::npos) continue;
    measure(generator, target, shape);
  }
  return 0;
}
