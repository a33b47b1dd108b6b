// The work of contractions: register blocks with their multiply-adds, taps at borders, panels that
// are copied, and the epilogue.
#include <algorithm>
#include <cmath>

#include "cost/kernel_work.hpp"

namespace rlx::cost {
namespace {

class ContractionCost {
 public:
  ContractionCost(const loop::Contraction& contraction, std::span<const loop::Buffer> buffers,
                  const MachineModel& model, const codegen::ChainPlan* chain)
      : contraction_(contraction),
        chain_(chain),
        buffers_(buffers),
        model_(model),
        a_dtype_(buffers[static_cast<std::size_t>(contraction.a_buffer)].dtype),
        b_dtype_(buffers[static_cast<std::size_t>(contraction.b_buffer)].dtype),
        plan_(plan_of(contraction)) {}

  void add_to(KernelWork& work) {
    work.items = items();
    if (plan_.work_items == 0) return;
    // Whatever a stage would do alone: a chain's workers share rows.
    codegen::ContractionPlan shared_out = plan_;
    shared_out.whole_rows |= chain_ != nullptr;
    add_shares(work.shares, contraction_, shared_out, buffers_);
    add_lines(work);
    if (codegen::is_dots(contraction_, plan_, a_dtype_, b_dtype_)) return add_dots(work);
    const double batches = d(plan_.batches), column_blocks = d(plan_.column_blocks);
    const double tall = d(plan_.row_blocks - plan_.short_blocks);
    const double calls = batches * column_blocks;
    const bool narrow_last = chain_ || !model_.machine.masks;
    const double whole_calls = narrow_last ? batches * whole_column_blocks() : calls;
    double block_ns =
        d(plan_.short_blocks) * block(plan_.one_height ? plan_.block_rows + 1 : plan_.block_rows);
    if (tall > 0) block_ns += tall * block(plan_.block_rows + 1);
    work.compute += whole_calls * block_ns * taps_inside();
    work.compute += border_ns() * calls;
    work.compute += epilogue_ns();
    work.overhead +=
        calls * d(plan_.row_blocks) * block_overhead() + d(work.items.count()) * model_.item;
    work.compute -= calls * d(plan_.row_blocks) * hidden_ns();
    add_panels(work);
    work.flops += 2 * batches * d(plan_.rows) * d(plan_.columns) * d(plan_.depth);
    if (!contraction_.row_epilogue.nodes.empty()) add_row_epilogue(work);
    add_streams(work);
    work.b_share = taps_inside();
    // B arrives while the first block of rows is made, A while the first block of columns is.
    const double a = d(plan_.rows) * d(plan_.depth) * static_cast<double>(size_of(a_dtype_));
    const double b = b_bytes(d(plan_.columns) * d(plan_.depth));
    const double c = d(plan_.rows) * d(plan_.columns) * 4;
    work.beside = (a / column_blocks + b / d(plan_.row_blocks) + c) / (a + b + c);
    // The processor asks ahead; and whole rows read B again for every group.
    constexpr double ahead = 1.5;
    work.beside = std::min(1.0, ahead * work.beside);
    if ((plan_.whole_rows || plan_.rows_outermost) && plan_.row_groups > 1) work.beside = 1;
    work.fetched_more = overlap_.fetched_by_blocks;
    const bool asks = plan_.asking_blocks > 0;
    work.power = asks && overlap_.asked_power > 0 ? overlap_.asked_power : overlap_.block_power;
    work.far_beside = overlap_.far_beside;
    work.asked_beside = asks ? overlap_.asked_beside : 0;
    work.near_power = overlap_.near_power;
  }

