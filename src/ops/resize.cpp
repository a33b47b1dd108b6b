// The resize family.
#include "graph/rules.hpp"
#include "ops/families.hpp"

namespace rlx {

OpList resize_ops() { return {}; }

}  // namespace rlx
