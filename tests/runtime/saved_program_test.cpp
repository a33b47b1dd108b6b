// Programs in files: what comes back, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>

#include "base/message.hpp"
#include "base/temporary_folder.hpp"
#include "rlx/rlx.hpp"

namespace rlx {
namespace {

using ::testing::HasSubstr;
using testing::message;

Graph model() {
  Graph graph;
  const Value x = graph.input("x", f32, {"rows", 32});
  Tensor weights(f32, {32, 48});
  for (int i = 0; i < 32 * 48; ++i)
    reinterpret_cast<float*>(weights.mutable_data())[i] = static_cast<float>(i % 17) * 0.1f - 0.7f;
  const Value w = graph.param("w", f32, {32, 48}, weights);
  const Value b = graph.param("b", f32, {48});
  graph.output("y", gelu(matmul(x, w) + b));
  return graph;
}

const CompileOptions four_rows{.dims = {{"rows", 4}}};

std::vector<float> run(CompiledGraph& program) {
  std::vector<float> x(4 * 32);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 11) * 0.3f - 1;
  const Outputs outputs = program.run({{"x", x}}).value();
  const auto y = outputs["y"].as<float>();
  return {y.begin(), y.end()};
}

class SavedProgram : public ::testing::Test {
 protected:
  SavedProgram() {
    program = session.compile(model(), four_rows).value();
    EXPECT_TRUE(program->set_param("b", std::vector<float>(48, 0.25f)).ok());
    expected = run(*program);
  }
  std::string file() const { return folder.path("model.saved"); }
  std::vector<char> bytes() const {
    std::ifstream stream(file(), std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }
  void replace(const std::vector<char>& with) const {
    std::ofstream(file(), std::ios::binary).write(with.data(), static_cast<long>(with.size()));
  }

  testing::TemporaryFolder folder;
  Session session{Device::cpu};
  std::optional<CompiledGraph> program;
  std::vector<float> expected;
};

TEST_F(SavedProgram, comes_back_and_runs) {
  ASSERT_TRUE(program->save(file()).ok());
  EXPECT_TRUE(is_saved_program(file()));
  Session other(Device::cpu);
  CompiledGraph loaded = other.load(file()).value();
  EXPECT_EQ(loaded.report().generated_kernels, 0);
  EXPECT_EQ(loaded.inputs()[0].dims, (Dims{4, 32}));
  EXPECT_EQ(run(loaded), expected);
  CompiledGraph clone = loaded.clone().value();
  EXPECT_EQ(run(clone), expected);
  // A weight can be set anew.
  ASSERT_TRUE(loaded.set_param("b", std::vector<float>(48, 0.5f)).ok());
  EXPECT_NE(run(loaded), expected);
  EXPECT_EQ(run(clone), expected);
}

TEST_F(SavedProgram, keeps_its_precision_and_exactness_and_threads) {
  Graph graph;
  const Value x = graph.input("x", f32, {64, 256});
  std::mt19937 generator(5);
  Value y = x;
  for (int layer = 0; layer < 3; ++layer) {
    Tensor weights(f32, {256, 256});
    for (int i = 0; i < 256 * 256; ++i)
      reinterpret_cast<float*>(weights.mutable_data())[i] =
          static_cast<float>(generator() % 256) / 2048.0f - 0.0625f;
    y = gelu(matmul(y, graph.constant(weights)));
  }
  graph.output("y", y);
  std::vector<float> values(64 * 256);
  for (float& value : values) value = static_cast<float>(generator() % 64) / 32.0f - 1;
  const auto results = [&](CompiledGraph& made) {
    const Outputs outputs = made.run({{"x", values}}).value();
    const auto numbers = outputs["y"].as<float>();
    return std::vector<float>(numbers.begin(), numbers.end());
  };
  for (const CompileOptions& options :
       {CompileOptions{.precision = Precision::bf16}, CompileOptions{.precision = Precision::int8},
        CompileOptions{.exact = true}, CompileOptions{.threads = 1}}) {
    SCOPED_TRACE(::testing::Message()
                 << name_of(options.precision) << (options.exact ? ", exact" : ""));
    CompiledGraph made = session.compile(graph, options).value();
    ASSERT_TRUE(made.save(file()).ok());
    auto loaded = session.load(file());
    ASSERT_TRUE(loaded.ok()) << message(loaded);
    EXPECT_EQ(loaded->report().threads, made.report().threads);
    EXPECT_EQ(results(*loaded), results(made));
  }
}

TEST_F(SavedProgram, keeps_flushing_subnormals) {
  Graph graph;
  const Value x = graph.input("x", f32, {4});
  graph.output("y", x * graph.constant(Tensor::scalar(0.5F)));
  const std::vector<float> subnormal(4, 1e-39F);
  for (const bool flush : {true, false}) {
    CompileOptions options;
    options.flush_subnormals = flush;
    ASSERT_TRUE(session.compile(graph, options).value().save(file()).ok());
    CompiledGraph loaded = session.load(file()).value();
    const Outputs outputs = loaded.run({{"x", subnormal}}).value();
    EXPECT_EQ(outputs["y"].as<float>()[0] == 0, flush);
  }
}

TEST_F(SavedProgram, keeps_its_feeds) {
  Graph graph;
  const Value x = graph.input("x", f32, {4}), state = graph.input("state", f32, {4});
  graph.output("next", x + state);
  graph.output("y", x + state + state);
  CompiledGraph fed = session.compile(graph, CompileOptions().feed("next", "state")).value();
  ASSERT_TRUE(fed.save(file()).ok());
  CompiledGraph loaded = session.load(file()).value();
  const std::vector<float> ones(4, 1.0f);
  ASSERT_TRUE(loaded.run({{"x", ones}}).ok());
  EXPECT_EQ(loaded.run({{"x", ones}}).value()["y"].as<float>()[0], 3);
}

TEST_F(SavedProgram, a_damaged_file_is_refused) {
  ASSERT_TRUE(program->save(file()).ok());
  const std::vector<char> good = bytes();
  // A flipped bit anywhere but in the padding behind the head.
  for (std::size_t at = 0; at < good.size(); at += good.size() / 97 + 1) {
    std::vector<char> bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    replace(bad);
    auto loaded = session.load(file());
    if (loaded.ok()) {
      EXPECT_EQ(good[at], 0) << "at " << at;
      EXPECT_EQ(run(*loaded), expected) << "at " << at;
    }
  }
  for (const std::size_t size : {0ul, 7ul, 39ul, 41ul, good.size() / 2, good.size() - 1}) {
    replace({good.begin(), good.begin() + static_cast<long>(size)});
    EXPECT_FALSE(session.load(file()).ok()) << size;
  }
  std::vector<char> bad = good;
  bad.back() = static_cast<char>(bad.back() ^ 1);
  replace(bad);
  EXPECT_THAT(message(session.load(file())), HasSubstr("is damaged: a checksum or size is wrong."));
}

TEST_F(SavedProgram, only_the_users_own_file_is_trusted) {
  ASSERT_TRUE(program->save(file()).ok());
  chmod(file().c_str(), 0666);
  EXPECT_THAT(message(session.load(file())), HasSubstr("is not trusted"));
  chmod(file().c_str(), 0600);
  EXPECT_TRUE(session.load(file()).ok());
  chmod(folder.path().c_str(), 0777);
  EXPECT_THAT(message(session.load(file())), HasSubstr("others can change its folder"));
  chmod(folder.path().c_str(), 0700);
}

TEST_F(SavedProgram, says_what_is_wrong) {
  EXPECT_THAT(message(session.load(file())), HasSubstr("cannot be opened"));
  replace(std::vector<char>(5000, 'x'));
  chmod(file().c_str(), 0600);
  EXPECT_THAT(message(session.load(file())), HasSubstr("is no saved program."));
  EXPECT_FALSE(is_saved_program(file()));
  EXPECT_THAT(message(program->save(folder.path("none/x"))), HasSubstr("cannot be written"));
  const CompiledGraph open = session.compile(model()).value();
  EXPECT_THAT(message(open.save(file())),
              HasSubstr("This call needs bound shapes: compile with all dims given"));
  Graph picks;
  picks.output("y", picks.add_one(op::NonZero{}, {picks.input("x", f32, {6})}));
  const CompiledGraph in_parts = session.compile(picks).value();
  EXPECT_THAT(message(in_parts.save(file())), HasSubstr("data decides some dims"));
}

TEST_F(SavedProgram, of_another_format_is_named) {
  ASSERT_TRUE(program->save(file()).ok());
  std::vector<char> changed = bytes();
  changed[8] = 99;  // behind the magic number
  replace(changed);
  const auto loaded = session.load(file());
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().kind, ErrorKind::not_available);
  EXPECT_THAT(loaded.error().message, HasSubstr(") has the format 99; this rlx reads "));
}

TEST_F(SavedProgram, a_file_that_cannot_be_replaced_stays) {
  std::filesystem::create_directory(file());
  EXPECT_THAT(message(program->save(file())), HasSubstr("The file cannot be replaced: "));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1)
      << "nothing is left behind";
}

