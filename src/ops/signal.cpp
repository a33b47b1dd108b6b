// The signal family.
#include "graph/rules.hpp"
#include "ops/families.hpp"

namespace rlx {

OpList signal_ops() { return {}; }

}  // namespace rlx
