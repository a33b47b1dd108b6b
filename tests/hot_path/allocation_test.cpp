// Runs by position allocate nothing, take no lock, map nothing and enter no futex: counted by
// replacing the C library's functions in this program.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "rlx/custom.hpp"
#include "rlx/import.hpp"
#include "rlx/rlx.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__x86_64__)
#define RLX_COUNTS 0
#else
#define RLX_COUNTS 1
#endif

namespace {
constinit std::atomic<long> mallocs{0}, frees{0}, maps{0}, locks{0}, futexes{0};
}

#if RLX_COUNTS
#define RLX_REPLACES extern "C" __attribute__((visibility("default")))

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);
}

RLX_REPLACES void* malloc(std::size_t bytes) {
  ++mallocs;
  return __libc_malloc(bytes);
}
RLX_REPLACES void* calloc(std::size_t items, std::size_t bytes) {
  ++mallocs;
  return __libc_calloc(items, bytes);
}
RLX_REPLACES void* realloc(void* memory, std::size_t bytes) {
  ++mallocs;
  return __libc_realloc(memory, bytes);
}
RLX_REPLACES void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  ++mallocs;
  return __libc_memalign(alignment, bytes);
}
RLX_REPLACES void free(void* memory) {
  if (memory) ++frees;
  __libc_free(memory);
}

/// What std::atomic's wait and notify call; the kernel's answer is a result or minus an errno.
RLX_REPLACES long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long values[6];
  for (long& value : values) value = va_arg(list, long);
  va_end(list);
  if (number == SYS_futex) ++futexes;
  long result = number;
  register long fourth __asm__("r10") = values[3];
  register long fifth __asm__("r8") = values[4];
  register long sixth __asm__("r9") = values[5];
  __asm__ volatile("syscall"
                   : "+a"(result)
                   : "D"(values[0]), "S"(values[1]), "d"(values[2]), "r"(fourth), "r"(fifth),
                     "r"(sixth)
                   : "rcx", "r11", "memory");
  if (result >= 0 || result < -4095) return result;
  errno = static_cast<int>(-result);
  return -1;
}
RLX_REPLACES void* mmap(void* at, std::size_t bytes, int protection, int flags, int file,
                        off_t offset) noexcept {
  ++maps;
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, bytes, protection, flags, file, offset));
}
RLX_REPLACES int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  ++locks;
  static const auto original =
      reinterpret_cast<int (*)(pthread_mutex_t*)>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  return original(mutex);
}
#endif

namespace rlx {
namespace {

using Clock = std::chrono::steady_clock;

struct Counts {
  long mallocs, frees, maps, locks, futexes;
  bool operator==(const Counts&) const = default;
};

Counts counts() { return {mallocs, frees, maps, locks, futexes}; }

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
  const std::vector<NamedInput>& named() const { return named_; }

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
    EXPECT_EQ(after.locks, before.locks) << name << ' ' << call;
    EXPECT_EQ(after.futexes, before.futexes) << name << ' ' << call;
  };
  expect_none("run_slots", [&] { return runner.run_slots(); });
  expect_none("run_into", [&] { return runner.run_into(); });
  expect_none("run_raw", [&] { return runner.run_raw(); });
}

/// What `run` and `run_typed` allocate is what they give back: a list, names and tensors.
void expect_only_results(CompiledGraph& program, const std::string& name) {
  Runner runner(program);
  ASSERT_TRUE(program.run(runner.named()).ok() && program.run_typed(runner.named()).ok()) << name;
  const long start = mallocs;
  {
    Outputs outputs;
    outputs.items.reserve(program.outputs().size());
    for (const IoInfo& info : program.outputs())
      outputs.items.emplace_back(info.name, Tensor(info.dtype, info.dims));
  }
  const long needed = mallocs - start;
  for (int i = 0; i < 20; ++i) {
    const long before = mallocs;
    EXPECT_TRUE(program.run(runner.named()).ok());
    EXPECT_EQ(mallocs - before, needed) << name << ": run";
    const long between = mallocs;
    EXPECT_TRUE(program.run_typed(runner.named()).ok());
    EXPECT_EQ(mallocs - between, needed) << name << ": run_typed";
  }
}

/// A thousand, or as many as take about half a second; RLX_ALL_RUNS=1: always a thousand.
int runs_of(CompiledGraph& program) {
  Runner runner(program);
  (void)runner.run_slots();
  const auto start = Clock::now();
  (void)runner.run_slots();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (std::getenv("RLX_ALL_RUNS")) return 1000;
  return static_cast<int>(std::clamp(0.5 / std::max(seconds, 1e-6), 5.0, 1000.0));
}

