// Opening the generator, making noise, comparing with the oracle.
#include "contraction_fixture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "../base/fenced_memory.hpp"
#include "base/half.hpp"
#include "codegen/generator_source.hpp"
#include "codegen/host_target.hpp"
#include "codegen/object_loader.hpp"
#include "codegen/pack.hpp"

namespace rlx::codegen::testing {
namespace {

double read(DType dtype, const std::byte* at) {
  const auto as = [&]<class T>(T value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (dtype) {
    case DType::f32: return as(float{});
    case DType::f64: return as(double{});
    case DType::f16: return to_float(Half::from_bits(as(std::uint16_t{})));
    case DType::bf16: return to_float(BFloat16::from_bits(as(std::uint16_t{})));
    case DType::i8: return as(std::int8_t{});
    case DType::i32: return as(std::int32_t{});
    case DType::i64: return static_cast<double>(as(std::int64_t{}));
    default: return as(std::uint8_t{});
  }
}

void write(DType dtype, std::byte* at, double value) {
  const auto put = [&](auto typed) { std::memcpy(at, &typed, sizeof typed); };
  switch (dtype) {
    case DType::f32: return put(static_cast<float>(value));
    case DType::f64: return put(value);
    case DType::f16: return put(Half(static_cast<float>(value)));
    case DType::bf16: return put(BFloat16(static_cast<float>(value)));
    case DType::i8: return put(static_cast<std::int8_t>(std::lround(value * 100)));
    case DType::i32: return put(static_cast<std::int32_t>(std::lround(value * 1000)));
    case DType::i64: return put(static_cast<std::int64_t>(std::lround(value * 1000)));
    default: return put(static_cast<std::uint8_t>(std::lround(std::abs(value) * 200)));
  }
}

std::vector<void*> pointers(Buffers& buffers) {
  std::vector<void*> result;
  for (auto& buffer : buffers) result.push_back(buffer.data());
  return result;
}

void run_shuffled(const KernelCode& code, KernelFunction function, Buffers& contents,
                  std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::int64_t> cuts{0, code.work_items};
  for (int i = 0; i < 2 && code.work_items > 0; ++i) {
    cuts.push_back(static_cast<std::int64_t>(random() % (code.work_items + 1)));
  }
  std::sort(cuts.begin(), cuts.end());
  std::vector<std::size_t> order(cuts.size() - 1);
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random);
  rlx::testing::run_fenced(contents, code.scratch_bytes, [&](void* const* buffers, void* scratch) {
    for (std::size_t i : order) function(buffers, cuts[i], cuts[i + 1], scratch);
  });
}

void expect_equal(const loop::Kernel& kernel, const Buffers& made, const Buffers& wanted,
                  double tolerance) {
  for (std::size_t b = 0; b < kernel.buffers.size(); ++b) {
    const DType dtype = kernel.buffers[b].dtype;
    const std::size_t size = size_of(dtype);
    const double allowed = dtype == DType::f16 || dtype == DType::bf16 ? 0.01 : tolerance;
    for (std::int64_t i = 0; i < kernel.buffers[b].elements; ++i) {
      const double x = read(dtype, made[b].data() + i * size);
      const double y = read(dtype, wanted[b].data() + i * size);
      const double limit = is_float(dtype) ? allowed * (1 + std::abs(y)) : 0;
      if (std::abs(x - y) <= limit || (std::isnan(x) && std::isnan(y))) continue;
      FAIL() << "buffer " << b << " element " << i << " is " << x << ", should be " << y;
    }
  }
}

}  // namespace

const CodeGenerator* generator() {
  static const CodeGenerator* opened = []() -> const CodeGenerator* {
    const auto result = GeneratorSource::find().open();
    EXPECT_TRUE(result) << result.error().message;
    return result ? *result : nullptr;
  }();
  return opened;
}

std::vector<Target> host_targets() {
  std::vector<Target> targets;
  for (const char* name : {"portable", "avx2", "avx512"}) {
    if (auto target = target_for(host_cpu(), name)) targets.push_back(*target);
  }
  // What nobody forces may have tiles, too.
  const Target widest = target_for(host_cpu(), std::nullopt).value();
  if (targets.back() != widest) targets.push_back(widest);
  return targets;
}

Buffers noise_buffers(const loop::Kernel& kernel, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  Buffers buffers;
  for (const loop::Buffer& buffer : kernel.buffers) {
    const std::size_t size = size_of(buffer.dtype);
    std::vector<std::byte> bytes(static_cast<std::size_t>(buffer.elements) * size);
    for (std::size_t at = 0; at < bytes.size(); at += size) {
      write(buffer.dtype, bytes.data() + at, uniform(random));
    }
    buffers.push_back(std::move(bytes));
  }
  return buffers;
}

void run_generated(const loop::Kernel& kernel, const Target& target, Buffers& buffers,
                   std::uint32_t seed) {
  auto code = generator()->generate(kernel, target);
  ASSERT_TRUE(code) << code.error().message;
  auto image = ObjectImage::load(code->object);
  ASSERT_TRUE(image) << image.error().message;
  void* symbol = image->symbol(code->symbol);
  ASSERT_NE(symbol, nullptr);
  run_shuffled(*code, reinterpret_cast<KernelFunction>(symbol), buffers, seed);
}

void expect_as_interpreted(const loop::Kernel& kernel, const Target& target, double tolerance,
                           std::uint32_t seed) {
  SCOPED_TRACE(fmt::format("on {}, seed {}", name_of(target.isa), seed));
  if (!generator()) return;
  Buffers wanted = noise_buffers(kernel, seed);
  Buffers made = wanted;
  loop::interpret(kernel, pointers(wanted).data());
  run_generated(kernel, target, made, seed);
  expect_equal(kernel, made, wanted, tolerance);
}

void expect_as_interpreted(const loop::Kernel& kernel, double tolerance, std::uint32_t seed) {
  for (const Target& target : host_targets()) {
    expect_as_interpreted(kernel, target, tolerance, seed);
  }
}

loop::Kernel matmul(const MatmulOptions& options, const Target& target) {
  const auto& [m, n, k, batch, packed, panel_width, transposed_a, transposed_b, a, b, accumulator,
               k_group] = options;
  loop::Contraction c;
  c.batch_extents = {batch};
  c.m_extents = {m};
  c.k_extents = {k};
  c.n = n;
  c.a_buffer = 0;
  c.a_batch_strides = {m * k};
  c.a_m_strides = {transposed_a ? 1 : k};
  c.a_k_strides = {transposed_a ? m : 1};
  c.b_buffer = 1;
  c.b_packed = packed;
  std::int64_t b_elements = batch * n * k;
  if (packed) {
    PackedLayout layout = choose_packed_layout(n, k, b, target);
    if (panel_width > 0) layout.panel_width = panel_width;
    layout.group = k_group;
    layout.inner = k;
    c.k_group = static_cast<std::int32_t>(k_group);
    c.panel_width = static_cast<std::int32_t>(layout.panel_width);
    c.b_batch_strides = {1};
    b_elements = batch * layout.elements();
  } else {
    c.b_batch_strides = {n * k};
    c.b_k_strides = {transposed_b ? 1 : n};
    c.b_n_stride = transposed_b ? k : 1;
  }
  c.accumulator = accumulator;
  c.nodes.push_back({.op = ScalarOp::accumulator, .dtype = accumulator});
  c.stores.push_back({loop::Access{2, 0, {m * n, n, 1}, {}, {}, 0}, 0});
  loop::Kernel kernel;
  kernel.buffers = {
      {a, batch * m * k, false}, {b, b_elements, false}, {accumulator, batch * m * n, true}};
  kernel.body = std::move(c);
  return kernel;
}

ScalarId add_node(std::vector<ScalarNode>& nodes, ScalarNode node) {
  nodes.push_back(node);
  return static_cast<ScalarId>(nodes.size()) - 1;
}

}  // namespace rlx::codegen::testing
