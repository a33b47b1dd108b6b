// The contractions family.
#include "graph/rules.hpp"
#include "ops/families.hpp"

namespace rlx {

OpList matmul_ops() { return {}; }

}  // namespace rlx
