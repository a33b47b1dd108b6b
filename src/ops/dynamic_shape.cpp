// The dynamic shapes family.
#include "graph/rules.hpp"
#include "ops/families.hpp"

namespace rlx {

OpList dynamic_shape_ops() { return {}; }

}  // namespace rlx
