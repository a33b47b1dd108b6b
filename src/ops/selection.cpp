// The selection family.
#include "graph/rules.hpp"
#include "ops/families.hpp"

namespace rlx {

OpList selection_ops() { return {}; }

}  // namespace rlx
