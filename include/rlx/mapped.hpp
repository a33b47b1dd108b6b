// Tensors that lie in a file mapped for reading: what their owner allows beside reading them.
#pragma once

#include <cstddef>

#include "rlx/result.hpp"
#include "rlx/tensor.hpp"

namespace rlx {

/// The deleter by which a tensor's bytes are known to lie in a read-only private mapping of a file.
struct FileUnmap {
  std::size_t bytes = 0;  ///< of the whole mapping
  void operator()(const std::byte* mapping) const;
};

/// Such a tensor may lie at any address, not only at multiples of its element size.
bool lies_in_file(const Tensor& tensor);

/// The tensor itself where its elements are aligned, else a copy in which they are.
Tensor aligned(const Tensor& tensor);

/// Tells the system that the bytes will hardly be read again: pages of a file leave memory until
/// they are. Does nothing to any other tensor.
void forget_pages(const Tensor& tensor);

/// The same values in an unnamed file in the user's cache folder, mapped: as a param it takes no
/// memory beside what is packed of it. Errors: the folder cannot be written.
Result<Tensor> in_file(const Tensor& tensor);

}  // namespace rlx
