// Nets of a few random layers, of images or of sequences, the same for the same seed.
#pragma once

#include <cstdint>

#include "rlx/rlx.hpp"

namespace rlx::testing {

enum class NetKind : std::uint8_t { image, sequence };

/// Small ones are quick for the reference, which takes elements one by one; large ones fill caches
/// and keep two threads busy.
enum class NetSize : std::uint8_t { small, large };

/// Layers of all forms whose results stay about as large as their inputs: one input, one to three
/// outputs of f32.
Graph random_net(NetKind kind, NetSize size, unsigned seed);

}  // namespace rlx::testing
