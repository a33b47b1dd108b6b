// Arenas of real models against the largest sum of live bytes, counted anew from the plan's text;
// what programs share.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "rlx/rlx.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RLX_MEASURES 0
#else
#define RLX_MEASURES 1
#endif

namespace rlx {
namespace {

struct Buffer {
  std::int64_t offset = 0, end = 0;
  int first = 0, last = 0;
};

/// The arena's buffers, as a person reads them from the plan.
std::vector<Buffer> arena_buffers(const std::string& plan) {
  std::vector<Buffer> buffers;
  std::istringstream lines(plan);
  for (std::string line; std::getline(lines, line);) {
    char dtype[16];
    long long elements = 0, offset = 0;
    int first = 0, last = 0;
    const int found =
        std::sscanf(line.c_str(), "buffer %*d %15[a-z0-9_][%lld] arena offset=%lld life=%d..%d",
                    dtype, &elements, &offset, &first, &last);
    if (found != 5) continue;
    const std::int64_t bytes =
        elements * static_cast<std::int64_t>(size_of(dtype_named(dtype).value()));
    if (first >= 0 && bytes > 0) {
      buffers.push_back({offset, offset + (bytes + 63) / 64 * 64, first, last});
    }
  }
  return buffers;
}

/// The largest number of bytes alive at a step; what is taken over in place counts once.
std::int64_t peak_of_live_bytes(const std::vector<Buffer>& buffers) {
  std::int64_t peak = 0;
  int steps = 0;
  for (const Buffer& buffer : buffers) steps = std::max(steps, buffer.last);
  for (int step = 0; step <= steps; ++step) {
    std::vector<std::pair<std::int64_t, std::int64_t>> live;
    for (const Buffer& buffer : buffers) {
      if (buffer.first <= step && step <= buffer.last) live.emplace_back(buffer.offset, buffer.end);
    }
    std::ranges::sort(live);
    live.erase(std::unique(live.begin(), live.end()), live.end());
    std::int64_t bytes = 0;
    for (const auto& [from, to] : live) bytes += to - from;
    peak = std::max(peak, bytes);
  }
  return peak;
}

/// Two that live at one step lie apart, or one takes over the other's bytes at its last step.
void expect_apart(const std::vector<Buffer>& buffers) {
  for (const Buffer& a : buffers) {
    for (const Buffer& b : buffers) {
      if (&a == &b || a.first > b.first || a.last < b.first) continue;
      const bool apart = a.end <= b.offset || b.end <= a.offset;
      const bool taken_over = a.offset == b.offset && a.end == b.end && a.last == b.first;
      EXPECT_TRUE(apart || taken_over) << a.offset << ".." << a.end << " and " << b.offset << ".."
                                       << b.end << " at step " << b.first;
    }
  }
}

void expect_tight(const CompiledGraph& program, const std::string& name) {
  const MemoryReport memory = program.query_memory();
  const std::vector<Buffer> buffers = arena_buffers(program.stage_text("lir").value());
  ASSERT_FALSE(buffers.empty()) << name;
  expect_apart(buffers);
  std::int64_t end = 0;
  for (const Buffer& buffer : buffers) end = std::max(end, buffer.end);
  EXPECT_EQ(end, memory.arena_bytes) << name;
  const std::int64_t peak = peak_of_live_bytes(buffers);
  EXPECT_EQ(peak, memory.arena_lower_bound_bytes) << name;
  EXPECT_LE(static_cast<double>(memory.arena_bytes), 1.05 * static_cast<double>(peak)) << name;
}

/// Symbols as a user might give them: audio models want long inputs, sequences short ones.
CompileOptions options_for(const Graph& graph) {
  CompileOptions options;
  for (const Node& node : graph.nodes()) {
    const auto* input = node.op.as<op::Input>();
    if (!input) continue;
    Dims dims;
    bool open = false;
    for (const Dim& dim : node.results[0].shape) {
      dims.push_back(dim.is_static() ? dim.value() : 1);
      open = open || !dim.is_static();
    }
    if (open) options.input_dims[input->name] = dims;
  }
  return options;
}

std::vector<std::filesystem::path> models() {
  std::vector<std::filesystem::path> found;
  const char* corpus = std::getenv("RLX_CORPUS");
  if (!corpus) return found;
  for (const char* part : {"models", "onnx/light"}) {
    const auto folder = std::filesystem::path(corpus) / part;
    if (!std::filesystem::exists(folder)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (entry.path().filename() == "model.onnx") found.push_back(entry.path());
    }
  }
  std::ranges::sort(found);
  return found;
}

TEST(Memory, arenas_of_the_models_are_tight) {
  const auto files = models();
  if (files.empty()) GTEST_SKIP() << "RLX_CORPUS is not set";
  Session session(Device::cpu);
  int bound = 0;
  for (const auto& file : files) {
    if (std::filesystem::file_size(file) > 32'000'000) continue;
    const std::string name = file.parent_path().filename().string();
    const auto graph = import_onnx(file.string());
    if (!graph.ok()) continue;  // wants dims
    auto program = session.compile(*graph, options_for(*graph));
    if (!program.ok() || !program->stage_text("lir").ok()) continue;  // data decides its shapes
    ++bound;
    expect_tight(*program, name);
  }
  EXPECT_GE(bound, 10);
}

TEST(Memory, what_is_asked_before_a_run_is_what_runs_use) {
  Graph graph;
  const Value x = graph.input("x", f32, {64, 128});
  const Value w = graph.param("w", f32, {128, 128}, Tensor(f32, {128, 128}));
  graph.output("y", relu(matmul(relu(matmul(x, w)) + x, w)));
  Session session(Device::cpu);
  CompiledGraph program = session.compile(graph).value();
  const MemoryReport before = program.query_memory();
  EXPECT_EQ(before.weights_bytes, 128 * 128 * 4);
  expect_tight(program, "two matmuls");
  const std::vector<float> input(64 * 128, 1.0f);
  const void* slots[] = {input.data()};
  const auto slices = program.run_slots(slots).value();
  EXPECT_LE(slices[0].offset + slices[0].length, before.arena_bytes);
  const MemoryReport after = program.query_memory();
  EXPECT_EQ(after.weights_bytes, before.weights_bytes);
  EXPECT_EQ(after.arena_bytes, before.arena_bytes);
  EXPECT_EQ(after.scratch_bytes, before.scratch_bytes);
}

double resident_mebibytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::stod(line.substr(6)) / 1024;
  return 0;
}

/// By the session's limit, which has room for the weights once, and by what the system says.
TEST(Memory, clones_share_weights) {
  constexpr std::int64_t wide = 2048, weight_bytes = wide * wide * 4;
  Graph graph;
  const Value x = graph.input("x", f32, {1, wide});
  graph.output("y", matmul(x, graph.param("w", f32, {wide, wide}, Tensor(f32, {wide, wide}))));
  Session session(Device::cpu, {.threads = 2, .memory_limit_bytes = weight_bytes * 3 / 2});
  CompiledGraph program = session.compile(graph).value();
  const std::vector<float> input(wide, 1.0f);
  ASSERT_TRUE(program.run({{"x", input}}).ok());
  const double before = resident_mebibytes();
  std::vector<CompiledGraph> clones;
  for (int i = 0; i < 8; ++i) {
    auto clone = program.clone();
    ASSERT_TRUE(clone.ok()) << clone.error().message;
    ASSERT_TRUE(clone->run({{"x", input}}).ok());
    clones.push_back(*std::move(clone));
  }
  if (RLX_MEASURES) {
    EXPECT_LT(resident_mebibytes() - before, 4) << "eight clones of 16 MiB of weights";
  }
  // Set anew a weight is the clone's own, and counts: there is no room for a second one.
  EXPECT_FALSE(clones[0].set_param("w", std::vector<float>(wide * wide, 1.0f)).ok());
  EXPECT_TRUE(clones[0].run({{"x", input}}).ok());
}

/// Packed, and not beside it as it was given.
TEST(Memory, a_set_weight_lies_in_memory_once) {
  constexpr std::int64_t wide = 2048;
  constexpr double mebibytes = wide * wide * 4 / 1048576.0;
  Graph graph;
  const Value x = graph.input("x", f32, {1, wide});
  graph.output("y", matmul(x, graph.param("w", f32, {wide, wide})));
  Session session(Device::cpu, {.threads = 2});
  CompiledGraph program = session.compile(graph).value();
  const std::vector<float> input(wide, 1.0f);
  std::vector<float> values(wide * wide);
  const double before = resident_mebibytes();
  for (const float value : {1.0f, 2.0f, 3.0f}) {
    std::ranges::fill(values, value);
    ASSERT_TRUE(program.set_param("w", values).ok());
    EXPECT_EQ(program.run({{"x", input}}).value()["y"].as<float>()[7], value * wide);
    if (RLX_MEASURES) {
      EXPECT_LT(resident_mebibytes() - before, 1.5 * mebibytes) << value;
    }
  }
  CompiledGraph clone = program.clone().value();
  EXPECT_EQ(clone.run({{"x", input}}).value()["y"].as<float>()[7], 3.0f * wide);
}

/// Of the others that it is made of, the values that were set count.
TEST(Memory, a_weight_of_several_params_is_made_anew_of_all) {
  Graph graph;
  const Value x = graph.input("x", f32, {1, 64});
  const Value w = graph.param("w", f32, {64, 64}), s = graph.param("s", f32, {64});
  graph.output("y", matmul(x, w * s));
  graph.output("z", matmul(x, concat({w, graph.param("v", f32, {64, 64})}, 1)));
  CompiledGraph program = Session(Device::cpu).compile(graph).value();
  const std::vector<float> ones(64, 1.0f), many(64 * 64, 1.0f);
  const auto times = [](std::vector<float> values, float by) {
    for (float& value : values) value *= by;
    return values;
  };
  ASSERT_TRUE(program.set_param("w", many).ok());
  ASSERT_TRUE(program.set_param("s", ones).ok());
  ASSERT_TRUE(program.set_param("v", times(many, 7)).ok());
  ASSERT_TRUE(program.set_param("s", times(ones, 3)).ok());
  ASSERT_TRUE(program.set_param("w", times(many, 5)).ok());
  const Outputs outputs = program.run({{"x", ones}}).value();
  EXPECT_EQ(outputs["y"].as<float>()[9], 64.0f * 5 * 3);
  EXPECT_EQ(outputs["z"].as<float>()[9], 64.0f * 5);
  EXPECT_EQ(outputs["z"].as<float>()[64 + 9], 64.0f * 7);
}

}  // namespace
}  // namespace rlx
