// (p x f) B = (p B) x f for a number f of each row: B has fewer columns than p.
#include "plan/row_factor.hpp"

namespace rlx::plan {
namespace {

std::size_t at(ScalarId id) { return static_cast<std::size_t>(id); }

/// 1 / sum, where sums are of whole rows.
bool is_factor(const std::vector<ScalarNode>& nodes, ScalarId id) {
  const ScalarNode& node = nodes[at(id)];
  return node.op == ScalarOp::reciprocal && nodes[at(node.a)].op == ScalarOp::reduce;
}

/// Strides over (batch..., m..., n) of a buffer with one element for each row.
std::vector<std::int64_t> row_strides(const loop::Contraction& c) {
  std::vector<std::int64_t> extents = c.batch_extents;
  extents.insert(extents.end(), c.m_extents.begin(), c.m_extents.end());
  std::vector<std::int64_t> strides(extents.size() + 1, 0);
  std::int64_t stride = 1;
  for (std::size_t i = extents.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= extents[i];
  }
  return strides;
}

}  // namespace

std::optional<RowFactor> find_row_factor(const loop::Chain& chain, bool exact) {
  const loop::Nest& rows = chain.first.row_epilogue;
  const auto dims = static_cast<std::int32_t>(rows.extents.size());
  if (rows.stores.size() != 1 || rows.parallel_dims + 1 != dims) return std::nullopt;
  const ScalarId stored = rows.stores[0].node;
  if (at(stored) + 1 != rows.nodes.size()) return std::nullopt;
  const ScalarNode& end = rows.nodes[at(stored)];
  const bool narrow = end.dtype == DType::bf16 || end.dtype == DType::f16;
  const bool rounded = end.op == ScalarOp::cast && narrow && end.a + 1 == stored && !exact;
  const ScalarNode& node = rounded ? rows.nodes[at(end.a)] : end;
  if (node.op != ScalarOp::mul || node.dtype != DType::f32 ||
      chain.second.accumulator != DType::f32)
    return std::nullopt;
  for (const ScalarNode& epilogue : chain.second.nodes) {
    if (epilogue.op == ScalarOp::accumulator && epilogue.dtype != DType::f32) return std::nullopt;
  }
  for (const auto& [powers, factor] : {std::pair{node.a, node.b}, std::pair{node.b, node.a}}) {
    if (is_softmax_power(rows.nodes[at(powers)], rows.nodes) && is_factor(rows.nodes, factor))
      return RowFactor{powers, factor, rounded};
  }
  return std::nullopt;
}

void take_out_row_factor(loop::Chain& chain, const RowFactor& found, std::int32_t buffer) {
  loop::Nest& rows = chain.first.row_epilogue;
  const loop::Access place{buffer, 0, row_strides(chain.second), {}, {}, 0};
  ScalarNode cast = rows.nodes.back();
  rows.nodes.pop_back();
  rows.stores[0].node = found.powers;
  if (found.rounded) {
    cast.a = found.powers;
    rows.nodes.back() = cast;
    rows.stores[0].node = static_cast<ScalarId>(rows.nodes.size()) - 1;
  }
  rows.stores.push_back({place, found.factor});

  loop::Contraction& second = chain.second;
  const auto factor = static_cast<std::int32_t>(second.accesses.size());
  second.accesses.push_back(place);
  // The product comes first; every other node moves behind it.
  std::vector<ScalarNode> nodes{{.op = ScalarOp::accumulator},
                                {.op = ScalarOp::load, .index = factor},
                                {.op = ScalarOp::mul, .a = 0, .b = 1}};
  constexpr ScalarId product = 2;
  std::vector<ScalarId> moved;
  const auto move = [&](ScalarId& id) {
    if (id >= 0) id = moved[at(id)];
  };
  for (ScalarNode node : second.nodes) {
    if (node.op == ScalarOp::accumulator) {
      moved.push_back(product);
      continue;
    }
    for (ScalarId* operand : {&node.a, &node.b, &node.c}) move(*operand);
    moved.push_back(static_cast<ScalarId>(nodes.size()));
    nodes.push_back(node);
  }
  second.nodes = std::move(nodes);
  const auto move_access = [&](loop::Access& access) {
    for (loop::Indirect& indirect : access.indirect) move(indirect.node);
  };
  for (loop::Access& access : second.accesses) move_access(access);
  for (loop::Store& store : second.stores) {
    move(store.node);
    move_access(store.access);
  }
}

}  // namespace rlx::plan
