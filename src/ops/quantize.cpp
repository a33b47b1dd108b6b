// The quantisation family.
#include "graph/rules.hpp"
#include "ops/families.hpp"

namespace rlx {

OpList quantize_ops() { return {}; }

}  // namespace rlx
