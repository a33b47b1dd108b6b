// The object loader: real objects run, broken ones are refused, whatever their bytes.
#include "codegen/object_loader.hpp"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <random>

#include "codegen/native_object.hpp"
#include "codegen/object_file.hpp"

namespace rlx::codegen {
namespace {

using Bytes = std::vector<std::byte>;
using rlx::testing::compile_c;

// A jump table, constants, calls of an external function, a pointer to a string table, and another
// function.
const char* const sample_source = R"(
#include <stddef.h>
void* memcpy(void*, const void*, size_t);
void* memset(void*, int, size_t);
static const char* const names[] = {"zero", "one", "two"};
static const double weights[4] = {0.5, 1.5, 2.5, 3.5};
__attribute__((noinline)) int helper(int x) { return x * 3; }
const char* name(int i) { return names[i]; }
double weighted(const double* v) {
  double sum = 0;
  for (int i = 0; i < 4; ++i) sum += weights[i] * v[i];
  return sum;
}
int choose(int x) {
  switch (x) {
    case 0: return helper(7); case 1: return helper(x + 90); case 2: return 5 - helper(x);
    case 3: return helper(x) / 2; case 4: return helper(x * x) + 11; case 5: return helper(9) ^ x;
    default: return -1;
  }
}
void copy(char* to, const char* from, long n) { memset(to, 1, n + 1); memcpy(to, from, n); }
)";

Bytes sample(const std::string& flags) { return compile_c(sample_source, flags); }

template <class F>
F function(const ObjectImage& image, std::string_view name, std::size_t object = 0) {
  return reinterpret_cast<F>(image.symbol(name, object));
}

void check_sample(const ObjectImage& image, std::size_t object) {
  ASSERT_NE(image.symbol("weighted", object), nullptr);
  const double values[4] = {1, 2, 3, 4};
  EXPECT_EQ(function<double (*)(const double*)>(image, "weighted", object)(values), 25.0);
  EXPECT_STREQ(function<const char* (*)(int)>(image, "name", object)(2), "two");
  auto* choose = function<int (*)(int)>(image, "choose", object);
  EXPECT_EQ(choose(0), 21);
  EXPECT_EQ(choose(1), 273);
  EXPECT_EQ(choose(4), 59);
  EXPECT_EQ(choose(6), -1);
  char to[100] = {};
  std::string from(90, 'x');
  function<void (*)(char*, const char*, long)>(image, "copy", object)(to, from.data(), 90);
  EXPECT_EQ(std::string(to, 90), from);
  EXPECT_EQ(to[90], 1);
  EXPECT_EQ(image.symbol("absent", object), nullptr);
}

TEST(ObjectLoader, runs_code_of_every_model) {
  for (const char* flags : {"-fPIC", "-fno-pic -fno-pie", "-fPIC -mcmodel=small -fno-plt",
                            "-fPIC -ffunction-sections -fdata-sections -g"}) {
    SCOPED_TRACE(flags);
    const Bytes object = sample(flags);
    if (object.empty()) GTEST_SKIP() << "no C compiler";
    auto image = ObjectImage::load(object);
    ASSERT_TRUE(image.ok()) << image.error().message;
    check_sample(*image, 0);
  }
}

TEST(ObjectLoader, many_objects_share_a_mapping_and_keep_their_symbols_apart) {
  std::vector<Bytes> objects;
  for (int i = 0; i < 3; ++i) {
    objects.push_back(compile_c("int f(void) { return " + std::to_string(i + 40) + "; }"));
  }
  objects.push_back(sample("-fPIC"));
  if (objects[0].empty()) GTEST_SKIP() << "no C compiler";
  std::vector<std::span<const std::byte>> views(objects.begin(), objects.end());
  auto image = ObjectImage::load(views);
  ASSERT_TRUE(image.ok()) << image.error().message;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(function<int (*)()>(*image, "f", i)(), 40 + i);
  EXPECT_EQ(image->symbol("f", 3), nullptr);
  check_sample(*image, 3);
  EXPECT_LE(image->bytes(), 8192U);

  ObjectImage moved = std::move(*image);
  EXPECT_EQ(image->symbol("f", 0), nullptr);
  EXPECT_EQ(function<int (*)()>(moved, "f", 1)(), 41);
}

TEST(ObjectLoader, memory_is_never_writable_and_executable) {
  const Bytes object = sample("-fPIC");
  if (object.empty()) GTEST_SKIP() << "no C compiler";
  auto image = ObjectImage::load(object);
  ASSERT_TRUE(image.ok());
  const auto address = reinterpret_cast<std::uintptr_t>(image->symbol("choose"));
  std::ifstream maps("/proc/self/maps");
  std::string line;
  bool found = false;
  while (std::getline(maps, line)) {
    std::uintptr_t first = 0, last = 0;
    char rights[5] = {};
    std::sscanf(line.c_str(), "%lx-%lx %4s", &first, &last, rights);
    EXPECT_FALSE(rights[1] == 'w' && rights[2] == 'x') << line;
    if (first <= address && address < last) {
      found = true;
      EXPECT_EQ(std::string(rights), "r-xp");
    }
  }
  EXPECT_TRUE(found);
}

TEST(ObjectLoader, refuses_what_it_cannot_hold) {
  const Bytes external = compile_c("int puts(const char*); int f(void) { return puts(\"x\"); }");
  if (external.empty()) GTEST_SKIP() << "no C compiler";
  auto image = ObjectImage::load(external);
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.error().message, "The object code calls a function that is not provided (puts).");

