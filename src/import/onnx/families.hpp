// The families of handlers; each file ops_*.cpp gives one list.
#pragma once

#include <span>
#include <vector>

#include "import/onnx/node_context.hpp"

namespace rlx::onnx {

using OpEntries = std::span<const OpEntry>;

OpEntries elementwise_entries();
OpEntries shape_entries();
OpEntries fill_entries();
OpEntries reduce_entries();
OpEntries nn_entries();
OpEntries norm_entries();
OpEntries index_entries();
OpEntries control_entries();
OpEntries quantize_entries();
OpEntries recurrent_entries();
OpEntries loss_entries();
OpEntries attention_entries();
OpEntries linear_attention_entries();
OpEntries resize_entries();
OpEntries signal_entries();
OpEntries image_entries();
OpEntries region_entries();
OpEntries random_entries();
OpEntries einsum_entries();
OpEntries sequence_entries();
OpEntries training_entries();
OpEntries text_entries();
OpEntries quantised_contrib_entries();
OpEntries block_quantised_entries();
OpEntries fused_attention_entries();

inline std::vector<OpEntries> all_families() {
  return {elementwise_entries(),
          shape_entries(),
          fill_entries(),
          reduce_entries(),
          nn_entries(),
          norm_entries(),
          index_entries(),
          control_entries(),
          quantize_entries(),
          recurrent_entries(),
          loss_entries(),
          attention_entries(),
          linear_attention_entries(),
          resize_entries(),
          signal_entries(),
          image_entries(),
          region_entries(),
          random_entries(),
          einsum_entries(),
          sequence_entries(),
          training_entries(),
          text_entries(),
          quantised_contrib_entries(),
          block_quantised_entries(),
          fused_attention_entries()};
}

}  // namespace rlx::onnx
