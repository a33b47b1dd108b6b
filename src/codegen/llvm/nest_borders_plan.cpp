// What of a nest lies inside of the borders of what it reads, where no guard need be asked.
#include <algorithm>

#include "codegen/llvm/nest_plan.hpp"

namespace rlx::codegen {
namespace {

/// Where along `dim` the guard holds whatever the indices of the reduced dims; empty where other
/// parallel dims have a say in it.
IndexRange holds_along(const loop::Nest& nest, const loop::Guard& guard, int dim) {
  const auto at = [](int i) { return static_cast<std::size_t>(i); };
  const std::int64_t step = guard.coefficients[at(dim)];
  std::int64_t reach = 0;
  for (int other = 0; other < static_cast<int>(nest.extents.size()); ++other) {
    const std::int64_t c = guard.coefficients[at(other)];
    if (other == dim || c == 0) continue;
    if (other < nest.parallel_dims || c < 0) return {0, 0};
    reach += c * (nest.extents[at(other)] - 1);
  }
  return step < 0 ? IndexRange{} : indices_inside(guard.offset, step, reach, guard.extent);
}

/// Stores that a guard leaves out are branched over, which costs little: they are few, and each
/// block of lanes goes the same way.
std::vector<Border> borders_of_map(const NestPlan& plan) {
  constexpr int few = 4;  // guarded loads, which are not worth more code
  int guarded = 0;
  std::vector<Border> borders;
  for (const loop::Access& access : plan.nest.accesses) {
    guarded += !access.guards.empty();
    for (const loop::Guard& guard : access.guards) {
      if (guard.coefficients[static_cast<std::size_t>(plan.vector_dim)] != 0) continue;
      const auto same = std::ranges::find_if(borders, [&](const Border& border) {
        return border.extent == guard.extent && border.coefficients == guard.coefficients;
      });
      if (same == borders.end()) {
        borders.push_back({guard.offset, guard.offset, guard.extent, guard.coefficients});
        continue;
      }
      same->first = std::min(same->first, guard.offset);
      same->last = std::max(same->last, guard.offset);
    }
  }
  return guarded > few ? borders : std::vector<Border>{};
}

}  // namespace

IndexRange inside_along(const loop::Nest& nest, int dim, unsigned lanes) {
  const auto along = static_cast<std::size_t>(dim);
  const auto asks = [&](const loop::Guard& guard) { return guard.coefficients[along] != 0; };
  for (const loop::Store& store : nest.stores)
    if (std::ranges::any_of(store.access.guards, asks)) return {0, 0};
  const std::int64_t extent = nest.extents[along];
  IndexRange inside{0, extent};
  bool any = false;
  for (const loop::Access& access : nest.accesses) {
    for (const loop::Guard& guard : access.guards) {
      if (!asks(guard)) continue;
      any = true;
      const IndexRange holds = holds_along(nest, guard, dim);
      inside = {std::max(inside.begin, holds.begin), std::min(inside.end, holds.end)};
    }
  }
  return any && most_lie_inside(inside, extent, lanes) ? inside : IndexRange{};
}

bool NestPlan::is_of_border(const loop::Guard& guard) const {
  if (has_inside() && guard.coefficients[static_cast<std::size_t>(vector_dim)] != 0) return true;
  return std::ranges::any_of(borders, [&](const Border& border) {
    return border.extent == guard.extent && border.coefficients == guard.coefficients;
  });
}

void find_borders(NestPlan& plan) {
  if (plan.vector_is_reduced()) return;
  if (plan.levels == 0 && plan.tile == 1) plan.borders = borders_of_map(plan);
  // An item's part of a row may be shorter than its lanes.
  if (plan.levels == 1 && plan.lanes > 1 && plan.split_dim != plan.vector_dim)
    plan.inside = inside_along(plan.nest, plan.vector_dim, plan.lanes);
}

}  // namespace rlx::codegen
