// Runs by position allocate nothing, take no lock and map nothing: counted by replacing the C
// library's functions in this program.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>

#include "rlx/custom.hpp"
#include "rlx/import.hpp"
#include "rlx/rlx.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RLX_COUNTS 0
#else
#define RLX_COUNTS 1
#endif

namespace {
constinit std::atomic<long> mallocs{0}, frees{0}, maps{0};
}

#if RLX_COUNTS
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);

__attribute__((visibility("default"))) void* malloc(std::size_t bytes) {
  ++mallocs;
  return __libc_malloc(bytes);
}
__attribute__((visibility("default"))) void* calloc(std::size_t items, std::size_t bytes) {
  ++mallocs;
  return __libc_calloc(items, bytes);
}
__attribute__((visibility("default"))) void* realloc(void* memory, std::size_t bytes) {
  ++mallocs;
  return __libc_realloc(memory, bytes);
}
__attribute__((visibility("default"))) void* aligned_alloc(std::size_t alignment,
                                                           std::size_t bytes) {
  ++mallocs;
  return __libc_memalign(alignment, bytes);
}
__attribute__((visibility("default"))) void free(void* memory) {
  if (memory) ++frees;
  __libc_free(memory);
}
__attribute__((visibility("default"))) void* mmap(void* at, std::size_t bytes, int protection,
                                                  int flags, int file, off_t offset) noexcept {
  ++maps;
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, bytes, protection, flags, file, offset));
}
}
#endif

namespace rlx {
namespace {

struct Counts {
  long mallocs, frees, maps;
  bool operator==(const Counts&) const = default;
};

Counts counts() { return {mallocs, frees, maps}; }

/// Memory for all inputs and outputs of a program, and runs through every call by position.
class Runner {
 public:
  explicit Runner(CompiledGraph& program) : program_(program) {
    for (const IoInfo& input : program.inputs()) {
      values_.emplace_back(input.dtype, input.dims);
      slots_.push_back(values_.back().data());
      named_.emplace_back(input.name, TensorView(values_.back()));
    }
    for (const IoInfo& output : program.outputs()) {
      results_.emplace_back(output.dtype, output.dims);
      targets_.push_back(results_.back().mutable_data());
    }
  }

  bool run_slots() { return program_.run_slots(slots_).ok(); }
  bool run_into() { return program_.run_into(slots_, targets_).ok(); }
  bool run_raw() { return program_.run_raw(named_).ok(); }

 private:
  CompiledGraph& program_;
  std::vector<Tensor> values_, results_;
  std::vector<const void*> slots_;
  std::vector<void*> targets_;
  std::vector<NamedInput> named_;
};

void expect_no_allocations(CompiledGraph& program, const std::string& name, int runs) {
  Runner runner(program);
  ASSERT_TRUE(runner.run_slots() && runner.run_into() && runner.run_raw()) << name;
  const auto expect_none = [&](const char* call, auto run) {
    const Counts before = counts();
    bool good = true;
    for (int i = 0; i < runs; ++i) good = run() && good;
    const Counts after = counts();
    EXPECT_TRUE(good) << name << ' ' << call;
    EXPECT_EQ(after.mallocs, before.mallocs) << name << ' ' << call;
    EXPECT_EQ(after.frees, before.frees) << name << ' ' << call;
    EXPECT_EQ(after.maps, before.maps) << name << ' ' << call;
  };
  expect_none("run_slots", [&] { return runner.run_slots(); });
  expect_none("run_into", [&] { return runner.run_into(); });
  expect_none("run_raw", [&] { return runner.run_raw(); });
}

class Allocation : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!RLX_COUNTS) GTEST_SKIP() << "The sanitizer has an allocator of its own.";
    const Counts before = counts();
    std::free(std::malloc(16));
    ASSERT_NE(counts(), before) << "the count does not work";
  }
  Session session{Device::cpu, {.threads = GetParam()}};
};

TEST_P(Allocation, none_in_runs_of_a_small_graph) {
  Graph graph;
  const Value x = graph.input("x", f32, {8}), y = graph.input("y", f32, {8});
  graph.output("z", gelu(x + y));
  CompiledGraph program = session.compile(graph).value();
  expect_no_allocations(program, "add + gelu", 1000);
}

TEST_P(Allocation, none_in_runs_that_feed_handles) {
  Graph graph;
  const Value x = graph.input("x", f32, {64, 64}), state = graph.input("state", f32, {64, 64});
  const Value next = matmul(x, state) + x;
  graph.output("next", next);
  graph.output("y", softmax(next));
  CompiledGraph program = session.compile(graph, CompileOptions().feed("next", "state")).value();
  expect_no_allocations(program, "a fed state", 1000);
}