 private:
  void add_row_epilogue(KernelWork& work) const {
    KernelWork rows;
    add_nest(rows, contraction_.row_epilogue, buffers_, model_, true);
    work.flops += rows.flops;
    const std::int64_t count = plan_.batches * plan_.rows;
    const auto softmax = chain_ ? codegen::find_softmax_rows(contraction_.row_epilogue, buffers_,
                                                             model_.machine, count)
                                : std::nullopt;
    if (!softmax) {
      work.compute += rows.compute;
      work.overhead += rows.overhead;
      return;
    }
    // Powers of what is at most 0, the search for the next row's maximum beside them.
    constexpr double row_cycles = 10;
    const double vectors = std::ceil(d(softmax->columns) / d(model_.machine.lanes(4)));
    const double row =
        vectors * overlap_.share_of_exp * model_.op(ScalarOp::exp) + row_cycles * model_.cycle;
    work.compute += d(count) * row;
  }

  /// Column blocks, where the last one may compute fewer registers; so few that its sums wait for
  /// each other it takes as long as so many that do not.
  double whole_column_blocks() const {
    const double narrow = d(codegen::last_vectors(plan_)) / plan_.vectors;
    const double waiting =
        model_.fma_latency * model_.fma_per_cycle / (d(plan_.block_rows) * plan_.vectors);
    return d(plan_.column_blocks) - 1 + std::min(1.0, std::max(narrow, waiting));
  }

  /// The register blocks of a chain's items, as if they were those of one contraction.
  codegen::ContractionPlan chained_plan(const loop::Contraction& contraction) const {
    codegen::ContractionPlan plan =
        codegen::plan_stage(contraction, buffers_, codegen::PlanMachine(model_.machine));
    const codegen::RowCut cut = codegen::cut_rows(chain_->group_rows, plan.tallest_rows());
    plan.block_rows = cut.height - (cut.short_blocks > 0 ? 1 : 0);
    plan.row_groups = chain_->groups;
    plan.row_blocks = std::max<std::int64_t>(
        1, plan.rows * (cut.tall_blocks + cut.short_blocks) / chain_->group_rows);
    plan.short_blocks = plan.row_blocks;
    if (cut.short_blocks > 0)
      plan.short_blocks = plan.row_blocks * cut.short_blocks / (cut.tall_blocks + cut.short_blocks);
    return plan;
  }

  /// Segments that copy lines of their own count as batches.
  codegen::ContractionPlan plan_of(const loop::Contraction& contraction) const {
    if (chain_) return chained_plan(contraction);
    codegen::ContractionPlan plan = codegen::plan_contraction(contraction, a_dtype_, b_dtype_,
                                                              codegen::PlanMachine(model_.machine));
    if (plan.line.segments > 0) plan.batches *= plan.line.segments;
    return plan;
  }
  Items items() const {
    if (plan_.line.segments > 0)
      return Items::by_size(plan_.batches / plan_.line.segments, plan_.group_blocks,
                            plan_.line.segments);
    if (plan_.rows_outermost)
      return Items::evenly(1, plan_.row_groups, plan_.batches * plan_.column_blocks,
                           plan_.row_blocks);
    const std::int64_t outer = plan_.batches * (plan_.whole_rows ? 1 : plan_.column_blocks);
    return Items::evenly(outer, plan_.row_groups, 1, plan_.row_blocks);
  }
  static double d(std::int64_t value) { return static_cast<double>(value); }
  static bool narrow(DType dtype) { return is_float(dtype) && size_of(dtype) < 4; }

