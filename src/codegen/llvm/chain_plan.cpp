// The cut of chains: enough items, each with rows that stay in the cache.
#include "codegen/llvm/chain_plan.hpp"

#include <algorithm>

namespace rlx::codegen {
namespace {

/// Whether the rows of a B lie in so many pages that nothing fetches them ahead, and are read by so
/// many row blocks that a copy pays. Of a chain that is earlier than of a product alone
/// (copies_panels): two stages share the caches.
bool has_far_rows(const ContractionPlan& plan, DType b_dtype, const PlanMachine& machine) {
  constexpr std::int64_t least_bytes = 512, least_blocks = 16;
  // Blocks of few rows wait for what they read more often.
  const std::int64_t least_depth = machine.registers < 32 ? 128 : 256;
  const std::int64_t apart = plan.k.back().b * static_cast<std::int64_t>(size_of(b_dtype));
  return plan.column_source == ColumnSource::in_place && plan.k.size() == 1 &&
         plan.depth >= least_depth && apart >= least_bytes && plan.row_blocks >= least_blocks;
}

void read_from_panels(ContractionPlan& plan) {
  plan.column_source = ColumnSource::scratch;
  plan.k.back().column = plan.k_open.back().column = plan.block_columns;
}

/// The nodes one after the other, each of which must be what softmax has there.
class SoftmaxFinder {
 public:
  explicit SoftmaxFinder(const std::vector<ScalarNode>& nodes) : nodes_(nodes) {}

  bool find() const {
    if (nodes_.size() != (rounded() ? 7 : 6)) return false;
    for (std::size_t i = 0; i < 6; ++i) {
      if (nodes_[i].dtype != DType::f32) return false;
    }
    return is(0, ScalarOp::load, -1) && reduces(1, ReduceKind::max, 0) &&
           is(2, ScalarOp::sub, 0, 1) && is(3, ScalarOp::exp, 2) &&
           reduces(4, ReduceKind::sum, 3) && is(5, ScalarOp::reciprocal, 4);
  }
  /// Whether powers are stored with fewer bits.
  bool rounded() const {
    return nodes_.size() == 7 && is(6, ScalarOp::cast, 3) &&
           (nodes_[6].dtype == DType::bf16 || nodes_[6].dtype == DType::f16);
  }

 private:
  bool is(std::size_t id, ScalarOp op, ScalarId a, ScalarId b = -1) const {
    return nodes_[id].op == op && nodes_[id].a == a && nodes_[id].b == b;
  }
  bool reduces(std::size_t id, ReduceKind kind, ScalarId a) const {
    return is(id, ScalarOp::reduce, a) && nodes_[id].reduce_kind == kind;
  }