TEST_P(Allocation, none_in_runs_of_custom_ops_and_signals) {
  CustomOp half;
  half.name = "half";
  half.infer = [](const CustomAttributes&, std::span<const Type> in) -> Result<std::vector<Type>> {
    return std::vector<Type>{in[0]};
  };
  half.eval = [](const CustomAttributes& attributes, std::span<const TensorView> in,
                 std::span<const MutableTensorView> out) -> Status {
    const auto factor = static_cast<float>(attributes.number("factor", 0.5));
    for (std::int64_t i = 0; i < in[0].elements(); ++i)
      out[0].as<float>()[i] = factor * reinterpret_cast<const float*>(in[0].data)[i];
    return {};
  };
  CustomOps ops;
  ASSERT_TRUE(ops.add(std::move(half)).ok());
  Graph graph;
  const Value x = graph.input("x", f32, {4, 512});
  const Value halved = custom(ops, "half", {x}, {"factor=0.25"});
  const Value bins = graph.add_one(op::Rfft{}, {halved + x});
  graph.output("odd", graph.add_one(op::Irfft{.length = 511}, {bins}));
  graph.output("real", graph.add_one(op::Real{}, {bins}));
  graph.output("peaks", welch_peaks(halved, {.k = 4, .n_segments = 2}));
  CompiledGraph program = session.compile(graph).value();
  expect_no_allocations(program, "custom op and transforms", 100);
}

TEST_P(Allocation, none_in_runs_of_a_mixture_of_experts) {
  Graph graph;
  const Value x = graph.input("x", f32, {16, 64});
  const auto weight = [&](const char* name, Dims dims) { return graph.param(name, f32, dims); };
  const Value logits = matmul(x, weight("router", {64, 8}));
  graph.output("y",
               moe_feed_forward(x, logits, weight("gate", {8, 64, 96}), weight("up", {8, 64, 96}),
                                weight("down", {8, 96, 64}), {.k = 2}));
  CompiledGraph program = session.compile(graph).value();
  for (const auto& [name, elements] : {std::pair{"router", 64 * 8},
                                       {"gate", 8 * 64 * 96},
                                       {"up", 8 * 64 * 96},
                                       {"down", 8 * 96 * 64}})
    ASSERT_TRUE(
        program.set_param(name, std::vector<float>(static_cast<std::size_t>(elements), 0.01F))
            .ok());
  ASSERT_TRUE(program.enable_moe_topk_capture().ok());
  expect_no_allocations(program, "experts in memory", 300);
  ASSERT_TRUE(
      program.set_moe_resident_experts({true, false, false, true, false, true, false, false}).ok());
  expect_no_allocations(program, "experts in the file", 300);
}

TEST_P(Allocation, none_in_runs_of_the_models) {
  const char* corpus = std::getenv("RLX_CORPUS");
  if (!corpus) GTEST_SKIP() << "RLX_CORPUS is not set";
  int models = 0;
  const auto folder = std::filesystem::path(corpus) / "models";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().filename() != "model.onnx") continue;
    const std::string name = entry.path().parent_path().filename().string();
    // The dims of its first data set; inputs of zeros do as well as any.
    ImportOptions options;
    const auto declared = onnx_declared_inputs(entry.path()).value();
    for (std::size_t i = 0; i < declared.size(); ++i) {
      const auto file =
          entry.path().parent_path() / "test_data_set_0" / ("input_" + std::to_string(i) + ".pb");
      if (!std::filesystem::exists(file)) continue;
      const Tensor value = read_tensor_proto(file).value();
      options.input_dims[declared[i].name] = value.dims();
      options.input_values[declared[i].name] = value;
    }
    const auto graph = import_onnx(entry.path(), options);
    if (!graph.ok()) continue;
    auto program = session.compile(*graph);
    if (!program.ok() || !program->stage_text("lir").ok()) continue;  // data decides its shapes
    const std::string plan = program->stage_text("lir").value();
    if (plan.find("\nhost ") != std::string::npos) continue;  // reference evaluations may allocate
    ++models;
    const bool quick = program->query_memory().arena_bytes < 1'000'000;
    expect_no_allocations(*program, name, quick ? 1000 : 20);
  }
  EXPECT_GE(models, 10);
}

INSTANTIATE_TEST_SUITE_P(Threads, Allocation, testing::Values(1, 2));

}  // namespace
}  // namespace rlx
