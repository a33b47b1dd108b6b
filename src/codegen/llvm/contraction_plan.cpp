// Merging of dims, choice of register blocks and of work items.
#include "codegen/llvm/contraction_plan.hpp"

#include <algorithm>

#include "codegen/pack.hpp"

namespace rlx::codegen {
namespace {

using Integers = std::vector<std::int64_t>;

std::int64_t whole_groups(std::int64_t extent, std::int64_t group) {
  return (extent + group - 1) / group * group;
}

std::int64_t product(const Integers& extents) {
  std::int64_t result = 1;
  for (std::int64_t extent : extents) result *= extent;
  return result;
}

bool mergeable(const AddressDim& outer, const AddressDim& inner) {
  if (outer.a != inner.a * inner.extent || outer.b != inner.b * inner.extent ||
      outer.scale != inner.scale * inner.extent)
    return false;
  for (std::size_t i = 0; i < outer.guards.size(); ++i) {
    if (outer.guards[i] != inner.guards[i] * inner.extent) return false;
  }
  return true;
}

/// Guards that some point of the domain breaks.
std::vector<const loop::Guard*> failing_guards(const loop::Contraction& contraction) {
  Integers extents = contraction.batch_extents;
  extents.insert(extents.end(), contraction.m_extents.begin(), contraction.m_extents.end());
  extents.insert(extents.end(), contraction.k_extents.begin(), contraction.k_extents.end());
  std::vector<const loop::Guard*> result;
  for (const loop::Guard& guard : contraction.a_guards) {
    std::int64_t low = guard.offset, high = guard.offset;
    for (std::size_t i = 0; i < extents.size(); ++i) {
      const std::int64_t span = guard.coefficients[i] * (extents[i] - 1);
      (span < 0 ? low : high) += span;
    }
    if (low < 0 || high >= guard.extent) result.push_back(&guard);
  }
  return result;
}

/// The dims of one kind (batch, m or k); `first` is its first dim in the guards' domain.
std::vector<AddressDim> address_dims(const Integers& extents, const Integers& a, const Integers& b,
                                     const std::vector<const loop::Guard*>& guards,
                                     std::size_t first) {
  std::vector<AddressDim> dims;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    AddressDim dim{extents[i], a[i], b.empty() ? 0 : b[i], 0, {}};
    for (const loop::Guard* guard : guards) dim.guards.push_back(guard->coefficients[first + i]);
    dims.push_back(std::move(dim));
  }
  return dims;
}

/// The micro-kernel needs an innermost k dim without guards whose span a zero line can cover.
void ensure_open_inner(std::vector<AddressDim>& k, std::size_t guards) {
  constexpr std::int64_t zero_line_limit = 16384;
  bool open = !k.empty();
  if (open && guards > 0) {
    const AddressDim& inner = k.back();
    open = std::all_of(inner.guards.begin(), inner.guards.end(), [](auto c) { return c == 0; }) &&
           inner.a >= 0 && inner.a * inner.extent <= zero_line_limit;
  }
  if (!open) k.push_back({1, 0, 0, 0, Integers(guards, 0)});
}

/// Has the machine tiles for the groups of k that B is packed in?
bool has_tiles(const loop::Contraction& contraction, DType a_dtype, DType b_dtype,
               const PlanMachine& machine) {
  if (contraction.in_order) return false;
  if (contraction.k_group == 2)
    return machine.bf16_tiles && a_dtype == DType::bf16 && b_dtype == DType::bf16;
  return contraction.k_group == 4 && machine.byte_tiles;
}

void plan_addresses(const loop::Contraction& contraction, DType a_dtype, DType b_dtype,
                    const PlanMachine& machine, ContractionPlan& plan) {
  const auto guards = failing_guards(contraction);
  for (const loop::Guard* guard : guards) plan.guards.push_back({guard->offset, guard->extent});
  Integers batch_b = contraction.b_batch_strides, k_b = contraction.b_k_strides;
  if (contraction.b_packed) {
    const std::int64_t width = contraction.panel_width;
    const std::int64_t panels = (contraction.n + width - 1) / width;
    // Dims whose runs end inside of a group do not merge: their steps in B do not fit.
    k_b.assign(contraction.k_extents.size(), width);
    plan.packed_depth = 1;
    for (std::size_t i = k_b.size(); i-- > 0;) {
      const bool inner = i + 1 == k_b.size();
      plan.packed_depth *= inner ? whole_groups(contraction.k_extents[i], contraction.k_group)
                                 : contraction.k_extents[i];
      if (i > 0) k_b[i - 1] = width * plan.packed_depth;
    }
    for (std::int64_t& stride : batch_b) stride *= panels * width * plan.packed_depth;
  }
  const std::size_t batch_dims = contraction.batch_extents.size();
  plan.batch = merge(
      address_dims(contraction.batch_extents, contraction.a_batch_strides, batch_b, guards, 0));
  plan.m =
      merge(address_dims(contraction.m_extents, contraction.a_m_strides, {}, guards, batch_dims));
  auto k = address_dims(contraction.k_extents, contraction.a_k_strides, k_b, guards,
                        batch_dims + contraction.m_extents.size());
  if (contraction.b_blocks > 1) k.front().scale = contraction.panel_width;
  plan.k = merge(k);
  ensure_open_inner(plan.k, guards.size());
  plan.k_open = k;
  for (AddressDim& dim : plan.k_open) std::fill(dim.guards.begin(), dim.guards.end(), 0);
  plan.k_open = merge(plan.k_open);
  ensure_open_inner(plan.k_open, 0);
  const bool known = contraction.accumulator != DType::i32 || contraction.k_group > 1;
  if (known && !contraction.scales_b())
    plan_lines(contraction, guards, k, machine, has_tiles(contraction, a_dtype, b_dtype, machine),
               plan);
  plan.uniform_rows = plan.m.size() <= 1;
}

/// How far k dims move in the columns: in panels k runs row-major over the k dims. Gives the steps
/// over all of k.
std::int64_t set_column_steps(const ContractionPlan& plan, std::vector<AddressDim>& k) {
  const std::int64_t width =
      plan.column_source == ColumnSource::packed ? plan.panel_width : plan.block_columns;
  std::int64_t steps = 1;
  for (std::size_t i = k.size(); i-- > 0;) {
    k[i].column = plan.column_source == ColumnSource::in_place ? k[i].b : steps * width;
    const bool inner = i + 1 == k.size();
    steps *= inner ? (k[i].extent + plan.unit - 1) / plan.unit : k[i].extent;
  }
  return steps;
}

/// Panels in scratch hold groups of k where that pays; packed ones are what they are.
Products choose_products(const loop::Contraction& contraction, DType a_dtype, DType b_dtype,
                         const PlanMachine& machine, const ContractionPlan& plan) {
  if (contraction.k_group == 2)
    return pairs_as_words(a_dtype, b_dtype) ? Products::word_pairs : Products::bf16_pairs;
  if (contraction.k_group == 4) return Products::byte_quads;
  // Fewer rows do not pay for the panel.
  constexpr std::int64_t least_rows = 6;
  const AddressDim& inner = plan.k.back();
  if (contraction.in_order || plan.rows < least_rows || inner.a != 1 || inner.extent == 1)
    return Products::single;
  if (contraction.accumulator == DType::i32 && pairs_as_words(a_dtype, b_dtype))
    return Products::word_pairs;
  const bool bfloat = contraction.accumulator == DType::f32 && a_dtype == DType::bf16 &&
                      b_dtype == DType::bf16 && !contraction.b_packed;
  return bfloat && machine.bf16_dot ? Products::bf16_pairs : Products::single;
}

/// The steps of a tile, so that tiles fill runs of k; 0 where the machine has no tiles for these
/// products, or what they need is not there: rows at one distance, runs side by side in A.
std::int64_t choose_tile_steps(const loop::Contraction& contraction, const PlanMachine& machine,
                               const ContractionPlan& plan) {
  constexpr std::int64_t least_rows = 2, least_steps = 8;
  const bool known = plan.products == Products::bf16_pairs   ? machine.bf16_tiles
                     : plan.products == Products::byte_quads ? machine.byte_tiles
                                                             : false;
  const AddressDim& run = plan.k_open.back();
  if (!known || contraction.in_order || plan.rows < least_rows || !plan.guards.empty() ||
      plan.m.size() > 1 || run.a != 1 || run.extent % plan.unit != 0)
    return 0;
  const std::int64_t steps = run.extent / plan.unit;
  for (std::int64_t tile = most_tile_steps; tile >= least_steps; --tile)
    if (steps % tile == 0) return tile;
  return 0;
}

/// Registers across a column block: as many as fit (up to four, of sixteen registers two) that
/// divide the panel. One or two rows leave room for twice or four times as many of sixteen, which
/// matters where columns are read in place: rows of B may lie a page apart, and what is read of
/// each at a time should be more than a line. Sums in order are those of kernels of several
/// heights, which have the same column blocks.
unsigned choose_vectors(const loop::Contraction& contraction, const PlanMachine& machine,
                        const ContractionPlan& plan) {
  const unsigned lanes = plan.lanes;
  const bool in_place = contraction.accumulator == DType::f32 && !contraction.b_packed &&
                        contraction.b_n_stride == 1 && !contraction.in_order &&
                        plan.products == Products::single;
  const unsigned wider = in_place && plan.rows == 1 ? 4 : in_place && plan.rows == 2 ? 2 : 1;
  const unsigned limit = wider * (machine.registers >= 32 ? 4 : 2);
  // Few registers leave no room for columns that do not exist.
  if (machine.registers < 32 && contraction.n <= lanes) return 1;
  std::int64_t width = contraction.panel_width;
  if (!contraction.b_packed) {
    width = choose_panel_width(contraction.n, lanes, limit);
  }
  for (unsigned vectors = limit; vectors > 1; --vectors) {
    if (width % (vectors * lanes) == 0) return vectors;
  }
  return 1;
}

/// The most rows of a register block: accumulators, the columns of B and two spare registers fit.
std::int64_t most_rows(const ContractionPlan& plan, const PlanMachine& machine, DType accumulator) {
  // Products of integers need registers of their own.
  const bool apart = accumulator == DType::i32 && plan.products != Products::byte_quads;
  const unsigned spare = apart ? 3 : 2;
  const unsigned fit =
      (machine.registers - plan.vectors - (machine.registers == 16 ? 1 : spare)) / plan.vectors;
  // Rows that are not uniform need a pointer each. One register of columns wants many rows: each
  // step loads it beside an element of every row.
  const bool narrow = plan.vectors == 1;
  const unsigned most_uniform = narrow && machine.registers >= 32 ? 14 : 12;
  const unsigned most_pointers = machine.registers < 32 ? 6 : narrow ? 12 : 8;
  const unsigned cap = plan.uniform_rows ? most_uniform : most_pointers;
  unsigned limit = std::min(fit, cap);
  if (machine.registers == 16 && machine.vector_bytes == 16) limit = std::min(limit, 4U);
  if (machine.registers == 16 && accumulator == DType::i32) limit = std::min(limit, 4U);
  return std::max(limit, 1U);  // of one row columns are operands in memory
}

/// Of few blocks an odd one would keep one of two workers waiting; a little lower ones are nearly
/// as good.
std::int64_t without_odd_one(const ContractionPlan& plan) {
  constexpr std::int64_t few = 15, least_rows = 3, least_operations = 200'000;
  const std::int64_t blocks = plan.row_blocks;
  const bool odd = plan.batches * plan.column_blocks * blocks % 2 == 1;
  if (!odd || plan.line.segments > 0 || blocks == 1 || plan.column_blocks * blocks > few ||
      plan.rows < (blocks + 1) * least_rows ||
      2 * plan.rows * plan.columns * plan.depth < least_operations)
    return blocks;
  return blocks + 1;
}

/// Columns of bytes are scaled for every row block that reads them. Narrower blocks of more rows
/// read A more often, but one block of all rows scales them once, and needs no panel in scratch.
/// False where rows are too many for that.
bool plan_one_block(const PlanMachine& machine, ContractionPlan& plan) {
  for (unsigned vectors = plan.vectors; vectors > 0; --vectors) {
    const unsigned most = (machine.registers - vectors - 2) / vectors;
    if (plan.vectors % vectors != 0 || plan.rows > most) continue;
    plan.vectors = vectors;
    return true;
  }
  return false;
}

void plan_blocks(const loop::Contraction& contraction, const PlanMachine& machine,
                 ContractionPlan& plan) {
  plan.lanes = machine.vector_bytes / static_cast<unsigned>(size_of(contraction.accumulator));
  plan.vectors = choose_vectors(contraction, machine, plan);
  const bool one_block =
      contraction.scales_b() && plan.uniform_rows && plan_one_block(machine, plan);
  plan.block_columns = static_cast<std::int64_t>(plan.lanes) * plan.vectors;
  plan.column_blocks = (plan.columns + plan.block_columns - 1) / plan.block_columns;
  plan.panel_width = contraction.b_packed ? contraction.panel_width : plan.block_columns;
  const std::int64_t most = plan.tile_steps > 0 ? 2 * tile_rows
                            : one_block         ? plan.rows
                                                : most_rows(plan, machine, contraction.accumulator);
  plan.row_blocks = (plan.rows + most - 1) / most;
  // Blocks of one height need half the code: a little less than the most is as good.
  for (std::int64_t height = most; height * 8 >= most * 7; --height) {
    if (plan.rows % height != 0) continue;
    plan.row_blocks = plan.rows / height;
    break;
  }
  plan.row_blocks = without_odd_one(plan);
  plan.block_rows = plan.rows / plan.row_blocks;
  plan.short_blocks = plan.row_blocks - plan.rows % plan.row_blocks;
  // Tiles have one height in all of a kernel.
  plan.one_height =
      plan.short_blocks < plan.row_blocks &&
      (plan.tile_steps > 0 || (plan.line.segments == 0 && plan.short_blocks * 50 <= plan.rows));
}

std::int64_t bytes_of(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }

/// Whether panels are copied of a B that could be read where it lies, which every row block does
/// again. Rows far apart fall into few sets of the caches and into many pages; registers of rows
/// that begin anywhere lie across two lines. Measured on a core with AMX: 2048 x 2048 x 2048 in 88
/// ms for 435, 500 columns in 0.9 of the time; with fewer rows of A, or rows of B nearer together,
/// copies took up to 1.1 times as long.
bool copies_panels(DType b_dtype, const PlanMachine& machine, const ContractionPlan& plan) {
  constexpr std::int64_t line = 64, far = 3072;                    // bytes
  constexpr std::int64_t less_far = 2048, many = 512;              // bytes, rows of B
  constexpr std::int64_t least_if_far = 96, least_if_across = 72;  // rows of A
  const std::int64_t apart = plan.k.back().b * bytes_of(b_dtype);
  const bool is_far = apart >= far || (apart >= less_far && plan.depth >= many);
  const bool lies_across = machine.vector_bytes == line && apart % line != 0;
  return (is_far && plan.rows >= least_if_far) || (lies_across && plan.rows >= least_if_across);
}

/// Matrices that no core's cache holds come from memory, and the first row block of a panel would
/// wait for all of it while the others read it out of L2: so each asks for a part of the next one.
void plan_asking(DType b_dtype, const PlanMachine& machine, ContractionPlan& plan) {
  constexpr std::int64_t least_bytes = 256 * 1024, most_blocks = 12, least_run = 32;
  const std::int64_t most_panel_bytes = most_bytes_of_walked_panel / (machine.large_l2 ? 1 : 2);
  const auto element = static_cast<std::int64_t>(size_of(b_dtype));
  const bool one_run = plan.k.size() == 1 && plan.guards.empty();
  // Taps of a window were measured on cores with large L2s.
  const bool long_runs =
      machine.large_l2 && plan.tile_steps == 0 && plan.k.back().extent >= least_run * plan.unit;
  if (plan.column_source != ColumnSource::packed || plan.line.segments > 0 ||
      !(one_run || long_runs) || (plan.rows_outermost && !plan.in_halves) ||
      plan.column_blocks == 1 || plan.panel_width != plan.block_columns || plan.rows == 1 ||
      plan.columns * plan.depth * element < least_bytes ||
      plan.panel_width * plan.packed_depth * element > most_panel_bytes)
    return;
  plan.asking_blocks = std::min(plan.whole_rows ? plan.group_blocks : plan.row_blocks, most_blocks);
  const std::int64_t step_bytes = plan.panel_width * plan.unit * element;
  plan.asked_bytes = (step_bytes + plan.asking_blocks - 1) / plan.asking_blocks;
}

/// Where workers share out columns, each reads rows that the others made, and waits for their lines
/// at every few k: so each row block asks for the rows of the next one. Not where so many column
/// blocks walk over the rows that the first walk counts for little.
bool asks_for_rows(const ContractionPlan& plan, const PlanMachine& machine) {
  constexpr std::int64_t most_column_blocks = 8;
  const bool one_run = plan.k.size() == 1 && plan.guards.empty() && plan.line.segments == 0;
  const bool dense =
      plan.m.size() == 1 && plan.k.back().a == 1 && plan.m.front().a == plan.k.back().extent;
  return machine.large_l2 && one_run && dense && plan.tile_steps == 0 &&
         plan.column_source == ColumnSource::packed && !plan.whole_rows &&
         (!plan.rows_outermost || plan.in_halves) && plan.row_blocks > 1 &&
         plan.column_blocks <= most_column_blocks;
}

/// Columns that nobody reads again stream from memory: where they lie in small pages, the processor
/// would translate each one's address only when the stream gets there. Measured on a Xeon in a
/// virtual machine, 67 MB in small pages: 12.9 GB/s without, 17.0 with it on one thread, 30 and 37
/// on two, as in huge pages.
bool asks_for_pages(DType b_dtype, const ContractionPlan& plan) {
  constexpr std::int64_t least_bytes = 1024 * 1024;
  return plan.column_source == ColumnSource::packed && plan.row_blocks == 1 &&
         plan.line.segments == 0 && plan.tile_steps == 0 &&
         plan.columns * plan.depth * bytes_of(b_dtype) >= least_bytes;
}

/// Results that L2 does not hold are stored to lines from farther away, and what they are added to
/// is read from there, at addresses that the processor does not foresee. Long sums hide that on
/// processors with AVX-512 (Zen 4 loses half a percent by asking); others look ahead by ten steps
/// of k alone, and wait at the end of every block. Registers that are stored across two lines wait
/// for both one after the other, also where another core holds them: short sums do not hide that.
bool asks_for_results(const loop::Contraction& contraction, const ContractionPlan& plan,
                      const PlanMachine& machine) {
  constexpr std::int64_t least_bytes = 1024 * 1024, most_depth = 256;
  constexpr std::int64_t least_bytes_of_torn = 32 * 1024, most_depth_of_torn = 16;
  if (machine.registers >= 32 && plan.depth > most_depth) return false;
  const std::int64_t segments = std::max<std::int64_t>(1, plan.line.segments);
  const std::int64_t bytes =
      plan.batches * segments * plan.rows * plan.columns * bytes_of(contraction.accumulator);
  return bytes >= least_bytes || (bytes >= least_bytes_of_torn &&
                                  plan.depth <= most_depth_of_torn && tears_lines(contraction));
}

}  // namespace