  image = ObjectImage::load(compile_c("int state = 1; int f(void) { return ++state; }"));
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(image.error().message, "The object code has writable data (.data).");

  EXPECT_FALSE(
      ObjectImage::load(compile_c("_Thread_local int t; int f(void) { return ++t; }")).ok());
  EXPECT_FALSE(ObjectImage::load(Bytes{}).ok());
  EXPECT_FALSE(ObjectImage::load(Bytes(64, std::byte{0x7f})).ok());
}

TEST(ObjectLoader, no_objects_give_an_empty_image) {
  auto image = ObjectImage::load(std::span<const std::span<const std::byte>>{});
  ASSERT_TRUE(image.ok());
  EXPECT_EQ(image->bytes(), 0U);
}

TEST(ObjectLoader, every_truncation_is_refused) {
  const Bytes object = sample("-fPIC");
  if (object.empty()) GTEST_SKIP() << "no C compiler";
  for (std::size_t size = 0; size < object.size(); ++size) {
    // A copy of exactly this size, so that a tool that watches memory sees any read beyond it.
    const Bytes cut(object.begin(), object.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(ObjectImage::load(cut).ok()) << size;
  }
}

TEST(ObjectLoader, damaged_bytes_never_break_the_loader) {
  const Bytes object = sample("-fPIC");
  if (object.empty()) GTEST_SKIP() << "no C compiler";
  std::mt19937 random(7);
  const std::uint64_t nasty[] = {0, 1, 0x7fffffff, 0xffffffff, ~0ULL, ~0ULL - 7, 1ULL << 63};
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    Bytes damaged = object;
    for (int flips = static_cast<int>(random() % 4); flips >= 0; --flips) {
      if (random() % 2 == 0) {
        damaged[random() % damaged.size()] ^= static_cast<std::byte>(1 << random() % 8);
      } else {
        const std::uint64_t value = nasty[random() % std::size(nasty)];
        const std::size_t width = std::size_t{1} << random() % 4;
        std::memcpy(&damaged[random() % (damaged.size() - 8)], &value, width);
      }
    }
    refused += !ObjectImage::load(damaged).ok();
  }
  EXPECT_GT(refused, 1000);
}

TEST(ObjectLoader, damaged_section_headers_are_refused) {
  const Bytes object = sample("-fPIC");
  if (object.empty()) GTEST_SKIP() << "no C compiler";
  Elf64_Ehdr header;
  std::memcpy(&header, object.data(), sizeof(header));
  const auto with = [&](std::size_t section, std::size_t field, std::uint64_t value, int width) {
    Bytes changed = object;
    std::memcpy(&changed[header.e_shoff + section * sizeof(Elf64_Shdr) + field], &value, width);
    return ObjectImage::load(changed);
  };
  for (std::size_t section = 1; section < header.e_shnum; ++section) {
    EXPECT_FALSE(with(section, offsetof(Elf64_Shdr, sh_name), 0xfffffff0, 4).ok());
    EXPECT_FALSE(with(section, offsetof(Elf64_Shdr, sh_addralign), 3, 8).ok());
  }
  for (const std::uint64_t machine : {EM_RISCV, EM_386}) {
    Bytes changed = object;
    std::memcpy(&changed[offsetof(Elf64_Ehdr, e_machine)], &machine, 2);
    auto image = ObjectImage::load(changed);
    ASSERT_FALSE(image.ok());
    EXPECT_NE(image.error().message.find("another machine"), std::string::npos);
  }
}

}  // namespace
}  // namespace rlx::codegen
