// The protocol buffers wire format, read in place: fields of a message one after the other.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "import/fail.hpp"

namespace rlx::importing {

/// One field: a number and a payload in one of the kinds that files use. A group, which the format
/// has given up, is read past and has no payload.
struct WireField {
  enum class Kind : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, group = 3, fixed32 = 5 };
  std::uint32_t number = 0;
  Kind kind = Kind::varint;
  std::uint64_t scalar = 0;              ///< varint, fixed64 or fixed32
  std::span<const std::byte> payload{};  ///< bytes

  /// Number and kind in one, as the format writes them. Readers switch on it: a field of a known
  /// number but another kind is an unknown field, which the format tells to pass over.
  std::uint32_t tag() const { return number << 3 | static_cast<std::uint32_t>(kind); }
};

constexpr std::uint32_t varint_tag(std::uint32_t number) { return number << 3; }
constexpr std::uint32_t fixed64_tag(std::uint32_t number) { return number << 3 | 1; }
constexpr std::uint32_t bytes_tag(std::uint32_t number) { return number << 3 | 2; }
constexpr std::uint32_t fixed32_tag(std::uint32_t number) { return number << 3 | 5; }

/// Walks over the fields of a message. Every read is checked; throws where the bytes end early or
/// mean nothing.
class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool done() const { return position_ == bytes_.size(); }

  WireField next() {
    WireField field = head();
    switch (field.kind) {
      case WireField::Kind::varint: field.scalar = varint(); break;
      case WireField::Kind::fixed64: field.scalar = fixed<std::uint64_t>(); break;
      case WireField::Kind::fixed32: field.scalar = fixed<std::uint32_t>(); break;
      case WireField::Kind::bytes: field.payload = take(varint()); break;
      case WireField::Kind::group: skip_group(field.number); break;
      default:
        fail("The bytes hold a field of an unknown kind ({}).", static_cast<int>(field.kind));
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
  static constexpr auto end_of_group = static_cast<WireField::Kind>(4);
  static constexpr std::size_t max_groups = 64;

  /// Number and kind of the field that comes.
  WireField head() {
    const std::uint64_t tag = varint();
    WireField field;
    field.number = static_cast<std::uint32_t>(tag >> 3);
    field.kind = static_cast<WireField::Kind>(tag & 7);
    if (field.number == 0 || tag >> 32 != 0) fail("The bytes are no protocol buffers message.");
    return field;
  }

  /// Reads past a group whose head was read, and the groups inside it.
  void skip_group(std::uint32_t number) {
    std::vector<std::uint32_t> open = {number};
    while (!open.empty()) {
      const std::size_t start = position_;
      const WireField field = head();
      if (field.kind == WireField::Kind::group) {
        open.push_back(field.number);
        if (open.size() > max_groups) fail("Groups are nested too deeply ({}).", open.size());
      } else if (field.kind == end_of_group) {
        if (field.number != open.back()) fail("A group ({}) does not end.", open.back());
        open.pop_back();
      } else {
        position_ = start;
        next();
      }
    }
  }

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