  /// ns of one k step of a block of so many rows.
  double step(std::int64_t rows) const {
    const double registers = d(rows) * plan_.vectors;
    const double sets =
        d(codegen::accumulator_sets(plan_, rows, codegen::PlanMachine(model_.machine)));
    // Products of integers take one of the two units; pairs are added by another instruction.
    const bool half_rate = contraction_.accumulator == DType::i32 &&
                           (plan_.unit == 1 || (plan_.unit == 2 && !model_.machine.vnni));
    const bool bf16 = plan_.products == codegen::Products::bf16_pairs;
    const bool scales =
        contraction_.scales_b() && plan_.column_source == codegen::ColumnSource::packed;
    const double multiply =
        registers / (bf16 ? model_.bf16_per_cycle : model_.fma_per_cycle) * (half_rate ? 2 : 1) +
        (scales ? plan_.vectors * scaling_cycles() : 0);
    // Many rows at no constant distance have their addresses in memory.
    const double addresses = scattered() && rows > 8 ? 0.2 * d(rows) : 0;
    const double loads = (d(rows) + plan_.vectors + addresses) / model_.loads_per_cycle;
    const double latency = model_.fma_latency / sets;
    double ns = std::max({multiply, loads, latency}) * overlap_.block_step * model_.cycle;
    const DType columns =
        plan_.column_source == codegen::ColumnSource::scratch ? contraction_.accumulator : b_dtype_;
    if (plan_.unit > 1) return ns;
    if (narrow(columns)) ns += plan_.vectors * model_.narrow_ns;
    if (narrow(a_dtype_)) ns += d(rows) * model_.narrow_ns / 2;
    return ns;
  }

  /// What a register of bytes or nibbles costs until it is multiplied with: two conversions and
  /// the scale with the zero, on the units that multiply.
  double scaling_cycles() const {
    constexpr double conversions = 2.5;
    return conversions / model_.fma_per_cycle;
  }
  /// Bytes of so many elements of B, as they are stored.
  double b_bytes(double elements) const {
    return elements * static_cast<double>(size_of(b_dtype_)) / (contraction_.b_nibbles ? 2 : 1);
  }

  /// The same of tiles, in cycles measured on one machine: an instruction multiplies a row of A in
  /// one while the next tiles are loaded, which takes three times as long where L1 holds no panel
  /// beside the rows.
  double tile_block(std::int64_t rows) const {
    constexpr double least = 9, load_from_l1 = 8, load_from_l2 = 24, store = 16, latency = 52;
    const codegen::TileCut cut(rows);
    const std::int64_t tiles = plan_.vectors, passes = (tiles + cut.together - 1) / cut.together;
    const auto product = [&](std::int64_t height) {
      return std::max({d(height), d(plan_.tile_steps), least});
    };
    const double products =
        d(tiles) * (product(cut.first_rows) + d(cut.row_tiles - 1) * product(cut.last_rows));
    const double touched = 4 * d(plan_.panel_steps) * d(plan_.block_columns + rows);
    const double load = touched <= 0.7 * d(model_.cache_bytes[0]) ? load_from_l1 : load_from_l2;
    const double loads = load * d(tiles + passes * cut.row_tiles);
    const double ends = store * d(tiles * cut.row_tiles) + latency * d(passes);
    const double rounds = d(plan_.panel_steps / plan_.tile_steps);
    return (rounds * std::max(products, loads) + ends) * model_.cycle;
  }

  double block(std::int64_t rows) const {
    if (plan_.tile_steps > 0) return tile_block(rows);
    // Sums start and end in registers: filling and draining the pipeline, and storing the tile.
    const double ends =
        (model_.fma_latency + overlap_.block_end * d(rows) * plan_.vectors) * model_.cycle;
    return d(plan_.panel_steps) * step(rows) + ends;
  }

  /// What a block waits for while the processor works on the one behind it already: short blocks
  /// end before it has looked as far ahead as it can.
  double hidden_ns() const {
    if (plan_.tile_steps > 0) return 0;
    const double registers = d(plan_.block_rows) * plan_.vectors;
    const double steps = d(plan_.panel_steps);
    const double nodes = static_cast<double>(contraction_.nodes.size());
    const double instructions = steps * (registers + plan_.vectors) + registers * (1 + nodes) + 20;
    const double share = std::clamp(1 - instructions / overlap_.block_ahead, 0.0, 1.0);
    const Epilogue end = epilogue();
    const double multiply = steps * registers / model_.fma_per_cycle * model_.cycle;
    const double loads = steps * (d(plan_.block_rows) + plan_.vectors) + registers * end.loads;
    const double stores = registers * end.stores / model_.stores_per_cycle * model_.cycle;
    const double least = std::max(
        {multiply + registers * end.alu, loads / model_.loads_per_cycle * model_.cycle, stores});
    const double alone = block(plan_.block_rows) + registers * end.ns(model_) + block_overhead();
    return share * std::max(0.0, alone - least);
  }

