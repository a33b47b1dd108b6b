// Values of TensorProtos: raw bytes (little endian), typed number fields, external files.
#include "import/onnx/tensor_data.hpp"

#include <algorithm>
#include <charconv>

#include "import/wire.hpp"

namespace rlx::onnx {
namespace {

using importing::Bytes;
using importing::fail;
using importing::fail_unsupported;
using importing::WireReader;

// Bits of an element in a file: less than a byte for the narrowest dtypes.
int stored_bits(DType dtype) {
  if (dtype == f4e2m1) return 4;
  return is_integer(dtype) ? integer_bits(dtype) : static_cast<int>(size_of(dtype)) * 8;
}

bool is_packed(DType dtype) { return stored_bits(dtype) < 8; }

std::size_t stored_size(DType dtype, std::int64_t elements) {
  if (!is_packed(dtype)) return static_cast<std::size_t>(elements) * size_of(dtype);
  const int in_a_byte = 8 / stored_bits(dtype);
  return static_cast<std::size_t>((elements + in_a_byte - 1) / in_a_byte);
}

// Element `index` of packed bytes, sign-extended where its dtype has a sign. The first lies lowest.
std::byte packed_element(DType dtype, ByteSpan stored, std::int64_t index) {
  const int width = stored_bits(dtype), in_a_byte = 8 / width;
  const auto byte = std::to_integer<unsigned>(stored[static_cast<std::size_t>(index / in_a_byte)]);
  const unsigned mask = (1u << width) - 1;
  unsigned bits = byte >> (width * static_cast<int>(index % in_a_byte)) & mask;
  if (is_signed_integer(dtype) && bits >> (width - 1)) bits |= ~mask;
  return static_cast<std::byte>(bits);
}

// Bytes as files store them -> bytes as tensors hold them.
void unpack(DType dtype, ByteSpan stored, Tensor& tensor) {
  std::byte* out = tensor.mutable_data();
  if (is_packed(dtype)) {
    for (std::int64_t i = 0; i < tensor.elements(); ++i) out[i] = packed_element(dtype, stored, i);
  } else if (dtype == boolean) {
    std::transform(stored.begin(), stored.end(), out,
                   [](std::byte b) { return static_cast<std::byte>(b != std::byte{0}); });
  } else {
    std::copy(stored.begin(), stored.end(), out);
  }
}

Tensor from_stored(DType dtype, const std::vector<std::int64_t>& dims, ByteSpan stored,
                   const Bytes& owner, bool any_alignment) {
  // Small tensors are copied, so that a graph of constants does not hold a file open; and where
  // any alignment will do, medium ones that do not lie well.
  constexpr std::size_t worth_sharing = 4096, worth_sharing_unaligned = 65536;
  const bool aligned =
      reinterpret_cast<std::uintptr_t>(stored.data()) % std::min<std::size_t>(size_of(dtype), 8) ==
      0;
  const bool as_is = !is_packed(dtype) && dtype != boolean;
  const bool lies_well = aligned || (any_alignment && stored.size() >= worth_sharing_unaligned);
  if (owner.mapped() && lies_well && as_is && stored.size() >= worth_sharing) {
    return {dtype, dims, owner.share(stored.data())};
  }
  Tensor tensor(dtype, dims);
  unpack(dtype, stored, tensor);
  owner.release(stored);
  return tensor;
}

// Writes numbers of a typed field one after the other, each as `size` low bytes of its bits.
class NumberSink {
 public:
  NumberSink(const TensorProto& proto, std::size_t size, std::size_t count)
      : proto_(proto), size_(size), count_(count) {
    bytes_.reserve(std::min<std::size_t>(size * count, 1 << 20));
  }
  void put(std::uint64_t bits) {
    if (++written_ > count_) fail("The tensor ({}) holds more numbers than its dims.", proto_.name);
    const auto* source = reinterpret_cast<const std::byte*>(&bits);
    bytes_.insert(bytes_.end(), source, source + size_);
  }
  const std::vector<std::byte>& finish() const {
    if (written_ != count_) {
      fail("The tensor ({}) holds {} numbers and its dims want {}.", proto_.name, written_, count_);
    }
    return bytes_;
  }

