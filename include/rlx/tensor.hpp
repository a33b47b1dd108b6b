// Tensors: owned or mapped values with a dtype and dims, and views of them. Row-major, dense.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rlx/dtype.hpp"

namespace rlx {

using Dims = std::vector<std::int64_t>;

/// Product of the dims; 1 for a scalar.
std::int64_t element_count(std::span<const std::int64_t> dims);

/// The dtype that a C++ type has in tensors: float, double, the integers, bool.
template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::f32;
}
template <>
constexpr DType dtype_of<double>() {
  return DType::f64;
}
template <>
constexpr DType dtype_of<std::int8_t>() {
  return DType::i8;
}
template <>
constexpr DType dtype_of<std::int16_t>() {
  return DType::i16;
}
template <>
constexpr DType dtype_of<std::int32_t>() {
  return DType::i32;
}
template <>
constexpr DType dtype_of<std::int64_t>() {
  return DType::i64;
}
template <>
constexpr DType dtype_of<std::uint8_t>() {
  return DType::u8;
}
template <>
constexpr DType dtype_of<std::uint16_t>() {
  return DType::u16;
}
template <>
constexpr DType dtype_of<std::uint32_t>() {
  return DType::u32;
}
template <>
constexpr DType dtype_of<std::uint64_t>() {
  return DType::u64;
}
template <>
constexpr DType dtype_of<bool>() {
  return DType::boolean;
}

/// A value: dtype, dims and bytes that it owns or shares (a mapped file). Copies share the bytes.
class Tensor {
 public:
  Tensor() = default;

  /// Zero-filled, 64-byte aligned.
  Tensor(DType dtype, Dims dims);

  /// Shares `bytes`, whose owner is kept alive; bytes.size() must be the tensor's size.
  Tensor(DType dtype, Dims dims, std::shared_ptr<const std::byte> bytes);

  /// From values in row-major order; their number must be the product of the dims.
  template <class T>
  static Tensor of(Dims dims, std::span<const T> values);
  template <class T>
  static Tensor of(Dims dims, std::initializer_list<T> values) {
    return of<T>(std::move(dims), std::span<const T>(values.begin(), values.size()));
  }
  template <class T>
  static Tensor scalar(T value) {
    return of<T>({}, {value});
  }

  DType dtype() const { return dtype_; }
  const Dims& dims() const { return dims_; }
  std::int64_t elements() const { return element_count(dims_); }
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(dtype_); }
  bool empty() const { return data_ == nullptr; }

  const std::byte* data() const { return data_.get(); }
  const std::shared_ptr<const std::byte>& shared_data() const { return data_; }
  /// Writable bytes; only of a tensor that this object allocated and that nobody shares yet.
  std::byte* mutable_data();

  /// The elements as T; T must be the C++ type of the dtype, else Exception.
  template <class T>
  std::span<const T> as() const;

  /// The same bytes under other dims of the same element count.
  Tensor reshaped(Dims dims) const;

 private:
  DType dtype_ = DType::f32;
  Dims dims_;
  std::shared_ptr<const std::byte> data_;
};

/// Borrowed read-only elements.
struct TensorView {
  DType dtype = DType::f32;
  std::span<const std::int64_t> dims;
  const std::byte* data = nullptr;

  TensorView() = default;
  TensorView(DType dtype, std::span<const std::int64_t> dims, const std::byte* data)
      : dtype(dtype), dims(dims), data(data) {}
  TensorView(const Tensor& tensor)
      : dtype(tensor.dtype()), dims(tensor.dims()), data(tensor.data()) {}

  std::int64_t elements() const { return element_count(dims); }
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(dtype); }
  int rank() const { return static_cast<int>(dims.size()); }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data);
  }
};

/// Borrowed writable elements.
struct MutableTensorView {
  DType dtype = DType::f32;
  std::span<const std::int64_t> dims;
  std::byte* data = nullptr;

  std::int64_t elements() const { return element_count(dims); }
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(dtype); }
  int rank() const { return static_cast<int>(dims.size()); }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
  operator TensorView() const { return {dtype, dims, data}; }
};

namespace detail {
[[noreturn]] void throw_wrong_element_type(DType wanted, DType actual);
[[noreturn]] void throw_wrong_element_count(std::int64_t wanted, std::size_t actual);
}  // namespace detail

template <class T>
Tensor Tensor::of(Dims dims, std::span<const T> values) {
  Tensor tensor(dtype_of<T>(), std::move(dims));
  if (static_cast<std::size_t>(tensor.elements()) != values.size()) {
    detail::throw_wrong_element_count(tensor.elements(), values.size());
  }
  std::copy(values.begin(), values.end(), reinterpret_cast<T*>(tensor.mutable_data()));
  return tensor;
}

template <class T>
std::span<const T> Tensor::as() const {
  if (dtype_of<T>() != dtype_) detail::throw_wrong_element_type(dtype_of<T>(), dtype_);
  return {reinterpret_cast<const T*>(data()), static_cast<std::size_t>(elements())};
}

}  // namespace rlx