  /// Rows at no constant distance need an address each.
  double block_overhead() const {
    double taps = 1;  // each run over the innermost k dim begins with an address
    for (std::size_t i = 0; i + 1 < plan_.k_open.size(); ++i) taps *= d(plan_.k_open[i].extent);
    return (scattered() ? model_.row_block * 6 : model_.row_block) + (taps - 1) * model_.tap / 3;
  }
  bool scattered() const { return !plan_.uniform_rows || !plan_.guards.empty(); }

  /// The share of taps that any row of a block needs: where images are small whole taps lie
  /// outside.
  double taps_inside() const {
    double share = 1;
    const std::size_t first = contraction_.batch_extents.size();
    const std::size_t first_k = first + contraction_.m_extents.size();
    for (const loop::Guard& guard : contraction_.a_guards) {
      std::size_t m = contraction_.m_extents.size(), k = contraction_.k_extents.size();
      for (std::size_t i = 0; i < contraction_.m_extents.size(); ++i)
        if (guard.coefficients[first + i] != 0) m = i;
      for (std::size_t i = 0; i < contraction_.k_extents.size(); ++i)
        if (guard.coefficients[first_k + i] != 0) k = i;
      if (m == contraction_.m_extents.size() || k == contraction_.k_extents.size()) continue;
      const bool together = m + 1 == contraction_.m_extents.size();  // rows of one block differ
      const std::int64_t points = std::min<std::int64_t>(contraction_.m_extents[m], 4096);
      double inside = 0;
      for (std::int64_t tap = 0; tap < contraction_.k_extents[k]; ++tap) {
        double here = 0;
        for (std::int64_t i = 0; i < points; ++i) {
          const std::int64_t at = guard.offset + guard.coefficients[first + m] * i +
                                  guard.coefficients[first_k + k] * tap;
          if (at >= 0 && at < guard.extent) here += 1;
        }
        inside += together ? (here > 0 ? 1 : 0) : here / d(std::max<std::int64_t>(points, 1));
      }
      share *= inside / d(std::max<std::int64_t>(contraction_.k_extents[k], 1));
    }
    return share;
  }

  /// Blocks that touch the border find the rows of every tap anew.
  double border_ns() const {
    // Every row asks whether it lies inside; many need more registers than there are.
    const double tap = model_.tap * std::pow(d(plan_.block_rows) / 6, 1.2);
    if (plan_.guards.empty()) return 0;
    constexpr double long_run = 16;
    const double taps = d(plan_.depth) / std::max(1.0, d(plan_.k.back().extent));
    const bool all = d(plan_.k.back().extent) >= long_run || plan_.k.size() == plan_.k_open.size();
    double share = 1;
    if (!all) {
      double inside = 1;
      for (const loop::Guard& guard : contraction_.a_guards) inside *= inside_of(guard);
      // A block has many rows: one at the border is enough.
      share = std::min(1.0, (1 - inside) * std::sqrt(d(plan_.block_rows)) + 0.02);
    }
    return share * d(plan_.row_blocks) * taps * tap;
  }

