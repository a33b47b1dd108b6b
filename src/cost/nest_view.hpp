// What both forms of nests, passes and windows, ask about a nest when their work is estimated.
#pragma once

#include <algorithm>
#include <cmath>

#include "codegen/llvm/nest_plan.hpp"
#include "cost/kernel_work.hpp"

namespace rlx::cost {

/// What is executed for one vector of points, or once for each row of vectors.
struct Body {
  double alu = 0;      ///< ns in the vector units
  double divider = 0;  ///< ns in the unit of divisions and roots, which works beside the others
  double loads = 0;    ///< accesses of a register's width
  double stores = 0;
  double other = 0;  ///< ns of addresses and loops

  Body operator+(const Body& b) const {
    return {alu + b.alu, divider + b.divider, loads + b.loads, stores + b.stores, other + b.other};
  }
  Body operator*(double n) const {
    return {alu * n, divider * n, loads * n, stores * n, other * n};
  }

  /// Where everything overlaps.
  double longest(const MachineModel& model) const {
    return std::max({alu, divider, other, loads / model.loads_per_cycle * model.cycle,
                     stores / model.stores_per_cycle * model.cycle});
  }
  double ns(const MachineModel& model) const {
    const double load_ns = loads / model.loads_per_cycle * model.cycle;
    const double store_ns = stores / model.stores_per_cycle * model.cycle;
    const double most = longest(model);
    const double others = alu + divider + other + load_ns + store_ns - most;
    return most + model.overlap.beside_busiest * others + divider_ns(model);
  }
  /// How many of such bodies the processor works on at once.
  double ahead(const MachineModel& model) const {
    constexpr double window = 180;  // operations of vectors under way
    const double operations = 2 * alu / model.cycle;
    return std::max(1.0, window / std::max(operations, 1.0));
  }
  /// What shows of divisions beside the vector units' work, or of that beside divisions, above what
  /// shows of other units.
  double divider_ns(const MachineModel& model) const {
    return (model.overlap.beside_divider - model.overlap.beside_busiest) * std::min(alu, divider);
  }
};

/// A nest as its code is cut, with the sizes that its work is counted in.
class NestView {
 protected:
  NestView(const loop::Nest& nest, std::span<const loop::Buffer> buffers, const MachineModel& model,
           bool rows)
      : plan_(planned(nest, buffers, model, rows)),
        nest_(plan_.nest),
        buffers_(buffers),
        model_(model),
        at_borders_(share_at_borders()) {}
  /// With the items of windows that workers share out by channels.
  static codegen::NestPlan planned(const loop::Nest& nest, std::span<const loop::Buffer> buffers,
                                   const MachineModel& model, bool rows);
  NestView(const NestView&) = delete;
  NestView& operator=(const NestView&) = delete;

  static std::size_t at(ScalarId id) { return static_cast<std::size_t>(id); }
  double extent(int dim) const {
    return static_cast<double>(nest_.extents[static_cast<std::size_t>(dim)]);
  }
  double points_of(codegen::DimSet dims) const;
  Items items() const;
  bool varies(codegen::DimSet dims) const { return dims >> plan_.vector_dim & 1; }
  /// Where data tells another place for each lane.
  bool lanes_differ(const loop::Access& access) const;
  /// That of codegen, of a load in this nest; and what it takes besides reading its registers.
  const loop::Indirect* picked_part(const loop::Access& access) const;
  double picked_ns(const loop::Indirect& part, DType dtype) const;
  /// Cycles of an index that all lanes share.
  double index_cycles(const loop::Access& access) const;
  /// Do rows begin where only data tells? Those of constant places in steps of one go on where the
  /// one before them ended, or begin it again.
  static bool jumps(const loop::Access& access) {
    return !std::ranges::all_of(access.indirect, [](const auto& part) { return part.step == 1; });
  }
  double vectors_of(double points) const { return std::ceil(points / plan_.lanes); }
  /// Of the vector dim: vectors that no round of so many takes, and the tail.
  double vectors_alone(double round) const {
    const double whole = std::floor(extent(plan_.vector_dim) / plan_.lanes);
    return std::fmod(whole, round) + vectors_of(extent(plan_.vector_dim)) - whole;
  }
  /// Registers of one vector of elements, in steps of what the units take at once.
  double registers_of(DType dtype) const;
  /// Of an access's registers, those that lie across two lines: they take longer; Overlap tells how
  /// long, and of which size.
  double share_across(const loop::Access& access, DType dtype) const;
  /// Of what a reduction loads, the part that windows before have not read: overlapping ones read
  /// the same places again.
  double share_of_first_reads(const loop::Access& access) const;
  /// Accesses' times that a load across two lines takes beside its own: one for a second line that
  /// is near, as many as Overlap tells where nothing has read it before.
  double load_across(const loop::Access& access) const;
  /// The part of the points whose code asks the guard.
  double share_asking(const loop::Guard& guard) const {
    return plan_.is_of_border(guard) ? at_borders_ : 1;
  }
  /// Every guard becomes bounds of a reduced dim.
  bool is_clipped(const loop::Guard& guard) const;
  /// Taking one more element into a running value, ns for a register.
  double step_ns(const ScalarNode& node) const;
  /// Series among these nodes, but the first.
  double further_series(const std::vector<bool>& nodes) const;
  /// One multiply-add with the product before it, or beside it in units of its own.
  bool adds_a_product(const ScalarNode& node) const;
  /// Adds a node's operation on `registers` registers.
  void add_node(Body& body, const ScalarNode& node, double registers, bool one_lane = false) const;

  const codegen::NestPlan plan_;
  const loop::Nest& nest_;
  std::span<const loop::Buffer> buffers_;
  const MachineModel& model_;
  const Overlap& overlap_ = model_.overlap;

 private:
  /// The part of the points that do not lie inside of all borders.
  double share_at_borders() const;

  const double at_borders_;
};

/// Work of a nest whose sums over a window stay in registers; false if it is no such nest.
bool add_window(KernelWork& work, const loop::Nest& nest, std::span<const loop::Buffer> buffers,
                const MachineModel& model);

}  // namespace rlx::cost
