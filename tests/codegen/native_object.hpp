// Object code for tests, made from C by the system's compiler.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace rlx::testing {

/// Makes code for the machine of the test, also where that is emulated on another.
#if defined(__aarch64__)
inline constexpr const char* c_compiler = "aarch64-linux-gnu-gcc-12";
#else
inline constexpr const char* c_compiler = "cc";
#endif

/// The object that `cc -c` makes of the C source; empty where there is no compiler.
inline std::vector<std::byte> compile_c(const std::string& source, const std::string& flags = "") {
  static std::atomic<int> counter = 0;
  const auto folder = std::filesystem::temp_directory_path();
  const std::string stem =
      (folder / ("rlx_object_" + std::to_string(getpid()) + "_" + std::to_string(counter++)))
          .string();
  std::ofstream(stem + ".c") << source;
  const std::string command = std::string(c_compiler) +
                              " -c -O2 -fno-asynchronous-unwind-tables -fno-stack-protector " +
                              flags + " " + stem + ".c -o " + stem + ".o 2>/dev/null";
  std::vector<std::byte> object;
  if (std::system(command.c_str()) == 0) {
    std::ifstream file(stem + ".o", std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    object.assign(bytes, bytes + text.size());
  }
  std::error_code ignored;
  std::filesystem::remove(stem + ".c", ignored);
  std::filesystem::remove(stem + ".o", ignored);
  return object;
}

}  // namespace rlx::testing
