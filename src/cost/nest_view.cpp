// Sizes, alignment and single operations of nests.
#include "cost/nest_view.hpp"

#include <numeric>

namespace rlx::cost {

codegen::NestPlan NestView::planned(const loop::Nest& nest, std::span<const loop::Buffer> buffers,
                                    const MachineModel& model, bool rows) {
  codegen::NestPlan plan = codegen::plan_nest(nest, model.machine, rows);
  if (rows || nest.lead > 0 || plan.nest.stores.empty()) return plan;
  const codegen::WindowBands bands = codegen::bands_of_window(plan, buffers, model.machine);
  if (bands.channels == 0 || bands.count > 1) return plan;
  plan.blocks_first = true;
  plan.split_dim = plan.inner_dim = plan.vector_dim;
  plan.split_size = std::max<std::int64_t>(bands.channels / plan.lanes, 1) * plan.lanes;
  const std::int64_t channels = plan.nest.extents[static_cast<std::size_t>(plan.vector_dim)];
  plan.items = (channels + plan.split_size - 1) / plan.split_size;
  return plan;
}

Items NestView::items() const {
  if (plan_.items <= 1) return Items(nest_.parts * plan_.items);
  const std::int64_t before = plan_.points(0, plan_.inner_dim);
  return Items::by_size(plan_.blocks_first ? nest_.parts : nest_.parts * before, plan_.split_size,
                        nest_.extents[static_cast<std::size_t>(plan_.split_dim)],
                        plan_.blocks_first ? before : 1);
}

double NestView::points_of(codegen::DimSet dims) const {
  double points = 1;
  for (int dim = 0; dim < plan_.rank(); ++dim) {
    if (dims >> dim & 1) points *= extent(dim);
  }
  return points;
}

double NestView::registers_of(DType dtype) const {
  const std::size_t bytes = is_float(dtype) && size_of(dtype) < 4 ? 4 : size_of(dtype);
  // Where a register goes through the units in two steps, one that is filled by half takes one.
  const double steps = model_.takes_two_steps() ? 2 : 1;
  const double step_bytes = model_.machine.vector_bytes / steps;
  return std::ceil(static_cast<double>(plan_.lanes * bytes) / step_bytes) / steps;
}

double NestView::share_across(const loop::Access& access, DType dtype) const {
  constexpr std::int64_t line = 64;
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t vector = std::min<std::int64_t>(plan_.lanes * size, line);
  if (vector < overlap_.across_bytes) return 0;
  // Rows begin in turn at all places of a line that are so many bytes apart.
  std::int64_t step = line;
  for (int dim = 0; dim < plan_.rank(); ++dim) {
    const auto at = static_cast<std::size_t>(dim);
    if (dim != plan_.vector_dim && nest_.extents[at] != 1)
      step = std::gcd(step, std::abs(access.strides[at]) * size);
  }
  const std::int64_t first = (access.offset * size % step + step) % step;
  // Of a row whose end fills no register, the last one is masked.
  const std::int64_t along = nest_.extents[static_cast<std::size_t>(plan_.vector_dim)] * size;
  const std::int64_t whole = along / vector, rest = along % vector;
  std::int64_t across = 0;
  for (std::int64_t begin = first; begin < line; begin += step)
    across += (begin % vector != 0 ? whole : 0) + (begin % vector + rest > vector ? 1 : 0);
  const std::int64_t registers = (whole + (rest > 0 ? 1 : 0)) * (line / step);
  return registers > 0 ? static_cast<double>(across) / static_cast<double>(registers) : 0;
}

bool NestView::lanes_differ(const loop::Access& access) const {
  return std::ranges::any_of(access.indirect, [&](const loop::Indirect& part) {
    return varies(plan_.node_dims[at(part.node)]);
  });
}

const loop::Indirect* NestView::picked_part(const loop::Access& access) const {
  const DType dtype = buffers_[static_cast<std::size_t>(access.buffer)].dtype;
  return codegen::picked_part(access, dtype, nest_.nodes, nest_.accesses, plan_.vector_dim,
                              plan_.lanes, model_.machine);
}

double NestView::picked_ns(const loop::Indirect& part, DType dtype) const {
  // For the first of a vector of places, and how far the others lie behind it.
  constexpr double cycles = 2;
  const bool is_half = is_float(dtype) && size_of(dtype) < 4;
  return (cycles + overlap_.exchange * part.step) * model_.cycle +
         (is_half ? model_.narrow_ns * part.step : 0);
}

double NestView::index_cycles(const loop::Access& access) const {
  constexpr double unchecked = 0.7;
  const bool is_known = std::ranges::all_of(access.indirect, &loop::Indirect::within);
  return overlap_.index * (is_known ? unchecked : 1);
}

double NestView::share_of_first_reads(const loop::Access& access) const {
  const auto stride = [&](int dim) {
    return std::abs(access.strides[static_cast<std::size_t>(dim)]);
  };
  double share = 1;
  for (int tap = nest_.parallel_dims; tap < plan_.rank(); ++tap) {
    const std::int64_t window = stride(tap) * nest_.extents[static_cast<std::size_t>(tap)];
    for (int point = 0; point < nest_.parallel_dims; ++point) {
      const std::int64_t step = stride(point);
      if (extent(point) == 1 || step < stride(tap) || step >= window) continue;
      share *= static_cast<double>(step) / static_cast<double>(window);
      break;
    }
  }
  return share;
}

double NestView::load_across(const loop::Access& access) const {
  const double first = share_of_first_reads(access), longer = overlap_.load_across - 1;
  return first * longer + (1 - first) * std::min(longer, 1.0);
}

double NestView::share_at_borders() const {
  double inside = 1;
  for (const codegen::Border& border : plan_.borders) {
    const auto runs = [](std::int64_t coefficient) { return coefficient != 0; };
    const auto along = std::ranges::find_if(border.coefficients, runs);
    // Borders across two dims: none lies inside for sure.
    if (along == border.coefficients.end() ||
        std::count_if(along, border.coefficients.end(), runs) > 1)
      return 1;
    const std::int64_t points =
        nest_.extents[static_cast<std::size_t>(along - border.coefficients.begin())];
    std::int64_t within = 0;
    for (std::int64_t i = 0; i < points; ++i)
      within += border.first + *along * i >= 0 && border.last + *along * i < border.extent;
    inside *= static_cast<double>(within) / static_cast<double>(std::max<std::int64_t>(points, 1));
  }
  return 1 - inside;
}

bool NestView::is_clipped(const loop::Guard& guard) const {
  int found = -1;
  for (int dim = 0; dim < plan_.rank(); ++dim) {
    const std::int64_t c = guard.coefficients[static_cast<std::size_t>(dim)];
    if (c == 0) continue;
    if (dim < nest_.parallel_dims) {
      if (dim == plan_.vector_dim) return false;
      continue;
    }
    if (found >= 0 || c < 0) return false;
    found = dim;
  }
  return found >= 0;
}

double NestView::further_series(const std::vector<bool>& nodes) const {
  double series = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    series += nodes[i] && codegen::is_series(nest_.nodes[i]);
  return std::max(0.0, series - 1);
}

double NestView::step_ns(const ScalarNode& node) const {
  const double one = model_.op(ScalarOp::add);
  switch (node.reduce_kind) {
    // A product that is summed is one multiply-add: its multiplication has been counted.
    case ReduceKind::sum:
      return is_float(node.dtype) && nest_.nodes[at(node.a)].op == ScalarOp::mul ? 0 : one;
    // NaN wins: a comparison, a test, a selection.
    case ReduceKind::min:
    case ReduceKind::max: return is_float(node.dtype) ? overlap_.max_steps * one : one;
    case ReduceKind::argmin:
    case ReduceKind::argmax: return 3.7 * one;
    default: return one;
  }
}

bool NestView::adds_a_product(const ScalarNode& node) const {
  if (!is_float(node.dtype)) return false;
  if (node.op != ScalarOp::add && node.op != ScalarOp::sub) return false;
  const auto is_product = [&](ScalarId id) {
    return id >= 0 && nest_.nodes[at(id)].op == ScalarOp::mul;
  };
  return is_product(node.a) || is_product(node.b);
}

/// What a series takes whose vector has no other beside it, where figures are of pairs: without
/// masks. Measured on Zen 3.
constexpr double series_alone = 1.25;

void NestView::add_node(Body& body, const ScalarNode& node, double registers, bool one_lane) const {
  const double shown = !adds_a_product(node)      ? 1
                       : model_.takes_two_steps() ? 0
                                                  : overlap_.added_product;
  double ns = shown * node_ns(node, nest_.nodes, model_) * registers;
  const bool is_alone = !model_.machine.masks && !plan_.pairs_series;
  if (is_alone && codegen::is_series(node)) ns *= series_alone;
  const bool divides = node.op == ScalarOp::div || node.op == ScalarOp::sqrt ||
                       node.op == ScalarOp::rsqrt || node.op == ScalarOp::reciprocal;
  const bool is_known = model_.machine.masks && codegen::logistic_of(node, nest_.nodes) >= 0;
  if (divides && !is_known && is_float(node.dtype)) {
    body.divider += one_lane ? ns * overlap_.lone_division : ns;
    body.alu += model_.op(ScalarOp::add) * registers;
  } else {
    body.alu += ns;
  }
}

}  // namespace rlx::cost
