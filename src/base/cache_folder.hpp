// A folder of files that only this user can write: the ground of every cache on disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rlx/result.hpp"

namespace rlx {

/// May code be taken from this open file? It must be the user's own (or root's), as must the
/// folders above it, and nobody else may write it or put another in its place. `path` names it.
Status check_trusted_file(int descriptor, const std::string& path);

/// An open folder that belongs to the user and that nobody else can write, nor replace. All files
/// are reached through the open folder, are written whole under another name and then renamed, so
/// that readers and writers of other processes never see halves. Const members may be called from
/// several threads.
class CacheFolder {
 public:
  /// Opens the folder, made if it is missing (rights 0700). Errors: not_available with the reason
  /// it cannot be trusted.
  static Result<CacheFolder> open(const std::string& path);

  /// The user's cache folder: RLX_CACHE_DIR, else XDG_CACHE_HOME/rlx, else ~/.cache/rlx; and `part`
  /// inside it.
  static Result<CacheFolder> open_for_user(std::string_view part = {});

  CacheFolder(CacheFolder&& other) noexcept;
  CacheFolder& operator=(CacheFolder&& other) noexcept;
  ~CacheFolder();

  const std::string& path() const { return path_; }

  /// The whole file; nothing where it is missing, larger than `bytes_limit`, or not the user's
  /// alone.
  std::optional<std::vector<std::byte>> read(const std::string& name,
                                             std::uint64_t bytes_limit) const;

  /// `bytes` bytes from `offset`; nothing where the file is missing, shorter, or not the user's
  /// alone.
  std::optional<std::vector<std::byte>> read_part(const std::string& name, std::uint64_t offset,
                                                  std::uint64_t bytes) const;

  /// Names of whole files in no order, at most `limit`.
  std::vector<std::string> names(std::size_t limit) const;

  /// Replaces the file in one step.
  Status write(const std::string& name, std::span<const std::byte> bytes) const;

  /// An open file of so many bytes that has no name, for reading and writing: it is gone when the
  /// last descriptor and mapping are. Closed by the caller. Errors: not_available where the folder
  /// cannot hold it.
  Result<int> open_unnamed(std::uint64_t bytes) const;

  /// Notes that the file is in use, so that trim keeps it longest.
  void touch(const std::string& name) const;

  /// Removes the files that were not used for the longest time until at most `bytes_limit` remain.
  void trim(std::uint64_t bytes_limit) const;

 private:
  CacheFolder(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}

  int descriptor_ = -1;
  std::string path_;
};

}  // namespace rlx
