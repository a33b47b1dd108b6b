// Kernels in, callable functions out: from memory, from the cache on disk, or made by the code
// generator.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "codegen/code.hpp"
#include "codegen/code_cache.hpp"
#include "codegen/generator_source.hpp"
#include "codegen/object_loader.hpp"

namespace rlx::codegen {

/// A kernel that can be called, for as long as a copy of this is held.
struct LoadedKernel {
  KernelFunction function = nullptr;
  std::int64_t work_items = 0;
  std::int64_t scratch_bytes = 0;           ///< for each worker, aligned to 64
  std::shared_ptr<const ObjectImage> code;  ///< keeps the function in memory
};

/// What a library did so far.
struct CodeStatistics {
  std::int64_t requested = 0;  ///< kernels asked for
  std::int64_t shared = 0;     ///< of these, equal to one that was loaded or asked for already
  std::int64_t cached = 0;     ///< taken from disk
  std::int64_t generated = 0;
  std::int64_t failed = 0;
  double lookup_ms = 0;    ///< keys and disk
  double generate_ms = 0;  ///< by the clock, opening the generator included
  double load_ms = 0;      ///< into executable memory
};

/// Makes kernels callable for one target. Equal kernels are kept once, as long as somebody holds
/// them. Thread-safe.
class CodeLibrary {
 public:
  /// Generates on up to `threads` threads.
  CodeLibrary(Target target, CodeCache cache, GeneratorSource generator, int threads);

  /// For this machine, with the user's cache and this installation's generator. Errors: those of
  /// host_target.
  static Result<std::unique_ptr<CodeLibrary>> open_for_host(int threads);

  /// One result for each kernel, in order. Errors: `unsupported` where the generator cannot express
  /// the kernel; not_available where code is missing and there is no generator.
  std::vector<Result<LoadedKernel>> load_each(std::span<const loop::Kernel> kernels);

  /// All kernels, or the first error.
  Result<std::vector<LoadedKernel>> load(std::span<const loop::Kernel> kernels);

  /// Machine code of the kernels, from the cache on disk or generated.
  Result<std::vector<KernelCode>> codes(std::span<const loop::Kernel> kernels) const;

  /// Makes code callable that `codes` gave, in this process or an earlier one of the same identity.
  static Result<std::vector<LoadedKernel>> adopt(std::span<const KernelCode> codes);

  /// Tells apart for what machine and by what generator code was made.
  std::string identity() const;

  const Target& target() const { return target_; }
  const CodeCache& cache() const { return cache_; }
  CodeStatistics statistics() const;

 private:
  struct Request;
  void find_in_memory(Request& request);
  void find_on_disk(Request& request);
  void generate_missing(Request& request);
  void generate(Request& request, std::span<const std::size_t> order);
  void load_code(Request& request);
  void load_singly(Request& request);
  void keep(Request& request);

  /// A loaded kernel, as long as somebody holds its code.
  struct Known {
    LoadedKernel kernel;  ///< without its code
    std::weak_ptr<const ObjectImage> code;
  };

  const Target target_;
  const CodeCache cache_;
  const GeneratorSource generator_;
  const int threads_;
  mutable std::mutex mutex_;  ///< of the two below
  std::unordered_map<Digest, Known, DigestHash> known_;
  CodeStatistics statistics_;
};

}  // namespace rlx::codegen
