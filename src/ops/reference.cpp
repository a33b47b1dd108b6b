// Whole operands as plain vectors, and checks that several infer rules make.
#include "ops/reference.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "graph/elementwise_eval.hpp"

namespace rlx {
namespace {

template <class T>
T from_datum(DType dtype, const ScalarDatum& datum) {
  const bool is_number = is_float(dtype) || is_complex(dtype);
  if constexpr (std::is_same_v<T, std::int64_t>) {
    return is_number ? static_cast<std::int64_t>(datum.number.real()) : datum.integer;
  } else if constexpr (std::is_same_v<T, std::complex<double>>) {
    return is_number ? datum.number : std::complex<double>(static_cast<double>(datum.integer));
  } else {
    if (is_number) return static_cast<T>(datum.number.real());
    return dtype == u64 ? static_cast<T>(static_cast<std::uint64_t>(datum.integer))
                        : static_cast<T>(datum.integer);
  }
}

// Four-bit integers lie extended in a byte; the other widths wrap by being stored.
std::int64_t wrapped(DType dtype, std::int64_t value) {
  if (dtype == u4) return value & 15;
  if (dtype == i4) return ((value & 15) ^ 8) - 8;
  return value;
}

template <class T>
ScalarDatum to_datum(DType dtype, T value) {
  if constexpr (std::is_same_v<T, std::int64_t>) {
    return {static_cast<double>(value), wrapped(dtype, value)};
  } else {
    return {value,
            is_float(dtype) || is_complex(dtype) ? 0 : static_cast<std::int64_t>(std::real(value))};
  }
}

}  // namespace

template <class T>
std::vector<T> load_all(const TensorView& view) {
  if (!view.data) return {};
  const std::int64_t count = view.elements();
  std::vector<T> values(count);
  for (std::int64_t i = 0; i < count; ++i)
    values[i] = from_datum<T>(view.dtype, load_datum(view.dtype, view.data, i));
  return values;
}

template <class T>
void store_all(const MutableTensorView& view, std::span<const T> values) {
  RLX_CHECK(static_cast<std::int64_t>(values.size()) == view.elements());
  for (std::size_t i = 0; i < values.size(); ++i) {
    store_datum(view.dtype, view.data, static_cast<std::int64_t>(i),
                to_datum(view.dtype, values[i]));
  }
}

template std::vector<float> load_all(const TensorView&);
template std::vector<double> load_all(const TensorView&);
template std::vector<std::int64_t> load_all(const TensorView&);
template std::vector<std::complex<double>> load_all(const TensorView&);
template void store_all(const MutableTensorView&, std::span<const double>);
template void store_all(const MutableTensorView&, std::span<const std::int64_t>);
template void store_all(const MutableTensorView&, std::span<const std::complex<double>>);

Dims strides_of(std::span<const std::int64_t> dims) {
  Dims strides(dims.size(), 1);
  for (std::size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

std::int64_t product(std::span<const std::int64_t> dims, std::size_t begin, std::size_t end) {
  return element_count(dims.subspan(begin, end - begin));
}

Dims broadcast_strides(std::span<const std::int64_t> operand,
                       std::span<const std::int64_t> result) {
  const Dims own = strides_of(operand);
  Dims strides(result.size(), 0);
  for (std::size_t i = 0; i < operand.size(); ++i) {
    if (operand[i] != 1) strides[i + result.size() - operand.size()] = own[i];
  }
  return strides;
}

double bytes_of(std::span<const Type* const> inputs, std::span<const Type> results) {
  double bytes = 0;
  for (const Type* type : inputs) bytes += type ? static_cast<double>(type->bytes()) : 0;
  for (const Type& type : results) bytes += static_cast<double>(type.bytes());
  return bytes;
}

Dim shifted(const Dim& dim, std::int64_t amount) {
  return amount < 0 ? dim - Dim(-amount) : dim + Dim(amount);
}

Status require_same_dtype(std::string_view op, const Type& a, const Type& b) {
  if (a.dtype == b.dtype) return {};
  return bad_input("The op {} wants equal dtypes and was given {} and {}.", op, a.text(), b.text());
}

}  // namespace rlx
