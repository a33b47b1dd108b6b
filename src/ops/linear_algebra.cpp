// The linear algebra family.
#include "graph/rules.hpp"
#include "ops/families.hpp"

namespace rlx {

OpList linear_algebra_ops() { return {}; }

}  // namespace rlx
