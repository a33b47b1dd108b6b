// Reuse of dying operands.
#include "plan/in_place.hpp"

#include <algorithm>
#include <optional>
#include <variant>

namespace rlx::plan {
namespace {

/// The loads and stores of a kernel over one domain, where loads of a point come before its stores.
struct Points {
  std::vector<std::int64_t> extents;
  std::vector<const loop::Access*> loads;
  std::vector<const loop::Store*> stores;
  std::vector<std::int32_t> other_reads;  ///< buffers that are read in another order
};

std::optional<Points> points_of(const loop::Nest& nest) {
  Points points{nest.extents, {}, {}, {}};
  for (const loop::Access& access : nest.accesses) points.loads.push_back(&access);
  for (const loop::Store& store : nest.stores) points.stores.push_back(&store);
  return points;
}

/// A tile's stores follow each other: with one store nothing is read after it.
std::optional<Points> points_of(const loop::Contraction& c) {
  if (c.stores.size() != 1 || !c.row_epilogue.nodes.empty()) return std::nullopt;
  // Dot products: the last block of rows reaches back into the one before it, whose rows are made
  // again from what was read the first time.
  if (c.n == 1 && !c.b_packed) return std::nullopt;
  Points points;
  points.extents = c.batch_extents;
  points.extents.insert(points.extents.end(), c.m_extents.begin(), c.m_extents.end());
  points.extents.push_back(c.n);
  for (const loop::Access& access : c.accesses) points.loads.push_back(&access);
  points.stores = {&c.stores[0]};
  points.other_reads = {c.a_buffer, c.b_buffer};
  return points;
}

std::optional<Points> points_of(const loop::Recurrence&) { return std::nullopt; }
std::optional<Points> points_of(const loop::Chain&) { return std::nullopt; }
std::optional<Points> points_of(const loop::Strips&) { return std::nullopt; }

/// One element of the buffer for each point, and each element once.
bool covers(const loop::Access& access, const Points& points, std::int64_t elements) {
  if (!access.guards.empty() || !access.indirect.empty() || access.offset != 0) return false;
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;  // stride, extent
  for (std::size_t i = 0; i < points.extents.size(); ++i) {
    if (points.extents[i] != 1) dims.emplace_back(access.strides[i], points.extents[i]);
  }
  std::sort(dims.begin(), dims.end());
  std::int64_t next = 1;
  for (const auto& [stride, extent] : dims) {
    if (stride != next) return false;
    next *= extent;
  }
  return next == elements;
}

bool same_address(const loop::Access& a, const loop::Access& b, const Points& points) {
  if (!a.guards.empty() || !a.indirect.empty() || a.offset != b.offset) return false;
  for (std::size_t i = 0; i < points.extents.size(); ++i) {
    if (points.extents[i] != 1 && a.strides[i] != b.strides[i]) return false;
  }
  return true;
}

class Finder {
 public:
  explicit Finder(const Plan& plan) : plan_(plan), taken_over_(plan.buffers.size(), -1) {
    is_used_.assign(plan.buffers.size(), false);
  }

  std::vector<std::int32_t> run() {
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      const Step& step = plan_.steps[i];
      if (step.kind == Step::Kind::host)
        visit(static_cast<std::int32_t>(i), step,
              plan_.host_calls[static_cast<std::size_t>(step.index)]);
      if (step.kind != Step::Kind::kernel) continue;
      const loop::Kernel& kernel = plan_.kernels[static_cast<std::size_t>(step.index)];
      const auto points = std::visit([](const auto& body) { return points_of(body); }, kernel.body);
      if (points) visit(static_cast<std::int32_t>(i), step, *points);
    }
    return std::move(taken_over_);
  }

 private:
  const BufferPlan& buffer(std::int32_t index) const {
    return plan_.buffers[static_cast<std::size_t>(index)];
  }

