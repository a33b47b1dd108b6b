// Tensors in mapped files.
#include "rlx/mapped.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace rlx {

void FileUnmap::operator()(const std::byte* mapping) const {
  munmap(const_cast<std::byte*>(mapping), bytes);
}

bool lies_in_file(const Tensor& tensor) {
  return std::get_deleter<FileUnmap>(tensor.shared_data()) != nullptr;
}

Tensor aligned(const Tensor& tensor) {
  const std::size_t alignment = std::min<std::size_t>(size_of(tensor.dtype()), 8);
  if (reinterpret_cast<std::uintptr_t>(tensor.data()) % alignment == 0) return tensor;
  Tensor copy(tensor.dtype(), tensor.dims());
  std::memcpy(copy.mutable_data(), tensor.data(), tensor.bytes());
  return copy;
}

void forget_pages(const Tensor& tensor) {
  if (!lies_in_file(tensor)) return;
  // Whole pages inside the tensor only: its neighbours may still be needed.
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(tensor.data());
  const std::uintptr_t begin = (first + page - 1) / page * page;
  const std::uintptr_t end = (first + tensor.bytes()) / page * page;
  if (begin < end) (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace rlx