 private:
  const TensorProto& proto_;
  std::size_t size_, count_, written_ = 0;
  std::vector<std::byte> bytes_;
};

const TensorProto::Numbers& numbers_of(const TensorProto& proto, DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::c64: return proto.floats;
    case DType::f64:
    case DType::c128: return proto.doubles;
    case DType::i64: return proto.int64s;
    case DType::u32:
    case DType::u64: return proto.uint64s;
    default: return proto.int32s;
  }
}

// Numbers of float_data and its like: fixed size for floats, varints for integers. 16-bit floats,
// 8-bit floats and small integers travel in int32_data, narrower ones packed into bytes.
Tensor from_numbers(const TensorProto& proto, DType dtype, std::int64_t elements) {
  const auto& numbers = numbers_of(proto, dtype);
  const bool fixed32 = dtype == f32 || dtype == c64, fixed64 = dtype == f64 || dtype == c128;
  const std::size_t size = fixed32 ? 4 : fixed64 ? 8 : size_of(dtype);
  const std::size_t count = stored_size(dtype, elements) / size;
  NumberSink sink(proto, size, count);
  for (const ByteSpan part : numbers.packed) {
    for (WireReader reader(part); !reader.done();) {
      sink.put(fixed32   ? reader.fixed<std::uint32_t>()
               : fixed64 ? reader.fixed<std::uint64_t>()
                         : reader.varint());
    }
  }
  for (const std::uint64_t number : numbers.loose) sink.put(number);
  const ByteSpan stored = sink.finish();
  Tensor tensor(dtype, proto.dims);
  unpack(dtype, stored, tensor);
  return tensor;
}

// The bytes of a tensor that lie in the model in one piece: raw data, or packed floats.
std::optional<ByteSpan> one_piece(const TensorProto& proto, DType dtype) {
  if (proto.has_raw) return proto.raw;
  const auto& numbers = numbers_of(proto, dtype);
  const bool fixed = dtype == f32 || dtype == c64 || dtype == f64 || dtype == c128;
  if (fixed && numbers.loose.empty() && numbers.packed.size() == 1) return numbers.packed[0];
  return std::nullopt;
}

std::int64_t number_in(const TensorProto& proto, const char* key, std::int64_t otherwise) {
  const auto found = proto.external_data.find(key);
  if (found == proto.external_data.end()) return otherwise;
  std::int64_t value = -1;
  const std::string& text = found->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) {
    fail("The {} ({}) of the external data of tensor ({}) is no size.", key, text, proto.name);
  }
  return value;
}

bool lies_in(const std::filesystem::path& file, const std::filesystem::path& folder) {
  const auto relative = file.lexically_relative(folder);
  return !relative.empty() && relative.is_relative() && *relative.begin() != "..";
}

}  // namespace

std::int64_t checked_elements(const std::vector<std::int64_t>& dims, const std::string& what) {
  std::int64_t elements = 1;
  bool zero = false;
  for (const std::int64_t dim : dims) {
    if (dim < 0) fail("{} has a negative dim ({}).", what, dim);
    zero = zero || dim == 0;
    if (dim > 0 && elements > (std::int64_t{1} << 46) / dim) fail("{} has too large dims.", what);
    if (dim > 0) elements *= dim;
  }
  return zero ? 0 : elements;
}

ByteSpan TensorSource::external(const TensorProto& proto, const Bytes*& owner) {
  namespace fs = std::filesystem;
  const auto found = proto.external_data.find("location");
  if (found == proto.external_data.end()) {
    fail("The external tensor ({}) names no file.", proto.name);
  }
  const std::string& location = found->second;
  if (folder_.empty()) {
    fail("The tensor ({}) lies in another file ({}); a model from memory cannot have such.",
         proto.name, location);
  }
  auto file = files_.find(location);
  if (file == files_.end()) {
    std::error_code error;
    const fs::path folder = fs::canonical(folder_, error);
    const fs::path path = error ? fs::path() : fs::canonical(folder / location, error);
    if (location.empty() || fs::path(location).is_absolute() || error || !lies_in(path, folder) ||
        !lies_in((folder / location).lexically_normal(), folder)) {
      fail("The data file ({}) of tensor ({}) is not in the model's folder ({}).", location,
           proto.name, folder_.string());
    }
    file = files_.emplace(location, importing::map_file(path)).first;
  }
  owner = &file->second;
  const auto offset = static_cast<std::uint64_t>(number_in(proto, "offset", 0));
  const std::uint64_t size = owner->size();
  const std::uint64_t rest = offset <= size ? size - offset : 0;
  const auto length =
      static_cast<std::uint64_t>(number_in(proto, "length", static_cast<std::int64_t>(rest)));
  if (offset > size || length > rest) {
    fail("The tensor ({}) reaches beyond the end of its data file ({}).", proto.name, location);
  }
  return owner->span().subspan(offset, length);
}

Tensor TensorSource::load(const TensorProto& proto, bool any_alignment) {
  const std::string what = "The tensor (" + proto.name + ")";
  const auto dtype = dtype_of_element(proto.data_type);
  if (!dtype) fail_unsupported("{} has the type {}.", what, element_name(proto.data_type));
  if (proto.segmented) fail_unsupported("{} comes in segments.", what);
  const std::int64_t elements = checked_elements(proto.dims, what);
  if (elements == 0) return {*dtype, proto.dims};
  const auto inside = one_piece(proto, *dtype);
  if (!proto.external && !inside) return from_numbers(proto, *dtype, elements);
  const Bytes* owner = &model_;
  const ByteSpan stored = proto.external ? external(proto, owner) : *inside;
  if (stored.size() != stored_size(*dtype, elements)) {
    fail("{} holds {} bytes and its dims want {}.", what, stored.size(),
         stored_size(*dtype, elements));
  }
  return from_stored(*dtype, proto.dims, stored, *owner, any_alignment);
}

}  // namespace rlx::onnx