/// Kernels read the weights in pages of the file, which all processes share: none becomes the
/// process's own.
TEST_F(SavedProgram, several_threads_save_to_one_file) {
  std::vector<CompiledGraph> clones;
  for (int i = 0; i < 4; ++i) clones.push_back(program->clone().value());
  std::array<std::string, 4> said;
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        for (int k = 0; k < 100 && said[i].empty(); ++k) {
          const Status saved = clones[i].save(file());
          if (!saved.ok()) said[i] = saved.error().message;
        }
      });
    }
  }
  EXPECT_EQ(said, (std::array<std::string, 4>{}));
  CompiledGraph loaded = session.load(file()).value();
  EXPECT_EQ(run(loaded), expected);
}

TEST_F(SavedProgram, weights_are_the_files_own_pages) {
  constexpr std::int64_t wide = 512;
  Graph graph;
  const Value x = graph.input("x", f32, {1, wide});
  graph.output("y", matmul(x, graph.param("w", f32, {wide, wide}, Tensor(f32, {wide, wide}))));
  ASSERT_TRUE(session.compile(graph).value().save(file()).ok());
  CompiledGraph loaded = session.load(file()).value();
  const std::vector<float> ones(wide, 1.0f);
  ASSERT_TRUE(loaded.run({{"x", ones}}).ok());
  const std::string path = std::filesystem::canonical(file()).string();
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  long mapped = 0, resident = 0, own = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find('-') < line.find(' ')) inside = line.ends_with(path);
    const auto number = [&](const char* key) {
      return inside && line.starts_with(key) ? std::atol(line.c_str() + std::strlen(key)) : 0;
    };
    mapped += number("Size:");
    resident += number("Rss:");
    own += number("Anonymous:");
  }
  EXPECT_GE(mapped, wide * wide * 4 / 1024);
  EXPECT_GT(resident, 0);
  EXPECT_EQ(own, 0);
}

