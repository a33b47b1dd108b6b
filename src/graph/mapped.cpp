// Tensors in mapped files.
#include "rlx/mapped.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/cache_folder.hpp"
#include "base/error.hpp"

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

namespace {

/// A descriptor that is closed when it goes.
struct OpenFile {
  int descriptor = -1;
  explicit OpenFile(int descriptor) : descriptor(descriptor) {}
  OpenFile(const OpenFile&) = delete;
  ~OpenFile() { close(descriptor); }
};

}  // namespace

Result<Tensor> in_file(const Tensor& tensor) {
  if (tensor.bytes() == 0 || lies_in_file(tensor)) return tensor;
  RLX_ASSIGN(const CacheFolder folder, CacheFolder::open_for_user("params"));
  RLX_ASSIGN(const int descriptor, folder.open_unnamed(tensor.bytes()));
  const OpenFile file(descriptor);
  for (std::size_t done = 0; done < tensor.bytes();) {
    const ssize_t count =
        pwrite(descriptor, tensor.data() + done, tensor.bytes() - done, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0)
      return not_available("The file of a param cannot be written: {}.", std::strerror(errno));
    done += static_cast<std::size_t>(count);
  }
  void* const address = mmap(nullptr, tensor.bytes(), PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (address == MAP_FAILED)
    return not_available("The file of a param cannot be mapped: {}.", std::strerror(errno));
  return Tensor(tensor.dtype(), tensor.dims(),
                {static_cast<const std::byte*>(address), FileUnmap{tensor.bytes()}});
}

}  // namespace rlx
