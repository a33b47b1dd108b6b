// Hashing: a strong digest that names content (BLAKE2b), and a quick one for checksums (XXH64).
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace rlx {

/// 256 bits that name a piece of content.
struct Digest {
  std::array<std::uint8_t, 32> bytes{};

  auto operator<=>(const Digest&) const = default;

  /// 64 lower-case hexadecimal digits.
  std::string hex() const;
};

/// BLAKE2b-256 without a key (RFC 7693), fed piece by piece.
class Hasher {
 public:
  Hasher();

  Hasher& add(std::span<const std::byte> bytes);
  Hasher& add(std::string_view text);

  /// Length first, so that neighbouring fields cannot be mistaken for each other.
  Hasher& add_field(std::string_view text);
  Hasher& add_field(std::uint64_t number);

  /// Once.
  Digest finish();

 private:
  void compress(bool last);

  std::array<std::uint64_t, 8> state_;
  std::array<std::uint8_t, 128> block_;
  std::size_t filled_ = 0;
  std::uint64_t total_ = 0;
};

Digest digest(std::span<const std::byte> bytes);
Digest digest(std::string_view text);

/// XXH64 of the bytes: quick, for checksums against damage and for tables in memory; never for
/// naming content.
std::uint64_t quick_hash(std::span<const std::byte> bytes, std::uint64_t seed = 0);
std::uint64_t quick_hash(std::string_view text, std::uint64_t seed = 0);

struct DigestHash {
  /// A digest is uniformly distributed: any eight bytes of it do.
  std::size_t operator()(const Digest& digest) const {
    std::size_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | digest.bytes[i];
    return value;
  }
};

}  // namespace rlx
