// Philox4x32-10, a counter-based random generator: Salmon et al., "Parallel random numbers: as easy
// as 1, 2, 3" (2011).
#pragma once

#include <array>
#include <cstdint>

namespace rlx {

inline constexpr std::uint32_t philox_multiplier[2] = {0xD2511F53, 0xCD9E8D57};
inline constexpr std::uint32_t philox_key_step[2] = {0x9E3779B9, 0xBB67AE85};
inline constexpr int philox_rounds = 10;

/// Four random words for a counter and a key.
constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                              std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < philox_rounds; ++round) {
    const std::uint64_t a = std::uint64_t{philox_multiplier[0]} * counter[0];
    const std::uint64_t b = std::uint64_t{philox_multiplier[1]} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key = {key[0] + philox_key_step[0], key[1] + philox_key_step[1]};
  }
  return counter;
}

}  // namespace rlx