TEST_F(SavedProgram, answers_to_fusion_questions_decide_it) {
  const auto answer_of = [](const CompiledGraph& made, const std::string& what) {
    const std::vector<FusionQuestion> asked = made.explain().value().questions;
    const auto found = std::ranges::find(asked, what, &FusionQuestion::what);
    return found != asked.end() && found->fused;
  };
  const std::vector<FusionQuestion> asked = program->explain().value().questions;
  const auto fused = std::ranges::find(asked, true, &FusionQuestion::fused);
  ASSERT_NE(fused, asked.end());
  CompileOptions options = four_rows;
  options.answers[fused->what] = false;
  AotCache cache = AotCache::open(session, folder.path("cache")).value();
  CompileCache programs(session, model());
  for (const CompileOptions& each : {four_rows, options}) {
    ASSERT_TRUE(cache.get(model(), each).ok());
    ASSERT_TRUE(programs.get(each).ok());
  }
  EXPECT_EQ(cache.misses(), 2) << "they are other programs";
  EXPECT_EQ(programs.misses(), 2u);
  CompiledGraph loaded = cache.get(model(), options).value();
  EXPECT_EQ(cache.hits(), 1);
  EXPECT_TRUE(answer_of(cache.get(model(), four_rows).value(), fused->what));
  EXPECT_FALSE(answer_of(loaded, fused->what));
  ASSERT_TRUE(loaded.set_param("b", std::vector<float>(48, 0.25f)).ok());
  const std::vector<float> values = run(loaded);
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-4);
  options.answers["what else"] = true;
  EXPECT_EQ(message(session.compile(model(), options)),
            "The plan asks no question (what else); rlx explain names those that it asks.");
}

