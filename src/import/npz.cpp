// NumPy archives: zip files of .npy files, stored as they are.
#include <algorithm>
#include <cstring>

#include "import/fail.hpp"
#include "import/mapped_file.hpp"
#include "import/npy.hpp"
#include "rlx/import.hpp"

namespace rlx {
namespace {

using importing::fail;
using importing::fail_unsupported;
using Bytes = std::span<const std::byte>;

template <class T>
T number_at(Bytes bytes, std::size_t offset) {
  T value;
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) fail("The archive ends early.");
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

Bytes part(Bytes bytes, std::size_t offset, std::size_t size) {
  if (offset > bytes.size() || bytes.size() - offset < size) fail("The archive ends early.");
  return bytes.subspan(offset, size);
}

std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

constexpr std::size_t end_record_size = 22, entry_size = 46, local_size = 30;

// The end record closes the archive; a comment may follow it.
std::size_t end_record(Bytes archive) {
  const std::size_t at = text_of(archive).rfind("PK\x05\x06");
  if (at == std::string_view::npos || archive.size() - at < end_record_size) {
    fail("The file is no .npz archive.");
  }
  return at;
}

// Numbers of an entry that do not fit into 32 bits stand in its extra field of kind 1.
std::uint64_t wide_size(Bytes extra, std::uint32_t narrow) {
  constexpr std::uint32_t elsewhere = 0xffffffff;
  if (narrow != elsewhere) return narrow;
  while (extra.size() >= 4) {
    const auto kind = number_at<std::uint16_t>(extra, 0);
    const auto size = number_at<std::uint16_t>(extra, 2);
    const Bytes body = part(extra, 4, size);
    if (kind == 1) return number_at<std::uint64_t>(body, 0);
    extra = extra.subspan(4 + std::size_t{size});
  }
  fail("The archive has an entry without a size.");
}

Tensor array_of(Bytes file, const std::string& name) {
  const importing::NpyHeader header = importing::read_npy_header(file);
  if (header.column_major) fail_unsupported("The array ({}) lies columns first.", name);
  std::uint64_t bytes = size_of(header.dtype);
  for (const std::int64_t dim : header.dims) {
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(dim), &bytes)) bytes = ~0ull;
  }
  const Bytes numbers = file.subspan(header.data_offset);
  if (numbers.size() != bytes) {
    fail("The array ({}) wants {} bytes and has {}.", name, bytes, numbers.size());
  }
  Tensor tensor(header.dtype, header.dims);
  std::copy(numbers.begin(), numbers.end(), tensor.mutable_data());
  return tensor;
}

std::map<std::string, Tensor> arrays_of(Bytes archive) {
  std::map<std::string, Tensor> arrays;
  const std::size_t end = end_record(archive);
  std::size_t at = number_at<std::uint32_t>(archive, end + 16);
  for (int left = number_at<std::uint16_t>(archive, end + 10); left > 0; --left) {
    const Bytes entry = part(archive, at, entry_size);
    if (text_of(entry.first(4)) != "PK\x01\x02") fail("The archive's list of entries is broken.");
    const auto name_size = number_at<std::uint16_t>(entry, 28);
    const auto extra_size = number_at<std::uint16_t>(entry, 30);
    const Bytes extra = part(archive, at + entry_size + name_size, extra_size);
    std::string name(text_of(part(archive, at + entry_size, name_size)));
    if (number_at<std::uint16_t>(entry, 10) != 0) {
      fail_unsupported("The array ({}) is compressed; numpy.savez writes arrays as they are.",
                       name);
    }
    const std::uint64_t size = wide_size(extra, number_at<std::uint32_t>(entry, 24));
    const std::size_t local = number_at<std::uint32_t>(entry, 42);
    const std::size_t begin = local + local_size + number_at<std::uint16_t>(archive, local + 26) +
                              number_at<std::uint16_t>(archive, local + 28);
    if (name.ends_with(".npy")) name.resize(name.size() - 4);
    arrays[name] = array_of(part(archive, begin, size), name);
    at += entry_size + name_size + extra_size + number_at<std::uint16_t>(entry, 32);
  }
  return arrays;
}

}  // namespace

Result<std::map<std::string, Tensor>> read_npz(const std::filesystem::path& file) {
  return importing::guarded("reading", file,
                            [&] { return arrays_of(importing::map_file(file).span()); });
}

}  // namespace rlx
