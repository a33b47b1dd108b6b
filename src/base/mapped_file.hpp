// A file's bytes as memory: mapped read-only, for as long as the object lives.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "rlx/result.hpp"

namespace rlx {

/// Move-only. The bytes stay at the same address when it is moved. Who shortens the file meanwhile
/// takes the bytes away: files that others may rewrite in place are to be read, not mapped.
class MappedFile {
 public:
  /// Errors: bad_input where the path is no regular file that can be read.
  static Result<MappedFile> open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  /// Empty for an empty file.
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  /// Says that these bytes of the file were read and need not stay in memory; they are read again
  /// when looked at.
  void forget(std::span<const std::byte> part) const;

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace rlx
