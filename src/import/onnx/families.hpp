// The families of handlers; each file ops_*.cpp gives one list.
#pragma once

#include <span>
#include <vector>

#include "import/onnx/node_context.hpp"

namespace rlx::onnx {

using OpEntries = std::span<const OpEntry>;

OpEntries elementwise_entries();
OpEntries shape_entries();
OpEntries reduce_entries();
OpEntries nn_entries();
OpEntries norm_entries();
OpEntries index_entries();

inline std::vector<OpEntries> all_families() {
  return {elementwise_entries(), shape_entries(), reduce_entries(),
          nn_entries(),          norm_entries(),  index_entries()};
}

}  // namespace rlx::onnx
