// How the rows of a chain are cut into work items and register blocks, and where its contractions
// find their columns. Plain data: no LLVM here.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "codegen/llvm/contraction_plan.hpp"

namespace rlx::codegen {

/// Rows of an item as register blocks: tall ones, then others with a row less.
struct RowCut {
  std::int64_t height = 1, tall_blocks = 0, short_blocks = 0;
};
RowCut cut_rows(std::int64_t rows, std::int64_t most);

/// Work items of a chain: so many rows each, the last of each batch what is left.
struct ChainPlan {
  std::int64_t batches = 1, rows = 1;
  std::int64_t group_rows = 1, groups = 1;

  std::int64_t items() const { return batches * groups; }
  std::int64_t last_rows() const { return rows - (groups - 1) * group_rows; }
};

/// The plan of a contraction that is part of a chain; it must be at least 1 everywhere.
ContractionPlan plan_stage(const loop::Contraction& contraction,
                           std::span<const loop::Buffer> buffers, const PlanMachine& machine);

/// The panel of a column block of a B that is copied; whether the panels of all of them stay until
/// a worker's next item has another B.
std::int64_t panel_bytes(const ContractionPlan& stage, DType accumulator);
bool keeps_panels(const ContractionPlan& stage, DType accumulator);

/// The blocks of an item of so many rows ask for the panel behind theirs, if anybody does.
void share_asking(ContractionPlan& stage, std::int64_t rows);

ChainPlan plan_chain(const loop::Chain& chain, std::span<const loop::Buffer> buffers,
                     const PlanMachine& machine);
/// The same with the stages' plans; `first`: null where the first contraction multiplies nothing.
ChainPlan plan_chain(std::span<const loop::Buffer> buffers, const ContractionPlan* first,
                     const ContractionPlan& second);

/// Whether powers of a softmax that may be hidden (by a mask, by an order) stand between the
/// contractions: those that are zero behind the last one of an item's rows need no product.
bool hides_columns(const loop::Chain& chain);

/// Scores that are stored as a constant wherever a mask of bools is false, whatever they are: those
/// behind the last true element of an item's rows need no product.
struct HiddenScores {
  std::int32_t mask = -1;  ///< an access
  double value = 0;
};
std::optional<HiddenScores> find_hidden_scores(const loop::Contraction& first,
                                               std::span<const loop::Buffer> buffers);

/// exp(x - max) over whole rows, and 1 / sum of them by row. All buffers are local.
struct SoftmaxRows {
  struct Rows {
    std::int32_t buffer = -1;
    std::int64_t offset = 0, row_elements = 0;  ///< the latter from row to row
  };
  Rows values;  ///< f32
  Rows powers;  ///< the same place, or rounded to bf16 or f16 elsewhere
  DType powers_dtype = DType::f32;
  std::int32_t factors_buffer = -1;  ///< f32
  std::int64_t factors_offset = 0;
  std::int64_t columns = 0;
};

/// The nest as such rows, where it is nothing else and a row's last register lies within the row.
/// `rows`: how many there are in all.
std::optional<SoftmaxRows> find_softmax_rows(const loop::Nest& nest,
                                             std::span<const loop::Buffer> buffers,
                                             const Machine& machine, std::int64_t rows);

}  // namespace rlx::codegen
