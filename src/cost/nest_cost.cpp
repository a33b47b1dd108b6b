// The work of nests: the passes over reduced dims that their code makes, and what a vector of
// points costs in each.
#include <bit>

#include "cost/nest_lines.hpp"
#include "cost/row_passes.hpp"

namespace rlx::cost {
namespace {

using codegen::DimSet;

class NestCost : public NestLines {
 public:
  NestCost(const loop::Nest& nest, std::span<const loop::Buffer> buffers, const MachineModel& model,
           bool rows)
      : NestLines(nest, buffers, model, rows), first_pass_(nest_.nodes.size(), -1) {}

  void add_to(KernelWork& work) {
    add_passes();
    work.items = items();
    work.compute += compute_;
    work.starts += starts_;
    work.jumps += jumps_;
    work.overhead += overhead_ + static_cast<double>(work.items.count()) * model_.item;
    add_lines_again(work);
    work.lone_lines += lone_lines(turning_);
    if (turning_) work.turned_lines += turned_lines();
    if (!turning_) work.lines_across += lines_across();
    if (plan_.levels == 0) {
      work.further_lines += lines_of_many_streams();
      work.loads_apart = loads_apart(), work.stores_apart = stores_apart();
    }
    if (plan_.levels == 0 && !turning_) {
      work.far_rows += far_rows();
      work.stores_with_gaps += stores_with_gaps();
      work.crowded += overlap_.crowded_line * crowded_lines();
      // What never breaks is fetched far ahead.
      if (overlap_.stream_power > 0 && broken_rows(walk().rows) <= 1)
        work.power = overlap_.stream_power;
    }
  }

  void add_flops_to(KernelWork& work) const {
    for (const ScalarNode& node : nest_.nodes)
      work.flops += flops_of(node) * points_of(plan_.node_dims[&node - nest_.nodes.data()]);
  }
  void add_shares_to(KernelWork& work) const { add_shares(work.shares, plan_, buffers_); }
  bool is_empty() const { return plan_.points(0, plan_.rank()) == 0; }

 private:
  void add_passes() {
    for (int level = 1; level <= plan_.levels; ++level) add_reductions(level);
    add_last_pass();
  }

  static double flops_of(const ScalarNode& node) {
    const int cost = codegen::cost_of(node);
    return is_float(node.dtype) ? cost : 0;
  }

  /// What is computed twice because the last tile reaches back.
  double whole_tiles() const {
    const double along = extent(plan_.tile_dim());
    return std::ceil(along / plan_.tile) * plan_.tile / along;
  }

  // ---- one access of one vector ----

  /// ns more for a lane whose line L1 has given away.
  static constexpr double crowded_lane_ns = 0.8;
  /// Cycles for the indices of a vector of lanes, 64 bits each.
  static constexpr double lane_index_cycles = 11;
  static constexpr double first_share = 0.7;
  /// ns that the start of a row of a map takes, at most: the streams begin anew.
  static constexpr double longest_start = 9;

