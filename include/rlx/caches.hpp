// Programs kept: by bucket of a dim, and as files.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rlx/runtime.hpp"

namespace rlx {

/// Which sizes of a symbol get a program of their own.
struct BucketOptions {
  std::string symbol;  ///< of the graph's dims; inputs are padded along the axes that have it
  /// Ascending sizes; empty: powers of two from 1 to `largest`.
  std::vector<std::int64_t> ladder;
  std::int64_t largest = 4096;
  /// Inputs by which the graph itself hides rows (an attention mask): padding is zeros, and zeros
  /// must hide. Without such inputs the graph must be shown to treat rows apart.
  std::vector<std::string> masks;
  CompileOptions compile;  ///< for every bucket; binds the other symbols
  /// Most bytes of arenas and scratch of all buckets; the least recently used go first, the one
  /// made last stays. 0: no limit.
  std::int64_t bytes_limit = 0;
  /// A bucket is compiled on a thread of the cache's own while the next larger one that is there
  /// serves. Where none is, the call compiles.
  bool in_background = false;
};

/// Programs of one graph for a ladder of sizes. All buckets share the weights. Thread-safe: runs of
/// one bucket take turns, those of different buckets run at the same time, and no call waits for
/// the compile of a bucket that it does not need. The session must outlive the cache.
class BucketedCompileCache {
 public:
  struct Report {
    std::vector<std::int64_t> buckets;  ///< that have programs, most recently used first
    std::int64_t hits = 0;              ///< calls that found the smallest bucket for their rows
    std::int64_t misses = 0;            ///< calls that did not
    std::int64_t stand_ins = 0;         ///< misses that a larger bucket served
    std::int64_t evictions = 0;
    int compiling = 0;       ///< buckets that are being made or wait for it
    std::int64_t bytes = 0;  ///< of arenas and scratch
  };

  /// Errors: no dim has the symbol; padding is neither masked nor harmless, with the op that mixes
  /// rows.
  static Result<BucketedCompileCache> make(Session& session, Graph graph, BucketOptions options);
  BucketedCompileCache(BucketedCompileCache&&) noexcept;
  ~BucketedCompileCache();

  /// The program of the smallest bucket that holds `rows`; compiled on first sight (in background:
  /// of the next larger one until then). It is the one that run_padded runs: not at the same time.
  /// Errors: rows beyond the ladder.
  Result<std::shared_ptr<CompiledGraph>> get(std::int64_t rows);
  /// Pads the inputs with zeros to a bucket, runs, crops the outputs: what a program compiled for
  /// these dims would give.
  Result<Outputs> run_padded(std::span<const NamedInput> inputs);
  Report report() const;
  /// Returns when no bucket waits for its compile in the background.
  void wait() const;

 private:
  struct Impl;
  explicit BucketedCompileCache(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Compiled programs as files, named by the content of graph, weights and options. Thread-safe.
class AotCache {
 public:
  /// In `folder`; empty: the user's cache folder (RLX_CACHE_DIR and its like). Errors:
  /// not_available where others can write it.
  static Result<AotCache> open(Session& session, const std::string& folder = {},
                               std::uint64_t bytes_limit = std::uint64_t{8} << 30);
  AotCache(AotCache&&) noexcept;
  ~AotCache();

  /// From its file, or compiled and kept. A file that is damaged, or was made by another rlx or for
  /// another machine, is replaced.
  Result<CompiledGraph> get(const Graph& graph, const CompileOptions& options = {});
  std::int64_t hits() const;
  std::int64_t misses() const;

 private:
  struct Impl;
  explicit AotCache(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rlx
