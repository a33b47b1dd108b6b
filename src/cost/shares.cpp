// Accesses by the dim along which a kernel's items are shared out.
#include "cost/shares.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "codegen/llvm/contraction_plan.hpp"
#include "codegen/llvm/nest_plan.hpp"
#include "cost/touched.hpp"

namespace rlx::cost {
namespace {

using Integers = std::vector<std::int64_t>;

constexpr std::size_t none = ~std::size_t{0};

/// The first of the dims [from, to) that is longer than one element, or `none`.
std::size_t first_long(const Integers& extents, std::size_t from, std::size_t to) {
  while (from < to && extents[from] <= 1) ++from;
  return from < to ? from : none;
}

class Shares {
 public:
  Shares(std::vector<Share>& shares, std::span<const loop::Buffer> buffers)
      : shares_(shares), buffers_(buffers) {}

  /// Workers take equal parts of the dim `lead`; `none`: each touches all.
  void add(const loop::Access& access, const Integers& extents, std::size_t lead, bool written) {
    if (access.buffer < 0) return;
    const loop::Buffer& buffer = buffers_[static_cast<std::size_t>(access.buffer)];
    if (buffer.local) return;
    Share share{.buffer = access.buffer, .written = written, .part = part_, .parts = parts_};
    if (access.indirect.empty()) {
      set_place(share, access.offset, access.strides, extents, lead);
    } else {  // only data tells
      share.last = buffer.elements - 1;
    }
    share.first = std::clamp<std::int64_t>(share.first, 0, buffer.elements - 1);
    share.last = std::clamp<std::int64_t>(share.last, share.first, buffer.elements - 1);
    share.elements = share.last - share.first + 1;
    if (access.indirect.empty()) {
      const auto size = static_cast<double>(size_of(buffer.dtype));
      const double bytes =
          reached_bytes(access, extents, size, static_cast<double>(buffer.elements));
      share.elements = std::min(share.elements, static_cast<std::int64_t>(bytes / size));
    }
    for (Share& known : shares_) {
      if (join(known, share)) return;
    }
    shares_.push_back(share);
  }
  void add(const std::vector<loop::Access>& accesses, std::span<const loop::Store> stores,
           const Integers& extents, std::size_t lead) {
    for (const loop::Access& access : accesses) add(access, extents, lead, false);
    for (const loop::Store& store : stores) add(store.access, extents, lead, true);
  }

  /// What comes next only the workers of that part touch.
  void set_part(std::int32_t part, std::int32_t parts) { part_ = part, parts_ = parts; }
  /// Workers take so many points of `lead` at once.
  void set_together(std::int64_t points) { together_ = points; }

 private:
  /// Accesses to nearly the same elements, like those of windows and tiles, are one share.
  static bool join(Share& known, const Share& share) {
    if (known.buffer != share.buffer || known.written != share.written ||
        known.kind != share.kind || known.period != share.period || known.run != share.run ||
        known.part != share.part || known.parts != share.parts)
      return false;
    const std::int64_t both = std::min(known.last, share.last) - std::max(known.first, share.first);
    const std::int64_t first = std::min(known.first, share.first),
                       last = std::max(known.last, share.last);
    if (both < 0 || 4 * both < 3 * (last - first)) return false;
    // Runs that lie beside each other in a period are others (the planes that a pass writes).
    const std::int64_t apart = std::max(known.first, share.first) - first;
    if (known.kind == Share::Kind::woven && 4 * apart > known.run) return false;
    known.first = first, known.last = last;
    known.begin = std::min(known.begin, share.begin), known.end = std::max(known.end, share.end);
    known.elements = std::min(known.elements + share.elements, last - first + 1);
    return true;
  }

  void set_place(Share& share, std::int64_t offset, const Integers& strides,
                 const Integers& extents, std::size_t lead) {
    const std::int64_t step = lead < extents.size() ? std::abs(strides[lead]) : 0;
    // Elements from the first to the last one of a point of `lead`, but for those that windows
    // reach in the place of the next points.
    std::int64_t within = 1;
    share.first = share.last = offset;
    for (std::size_t dim = 0; dim < extents.size(); ++dim) {
      const std::int64_t way = strides[dim] * (extents[dim] - 1);
      (way < 0 ? share.first : share.last) += way;
      if (dim == lead) continue;
      const std::int64_t stride = std::abs(strides[dim]);
      const bool is_window = step > 0 && stride >= step && stride < step * extents[lead];
      if (!is_window) within += std::abs(way);
    }
    if (step == 0) return;
    share.unit = step * together_;
    // In order, though windows reach over into the other part.
    if (step * extents[lead] >= within) {
      share.begin = share.first, share.end = share.last + 1;
      share.shared_out = step * extents[lead];
      share.kind = strides[lead] < 0 ? Share::Kind::reversed : Share::Kind::in_order;
      return;
    }
    share.kind = Share::Kind::woven;
    share.period = std::numeric_limits<std::int64_t>::max();
    for (std::size_t dim = 0; dim < extents.size(); ++dim) {
      const std::int64_t other = std::abs(strides[dim]);
      if (dim != lead && extents[dim] > 1 && other > step)
        share.period = std::min(share.period, other);
    }
    // Of one row, whose length nobody tells, all is shared out.
    const bool is_one_row = share.period == std::numeric_limits<std::int64_t>::max();
    share.run = is_one_row ? share.period : std::min(step * extents[lead], share.period);
  }

