// Single tensors in files: ONNX TensorProtos and NumPy arrays.
#include <cstring>
#include <fstream>

#include "import/fail.hpp"
#include "import/mapped_file.hpp"
#include "import/npy.hpp"
#include "import/onnx/tensor_data.hpp"
#include "rlx/import.hpp"

namespace rlx {
namespace {

using importing::fail;

// Columns first -> rows first: walks over the result, adding up strides of the source.
void copy_transposed(const std::byte* source, Tensor& tensor) {
  const std::size_t size = size_of(tensor.dtype()), rank = tensor.dims().size();
  Dims strides(rank, 1), index(rank, 0);
  for (std::size_t i = 1; i < rank; ++i) strides[i] = strides[i - 1] * tensor.dims()[i - 1];
  std::byte* out = tensor.mutable_data();
  for (std::int64_t n = 0; n < tensor.elements(); ++n) {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < rank; ++i) offset += index[i] * strides[i];
    std::memcpy(out + static_cast<std::size_t>(n) * size,
                source + static_cast<std::size_t>(offset) * size, size);
    for (std::size_t i = rank; i-- > 0;) {
      if (++index[i] < tensor.dims()[i]) break;
      index[i] = 0;
    }
  }
}

int used_bits(DType dtype) { return dtype == DType::f4e2m1 ? 4 : integer_bits(dtype); }

// A file may set bits that an element of a byte does not have: they do not count.
std::byte canonical_byte(DType dtype, std::byte byte) {
  if (dtype == boolean) return static_cast<std::byte>(byte != std::byte{0});
  const int unused = 8 - used_bits(dtype);
  const auto raised = static_cast<std::uint8_t>(std::to_integer<unsigned>(byte) << unused);
  return is_signed_integer(dtype)
             ? static_cast<std::byte>(static_cast<std::int8_t>(raised) >> unused)
             : static_cast<std::byte>(raised >> unused);
}

Tensor tensor_of_npy(const importing::Bytes& bytes) {
  const importing::NpyHeader header = importing::read_npy_header(bytes.span());
  const auto elements = static_cast<std::size_t>(onnx::checked_elements(header.dims, "The array"));
  const auto numbers = bytes.span().subspan(header.data_offset);
  if (numbers.size() != elements * size_of(header.dtype)) {
    fail("The array wants {} bytes and the file holds {}.", elements * size_of(header.dtype),
         numbers.size());
  }
  Tensor tensor(header.dtype, header.dims);
  if (header.column_major) {
    copy_transposed(numbers.data(), tensor);
  } else if (!numbers.empty()) {
    std::memcpy(tensor.mutable_data(), numbers.data(), numbers.size());
  }
  if (header.dtype == boolean || used_bits(header.dtype) < 8) {
    for (std::byte& byte : std::span(tensor.mutable_data(), elements)) {
      byte = canonical_byte(header.dtype, byte);
    }
  }
  return tensor;
}

}  // namespace

Result<Tensor> read_tensor_proto(const std::filesystem::path& file) {
  return importing::guarded("reading", file, [&] {
    const importing::Bytes bytes = importing::map_file(file);
    onnx::TensorSource source(bytes, {});
    return source.load(onnx::decode_tensor(bytes.span()));
  });
}

Result<Tensor> read_npy(const std::filesystem::path& file) {
  return importing::guarded("reading", file,
                            [&] { return tensor_of_npy(importing::map_file(file)); });
}

Status write_npy(const std::filesystem::path& file, const Tensor& tensor) {
  auto written = importing::guarded("writing", file, [&] {
    const std::string header = importing::npy_header(tensor.dtype(), tensor.dims());
    std::ofstream out(file, std::ios::binary | std::ios::trunc);
    out.write(header.data(), static_cast<std::streamsize>(header.size()));
    out.write(reinterpret_cast<const char*>(tensor.data()),
              static_cast<std::streamsize>(tensor.bytes()));
    out.close();
    if (!out) fail("The file cannot be written.");
    return Done{};
  });
  if (!written.ok()) return written.error();
  return {};
}

}  // namespace rlx
