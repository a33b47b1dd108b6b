// The reductions family.
#include "graph/rules.hpp"
#include "ops/families.hpp"

namespace rlx {

OpList reduce_ops() { return {}; }

}  // namespace rlx