  std::vector<Share>& shares_;
  std::span<const loop::Buffer> buffers_;
  std::int32_t part_ = 0, parts_ = 1;
  std::int64_t together_ = 1;
};

/// The dim of (batch..., m..., n) along which a contraction's items are shared out.
std::size_t lead_of(const loop::Contraction& c, const codegen::ContractionPlan& plan) {
  const std::size_t batches = c.batch_extents.size(), rows = batches + c.m_extents.size();
  Integers extents = c.batch_extents;
  extents.insert(extents.end(), c.m_extents.begin(), c.m_extents.end());
  if (plan.shares_batch()) {
    const std::size_t batch = first_long(extents, 0, batches);
    if (batch != none) return batch;
  }
  const bool by_columns = !plan.shares_rows_first() && !plan.whole_rows &&
                          plan.line.segments == 0 && plan.column_blocks > 1;
  return by_columns ? rows : first_long(extents, batches, rows);
}

}  // namespace

void add_shares(std::vector<Share>& shares, const codegen::NestPlan& plan,
                std::span<const loop::Buffer> buffers) {
  const loop::Nest& nest = plan.nest;
  std::size_t lead = none;
  if (!plan.blocks_first)
    lead = first_long(nest.extents, 0, static_cast<std::size_t>(plan.inner_dim));
  if (lead == none && nest.parallel_dims > 0) lead = static_cast<std::size_t>(plan.split_dim);
  Shares all(shares, buffers);
  if (lead == static_cast<std::size_t>(plan.split_dim)) all.set_together(plan.split_size);
  for (std::int32_t part = 0; part < nest.parts; ++part) {
    all.set_part(part, nest.parts);
    all.add(nest.accesses, loop::stores_of(nest, part), nest.extents, lead);
  }
}

void add_shares(std::vector<Share>& shares, const loop::Contraction& c,
                const codegen::ContractionPlan& plan, std::span<const loop::Buffer> buffers) {
  Shares all(shares, buffers);
  const std::size_t lead = lead_of(c, plan), batches = c.batch_extents.size();
  const std::size_t columns = batches + c.m_extents.size();
  if (lead == columns) all.set_together(plan.block_columns);
  const auto joined = [](const Integers& a, const Integers& b) {
    Integers all = a;
    all.insert(all.end(), b.begin(), b.end());
    return all;
  };
  const Integers rows = joined(c.batch_extents, c.m_extents);
  const Integers a_strides = joined(c.a_batch_strides, c.a_m_strides);
  const Integers a_extents = joined(rows, c.k_extents);
  all.add({.buffer = c.a_buffer, .offset = c.a_offset, .strides = joined(a_strides, c.a_k_strides)},
          a_extents, lead == columns ? none : lead, false);
  if (!c.b_packed) {
    const Integers b_extents = joined(joined(c.batch_extents, {c.n}), c.k_extents);
    const Integers b_strides = joined(joined(c.b_batch_strides, {c.b_n_stride}), c.b_k_strides);
    const std::size_t b_lead = lead < batches ? lead : lead == columns ? batches : none;
    all.add({.buffer = c.b_buffer, .offset = c.b_offset, .strides = b_strides}, b_extents, b_lead,
            false);
  }
  const Integers results = joined(rows, {c.n});
  all.add(c.accesses, c.stores, results, lead);
  all.add(c.row_epilogue.accesses, c.row_epilogue.stores, results, lead);
}

void add_shares(std::vector<Share>& shares, const loop::Recurrence& r,
                std::span<const loop::Buffer> buffers) {
  Shares all(shares, buffers);
  // A step's items are panels of units, a walk's rows of the batch in every direction.
  const Integers extents{r.directions, r.batch, r.step_buffer < 0 ? r.steps : 1, r.units};
  const std::size_t lead = r.step_buffer >= 0 ? 3 : first_long(extents, 0, 2);
  all.add(r.accesses, r.stores, extents, lead);
  for (const loop::Access& state : r.initial) all.add(state, extents, lead, false);
  for (const loop::Access& state : r.last) all.add(state, extents, lead, true);
}

}  // namespace rlx::cost
