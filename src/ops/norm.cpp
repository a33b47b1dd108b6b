// The normalisations, softmax family.
#include "graph/rules.hpp"
#include "ops/families.hpp"

namespace rlx {

OpList norm_ops() { return {}; }

}  // namespace rlx
