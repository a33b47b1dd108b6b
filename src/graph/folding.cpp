// Which constants are not folded.
#include "rlx/folding.hpp"

#include "rlx/ops.hpp"

namespace rlx {

bool stays_quantised(const Node& node) {
  return node.op.is<op::Dequantize>() && node.results[0].is_static() &&
         node.results[0].rank() > 1 && node.results[0].elements() > 1;
}

}  // namespace rlx
