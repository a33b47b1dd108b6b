// Facts about the nodes of nests: what they cost, which series they need, which dims they vary
// along.
#include <algorithm>
#include <cmath>

#include "codegen/llvm/nest_plan.hpp"

namespace rlx::codegen {

int cost_of(const ScalarNode& node) {
  switch (node.op) {
    case ScalarOp::constant:
    case ScalarOp::load:
    case ScalarOp::domain_index:
    case ScalarOp::accumulator:
    case ScalarOp::reduce: return 0;
    case ScalarOp::div:
    case ScalarOp::sqrt:
    case ScalarOp::rsqrt:
    case ScalarOp::reciprocal: return 6;
    case ScalarOp::rem:
    case ScalarOp::mod:
    case ScalarOp::pow: return 100;
    case ScalarOp::exp:
    case ScalarOp::exp2: return 16;
    default: return node.op >= ScalarOp::exp && node.op <= ScalarOp::erf ? 40 : 1;
  }
}

bool is_series(const ScalarNode& node) { return cost_of(node) >= cost_of({.op = ScalarOp::exp}); }

int quarters_of(double exponent) {
  const double quarters = std::abs(4 * exponent);
  return quarters == std::floor(quarters) && quarters <= 16 ? static_cast<int>(quarters) : -1;
}

ScalarId curve_beside_one(const ScalarNode& node, std::span<const ScalarNode> nodes) {
  if (node.op != ScalarOp::add || node.dtype != DType::f32) return -1;
  for (const auto& [one, other] : {std::pair{node.a, node.b}, std::pair{node.b, node.a}}) {
    const ScalarNode &constant = nodes[static_cast<std::size_t>(one)],
                     &curve = nodes[static_cast<std::size_t>(other)];
    const bool is_curve =
        curve.op == ScalarOp::erf || curve.op == ScalarOp::tanh || curve.op == ScalarOp::exp;
    if (constant.op == ScalarOp::constant && constant.value == 1 && is_curve &&
        curve.dtype == DType::f32)
      return other;
  }
  return -1;
}

ScalarId logistic_of(const ScalarNode& node, std::span<const ScalarNode> nodes) {
  if (node.dtype != DType::f32) return -1;
  const auto at = [&](ScalarId id) { return nodes[static_cast<std::size_t>(id)]; };
  const bool divides =
      node.op == ScalarOp::div && at(node.a).op == ScalarOp::constant && at(node.a).value == 1;
  if (!divides && node.op != ScalarOp::reciprocal) return -1;
  const ScalarId curve = curve_beside_one(at(divides ? node.b : node.a), nodes);
  return curve >= 0 && at(curve).op == ScalarOp::exp ? at(curve).a : -1;
}

std::array<ScalarId, 3> sources_of(const ScalarNode& node, std::span<const ScalarNode> nodes,
                                   const Machine& machine) {
  if (const ScalarId exponent = machine.masks ? logistic_of(node, nodes) : -1; exponent >= 0)
    return {exponent, -1, -1};
  const ScalarId curve = machine.fma ? curve_beside_one(node, nodes) : -1;
  const auto source = [&](ScalarId operand) {
    return curve >= 0 && operand == curve ? nodes[static_cast<std::size_t>(curve)].a : operand;
  };
  return {source(node.a), source(node.b), source(node.c)};
}

std::vector<ScalarId> series_of(const loop::Nest& nest, std::vector<bool> needed,
                                std::span<const ScalarId> known, const Machine& machine) {
  const std::span<const ScalarNode> nodes = nest.nodes;
  const auto need = [&](ScalarId id) {
    if (id >= 0) needed[static_cast<std::size_t>(id)] = true;
  };
  const auto is_known = [&](ScalarId id) { return std::ranges::find(known, id) != known.end(); };
  std::vector<ScalarId> series;
  for (std::size_t i = nodes.size(); i-- > 0;) {
    const ScalarNode& node = nodes[i];
    const auto id = static_cast<ScalarId>(i);
    if (!needed[i] || node.op == ScalarOp::reduce || is_known(id)) continue;
    if (node.op == ScalarOp::load)
      for (const loop::Indirect& part :
           nest.accesses[static_cast<std::size_t>(node.index)].indirect)
        need(part.node);
    // A curve that is known is not made anew for the sum.
    const std::array operands{node.a, node.b, node.c};
    const std::array sources =
        is_known(curve_beside_one(node, nodes)) ? operands : sources_of(node, nodes, machine);
    std::ranges::for_each(sources, need);
    if (is_series(node) || sources != operands) series.push_back(id);
  }
  std::ranges::reverse(series);
  return series;
}

DimSet dims_of(const loop::Access& access, const std::vector<DimSet>& node_dims) {
  DimSet dims = 0;
  auto add = [&](const std::vector<std::int64_t>& strides) {
    for (std::size_t i = 0; i < strides.size(); ++i) {
      if (strides[i] != 0) dims |= DimSet{1} << i;
    }
  };
  add(access.strides);
  for (const loop::Guard& guard : access.guards) add(guard.coefficients);
  for (const loop::Indirect& part : access.indirect) {
    dims |= node_dims[static_cast<std::size_t>(part.node)];
  }
  return dims;
}

unsigned register_bytes(DType dtype) {
  return is_float(dtype) && dtype != DType::f64 ? 4 : static_cast<unsigned>(size_of(dtype));
}

const loop::Indirect* picked_part(const loop::Access& access, DType dtype,
                                  std::span<const ScalarNode> nodes,
                                  std::span<const loop::Access> accesses, int vector_dim,
                                  unsigned lanes, const Machine& machine) {
  constexpr int most_registers = 2;
  const bool picks = machine.isa == Isa::avx2 || machine.isa == Isa::avx512;
  const bool is_register = lanes == 8 || lanes == machine.lanes(4);
  if (!picks || vector_dim < 0 || !is_register || register_bytes(dtype) != 4) return nullptr;
  if (access.indirect.size() != 1 || !access.guards.empty()) return nullptr;
  const auto along = static_cast<std::size_t>(vector_dim);
  const loop::Indirect& part = access.indirect.front();
  if (part.step < 1 || part.step > most_registers || part.stride != 1) return nullptr;
  const ScalarNode& place = nodes[static_cast<std::size_t>(part.node)];
  if (access.strides[along] != 0 || place.op != ScalarOp::load) return nullptr;
  const loop::Access& list = accesses[static_cast<std::size_t>(place.index)];
  const bool is_run = list.strides[along] == 1 && list.guards.empty() && list.indirect.empty();
  return is_run ? &part : nullptr;
}

std::vector<DimSet> node_dims_of(const loop::Nest& nest) {
  const DimSet parallel = (DimSet{1} << nest.parallel_dims) - 1;
  std::vector<DimSet> dims;
  for (const ScalarNode& node : nest.nodes) {
    DimSet own = 0;
    if (node.op == ScalarOp::domain_index) own = DimSet{1} << node.index;
    if (node.op == ScalarOp::load) {
      own = dims_of(nest.accesses[static_cast<std::size_t>(node.index)], dims);
    }
    for (const ScalarId operand : {node.a, node.b, node.c}) {
      if (operand >= 0) own |= dims[static_cast<std::size_t>(operand)];
    }
    if (node.op == ScalarOp::reduce) own &= parallel;
    dims.push_back(own);
  }
  return dims;
}

}  // namespace rlx::codegen
