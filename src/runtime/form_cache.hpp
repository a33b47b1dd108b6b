// Predictions of forms of convolutions on disk: they take most of the start of a small program that
// was compiled before.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backends/backend.hpp"
#include "base/cache_folder.hpp"
#include "base/hash.hpp"

namespace rlx {

/// A convolution in one form, planned by itself.
struct PlannedForm : Backend::Prospect {
  double weight_bytes = 0;
};

/// The forms that a program asks for at once are one file. Damaged, foreign and outdated files
/// count as absent and are replaced by the next store. Several threads and processes may share the
/// folder.
class FormCache {
 public:
  static constexpr std::uint64_t default_bytes_limit = std::uint64_t{8} << 20;

  /// In the user's cache folder.
  static FormCache open_for_user();

  /// In that folder; keeps at most about `bytes_limit` bytes there. Without one everything is
  /// absent.
  explicit FormCache(Result<CacheFolder> folder, std::uint64_t bytes_limit = default_bytes_limit);

  /// Those of all keys, in their order; nothing where they were not stored together. A key names
  /// all that the prediction depends on.
  std::optional<std::vector<PlannedForm>> load(std::span<const Digest> keys) const;

  void store(std::span<const Digest> keys, std::span<const PlannedForm> forms) const;

 private:
  Result<CacheFolder> folder_;
  std::uint64_t bytes_limit_;
};

}  // namespace rlx