std::vector<std::int64_t> extents_of(const std::vector<AddressDim>& dims) {
  std::vector<std::int64_t> extents;
  for (const AddressDim& dim : dims) extents.push_back(dim.extent);
  return extents;
}

std::int64_t accumulator_sets(const ContractionPlan& plan, std::int64_t rows,
                              const PlanMachine& machine) {
  const std::int64_t in_flight = machine.registers >= 32 ? 8 : 14;
  return std::clamp<std::int64_t>(in_flight * plan.lanes / (rows * plan.block_columns), 1, 4);
}

unsigned last_vectors(const ContractionPlan& plan) {
  const std::int64_t left = plan.columns % plan.block_columns;
  return left == 0 ? plan.vectors : static_cast<unsigned>((left + plan.lanes - 1) / plan.lanes);
}

ContractionPlan narrow_plan(ContractionPlan plan) {
  plan.vectors = last_vectors(plan);
  return plan;
}

ContractionPlan full_plan(ContractionPlan plan) {
  plan.columns = plan.column_blocks * plan.block_columns;
  return plan;
}

std::vector<AddressDim> merge(const std::vector<AddressDim>& dims) {
  std::vector<AddressDim> merged;
  for (const AddressDim& dim : dims) {
    if (dim.extent == 1) continue;
    if (!merged.empty() && mergeable(merged.back(), dim)) {
      const std::int64_t extent = merged.back().extent * dim.extent;
      merged.back() = dim;
      merged.back().extent = extent;
    } else {
      merged.push_back(dim);
    }
  }
  return merged;
}

