// The work of windows: tiles of neighbouring columns whose sums stay in registers.
#include <numeric>

#include "cost/nest_view.hpp"

namespace rlx::cost {
namespace {

using codegen::DimSet;

class WindowCost : public NestView {
 public:
  WindowCost(const loop::Nest& nest, std::span<const loop::Buffer> buffers,
             const MachineModel& model)
      : NestView(nest, buffers, model, false) {}

  bool add_to(KernelWork& work) {
    if (!is_window()) return false;
    add_windows();
    work.items = items();
    work.streamed[1] += streamed_;
    work.starts += starts_;
    work.compute += compute_;
    work.overhead += overhead_ + static_cast<double>(plan_.items) * model_.item;
    return true;
  }

 private:
  bool is_window() const {
    if (plan_.levels != 1 || plan_.vector_is_reduced() || nest_.parallel_dims < 2) return false;
    if (plan_.points(nest_.parallel_dims, plan_.rank()) > 512) return false;
    // Guards along the lanes stay masks, which windows do not have.
    const auto plain = [&](const loop::Access& access) {
      const std::int64_t along = access.strides[static_cast<std::size_t>(plan_.vector_dim)];
      return access.indirect.empty() && (along == 0 || along == 1) &&
             std::all_of(access.guards.begin(), access.guards.end(),
                         [&](const loop::Guard& guard) { return is_clipped(guard); });
    };
    int sums = 0;
    for (std::size_t i = 0; i < nest_.nodes.size(); ++i) {
      const ScalarNode& node = nest_.nodes[i];
      sums += node.op == ScalarOp::reduce;
      const bool position =
          node.op == ScalarOp::reduce &&
          (node.reduce_kind == ReduceKind::argmin || node.reduce_kind == ReduceKind::argmax);
      const bool index =
          node.op == ScalarOp::domain_index && (plan_.reduced_dims() >> node.index & 1);
      if (position || index) return false;
    }
    if (sums > 2) return false;
    for (const loop::Store& store : nest_.stores) {
      const DimSet dims =
          plan_.node_dims[at(store.node)] | codegen::dims_of(store.access, plan_.node_dims);
      if ((dims & plan_.reduced_dims()) || !plain(store.access)) return false;
    }
    return std::all_of(nest_.accesses.begin(), nest_.accesses.end(), plain);
  }

  /// The share of (point, tap) pairs that lie inside, over all guards of loads.
  double share_inside() const {
    double share = 1;
    std::vector<loop::Guard> seen;
    for (const loop::Access& access : nest_.accesses) {
      for (const loop::Guard& guard : access.guards) {
        if (std::find(seen.begin(), seen.end(), guard) != seen.end()) continue;
        seen.push_back(guard);
        share *= inside_of(guard);
      }
    }
    return share;
  }
  double inside_of(const loop::Guard& guard) const {
    std::vector<std::int64_t> values{guard.offset};
    for (int dim = 0; dim < plan_.rank(); ++dim) {
      const std::int64_t c = guard.coefficients[static_cast<std::size_t>(dim)];
      if (c == 0) continue;
      const std::int64_t count = nest_.extents[static_cast<std::size_t>(dim)];
      if (static_cast<std::int64_t>(values.size()) * count > 1 << 16) return 1;
      std::vector<std::int64_t> next;
      for (const std::int64_t value : values) {
        for (std::int64_t i = 0; i < count; ++i) next.push_back(value + c * i);
      }
      values = std::move(next);
    }
    const auto inside = std::count_if(values.begin(), values.end(), [&](std::int64_t value) {
      return value >= 0 && value < guard.extent;
    });
    return static_cast<double>(inside) / static_cast<double>(values.size());
  }

  /// Results whose sums are in registers together: `columns` of the image by `vectors` of channels.
  struct Tile {
    double columns = 1, vectors = 1;
    double blocks = 1;  ///< of that size in all
  };

