// The shape family.
#include "graph/rules.hpp"
#include "ops/families.hpp"

namespace rlx {

OpList shape_ops() { return {}; }

}  // namespace rlx
