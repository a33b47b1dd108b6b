// NumPy's .npy header: a magic number, a version, and a Python dictionary as text.
#include "import/npy.hpp"

#include <array>
#include <charconv>

#include "import/fail.hpp"

namespace rlx::importing {
namespace {

constexpr std::string_view magic = "\x93NUMPY";

struct Descriptor {
  std::string_view text;
  DType dtype;
};
// The last ones are no types of NumPy's own: ml_dtypes registers these names, and a file that says
// what it holds beats one that says bytes.
constexpr std::array<Descriptor, 21> descriptors = {{{"<f4", f32},
                                                     {"<f8", f64},
                                                     {"<f2", f16},
                                                     {"|i1", i8},
                                                     {"<i2", i16},
                                                     {"<i4", i32},
                                                     {"<i8", i64},
                                                     {"|u1", u8},
                                                     {"<u2", u16},
                                                     {"<u4", u32},
                                                     {"<u8", u64},
                                                     {"|b1", boolean},
                                                     {"<c8", c64},
                                                     {"<c16", c128},
                                                     {"int4", i4},
                                                     {"uint4", u4},
                                                     {"int2", i2},
                                                     {"uint2", u2},
                                                     {"float8_e4m3fnuz", DType::f8e4m3fnuz},
                                                     {"float8_e5m2fnuz", DType::f8e5m2fnuz},
                                                     {"float4_e2m1fn", DType::f4e2m1}}};

// The text after 'key': in the dictionary.
std::string_view value_of(std::string_view dictionary, std::string_view key) {
  const auto at = dictionary.find("'" + std::string(key) + "'");
  if (at == std::string_view::npos) fail("The .npy header has no ({}).", key);
  const auto colon = dictionary.find(':', at);
  if (colon == std::string_view::npos) fail("The .npy header is broken at ({}).", key);
  const auto start = dictionary.find_first_not_of(' ', colon + 1);
  if (start == std::string_view::npos) fail("The .npy header is broken at ({}).", key);
  return dictionary.substr(start);
}

DType dtype_of_descriptor(std::string_view value) {
  const auto end = value.empty() ? std::string_view::npos : value.find('\'', 1);
  if (value.empty() || value[0] != '\'' || end == std::string_view::npos) {
    fail_unsupported("The .npy file holds records, not numbers.");
  }
  const std::string_view text = value.substr(1, end - 1);
  for (const Descriptor& descriptor : descriptors) {
    // The order of the bytes of one says nothing.
    if (text == descriptor.text || (text.size() == 3 && descriptor.text[0] == '|' &&
                                    text.substr(1) == descriptor.text.substr(1))) {
      return descriptor.dtype;
    }
  }
  fail_unsupported("The type ({}) of the .npy file is not supported.", text);
}

Dims dims_of(std::string_view value) {
  const auto end = value.find(')');
  if (value.empty() || value[0] != '(' || end == std::string_view::npos) {
    fail("The shape in the .npy header is broken.");
  }
  Dims dims;
  const char* at = value.data() + 1;
  const char* last = value.data() + end;
  while (at != last) {
    if (*at == ' ' || *at == ',') {
      ++at;
      continue;
    }
    std::int64_t dim = 0;
    const auto [next, error] = std::from_chars(at, last, dim);
    if (error != std::errc{} || dim < 0) fail("A dim in the .npy header is broken.");
    dims.push_back(dim);
    at = next;
  }
  return dims;
}

std::string_view descriptor_of(DType dtype) {
  switch (dtype) {
    case DType::bf16: return "<u2";
    case DType::f8e4m3fn:
    case DType::f8e5m2: return "|u1";
    default: break;
  }
  for (const Descriptor& descriptor : descriptors) {
    if (descriptor.dtype == dtype) return descriptor.text;
  }
  fail_unsupported("The type {} cannot be written as .npy.", name_of(dtype));
}

}  // namespace

NpyHeader read_npy_header(std::span<const std::byte> file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (!text.starts_with(magic) || text.size() < 12) fail("The file is no .npy file.");
  const auto byte = [&](std::size_t i) { return std::to_integer<std::size_t>(file[i]); };
  const std::size_t version = byte(6);
  const std::size_t start = version == 1 ? 10 : 12;
  const std::size_t length = version == 1
                                 ? byte(8) | byte(9) << 8
                                 : byte(8) | byte(9) << 8 | byte(10) << 16 | byte(11) << 24;
  if (length > text.size() - start) fail("The .npy header is longer than the file.");
  const std::string_view dictionary = text.substr(start, length);
  NpyHeader header;
  header.dtype = dtype_of_descriptor(value_of(dictionary, "descr"));
  header.dims = dims_of(value_of(dictionary, "shape"));
  header.column_major = value_of(dictionary, "fortran_order").starts_with("True");
  header.data_offset = start + length;
  return header;
}

std::string npy_header(DType dtype, const Dims& dims) {
  std::string shape;
  for (const std::int64_t dim : dims) shape += std::to_string(dim) + ",";
  std::string dictionary = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                       descriptor_of(dtype), shape);
  constexpr std::size_t alignment = 64, prefix = 10;
  const std::size_t used = prefix + dictionary.size() + 1;
  dictionary += std::string((alignment - used % alignment) % alignment, ' ') + "\n";
  std::string header(magic);
  header += std::string{'\x01', '\x00', static_cast<char>(dictionary.size() & 0xff),
                        static_cast<char>(dictionary.size() >> 8)};
  return header + dictionary;
}

}  // namespace rlx::importing
