// A 5 x 7 font of ASCII (descenders in an eighth row).
#pragma once

#include <array>
#include <cstdint>

namespace rlx::picture {

/// Five columns, the upper row in bit 0; a box for what is no printable ASCII.
const std::array<std::uint8_t, 5>& glyph_of(char c);

}  // namespace rlx::picture
