// Where data lies before a kernel reads it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rlx::cost {

enum class Level : std::uint8_t { l1, l2, l3, memory };
inline constexpr std::size_t level_count = 4;

}  // namespace rlx::cost