  /// The share of positions at which no tap leaves A in this guard's dim.
  double inside_of(const loop::Guard& guard) const {
    const std::size_t first = contraction_.batch_extents.size();
    double low = d(guard.offset), high = d(guard.offset);
    for (std::size_t i = 0; i < contraction_.k_extents.size(); ++i) {
      const double c = d(guard.coefficients[first + contraction_.m_extents.size() + i]);
      (c < 0 ? low : high) += c * d(contraction_.k_extents[i] - 1);
    }
    for (std::size_t i = 0; i < contraction_.m_extents.size(); ++i) {
      const double c = d(guard.coefficients[first + i]), extent = d(contraction_.m_extents[i]);
      if (c <= 0) continue;
      const double from = std::max(0.0, std::ceil(-low / c));
      const double to = std::min(extent, std::ceil((d(guard.extent) - high) / c));
      return std::clamp((to - from) / extent, 0.0, 1.0);
    }
    return 1;
  }

  /// What the epilogue executes for one register of results.
  struct Epilogue {
    double alu = 0, loads = 0, stores = 0;
    double ns(const MachineModel& model) const {
      return std::max({alu, loads / model.loads_per_cycle * model.cycle,
                       stores / model.stores_per_cycle * model.cycle});
    }
  };
  Epilogue epilogue() const {
    Epilogue end;
    auto& [alu, loads, stores] = end;
    for (const ScalarNode& node : contraction_.nodes) {
      if (node.op == ScalarOp::load) {
        const loop::Access& access = contraction_.accesses[static_cast<std::size_t>(node.index)];
        const std::int64_t stride = access.strides.back();
        const bool alone = std::abs(stride) > 1 || !access.indirect.empty();
        loads += alone ? plan_.lanes : 1;
        if (alone) alu += model_.lone_lane_ns() * plan_.lanes;
        for (const loop::Guard& guard : access.guards)
          alu += (guard.coefficients.back() != 0 ? 2.5 * overlap_.guard : 1) * model_.cycle;
        if (narrow(buffers_[static_cast<std::size_t>(access.buffer)].dtype))
          alu += model_.narrow_ns;
        continue;
      }
      alu += node_ns(node, contraction_.nodes, model_);
    }
    for (const loop::Store& store : contraction_.stores) {
      const bool alone = std::abs(store.access.strides.back()) > 1;
      stores += alone ? plan_.lanes : 1;
      if (alone) alu += model_.lone_lane_ns() * plan_.lanes;
      if (narrow(buffers_[static_cast<std::size_t>(store.access.buffer)].dtype))
        alu += model_.narrow_ns;
    }
    return end;
  }

  double epilogue_ns() const {
    const double columns = model_.machine.masks
                               ? d(plan_.column_blocks) * plan_.vectors
                               : d((plan_.columns + plan_.lanes - 1) / plan_.lanes);
    const double tiles = d(plan_.batches) * d(plan_.rows) * columns;
    const Epilogue end = epilogue();
    // Single columns are stored under a mask, and such stores side by side wait for each other; of
    // two or three columns they did not (Zen 5: 676 rows of 16 in 4.4, 1.5 and 1.5 us).
    const bool crowded = plan_.columns == 1 && model_.machine.masks;
    const double waits = crowded ? d(plan_.batches) * d(plan_.rows) * overlap_.masked_store : 0;
    // The last tile has nobody to hide behind.
    const double last = std::max(4 * end.alu, chain_cycles() * model_.cycle);
    return tiles * end.ns(model_) + last + waits * model_.cycle;
  }

  /// Cycles from a sum to what is stored, along the slowest chain of operations.
  double chain_cycles() const {
    std::vector<double> until;  // operands come before their nodes
    for (const ScalarNode& node : contraction_.nodes) {
      double below = 0;
      for (const ScalarId operand : {node.a, node.b, node.c})
        if (operand >= 0) below = std::max(below, until[static_cast<std::size_t>(operand)]);
      until.push_back(below + latency_cycles(node, contraction_.nodes, model_));
    }
    return until.empty() ? 0 : *std::max_element(until.begin(), until.end());
  }

