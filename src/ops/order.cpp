// The sort, top-k, data-dependent results family.
#include "graph/rules.hpp"
#include "ops/families.hpp"

namespace rlx {

OpList order_ops() { return {}; }

}  // namespace rlx
