// Decides how rows that lanes run along are made: one by one, or each pass for a block of them.
#include <algorithm>

#include "codegen/llvm/nest_plan.hpp"

namespace rlx::codegen {

/// Rows of few vectors wait for their own sums: where that takes longer than their work, passes are
/// made for blocks of rows. With `rows` nothing says how many there will be at once: rows of more
/// than one vector are joined alone.
void plan_rows(NestPlan& plan, bool rows) {
  const loop::Nest& nest = plan.nest;
  if (!plan.vector_is_reduced() || plan.levels == 0 || nest.parallel_dims == nest.lead) return;
  const std::int64_t there = nest.extents[static_cast<std::size_t>(plan.row_dim())];
  if (there < 2 || (rows && nest.parallel_dims > 1)) return;
  // Cycles that a pass waits at its end, those of a long operation; instructions in a cycle.
  constexpr double join_cycles = 110, operation_cycles = 90, rate = 2.5;
  constexpr double most_instructions = 800;
  constexpr std::int64_t points_of_block = 2048;
  double instructions = 0, wait = join_cycles * (plan.levels + 1);
  for (std::size_t i = 0; i < nest.nodes.size(); ++i) {
    const int cost = cost_of(nest.nodes[i]);
    if (cost > 1) wait += std::min(2.25 * cost, operation_cycles);
    if (plan.node_dims[i] & plan.reduced_dims()) instructions += cost + 1;
  }
  const auto lanes = static_cast<std::int64_t>(plan.lanes);
  const std::int64_t extent = nest.extents[static_cast<std::size_t>(plan.vector_dim)];
  const std::int64_t vectors = extent / lanes, unroll = plan.unroll, tail = extent % lanes != 0;
  const std::int64_t outer = plan.points(nest.parallel_dims, plan.vector_dim);
  const std::int64_t row = outer * std::max<std::int64_t>(vectors + tail, 1);
  if (instructions / rate * static_cast<double>(row) >= wait) return;
  // The bodies of the loops over a row: rounds, single vectors, the tail.
  const std::int64_t bodies = (vectors >= unroll ? unroll : 0) + (vectors % unroll != 0) + tail;
  const double code = std::max(static_cast<double>(bodies) * instructions, 1.0);
  // Joins are little beside the work of rows of many vectors, and several loops run worse than one.
  const bool alone = (rows && row > 1) || vectors > 8;
  const std::int64_t most = alone ? 1 : std::min<std::int64_t>(bodies == 1 ? 8 : 4, there);
  while (2 * plan.rows <= most && 2 * plan.rows * code <= most_instructions) {
    plan.rows *= 2;
  }
  plan.any_rows = rows;
  // A group at the end that reaches back computes rows twice.
  auto computed = [&] { return (there + plan.rows - 1) / plan.rows * plan.rows; };
  while (20 * computed() > 23 * there) plan.rows /= 2;
  const std::int64_t group = plan.rows;
  const std::int64_t fitting = points_of_block / std::max<std::int64_t>(outer * extent, 1);
  auto rest = [&] { return there % plan.row_block; };
  plan.row_block = std::max<std::int64_t>((fitting + group - 1) / group, 1) * group;
  // A block at the end holds a whole group.
  while (plan.row_block < there && rest() != 0 && rest() < group) plan.row_block += group;
  plan.row_block = std::min(plan.row_block, there);
}

}  // namespace rlx::codegen