  /// Lines of A that are copied before the rows that read them.
  void add_lines(KernelWork& work) const {
    if (plan_.line.segments == 0) return;
    const double vector = model_.machine.vector_bytes;
    const double lines = d(plan_.line.count());
    const double element = static_cast<double>(size_of(a_dtype_)) * d(plan_.line.channels);
    const double bytes = lines * d(plan_.line.valid_end - plan_.line.valid_begin) * element;
    const double segments = d(plan_.batches);
    work.compute += segments * bytes / vector * model_.cycle * 1.2;
    work.overhead += segments * lines * 4 * model_.loop;
    // What is too long for L1 is written to L2, and read from there.
    if (bytes <= 0.7 * d(model_.cache_bytes[0])) return;
    work.read[1] += segments * 2 * bytes;
    work.written[1] += segments * bytes;
  }

  /// Dot products: a block of rows runs along k in registers of lanes, which are added up in the
  /// end.
  void add_dots(KernelWork& work) const {
    const double lanes = plan_.lanes;
    const double segments = plan_.line.segments > 0 ? d(plan_.batches) : 1;
    const double blocks = segments * std::ceil(d(plan_.rows) / lanes);
    const codegen::AddressDim& run = plan_.k.back();
    const double steps = std::ceil(d(run.extent) / lanes), taps = d(plan_.depth) / d(run.extent);
    // Rows that begin inside of a line of the cache take two accesses for a register.
    const std::int64_t line = 64 / static_cast<std::int64_t>(size_of(a_dtype_));
    const bool aligned = plan_.m.front().a % line == 0 && (taps <= 1 || run.extent % line == 0);
    const double sets = lanes / d(codegen::dot_rows_together(plan_));
    const double loads = lanes * (aligned ? 1 : 1.9) + sets;
    const double step = std::max(
        {loads / model_.loads_per_cycle, lanes / model_.fma_per_cycle, sets * model_.fma_latency});
    constexpr double joining = 2.4;  // cycles for each lane
    double epilogue = 2 * model_.cycle;
    for (const ScalarNode& node : contraction_.nodes)
      epilogue += node_ns(node, contraction_.nodes, model_);
    work.compute +=
        blocks * ((taps * (steps * step + 4) + joining * lanes) * model_.cycle + epilogue);
    if (plan_.line.segments == 0)
      work.items =
          Items::by_size(1, codegen::dot_blocks_per_item(plan_), static_cast<std::int64_t>(blocks));
    work.overhead += d(work.items.count()) * model_.item;
    work.flops += 2 * segments * d(plan_.rows) * d(plan_.depth);
  }

  /// Panels that items copy into their scratch.
  void add_panels(KernelWork& work) const {
    if (plan_.column_source != codegen::ColumnSource::scratch) return;
    const double elements = d(plan_.depth) * d(plan_.block_columns) * d(plan_.column_blocks);
    const bool again =
        chain_ ? !codegen::keeps_panels(plan_, contraction_.accumulator) : plan_.whole_rows;
    const double times = d(plan_.batches) * (again ? d(plan_.row_groups) : 1);
    const bool contiguous = contraction_.b_n_stride == 1 || contraction_.b_packed;
    double per_vector = contiguous ? 2 * model_.cycle : model_.lone_lane_ns() * plan_.lanes / 2;
    if (contraction_.scales_b()) per_vector += scaling_cycles() * model_.cycle;
    work.compute += times * elements / plan_.lanes * per_vector;
  }

