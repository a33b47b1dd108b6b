// The protocol buffers wire format, read in place: fields of a message one after the other.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "import/fail.hpp"

namespace rlx::importing {

/// One field: a number and a payload in one of the four kinds that files use.
struct WireField {
  enum class Kind : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };
  std::uint32_t number = 0;
  Kind kind = Kind::varint;
  std::uint64_t scalar = 0;              ///< varint, fixed64 or fixed32
  std::span<const std::byte> payload{};  ///< bytes
};

/// Walks over the fields of a message. Every read is checked; throws where the bytes end early or
/// mean nothing.
class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool done() const { return position_ == bytes_.size(); }

  WireField next() {
    const std::uint64_t tag = varint();
    WireField field;
    field.number = static_cast<std::uint32_t>(tag >> 3);
    field.kind = static_cast<WireField::Kind>(tag & 7);
    if (field.number == 0 || tag >> 32 != 0) fail("The bytes are no protocol buffers message.");
    switch (field.kind) {
      case WireField::Kind::varint: field.scalar = varint(); break;
      case WireField::Kind::fixed64: field.scalar = fixed<std::uint64_t>(); break;
      case WireField::Kind::fixed32: field.scalar = fixed<std::uint32_t>(); break;
      case WireField::Kind::bytes: field.payload = take(varint()); break;
      default: fail("The bytes hold a field of an unknown kind ({}).", tag & 7);
    }
    return field;
  }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (done()) fail("The message ends in the middle of a number.");
      const auto byte = static_cast<std::uint64_t>(bytes_[position_++]);
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    fail("The message holds a number of more than ten bytes.");
  }

  template <class T>
  T fixed() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }

 private:
  std::span<const std::byte> take(std::uint64_t size) {
    if (size > bytes_.size() - position_) {
      fail("The message ends early: {} bytes are announced, {} are there.", size,
           bytes_.size() - position_);
    }
    const auto part = bytes_.subspan(position_, static_cast<std::size_t>(size));
    position_ += static_cast<std::size_t>(size);
    return part;
  }

  std::span<const std::byte> bytes_;
  std::size_t position_ = 0;
};

}  // namespace rlx::importing