  const std::vector<ScalarNode>& nodes_;
};

}  // namespace

RowCut cut_rows(std::int64_t rows, std::int64_t most) {
  const std::int64_t blocks = (rows + most - 1) / most;
  const std::int64_t height = (rows + blocks - 1) / blocks;
  const std::int64_t missing = blocks * height - rows;
  return {height, blocks - missing, missing};
}

ContractionPlan plan_stage(const loop::Contraction& contraction,
                           std::span<const loop::Buffer> buffers, const PlanMachine& machine) {
  const DType a = buffers[static_cast<std::size_t>(contraction.a_buffer)].dtype;
  const DType b = buffers[static_cast<std::size_t>(contraction.b_buffer)].dtype;
  ContractionPlan plan = plan_contraction(contraction, a, b, machine);
  // Groups are cut into register blocks here: no block computes a row of the next one.
  plan.one_height = false;
  // Rows of a stage are made just before, or lie in this core's cache.
  plan.asks_for_rows = false;
  if (has_far_rows(plan, b, machine)) read_from_panels(plan);
  return plan;
}

std::int64_t panel_bytes(const ContractionPlan& stage, DType accumulator) {
  constexpr std::int64_t line = 64;
  const std::int64_t bytes =
      stage.block_columns * stage.panel_steps * static_cast<std::int64_t>(size_of(accumulator));
  return (bytes + line - 1) / line * line;
}

bool keeps_panels(const ContractionPlan& stage, DType accumulator) {
  constexpr std::int64_t most_bytes = 512 * 1024;
  return panel_bytes(stage, accumulator) * stage.column_blocks <= most_bytes;
}

void share_asking(ContractionPlan& stage, std::int64_t rows) {
  if (stage.asking_blocks == 0) return;
  const RowCut cut = cut_rows(rows, stage.tallest_rows());
  const std::int64_t step_bytes = stage.asking_blocks * stage.asked_bytes;
  stage.asking_blocks = std::min(stage.asking_blocks, cut.tall_blocks + cut.short_blocks);
  stage.asked_bytes = (step_bytes + stage.asking_blocks - 1) / stage.asking_blocks;
}

ChainPlan plan_chain(std::span<const loop::Buffer> buffers, const ContractionPlan* first,
                     const ContractionPlan& second) {
  // Few enough rows that they stay in the cache and that sixteen workers have work, enough that
  // walking over B for each group does not matter.
  constexpr std::int64_t cached_bytes = 128 * 1024, wanted_items = 32, least_rows = 24;
  ChainPlan plan;
  plan.batches = second.batches;
  plan.rows = second.rows;
  std::int64_t bytes = 0;
  for (const loop::Buffer& buffer : buffers) {
    if (buffer.local)
      bytes += buffer.elements / std::max<std::int64_t>(plan.batches * plan.rows, 1) *
               static_cast<std::int64_t>(size_of(buffer.dtype));
  }
  std::int64_t unit = second.tallest_rows();
  if (first) unit = std::max(unit, first->tallest_rows());
  const std::int64_t wanted = (wanted_items + plan.batches - 1) / plan.batches;
  std::int64_t rows = std::max(plan.rows / wanted, least_rows);
  rows = std::min(rows, std::max<std::int64_t>(cached_bytes / std::max<std::int64_t>(bytes, 1), 1));
  rows = std::max<std::int64_t>((rows + unit / 2) / unit, 1) * unit;
  plan.groups = std::max<std::int64_t>((plan.rows + rows / 2) / rows, 1);
  // Few groups are even ones; of many each has whole blocks.
  constexpr std::int64_t few = 8;
  plan.group_rows = plan.groups > few ? rows : (plan.rows + plan.groups - 1) / plan.groups;
  plan.groups = (plan.rows + plan.group_rows - 1) / plan.group_rows;
  return plan;
}

ChainPlan plan_chain(const loop::Chain& chain, std::span<const loop::Buffer> buffers,
                     const PlanMachine& machine) {
  const ContractionPlan second = plan_stage(chain.second, buffers, machine);
  const std::vector<std::int64_t>& k = chain.first.k_extents;
  if (std::find(k.begin(), k.end(), 0) != k.end()) return plan_chain(buffers, nullptr, second);
  const ContractionPlan first = plan_stage(chain.first, buffers, machine);
  return plan_chain(buffers, &first, second);
}

bool hides_columns(const loop::Chain& chain) {
  const std::vector<ScalarNode>& scores = chain.first.nodes;
  const std::vector<ScalarNode>& rows = chain.first.row_epilogue.nodes;
  const bool has_powers = std::ranges::any_of(
      rows, [&](const ScalarNode& node) { return is_softmax_power(node, rows); });
  return has_powers &&
         (!chain.first.accesses.empty() || std::ranges::any_of(scores, [](const ScalarNode& node) {
           return node.op == ScalarOp::select;
         }));
}

std::optional<HiddenScores> find_hidden_scores(const loop::Contraction& first,
                                               std::span<const loop::Buffer> buffers) {
  const auto is_plain = [](const loop::Access& access) {
    return access.guards.empty() && access.indirect.empty() && access.strides.back() == 1;
  };
  const auto at = [&](ScalarId id) -> const ScalarNode& {
    return first.nodes[static_cast<std::size_t>(id)];
  };
  if (first.stores.size() != 1 || !is_plain(first.stores[0].access)) return std::nullopt;
  const loop::Buffer& scores = buffers[static_cast<std::size_t>(first.stores[0].access.buffer)];
  const ScalarNode& chosen = at(first.stores[0].node);
  if (chosen.op != ScalarOp::select || !scores.local || scores.dtype != DType::f32)
    return std::nullopt;
  const ScalarNode &shown = at(chosen.a), &instead = at(chosen.c);
  if (shown.op != ScalarOp::load || shown.dtype != DType::boolean ||
      instead.op != ScalarOp::constant || instead.dtype != DType::f32)
    return std::nullopt;
  // A bad index is told of wherever it stands.
  if (std::ranges::any_of(first.accesses,
                          [](const loop::Access& access) { return !access.indirect.empty(); }))
    return std::nullopt;
  const loop::Access& mask = first.accesses[static_cast<std::size_t>(shown.index)];
  if (!is_plain(mask) || buffers[static_cast<std::size_t>(mask.buffer)].local) return std::nullopt;
  return HiddenScores{shown.index, instead.value};
}

std::optional<SoftmaxRows> find_softmax_rows(const loop::Nest& nest,
                                             std::span<const loop::Buffer> buffers,
                                             const Machine& machine, std::int64_t rows) {
  constexpr ScalarId power = 3, factor = 5, rounded_power = 6;
  const std::size_t rank = nest.extents.size();
  const SoftmaxFinder finder(nest.nodes);
  if (!finder.find() || nest.accesses.size() != 1 || nest.stores.size() != 2 ||
      nest.parallel_dims + 1 != static_cast<std::int32_t>(rank))
    return std::nullopt;
  const ScalarId stored = finder.rounded() ? rounded_power : power;
  const bool powers_first = nest.stores[0].node == stored;
  const loop::Store& powers = nest.stores[powers_first ? 0 : 1];
  const loop::Store& factors = nest.stores[powers_first ? 1 : 0];
  const loop::Access& read = nest.accesses[0];
  if (powers.node != stored || factors.node != factor) return std::nullopt;
  const bool in_place = powers.access.buffer == read.buffer;
  if (in_place ? powers.access != read || finder.rounded() : !finder.rounded()) return std::nullopt;
  for (const loop::Access* access : {&read, &powers.access, &factors.access}) {
    if (!buffers[access->buffer].local || !access->guards.empty() || !access->indirect.empty())
      return std::nullopt;
  }
  const loop::Buffer& numbers = buffers[factors.access.buffer];
  const DType narrow = buffers[powers.access.buffer].dtype;
  if (buffers[read.buffer].dtype != DType::f32 || numbers.dtype != DType::f32 ||
      numbers.elements != rows || narrow != nest.nodes[static_cast<std::size_t>(stored)].dtype)
    return std::nullopt;
  SoftmaxRows found;
  const std::int64_t lanes = machine.lanes(4);
  for (const loop::Access* access : {&read, &powers.access}) {
    const std::int64_t row = buffers[access->buffer].elements / rows;
    (access == &read ? found.values : found.powers) = {access->buffer, access->offset, row};
    if (access->strides.back() != 1 || (nest.extents.back() + lanes - 1) / lanes * lanes > row)
      return std::nullopt;
  }
  found.powers_dtype = narrow;
  found.factors_buffer = factors.access.buffer;
  found.factors_offset = factors.access.offset;
  found.columns = nest.extents.back();
  return found;
}

}  // namespace rlx::codegen
