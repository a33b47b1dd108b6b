// The code library with a generator that hands out objects made by the C compiler.
#include "codegen/code_library.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "base/error.hpp"
#include "base/temporary_folder.hpp"
#include "codegen/native_object.hpp"

namespace rlx::codegen {
namespace {

using rlx::testing::compile_c;
using rlx::testing::ScopedVariable;
using rlx::testing::TemporaryFolder;

/// A kernel that is told from others by its number.
loop::Kernel kernel_number(int number) {
  loop::Nest nest;
  nest.extents = {number + 1};
  nest.parallel_dims = 1;
  return {.buffers = {{.dtype = DType::f32, .elements = number + 1, .written = true}},
          .body = nest};
}

int number_of(const loop::Kernel& kernel) {
  return static_cast<int>(kernel.buffers[0].elements) - 1;
}

std::vector<loop::Kernel> kernels_of(std::initializer_list<int> numbers) {
  std::vector<loop::Kernel> kernels;
  for (const int number : numbers) kernels.push_back(kernel_number(number));
  return kernels;
}

/// Makes code that writes the kernel's number into the first buffer.
class FakeGenerator : public CodeGenerator {
 public:
  Result<KernelCode> generate(const loop::Kernel& kernel, const Target&) const override {
    ++calls;
    const int number = number_of(kernel);
    if (number == 99) return unsupported("Kernel ({}) cannot be expressed.", number);
    if (number == 98) throw std::runtime_error("boom");
    KernelCode code;
    code.symbol = "kernel";
    code.work_items = number;
    code.scratch_bytes = 64;
    code.object = number == 97 ? std::vector<std::byte>(100)
                               : compile_c(
                                     "void kernel(void* const* b, long from, long to, void* s)"
                                     "{ *(float*)b[0] = " +
                                         std::to_string(number) + ".0f; }",
                                     "-fPIC");
    return code;
  }
  std::string version() const override { return name; }

  mutable std::atomic<int> calls = 0;
  std::string name = "fake 1";
};

float call(const LoadedKernel& kernel) {
  float value = -1;
  void* buffers[] = {&value};
  kernel.function(buffers, 0, 1, nullptr);
  return value;
}

class CodeLibraryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (compile_c("int x;").empty()) GTEST_SKIP() << "no C compiler";
  }

  CodeLibrary library(int threads = 2) {
    return CodeLibrary(Target{}, CodeCache(CacheFolder::open(folder_.path())),
                       GeneratorSource::of(generator_), threads);
  }

  TemporaryFolder folder_;
  FakeGenerator generator_;
};

TEST_F(CodeLibraryTest, generates_loads_and_keeps_equal_kernels_once) {
  CodeLibrary codes = library();
  const auto kernels = kernels_of({3, 5, 3, 7});
  auto loaded = codes.load(kernels);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(generator_.calls, 3);
  EXPECT_EQ(call((*loaded)[0]), 3);
  EXPECT_EQ(call((*loaded)[1]), 5);
  EXPECT_EQ(call((*loaded)[3]), 7);
  EXPECT_EQ((*loaded)[0].function, (*loaded)[2].function);
  EXPECT_EQ((*loaded)[1].work_items, 5);
  EXPECT_EQ((*loaded)[1].scratch_bytes, 64);

  // Another program shares what is loaded.
  const auto again = codes.load(kernels_of({5, 8})).value();
  EXPECT_EQ(again[0].function, (*loaded)[1].function);
  EXPECT_EQ(call(again[1]), 8);
  EXPECT_EQ(generator_.calls, 4);
  const CodeStatistics statistics = codes.statistics();
  EXPECT_EQ(statistics.requested, 6);
  EXPECT_EQ(statistics.generated, 4);
  EXPECT_EQ(statistics.shared, 2);
  EXPECT_EQ(statistics.cached, 0);
}

TEST_F(CodeLibraryTest, the_next_process_generates_nothing) {
  const auto kernels = kernels_of({1, 2, 3, 4});
  ASSERT_TRUE(library().load(kernels).ok());
  EXPECT_EQ(generator_.calls, 4);
  CodeLibrary next = library();
  const auto loaded = next.load(kernels).value();
  EXPECT_EQ(generator_.calls, 4);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(call(loaded[i]), i + 1);
  EXPECT_EQ(next.statistics().cached, 4);

  generator_.name = "fake 2";
  ASSERT_TRUE(library().load(kernels).ok());
  EXPECT_EQ(generator_.calls, 8) << "another generator's code was used";
}

