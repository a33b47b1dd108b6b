// Loads relocatable objects into executable memory: our own small loader, so that cached kernels
// need no LLVM.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rlx/result.hpp"

namespace rlx::codegen {

/// The code of one or several objects, in one mapping that is readable and executable, and never
/// writable at the same time. Move-only; the code lives as long as the image.
class ObjectImage {
 public:
  /// Errors: bad_input where an object is not well formed or refers to symbols other than memcpy,
  /// memmove and memset; unsupported for relocations and writable data that the loader does not
  /// know; not_available where memory is refused.
  static Result<ObjectImage> load(std::span<const std::byte> object);

  /// Many objects at once: one mapping for all. Their symbols are apart.
  static Result<ObjectImage> load(std::span<const std::span<const std::byte>> objects);

  ObjectImage() = default;
  ObjectImage(ObjectImage&& other) noexcept;
  ObjectImage& operator=(ObjectImage&& other) noexcept;
  ~ObjectImage();

  /// Address of a global symbol that object `object` defines; null where it does not.
  void* symbol(std::string_view name, std::size_t object = 0) const;

  /// Of the mapping.
  std::size_t bytes() const { return bytes_; }

 private:
  friend class ObjectLoader;
  struct Symbol {
    std::size_t object;
    std::string name;
    void* address;
  };

  void* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::vector<Symbol> symbols_;  ///< in order of objects
};

}  // namespace rlx::codegen
