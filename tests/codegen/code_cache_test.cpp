// The code cache: what is stored comes back, and what was damaged does not.
#include "codegen/code_cache.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "base/temporary_folder.hpp"

namespace rlx::codegen {
namespace {

using rlx::testing::TemporaryFolder;

KernelCode code_number(int i) {
  KernelCode code;
  code.symbol = "kernel_" + std::to_string(i);
  for (int k = 0; k < 300 + i; ++k) code.object.push_back(static_cast<std::byte>(k * 31 + i));
  code.work_items = 10 + i;
  code.scratch_bytes = 64 * i;
  return code;
}

struct Program {
  std::vector<Digest> keys;
  std::vector<KernelCode> codes;
};

Program program_of(int first, int count) {
  Program program;
  for (int i = first; i < first + count; ++i) {
    program.keys.push_back(code_key("kernel " + std::to_string(i), Target{}, "fake 1"));
    program.codes.push_back(code_number(i));
  }
  return program;
}

void store_all(const CodeCache& cache, const Program& program) {
  cache.store(program.keys, program.codes);
}

void expect_code(const std::optional<KernelCode>& code, int i) {
  ASSERT_TRUE(code.has_value()) << i;
  const KernelCode wanted = code_number(i);
  EXPECT_EQ(code->object, wanted.object);
  EXPECT_EQ(code->symbol, wanted.symbol);
  EXPECT_EQ(code->work_items, wanted.work_items);
  EXPECT_EQ(code->scratch_bytes, wanted.scratch_bytes);
}

std::vector<std::filesystem::path> files_of(const TemporaryFolder& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    files.push_back(entry.path());
  }
  return files;
}

TEST(CodeCache, keys_differ_by_all_they_name) {
  const Digest key = code_key("k", {Isa::avx512, "znver4", "+avx512vnni"}, "LLVM 19.1.7");
  EXPECT_EQ(key, code_key("k", {Isa::avx512, "znver4", "+avx512vnni"}, "LLVM 19.1.7"));
  EXPECT_NE(key, code_key("l", {Isa::avx512, "znver4", "+avx512vnni"}, "LLVM 19.1.7"));
  EXPECT_NE(key, code_key("k", {Isa::avx2, "znver4", "+avx512vnni"}, "LLVM 19.1.7"));
  EXPECT_NE(key, code_key("k", {Isa::avx512, "", "+avx512vnni"}, "LLVM 19.1.7"));
  EXPECT_NE(key, code_key("k", {Isa::avx512, "znver4", ""}, "LLVM 19.1.7"));
  EXPECT_NE(key, code_key("k", {Isa::avx512, "znver4", "+avx512vnni"}, "LLVM 20"));
}

TEST(CodeCache, a_program_comes_back_from_one_file) {
  TemporaryFolder folder;
  const CodeCache cache(CacheFolder::open(folder.path()));
  ASSERT_TRUE(cache.enabled()) << cache.reason_off();
  const Program program = program_of(0, 20);
  auto found = cache.load(program.keys);
  for (const auto& code : found.codes) EXPECT_FALSE(code.has_value());
  store_all(cache, program);
  EXPECT_EQ(files_of(folder).size(), 1u);
  found = cache.load(program.keys);
  EXPECT_TRUE(found.as_program);
  for (int i = 0; i < 20; ++i) expect_code(found.codes[i], i);
}

TEST(CodeCache, another_program_shares_kernels) {
  TemporaryFolder folder;
  const CodeCache cache(CacheFolder::open(folder.path()));
  store_all(cache, program_of(0, 5));
  const auto found = cache.load(program_of(3, 5).keys);
  EXPECT_FALSE(found.as_program);
  expect_code(found.codes[0], 3);
  expect_code(found.codes[1], 4);
  for (int i = 2; i < 5; ++i) EXPECT_FALSE(found.codes[i].has_value());
}

/// Files of other programs may be anything: what is whole in them is taken.
TEST(CodeCache, damaged_files_of_others_share_what_is_whole) {
  TemporaryFolder folder;
  const CodeCache cache(CacheFolder::open(folder.path()));
  const Program other = program_of(0, 2);
  store_all(cache, other);
  const auto file = files_of(folder).at(0);
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(-1, std::ios::end);  // in the last kernel's object
  const char last = static_cast<char>(other.codes[1].object.back());
  stream.put(static_cast<char>(last ^ 1));
  stream.close();
  const auto found = cache.load(program_of(0, 3).keys);
  expect_code(found.codes[0], 0);
  EXPECT_FALSE(found.codes[1].has_value());
  EXPECT_FALSE(found.codes[2].has_value());
  std::filesystem::permissions(file, std::filesystem::perms::others_write,
                               std::filesystem::perm_options::add);
  EXPECT_FALSE(cache.load(program_of(0, 3).keys).codes[0].has_value());
}

TEST(CodeCache, damage_makes_entries_absent_and_a_store_replaces_them) {
  TemporaryFolder folder;
  const CodeCache cache(CacheFolder::open(folder.path()));
  const Program program = program_of(0, 3);
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    store_all(cache, program);
    for (const auto& path : files_of(folder)) {
      const auto size = std::filesystem::file_size(path);
      if (round % 3 == 0) {
        std::filesystem::resize_file(path, random() % size);
      } else {
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        for (int flips = 0; flips < 30; ++flips) {
          const auto at = static_cast<std::streamoff>(random() % (round % 3 == 1 ? 300 : size));
          file.seekg(at);
          const char old = static_cast<char>(file.get());
          file.seekp(at);
          file.put(static_cast<char>(old ^ (1 << random() % 8)));
        }
      }
    }
    // Whatever is still taken is whole.
    const auto found = cache.load(program.keys);
    for (int i = 0; i < 3; ++i) {
      if (found.codes[i].has_value()) expect_code(found.codes[i], i);
    }
  }
  store_all(cache, program);
  const auto found = cache.load(program.keys);
  for (int i = 0; i < 3; ++i) expect_code(found.codes[i], i);
}

