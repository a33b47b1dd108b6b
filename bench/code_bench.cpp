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

/// C = tanh(A * B) with A [16 + i, 384] and a packed B [384, 384].
rlx::loop::Kernel kernel_number(int i) {
  const std::int64_t rows = 16 + i, width = 384;
  rlx::loop::Contraction body;
  body.m_extents = {rows};
  body.k_extents = {width};
  body.n = width;
  body.a_m_strides = {width};
  body.a_k_strides = {1};
  body.b_buffer = 1;
  body.b_packed = true;
  body.panel_width = 48;
  body.nodes.resize(2);
  body.nodes[0].op = ScalarOp::accumulator;
  body.nodes[1].op = ScalarOp::tanh;
  body.nodes[1].a = 0;
  body.stores.resize(1);
  body.stores[0].access.buffer = 2;
  body.stores[0].access.strides = {width, 1};
  body.stores[0].node = 1;
  rlx::loop::Kernel kernel;
  kernel.buffers.resize(3);
  kernel.buffers[0].elements = kernel.buffers[2].elements = rows * width;
  kernel.buffers[1].elements = width * width;
  kernel.buffers[2].written = true;
  kernel.body = body;
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
