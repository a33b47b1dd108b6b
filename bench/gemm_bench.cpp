// GFLOP/s of generated GEMM kernels on one thread, beside oneDNN in turns.
// Usage: gemm_bench [text that the shapes' names must hold]
#include "gemm_bench.hpp"

#include "codegen/pack.hpp"
#include "gemm_harness.hpp"

namespace {

using namespace rlx;
using bench::Behind;
using bench::GemmShape;
using bench::Memory;
using bench::noise;

/// (x - mean) * rsqrt(variance + 1e-5) over rows of buffer 2, in place.
loop::Nest layer_norm(const GemmShape& shape) {
  loop::Nest nest;
  nest.extents = {shape.m, shape.n};
  nest.parallel_dims = 1;
  const loop::Access rows{2, 0, {shape.n, 1}, {}, {}, 0};
  nest.accesses = {rows};
  const double share = 1.0 / static_cast<double>(shape.n);
  nest.nodes = {
      {.op = ScalarOp::load, .index = 0},        {.op = ScalarOp::constant, .value = share},
      {.op = ScalarOp::reduce, .a = 0},          {.op = ScalarOp::mul, .a = 2, .b = 1},
      {.op = ScalarOp::sub, .a = 0, .b = 3},     {.op = ScalarOp::mul, .a = 4, .b = 4},
      {.op = ScalarOp::reduce, .a = 5},          {.op = ScalarOp::mul, .a = 6, .b = 1},
      {.op = ScalarOp::constant, .value = 1e-5}, {.op = ScalarOp::add, .a = 7, .b = 8},
      {.op = ScalarOp::rsqrt, .a = 9},           {.op = ScalarOp::mul, .a = 4, .b = 10}};
  nest.stores = {{rows, 11}};
  return nest;
}

/// y = gelu(sum + bias) = 0.5 * z * (1 + erf(z / sqrt 2)), or the sum alone.
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
  if (shape.behind == Behind::gelu) {
    c.accesses.push_back({3, 0, {0, 1}, {}, {}, 0});
    c.nodes.push_back({.op = ScalarOp::load, .index = 0});
    c.nodes.push_back({.op = ScalarOp::add, .a = 0, .b = 1});
    c.nodes.push_back({.op = ScalarOp::constant, .value = 0.70710678118654752});
    c.nodes.push_back({.op = ScalarOp::mul, .a = 2, .b = 3});
    c.nodes.push_back({.op = ScalarOp::erf, .a = 4});
    c.nodes.push_back({.op = ScalarOp::constant, .value = 1});
    c.nodes.push_back({.op = ScalarOp::add, .a = 5, .b = 6});
    c.nodes.push_back({.op = ScalarOp::constant, .value = 0.5});
    c.nodes.push_back({.op = ScalarOp::mul, .a = 2, .b = 8});
    c.nodes.push_back({.op = ScalarOp::mul, .a = 9, .b = 7});
    result = 10;
  }
  if (shape.behind == Behind::norm) {
    c.accesses.push_back({3, 0, {0, 1}, {}, {}, 0});
    c.accesses.push_back({4, 0, {shape.n, 1}, {}, {}, 0});
    c.nodes.push_back({.op = ScalarOp::load, .index = 0});
    c.nodes.push_back({.op = ScalarOp::load, .index = 1});
    c.nodes.push_back({.op = ScalarOp::add, .a = 0, .b = 1});
    c.nodes.push_back({.op = ScalarOp::add, .a = 2, .b = 3});
    c.row_epilogue = layer_norm(shape);
    result = 4;
  }
  c.stores.push_back({out, result});
  loop::Kernel kernel;
  kernel.buffers = {{f32, shape.m * shape.k, false},
                    {f32, layout.elements(), false},
                    {f32, shape.m * shape.n, true},
                    {f32, shape.n, false},
                    {f32, shape.m * shape.n, false}};
  kernel.body = std::move(c);
  return kernel;
}

