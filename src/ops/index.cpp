// The gather, scatter family.
#include "graph/rules.hpp"
#include "ops/families.hpp"

namespace rlx {

OpList index_ops() { return {}; }

}  // namespace rlx
