// How attention and rotary embeddings lay out their operands.
#pragma once

namespace rlx {

/// Where heads and sequence of an operand lie: axes of [B, H, S, D] or [B, S, H, D].
struct HeadAxes {
  int heads, sequence;
  explicit HeadAxes(bool bshd) : heads(bshd ? 2 : 1), sequence(bshd ? 1 : 2) {}
};

}  // namespace rlx