class Allocation : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!RLX_COUNTS)
      GTEST_SKIP() << "Calls are counted on x86-64, without a sanitizer's allocator.";
    const Counts before = counts();
    std::free(std::malloc(16));
    ASSERT_NE(counts(), before) << "the count does not work";
    // std::atomic waits by the function that is counted here.
    const long waits = futexes;
    std::atomic<std::uint32_t> word = 0;
    std::thread waker([&] {
      while (futexes == waits) std::this_thread::yield();
      word = 1;
      word.notify_one();
    });
    while (word == 0) word.wait(0);
    waker.join();
    ASSERT_GT(futexes, waits) << "the count of futex calls does not work";
  }
  /// Its threads never sleep: what the system does to the test's own pauses cannot change a count.
  Session session{Device::cpu, {.threads = GetParam(), .spin = std::chrono::hours(1)}};
};

TEST_P(Allocation, none_in_runs_of_a_small_graph) {
  Graph graph;
  const Value x = graph.input("x", f32, {8}), y = graph.input("y", f32, {8});
  graph.output("z", gelu(x + y));
  CompiledGraph program = session.compile(graph).value();
  expect_no_allocations(program, "add + gelu", 1000);
  expect_only_results(program, "add + gelu");
}

TEST_P(Allocation, none_in_runs_of_a_team) {
  Graph graph;
  const Value x = graph.input("x", f32, {128, 256});
  graph.output("y", softmax(matmul(x, graph.constant(Tensor(f32, {256, 256})))));
  CompiledGraph program = session.compile(graph).value();
  ASSERT_EQ(program.report().threads, GetParam());
  expect_no_allocations(program, "matmul + softmax", 1000);
  expect_only_results(program, "matmul + softmax");
}

TEST_P(Allocation, plain_floats_for_other_float_inputs_are_converted_in_place) {
  Graph graph;
  graph.output("y", graph.input("x", f16, {8}) * graph.constant(f16, 2));
  CompiledGraph program = session.compile(graph).value();
  const std::vector<float> values(8, 3);
  const std::vector<NamedInput> named{{"x", values}};
  ASSERT_TRUE(program.run_raw(named).ok());
  const Counts before = counts();
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(program.run_raw(named).ok());
  EXPECT_EQ(counts(), before);
}

TEST_P(Allocation, no_lock_after_queued_runs) {
  Graph graph;
  graph.output("y", gelu(graph.input("x", f32, {8})));
  CompiledGraph program = session.compile(graph).value();
  const Tensor x(f32, {8});
  ASSERT_TRUE(program.commit_no_wait(std::vector<NamedInput>{{"x", x}}).ok());
  ASSERT_TRUE(program.sync_pending().ok());
  expect_no_allocations(program, "after queued runs", 1000);
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

TEST_P(Allocation, none_in_runs_of_the_library) {
  Graph graph;
  const Value x = graph.input("x", f32, {16, 700}), update = graph.input("update", f32, {16, 16});
  const std::vector<Value> sorted = graph.add(op::Sort{}, Values{x});
  const std::vector<Value> best = graph.add(op::TopK{16, -1}, Values{x});
  graph.output("sorted", sorted[0]);
  graph.output("best", best[0]);
  const Value sums = graph.add_one(op::Cumulative{Reduction::sum, 1}, {x});
  const Value scattered =
      graph.add_one(op::ScatterElements{1, ScatterMode::add}, {sums + x, best[1], update});
  const Value rows = reshape(slice(best[1], {0, 0}, {16, 1}), {16, 1});
  const Value wrapped = graph.add_one(op::Mod{}, {rows, graph.constant(i64, 16)});
  graph.output("blocks", graph.add_one(op::ScatterNd{}, {scattered, wrapped, x}));
  const Value image = reshape(x, {1, 4, 40, 70});
  graph.output("at", graph.add_one(op::WindowArgMax{.window = {2, 2}, .strides = {2, 2}}, {image}));
  graph.output("padded", graph.add_one(op::Pad{{0, 3}, {0, 5}, PadMode::reflect}, {x}));
  graph.output("last", graph.add_one(op::ArgReduce{.axis = 1, .select_last = true}, {x}));
  graph.output("determinants", graph.add_one(op::Determinant{}, {reshape(update, {4, 8, 8})}));
  CompiledGraph program = session.compile(graph).value();
  expect_no_allocations(program, "the library", 100);
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
    expect_no_allocations(*program, name, runs_of(*program));
    expect_only_results(*program, name);
  }
  EXPECT_GE(models, 10);
}

INSTANTIATE_TEST_SUITE_P(Threads, Allocation, testing::Values(1, 2));

}  // namespace
}  // namespace rlx