TEST(CodeCache, a_file_under_another_name_is_foreign) {
  TemporaryFolder folder;
  const CodeCache cache(CacheFolder::open(folder.path()));
  const Program program = program_of(0, 1), other = program_of(1, 1);
  store_all(cache, other);
  const auto others_file = files_of(folder).at(0);
  std::filesystem::remove(others_file);
  store_all(cache, program);
  std::filesystem::rename(files_of(folder).at(0), others_file);
  EXPECT_FALSE(cache.load(other.keys).codes[0].has_value());
}

TEST(CodeCache, stays_off_where_the_folder_is_not_trusted) {
  TemporaryFolder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  const CodeCache cache(CacheFolder::open(folder.path()));
  EXPECT_FALSE(cache.enabled());
  EXPECT_NE(cache.reason_off().find("others can write"), std::string::npos);
  const Program program = program_of(0, 2);
  store_all(cache, program);
  EXPECT_FALSE(cache.load(program.keys).codes[0].has_value());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(CodeCache, keeps_to_its_size) {
  TemporaryFolder folder;
  const CodeCache cache(CacheFolder::open(folder.path()), 20'000);
  for (int i = 0; i < 60; ++i) store_all(cache, program_of(i * 3, 3));
  std::uintmax_t total = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    total += entry.file_size();
  }
  EXPECT_LE(total, 20'000U);
  EXPECT_GT(total, 10'000U);
}

TEST(CodeCache, writers_and_readers_may_meet) {
  TemporaryFolder folder;
  const Program program = program_of(0, 6);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const CodeCache cache(CacheFolder::open(folder.path()));
      for (int round = 0; round < 50; ++round) {
        store_all(cache, program);
        const auto found = cache.load(program.keys);
        for (int i = 0; i < 6; ++i) expect_code(found.codes[i], i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    EXPECT_NE(entry.path().filename().string()[0], '.') << "a temporary file was left";
  }
}

}  // namespace
}  // namespace rlx::codegen