  void visit(std::int32_t at, const Step& step, const Points& points) {
    for (const loop::Store* store : points.stores) {
      const std::int32_t result = step.buffers[static_cast<std::size_t>(store->access.buffer)];
      const BufferPlan& target = buffer(result);
      if (target.storage != Storage::arena || target.first_step != at) continue;
      if (target.bytes() == 0 || !covers(store->access, points, target.elements)) continue;
      for (const loop::Access* load : points.loads) {
        const std::int32_t operand = step.buffers[static_cast<std::size_t>(load->buffer)];
        if (!dies(operand, at, target) || !reads_as(*store, load->buffer, points)) continue;
        if (take_over(result, operand, step)) break;
      }
    }
  }

  /// A kernel that is not generated says which operand it may write over.
  void visit(std::int32_t at, const Step& step, const HostCall& call) {
    if (call.work.items == 0 || call.work.in_place < 0) return;
    const std::int32_t operand = call.inputs[static_cast<std::size_t>(call.work.in_place)];
    const std::int32_t result = call.outputs[0];
    if (operand < 0 || std::ranges::count(call.inputs, operand) > 1) return;
    const BufferPlan& target = buffer(result);
    if (target.storage == Storage::arena && target.first_step == at && target.bytes() > 0 &&
        dies(operand, at, target))
      take_over(result, operand, step);
  }

  bool take_over(std::int32_t result, std::int32_t operand, const Step& step) {
    // Another worker may look at the condition while this one writes.
    if (std::ranges::find(step.conditions, operand, &Condition::buffer) != step.conditions.end())
      return false;
    taken_over_[static_cast<std::size_t>(result)] = operand;
    is_used_[static_cast<std::size_t>(operand)] = true;
    return true;
  }

  bool dies(std::int32_t operand, std::int32_t at, const BufferPlan& target) const {
    const BufferPlan& source = buffer(operand);
    return source.storage == Storage::arena && source.last_step == at && source.first_step < at &&
           !is_used_[static_cast<std::size_t>(operand)] && source.elements == target.elements &&
           source.dtype == target.dtype && operand != plan_.error_buffer;
  }

  /// Every use of the kernel's buffer is a load at the address that the store writes.
  static bool reads_as(const loop::Store& store, std::int32_t number, const Points& points) {
    const auto other = [&](const loop::Access* load) {
      return load->buffer == number && !same_address(*load, store.access, points);
    };
    const auto writes = [&](const loop::Store* s) { return s->access.buffer == number; };
    return std::none_of(points.loads.begin(), points.loads.end(), other) &&
           std::none_of(points.stores.begin(), points.stores.end(), writes) &&
           std::count(points.other_reads.begin(), points.other_reads.end(), number) == 0;
  }

  const Plan& plan_;
  std::vector<std::int32_t> taken_over_;
  std::vector<bool> is_used_;
};

}  // namespace

std::vector<std::int32_t> find_in_place(const Plan& plan) { return Finder(plan).run(); }

void write_in_place(Plan& plan, const std::vector<std::int32_t>& taken_over) {
  for (const Step& step : plan.steps) {
    if (step.kind != Step::Kind::kernel) continue;
    loop::Kernel& kernel = plan.kernels[static_cast<std::size_t>(step.index)];
    auto* nest = std::get_if<loop::Nest>(&kernel.body);
    if (!nest) continue;
    for (loop::Store& store : nest->stores) {
      const auto own = static_cast<std::size_t>(store.access.buffer);
      const std::int32_t operand = taken_over[static_cast<std::size_t>(step.buffers[own])];
      const auto found = std::ranges::find(step.buffers, operand);
      if (operand < 0 || found == step.buffers.end()) continue;
      const auto number = found - step.buffers.begin();
      kernel.buffers[own].written = false;
      kernel.buffers[static_cast<std::size_t>(number)].written = true;
      store.access.buffer = static_cast<std::int32_t>(number);
    }
  }
}

}  // namespace rlx::plan
