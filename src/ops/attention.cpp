// The attention, rope family.
#include "graph/rules.hpp"
#include "ops/families.hpp"

namespace rlx {

OpList attention_ops() { return {}; }

}  // namespace rlx
