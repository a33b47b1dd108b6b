// Fourier transforms as programs run them, beside the plain reference: lengths of all kinds, both
// precisions, every layout of lines, every instruction set of this machine.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <random>

#include "codegen/host_target.hpp"
#include "graph/op_info.hpp"
#include "rlx/ops.hpp"
#include "rlx/rlx.hpp"
#include "signal/kernels.hpp"

namespace rlx {
namespace {

Tensor noise(const Type& type, unsigned seed) {
  Tensor tensor(type.dtype, type.dims());
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  const bool wide = type.dtype == f64 || type.dtype == c128;
  const std::int64_t count = type.elements() * (is_complex(type.dtype) ? 2 : 1);
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = normal(generator);
    if (wide) {
      reinterpret_cast<double*>(tensor.mutable_data())[i] = value;
    } else {
      reinterpret_cast<float*>(tensor.mutable_data())[i] = static_cast<float>(value);
    }
  }
  return tensor;
}

std::vector<double> numbers(const Tensor& tensor, const Type& type) {
  const bool wide = type.dtype == f64 || type.dtype == c128;
  const std::int64_t count = type.elements() * (is_complex(type.dtype) ? 2 : 1);
  std::vector<double> list;
  for (std::int64_t i = 0; i < count; ++i)
    list.push_back(wide ? reinterpret_cast<const double*>(tensor.data())[i]
                        : double{reinterpret_cast<const float*>(tensor.data())[i]});
  return list;
}

/// Root mean square of the difference, relative to that of the expected numbers.
double relative_error(const std::vector<double>& got, const std::vector<double>& expected) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    difference += (got[i] - expected[i]) * (got[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(difference / std::max(size, 1e-300));
}

std::vector<codegen::Isa> instruction_sets() {
  std::vector<codegen::Isa> list;
  const codegen::Isa widest = codegen::widest_isa(codegen::host_cpu());
  for (int isa = 0; isa <= static_cast<int>(widest); ++isa)
    list.push_back(static_cast<codegen::Isa>(isa));
  return list;
}

/// Runs the op's kernel in two shares and compares with its reference.
void expect_reference(const Op& op, const Type& input) {
  const Type* const types[] = {&input};
  const auto results = op.info().infer(op.attributes(), InferArgs{types});
  ASSERT_TRUE(results.ok());
  const Type result = results->front();
  const Tensor x = noise(input, 1);
  Tensor expected(result.dtype, result.dims());
  const Dims in_dims = input.dims(), out_dims = result.dims();
  const TensorView in[] = {{input.dtype, in_dims, x.data()}};
  const MutableTensorView out[] = {{result.dtype, out_dims, expected.mutable_data()}};
  ASSERT_TRUE(op.info().eval(op.attributes(), EvalArgs{in, out}).ok());
  const bool wide = input.dtype == f64 || input.dtype == c128;
  EXPECT_GT(signal::line_items(op, types), 0) << "the plan leaves the op to its reference";
  for (const codegen::Isa isa : instruction_sets()) {
    const auto kernel = signal::line_kernel(op, std::span(&input, 1), result, isa);
    ASSERT_NE(kernel, nullptr);
    Tensor got(result.dtype, result.dims()), scratch(u8, {kernel->scratch_bytes() + 64});
    void* const buffers[] = {const_cast<std::byte*>(x.data()), got.mutable_data()};
    const std::int64_t items = kernel->work_items();
    kernel->run(buffers, 0, items / 2, scratch.mutable_data());
    kernel->run(buffers, items / 2, items, scratch.mutable_data());
    EXPECT_LT(relative_error(numbers(got, result), numbers(expected, result)),
              wide ? 1e-15 * 2 : 4e-7)
        << op.name() << " of " << input.text() << ", " << codegen::name_of(isa);
  }
}

TEST(Fft, EveryLengthUpTo130) {
  for (std::int64_t n = 1; n <= 130; ++n) {
    expect_reference(op::Fft{}, {c64, {3, n}});
    expect_reference(op::Fft{.inverse = true}, {c128, {2, n}});
  }
}

TEST(Fft, LongLengthsOfAllKinds) {
  for (const std::int64_t n : {240, 256, 400, 509, 512, 1000, 1021, 1024, 2042, 4096, 5003, 6561}) {
    expect_reference(op::Fft{}, {c64, {19, n}});
    expect_reference(op::Fft{.inverse = true, .norm = FftNorm::ortho}, {c128, {3, n}});
  }
  expect_reference(op::Fft{}, {c64, {1, 100000}});
  expect_reference(op::Fft{}, {c128, {1, 65537}});
}

// A line is shared by as many lanes as make it fit the first cache, or as few lines leave free.
TEST(Fft, FewLinesAndLongOnes) {
  for (const std::int64_t lines : {1, 3, 9, 17}) {
    for (const std::int64_t n : {2, 4, 16, 48, 240, 512, 1000, 2042, 4096}) {
      for (const bool inverse : {false, true}) {
        expect_reference(op::Fft{.inverse = inverse}, {c64, {lines, n}});
        expect_reference(op::Fft{.inverse = inverse}, {c128, {lines, n}});
      }
    }
  }
  for (const std::int64_t n : {1 << 14, 1 << 15, 16400, 3 * 16384}) {
    for (const std::int64_t lines : {1, 3, 17}) {
      expect_reference(op::Rfft{.norm = FftNorm::ortho}, {f32, {lines, n}});
      expect_reference(op::Rfft{}, {f64, {lines, n}});
      expect_reference(op::Irfft{.length = n}, {c64, {lines, n / 2 + 1}});
      expect_reference(op::Irfft{.norm = FftNorm::ortho}, {c128, {lines, n / 2 + 1}});
    }
  }
  // Bins too many, and bins that are not there.
  for (const std::int64_t bins : {9, 16, 17, 18, 40})
    expect_reference(op::Irfft{.length = 32}, {c64, {1, bins}});
  expect_reference(op::Fft{}, {c64, {1 << 18}});
}

// Lanes without a line would take memory alone: a long line has few.
TEST(Fft, ScratchOfOneLongLineIsBounded) {
  const Type line{c64, {1, 65521}};
  for (const codegen::Isa isa : instruction_sets()) {
    const auto kernel = signal::line_kernel(op::Fft{}, std::span(&line, 1), line, isa);
    // Two buffers of a convolution of 65,520 points, four lanes each.
    EXPECT_LT(kernel->scratch_bytes(), 5 << 20) << codegen::name_of(isa);
  }
}

// Prime factors above 61 have tables of their own: by Rader's convolution, through one of its own
// (719 = 2 * 359 + 1, 359 - 1 = 2 * 179), or by Bluestein's.
TEST(Fft, LargePrimeFactors) {
  for (const std::int64_t n : {67, 134, 485, 719, 1438, 2011, 2879, 4757, 3 * 719, 8 * 2879}) {
    expect_reference(op::Fft{}, {c64, {17, n}});
    expect_reference(op::Fft{.inverse = true}, {c128, {1, n}});
    expect_reference(op::Rfft{}, {f64, {2, n}});
    expect_reference(op::Irfft{.length = n}, {c64, {3, n / 2 + 1}});
  }
  expect_reference(op::Fft{}, {c128, {2, 67 * 71 * 3}});
}

TEST(Fft, AlongAnyAxis) {
  for (const std::int64_t inner : {1, 5, 16, 37}) {
    for (const DType dtype : {c64, c128}) {
      expect_reference(op::Fft{.axis = 1}, {dtype, {3, 30, inner}});
      expect_reference(op::Fft{.axis = 0, .norm = FftNorm::forward}, {dtype, {16, 2, inner}});
      expect_reference(op::Irfft{.axis = 1}, {dtype, {3, 17, inner}});
    }
    for (const DType dtype : {f32, f64}) {
      expect_reference(op::Rfft{.axis = 1}, {dtype, {3, 30, inner}});
      expect_reference(op::Rfft{.axis = 1}, {dtype, {3, 15, inner}});
    }
  }
}

TEST(Fft, RealTransforms) {
  for (const std::int64_t n : {1, 2, 3, 4, 6, 7, 16, 31, 62, 100, 254, 400, 401, 512, 2042, 4096}) {
    for (const DType dtype : {f32, f64}) {
      for (const FftNorm norm : {FftNorm::backward, FftNorm::ortho, FftNorm::none})
        expect_reference(op::Rfft{.norm = norm}, {dtype, {18, n}});
    }
    for (const DType dtype : {c64, c128}) {
      if (n % 2) {
        expect_reference(op::Irfft{.length = n}, {dtype, {18, n / 2 + 1}});
        expect_reference(op::Irfft{.length = n}, {dtype, {3, n / 2 + 4}});
        expect_reference(op::Irfft{.axis = 0, .length = n + 6}, {dtype, {n / 2 + 1, 5}});
        continue;
      }
      expect_reference(op::Irfft{}, {dtype, {18, n / 2 + 1}});
      // Missing bins are zero, more than n / 2 + 1 are dropped.
      expect_reference(op::Irfft{.length = 2 * n}, {dtype, {3, n / 2 + 1}});
      expect_reference(op::Irfft{.length = n, .norm = FftNorm::forward}, {dtype, {3, n + 3}});
    }
  }
}

TEST(Fft, PartsOfNumbers) {
  for (const DType dtype : {c64, c128}) {
    for (const std::int64_t elements : {1, 7, 5000, 20000}) {
      expect_reference(op::Real{}, {dtype, {elements}});
      expect_reference(op::Imag{}, {dtype, {elements}});
      expect_reference(op::Conj{}, {dtype, {elements}});
    }
  }
}

TEST(Fft, BlockLayout) {
  for (const std::int64_t n : {1, 6, 16, 37, 256}) {
    for (const DType dtype : {f32, f64}) {
      expect_reference(op::BlockFft{}, {dtype, {3, 7, 2 * n}});
      expect_reference(op::BlockFft{.inverse = true, .norm = FftNorm::none}, {dtype, {2 * n}});
    }
  }
}

TEST(Fft, LinesDoNotTouchEachOther) {
  const Type type{f32, {20, 400}};
  Graph graph;
  graph.output("y", graph.add_one(op::Rfft{}, {graph.input("x", f32, {20, 400})}));
  Session session(Device::cpu);
  CompiledGraph program = session.compile(graph).value();
  Tensor x = noise(type, 3);
  auto* values = reinterpret_cast<float*>(x.mutable_data());
  const auto run = [&] {
    const Outputs outputs =
        program.run({{"x", std::vector<float>(values, values + type.elements())}}).value();
    const auto* bins = reinterpret_cast<const float*>(outputs["y"].data());
    return std::vector<float>(bins, bins + 2 * 201);
  };
  const std::vector<float> before = run();
  for (std::int64_t j = 400; j < 8000; ++j) values[j] = std::nanf("");
  EXPECT_EQ(run(), before);
}

}  // namespace
}  // namespace rlx