TEST_F(SavedProgram, a_cache_of_them_knows_content) {
  AotCache cache = AotCache::open(session, folder.path("cache")).value();
  ASSERT_TRUE(cache.get(model(), four_rows).ok());
  EXPECT_EQ(cache.misses(), 1);
  CompiledGraph again = cache.get(model(), four_rows).value();
  EXPECT_EQ(cache.hits(), 1);
  ASSERT_TRUE(again.set_param("b", std::vector<float>(48, 0.25f)).ok());
  EXPECT_EQ(run(again), expected);
  ASSERT_TRUE(cache.get(model(), {.dims = {{"rows", 5}}}).ok());
  EXPECT_EQ(cache.misses(), 2);
  // Damaged files are made anew.
  for (const auto& entry : std::filesystem::directory_iterator(folder.path("cache")))
    std::filesystem::resize_file(entry.path(), 1000);
  ASSERT_TRUE(cache.get(model(), four_rows).ok());
  EXPECT_EQ(cache.misses(), 3);
  ASSERT_TRUE(cache.get(model(), four_rows).ok());
  EXPECT_EQ(cache.hits(), 2);
}

TEST_F(SavedProgram, what_a_missing_device_means_is_said_by_call_here_too) {
  using Missing = DevicePolicy::Missing;
  Session asks(Device::tpu);
  CompileOptions options = four_rows;
  options.missing = Missing::fallback;
  AotCache cache = AotCache::open(asks, folder.path("cache")).value();
  EXPECT_EQ(cache.get(model(), four_rows).error().kind, ErrorKind::not_available);
  ASSERT_TRUE(cache.get(model(), options).ok());
  EXPECT_EQ(cache.hits(), 0);
  CompiledGraph again = cache.get(model(), options).value();
  EXPECT_EQ(cache.hits(), 1) << "the device that took the place of another loads what it saved";
  EXPECT_THAT(again.explain()->devices.reason, HasSubstr("in place of tpu"));
  ASSERT_TRUE(again.set_param("b", std::vector<float>(48, 0.25f)).ok());
  EXPECT_EQ(run(again), expected);
  EXPECT_EQ(cache.get(model(), four_rows).error().kind, ErrorKind::not_available);

  ASSERT_TRUE(again.save(folder.path("program")).ok());
  EXPECT_EQ(asks.load(folder.path("program")).error().kind, ErrorKind::not_available);
  EXPECT_TRUE(asks.load(folder.path("program"), Missing::fallback).ok());
  Session gives(Device::tpu, {.devices = {.missing = Missing::fallback}});
  EXPECT_TRUE(gives.load(folder.path("program")).ok());
  EXPECT_EQ(gives.load(folder.path("program"), Missing::strict).error().kind,
            ErrorKind::not_available);
}

/// All of them compile and save at first, each over the file of the others.
TEST_F(SavedProgram, a_cache_of_them_serves_several_threads) {
  for (int round = 0; round < 4; ++round) {
    const std::string path = folder.path("cache" + std::to_string(round));
    AotCache cache = AotCache::open(session, path).value();
    std::vector<std::jthread> threads;
    std::array<std::string, 4> said;
    for (std::string& word : said) {
      threads.emplace_back([&] {
        const auto program = cache.get(model(), four_rows);
        word = message(program);
      });
    }
    threads.clear();
    for (const std::string& word : said) EXPECT_EQ(word, "no error");
    EXPECT_EQ(cache.hits() + cache.misses(), 4);
    CompiledGraph again = cache.get(model(), four_rows).value();
    EXPECT_GE(cache.hits(), 1) << "what they left is whole";
    ASSERT_TRUE(again.set_param("b", std::vector<float>(48, 0.25f)).ok());
    EXPECT_EQ(run(again), expected);
    for (const auto& entry : std::filesystem::directory_iterator(path))
      EXPECT_EQ(entry.path().extension(), ".rlxprogram") << "no half is left";
  }
}

}  // namespace
}  // namespace rlx