  Tile tile_along(int column) const {
    double sums = 0;
    for (const ScalarNode& node : nest_.nodes) sums += node.op == ScalarOp::reduce;
    const double taps = extent(plan_.rank() - 1);
    const double room = taps < 5 ? 8 : std::clamp(std::floor(128 / taps), 8.0, 16.0);
    const double most =
        std::floor((model_.machine.registers > 16 ? room : 6) / std::max(sums, 1.0));
    const double columns = extent(column), registers = vectors_of(extent(plan_.vector_dim));
    Tile tile;
    tile.columns = std::ceil(columns / std::ceil(columns / most));
    const double tiles = std::ceil(columns / tile.columns);
    for (double v = 1; v * tile.columns <= most; ++v) {
      if (std::fmod(registers, v) == 0) tile.vectors = v;
    }
    const double others = points_of(((DimSet{1} << nest_.parallel_dims) - 1) &
                                    ~(DimSet{1} << plan_.vector_dim) & ~(DimSet{1} << column));
    tile.blocks = others * tiles * registers / tile.vectors;
    return tile;
  }

  void add_windows() {
    const int column = codegen::column_dim_of(plan_);
    const Tile tile = tile_along(column);
    const double taps = points_of(plan_.reduced_dims());
    const double steps = tile.blocks * taps * share_inside();  // a tap of a tile
    const Body body = of_a_tap(tile, column), once = behind_the_window();
    // All of a block overlaps: its sums are independent of each other.
    Body block;
    const double ends = tile.blocks * tile.columns * tile.vectors;
    block.alu = steps * body.alu + ends * once.alu;
    block.divider = ends * once.divider;
    block.loads = steps * body.loads + ends * once.loads;
    block.stores = ends * once.stores;
    double ns = block.longest(model_);
    if (once.divider > 0) {
      // Divisions wait for the sums, and the sums behind them for registers.
      const Body end{.alu = once.alu, .divider = once.divider};
      Body sums = block;
      sums.alu -= ends * once.alu, sums.divider = 0;
      const double apart = sums.longest(model_) + ends * end.ns(model_);
      ns += overlap_.window_end * (apart - ns);
    }
    compute_ += ns * overlap_.window;
    add_rows_again(column, tile);
    overhead_ += tile.blocks * (0.5 + 0.3 * taps / extent(plan_.rank() - 1)) * model_.loop;
  }

  /// Of the steps of one register, those that a vector fills.
  double filled(DType dtype) const { return std::min(1.0, registers_of(dtype)); }

  /// What a tap of a tile loads and computes.
  Body of_a_tap(const Tile& tile, int column) const {
    Body body;
    const double results = tile.columns * tile.vectors;
    for (const ScalarNode& node : nest_.nodes) {
      const DimSet dims = plan_.node_dims[&node - nest_.nodes.data()];
      if (node.op == ScalarOp::reduce) {
        double ns = step_ns(node);
        if (ns == 0) ns = model_.op(ScalarOp::add) - model_.op(ScalarOp::mul);
        body.alu += ns * results * filled(node.dtype);
        continue;
      }
      if (!(dims & plan_.reduced_dims())) continue;
      const bool along_column = dims >> column & 1;
      const double wide = varies(dims) ? tile.vectors : 1;
      if (node.op == ScalarOp::load) {
        const loop::Access& access = nest_.accesses[static_cast<std::size_t>(node.index)];
        const DType dtype = buffers_[static_cast<std::size_t>(access.buffer)].dtype;
        const double places = along_column ? places_of(access, tile, column) : 1;
        body.loads += places * wide * registers_of(dtype) *
                      (1 + (overlap_.tap_across - 1) * share_across(access, dtype));
        continue;
      }
      const bool fused = node.op == ScalarOp::mul;
      body.alu += node_ns(node, nest_.nodes, model_) * (along_column ? tile.columns : 1) * wide *
                  (fused ? filled(node.dtype) : registers_of(node.dtype));
    }
    return body;
  }

  /// Different places that a tap of a tile loads from: neighbours share what the run of taps
  /// covers.
  double places_of(const loop::Access& access, const Tile& tile, int column) const {
    const auto stride = [&](int dim) {
      return static_cast<double>(std::abs(access.strides[static_cast<std::size_t>(dim)]));
    };
    const double step = stride(column), tap = stride(plan_.rank() - 1);
    if (tap == 0) return tile.columns;
    const double run = extent(plan_.rank() - 1);
    return std::min(tile.columns, ((tile.columns - 1) * std::max(1.0, step / tap) + run) / run);
  }

