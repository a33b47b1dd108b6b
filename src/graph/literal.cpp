// Literals of the text form, both ways.
#include "graph/literal.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstring>

#include "base/half.hpp"

namespace rlx::literal {
namespace {

template <class T>
bool read_number(std::string_view text, T& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

template <class T>
T load(const std::byte* data, std::int64_t index) {
  T value;
  std::memcpy(&value, data + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void store(std::byte* data, std::int64_t index, T value) {
  std::memcpy(data + static_cast<std::size_t>(index) * sizeof(T), &value, sizeof(T));
}

template <class T>
bool read_element(std::string_view text, std::byte* data, std::int64_t index) {
  T value{};
  if (!read_number(text, value)) return false;
  store(data, index, value);
  return true;
}

template <class Narrow>
bool read_narrow(std::string_view text, std::byte* data, std::int64_t index) {
  float value = 0;
  if (!read_number(text, value)) return false;
  store(data, index, Narrow(value).bits);
  return true;
}

template <class T>
bool read_within(std::string_view text, T low, T high, std::byte* data, std::int64_t index) {
  T value{};
  if (!read_number(text, value) || value < low || value > high) return false;
  store(data, index, value);
  return true;
}

template <class Narrow>
std::string narrow_text(const std::byte* data, std::int64_t index) {
  return fmt::format("{}", to_float(Narrow::from_bits(load<decltype(Narrow::bits)>(data, index))));
}

std::string element_text(DType dtype, const std::byte* data, std::int64_t index) {
  switch (dtype) {
    case DType::f32:
    case DType::c64: return fmt::format("{}", load<float>(data, index));
    case DType::f64:
    case DType::c128: return fmt::format("{}", load<double>(data, index));
    case DType::f16: return narrow_text<Half>(data, index);
    case DType::bf16: return narrow_text<BFloat16>(data, index);
    case DType::f8e4m3fn: return narrow_text<Float8E4M3FN>(data, index);
    case DType::f8e5m2: return narrow_text<Float8E5M2>(data, index);
    case DType::f8e4m3fnuz: return narrow_text<Float8E4M3FNUZ>(data, index);
    case DType::f8e5m2fnuz: return narrow_text<Float8E5M2FNUZ>(data, index);
    case DType::f4e2m1: return narrow_text<Float4E2M1>(data, index);
    case DType::i8:
    case DType::i4:
    case DType::i2: return fmt::format("{}", int{load<std::int8_t>(data, index)});
    case DType::u8:
    case DType::u4:
    case DType::u2: return fmt::format("{}", int{load<std::uint8_t>(data, index)});
    case DType::i16: return fmt::format("{}", load<std::int16_t>(data, index));
    case DType::u16: return fmt::format("{}", load<std::uint16_t>(data, index));
    case DType::i32: return fmt::format("{}", load<std::int32_t>(data, index));
    case DType::u32: return fmt::format("{}", load<std::uint32_t>(data, index));
    case DType::i64: return fmt::format("{}", load<std::int64_t>(data, index));
    case DType::u64: return fmt::format("{}", load<std::uint64_t>(data, index));
    case DType::boolean: return load<std::uint8_t>(data, index) ? "true" : "false";
  }
  return {};
}

constexpr std::string_view alphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (c == '\n') {
      result += "\\n";
    } else if (byte < 0x20 || byte > 0x7e) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += c;
    }
  }
  return result + '"';
}

std::string number(double value) { return value != value ? "nan" : fmt::format("{}", value); }

int components(DType dtype) { return is_complex(dtype) ? 2 : 1; }

bool store_element(DType dtype, std::string_view text, std::byte* data, std::int64_t index) {
  switch (dtype) {
    case DType::f32:
    case DType::c64: return read_element<float>(text, data, index);
    case DType::f64:
    case DType::c128: return read_element<double>(text, data, index);
    case DType::f16: return read_narrow<Half>(text, data, index);
    case DType::bf16: return read_narrow<BFloat16>(text, data, index);
    case DType::f8e4m3fn: return read_narrow<Float8E4M3FN>(text, data, index);
    case DType::f8e5m2: return read_narrow<Float8E5M2>(text, data, index);
    case DType::f8e4m3fnuz: return read_narrow<Float8E4M3FNUZ>(text, data, index);
    case DType::f8e5m2fnuz: return read_narrow<Float8E5M2FNUZ>(text, data, index);
    case DType::f4e2m1: return read_narrow<Float4E2M1>(text, data, index);
    case DType::i8: return read_element<std::int8_t>(text, data, index);
    case DType::u8: return read_element<std::uint8_t>(text, data, index);
    case DType::i4: return read_within<std::int8_t>(text, -8, 7, data, index);
    case DType::i2: return read_within<std::int8_t>(text, -2, 1, data, index);
    case DType::u2: return read_within<std::uint8_t>(text, 0, 3, data, index);
    case DType::u4: return read_within<std::uint8_t>(text, 0, 15, data, index);
    case DType::i16: return read_element<std::int16_t>(text, data, index);
    case DType::u16: return read_element<std::uint16_t>(text, data, index);
    case DType::i32: return read_element<std::int32_t>(text, data, index);
    case DType::u32: return read_element<std::uint32_t>(text, data, index);
    case DType::i64: return read_element<std::int64_t>(text, data, index);
    case DType::u64: return read_element<std::uint64_t>(text, data, index);
    case DType::boolean:
      if (text != "true" && text != "false") return false;
      store<std::uint8_t>(data, index, text == "true");
      return true;
  }
  return false;
}

std::optional<std::vector<std::string>> element_texts(const Tensor& tensor) {
  const std::int64_t count = tensor.elements() * components(tensor.dtype());
  const std::size_t width = count ? tensor.bytes() / static_cast<std::size_t>(count) : 0;
  std::vector<std::string> texts;
  for (std::int64_t i = 0; i < count; ++i) {
    texts.push_back(element_text(tensor.dtype(), tensor.data(), i));
    std::byte back[8] = {};
    const std::byte* original = tensor.data() + static_cast<std::size_t>(i) * width;
    if (!store_element(tensor.dtype(), texts.back(), back, 0) ||
        std::memcmp(back, original, width) != 0) {
      return std::nullopt;
    }
  }
  return texts;
}

std::string base64(const std::byte* data, std::size_t bytes) {
  std::string text;
  text.reserve((bytes + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes; i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      group = group << 8 | (i + k < bytes ? std::to_integer<std::uint32_t>(data[i + k]) : 0);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      const bool padding = i + k > bytes;
      text += padding ? '=' : alphabet[group >> (18 - 6 * k) & 63];
    }
  }
  return text;
}

std::optional<std::vector<std::byte>> bytes_of_base64(std::string_view text) {
  if (text.size() % 4) return std::nullopt;
  std::vector<std::byte> bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (std::size_t i = 0; i < text.size(); i += 4) {
    std::uint32_t group = 0;
    std::size_t kept = 3;
    for (std::size_t k = 0; k < 4; ++k) {
      const char c = text[i + k];
      const std::size_t digit = alphabet.find(c);
      const bool padding =
          c == '=' && i + 4 == text.size() && k >= 2 && (k == 3 || text[i + 3] == '=');
      if (digit == std::string_view::npos && !padding) return std::nullopt;
      if (padding) --kept;
      group = group << 6 | (padding ? 0 : static_cast<std::uint32_t>(digit));
    }
    for (std::size_t k = 0; k < kept; ++k) {
      bytes.push_back(static_cast<std::byte>(group >> (16 - 8 * k) & 255));
    }
  }
  return bytes;
}

}  // namespace rlx::literal
