// The cache of machine code on disk: entries named by their content's key, checked before they are
// used.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/cache_folder.hpp"
#include "base/hash.hpp"
#include "codegen/code.hpp"

namespace rlx::codegen {

/// Names a kernel's code: the digest of the kernel's text, the target, the generator and the
/// cache's format.
Digest code_key(std::string_view kernel_text, const Target& target, std::string_view generator);

/// Code on disk. The kernels of a program are kept as one file: making a file costs more than
/// reading many. A program seen before costs that file; a new one looks into the others' tables and
/// shares what it can. Damaged, foreign and outdated files count as absent and are replaced by the
/// next store. Const members may be called from several
/// threads, and several processes may share the folder.
class CodeCache {
 public:
  static constexpr std::uint64_t default_bytes_limit = std::uint64_t{512} << 20;

  /// In the user's cache folder (RLX_CACHE_DIR, XDG_CACHE_HOME/rlx, ~/.cache/rlx).
  static CodeCache open_for_user();

  /// In that folder; keeps at most about `bytes_limit` bytes there.
  explicit CodeCache(Result<CacheFolder> folder, std::uint64_t bytes_limit = default_bytes_limit);

  /// False where the folder cannot be trusted or written; everything is then absent.
  bool enabled() const { return folder_.ok(); }

  /// Why it is off; empty where it is on.
  std::string reason_off() const { return enabled() ? std::string() : folder_.error().message; }

  struct Found {
    std::vector<std::optional<KernelCode>> codes;  ///< of each key; nothing where there is none
    bool as_program = false;                       ///< one file held them all
  };
  Found load(std::span<const Digest> keys) const;

  /// Keeps the code of one program.
  void store(std::span<const Digest> keys, std::span<const KernelCode> codes) const;

 private:
  void share(std::span<const Digest> keys, Found& found, const std::string& known) const;

  Result<CacheFolder> folder_;
  std::uint64_t bytes_limit_;
};

}  // namespace rlx::codegen
