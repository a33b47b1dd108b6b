// Measures the way of 50 kernels to their functions: generated, from disk, and from memory.
#include <stdlib.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "codegen/code_library.hpp"
#include "codegen/host_target.hpp"

namespace {

using rlx::ScalarOp;
using rlx::codegen::CodeLibrary;
using Clock = std::chrono::steady_clock;

/// out = tanh(x * scale + b): kernels that differ by their scale.
rlx::loop::Kernel kernel_number(int i) {
  rlx::loop::Nest nest;
  nest.extents = {128, 384};
  nest.parallel_dims = 2;
  nest.accesses.resize(2);
  nest.accesses[0].strides = {384, 1};
  nest.accesses[1].buffer = 1;
  nest.accesses[1].strides = {0, 1};
  nest.nodes.resize(6);
  nest.nodes[0].op = nest.nodes[3].op = ScalarOp::load;
  nest.nodes[0].index = 0;
  nest.nodes[3].index = 1;
  nest.nodes[1].value = 1.0 + i;
  nest.nodes[2] = {.op = ScalarOp::mul, .a = 0, .b = 1};
  nest.nodes[4] = {.op = ScalarOp::add, .a = 2, .b = 3};
  nest.nodes[5] = {.op = ScalarOp::tanh, .a = 4};
  nest.stores.resize(1);
  nest.stores[0].access.buffer = 2;
  nest.stores[0].access.strides = {384, 1};
  nest.stores[0].node = 5;
  rlx::loop::Kernel kernel;
  kernel.buffers.resize(3);
  kernel.buffers[0].elements = kernel.buffers[2].elements = std::int64_t{128} * 384;
  kernel.buffers[1].elements = 384;
  kernel.buffers[2].written = true;
  kernel.body = nest;
  return kernel;
}

void measure(const char* name, CodeLibrary& library, const std::vector<rlx::loop::Kernel>& kernels,
             std::vector<rlx::codegen::LoadedKernel>& held) {
  const auto before = library.statistics();
  const auto start = Clock::now();
  held = library.load(kernels).value();
  const std::chrono::duration<double, std::milli> time = Clock::now() - start;
  const auto after = library.statistics();
  std::printf("%-22s %8.3f ms (lookup %.3f, generate %.3f, load %.3f)\n", name, time.count(),
              after.lookup_ms - before.lookup_ms, after.generate_ms - before.generate_ms,
              after.load_ms - before.load_ms);
}

}  // namespace

int main() {
  std::string folder = (std::filesystem::temp_directory_path() / "rlx_code_bench_XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return 1;
  std::vector<rlx::loop::Kernel> kernels;
  for (int i = 0; i < 50; ++i) kernels.push_back(kernel_number(i));
  const auto open = [&] {
    return CodeLibrary(rlx::codegen::host_target().value(),
                       rlx::codegen::CodeCache(rlx::CacheFolder::open(folder)),
                       rlx::codegen::GeneratorSource::find(), 2);
  };
  std::vector<rlx::codegen::LoadedKernel> held;
  {
    CodeLibrary library = open();
    measure("50 generated", library, kernels, held);
    measure("50 from memory", library, kernels, held);
  }
  for (int round = 0; round < 3; ++round) {
    CodeLibrary library = open();
    held.clear();
    measure("50 from one file", library, kernels, held);
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".program") std::filesystem::remove(entry.path());
  }
  CodeLibrary library = open();
  held.clear();
  measure("50 from single files", library, kernels, held);
  std::filesystem::remove_all(folder);
  return 0;
}
