// How devices run the ops of the table: what `rlx ops` shows.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rlx/runtime.hpp"

namespace rlx {

/// How a device runs an op, told by planning the samples that the op declares.
enum class OpRoute : std::uint8_t {
  kernels,  ///< kernels alone, generated or of the library
  mixed,    ///< kernels for some samples, reference evaluation on one host thread for others
  host,     ///< reference evaluation on one host thread
  between,  ///< evaluated between the parts of a program: data decides the dims
  none,     ///< a leaf, which computes nothing, or an op without samples
};
std::string_view name_of(OpRoute route);

struct OpSupport {
  std::string op;
  OpRoute route = OpRoute::none;
  std::string reason;  ///< a sentence; empty where kernels run all samples
};

/// One entry for each op of the table, in its order. Plans, but makes no code. Errors:
/// not_available for a device that is not there.
Result<std::vector<OpSupport>> op_support(Device device);

}  // namespace rlx