  /// What is computed from a register of sums, and its stores.
  Body behind_the_window() const {
    Body once;
    for (const ScalarNode& node : nest_.nodes) {
      const DimSet dims = plan_.node_dims[&node - nest_.nodes.data()];
      if ((dims & plan_.reduced_dims()) || node.op == ScalarOp::reduce) continue;
      if (node.op == ScalarOp::load) {
        once.loads += varies(dims) ? filled(node.dtype) : 0.2;
      } else if (varies(dims)) {
        add_node(once, node, registers_of(node.dtype));
      }
    }
    once.stores += static_cast<double>(nest_.stores.size());
    return once;
  }

  /// The rows of an image that a window covers come from L2 for each of them, if L1 does not hold
  /// all of them; and what a tile reads beyond its columns, if L1 does not hold what tiles read.
  void add_rows_again(int column, const Tile& tile) {
    const double windows =
        points_of(((DimSet{1} << nest_.parallel_dims) - 1) & ~(DimSet{1} << plan_.vector_dim));
    double rows = 1;
    for (int dim = nest_.parallel_dims; dim + 1 < plan_.rank(); ++dim) rows *= extent(dim);
    const auto stride = [&](const loop::Access& access, int dim) {
      return std::abs(access.strides[static_cast<std::size_t>(dim)]);
    };
    const auto element_of = [&](const loop::Access& access) {
      return static_cast<double>(size_of(buffers_[static_cast<std::size_t>(access.buffer)].dtype));
    };
    const auto bytes_of = [&](const loop::Access& access) {
      return static_cast<double>(buffers_[static_cast<std::size_t>(access.buffer)].elements) *
             element_of(access);
    };
    // So do the weights.
    double weights = 0;
    for (const loop::Access& access : nest_.accesses) {
      if (stride(access, column) == 0 && stride(access, plan_.rank() - 1) != 0)
        weights += bytes_of(access);
    }
    const codegen::WindowBands bands = codegen::bands_of_window(plan_, buffers_, model_.machine);
    if (bands.channels > 0) {
      streamed_ += panel_time[1] * weights * static_cast<double>(bands.count - 1);
      return;
    }
    for (const loop::Access& access : nest_.accesses) {
      if (stride(access, column) == 0 || stride(access, plan_.rank() - 1) == 0) continue;
      // Bytes from place to place of a row, and those of them that the lanes read: of a
      // concatenation's pixels some channels.
      const double apart =
          static_cast<double>(std::gcd(stride(access, column), stride(access, plan_.rank() - 1))) *
          element_of(access);
      const double lanes = extent(plan_.vector_dim) *
                           static_cast<double>(stride(access, plan_.vector_dim)) *
                           element_of(access);
      const double place = std::min(std::max(lanes, element_of(access)), apart);
      const double row = extent(column) * static_cast<double>(stride(access, column)) *
                         element_of(access) * place / apart;
      const bool kept = rows * row + weights < 0.75 * static_cast<double>(model_.cache_bytes[0]);
      const double whole = bytes_of(access) * place / apart;
      // Of a row what a tile reads, and its neighbours read again.
      const double reached = places_of(access, tile, column) * extent(plan_.rank() - 1) * place;
      const bool tiles_kept =
          rows * reached + weights < 0.75 * static_cast<double>(model_.cache_bytes[0]);
      const double tiles = extent(column) / tile.columns;
      const double again = tiles_kept ? 1 : std::max(1.0, reached * tiles / row);
      if (!kept)
        streamed_ +=
            panel_time[1] * weights * (windows / extent(column) * (tiles_kept ? 1 : tiles) - 1);
      const double moved =
          kept ? whole : std::max(whole, windows / extent(column) * rows * row * again);
      // Places of a row that lie far apart are lines that nothing fetches ahead.
      starts_ += moved / line_bytes * lone_line * std::min(1.0, place / widest_row);
      streamed_ += panel_time[1] * (moved - whole);
    }
  }

  double compute_ = 0, overhead_ = 0;
  /// ns for a line from L2 that was not fetched ahead, beside its neighbours; and bytes of a place,
  /// from one of whose lines to that of the next place no prefetcher keeps track any more.
  static constexpr double lone_line = 0.45, widest_row = 2048, line_bytes = 64;
  double streamed_ = 0;  ///< bytes that come from L2 again
  double starts_ = 0;
};

}  // namespace

bool add_window(KernelWork& work, const loop::Nest& nest, std::span<const loop::Buffer> buffers,
                const MachineModel& model) {
  return WindowCost(nest, buffers, model).add_to(work);
}

}  // namespace rlx::cost
