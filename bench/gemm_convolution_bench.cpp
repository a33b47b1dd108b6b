// GFLOP/s of generated channels-last convolutions on one thread, beside oneDNN's direct ones.
// Usage: gemm_convolution_bench [text that the shapes' names must hold]
#include "codegen/pack.hpp"
#include "gemm_bench.hpp"
#include "gemm_harness.hpp"

namespace {

using namespace rlx;
using bench::ConvolutionShape;
using bench::Memory;
using bench::noise;

/// relu(conv) over (out row, out column; filter) with k = (kernel row, kernel column, channel).
loop::Kernel convolution_kernel(const ConvolutionShape& shape,
                                const codegen::PackedLayout& layout) {
  loop::Contraction c;
  const std::int64_t out = shape.out(), line = shape.size * shape.channels;
  c.m_extents = {out, out};
  c.k_extents = {shape.kernel, shape.kernel, shape.channels};
  c.n = shape.filters;
  c.a_offset = -shape.padding * (line + shape.channels);
  c.a_m_strides = {shape.stride * line, shape.stride * shape.channels};
  c.a_k_strides = {line, shape.channels, 1};
  c.a_guards = {{-shape.padding, shape.size, {shape.stride, 0, 1, 0, 0}},
                {-shape.padding, shape.size, {0, shape.stride, 0, 1, 0}}};
  c.b_buffer = 1;
  c.b_packed = true;
  c.panel_width = static_cast<std::int32_t>(layout.panel_width);
  c.nodes.push_back({.op = ScalarOp::accumulator});
  c.nodes.push_back({.op = ScalarOp::constant});
  c.nodes.push_back({.op = ScalarOp::max, .a = 0, .b = 1});
  c.stores.push_back({loop::Access{2, 0, {out * shape.filters, shape.filters, 1}, {}, {}, 0}, 2});
  loop::Kernel kernel;
  kernel.buffers = {{f32, shape.size * line, false},
                    {f32, layout.elements(), false},
                    {f32, out * out * shape.filters, true}};
  kernel.body = std::move(c);
  return kernel;
}

void measure_convolution(const codegen::CodeGenerator& generator, const codegen::Target& target,
                         const ConvolutionShape& shape) {
  const std::int64_t depth = shape.kernel * shape.kernel * shape.channels;
  const std::int64_t results = shape.out() * shape.out() * shape.filters;
  const auto layout = codegen::choose_packed_layout(shape.filters, depth, f32, target);
  const Memory a = noise(shape.size * shape.size * shape.channels);
  const Memory weights = noise(depth * shape.filters), packed = noise(layout.elements());
  const Memory c = noise(results), peer = noise(results);
  codegen::PackSource source;
  source.data = weights.get();
  source.k_extents = {depth};
  source.k_strides = {1};
  source.n_stride = depth;
  codegen::pack(source, layout, packed.get());
  void* buffers[] = {a.get(), packed.get(), c.get()};
  bench::Measurement measurement;
  measurement.name = shape.name;
  measurement.operations = 2.0 * static_cast<double>(results * depth);
  measurement.kernel = convolution_kernel(shape, layout);
  measurement.buffers = buffers;
#ifdef RLX_BENCH_DNNL
  measurement.peer = bench::dnnl_convolution(shape, a.get(), weights.get(), peer.get());
  measurement.peer_result = peer.get();
#endif
  bench::measure(generator, target, measurement);
}

constexpr ConvolutionShape shapes[] = {
    {"3x3 64->64 56^2", 56, 64, 64, 3, 1, 1},       {"3x3 128->128 28^2", 28, 128, 128, 3, 1, 1},
    {"3x3 256->256 14^2", 14, 256, 256, 3, 1, 1},   {"3x3 512->512 7^2", 7, 512, 512, 3, 1, 1},
    {"3x3/2 128->128 56^2", 56, 128, 128, 3, 2, 1}, {"1x1 64->256 56^2", 56, 64, 256, 1, 1, 0},
    {"1x1 1024->256 14^2", 14, 1024, 256, 1, 1, 0}, {"7x7/2 3->64 224^2", 224, 3, 64, 7, 2, 3},
    {"3x3/2 3->16 224^2", 224, 3, 16, 3, 2, 1},     {"5x5 1->64 128^2", 128, 1, 64, 5, 1, 2},
    {"3x3 64->32 128^2", 128, 64, 32, 3, 1, 1},     {"3x3 32->9 128^2", 128, 32, 9, 3, 1, 1},
    {"1x1 16->32 104^2", 104, 16, 32, 1, 1, 0},     {"1x1 32->16 104^2", 104, 32, 16, 1, 1, 0},
    {"3x3 8->8 64^2", 64, 8, 8, 3, 1, 1},           {"3x3 24->40 40^2", 40, 24, 40, 3, 1, 1},
};

}  // namespace

int main(int argc, char** argv) {
  return bench::run_benchmark(argv, [&](const auto& generator, const auto& target) {
    for (const ConvolutionShape& shape : shapes) {
      if (argc > 1 && std::string(shape.name).find(argv[1]) == std::string::npos) continue;
      measure_convolution(generator, target, shape);
    }
  });
}