  void add_access(Body& body, const loop::Access& access, bool store, int number,
                  double shared) const {
    const DType dtype = buffers_[static_cast<std::size_t>(access.buffer)].dtype;
    const std::int64_t stride = access.strides[static_cast<std::size_t>(plan_.vector_dim)];
    const bool lanes_differ = this->lanes_differ(access);
    double& count = store ? body.stores : body.loads;
    const loop::Indirect* picked = store ? nullptr : picked_part(access);
    double accesses = 1;
    if (picked != nullptr) {
      accesses = picked->step;
      body.alu += picked_ns(*picked, dtype) * shared;
    } else if (!store && number >= 0 && turning_ && is_turned(number)) {
      const double crowded = overlap_.crowded_turn * shared_line_share(access, dtype);
      body.alu += (0.048 * std::pow(plan_.lanes, 1.5) + crowded) * model_.cycle;
      accesses = 1 + share_across_lines(stride * static_cast<std::int64_t>(size_of(dtype)));
    } else if (store && plan_.woven) {
      // As many shuffles as exchanges of halves; an odd number of runs is joined one by one.
      const double runs = plan_.tile % 2 == 0 ? std::log2(plan_.tile) : plan_.tile;
      const double steps = overlap_.exchange * runs;
      accesses = registers_of(dtype);
      body.alu += steps * model_.cycle * registers_of(dtype);
    } else if (!store && !lanes_differ && codegen::is_shuffled(stride, plan_.lanes)) {
      // Whole registers are read and shuffled; what a mask covers that loads do not take is
      // gathered.
      const double gathered = model_.machine.masks ? 0 : masked_share(access);
      accesses = static_cast<double>(stride) * registers_of(dtype) * (1 - gathered) +
                 plan_.lanes * gathered;
      const double shuffles = static_cast<double>(stride - 1) * registers_of(dtype);
      body.alu += overlap_.exchange * model_.cycle * shuffles * shared * (1 - gathered);
      body.alu += model_.lone_lane_ns() * plan_.lanes * gathered * shared;
    } else if (store && overlap_.store_lane > 0 && (lanes_differ || std::abs(stride) > 1)) {
      // A store of one lane goes through in one step.
      body.alu += overlap_.store_lane * model_.cycle * plan_.lanes * shared;
      accesses = plan_.lanes * model_.stores_per_cycle;
    } else if (lanes_differ || std::abs(stride) > 1) {
      const double crowded = store || lanes_differ || !plan_.turned.empty()
                                 ? 0
                                 : crowded_lane_ns * crowded_share(access, dtype);
      const double guarded = access.guards.empty() ? 0 : overlap_.guarded_lane;
      body.alu += (model_.lone_lane_ns() * (1 + guarded) + far_page_ns(access, dtype) + crowded) *
                  plan_.lanes * shared;
      accesses = plan_.lanes;
    } else if (stride != 0) {
      const double longer = store ? store_across() - 1 : load_across(access);
      accesses = registers_of(dtype) * (1 + longer * share_across(access, dtype));
      if (is_float(dtype) && size_of(dtype) < 4) body.alu += model_.narrow_ns * shared;
      if (stride < 0) body.alu += 2 * model_.cycle;
    }
    count += accesses * shared;
    // Tiles inside of all borders ask for nothing.
    for (const loop::Guard& guard :
         plan_.has_inside() ? std::vector<loop::Guard>{} : access.guards) {
      const auto runs_along = [&](int dim) { return guard.coefficients[at(dim)] != 0; };
      // Points of a tile that differ in what lies inside have no bounds in common.
      const bool clipped = plan_.levels > 0 && !(plan_.tile > 1 && runs_along(plan_.tile_dim()));
      const double aside = clipped ? overlap_.clipped_guard : 1;
      // Those of a map that are the same for all lanes are asked once a row.
      const double of_row =
          plan_.levels == 0 && plan_.tile <= 1 ? vectors_of(extent(plan_.vector_dim)) : 1;
      const double cycles =
          runs_along(plan_.vector_dim) ? guard_along() : aside / std::max(of_row, 1.0);
      body.alu += cycles * share_asking(guard) * model_.cycle * shared;
    }
    if (lanes_differ && !picked) body.alu += lane_index_cycles * model_.cycle;
    if (store && turning_ && crowds_sets(access, dtype)) body.stores += overlap_.crowded_store;
  }

  double store_across() const {
    const bool of_tile = turning_ && overlap_.turned_across > 0;
    return of_tile ? overlap_.turned_across : overlap_.store_across;
  }

  /// Points of a row beside those that lanes take without asking: they come one by one.
  double points_beside() const {
    const auto inside = static_cast<double>(plan_.inside.size());
    return plan_.has_inside() ? extent(plan_.vector_dim) - inside : 0;
  }
  /// Of what a vector takes such a point: some taps lie outside, and none is made in two steps.
  double share_of_point() const { return model_.takes_two_steps() ? 0.3 : 0.6; }

