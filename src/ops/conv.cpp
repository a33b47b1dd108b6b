// The convolutions, pools family.
#include "graph/rules.hpp"
#include "ops/families.hpp"

namespace rlx {

OpList conv_ops() { return {}; }

}  // namespace rlx
