// Lines of A in scratch, padded with zeros: when they pay and what they change in the plan.
#include <algorithm>
#include <optional>

#include "codegen/llvm/contraction_plan.hpp"

namespace rlx::codegen {
namespace {

using Guards = std::vector<const loop::Guard*>;

constexpr std::int64_t line_bytes_limit = 192 * 1024;
/// Longer runs of k hide what the guards of a tap cost.
constexpr std::int64_t long_run = 16;

/// How columns of C, taps and channels lie in A: positions of `channels` elements begin `apart`
/// elements from each other, a column every `step` positions, a tap every `dilation`.
struct Geometry {
  std::int64_t channels = 1, apart = 1, step = 1, dilation = 1;
  int tap_dim = -1, channel_dim = -1;  ///< k dims
  const loop::Guard* guard = nullptr;  ///< of positions
};

class LinePlanner {
 public:
  LinePlanner(const loop::Contraction& contraction, const Guards& guards)
      : c_(contraction),
        guards_(guards),
        last_m_(contraction.batch_extents.size() + contraction.m_extents.size() - 1) {}

  std::optional<Geometry> geometry() const {
    Geometry found;
    for (const loop::Guard* guard : guards_) {
      if (guard->coefficients[last_m_] == 0) continue;
      if (found.guard) return std::nullopt;
      found.guard = guard;
    }
    const bool known = found.guard ? from_guard(found) : from_strides(found);
    if (!known || !of_lines(found)) return std::nullopt;
    return found;
  }

 private:
  std::int64_t column_stride() const { return c_.a_m_strides.back(); }
  std::int64_t guard_step(const loop::Guard& guard, std::size_t k) const {
    return guard.coefficients[last_m_ + 1 + k];
  }

  bool from_guard(Geometry& found) const {
    const std::vector<std::int64_t>& steps = found.guard->coefficients;
    for (std::size_t i = 0; i < last_m_; ++i) {
      if (steps[i] != 0) return false;
    }
    for (std::size_t k = 0; k < c_.k_extents.size(); ++k) {
      if (guard_step(*found.guard, k) == 0) continue;
      if (found.tap_dim >= 0) return false;
      found.tap_dim = static_cast<int>(k);
    }
    found.step = steps[last_m_];
    if (found.tap_dim < 0 || found.step <= 0 || column_stride() % found.step != 0) return false;
    found.apart = column_stride() / found.step;
    found.dilation = guard_step(*found.guard, static_cast<std::size_t>(found.tap_dim));
    return found.dilation > 0 &&
           c_.a_k_strides[static_cast<std::size_t>(found.tap_dim)] ==
               found.apart * found.dilation &&
           find_channels(found);
  }

  /// Without a guard: the k dim of stride 1 is the channels where columns lie whole multiples of it
  /// apart, else the taps.
  bool from_strides(Geometry& found) const {
    int unit = -1;
    for (std::size_t k = 0; k < c_.k_extents.size(); ++k) {
      if (c_.a_k_strides[k] == 1 && c_.k_extents[k] > 1) unit = static_cast<int>(k);
    }
    if (unit < 0 || column_stride() <= 0) return false;
    const std::int64_t extent = c_.k_extents[static_cast<std::size_t>(unit)];
    if (column_stride() % extent != 0) {
      found.tap_dim = unit;
      found.step = column_stride();
      return true;
    }
    found.apart = extent;
    found.step = column_stride() / extent;
    for (std::size_t k = 0; k < c_.k_extents.size(); ++k) {
      const std::int64_t stride = c_.a_k_strides[k];
      if (static_cast<int>(k) == unit || c_.k_extents[k] == 1 || stride <= 0) continue;
      if (stride % extent != 0) continue;
      const bool nearer =
          found.tap_dim < 0 || stride < c_.a_k_strides[static_cast<std::size_t>(found.tap_dim)];
      if (nearer) found.tap_dim = static_cast<int>(k);
    }
    if (found.tap_dim < 0) return false;
    found.dilation = c_.a_k_strides[static_cast<std::size_t>(found.tap_dim)] / extent;
    return find_channels(found);
  }

  /// All channels of a position, or those of one group of several.
  bool find_channels(Geometry& found) const {
    constexpr std::int64_t least_of_group = 8;
    if (found.apart == 1) return true;
    for (std::size_t k = 0; k < c_.k_extents.size(); ++k) {
      const std::int64_t extent = c_.k_extents[k];
      const bool group = extent >= least_of_group && found.apart % extent == 0;
      const bool matches = c_.a_k_strides[k] == 1 && (extent == found.apart || group);
      if (matches && static_cast<int>(k) != found.tap_dim) found.channel_dim = static_cast<int>(k);
    }
    if (found.channel_dim < 0) return false;
    found.channels = c_.k_extents[static_cast<std::size_t>(found.channel_dim)];
    return true;
  }

