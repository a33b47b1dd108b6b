// Tensors: allocation and checks.
#include "rlx/tensor.hpp"

#include <new>

#include "base/error.hpp"
#include "base/memory.hpp"

namespace rlx {

std::int64_t element_count(std::span<const std::int64_t> dims) {
  std::int64_t count = 1;
  for (const std::int64_t dim : dims) {
    if (dim < 0 || __builtin_mul_overflow(count, dim, &count)) {
      throw Exception(bad_input("A tensor of these dims ({}) has no representable size.",
                                fmt::join(dims.begin(), dims.end(), ",")));
    }
  }
  return count;
}

Tensor::Tensor(DType dtype, Dims dims) : dtype_(dtype), dims_(std::move(dims)) {
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(element_count(dims_), static_cast<std::int64_t>(size_of(dtype)),
                             &bytes)) {
    throw std::bad_alloc();
  }
  data_ = allocate_zeroed(static_cast<std::size_t>(bytes));
}

Tensor::Tensor(DType dtype, Dims dims, std::shared_ptr<const std::byte> bytes)
    : dtype_(dtype), dims_(std::move(dims)), data_(std::move(bytes)) {}

std::byte* Tensor::mutable_data() { return const_cast<std::byte*>(data_.get()); }

Tensor Tensor::reshaped(Dims dims) const {
  RLX_CHECK(element_count(dims) == elements());
  Tensor result = *this;
  result.dims_ = std::move(dims);
  return result;
}

namespace detail {

void throw_wrong_element_type(DType wanted, DType actual) {
  throw Exception(
      bad_input("A tensor of {} cannot be read as {}.", name_of(actual), name_of(wanted)));
}

void throw_wrong_element_count(std::int64_t wanted, std::size_t actual) {
  throw Exception(bad_input("A tensor of {} elements was given {} values.", wanted, actual));
}

}  // namespace detail
}  // namespace rlx
