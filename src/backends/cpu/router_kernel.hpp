// The choice of experts for each token: the k largest logits and their weights.
#pragma once

#include <cstdint>
#include <memory>

#include "rlx/graph.hpp"
#include "signal/transform.hpp"

namespace rlx::cpu {

/// Whether router_kernel makes one for the op. `logits` is static.
bool has_router_kernel(const Op& op, const Type& logits);

/// The tokens, which workers share out.
std::int64_t router_items(const Type& logits);

/// (logits) -> (experts, weights), one work item for each token.
std::unique_ptr<signal::LineKernel> router_kernel(const Op& op, const Type& logits);

}  // namespace rlx::cpu