  /// The other guards speak of whole lines.
  bool of_lines(const Geometry& found) const {
    for (const loop::Guard* guard : guards_) {
      if (guard == found.guard) continue;
      for (std::size_t i = 0; i < c_.batch_extents.size(); ++i) {
        if (guard->coefficients[i] != 0) return false;
      }
      for (const int dim : {found.tap_dim, found.channel_dim}) {
        if (dim >= 0 && guard_step(*guard, static_cast<std::size_t>(dim)) != 0) return false;
      }
    }
    return true;
  }

  const loop::Contraction& c_;
  const Guards& guards_;
  const std::size_t last_m_;  ///< in the domain of guards
};

AddressDim line_dim(std::int64_t extent, std::int64_t stride, const Guards& guards,
                    const loop::Guard* without, std::size_t dim) {
  AddressDim result{extent, stride, 0, 0, {}};
  for (const loop::Guard* guard : guards) {
    if (guard != without) result.guards.push_back(guard->coefficients[dim]);
  }
  return result;
}

LinePlan describe_lines(const loop::Contraction& c, const Guards& guards, const Geometry& g) {
  LinePlan line;
  const std::size_t batches = c.batch_extents.size(), m = c.m_extents.size();
  line.segments = 1;
  for (std::size_t i = 0; i + 1 < m; ++i) {
    line.segments *= c.m_extents[i];
    line.outer.push_back(line_dim(c.m_extents[i], c.a_m_strides[i], guards, g.guard, batches + i));
  }
  for (std::size_t k = 0; k < c.k_extents.size(); ++k) {
    if (static_cast<int>(k) == g.tap_dim || static_cast<int>(k) == g.channel_dim) continue;
    line.lines.push_back(
        line_dim(c.k_extents[k], c.a_k_strides[k], guards, g.guard, batches + m + k));
  }
  for (const loop::Guard* guard : guards) {
    if (guard != g.guard) line.guards.push_back({guard->offset, guard->extent});
  }
  const std::int64_t taps = c.k_extents[static_cast<std::size_t>(g.tap_dim)];
  line.channels = g.channels;
  line.apart = g.apart;
  line.positions = (c.m_extents.back() - 1) * g.step + (taps - 1) * g.dilation + 1;
  line.valid_end = line.positions;
  if (g.guard) {
    line.valid_begin = std::clamp<std::int64_t>(-g.guard->offset, 0, line.positions);
    line.valid_end = std::clamp<std::int64_t>(g.guard->extent - g.guard->offset, line.valid_begin,
                                              line.positions);
  }
  line.pitch = (line.positions * line.channels + 15) / 16 * 16;
  if (line.pitch % 1024 == 0) line.pitch += 16;  // lines at one place of a page share cache sets
  return line;
}

}  // namespace

std::int64_t LinePlan::count() const {
  std::int64_t product = 1;
  for (const AddressDim& dim : lines) product *= dim.extent;
  return product;
}

void plan_lines(const loop::Contraction& c, const std::vector<const loop::Guard*>& guards,
                std::vector<AddressDim> k, const PlanMachine& machine, bool tiles,
                ContractionPlan& plan) {
  const std::int64_t least_columns = machine.registers < 32 ? 6 : 8;  // a register block of rows
  const bool simple = guards.empty() && plan.m.size() <= 1;
  const bool dots = c.n == 1 && !c.b_packed && c.batch_extents.empty();
  if (simple || !(c.b_packed || dots) || !c.row_epilogue.nodes.empty() || c.m_extents.empty())
    return;
  if (c.m_extents.back() < least_columns) return;
  const auto geometry = LinePlanner(c, guards).geometry();
  if (!geometry || c.k_extents[static_cast<std::size_t>(geometry->tap_dim)] == 1) return;
  // Groups have a weight matrix each, and short items: guards cost them more.
  const bool group = geometry->channels < geometry->apart;
  const std::int64_t least_long = group ? 2 * long_run + 1 : long_run;
  if (geometry->channels >= least_long && !dots && !tiles) return;
  LinePlan line = describe_lines(c, guards, *geometry);
  constexpr std::int64_t widest_element = 4;
  if (line.count() * line.pitch * widest_element > line_bytes_limit) return;
  std::int64_t stride = line.pitch;
  for (std::size_t i = k.size(); i-- > 0;) {
    k[i].guards.clear();
    if (static_cast<int>(i) == geometry->channel_dim) {
      k[i].a = 1;
    } else if (static_cast<int>(i) == geometry->tap_dim) {
      k[i].a = geometry->dilation * line.channels;
    } else {
      k[i].a = stride;
      stride *= k[i].extent;
    }
  }
  plan.rows = c.m_extents.back();
  plan.m = {{line.segments * plan.rows, geometry->step * line.channels, 0, 0, {}}};
  plan.k = merge(k);
  if (plan.k.empty()) plan.k.push_back({1, 0, 0, 0, {}});
  plan.k_open = plan.k;
  plan.guards.clear();
  for (AddressDim& dim : plan.batch) dim.guards.clear();
  plan.line = std::move(line);
}

}  // namespace rlx::codegen