std::vector<AddressDim> merge_dims(const Integers& extents, const std::vector<Integers>& strides) {
  std::vector<AddressDim> dims;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    AddressDim dim{extents[i], 0, 0, 0, {}};
    for (const Integers& list : strides) dim.guards.push_back(list[i]);
    dims.push_back(std::move(dim));
  }
  return merge(dims);
}

ContractionPlan plan_contraction(const loop::Contraction& contraction, DType a_dtype, DType b_dtype,
                                 const PlanMachine& machine) {
  ContractionPlan plan;
  plan.batches = product(contraction.batch_extents);
  plan.rows = product(contraction.m_extents);
  plan.columns = contraction.n;
  plan.depth = product(contraction.k_extents);
  plan_addresses(contraction, a_dtype, b_dtype, machine, plan);
  plan.products = choose_products(contraction, a_dtype, b_dtype, machine, plan);
  plan.unit = plan.products == Products::single ? 1 : plan.products == Products::byte_quads ? 4 : 2;
  if (plan.unit > 1 && contraction.k_group == 1)
    plan.k_open = plan.k;  // pairs must not depend on which way a block goes
  plan.tile_steps = choose_tile_steps(contraction, machine, plan);
  plan_blocks(contraction, machine, plan);
  if (plan.unit > 1 && contraction.k_group == 1) {
    plan.column_source = ColumnSource::scratch;
  } else if (contraction.scales_b() && plan.row_blocks > 1) {
    plan.column_source = ColumnSource::scratch;  // scaled once for all row blocks
  } else if (contraction.b_packed) {
    plan.column_source = ColumnSource::packed;
  } else if (contraction.b_n_stride == 1 && b_dtype == contraction.accumulator) {
    plan.column_source =
        copies_panels(b_dtype, machine, plan) ? ColumnSource::scratch : ColumnSource::in_place;
  } else {
    plan.column_source = ColumnSource::scratch;
  }
  plan_items(contraction, a_dtype, b_dtype, machine, plan);
  plan_asking(b_dtype, machine, plan);
  plan.asks_for_rows = asks_for_rows(plan, machine);
  plan.asks_for_pages = asks_for_pages(b_dtype, plan);
  plan.asks_for_results = asks_for_results(contraction, plan, machine);
  plan.panel_steps = set_column_steps(plan, plan.k);
  set_column_steps(plan, plan.k_open);
  return plan;
}

