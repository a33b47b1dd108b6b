// The code library with the real generator: opened on demand, its objects loaded by our loader, the
// oracle agreeing.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include "base/temporary_folder.hpp"
#include "codegen/code_library.hpp"
#include "codegen/host_target.hpp"

namespace rlx::codegen {
namespace {

using rlx::testing::TemporaryFolder;

/// out[i, j] = act(x[i, j] * scale + b[j]), act a few elementary functions.
loop::Kernel map_kernel(std::int64_t rows, std::int64_t columns, double scale, ScalarOp op) {
  loop::Nest nest;
  nest.extents = {rows, columns};
  nest.parallel_dims = 2;
  nest.accesses = {{.buffer = 0, .strides = {columns, 1}}, {.buffer = 1, .strides = {0, 1}}};
  nest.nodes = {{.op = ScalarOp::load, .index = 0},    {.op = ScalarOp::constant, .value = scale},
                {.op = ScalarOp::mul, .a = 0, .b = 1}, {.op = ScalarOp::load, .index = 1},
                {.op = ScalarOp::add, .a = 2, .b = 3}, {.op = op, .a = 4}};
  nest.stores = {{.access = {.buffer = 2, .strides = {columns, 1}}, .node = 5}};
  return {.buffers = {{.elements = rows * columns},
                      {.elements = columns},
                      {.elements = rows * columns, .written = true}},
          .body = nest};
}

std::vector<loop::Kernel> some_kernels() {
  std::vector<loop::Kernel> kernels;
  for (const ScalarOp op : {ScalarOp::exp, ScalarOp::tanh, ScalarOp::erf, ScalarOp::abs}) {
    for (const std::int64_t columns : {1, 7, 64}) {
      kernels.push_back(map_kernel(5, columns, 0.75, op));
    }
  }
  return kernels;
}

void expect_like_the_oracle(const loop::Kernel& kernel, const LoadedKernel& loaded) {
  std::vector<float> x(kernel.buffers[0].elements), b(kernel.buffers[1].elements);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.01F * static_cast<float>(i * 37 % 200) - 1;
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = 0.1F * static_cast<float>(i % 7);
  std::vector<float> wanted(x.size()), got(x.size());
  void* wanted_buffers[] = {x.data(), b.data(), wanted.data()};
  loop::interpret(kernel, wanted_buffers);
  void* buffers[] = {x.data(), b.data(), got.data()};
  std::vector<std::byte> memory(static_cast<std::size_t>(loaded.scratch_bytes) + 64);
  void* scratch = memory.data();
  std::size_t space = memory.size();
  std::align(64, static_cast<std::size_t>(loaded.scratch_bytes), scratch, space);
  const std::int64_t middle = loaded.work_items / 2;
  loaded.function(buffers, middle, loaded.work_items, scratch);
  loaded.function(buffers, 0, middle, scratch);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 2e-6) << i;
}

TEST(CodeLibraryWithGenerator, kernels_run_cold_and_warm) {
  if (!GeneratorSource::find().open().ok()) GTEST_SKIP() << "the generator is not built";
  TemporaryFolder folder;
  const std::vector<loop::Kernel> kernels = some_kernels();
  for (const bool warm : {false, true}) {
    CodeLibrary library(host_target().value(), CodeCache(CacheFolder::open(folder.path())),
                        GeneratorSource::find(), 2);
    const auto loaded = library.load(kernels);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      SCOPED_TRACE(i);
      expect_like_the_oracle(kernels[i], (*loaded)[i]);
    }
    EXPECT_EQ(library.statistics().generated, warm ? 0 : 12);
    EXPECT_EQ(library.statistics().cached, warm ? 12 : 0);
  }
}

TEST(CodeLibraryWithGenerator, every_instruction_set_of_the_host) {
  if (!GeneratorSource::find().open().ok()) GTEST_SKIP() << "the generator is not built";
  TemporaryFolder folder;
  const std::vector<loop::Kernel> kernels = some_kernels();
  for (const char* isa : {"portable", "avx2", "avx512"}) {
    SCOPED_TRACE(isa);
    const auto target = target_for(host_cpu(), isa);
    if (!target.ok()) continue;
    CodeLibrary library(*target, CodeCache(CacheFolder::open(folder.path())),
                        GeneratorSource::find(), 2);
    const auto loaded = library.load(kernels);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    for (std::size_t i = 0; i < kernels.size(); ++i)
      expect_like_the_oracle(kernels[i], (*loaded)[i]);
    EXPECT_EQ(library.statistics().generated, 12) << "code of another target was taken";
  }
}

}  // namespace
}  // namespace rlx::codegen
