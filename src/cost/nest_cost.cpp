// The work of nests: the passes over reduced dims that their code makes, and what a vector of
// points costs in each.
#include <algorithm>
#include <cmath>

#include "codegen/llvm/nest_plan.hpp"
#include "cost/kernel_work.hpp"

namespace rlx::cost {
namespace {

using codegen::DimSet;

std::size_t at(ScalarId id) { return static_cast<std::size_t>(id); }

/// What is executed for one vector of points, or once for each row of vectors.
struct Body {
  double alu = 0;    ///< ns
  double loads = 0;  ///< accesses of a register's width
  double stores = 0;

  /// Where everything overlaps.
  double longest(const MachineModel& model) const {
    return std::max({alu, loads / model.loads_per_cycle * model.cycle,
                     stores / model.stores_per_cycle * model.cycle});
  }
  double ns(const MachineModel& model) const {
    const double load_ns = loads / model.loads_per_cycle * model.cycle;
    const double store_ns = stores / model.stores_per_cycle * model.cycle;
    const double longest = std::max({alu, load_ns, store_ns});
    return longest + 0.25 * (alu + load_ns + store_ns - longest);
  }
};

class NestCost {
 public:
  NestCost(const loop::Nest& nest, std::span<const loop::Buffer> buffers, const MachineModel& model,
           bool rows)
      : plan_(codegen::plan_nest(nest, model.machine, rows)),
        nest_(plan_.nest),
        buffers_(buffers),
        model_(model),
        first_pass_(nest_.nodes.size(), -1) {}

  void add_to(KernelWork& work) {
    if (plan_.points(0, plan_.rank()) == 0) return;
    if (is_window()) {
      add_windows();
    } else {
      add_passes();
    }
    work.items = static_cast<double>(plan_.items);
    work.streamed[1] += streamed_;
    work.compute += compute_;
    work.overhead += overhead_ + work.items * model_.item;
    for (const ScalarNode& node : nest_.nodes)
      work.flops += flops_of(node) * points_of(plan_.node_dims[&node - nest_.nodes.data()]);
  }

 private:
  void add_passes() {
    for (int level = 1; level <= plan_.levels; ++level) add_reductions(level);
    add_last_pass();
  }

  static double flops_of(const ScalarNode& node) {
    const int cost = codegen::cost_of(node);
    return is_float(node.dtype) ? cost : 0;
  }

  double extent(int dim) const {
    return static_cast<double>(nest_.extents[static_cast<std::size_t>(dim)]);
  }
  double points_of(DimSet dims) const {
    double points = 1;
    for (int dim = 0; dim < plan_.rank(); ++dim) {
      if (dims >> dim & 1) points *= extent(dim);
    }
    return points;
  }
  bool varies(DimSet dims) const { return dims >> plan_.vector_dim & 1; }
  double vectors_of(double points) const { return std::ceil(points / plan_.lanes); }
  /// Registers of one vector of elements.
  double registers_of(DType dtype) const {
    const std::size_t bytes = is_float(dtype) && size_of(dtype) < 4 ? 4 : size_of(dtype);
    return std::ceil(static_cast<double>(plan_.lanes * bytes) / model_.machine.vector_bytes);
  }

  /// What is computed twice because the last tile reaches back.
  double whole_tiles() const {
    const double along = extent(plan_.tile_dim());
    return std::ceil(along / plan_.tile) * plan_.tile / along;
  }

  // ---- one access of one vector ----

  bool is_turned(int access) const {
    return std::find(plan_.turned.begin(), plan_.turned.end(), access) != plan_.turned.end();
  }