  /// Cycles of a guard that runs along the lanes.
  double guard_along() const {
    // Of a row that one round takes the positions are numbers in the code.
    const double rounds = std::floor(extent(plan_.vector_dim) / plan_.lanes) / plan_.unroll;
    if (plan_.levels > 0 && plan_.tile <= 1) return overlap_.looped_guard;
    if (rounds <= 1) return overlap_.known_guard;
    return plan_.levels == 0 ? overlap_.guard : overlap_.tap_guard;
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

  /// Vectors of columns that a block of a reduction across the lanes has.
  double columns_of_block() const {
    return std::min<double>(plan_.unroll, vectors_of(extent(plan_.vector_dim)));
  }

  /// Adds what `id` needs in this pass: to the body what changes from vector to vector, to `row`
  /// what stays for a row of vectors.
  void collect(ScalarId id, int pass, std::vector<bool>& done, Body& body, Body& row) {
    if (id < 0 || done[at(id)]) return;
    done[at(id)] = true;
    const ScalarNode& node = nest_.nodes[at(id)];
    if (node.op == ScalarOp::reduce && plan_.node_level[at(id)] < pass) return;
    const DimSet dims = plan_.node_dims[at(id)];
    // Where lanes lie across what is reduced, a block of columns walks along that.
    const bool walks = plan_.levels > 0 && !plan_.vector_is_reduced();
    const bool inner = (varies(dims) && !walks) || (dims & plan_.reduced_dims() & ~row_dims_);
    const double of_columns = walks && !inner && varies(dims) ? columns_of_block() : 1;
    Body& target = inner ? body : row;
    if (is_kept(id, pass)) {
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
      if (!access.indirect.empty() && !lanes_differ(access)) {
        row.other += index_cycles(access) * model_.cycle;
        if (jumps(access))
          jumps_ = std::max(jumps_, points_of(dims & ~(DimSet{1} << plan_.vector_dim)));
      }
      add_access(target, access, false, node.index,
                 shared_by_tile(access) * of_columns * (scalar && inner ? 1.0 / plan_.unroll : 1));
      return;
    }
    const bool of_a_row = plan_.levels > 0 && plan_.vector_is_reduced() && !inner && !varies(dims);
    add_node(target, node, registers_of(node.dtype) * shared * of_columns, of_a_row);
    for (const ScalarId operand : {node.a, node.b, node.c}) collect(operand, pass, done, body, row);
  }

  /// An earlier pass has computed it, and left it in the worker's scratch.
  bool is_kept(ScalarId id, int pass) const {
    const DimSet dims = plan_.node_dims[at(id)];
    return plan_.levels > 0 && first_pass_[at(id)] > 0 && first_pass_[at(id)] < pass &&
           (dims & plan_.reduced_dims()) && varies(dims) && subtree_cost(id) >= 8;
  }

  int subtree_cost(ScalarId id) const {
    if (id < 0) return 0;
    const ScalarNode& node = nest_.nodes[at(id)];
    if (node.op == ScalarOp::reduce) return 0;
    const int below = subtree_cost(node.a) + subtree_cost(node.b) + subtree_cost(node.c);
    return std::min(codegen::cost_of(node) + below, 1000);
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
    const double along = extent(plan_.vector_dim), vectors = vectors_of(along);
    if (plan_.levels == 0) {
      walk.rows = others;
      walk.vectors = vectors;
      const bool splits = plan_.items > 1 && plan_.split_dim == plan_.vector_dim;
      walk.entries =
          others * (splits ? std::ceil(along / static_cast<double>(plan_.split_size)) : 1);
      if (plan_.tile > 1) walk.entries /= plan_.tile;
      walk.blocks = 0;
      return walk;
    }
    const double unroll = columns_of_block();
    const double tile = plan_.tile > 1 ? plan_.tile : 1;
    walk.rows = others * vectors;
    walk.vectors = points_of(plan_.reduced_dims());
    walk.blocks = others / tile * std::ceil(vectors / unroll);
    walk.entries = walk.blocks * std::max(1.0, reduced_outer);
    return walk;
  }

  static constexpr double shuffle_latency = 3;   // cycles
  static constexpr double position_latency = 8;  // a comparison and two selections by its mask
  /// Joining the lanes of a sum takes the vector units that share of the time that it takes alone.
  static constexpr double join_share = 0.65;

  // ---- rows that lanes run along: passes wait for each other's sums ----

  /// Cycles from the loads and the sums of earlier levels to the value; `known`: those found on
  /// this level before, by node, or less than 0.
  double depth_of(ScalarId id, int level, std::vector<double>& known) const {
    if (id < 0) return 0;
    double& depth = known[at(id)];
    if (depth >= 0) return depth;
    const ScalarNode& node = nest_.nodes[at(id)];
    if (node.op == ScalarOp::load || is_kept(id, level)) return depth = 7;
    if (node.op == ScalarOp::reduce && plan_.node_level[at(id)] < level) return depth = 0;
    double below = 0;
    for (const ScalarId operand : {node.a, node.b, node.c})
      below = std::max(below, depth_of(operand, level, known));
    return depth = below + latency_cycles(node, nest_.nodes, model_);
  }

  /// What a vector of the last pass executes, and what is stored once for all reduced points.
  struct LastPass {
    Body body, row, once;
    double depth = 0;
    bool inner = false;
  };

  /// What joining the lanes of a row costs beside other rows, as a part of what it costs alone:
  /// they share vectors.
  double share_of_join(double halvings) const {
    if (plan_.rows == 1 || halvings == 0) return 1;
    const double rows = plan_.rows;
    const double steps = 1.5 * (rows - 1) + std::max(halvings - std::log2(rows), 0.0) + rows;
    return std::min(1.0, steps / (rows * halvings));
  }

  /// ns of a vector of a map: long chains of operations wait for each other where the processor
  /// does not look ahead to enough vectors behind them.
  double vector_ns(const LastPass& last) const {
    const double abreast = plan_.abreast ? plan_.unroll * plan_.tile : 1;
    const double chain = last.depth * model_.cycle / std::max(abreast, last.body.ahead(model_));
    if (plan_.levels > 0 || turning_) return last.body.ns(model_);
    return std::max(with_spills(last.body).ns(model_), chain);
  }

  /// Values of a map that find no register free are stored, and loaded again.
  Body with_spills(Body body) const {
    const double operations = body.alu / model_.op(ScalarOp::add);
    const double live = std::max(body.loads, body.stores) + overlap_.live_results * operations;
    const double spilled = overlap_.spills * std::max(0.0, live - model_.machine.registers);
    body.loads += spilled;
    body.stores += spilled;
    return body;
  }

  /// What each further series of a sum's operand waits for the one before it, as a part of the work
  /// of one vector: few vectors of a round do not fill that time.
  static constexpr double behind_series = 0.65;

  void add_reductions(int level) {
    Body body, row;
    std::vector<bool> done(nest_.nodes.size(), false);
    std::vector<double> depths(nest_.nodes.size(), -1);
    double joins = 0, depth = 0, step = 0, column_step = 0;
    for (std::size_t i = 0; i < nest_.nodes.size(); ++i) {
      const ScalarNode& node = nest_.nodes[i];
      if (node.op != ScalarOp::reduce || plan_.node_level[i] != level) continue;
      collect(node.a, level, done, body, row);
      const bool position =
          node.reduce_kind == ReduceKind::argmin || node.reduce_kind == ReduceKind::argmax;
      const double one = step_ns(node);
      body.alu += one * registers_of(position ? nest_.nodes[at(node.a)].dtype : node.dtype);
      const double weight = std::max(1.0, one / model_.op(ScalarOp::add));
      const double sum = overlap_.sum_latency;
      const double in_column = position ? 2 * sum : weight > 1 ? overlap_.max_latency : sum;
      joins += weight * (position ? 15 : 1);
      depth = std::max(depth, depth_of(node.a, level, depths));
      // A maximum of a column waits for all of its comparison and its selection.
      column_step = std::max(column_step, in_column);
      step = std::max(step, position ? position_latency : std::min(in_column, 1.5 * sum));
    }
    const Walk w = walk();
    // Few running values wait for each other's additions.
    const double vectors = vectors_of(extent(plan_.vector_dim));
    const double unroll = std::min<double>(plan_.unroll, vectors);
    body.alu *= 1 + behind_series * further_series(done) / unroll;
    if (plan_.vector_is_reduced()) {
      const double halvings = std::log2(std::max(plan_.lanes, 1U));
      Body all = body * w.vectors + row;
      all.alu += joins * model_.join * join_share * halvings / 4 * share_of_join(halvings);
      all.other += w.entries / w.rows * model_.loop;
      const double chain = w.vectors / unroll * step + std::log2(unroll) * step +
                           halvings * (step + shuffle_latency);
      passes_.add(all, depth + chain);
      return;
    }
    if (nest_.parallel_dims < plan_.rank())
      starts_ += w.blocks * points_of(plan_.reduced_dims()) * row_step_ns(unroll);
    const double alone = vectors_alone(unroll), others = w.rows / vectors;
    const double tile = std::max(plan_.tile, 1U), work = w.rows * w.vectors * body.ns(model_);
    const double chains = ((vectors - alone) / unroll + alone) / tile;
    sums_.add(body * (w.vectors * unroll * tile), work,
              others * w.vectors * chains * column_step * model_.cycle);
    compute_ += work + w.blocks * row.ns(model_);
    overhead_ += w.entries * model_.loop;
    compute_ += others * points_beside() * w.vectors * share_of_point() * body.ns(model_);
  }

  LastPass last_pass() {
    const int pass = plan_.levels + 1;
    LastPass last;
    std::vector<bool> done(nest_.nodes.size(), false);
    std::vector<double> depths(nest_.nodes.size(), -1);
    const DimSet reduced = plan_.reduced_dims();
    for (const loop::Store& store : nest_.stores) {
      const DimSet dims =
          plan_.node_dims[at(store.node)] | codegen::dims_of(store.access, plan_.node_dims);
      last.depth = std::max(last.depth, depth_of(store.node, pass, depths));
      if (plan_.levels > 0 && !(dims & reduced)) {
        Body along;
        collect(store.node, pass, done, last.once, along);
        last.once = last.once + along;
        add_access(last.once, store.access, true, -1, 1);
        continue;
      }
      last.inner = true;
      collect(store.node, pass, done, last.body, last.row);
      add_access(last.body, store.access, true, -1, 1);
    }
    return last;
  }

  /// The rest of a row that is made in place is stored in pieces, halves of a register and halves
  /// of those.
  double pieces_ns(double along) const {
    const auto rest = static_cast<std::uint64_t>(along) % plan_.lanes;
    if (rest == 0) return 0;
    return (std::popcount(rest) - 1) * model_.cycle / model_.stores_per_cycle;
  }

  void add_last_pass() {
    const LastPass last = last_pass();
    const Walk w = walk();
    const double along = extent(plan_.vector_dim);
    if (last.inner && !plan_.may_repeat && model_.machine.masks)
      overhead_ += w.entries * pieces_ns(along);
    const double kept = kept_stores_ * model_.cycle / model_.stores_per_cycle;
    if (plan_.levels > 0 && plan_.vector_is_reduced()) {
      Body all = last.once;
      if (last.inner) {
        all = all + last.body * w.vectors + last.row;
        all.other += w.entries / w.rows * model_.loop;
      }
      all.stores += kept_stores_ * w.vectors;
      passes_.add(all, last.depth);
      compute_ += passes_.ns(w.rows);
      return;
    }
    if (last.inner) {
      compute_ += w.rows * w.vectors * vector_ns(last) * (turning_ ? whole_tiles() : 1);
      compute_ += (plan_.levels > 0 ? w.blocks : w.entries) * last.row.ns(model_);
      // Tiles that are turned are so many stores that entering their loops hides behind them.
      if (!turning_) overhead_ += w.entries * model_.loop;
    }
    // The first results take as long as their chain of operations.
    overhead_ += first_share * last.depth * model_.cycle;
    if (turning_) add_tail_of_tiles(last, w);
    if (plan_.levels == 0 && !turning_ && w.rows > 1) {
      const double start = overlap_.vector_start * w.vectors;
      starts_ += broken_rows(w.rows) * std::min(longest_start, start);
    }
    compute_ += w.rows * w.vectors * kept;
    if (last.once.stores > 0) compute_ += w.rows * last.once.ns(model_);
    if (plan_.levels > 0)
      compute_ += sums_.waits((last.once + last.body * w.vectors) * (w.rows / w.blocks), w.blocks);
  }

  /// The last lanes of a row do not fill a tile: every element is read alone, unless the last tile
  /// reaches back.
  void add_tail_of_tiles(const LastPass& whole, const Walk& w) {
    const auto lanes = static_cast<double>(plan_.lanes);
    const bool reaches_back = !model_.machine.masks && plan_.may_repeat;
    if (reaches_back || std::fmod(extent(plan_.vector_dim), lanes) == 0) return;
    turning_ = false;
    const double less = whole.body.ns(model_) * whole_tiles();
    compute_ += w.rows * std::max(0.0, last_pass().body.ns(model_) - less);
    turning_ = true;
  }

  RowPasses passes_{model_, plan_.row_block};
  ColumnSums sums_{model_};
  std::vector<int> first_pass_;
  std::vector<bool> saved_ = std::vector<bool>(first_pass_.size(), false);
  DimSet row_dims_ = 0;
  double kept_stores_ = 0;
  bool turning_ = !plan_.turned.empty();
  double compute_ = 0, overhead_ = 0;
  double starts_ = 0, jumps_ = 0;
};

}  // namespace

void add_nest(KernelWork& work, const loop::Nest& nest, std::span<const loop::Buffer> buffers,
              const MachineModel& model, bool rows) {
  NestCost cost(nest, buffers, model, rows);
  if (cost.is_empty()) return;
  const bool may_be_window = !rows && nest.lead == 0;
  if (!may_be_window || !add_window(work, nest, buffers, model)) cost.add_to(work);
  if (!rows) cost.add_shares_to(work);
  cost.add_flops_to(work);
}

}  // namespace rlx::cost
