// A file mapped for reading, shared by the tensors that lie in it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace rlx::importing {

/// Read-only bytes with an owner that keeps them alive.
class Bytes {
 public:
  Bytes() = default;
  Bytes(std::shared_ptr<const std::byte> owner, std::size_t size, bool mapped)
      : owner_(std::move(owner)), size_(size), mapped_(mapped) {}

  std::span<const std::byte> span() const { return {owner_.get(), size_}; }
  std::size_t size() const { return size_; }
  /// True for a mapped file: parts of it may be shared as they are. False for borrowed memory,
  /// which must be copied.
  bool mapped() const { return mapped_; }
  /// A pointer into the bytes that keeps all of them alive.
  std::shared_ptr<const std::byte> share(const std::byte* part) const { return {owner_, part}; }
  /// Tells the system that a part was read for the last time, so that it need not stay in memory.
  void release(std::span<const std::byte> part) const;

 private:
  std::shared_ptr<const std::byte> owner_;
  std::size_t size_ = 0;
  bool mapped_ = false;
};

/// Maps a regular file; throws a sentence that names it.
Bytes map_file(const std::filesystem::path& file);

/// Memory of the caller, which outlives what is made of it.
Bytes borrow(std::span<const std::byte> memory);

}  // namespace rlx::importing