  void add_access(Body& body, const loop::Access& access, bool store, int number,
                  double shared) const {
    const DType dtype = buffers_[static_cast<std::size_t>(access.buffer)].dtype;
    const std::int64_t stride = access.strides[static_cast<std::size_t>(plan_.vector_dim)];
    const bool lanes_differ = std::any_of(
        access.indirect.begin(), access.indirect.end(),
        [&](const loop::Indirect& part) { return varies(plan_.node_dims[at(part.node)]); });
    double& count = store ? body.stores : body.loads;
    double accesses = 1;
    if (!store && number >= 0 && is_turned(number)) {
      body.alu += 0.06 * model_.cycle * std::pow(plan_.lanes, 1.5) * whole_tiles();
    } else if (!store && !lanes_differ && stride > 1 && stride <= 4 && plan_.lanes >= 4) {
      // Whole registers are read and shuffled.
      accesses = static_cast<double>(stride) * registers_of(dtype);
      body.alu += static_cast<double>(stride - 1) * model_.cycle * registers_of(dtype) * shared;
    } else if (lanes_differ || std::abs(stride) > 1) {
      body.alu += model_.gather_lane_ns * plan_.lanes * shared;
      accesses = plan_.lanes;
    } else if (stride != 0) {
      accesses = registers_of(dtype) * (is_aligned(access, dtype) ? 1 : 1.7);
      if (is_float(dtype) && size_of(dtype) < 4) body.alu += model_.narrow_ns * shared;
      if (stride < 0) body.alu += 2 * model_.cycle;
    }
    count += accesses * shared;
    for (const loop::Guard& guard : access.guards) {
      const bool along = guard.coefficients[static_cast<std::size_t>(plan_.vector_dim)] != 0;
      body.alu += (along ? guard_cycles : 1) * model_.cycle * shared;
    }
    if (!access.indirect.empty()) body.alu += 3 * model_.cycle;
  }

  /// Registers of 64 bytes that lie across two lines take twice as long.
  bool is_aligned(const loop::Access& access, DType dtype) const {
    const std::int64_t vector = static_cast<std::int64_t>(plan_.lanes * size_of(dtype));
    const std::int64_t bytes = std::min<std::int64_t>(vector, 64);
    if (bytes < 64) return true;
    const auto size = static_cast<std::int64_t>(size_of(dtype));
    if (access.offset * size % bytes != 0) return false;
    for (int dim = 0; dim < plan_.rank(); ++dim) {
      if (dim == plan_.vector_dim || nest_.extents[static_cast<std::size_t>(dim)] == 1) continue;
      if (access.strides[static_cast<std::size_t>(dim)] * size % bytes != 0) return false;
    }
    return true;
  }

  // ---- bodies ----

  /// The part of a load's cost that a point of a tile pays: neighbours share what they read.
  double shared_by_tile(const loop::Access& access) const {
    if (plan_.tile <= 1 || plan_.levels == 0) return 1;
    const std::int64_t step = access.strides[static_cast<std::size_t>(plan_.tile_dim())];
    const double tile = plan_.tile;
    if (step == 0) return 1 / tile;
    const auto last = static_cast<std::size_t>(plan_.rank() - 1);
    const std::int64_t tap = access.strides[last];
    const double taps = static_cast<double>(nest_.extents[last]);
    if (tap == 0 || step % tap != 0 || taps > 7) return 1;
    const double distance = static_cast<double>(step / tap);
    return std::min(1.0, ((tile - 1) * distance + taps) / (tile * taps));
  }

  /// Adds what `id` needs in this pass: to the body what changes from vector to vector, to `row`
  /// what stays for a row of vectors.
  void collect(ScalarId id, int pass, std::vector<bool>& done, Body& body, Body& row) {
    if (id < 0 || done[at(id)]) return;
    done[at(id)] = true;
    const ScalarNode& node = nest_.nodes[at(id)];
    if (node.op == ScalarOp::reduce && plan_.node_level[at(id)] < pass) return;
    const DimSet dims = plan_.node_dims[at(id)];
    const bool inner = varies(dims) || (dims & plan_.reduced_dims() & ~row_dims_);
    Body& target = inner ? body : row;
    if (plan_.levels > 0 && first_pass_[at(id)] > 0 && first_pass_[at(id)] < pass &&
        (dims & plan_.reduced_dims()) && varies(dims) && subtree_cost(id) >= 8) {
      target.loads += registers_of(node.dtype);
      if (!saved_[at(id)]) kept_stores_ += 1;
      saved_[at(id)] = true;
      return;
    }
    if (first_pass_[at(id)] < 0) first_pass_[at(id)] = pass;
    const double shared = plan_.tile > 1 && plan_.levels > 0 && !(dims >> plan_.tile_dim() & 1)
                              ? 1.0 / plan_.tile
                              : 1;
    if (node.op == ScalarOp::load) {
      const loop::Access& access = nest_.accesses[static_cast<std::size_t>(node.index)];
      for (const loop::Indirect& part : access.indirect) collect(part.node, pass, done, body, row);
      const bool scalar = !varies(dims);
      add_access(target, access, false, node.index,
                 shared_by_tile(access) * (scalar && inner ? 1.0 / plan_.unroll : 1));
      return;
    }
    target.alu += node_ns(node, nest_.nodes, model_) * registers_of(node.dtype) * shared;
    for (const ScalarId operand : {node.a, node.b, node.c}) collect(operand, pass, done, body, row);
  }

