// Large weights of linear layers on one row: read where they lie, with the results of packed ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>

#include "base/temporary_folder.hpp"
#include "rlx/mapped.hpp"
#include "rlx/rlx.hpp"

namespace rlx {
namespace {

constexpr std::int64_t outputs = 2051, wide = 9216;  // 72 MiB: more than a cache keeps
constexpr std::int64_t weight_bytes = outputs * wide * 4;

std::vector<float> noise(std::int64_t count, unsigned seed) {
  std::minstd_rand random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(random() % 2001) / 1000 - 1;
  return values;
}

Tensor noisy_weight() {
  const std::vector<float> values = noise(outputs * wide, 1);
  Tensor w(f32, {outputs, wide});
  std::memcpy(w.mutable_data(), values.data(), w.bytes());
  return w;
}

/// y = relu(x * W^T) + more, with W as linear layers store it: a row of it for each output.
Graph layer(std::int64_t rows, const Tensor& w) {
  Graph graph;
  const Value x = graph.input("x", f32, {rows, wide});
  const Value more = graph.input("more", f32, {rows, outputs});
  const Value product = matmul(x, transpose(graph.param("w", f32, {outputs, wide}, w), {1, 0}));
  graph.output("y", relu(product) + more);
  return graph;
}

std::vector<float> run(CompiledGraph& program, const std::vector<float>& x,
                       const std::vector<float>& more) {
  Outputs results = program.run({{"x", x}, {"more", more}}).value();
  const auto y = results["y"].as<float>();
  return {y.begin(), y.end()};
}

bool packs(const CompiledGraph& program) {
  return program.stage_text("lir").value().find("packed n=") != std::string::npos;
}

const std::vector<float> first_rows = noise(2 * wide, 2), added = noise(2 * outputs, 3);
const std::vector<float> one_row(first_rows.begin(), first_rows.begin() + wide);
const std::vector<float> added_to_one(added.begin(), added.begin() + outputs);

TEST(WeightRows, one_row_reads_the_weight_where_it_lies) {
  const Tensor w = noisy_weight();
  Session session(Device::cpu, {.threads = 2});
  CompiledGraph two = session.compile(layer(2, w)).value();
  EXPECT_TRUE(packs(two));
  const std::vector<float> packed = run(two, first_rows, added);
  CompiledGraph one = session.compile(layer(1, w)).value();
  EXPECT_FALSE(packs(one));
  EXPECT_EQ(one.query_memory().weights_bytes, weight_bytes);
  const std::vector<float> in_place = run(one, one_row, added_to_one);
  for (std::size_t i = 0; i < in_place.size(); ++i) ASSERT_NEAR(in_place[i], packed[i], 2e-3) << i;

  // The same bytes in a file, at whatever address it was mapped.
  CompiledGraph mapped = session.compile(layer(1, in_file(w).value())).value();
  EXPECT_EQ(run(mapped, one_row, added_to_one), in_place);
  const testing::TemporaryFolder folder;
  const std::string file = folder.path() + "/layer.rlxprogram";
  ASSERT_TRUE(one.save(file).ok());
  CompiledGraph loaded = session.load(file).value();
  EXPECT_EQ(run(loaded, one_row, added_to_one), in_place);
}

/// It counts against the session's limit then, as a packed one does.
TEST(WeightRows, a_weight_that_is_set_is_the_programs_own) {
  Session session(Device::cpu, {.threads = 2, .memory_limit_bytes = weight_bytes * 3 / 2});
  CompiledGraph program = session.compile(layer(1, noisy_weight())).value();
  const auto set_to = [](CompiledGraph& which, float value) {
    return which.set_param("w", std::vector<float>(outputs * wide, value)).ok();
  };
  const std::vector<float> ones(wide, 1.0f);
  ASSERT_TRUE(set_to(program, 2));
  EXPECT_EQ(run(program, ones, added_to_one)[7], 2 * wide + added[7]);
  CompiledGraph clone = program.clone().value();
  EXPECT_FALSE(set_to(clone, 3)) << "There is room for one weight, not for two.";
  EXPECT_EQ(run(clone, ones, added_to_one)[7], 2 * wide + added[7]);
}

}  // namespace
}  // namespace rlx
