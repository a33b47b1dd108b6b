// The control flow family.
#include "graph/rules.hpp"
#include "ops/families.hpp"

namespace rlx {

OpList control_ops() { return {}; }

}  // namespace rlx
