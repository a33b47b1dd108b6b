// The random family.
#include "graph/rules.hpp"
#include "ops/families.hpp"

namespace rlx {

OpList random_ops() { return {}; }

}  // namespace rlx
