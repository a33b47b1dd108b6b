// The scatter family.
#include "graph/rules.hpp"
#include "ops/families.hpp"

namespace rlx {

OpList scatter_ops() { return {}; }

}  // namespace rlx