  int subtree_cost(ScalarId id) const {
    if (id < 0) return 0;
    const ScalarNode& node = nest_.nodes[at(id)];
    if (node.op == ScalarOp::reduce) return 0;
    const int below = subtree_cost(node.a) + subtree_cost(node.b) + subtree_cost(node.c);
    return std::min(codegen::cost_of(node) + below, 1000);
  }

  // ---- windows: tiles of neighbouring columns whose sums stay in registers ----

  bool is_window() const {
    if (plan_.levels != 1 || plan_.vector_is_reduced() || plan_.nest.parallel_dims < 2)
      return false;
    if (plan_.points(nest_.parallel_dims, plan_.rank()) > 512) return false;
    const auto plain = [&](const loop::Access& access) {
      const std::int64_t along = access.strides[static_cast<std::size_t>(plan_.vector_dim)];
      return access.indirect.empty() && (along == 0 || along == 1);
    };
    for (const loop::Store& store : nest_.stores) {
      const DimSet dims =
          plan_.node_dims[at(store.node)] | codegen::dims_of(store.access, plan_.node_dims);
      if ((dims & plan_.reduced_dims()) || !plain(store.access)) return false;
    }
    return std::all_of(nest_.accesses.begin(), nest_.accesses.end(), plain);
  }

  int column_dim() const {
    int best = -1;
    const std::vector<std::int64_t>& strides = nest_.stores.front().access.strides;
    for (int dim = 0; dim < nest_.parallel_dims; ++dim) {
      if (dim == plan_.vector_dim) continue;
      const auto stride = [&](int d) { return std::abs(strides[static_cast<std::size_t>(d)]); };
      if (best < 0 || stride(dim) <= stride(best)) best = dim;
    }
    return best;
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

  void add_windows() {
    const int column = column_dim();
    double sums = 0;
    for (const ScalarNode& node : nest_.nodes) sums += node.op == ScalarOp::reduce;
    const double most = std::floor((model_.machine.registers > 16 ? 8 : 6) / std::max(sums, 1.0));
    const double columns = extent(column), registers = vectors_of(extent(plan_.vector_dim));
    double tiles = std::ceil(columns / most);
    const double tile = std::ceil(columns / tiles);
    tiles = std::ceil(columns / tile);
    double vectors = 1;
    for (double v = 1; v * tile <= most; ++v) {
      if (std::fmod(registers, v) == 0) vectors = v;
    }
    const double others = points_of(((DimSet{1} << nest_.parallel_dims) - 1) &
                                    ~(DimSet{1} << plan_.vector_dim) & ~(DimSet{1} << column));
    const double taps = points_of(plan_.reduced_dims());
    const double blocks = others * tiles * registers / vectors;
    const double steps = blocks * taps * share_inside();  // a tap of a tile
    // What a tap of a tile loads and computes.
    Body body;
    const double tap_run = extent(plan_.rank() - 1);
    for (const ScalarNode& node : nest_.nodes) {
      const DimSet dims = plan_.node_dims[&node - nest_.nodes.data()];
      if (node.op == ScalarOp::reduce) {
        body.alu += step_ns(node) * tile * vectors;
        if (step_ns(node) == 0)
          body.alu +=
              model_.op(ScalarOp::add) * tile * vectors - model_.op(ScalarOp::mul) * tile * vectors;
        continue;
      }
      if (!(dims & plan_.reduced_dims())) continue;
      const bool along_column = dims >> column & 1;
      const double wide = varies(dims) ? vectors : 1;
      if (node.op == ScalarOp::load) {
        const loop::Access& access = nest_.accesses[static_cast<std::size_t>(node.index)];
        const auto step =
            static_cast<double>(std::abs(access.strides[static_cast<std::size_t>(column)]));
        const auto tap = static_cast<double>(
            std::abs(access.strides[static_cast<std::size_t>(plan_.rank() - 1)]));
        double places = along_column ? tile : 1;
        if (along_column && tap > 0) {
          places = std::min(tile, ((tile - 1) * std::max(1.0, step / tap) + tap_run) / tap_run);
        }
        const DType dtype = buffers_[static_cast<std::size_t>(access.buffer)].dtype;
        body.loads += places * wide * registers_of(dtype) * (is_aligned(access, dtype) ? 1 : 1.7);
        continue;
      }
      const bool fused = node.op == ScalarOp::mul;
      body.alu += node_ns(node, nest_.nodes, model_) * (along_column ? tile : 1) * wide *
                  (fused ? 1 : registers_of(node.dtype));
    }
    // Behind the window: what is computed from the sums, and the stores.
    Body once;
    for (const ScalarNode& node : nest_.nodes) {
      const DimSet dims = plan_.node_dims[&node - nest_.nodes.data()];
      if ((dims & plan_.reduced_dims()) || node.op == ScalarOp::reduce) continue;
      if (node.op == ScalarOp::load) {
        once.loads += varies(dims) ? 1 : 0.2;
      } else if (varies(dims)) {
        once.alu += node_ns(node, nest_.nodes, model_) * registers_of(node.dtype);
      }
    }
    once.stores += static_cast<double>(nest_.stores.size());
    // All of a block overlaps: its sums are independent of each other.
    Body block;
    const double ends = blocks * tile * vectors;
    block.alu = steps * body.alu + ends * once.alu;
    block.loads = steps * body.loads + ends * once.loads;
    block.stores = ends * once.stores;
    compute_ += block.longest(model_);
    add_rows_again(column);
    overhead_ += blocks * (0.5 + 0.3 * taps / tap_run) * model_.loop;
  }

  /// The rows of an image that a window covers come from L2 for each of them, if L1 does not hold
  /// all of them.
  void add_rows_again(int column) {
    double rows = 1;
    for (int dim = nest_.parallel_dims; dim + 1 < plan_.rank(); ++dim) rows *= extent(dim);
    for (const loop::Access& access : nest_.accesses) {
      const auto stride = [&](int dim) {
        return std::abs(access.strides[static_cast<std::size_t>(dim)]);
      };
      if (stride(column) == 0 || stride(plan_.rank() - 1) == 0) continue;
      const loop::Buffer& buffer = buffers_[static_cast<std::size_t>(access.buffer)];
      const double element = static_cast<double>(size_of(buffer.dtype));
      const double row = extent(column) * static_cast<double>(stride(column)) * element;
      if (rows * row < 0.75 * static_cast<double>(model_.cache_bytes[0])) continue;
      streamed_ += (rows - 1) * panel_time[1] * static_cast<double>(buffer.elements) * element;
    }
  }

  // ---- passes ----

  /// How often a pass over the reduced dims is made (a row), and how many vectors it takes.
  struct Walk {
    double rows = 1, vectors = 1, entries = 1, blocks = 1;
  };
  Walk walk() const {
    Walk walk;
    const int parallel = nest_.parallel_dims;
    double reduced_outer = 1;  // loops over reduced dims that are entered for every row
    for (int dim = parallel; dim + 1 < plan_.rank(); ++dim) reduced_outer *= extent(dim);
    if (plan_.levels > 0 && plan_.vector_is_reduced()) {
      walk.rows = points_of((DimSet{1} << parallel) - 1);
      walk.vectors = reduced_outer * vectors_of(extent(plan_.vector_dim));
      walk.entries = walk.rows * reduced_outer;
      walk.blocks = walk.rows;
      return walk;
    }
    double others = 1;
    for (int dim = 0; dim < parallel; ++dim) {
      if (dim != plan_.vector_dim) others *= extent(dim);
    }
    const double along = extent(plan_.vector_dim);
    const double vectors = vectors_of(along);
    if (plan_.levels == 0) {
      walk.rows = others;
      walk.vectors = vectors;
      const bool splits = plan_.split_dim == plan_.vector_dim;
      walk.entries =
          others * (splits ? std::ceil(along / static_cast<double>(plan_.split_size)) : 1);
      if (plan_.tile > 1) walk.entries /= plan_.tile;
      walk.blocks = 0;
      return walk;
    }
    const double unroll = std::min<double>(plan_.unroll, vectors);
    const double tile = plan_.tile > 1 ? plan_.tile : 1;
    walk.rows = others * vectors;
    walk.vectors = points_of(plan_.reduced_dims());
    walk.blocks = others / tile * std::ceil(vectors / unroll);
    walk.entries = walk.blocks * std::max(1.0, reduced_outer);
    return walk;
  }

  /// Taking one more element into a running value.
  double step_ns(const ScalarNode& node) const {
    const double one = model_.op(ScalarOp::add);
    switch (node.reduce_kind) {
      // A product that is summed is one multiply-add: its multiplication has been counted.
      case ReduceKind::sum:
        return is_float(node.dtype) && nest_.nodes[at(node.a)].op == ScalarOp::mul ? 0 : one;
      // NaN wins: a comparison, a test, a selection.
      case ReduceKind::min:
      case ReduceKind::max: return is_float(node.dtype) ? 3 * one : one;
      case ReduceKind::argmin:
      case ReduceKind::argmax: return 6 * one;
      default: return one;
    }
  }

  void add_reductions(int level) {
    Body body, row;
    std::vector<bool> done(nest_.nodes.size(), false);
    double joins = 0;
    for (std::size_t i = 0; i < nest_.nodes.size(); ++i) {
      const ScalarNode& node = nest_.nodes[i];
      if (node.op != ScalarOp::reduce || plan_.node_level[i] != level) continue;
      collect(node.a, level, done, body, row);
      const bool position =
          node.reduce_kind == ReduceKind::argmin || node.reduce_kind == ReduceKind::argmax;
      body.alu += step_ns(node) * registers_of(node.dtype);
      joins += position ? 3 : 1;
    }
    const Walk w = walk();
    const bool across = plan_.vector_is_reduced();
    // Few running values wait for each other's additions.
    const double vectors = vectors_of(extent(plan_.vector_dim));
    const double chains =
        std::min<double>(plan_.unroll, vectors) * (across || plan_.tile <= 1 ? 1 : plan_.tile);
    const double latency = 3 * model_.cycle / std::max(chains, 1.0);
    compute_ += w.rows * w.vectors * std::max(body.ns(model_), latency);
    compute_ += w.blocks * row.ns(model_);
    overhead_ += w.entries * model_.loop;
    if (across) overhead_ += w.rows * joins * model_.join;
  }

  bool in_place() const {
    return std::any_of(nest_.stores.begin(), nest_.stores.end(), [&](const loop::Store& store) {
      return std::any_of(
          nest_.accesses.begin(), nest_.accesses.end(),
          [&](const loop::Access& access) { return access.buffer == store.access.buffer; });
    });
  }

  void add_last_pass() {
    const int pass = plan_.levels + 1;
    Body body, row, once;
    std::vector<bool> done(nest_.nodes.size(), false);
    const DimSet reduced = plan_.reduced_dims();
    bool inner = false;
    for (const loop::Store& store : nest_.stores) {
      const DimSet dims =
          plan_.node_dims[at(store.node)] | codegen::dims_of(store.access, plan_.node_dims);
      const bool is_once = plan_.levels > 0 && !(dims & reduced);
      if (is_once) {
        Body ignored;
        collect(store.node, pass, done, once, ignored);
        once.alu += ignored.alu;
        once.loads += ignored.loads;
        add_access(once, store.access, true, -1, 1);
        continue;
      }
      inner = true;
      collect(store.node, pass, done, body, row);
      add_access(body, store.access, true, -1, 1);
    }
    const Walk w = walk();
    if (inner) {
      compute_ += w.rows * w.vectors * body.ns(model_);
      compute_ += (plan_.levels > 0 ? w.blocks : w.entries) * row.ns(model_);
      overhead_ += w.entries * model_.loop;
    }
    const double along = extent(plan_.vector_dim);
    if (inner && in_place() && model_.machine.masks && std::fmod(along, plan_.lanes) != 0)
      overhead_ += w.entries * masked_wait_cycles * model_.cycle;
    compute_ += w.rows * w.vectors * kept_stores_ * model_.cycle / model_.stores_per_cycle;
    if (once.stores > 0) compute_ += w.rows * once.ns(model_);
  }

  const codegen::NestPlan plan_;
  const loop::Nest& nest_;
  std::span<const loop::Buffer> buffers_;
  const MachineModel& model_;
  std::vector<int> first_pass_;
  std::vector<bool> saved_ = std::vector<bool>(first_pass_.size(), false);
  DimSet row_dims_ = 0;
  double kept_stores_ = 0;
  double compute_ = 0, overhead_ = 0;
  double streamed_ = 0;  ///< bytes that come from L2 again
};

}  // namespace

void add_nest(KernelWork& work, const loop::Nest& nest, std::span<const loop::Buffer> buffers,
              const MachineModel& model, bool rows) {
  NestCost(nest, buffers, model, rows).add_to(work);
}

}  // namespace rlx::cost
