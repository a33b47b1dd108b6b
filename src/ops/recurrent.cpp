// The LSTM, GRU, RNN family.
#include "graph/rules.hpp"
#include "ops/families.hpp"

namespace rlx {

OpList recurrent_ops() { return {}; }

}  // namespace rlx
