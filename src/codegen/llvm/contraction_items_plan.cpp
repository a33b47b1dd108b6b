// Work items of contractions: how many rows and columns a worker takes at once, and in which order.
#include <algorithm>

#include "codegen/llvm/contraction_plan.hpp"

namespace rlx::codegen {
namespace {

constexpr std::int64_t l2_share = 512 * 1024;

/// Operations of an item that is long enough beside its call. Tiles make many times more of them.
std::int64_t least_operations_of_item(const ContractionPlan& plan, bool halves = false) {
  constexpr std::int64_t of_tiles = 8;
  return (halves ? 500'000 : 200'000) * (plan.tile_steps > 0 ? of_tiles : 1);
}

/// Groups of segments: enough to balance, long enough beside the call.
void plan_line_items(ContractionPlan& plan) {
  constexpr std::int64_t wanted_items = 64;
  const std::int64_t least_operations = least_operations_of_item(plan);
  const std::int64_t operations = 2 * plan.rows * plan.columns * plan.depth;
  const std::int64_t least = (least_operations + operations - 1) / operations;
  const std::int64_t groups = std::max<std::int64_t>(1, wanted_items / plan.batches);
  const std::int64_t segments = plan.line.segments;
  plan.group_blocks = std::min(segments, std::max(least, (segments + groups - 1) / groups));
  plan.row_groups = (segments + plan.group_blocks - 1) / plan.group_blocks;
  plan.work_items = plan.batches * plan.row_groups;
}

/// Of a row of A. Neighbouring taps of a convolution read the same elements.
std::int64_t row_bytes(const ContractionPlan& plan, DType a_dtype) {
  const AddressDim& inner = plan.k.back();
  return (inner.a == 1 ? inner.extent : plan.depth) * static_cast<std::int64_t>(size_of(a_dtype));
}

std::int64_t matrix_bytes(const ContractionPlan& plan, DType b_dtype) {
  return plan.batches * plan.columns * plan.depth * static_cast<std::int64_t>(size_of(b_dtype));
}

/// Whether workers share out the rows instead of the columns. The steps around share rows out as
/// well, so what a worker reads lies in its own cache; with columns shared out all but its part of
/// A comes out of the others' caches, which costs several times as much as the shared one, above
/// all where the system has put the workers far apart. The price is that each walks over all of B.
bool rows_outermost(const loop::Contraction& contraction, DType a_dtype, DType b_dtype,
                    const PlanMachine& machine, const ContractionPlan& plan) {
  constexpr std::int64_t least_blocks = 4;  // else the group in the middle is too much
  if (!contraction.b_packed || plan.whole_rows || plan.batches * plan.column_blocks == 1 ||
      plan.row_blocks < least_blocks)
    return false;
  const std::int64_t a_bytes = plan.batches * plan.rows * row_bytes(plan, a_dtype);
  const std::int64_t b_bytes = matrix_bytes(plan, b_dtype);
  // Products of tiles were not measured.
  const std::int64_t columns_for_a_row =
      most_columns_for_a_row(machine.large_l2 && plan.tile_steps == 0);
  if (b_bytes <= std::min(columns_for_a_row * a_bytes, l2_share)) return true;
  // A torn line costs some 60 ns, in which 1 to 2 KB of B arrive from L2.
  constexpr std::int64_t for_a_line = 1024;
  if (b_bytes <= std::min(plan.batches * plan.rows * for_a_line, l2_share) &&
      tears_lines(contraction))
    return true;
  if (machine.large_l2 && b_bytes <= std::min(a_bytes / 2, 2 * l2_share)) return true;
  // An A that comes from memory is walked once for each column block; or B once for each part of A
  // that stays in L2.
  constexpr std::int64_t from_memory = 8 * 1024 * 1024;
  const std::int64_t parts = (a_bytes + l2_share - 1) / l2_share;
  return plan.batches == 1 && a_bytes >= from_memory &&
         b_bytes * parts <= a_bytes * (plan.column_blocks - 1);
}

/// What all rows read of A: windows reach each place again and again, and those with strides more
/// places than there are rows.
std::int64_t reached_bytes(const ContractionPlan& plan, DType a_dtype) {
  std::int64_t span = 1;
  for (const std::vector<AddressDim>* dims : {&plan.m, &plan.k})
    for (const AddressDim& dim : *dims) span += (dim.extent - 1) * std::abs(dim.a);
  return std::min(span, plan.rows * plan.depth) * static_cast<std::int64_t>(size_of(a_dtype));
}

/// Whether workers share out two halves of the rows where rows_outermost() does not: the half of A
/// that the other worker made would be waited for line by line, and of a B that L2 does not hold
/// each panel is asked for while the one before it is walked over.
bool in_halves(const loop::Contraction& contraction, DType a_dtype, DType b_dtype,
               const ContractionPlan& plan) {
  constexpr std::int64_t least_blocks = 48, mib = 1024 * 1024, most_b = 16 * mib;
  if (plan.tile_steps > 0 || !contraction.b_packed || plan.whole_rows) return false;
  return plan.batches == 1 && plan.column_blocks > 1 && plan.row_blocks >= least_blocks &&
         reached_bytes(plan, a_dtype) >= mib && matrix_bytes(plan, b_dtype) <= most_b;
}

/// Row groups so that sixteen workers balance, but an item stays long beside its overhead.
void plan_row_items(const loop::Contraction& contraction, DType a_dtype, DType b_dtype,
                    const PlanMachine& machine, ContractionPlan& plan) {
  plan.whole_rows = !contraction.row_epilogue.nodes.empty();
  plan.rows_outermost = rows_outermost(contraction, a_dtype, b_dtype, machine, plan);
  plan.in_halves = !plan.rows_outermost && in_halves(contraction, a_dtype, b_dtype, plan);
  if (plan.in_halves) {
    plan.rows_outermost = true;
    plan.row_groups = 2;
    plan.group_blocks = (plan.row_blocks + 1) / 2;
    plan.work_items = plan.row_groups * plan.column_blocks;
    return;
  }
  // Each group of whole rows copies all of an unpacked B, so there should be few of them.
  const bool copies = plan.whole_rows && plan.column_source == ColumnSource::scratch;
  const std::int64_t wanted_items = copies ? 16 : 64;
  const std::int64_t columns = plan.whole_rows ? plan.columns : plan.block_columns;
  const std::int64_t others = plan.batches * (plan.whole_rows ? 1 : plan.column_blocks);
  // Columns that fall into two halves need no groups of rows beside them.
  const bool halves = others % 2 == 0 && !plan.rows_outermost;
  const std::int64_t least_operations = least_operations_of_item(plan, halves);
  const std::int64_t block_operations =
      2 * plan.block_rows * columns * std::max<std::int64_t>(plan.depth, 1);
  const std::int64_t least_blocks = (least_operations + block_operations - 1) / block_operations;
  std::int64_t groups = (wanted_items + others - 1) / others;
  if (plan.whole_rows) {
    // Two blocks, or four short ones, share one walk over B, unless that leaves too few items. A B
    // that the programs around push out of L2 arrives during the first walk, which is to be long.
    const bool arrives = matrix_bytes(plan, b_dtype) > l2_share && !copies;
    std::int64_t most_groups = plan.row_blocks, least = arrives ? 2 : 8;
    for (std::int64_t shared = arrives || machine.registers < 32 ? 4 : 2; shared > 1;
         shared /= 2, least = std::max<std::int64_t>(least / 2, 2)) {
      const std::int64_t sharing = (plan.row_blocks + shared - 1) / shared;
      if (sharing * others < least) continue;
      most_groups = sharing;
      break;
    }
    groups = std::min(groups, most_groups);
    constexpr std::int64_t cached_elements = 65536;
    const std::int64_t most_rows = std::max<std::int64_t>(1, cached_elements / plan.columns);
    groups = std::max(groups, (plan.rows + most_rows - 1) / most_rows);
  }
  groups = std::clamp<std::int64_t>(groups, 1, plan.row_blocks);
  plan.group_blocks = (plan.row_blocks + groups - 1) / groups;
  if (plan.rows_outermost) {
    // The group in the middle falls to two workers: many groups make it a small one.
    constexpr std::int64_t wanted_groups = 16;
    plan.group_blocks =
        std::min(plan.group_blocks, (plan.row_blocks + wanted_groups - 1) / wanted_groups);
    plan.group_blocks =
        std::max(plan.group_blocks, std::min(least_blocks, (plan.row_blocks + 7) / 8));
    if (matrix_bytes(plan, b_dtype) > l2_share) {
      const std::int64_t held = l2_share / (plan.block_rows * row_bytes(plan, a_dtype));
      plan.group_blocks = std::clamp<std::int64_t>(held, 1, plan.group_blocks);
    }
  } else if (!plan.whole_rows) {
    plan.group_blocks = std::max(plan.group_blocks, least_blocks);
  }
  plan.group_blocks = std::min(plan.group_blocks, plan.row_blocks);
  plan.row_groups =
      plan.whole_rows ? groups : (plan.row_blocks + plan.group_blocks - 1) / plan.group_blocks;
  // An odd one out would keep one of two workers waiting.
  if (!copies && plan.row_groups > 1 && others * plan.row_groups % 2 == 1)
    plan.row_groups = std::min(plan.row_groups + 1, plan.row_blocks);
  plan.work_items = plan.row_groups * others;
}

}  // namespace

bool tears_lines(const loop::Contraction& contraction) {
  constexpr std::int64_t line = 64;
  const auto size = static_cast<std::int64_t>(size_of(contraction.accumulator));
  return std::ranges::any_of(contraction.stores, [&](const loop::Store& store) {
    const std::vector<std::int64_t>& strides = store.access.strides;  // (batch..., m..., n)
    return strides.size() > 1 && strides.back() == 1 &&
           strides[strides.size() - 2] * size % line != 0;
  });
}

void plan_items(const loop::Contraction& contraction, DType a_dtype, DType b_dtype,
                const PlanMachine& machine, ContractionPlan& plan) {
  if (plan.line.segments > 0) return plan_line_items(plan);
  plan_row_items(contraction, a_dtype, b_dtype, machine, plan);
}

}  // namespace rlx::codegen
