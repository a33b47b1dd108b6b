// Buffers, calls and comparisons of nest tests.
#include "nest_fixture.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "../base/fenced_memory.hpp"
#include "codegen/generator_source.hpp"
#include "codegen/host_target.hpp"
#include "codegen/object_loader.hpp"
#include "graph/elementwise_eval.hpp"

namespace rlx::testing {
namespace {}  // namespace

const codegen::CodeGenerator& generator() {
  static const codegen::GeneratorSource source = codegen::GeneratorSource::find();
  return *source.open().value();
}

std::vector<codegen::Target> host_targets() {
  std::vector<codegen::Target> targets;
  for (const char* isa : {"avx512", "avx2", "portable"}) {
    Result<codegen::Target> target = codegen::target_for(codegen::host_cpu(), isa);
    if (target) targets.push_back(*target);
  }
  return targets;
}

Contents random_contents(const loop::Kernel& kernel, std::mt19937& random) {
  Contents contents;
  for (const loop::Buffer& buffer : kernel.buffers) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(buffer.elements) * size_of(buffer.dtype));
    for (std::int64_t i = 0; i < buffer.elements; ++i) {
      ScalarDatum datum;
      if (is_float(buffer.dtype)) {
        datum.number = std::uniform_real_distribution<double>(-2, 2)(random);
      } else {
        const int low = is_signed_integer(buffer.dtype) ? -9 : 0;
        datum.integer = std::uniform_int_distribution<int>(low, 9)(random);
        if (buffer.dtype == DType::boolean) datum.integer &= 1;
      }
      store_datum(buffer.dtype, bytes.data(), i, datum);
    }
    contents.push_back(std::move(bytes));
  }
  return contents;
}

namespace {

/// Runs the items of the parts [first, last) of so many.
void run_parts(const loop::Kernel& kernel, const codegen::Target& target, Contents& contents,
               int first, int last, int parts) {
  const codegen::KernelCode code = generator().generate(kernel, target).value();
  const codegen::ObjectImage image = codegen::ObjectImage::load(code.object).value();
  const auto function = reinterpret_cast<codegen::KernelFunction>(image.symbol(code.symbol));
  ASSERT_NE(function, nullptr);
  run_fenced(contents, code.scratch_bytes, [&](void* const* buffers, void* scratch) {
    for (int part = first; part < last; ++part) {
      const std::int64_t begin = code.work_items * part / parts;
      const std::int64_t end = code.work_items * (part + 1) / parts;
      function(buffers, begin, end, scratch);
    }
  });
}

}  // namespace

void run_generated(const loop::Kernel& kernel, const codegen::Target& target, Contents& contents,
                   int cuts) {
  run_parts(kernel, target, contents, 0, cuts + 1, cuts + 1);
}

void run_half(const loop::Kernel& kernel, const codegen::Target& target, Contents& contents,
              int worker) {
  run_parts(kernel, target, contents, worker, worker + 1, 2);
}

std::string difference(const loop::Kernel& kernel, const Contents& made, const Contents& expected,
                       double tolerance) {
  for (std::size_t b = 0; b < kernel.buffers.size(); ++b) {
    const loop::Buffer& buffer = kernel.buffers[b];
    for (std::int64_t i = 0; i < buffer.elements; ++i) {
      const ScalarDatum x = load_datum(buffer.dtype, made[b].data(), i);
      const ScalarDatum y = load_datum(buffer.dtype, expected[b].data(), i);
      const double p = x.number.real(), q = y.number.real();
      const bool same =
          x.integer == y.integer && ((std::isnan(p) && std::isnan(q)) || p == q ||
                                     std::abs(p - q) <= tolerance * (1 + std::abs(q)));
      if (same) continue;
      return fmt::format("buffer {} ({}) element {}: {} {} instead of {} {}", b,
                         name_of(buffer.dtype), i, p, x.integer, q, y.integer);
    }
  }
  return "";
}

void expect_as_interpreted(const loop::Kernel& kernel, double tolerance, unsigned seed) {
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  expect_as_interpreted(kernel, random_contents(kernel, random), tolerance,
                        static_cast<int>(seed % 3));
}

void expect_as_interpreted(const loop::Kernel& kernel, const Contents& start, double tolerance,
                           int cuts) {
  Contents expected = start;
  std::vector<void*> buffers;
  for (std::vector<std::byte>& bytes : expected) buffers.push_back(bytes.data());
  loop::interpret(kernel, buffers.data());
  for (const codegen::Target& target : host_targets()) {
    Contents made = start;
    run_generated(kernel, target, made, cuts);
    const std::string found = difference(kernel, made, expected, tolerance);
    EXPECT_EQ(found, "") << codegen::name_of(target.isa) << "\n" << loop::to_text(kernel);
  }
}

}  // namespace rlx::testing
