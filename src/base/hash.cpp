// BLAKE2b with a 256-bit result, after RFC 7693, and XXH64, after its published specification.
#include "base/hash.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace rlx {
namespace {

constexpr std::array<std::uint64_t, 8> initial{
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};

constexpr std::uint8_t order[10][16] = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                                        {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
                                        {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
                                        {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
                                        {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
                                        {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
                                        {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
                                        {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
                                        {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
                                        {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

constexpr std::size_t block_bytes = 128;

/// Numbers are stored with their lowest byte first, on any machine.
template <class T>
T load_as(const void* place) {
  T value = 0;
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(&value, place, sizeof(T));
  } else {
    const auto* bytes = static_cast<const std::uint8_t*>(place);
    for (int i = sizeof(T) - 1; i >= 0; --i) value = value << 8 | bytes[i];
  }
  return value;
}

std::uint64_t load(const void* place) { return load_as<std::uint64_t>(place); }

void store(std::uint64_t value, std::uint8_t* bytes) {
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<std::uint8_t>(value >> (8 * i));
}

inline void mix(std::uint64_t* v, int a, int b, int c, int d, std::uint64_t x, std::uint64_t y) {
  v[a] += v[b] + x;
  v[d] = std::rotr(v[d] ^ v[a], 32);
  v[c] += v[d];
  v[b] = std::rotr(v[b] ^ v[c], 24);
  v[a] += v[b] + y;
  v[d] = std::rotr(v[d] ^ v[a], 16);
  v[c] += v[d];
  v[b] = std::rotr(v[b] ^ v[c], 63);
}

constexpr std::uint64_t prime_1 = 0x9e3779b185ebca87, prime_2 = 0xc2b2ae3d27d4eb4f,
                        prime_3 = 0x165667b19e3779f9, prime_4 = 0x85ebca77c2b2ae63,
                        prime_5 = 0x27d4eb2f165667c5;

std::uint64_t quick_round(std::uint64_t lane, std::uint64_t word) {
  return std::rotl(lane + word * prime_2, 31) * prime_1;
}

/// The four lanes over whole 32-byte stripes; moves `bytes` behind them.
std::uint64_t quick_stripes(std::span<const std::byte>& bytes, std::uint64_t seed) {
  std::uint64_t lanes[4] = {seed + prime_1 + prime_2, seed + prime_2, seed, seed - prime_1};
  while (bytes.size() >= 32) {
    for (int i = 0; i < 4; ++i) lanes[i] = quick_round(lanes[i], load(bytes.data() + 8 * i));
    bytes = bytes.subspan(32);
  }
  std::uint64_t hash = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) +
                       std::rotl(lanes[3], 18);
  for (const std::uint64_t lane : lanes) {
    hash = (hash ^ quick_round(0, lane)) * prime_1 + prime_4;
  }
  return hash;
}

}  // namespace

std::string Digest::hex() const {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::uint8_t byte : bytes) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

Hasher::Hasher() : state_(initial), block_{} {
  state_[0] ^= 0x01010000 ^ sizeof(Digest::bytes);  // no key, fan-out 1, depth 1, 32 bytes out
}

void Hasher::compress(bool last) {
  std::uint64_t m[16];
  for (int i = 0; i < 16; ++i) m[i] = load(block_.data() + 8 * i);
  std::uint64_t v[16];
  for (int i = 0; i < 8; ++i) {
    v[i] = state_[i];
    v[i + 8] = initial[i];
  }
  v[12] ^= total_;
  if (last) v[14] = ~v[14];
  for (int round = 0; round < 12; ++round) {
    const std::uint8_t* s = order[round % 10];
    mix(v, 0, 4, 8, 12, m[s[0]], m[s[1]]);
    mix(v, 1, 5, 9, 13, m[s[2]], m[s[3]]);
    mix(v, 2, 6, 10, 14, m[s[4]], m[s[5]]);
    mix(v, 3, 7, 11, 15, m[s[6]], m[s[7]]);
    mix(v, 0, 5, 10, 15, m[s[8]], m[s[9]]);
    mix(v, 1, 6, 11, 12, m[s[10]], m[s[11]]);
    mix(v, 2, 7, 8, 13, m[s[12]], m[s[13]]);
    mix(v, 3, 4, 9, 14, m[s[14]], m[s[15]]);
  }
  for (int i = 0; i < 8; ++i) state_[i] ^= v[i] ^ v[i + 8];
  filled_ = 0;
}

Hasher& Hasher::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    // The last block is kept back, even a full one: it is compressed in another way.
    if (filled_ == block_bytes) compress(false);
    const std::size_t count = std::min(bytes.size(), block_bytes - filled_);
    std::memcpy(block_.data() + filled_, bytes.data(), count);
    filled_ += count;
    total_ += count;
    bytes = bytes.subspan(count);
  }
  return *this;
}

Hasher& Hasher::add(std::string_view text) { return add(std::as_bytes(std::span(text))); }

Hasher& Hasher::add_field(std::string_view text) { return add_field(text.size()).add(text); }

Hasher& Hasher::add_field(std::uint64_t number) {
  std::uint8_t bytes[8];
  store(number, bytes);
  return add(std::as_bytes(std::span(bytes)));
}

Digest Hasher::finish() {
  std::memset(block_.data() + filled_, 0, block_bytes - filled_);
  compress(true);
  Digest digest;
  for (int i = 0; i < 4; ++i) store(state_[i], digest.bytes.data() + 8 * i);
  return digest;
}

Digest digest(std::span<const std::byte> bytes) { return Hasher().add(bytes).finish(); }

Digest digest(std::string_view text) { return Hasher().add(text).finish(); }

std::uint64_t quick_hash(std::span<const std::byte> bytes, std::uint64_t seed) {
  const std::uint64_t size = bytes.size();
  std::uint64_t hash = (size >= 32 ? quick_stripes(bytes, seed) : seed + prime_5) + size;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    hash = std::rotl(hash ^ quick_round(0, load(bytes.data())), 27) * prime_1 + prime_4;
  }
  if (bytes.size() >= 4) {
    hash ^= load_as<std::uint32_t>(bytes.data()) * prime_1;
    hash = std::rotl(hash, 23) * prime_2 + prime_3;
    bytes = bytes.subspan(4);
  }
  for (const std::byte byte : bytes) {
    hash = std::rotl(hash ^ std::to_integer<std::uint64_t>(byte) * prime_5, 11) * prime_1;
  }
  hash = (hash ^ hash >> 33) * prime_2;
  hash = (hash ^ hash >> 29) * prime_3;
  return hash ^ hash >> 32;
}

std::uint64_t quick_hash(std::string_view text, std::uint64_t seed) {
  return quick_hash(std::as_bytes(std::span(text)), seed);
}

}  // namespace rlx
