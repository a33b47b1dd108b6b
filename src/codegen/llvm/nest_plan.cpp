// Normalises nests and decides on the vector dim, tiles and borders.
#include "codegen/llvm/nest_plan.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <numeric>

namespace rlx::codegen {
namespace {

/// Calls change(strides) for the strides of every access and the coefficients of every guard.
template <class Change>
void for_each_map(loop::Nest& nest, const Change& change) {
  auto visit = [&](loop::Access& access) {
    change(access.strides);
    for (loop::Guard& guard : access.guards) change(guard.coefficients);
  };
  for (loop::Access& access : nest.accesses) visit(access);
  for (loop::Store& store : nest.stores) visit(store.access);
}

/// The nest with only these dims, in this order. Left out dims must have extent 1.
void rebuild(loop::Nest& nest, const std::vector<int>& order) {
  auto pick = [&](std::vector<std::int64_t>& values) {
    std::vector<std::int64_t> picked;
    for (const int dim : order) picked.push_back(values[static_cast<std::size_t>(dim)]);
    values = std::move(picked);
  };
  for_each_map(nest, pick);
  nest.parallel_dims = static_cast<std::int32_t>(
      std::count_if(order.begin(), order.end(), [&](int dim) { return dim < nest.parallel_dims; }));
  pick(nest.extents);
  for (ScalarNode& node : nest.nodes) {
    if (node.op != ScalarOp::domain_index) continue;
    const auto found = std::find(order.begin(), order.end(), node.index);
    if (found == order.end()) {
      node = {.op = ScalarOp::constant, .dtype = DType::i64};
    } else {
      node.index = static_cast<std::int32_t>(found - order.begin());
    }
  }
}

bool names_dim(const loop::Nest& nest, int dim) {
  return std::any_of(nest.nodes.begin(), nest.nodes.end(), [&](const ScalarNode& node) {
    return node.op == ScalarOp::domain_index && node.index == dim;
  });
}

/// Joins dims d and d + 1 where every access walks them like one dim.
bool merge(loop::Nest& nest, int d) {
  if (d + 1 == nest.parallel_dims || d + 1 == nest.lead || names_dim(nest, d) ||
      names_dim(nest, d + 1))
    return false;
  const auto dim = static_cast<std::size_t>(d);
  const std::int64_t inner = nest.extents[dim + 1];
  bool fits = true;
  for_each_map(nest, [&](std::vector<std::int64_t>& strides) {
    fits = fits && strides[dim] == strides[dim + 1] * inner;
  });
  if (!fits) return false;
  for_each_map(nest,
               [&](std::vector<std::int64_t>& strides) { strides.erase(strides.begin() + d); });
  nest.extents[dim + 1] *= nest.extents[dim];
  nest.extents.erase(nest.extents.begin() + d);
  if (d < nest.parallel_dims) --nest.parallel_dims;
  if (d < nest.lead) --nest.lead;
  for (ScalarNode& node : nest.nodes) {
    if (node.op == ScalarOp::domain_index && node.index > d) --node.index;
  }
  return true;
}

bool has_reduce(const loop::Nest& nest) {
  return std::any_of(nest.nodes.begin(), nest.nodes.end(),
                     [](const ScalarNode& node) { return node.op == ScalarOp::reduce; });
}

bool has_positions(const loop::Nest& nest) {
  return std::any_of(nest.nodes.begin(), nest.nodes.end(), [](const ScalarNode& node) {
    return node.op == ScalarOp::reduce &&
           (node.reduce_kind == ReduceKind::argmin || node.reduce_kind == ReduceKind::argmax);
  });
}

/// Drops dims of extent 1, orders the parallel ones by the first store's strides, merges
/// neighbours. With `rows` the parallel dims keep their order and the last dim stays; it stays
/// behind leading dims, too, which keep theirs.
void normalise(loop::Nest& nest, bool rows) {
  if (!rows && !has_reduce(nest))
    nest.parallel_dims = static_cast<std::int32_t>(nest.extents.size());
  const bool keeps_last = rows || nest.lead > 0;
  std::vector<int> order;
  for (int dim = 0; dim < static_cast<int>(nest.extents.size()); ++dim) {
    const bool last = dim + 1 == static_cast<int>(nest.extents.size());
    if (nest.extents[static_cast<std::size_t>(dim)] != 1 || (keeps_last && last))
      order.push_back(dim);
  }
  const auto lead_end =
      std::find_if(order.begin(), order.end(), [&](int dim) { return dim >= nest.lead; });
  nest.lead = static_cast<std::int32_t>(lead_end - order.begin());
  if (!rows && !nest.stores.empty()) {
    const std::vector<std::int64_t>& strides = nest.stores.front().access.strides;
    const auto parallel_end = std::find_if(order.begin(), order.end(),
                                           [&](int dim) { return dim >= nest.parallel_dims; });
    std::stable_sort(lead_end, parallel_end, [&](int a, int b) {
      return std::abs(strides[static_cast<std::size_t>(a)]) >
             std::abs(strides[static_cast<std::size_t>(b)]);
    });
  }
  rebuild(nest, order);
  for (int d = static_cast<int>(nest.extents.size()) - 2; d >= 0; --d) merge(nest, d);
  if (nest.extents.empty()) {
    // One point: a dim of extent 1 keeps the loops uniform.
    nest.extents.push_back(1);
    nest.parallel_dims = 1;
    for_each_map(nest, [](std::vector<std::int64_t>& strides) { strides.push_back(0); });
  }
}

/// Lanes along a dim: what a register holds of the widest type that varies along it (of the floats
/// among them), not more than the dim needs.
unsigned lanes_along(const loop::Nest& nest, const std::vector<DimSet>& node_dims, int dim,
                     const Machine& machine) {
  unsigned widest_float = 0, widest_integer = 1;
  for (std::size_t i = 0; i < nest.nodes.size(); ++i) {
    if (!(node_dims[i] >> dim & 1)) continue;
    unsigned& widest = is_float(nest.nodes[i].dtype) ? widest_float : widest_integer;
    widest = std::max(widest, register_bytes(nest.nodes[i].dtype));
  }
  // Integers beside floats are mostly positions and indices: they may take two registers.
  const unsigned widest = widest_float > 0 ? widest_float : widest_integer;
  const auto extent = static_cast<std::uint64_t>(nest.extents[static_cast<std::size_t>(dim)]);
  const std::uint64_t size = std::max<std::uint64_t>(extent, 1);
  const std::uint64_t needed = machine.masks ? std::bit_ceil(size) : std::bit_floor(size);
  return static_cast<unsigned>(std::min<std::uint64_t>(machine.lanes(widest), needed));
}

bool may_repeat(const loop::Nest& nest) {
  return std::none_of(nest.stores.begin(), nest.stores.end(), [&](const loop::Store& store) {
    return std::any_of(nest.accesses.begin(), nest.accesses.end(), [&](const loop::Access& access) {
      return access.buffer == store.access.buffer;
    });
  });
}

/// The dim whose points lie between the lanes of every store of a map with lanes along `dim`, so
/// few that they are woven in registers; -1 where there is none.
int dim_between(const loop::Nest& nest, int dim) {
  constexpr std::int64_t most = 4;
  if (has_reduce(nest) || dim >= nest.parallel_dims) return -1;
  int found = -1;
  for (const loop::Store& store : nest.stores) {
    const std::vector<std::int64_t>& strides = store.access.strides;
    const auto unit = std::find(strides.begin(), strides.end(), 1);
    const int between = static_cast<int>(unit - strides.begin());
    if (unit == strides.end() || (found >= 0 && between != found)) return -1;
    found = between;
    const std::int64_t apart = strides[static_cast<std::size_t>(dim)];
    const bool plain = store.access.guards.empty() && store.access.indirect.empty();
    if (!plain || apart < 2 || apart > most ||
        apart != nest.extents[static_cast<std::size_t>(between)])
      return -1;
  }
  return found;
}

constexpr std::size_t most_nodes_to_turn = 12;

/// May tiles of what a map reads with lanes apart be read in runs along another dim, and turned?
bool may_turn(const loop::Nest& nest, const loop::Access& access, int dim, unsigned lanes) {
  if (has_reduce(nest) || nest.nodes.size() > most_nodes_to_turn || lanes < 4 || lanes > 16 ||
      !access.indirect.empty() || !access.guards.empty())
    return false;
  const auto run = std::ranges::find(access.strides, 1);
  const auto along = static_cast<int>(run - access.strides.begin());
  return run != access.strides.end() && along != dim && along >= nest.lead &&
         nest.extents[static_cast<std::size_t>(along)] >= lanes;
}

/// Estimated time of a point of the domain with lanes along `dim`.
double cost_along(const loop::Nest& nest, const std::vector<DimSet>& node_dims, int dim,
                  const Machine& machine) {
  const unsigned lanes = lanes_along(nest, node_dims, dim, machine);
  const auto d = static_cast<std::size_t>(dim);
  const auto extent = static_cast<double>(nest.extents[d]);
  const bool reduced = dim >= nest.parallel_dims;
  double row = 1;
  DimSet reduced_dims = 0;
  // Lanes of several rows are joined together.
  const auto last_parallel = static_cast<std::size_t>(std::max(nest.parallel_dims - 1, 0));
  const bool beside = nest.parallel_dims > 0 && nest.extents[last_parallel] >= 4;
  const double join = beside ? 5 : 12;
  for (std::size_t i = static_cast<std::size_t>(nest.parallel_dims); i < nest.extents.size(); ++i) {
    row *= static_cast<double>(nest.extents[i]);
    reduced_dims |= DimSet{1} << i;
  }
  constexpr std::int64_t elements_of_page = 1024;
  double cost = 0;
  const bool woven = lanes >= 4 && dim_between(nest, dim) >= 0;
  const IndexRange inside =
      reduced_dims && !reduced ? inside_along(nest, dim, lanes) : IndexRange{};
  std::vector<DType> loaded(nest.accesses.size(), DType::f32);
  for (const ScalarNode& node : nest.nodes)
    if (node.op == ScalarOp::load) loaded[static_cast<std::size_t>(node.index)] = node.dtype;
  auto add = [&](const loop::Access& access, double weight, const DType* load) {
    const bool store = load == nullptr;
    const DimSet dims = dims_of(access, node_dims);
    if (reduced_dims && !(dims & reduced_dims)) weight /= row;
    const loop::Indirect* picked =
        store ? nullptr
              : picked_part(access, *load, nest.nodes, nest.accesses, dim, lanes, machine);
    const bool scattered_by_index =
        !picked && std::ranges::any_of(access.indirect, [&](const loop::Indirect& part) {
          return node_dims[static_cast<std::size_t>(part.node)] >> dim & 1;
        });
    const bool scattered = scattered_by_index || std::abs(access.strides[d]) > 1;
    double one = access.strides[d] == 0 ? 0.6 : 1;
    if (picked) one = 2.0 * picked->step;
    // Lanes a page apart and more take an entry of the TLB each.
    const double far = std::abs(access.strides[d]) >= elements_of_page ? 1.25 : 1;
    const auto runs_along = [&](const loop::Guard& guard) {
      return guard.coefficients[d] != 0 && inside.size() == 0;
    };
    const bool every = !store && !scattered_by_index && is_shuffled(access.strides[d], lanes) &&
                       (machine.masks || std::ranges::none_of(access.guards, runs_along));
    if (every) one = 2 * static_cast<double>(access.strides[d]) - 1;
    else if (scattered) one = store && woven ? 2 : lanes * far;
    if (scattered && !every && !store && may_turn(nest, access, dim, lanes)) one *= 0.5;
    for (const loop::Guard& guard : access.guards) one += runs_along(guard) ? 4 : 0;
    cost += weight * one;
  };
  for (std::size_t i = 0; i < loaded.size(); ++i) add(nest.accesses[i], 1, &loaded[i]);
  for (const loop::Store& store : nest.stores) add(store.access, 2, nullptr);
  for (const ScalarNode& node : nest.nodes) {
    cost += 0.5;
    if (reduced && node.op == ScalarOp::reduce) cost += join / row * lanes;
  }
  // The lanes of a tail are taken at once, or one by one.
  const double whole = std::floor(extent / lanes), tail = extent - whole * lanes;
  const bool at_once = machine.masks || reduced || may_repeat(nest);
  const double vectors = whole + (at_once ? std::min(tail, 1.0) : tail);
  return cost * std::max(1.0, vectors) / std::max(extent, 1.0);
}

/// The dim with the least cost (with `rows` the last one); it becomes the last of its kind.
int choose_vector_dim(loop::Nest& nest, const Machine& machine, bool rows) {
  const std::vector<DimSet> node_dims = node_dims_of(nest);
  const int rank = static_cast<int>(nest.extents.size());
  if (rows) return rank - 1;
  int best = -1;
  double least = 0;
  for (int dim = rank - 1; dim >= nest.lead; --dim) {
    // Positions count in the order of the loops, so that order must stay.
    if (has_positions(nest) && dim >= nest.parallel_dims && dim != rank - 1) continue;
    const double cost = cost_along(nest, node_dims, dim, machine);
    if (best >= 0 && cost >= least * 0.999) continue;
    best = dim;
    least = cost;
  }
  std::vector<int> order(static_cast<std::size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  const int last = best < nest.parallel_dims ? nest.parallel_dims - 1 : rank - 1;
  std::rotate(order.begin() + best, order.begin() + best + 1, order.begin() + last + 1);
  rebuild(nest, order);
  return last;
}

/// Where lanes lie across what is reduced, workers share out blocks of columns: there must be some.
void leave_blocks(NestPlan& plan) {
  constexpr std::int64_t enough = 16;
  constexpr unsigned least = 4;
  if (plan.vector_is_reduced()) return;
  const auto blocks = [&] {
    const auto columns = static_cast<std::int64_t>(plan.lanes * plan.unroll);
    return plan.points(0, plan.nest.parallel_dims) / columns;
  };
  while (plan.unroll > least && blocks() < enough) plan.unroll /= 2;
}

/// Reductions of one level whose results alone are stored gain from tiles: independent chains of
/// additions, shared loads.
void choose_tile(NestPlan& plan, const Machine& machine, int cost) {
  const loop::Nest& nest = plan.nest;
  if (plan.vector_is_reduced() || plan.levels != 1 || plan.tile_dim() < nest.lead || cost > 24)
    return;
  const std::int64_t neighbours = nest.extents[static_cast<std::size_t>(plan.tile_dim())];
  if (neighbours < 2) return;
  if (plan.points(nest.parallel_dims, plan.rank()) < 4) return;
  for (const loop::Store& store : nest.stores) {
    const DimSet dims = plan.node_dims[static_cast<std::size_t>(store.node)] |
                        dims_of(store.access, plan.node_dims);
    if (dims & plan.reduced_dims()) return;
  }
  for (const ScalarNode& node : nest.nodes) {
    if (node.op == ScalarOp::reduce &&
        (node.reduce_kind == ReduceKind::argmin || node.reduce_kind == ReduceKind::argmax)) {
      return;
    }
  }
  plan.tile = static_cast<unsigned>(std::min<std::int64_t>(neighbours, 4));
  plan.single_unroll = plan.unroll;
  plan.unroll = std::min(plan.unroll, machine.registers > 16 ? 2u : 1u);
}

/// Do neighbours of a tile read at some indices of this reduced dim what others read at other ones?
bool taps_are_shared(const NestPlan& plan, int dim) {
  const auto tile = static_cast<std::size_t>(plan.tile_dim()), d = static_cast<std::size_t>(dim);
  const std::int64_t taps = plan.nest.extents[d];
  return taps <= longest_unrolled &&
         std::ranges::any_of(plan.nest.accesses, [&](const loop::Access& access) {
           const std::int64_t step = access.strides[tile], tap = access.strides[d];
           return tap != 0 && step != 0 && step % tap == 0 && std::abs(step / tap) < taps;
         });
}

/// A reduced dim whose taps neighbours share becomes the last, which is written out: then one of
/// them reads for all.
void put_shared_taps_last(NestPlan& plan) {
  const int rank = plan.rank();
  if (plan.tile <= 1 || taps_are_shared(plan, rank - 1)) return;
  for (int dim = plan.nest.parallel_dims; dim + 1 < rank; ++dim) {
    if (!taps_are_shared(plan, dim)) continue;
    std::vector<int> order(static_cast<std::size_t>(rank));
    std::iota(order.begin(), order.end(), 0);
    std::rotate(order.begin() + dim, order.begin() + dim + 1, order.end());
    rebuild(plan.nest, order);
    plan.node_dims = node_dims_of(plan.nest);
    return;
  }
}

/// Vectors of a round, at most `most`: what no round takes is computed one by one, and each of
/// those waits for its series alone.
unsigned fewest_rounds(std::int64_t vectors, unsigned most) {
  const auto rounds = [&](unsigned unroll) { return vectors / unroll + vectors % unroll; };
  unsigned best = 1;
  for (unsigned unroll = 2; unroll <= most; unroll *= 2)
    if (rounds(unroll) <= rounds(best)) best = unroll;
  return best;
}

/// Series of a nest, and how many of them the longest chain has in which each waits for the one
/// before.
struct SeriesCount {
  unsigned all = 0, chain = 0;
};
SeriesCount count_series(const loop::Nest& nest) {
  SeriesCount count;
  std::vector<unsigned> chains;  // by node: the longest that ends there
  for (const ScalarNode& node : nest.nodes) {
    unsigned chain = 0;
    for (const ScalarId operand : {node.a, node.b, node.c})
      if (operand >= 0) chain = std::max(chain, chains[static_cast<std::size_t>(operand)]);
    if (is_series(node)) ++count.all, ++chain;
    chains.push_back(chain);
    count.chain = std::max(count.chain, chain);
  }
  return count;
}

/// The dim becomes the last before the vector dim.
void make_tile_dim(NestPlan& plan, int dim) {
  std::vector<int> order(plan.nest.extents.size());
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin() + dim, order.begin() + dim + 1, order.begin() + plan.vector_dim);
  rebuild(plan.nest, order);
  plan.node_dims = node_dims_of(plan.nest);
  plan.unroll = 1;
}

/// The dim along which numbers lie side by side in what lanes read one by one, or -1.
int dim_of_scattered_reads(const NestPlan& plan) {
  int dim = -1;
  for (const loop::Access& access : plan.nest.accesses) {
    if (std::abs(access.strides[static_cast<std::size_t>(plan.vector_dim)]) <= 1) continue;
    const auto found = std::find(access.strides.begin(), access.strides.end(), 1);
    if (found != access.strides.end()) dim = static_cast<int>(found - access.strides.begin());
  }
  return dim;
}

/// Maps that write along a dim of few points, and read along the vector dim: the first becomes the
/// tile dim.
void choose_weaving(NestPlan& plan) {
  const int between = dim_between(plan.nest, plan.vector_dim);
  if (between < 0 || between < plan.nest.lead || plan.lanes < 4) return;
  plan.tile = static_cast<unsigned>(plan.nest.extents[static_cast<std::size_t>(between)]);
  // Of lines of which lanes read one number each the next ones are read soon, while L1 has them.
  if (const int side_by_side = dim_of_scattered_reads(plan);
      side_by_side >= plan.nest.lead && side_by_side != between) {
    make_tile_dim(plan, side_by_side);
    make_tile_dim(plan, between - (side_by_side < between ? 1 : 0));
  } else {
    make_tile_dim(plan, between);
  }
  plan.woven = true;
}

/// Elementwise nests that read along one dim and write along another: the first becomes the tile
/// dim.
void choose_turning(NestPlan& plan, const Machine& machine) {
  loop::Nest& nest = plan.nest;
  if (plan.woven) return;
  if (plan.levels > 0 || plan.vector_dim == 0 || plan.vector_dim >= nest.parallel_dims) return;
  if (plan.lanes < 4 || plan.lanes > 16 || nest.nodes.size() > most_nodes_to_turn) return;
  const auto vector_dim = static_cast<std::size_t>(plan.vector_dim);
  const int dim = dim_of_scattered_reads(plan);
  if (dim < 0 || dim < nest.lead || nest.extents[static_cast<std::size_t>(dim)] < plan.lanes)
    return;
  make_tile_dim(plan, dim);
  plan.tile = plan.lanes;
  const auto tile_dim = static_cast<std::size_t>(plan.tile_dim());
  for (std::size_t i = 0; i < nest.accesses.size(); ++i) {
    const loop::Access& access = nest.accesses[i];
    // Runs along the tile dim share their guards, where no guard tells lanes apart.
    const bool shares =
        std::all_of(access.guards.begin(), access.guards.end(), [&](const loop::Guard& guard) {
          return machine.masks && guard.coefficients[vector_dim] == 0;
        });
    const bool plain = shares && access.indirect.empty();
    if (plain && access.strides[tile_dim] == 1 && std::abs(access.strides[vector_dim]) > 1) {
      plan.turned.push_back(static_cast<int>(i));
    }
  }
  if (plan.turned.empty()) plan.tile = 1;
}

}  // namespace

std::int64_t NestPlan::points(int first, int last) const {
  std::int64_t product = 1;
  for (int i = first; i < last; ++i) product *= nest.extents[static_cast<std::size_t>(i)];
  return product;
}

DimSet NestPlan::reduced_dims() const {
  return ((DimSet{1} << rank()) - 1) & ~((DimSet{1} << nest.parallel_dims) - 1);
}

NestPlan plan_nest(const loop::Nest& nest, const Machine& machine, bool rows) {
  NestPlan plan;
  plan.nest = nest;
  normalise(plan.nest, rows);
  plan.vector_dim = choose_vector_dim(plan.nest, machine, rows);
  plan.may_repeat = may_repeat(plan.nest);
  plan.node_dims = node_dims_of(plan.nest);
  plan.lanes = lanes_along(plan.nest, plan.node_dims, plan.vector_dim, machine);

  int cost = 0;
  for (const ScalarNode& node : plan.nest.nodes) {
    cost += cost_of(node) + 1;
    int level = node.op == ScalarOp::reduce;
    int below = 0;
    for (const ScalarId operand : {node.a, node.b, node.c}) {
      if (operand >= 0) below = std::max(below, plan.node_level[static_cast<std::size_t>(operand)]);
    }
    level += below;
    if (node.op == ScalarOp::load) {
      const loop::Access& access = plan.nest.accesses[static_cast<std::size_t>(node.index)];
      for (const loop::Indirect& part : access.indirect) {
        level = std::max(level, plan.node_level[static_cast<std::size_t>(part.node)]);
      }
    }
    plan.node_level.push_back(level);
    if (node.op == ScalarOp::reduce) plan.levels = std::max(plan.levels, level);
  }
  const std::int64_t extent = plan.nest.extents[static_cast<std::size_t>(plan.vector_dim)];
  const std::int64_t vectors = std::max<std::int64_t>(extent / plan.lanes, 1);
  const auto [series, chain] = count_series(plan.nest);
  unsigned affordable = cost <= 40 ? 4 : cost <= 100 ? 2 : 1;
  // Many of one vector that do not wait for each other, as of a tile's outputs, fill each other's
  // waits: more would only spill. Code stays where the processor keeps decoded instructions.
  constexpr unsigned few = 4, enough = 16, most = 64;
  // Without masks a processor holds 128 instructions that wait, as many as four pairs of vectors
  // have in a series. Those that wait for each other wait behind all of them.
  const bool has_pairs = series > 0 && machine.fma && !machine.masks;
  const bool is_one_chain = has_pairs && chain == series;
  if (series > 1) affordable = machine.registers > 16 || is_one_chain ? 8 : 4;
  if (series > few)
    affordable = std::clamp(std::min(enough * chain, most) / series, 1U, affordable);
  plan.unroll = fewest_rounds(vectors, affordable);
  plan.pairs_series = has_pairs && plan.unroll > 1 && vectors > 1;
  plan.abreast = plan.pairs_series || (series > 1 && plan.unroll > 1);
  if (plan.abreast && plan.levels > 0) leave_blocks(plan);
  if (!rows) choose_tile(plan, machine, cost);
  if (!rows) put_shared_taps_last(plan);
  if (!rows) choose_weaving(plan);
  if (!rows) choose_turning(plan, machine);
  // Shuffles of a tile that is turned lie between its series.
  if (!plan.turned.empty()) plan.pairs_series = false;
  plan_rows(plan, rows);
  plan_items(plan, rows);
  if (!rows) find_borders(plan);
  return plan;
}

}  // namespace rlx::codegen