TEST_F(CodeLibraryTest, code_outlives_the_library_and_dies_with_its_holders) {
  std::vector<LoadedKernel> loaded;
  {
    CodeLibrary codes = library();
    loaded = codes.load(kernels_of({4})).value();
    const std::weak_ptr<const ObjectImage> code = loaded[0].code;
    EXPECT_EQ(code.use_count(), 1) << "the library must not hold code on its own";
  }
  EXPECT_EQ(call(loaded[0]), 4);
}

TEST_F(CodeLibraryTest, failures_belong_to_their_kernels) {
  CodeLibrary codes = library();
  const auto kernels = kernels_of({1, 99, 2, 98, 97, 3});
  auto results = codes.load_each(kernels);
  ASSERT_EQ(results.size(), 6U);
  EXPECT_EQ(call(*results[0]), 1);
  ASSERT_FALSE(results[1].ok());
  EXPECT_EQ(results[1].error().kind, ErrorKind::unsupported);
  EXPECT_EQ(results[1].error().message, "Kernel (99) cannot be expressed.");
  EXPECT_EQ(call(*results[2]), 2);
  ASSERT_FALSE(results[3].ok());
  EXPECT_EQ(results[3].error().message, "The code generator failed (boom).");
  ASSERT_FALSE(results[4].ok());
  EXPECT_NE(results[4].error().message.find("no ELF header"), std::string::npos);
  EXPECT_EQ(call(*results[5]), 3);
  EXPECT_EQ(codes.load(kernels).error().message, "Kernel (99) cannot be expressed.");
  EXPECT_EQ(codes.statistics().failed, 6);
}

TEST_F(CodeLibraryTest, cached_bytes_that_are_no_code_are_made_anew) {
  const auto kernels = kernels_of({1, 2});
  const CodeCache cache(CacheFolder::open(folder_.path()));
  std::vector<Digest> keys;
  std::vector<KernelCode> codes(2);
  for (int i = 0; i < 2; ++i) {
    keys.push_back(code_key(loop::to_text(kernels[i]), Target{}, "fake 1"));
    codes[i].symbol = "kernel";
    codes[i].object.resize(50);
  }
  codes[1] = generator_.generate(kernels[1], Target{}).value();
  codes[1].symbol = "another";
  cache.store(keys, codes);
  generator_.calls = 0;
  const auto loaded = library().load(kernels);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(call((*loaded)[0]), 1);
  EXPECT_EQ(call((*loaded)[1]), 2);
  EXPECT_EQ(generator_.calls, 2);
  ASSERT_TRUE(library().load(kernels).ok());
  EXPECT_EQ(generator_.calls, 2) << "the bad entries were not replaced";
}

TEST_F(CodeLibraryTest, works_without_a_cache) {
  CodeLibrary codes(Target{}, CodeCache(CacheFolder::open("/dev/null")),
                    GeneratorSource::of(generator_), 2);
  EXPECT_FALSE(codes.cache().enabled());
  EXPECT_EQ(call(codes.load(kernels_of({6})).value()[0]), 6);
}

TEST_F(CodeLibraryTest, many_threads_may_ask_at_once) {
  CodeLibrary codes = library();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 5; ++round) {
        const auto loaded = codes.load(kernels_of({t, 10, round + 20})).value();
        EXPECT_EQ(call(loaded[0]), t);
        EXPECT_EQ(call(loaded[1]), 10);
        EXPECT_EQ(call(loaded[2]), round + 20);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(GeneratorSource, a_missing_file_is_named_with_the_reason) {
  TemporaryFolder folder;
  const ScopedVariable chosen("RLX_LLVM", folder.path("absent.so").c_str());
  const GeneratorSource source = GeneratorSource::find();
  EXPECT_EQ(source.identity(), "not found");
  auto generator = source.open();
  ASSERT_FALSE(generator.ok());
  EXPECT_EQ(generator.error().kind, ErrorKind::not_available);
  EXPECT_NE(generator.error().message.find("absent.so"), std::string::npos);
  EXPECT_NE(generator.error().message.find("No such file"), std::string::npos);
}

TEST(GeneratorSource, a_library_that_is_no_generator_is_refused) {
  auto generator = GeneratorSource::in_file("libm.so.6").open();
  ASSERT_FALSE(generator.ok());
  EXPECT_NE(generator.error().message.find(code_generator_symbol), std::string::npos);
}

TEST(GeneratorSource, missing_code_without_a_generator_is_an_error_of_each_kernel) {
  TemporaryFolder folder;
  CodeLibrary codes(Target{}, CodeCache(CacheFolder::open(folder.path())),
                    GeneratorSource::in_file(folder.path("absent.so")), 2);
  for (const auto& result : codes.load_each(kernels_of({1, 2}))) {
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().kind, ErrorKind::not_available);
  }
}

}  // namespace
}  // namespace rlx::codegen
