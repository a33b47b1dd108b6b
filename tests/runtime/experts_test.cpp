// Mixture of experts as programs: results against the reference and bit for bit over groups,
// threads and masks; choices, counts, memory, clones, files.
#include "rlx/experts.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>
#include <random>
#include <thread>

#include "base/message.hpp"
#include "base/temporary_folder.hpp"
#include "graph/elementwise_eval.hpp"
#include "graph/op_info.hpp"
#include "rlx/mapped.hpp"
#include "rlx/rlx.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RLX_MEASURES 0
#else
#define RLX_MEASURES 1
#endif

namespace rlx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message;

Tensor noise(DType dtype, Dims dims, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, 0.5);
  Tensor tensor(dtype, std::move(dims));
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    ScalarDatum datum;
    datum.number = normal(random);
    store_datum(dtype, tensor.mutable_data(), i, datum);
  }
  return tensor;
}

Tensor indices(Dims dims, const std::vector<std::int32_t>& values) {
  return Tensor::of<std::int32_t>(std::move(dims), std::span<const std::int32_t>(values));
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dims() == b.dims() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

struct LayerSizes {
  std::int64_t tokens = 5, experts = 8, choices = 2, width = 24, inner = 40;
};

/// `layers` layers one after the other, with a router each.
Graph model(const LayerSizes& s, DType dtype = f32, int layers = 1) {
  Graph graph;
  Value x = graph.input("x", dtype, {Dim(s.tokens), Dim(s.width)});
  for (int i = 0; i < layers; ++i) {
    const auto weight = [&](const std::string& name, Dims dims) {
      const std::string full = name + std::to_string(i);
      return graph.param(full, dtype, dims,
                         noise(dtype, dims, static_cast<unsigned>(std::hash<std::string>{}(full))));
    };
    const Value logits = matmul(x, weight("router", {s.width, s.experts}));
    x = x + moe_feed_forward(x, logits, weight("gate", {s.experts, s.width, s.inner}),
                             weight("up", {s.experts, s.width, s.inner}),
                             weight("down", {s.experts, s.inner, s.width}),
                             {.k = s.choices, .renormalize = true});
  }
  graph.output("y", x);
  return graph;
}

Tensor run(CompiledGraph& program, const Tensor& x) {
  Result<Outputs> outputs = program.run({{"x", x}});
  if (!outputs.ok()) throw Exception(outputs.error());
  return (*outputs)["y"];
}

class Experts : public ::testing::TestWithParam<int> {
 protected:
  Session session{Device::cpu, {.threads = GetParam()}};
};
INSTANTIATE_TEST_SUITE_P(threads, Experts, ::testing::Values(1, 3));

TEST_P(Experts, equal_the_reference) {
  for (const DType dtype : {f32, f64, f16, bf16}) {
    for (const LayerSizes& sizes :
         {LayerSizes{}, LayerSizes{1, 4, 1, 16, 7}, LayerSizes{33, 3, 3, 20, 130}}) {
      SCOPED_TRACE(fmt::format("{} {} tokens", name_of(dtype), sizes.tokens));
      const Graph graph = model(sizes, dtype);
      const Tensor x = noise(dtype, {sizes.tokens, sizes.width}, 3);
      const Tensor expected = evaluate_graph(graph, std::vector{x}).value()[0];
      CompiledGraph program = session.compile(graph).value();
      const Tensor actual = run(program, x);
      // Of halves, the reference rounds after every op; a step of bf16 is 1/128 at most.
      const double tolerance = dtype == f64 ? 1e-12 : dtype == f32 ? 2e-5 : 0.1;
      const double relative = dtype == bf16 ? 1.0 / 128 : 0;
      for (std::int64_t i = 0; i < actual.elements(); ++i) {
        const double wanted = load_datum(dtype, expected.data(), i).number.real();
        ASSERT_NEAR(load_datum(dtype, actual.data(), i).number.real(), wanted,
                    tolerance + relative * std::abs(wanted))
            << "element " << i;
      }
    }
  }
}

// Every row alone, against every row in whatever company.
TEST_P(Experts, bits_of_a_row_do_not_depend_on_its_group) {
  const std::int64_t experts = 4, depth = 77;
  for (const DType dtype : {f32, f16, f64}) {
    for (const std::int64_t columns : {10, 64, 200}) {
      const Tensor w = noise(dtype, {experts, depth, columns}, 1);
      const std::int64_t rows = 70;
      const Tensor x = noise(dtype, {rows, depth}, 2);
      const auto product = [&](std::int64_t count) {
        Graph graph;
        const Value left = graph.input("x", dtype, {Dim(count), Dim(depth)});
        const Value chosen = graph.input("chosen", i32, {Dim(count)});
        graph.output("y", grouped_matmul(left, graph.constant(w), chosen));
        return session.compile(graph).value();
      };
      CompiledGraph all = product(rows), one = product(1);
      for (int round = 0; round < 3; ++round) {
        std::mt19937 random(static_cast<unsigned>(round));
        std::vector<std::int32_t> chosen;
        for (std::int64_t i = 0; i < rows; ++i)
          chosen.push_back(round == 0 ? 1 : static_cast<std::int32_t>(random() % 4));
        const Tensor y = all.run({{"x", x}, {"chosen", indices({rows}, chosen)}}).value()["y"];
        const std::size_t in = static_cast<std::size_t>(depth) * size_of(dtype),
                          out = static_cast<std::size_t>(columns) * size_of(dtype);
        for (std::size_t i = 0; i < chosen.size(); ++i) {
          Tensor alone(dtype, {1, depth});
          std::memcpy(alone.mutable_data(), x.data() + i * in, in);
          const Tensor single =
              one.run({{"x", alone}, {"chosen", indices({1}, {chosen[i]})}}).value()["y"];
          ASSERT_EQ(std::memcmp(single.data(), y.data() + i * out, out), 0)
              << name_of(dtype) << " " << columns << " columns, row " << i;
        }
      }
    }
  }
}

TEST_P(Experts, multiply_by_matrices_that_are_no_params) {
  Graph graph;
  const Value x = graph.input("x", f32, {9, 12});
  const Value w = graph.input("w", f32, {3, 12, 70});
  const Value chosen = graph.input("chosen", i64, {9});
  graph.output("y", grouped_matmul(x, w, chosen));
  const Tensor xs = noise(f32, {9, 12}, 1), ws = noise(f32, {3, 12, 70}, 2);
  const std::vector<std::int64_t> list{2, 0, 2, 2, 1, 2, 2, 2, 2};
  const Tensor experts = Tensor::of<std::int64_t>({9}, std::span<const std::int64_t>(list));
  CompiledGraph program = session.compile(graph).value();
  const Tensor y = program.run({{"x", xs}, {"w", ws}, {"chosen", experts}}).value()["y"];
  const Tensor expected = evaluate_graph(graph, std::vector{xs, ws, experts}).value()[0];
  for (std::int64_t i = 0; i < y.elements(); ++i)
    ASSERT_NEAR(y.as<float>()[static_cast<std::size_t>(i)],
                expected.as<float>()[static_cast<std::size_t>(i)], 1e-5);
}

TEST_P(Experts, results_do_not_depend_on_masks) {
  const LayerSizes sizes{13, 8, 3, 24, 70};
  CompiledGraph program = session.compile(model(sizes, f32, 2)).value();
  const Tensor x = noise(f32, {sizes.tokens, sizes.width}, 4);
  const Tensor expected = run(program, x);
  std::mt19937 random(1);
  for (int round = 0; round < 8; ++round) {
    std::vector<ExpertMask> masks(2);
    for (ExpertMask& mask : masks)
      for (int e = 0; e < 8; ++e) mask.push_back(round > 0 && random() % 2 == 0);
    ASSERT_TRUE(program.set_moe_resident_experts_per_layer(masks).ok());
    EXPECT_TRUE(same_bits(run(program, x), expected)) << "round " << round;
    EXPECT_TRUE(same_bits(run(program, x), expected)) << "round " << round << ", again";
  }
  // A mask before the first run.
  CompiledGraph fresh = session.compile(model(sizes, f32, 2)).value();
  ASSERT_TRUE(fresh.set_moe_resident_experts(ExpertMask(8, false)).ok());
  EXPECT_TRUE(same_bits(run(fresh, x), expected));
  EXPECT_LT(fresh.query_memory().weights_bytes, program.query_memory().weights_bytes + 1);
}

TEST_P(Experts, choices_and_counts_are_those_of_the_last_run) {
  Graph graph;
  const Value x = graph.input("x", f32, {4, 6});
  const Value first = graph.input("first", i32, {4, 2}), second = graph.input("second", i32, {4});
  const Value w = graph.constant(noise(f32, {3, 6, 6}, 1));
  const Value v = graph.constant(noise(f32, {5, 6, 6}, 2));
  const Value inner = grouped_matmul(grouped_matmul(x, w, first), w, first);
  graph.output("y", grouped_matmul(sum(inner, {1}), v, second));
  CompiledGraph program = session.compile(graph).value();
  EXPECT_THAT(program.moe_layers().value(), ElementsAre(3, 5));
  EXPECT_EQ(message(program.take_moe_topk_capture()),
            "No run was captured: enable_moe_topk_capture, then run.");
  ASSERT_TRUE(program.enable_moe_topk_capture().ok());
  ASSERT_TRUE(program
                  .set_moe_resident_experts_per_layer(
                      {{true, false, true}, {false, false, false, false, true}})
                  .ok());
  const Tensor xs = noise(f32, {4, 6}, 3);
  const auto go = [&](const std::vector<std::int32_t>& a, const std::vector<std::int32_t>& b) {
    ASSERT_TRUE(
        program.run({{"x", xs}, {"first", indices({4, 2}, a)}, {"second", indices({4}, b)}}).ok());
  };
  go({0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0});
  go({0, 1, 2, 0, 1, 1, 0, 2}, {4, 3, 4, 0});
  const auto choices = program.take_moe_topk_capture().value();
  ASSERT_EQ(choices.size(), 2U);
  EXPECT_EQ(choices[0].experts, 3);
  EXPECT_THAT(choices[0].chosen, ElementsAre(0, 1, 2, 0, 1, 1, 0, 2));
  EXPECT_THAT(choices[1].chosen, ElementsAre(4, 3, 4, 0));
  const auto counts = program.take_moe_residency_stats().value();
  EXPECT_EQ(counts[0].resident, 5);
  EXPECT_EQ(counts[0].other, 3);
  EXPECT_EQ(counts[1].resident, 2);
  EXPECT_EQ(counts[1].other, 2);
}

TEST_P(Experts, refuse_with_sentences) {
  const LayerSizes sizes;
  CompiledGraph program = session.compile(model(sizes, f32, 2)).value();
  EXPECT_EQ(message(program.set_moe_resident_experts(ExpertMask(7, true))),
            "Layer 0 has 8 experts and was given a mask of (7).");
  EXPECT_EQ(message(program.set_moe_resident_experts_per_layer({ExpertMask(8, true)})),
            "The program has 2 layers of experts and was given masks for (1).");
  Graph plain;
  plain.output("y", relu(plain.input("x", f32, {2})));
  CompiledGraph other = session.compile(plain).value();
  EXPECT_EQ(message(other.moe_layers()),
            "The program has no grouped matmuls whose experts could be told apart.");
  Graph outside;
  const Value x = outside.input("x", f32, {3, 4});
  outside.output("y", grouped_matmul(x, outside.constant(noise(f32, {2, 4, 5}, 1)),
                                     outside.input("chosen", i32, {3})));
  CompiledGraph grouped = session.compile(outside).value();
  const Tensor xs = noise(f32, {3, 4}, 1);
  for (const std::int32_t bad : {2, -1}) {
    EXPECT_EQ(
        message(grouped.run({{"x", xs}, {"chosen", indices({3}, {0, bad, 1})}})),
        fmt::format("The expert ({}) of a grouped matmul lies outside the 2 that there are.", bad));
  }
  EXPECT_TRUE(grouped.run({{"x", xs}, {"chosen", indices({3}, {0, 1, 1})}}).ok());
}

TEST_P(Experts, clones_share_matrices_and_have_masks_of_their_own) {
  const LayerSizes sizes{7, 6, 2, 24, 48};
  CompiledGraph program = session.compile(model(sizes)).value();
  const Tensor x = noise(f32, {sizes.tokens, sizes.width}, 4);
  const Tensor expected = run(program, x);
  ASSERT_TRUE(program.set_moe_resident_experts({true, false, false, true, false, false}).ok());
  CompiledGraph twin = program.clone().value();
  EXPECT_EQ(twin.query_memory().weights_bytes, program.query_memory().weights_bytes);
  std::vector<std::thread> threads;
  for (CompiledGraph* each : {&program, &twin}) {
    threads.emplace_back([&, each] {
      std::mt19937 random(each == &twin ? 1 : 2);
      for (int round = 0; round < 30; ++round) {
        ExpertMask mask;
        for (int e = 0; e < 6; ++e) mask.push_back(random() % 2 == 0);
        EXPECT_TRUE(each->set_moe_resident_experts(mask).ok());
        EXPECT_TRUE(same_bits(run(*each, x), expected));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(Experts, params_set_anew_take_the_place_of_the_old) {
  const LayerSizes sizes;
  CompiledGraph program = session.compile(model(sizes)).value();
  const Tensor x = noise(f32, {sizes.tokens, sizes.width}, 4);
  const Tensor before = run(program, x);
  ASSERT_TRUE(program.set_moe_resident_experts(ExpertMask(8, false)).ok());
  const Tensor down = noise(f32, {8, sizes.inner, sizes.width}, 99);
  ASSERT_TRUE(program.set_param("down0", down.as<float>()).ok());
  const Tensor after = run(program, x);
  EXPECT_FALSE(same_bits(before, after));
  ASSERT_TRUE(program.set_moe_resident_experts(ExpertMask(8, true)).ok());
  EXPECT_TRUE(same_bits(run(program, x), after));
}

TEST_P(Experts, live_in_the_file_of_a_saved_program) {
  const testing::TemporaryFolder folder;
  const LayerSizes sizes;
  CompiledGraph program = session.compile(model(sizes)).value();
  const Tensor x = noise(f32, {sizes.tokens, sizes.width}, 4);
  const Tensor expected = run(program, x);
  ASSERT_TRUE(
      program.set_moe_resident_experts({true, false, true, false, false, false, false, true}).ok());
  ASSERT_EQ(message(program.save(folder.path("experts.saved"))), "no error");
  EXPECT_TRUE(same_bits(run(program, x), expected));
  auto loaded = session.load(folder.path("experts.saved"));
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_TRUE(same_bits(run(*loaded, x), expected));
  ASSERT_TRUE(loaded->set_moe_resident_experts(ExpertMask(8, false)).ok());
  EXPECT_TRUE(same_bits(run(*loaded, x), expected));
  EXPECT_EQ(loaded->take_moe_residency_stats().value()[0].other, sizes.tokens * sizes.choices);
}

TEST_P(Experts, follow_the_active_extent) {
  const std::int64_t width = 16, experts = 4;
  Graph graph;
  const Value x = graph.input("x", f32, {"tokens", Dim(width)});
  const Value logits = matmul(x, graph.constant(noise(f32, {width, experts}, 1)));
  const Routing routing = moe_router(logits, {.k = 2});
  graph.output(
      "y", grouped_matmul(x, graph.constant(noise(f32, {experts, width, 8}, 2)), routing.experts));
  CompiledGraph program = session.compile(graph, {.dims = {{"tokens", 6}}}).value();
  ASSERT_TRUE(program.enable_moe_topk_capture().ok());
  ASSERT_TRUE(program.set_moe_resident_experts({true, false, false, false}).ok());
  const Tensor xs = noise(f32, {6, width}, 3);
  const Tensor all = run(program, xs);
  const auto chosen = program.take_moe_topk_capture().value()[0].chosen;
  ASSERT_TRUE(program.set_active_extent({{4, 6}}).ok());
  const Tensor live = run(program, xs);
  EXPECT_EQ(std::memcmp(live.data(), all.data(), 4 * 2 * 8 * sizeof(float)), 0);
  const auto fewer = program.take_moe_topk_capture().value()[0].chosen;
  EXPECT_EQ(fewer, std::vector<std::uint32_t>(chosen.begin(), chosen.begin() + 8));
}

TEST_P(Experts, run_in_buckets) {
  const std::int64_t width = 16, experts = 4;
  Graph graph;
  const Value x = graph.input("x", f32, {"tokens", Dim(width)});
  const Value logits = matmul(x, graph.constant(noise(f32, {width, experts}, 1)));
  const auto weight = [&](Dims dims, unsigned seed) {
    return graph.constant(noise(f32, std::move(dims), seed));
  };
  graph.output("y", moe_feed_forward(x, logits, weight({experts, width, 8}, 2),
                                     weight({experts, width, 8}, 3), weight({experts, 8, width}, 4),
                                     {.k = 2}));
  auto buckets = BucketedCompileCache::make(session, graph, {.symbol = "tokens", .largest = 16});
  ASSERT_TRUE(buckets.ok()) << buckets.error().message;
  for (const std::int64_t tokens : {3, 11}) {
    const Tensor xs = noise(f32, {tokens, width}, 3);
    CompiledGraph exact = session.compile(graph, {.dims = {{"tokens", tokens}}}).value();
    const NamedInput input("x", xs);
    const Outputs padded = buckets->run_padded(std::span(&input, 1)).value();
    const Tensor expected = run(exact, xs);
    ASSERT_EQ(padded["y"].dims(), expected.dims());
    for (std::size_t i = 0; i < static_cast<std::size_t>(expected.elements()); ++i)
      ASSERT_NEAR(padded["y"].as<float>()[i], expected.as<float>()[i], 1e-5);
  }
}

TEST_P(Experts, run_in_loops) {
  const std::int64_t width = 8;
  auto body = std::make_shared<Graph>();
  body->input("step", i64, {});
  const Value state = body->input("state", f32, {3, Dim(width)});
  const Value chosen = body->input("chosen", i32, {3});
  const Value w = body->input("w", f32, {2, Dim(width), Dim(width)});
  body->output("next", tanh(grouped_matmul(state, w, chosen)));
  Graph graph;
  const Value x = graph.input("x", f32, {3, Dim(width)});
  const Value choices = graph.input("choices", i32, {4, 3});
  const Value matrices = graph.constant(noise(f32, {2, width, width}, 5));
  const Value operands[] = {x, choices, matrices};
  graph.output(
      "y", graph.add(op::Scan{.body = body, .length = 4, .carries = 1, .scanned = 1}, operands)[0]);
  const Tensor xs = noise(f32, {3, width}, 1);
  const Tensor list = indices({4, 3}, {0, 0, 1, 1, 1, 1, 0, 1, 0, 1, 0, 0});
  CompiledGraph program = session.compile(graph).value();
  ASSERT_TRUE(program.enable_moe_topk_capture().ok());
  const Tensor y = program.run({{"x", xs}, {"choices", list}}).value()["y"];
  const Tensor expected = evaluate_graph(graph, std::vector{xs, list}).value()[0];
  for (std::size_t i = 0; i < 24; ++i) ASSERT_NEAR(y.as<float>()[i], expected.as<float>()[i], 1e-5);
  EXPECT_THAT(program.take_moe_topk_capture().value()[0].chosen, ElementsAre(1, 0, 0));
  EXPECT_EQ(program.take_moe_residency_stats().value()[0].resident, 12);
}

// ---- memory

double resident_mebibytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::stod(line.substr(6)) / 1024;
  return 0;
}

/// Noise that lies in a mapped file, not in memory.
Tensor mapped_noise(const std::string& path, const Dims& dims) {
  const auto bytes = static_cast<std::size_t>(element_count(dims)) * sizeof(float);
  {
    std::ofstream file(path, std::ios::binary);
    const Tensor part = noise(f32, {dims[1], dims[2]}, 8);
    for (std::int64_t e = 0; e < dims[0]; ++e)
      file.write(reinterpret_cast<const char*>(part.data()),
                 static_cast<std::streamsize>(part.bytes()));
  }
  const int file = open(path.c_str(), O_RDONLY);
  void* const address = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  return Tensor(f32, dims, {static_cast<const std::byte*>(address), FileUnmap{bytes}});
}

TEST_P(Experts, memory_is_bounded_by_the_mask) {
  if (!RLX_MEASURES) GTEST_SKIP() << "The sanitizer has memory of its own.";
  const testing::TemporaryFolder folder;
  const std::int64_t experts = 64, size = 512;  // 1 MiB each
  Graph graph;
  const Value x = graph.input("x", f32, {Dim(experts), Dim(size)});
  const Value chosen = graph.input("chosen", i32, {Dim(experts)});
  const Value w = graph.param("w", f32, {experts, size, size},
                              mapped_noise(folder.path("w"), {experts, size, size}));
  graph.output("y", grouped_matmul(x, w, chosen));
  const Tensor xs = noise(f32, {experts, size}, 1);
  std::vector<std::int32_t> everyone(static_cast<std::size_t>(experts));
  std::iota(everyone.begin(), everyone.end(), 0);
  const Tensor list = indices({experts}, everyone);
  const auto go = [&](CompiledGraph& program) {
    return program.run({{"x", xs}, {"chosen", list}}).value()["y"];
  };
  CompiledGraph program = session.compile(graph).value();
  const double before = resident_mebibytes();
  ExpertMask mask(static_cast<std::size_t>(experts), false);
  std::fill_n(mask.begin(), 8, true);
  ASSERT_TRUE(program.set_moe_resident_experts(mask).ok());
  const Tensor expected = go(program);
  // Eight experts, what workers read just now, and some room for the run itself.
  EXPECT_LT(resident_mebibytes() - before, 8 + GetParam() + 6);
  std::fill_n(mask.begin(), 24, true);
  ASSERT_TRUE(program.set_moe_resident_experts(mask).ok());
  EXPECT_TRUE(same_bits(go(program), expected));
  const double with_24 = resident_mebibytes() - before;
  EXPECT_LT(with_24, 24 + GetParam() + 6);
  EXPECT_GT(with_24, 23);
  std::fill_n(mask.begin() + 4, 20, false);
  ASSERT_TRUE(program.set_moe_resident_experts(mask).ok());
  EXPECT_TRUE(same_bits(go(program), expected));
  EXPECT_LT(resident_mebibytes() - before, 4 + GetParam() + 6);
  EXPECT_EQ(program.query_memory().weights_bytes, 4 * size * size * 4);
}

/// Given as plain tensors and set anew: what the user lets go does not stay in memory.
TEST_P(Experts, plain_matrices_in_a_file_leave_memory_to_the_mask) {
  if (!RLX_MEASURES) GTEST_SKIP() << "The sanitizer has memory of its own.";
  const testing::TemporaryFolder folder;
  const testing::ScopedVariable cache("RLX_CACHE_DIR", folder.path("cache").c_str());
  const std::int64_t experts = 32, size = 512;  // 1 MiB each
  const auto matrices = [&](float scale) {
    std::vector<float> values(static_cast<std::size_t>(experts * size * size));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = scale * static_cast<float>(i * 7919 % 1009);
    return values;
  };
  const auto compiled = [&] {
    Graph graph;
    const Value x = graph.input("x", f32, {4, Dim(size)});
    const Tensor plain = Tensor::of<float>({experts, size, size}, matrices(0.001f));
    const Value w = graph.param("w", f32, {experts, size, size}, in_file(plain).value());
    graph.output("y", grouped_matmul(x, w, graph.input("chosen", i32, {4})));
    return session.compile(graph).value();
  };
  (void)compiled();  // what the code generator takes is taken before, and its kernels are cached
  const double before = resident_mebibytes();
  CompiledGraph program = compiled();
  ExpertMask mask(static_cast<std::size_t>(experts), false);
  std::fill_n(mask.begin(), 4, true);
  ASSERT_TRUE(program.set_moe_resident_experts(mask).ok());
  const Tensor xs = noise(f32, {4, size}, 1), list = indices({4}, {1, 9, 3, 31});
  const auto go = [&] { return program.run({{"x", xs}, {"chosen", list}}).value()["y"]; };
  const Tensor first = go();
  EXPECT_LT(resident_mebibytes() - before, 4 + GetParam() + 8);
  ASSERT_EQ(message(program.set_param("w", matrices(0.002f))), "no error");
  const Tensor second = go();
  EXPECT_LT(resident_mebibytes() - before, 4 + GetParam() + 8);
  for (const std::size_t i : {0U, 600U, 2000U})
    EXPECT_FLOAT_EQ(second.as<float>()[i], 2 * first.as<float>()[i]) << i;
}

TEST(experts, count_against_the_memory_limit) {
  Session session(Device::cpu, {.threads = 1, .memory_limit_bytes = 600'000});
  const std::int64_t size = 128;  // 64 KiB each
  Graph graph;
  const Value x = graph.input("x", f32, {4, Dim(size)});
  graph.output("y", grouped_matmul(x, graph.constant(noise(f32, {16, size, size}, 1)),
                                   graph.input("chosen", i32, {4})));
  CompiledGraph program = session.compile(graph).value();
  const Tensor xs = noise(f32, {4, size}, 1), list = indices({4}, {0, 5, 11, 15});
  EXPECT_THAT(message(program.run({{"x", xs}, {"chosen", list}})),
              HasSubstr("The experts in memory need (65536) bytes; of the session's limit of "));
  ExpertMask mask(16, false);
  std::fill_n(mask.begin(), 5, true);
  ASSERT_EQ(message(program.set_moe_resident_experts(mask)), "no error");
  EXPECT_EQ(message(program.run({{"x", xs}, {"chosen", list}})), "no error");
}

}  // namespace
}  // namespace rlx