  /// A and B are read again and again; what does not fit into L1 streams from farther away.
  void add_streams(KernelWork& work) const {
    const double depth = d(plan_.depth) * taps_inside();  // the others are read by nobody
    const double a_bytes = d(plan_.rows) * depth * static_cast<double>(size_of(a_dtype_));
    const bool made_real =
        contraction_.scales_b() && plan_.column_source == codegen::ColumnSource::scratch;
    const double panel_elements = depth * d(plan_.block_columns);
    const double panel = made_real ? 4 * panel_elements : b_bytes(panel_elements);
    const double l1 = d(model_.cache_bytes[0]), l2 = d(model_.cache_bytes[1]);
    const double batches = d(plan_.batches);
    const bool by_rows = chain_ || plan_.whole_rows || plan_.rows_outermost;
    const double groups = by_rows ? d(plan_.row_groups) : 1;
    // The panel comes back for every row block, unless it stays in L1.
    const double again =
        batches * d(plan_.column_blocks) * (d(plan_.row_blocks) - (by_rows ? groups : 1)) * panel;
    if (panel > 0.8 * l1) work.streamed[panel > 0.8 * l2 ? 2 : 1] += again;
    // A comes back for every column block.
    const double a_again = batches * (d(plan_.column_blocks) - 1) * a_bytes;
    const double a_kept = a_bytes / groups;  // whole rows are finished group by group
    if (a_kept > 0.5 * l1) work.streamed[a_kept > 0.7 * l2 ? 2 : 1] += a_again;
    // Every group walks over all of B. Nothing of what L2 does not hold is left there by the walk
    // before.
    const double all_panels = panel * d(plan_.column_blocks);
    const double walked_again = by_rows ? batches * (groups - 1) * all_panels : 0;
    if (all_panels > 0.7 * l2) {
      work.read[2] += walked_again;
    } else {
      work.streamed[all_panels > 0.8 * l1 ? 1 : 0] += walked_again;
    }
  }

  const loop::Contraction& contraction_;
  const codegen::ChainPlan* const chain_;  ///< of the chain that it is a stage of, or null
  std::span<const loop::Buffer> buffers_;
  const MachineModel& model_;
  const Overlap& overlap_ = model_.overlap;
  const DType a_dtype_, b_dtype_;
  const codegen::ContractionPlan plan_;
};

}  // namespace

ContractionCut cut_of(const loop::Kernel& kernel, const codegen::Machine& machine) {
  const auto& c = std::get<loop::Contraction>(kernel.body);
  const auto dtype_of = [&](std::int32_t buffer) {
    return kernel.buffers[static_cast<std::size_t>(buffer)].dtype;
  };
  const codegen::ContractionPlan plan = codegen::plan_contraction(
      c, dtype_of(c.a_buffer), dtype_of(c.b_buffer), codegen::PlanMachine(machine));
  return {plan.row_blocks, plan.column_blocks, plan.block_columns, plan.shares_batch()};
}

bool becomes_dots(const loop::Contraction& contraction, DType a, DType b,
                  const codegen::Machine& machine) {
  const codegen::ContractionPlan plan =
      codegen::plan_contraction(contraction, a, b, codegen::PlanMachine(machine));
  return codegen::is_dots(contraction, plan, a, b);
}

int products_together(const loop::Kernel& kernel, const codegen::Machine& machine) {
  constexpr std::int64_t of_tiles = 8;
  const auto* contraction = std::get_if<loop::Contraction>(&kernel.body);
  if (const auto* chain = std::get_if<loop::Chain>(&kernel.body)) contraction = &chain->second;
  if (contraction == nullptr) return 1;
  const codegen::ContractionPlan plan =
      codegen::plan_stage(*contraction, kernel.buffers, codegen::PlanMachine(machine));
  return static_cast<int>(plan.unit * (plan.tile_steps > 0 ? of_tiles : 1));
}

void add_contraction(KernelWork& work, const loop::Contraction& contraction,
                     std::span<const loop::Buffer> buffers, const MachineModel& model,
                     const codegen::ChainPlan* chain) {
  const auto& k = contraction.k_extents;
  if (std::find(k.begin(), k.end(), 0) != k.end()) {
    // Rows that are made without products.
    return add_nest(work, contraction.row_epilogue, buffers, model, true);
  }
  ContractionCost(contraction, buffers, model, chain).add_to(work);
}

}  // namespace rlx::cost