void measure_gemm(const codegen::CodeGenerator& generator, const codegen::Target& target,
                  const GemmShape& shape) {
  const auto layout = codegen::choose_packed_layout(shape.n, shape.k, f32, target);
  const Memory a = noise(shape.m * shape.k), b = noise(shape.k * shape.n), bias = noise(shape.n);
  const Memory c = noise(shape.m * shape.n), peer = noise(shape.m * shape.n);
  const Memory packed = noise(layout.elements());
  codegen::PackSource source;
  source.data = b.get();
  source.k_extents = {shape.k};
  source.k_strides = {shape.n};
  codegen::pack(source, layout, packed.get());
  const Memory residual = noise(shape.m * shape.n);
  void* buffers[] = {a.get(), packed.get(), c.get(), bias.get(), residual.get()};
  bench::Measurement measurement;
  measurement.name = shape.name;
  measurement.operations = 2.0 * static_cast<double>(shape.m * shape.n * shape.k);
  measurement.kernel = gemm_kernel(shape, layout);
  measurement.buffers = buffers;
#ifdef RLX_BENCH_DNNL
  if (shape.behind != Behind::norm)
    measurement.peer = bench::dnnl_gemm(shape, a.get(), b.get(), bias.get(), peer.get());
  measurement.peer_result = peer.get();
#endif
  bench::measure(generator, target, measurement);
}

/// Twelve heads of 128 x 128 with 64 channels, channels of all heads side by side in memory:
/// scores = Q * K^T, or values = scores * V; B is not packed.
void measure_attention(const codegen::CodeGenerator& generator, const codegen::Target& target,
                       bool scores) {
  constexpr std::int64_t heads = 12, length = 128, depth = 64, line = heads * depth;
  loop::Contraction c;
  c.batch_extents = {heads};
  c.m_extents = {length};
  c.k_extents = {scores ? depth : length};
  c.n = scores ? length : depth;
  c.a_batch_strides = {scores ? depth : length * length};
  c.a_m_strides = {scores ? line : length};
  c.a_k_strides = {1};
  c.b_buffer = 1;
  c.b_batch_strides = {depth};
  c.b_k_strides = {scores ? 1 : line};
  c.b_n_stride = scores ? line : 1;
  c.nodes.push_back({.op = ScalarOp::accumulator});
  const std::vector<std::int64_t> strides =
      scores ? std::vector<std::int64_t>{length * length, length, 1}
             : std::vector<std::int64_t>{depth, line, 1};
  c.stores.push_back({loop::Access{2, 0, strides, {}, {}, 0}, 0});
  constexpr std::int64_t square = heads * length * length, flat = length * line;
  bench::Measurement measurement;
  measurement.name = scores ? "QK^T 12x128x128x64" : "PV 12x128x64x128";
  measurement.operations = 2.0 * square * depth;
  measurement.kernel.buffers = {{f32, scores ? flat : square, false},
                                {f32, flat, false},
                                {f32, scores ? square : flat, true}};
  measurement.kernel.body = std::move(c);
  const Memory a = noise(square), b = noise(flat), result = noise(square);
  void* buffers[] = {a.get(), b.get(), result.get()};
  measurement.buffers = buffers;
  bench::measure(generator, target, measurement);
}

constexpr GemmShape shapes[] = {
    {"128x3072x768", 128, 3072, 768, Behind::nothing},
    {"128x3072x768 gelu", 128, 3072, 768, Behind::gelu},
    {"128x384x384", 128, 384, 384, Behind::nothing},
    {"128x384x384 gelu", 128, 384, 384, Behind::gelu},
    {"128x384x1536", 128, 384, 1536, Behind::nothing},
    {"128x384x384 norm", 128, 384, 384, Behind::norm},
    {"128x384x1536 norm", 128, 384, 1536, Behind::norm},
    {"128x1536x384 gelu", 128, 1536, 384, Behind::gelu},
    {"16x1536x384", 16, 1536, 384, Behind::nothing},
    {"16x1536x384 gelu", 16, 1536, 384, Behind::gelu},
    {"1024x1024x1024", 1024, 1024, 1024, Behind::nothing},
    {"1024x1024x1024 gelu", 1024, 1024, 1024, Behind::gelu},
    {"1x3072x768", 1, 3072, 768, Behind::nothing},
    {"2x3072x768", 2, 3072, 768, Behind::nothing},
    {"3x3072x768", 3, 3072, 768, Behind::nothing},
    {"5x3072x768", 5, 3072, 768, Behind::nothing},
    {"100x1000x2048", 100, 1000, 2048, Behind::nothing},
    {"49x64x576", 49, 64, 576, Behind::nothing},
    {"3136x64x64", 3136, 64, 64, Behind::nothing},
    {"3136x64x64 gelu", 3136, 64, 64, Behind::gelu},
};

}  // namespace

int main(int argc, char** argv) {
  return bench::run_benchmark(argv, [&](const auto& generator, const auto& target) {
    for (const GemmShape& shape : shapes) {
      if (argc > 1 && std::string(shape.name).find(argv[1]) == std::string::npos) continue;
      measure_gemm(generator, target, shape);
    }
    if (argc > 1) return;
    measure_attention(generator, target, true);
    measure_attention(generator, target, false);
  });
}