bool is_dots(const loop::Contraction& c, const ContractionPlan& plan, DType a_dtype,
             DType b_dtype) {
  const AddressDim& run = plan.k.back();
  const bool floats = c.accumulator == DType::f32 && a_dtype == DType::f32 && b_dtype == DType::f32;
  if (!floats || c.n != 1 || c.b_packed || !c.batch_extents.empty()) return false;
  if (!c.row_epilogue.nodes.empty() || !plan.guards.empty() || plan.m.size() != 1) return false;
  // Where masks load registers in part (AVX-512), 256 rows of 8 take 0.27 us, not 1.6 row by row.
  const std::int64_t least = plan.lanes == 16 ? 2 : plan.lanes;
  if (run.a != 1 || run.b != 1 || run.extent < least || plan.rows < plan.lanes) return false;
  std::vector<Integers> strides;
  const auto simple = [&](const loop::Access& access) {
    strides.emplace_back(access.strides.begin(), access.strides.end() - 1);
    return access.guards.empty() && access.indirect.empty();
  };
  for (const loop::Store& store : c.stores) {
    if (!simple(store.access)) return false;
    // Rows that two blocks compute must not read what they write.
    for (const loop::Access& access : c.accesses) {
      if (access.buffer == store.access.buffer) return false;
    }
  }
  if (!std::all_of(c.accesses.begin(), c.accesses.end(), simple)) return false;
  const auto index = [](const ScalarNode& node) { return node.op == ScalarOp::domain_index; };
  if (std::any_of(c.nodes.begin(), c.nodes.end(), index)) return false;
  return plan.line.segments > 0 || merge_dims(c.m_extents, strides).size() <= 1;
}

std::int64_t dot_blocks_per_item(const ContractionPlan& plan) {
  constexpr std::int64_t wanted_items = 64, least_operations = 100'000;
  const std::int64_t blocks = (plan.rows + plan.lanes - 1) / plan.lanes;
  const std::int64_t least = least_operations / (2 * plan.lanes * plan.depth) + 1;
  return std::max(least, (blocks + wanted_items - 1) / wanted_items);
}

std::int64_t dot_rows_together(const ContractionPlan& plan) {
  constexpr std::int64_t long_row = 1024, streams = 4;
  const bool streamed = plan.line.segments == 0 && plan.k.back().extent >= long_row;
  return streamed ? std::min<std::int64_t>(streams, plan.lanes) : plan.lanes;
}

}  // namespace rlx::codegen
