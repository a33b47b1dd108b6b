// Readers, constants, products and polynomials.
#include "passes/pattern.hpp"

#include <cmath>

#include "graph/elementwise_eval.hpp"

namespace rlx::passes {

bool close(double a, double b) { return std::abs(a - b) <= 1e-5 * std::abs(b); }

std::vector<std::vector<std::int32_t>> readers_of(const Graph& graph) {
  std::vector<std::vector<std::int32_t>> readers(graph.nodes().size());
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    for (const ValueId id : graph.nodes()[i].inputs) {
      if (id.node >= 0)
        readers[static_cast<std::size_t>(id.node)].push_back(static_cast<std::int32_t>(i));
    }
  }
  for (const GraphOutput& output : graph.outputs())
    readers[static_cast<std::size_t>(output.value.node)].push_back(-1);
  return readers;
}

Pattern::Pattern(const Graph& graph) : graph_(graph) {
  for (const Node& node : graph.nodes()) {
    readers_.emplace_back(node.results.size(), 0);
    for (const ValueId id : node.inputs) {
      if (id.node >= 0)
        ++readers_[static_cast<std::size_t>(id.node)][static_cast<std::size_t>(id.result)];
    }
  }
  // An output must be there whatever becomes of its other reader.
  for (const GraphOutput& output : graph.outputs())
    readers_[static_cast<std::size_t>(output.value.node)]
            [static_cast<std::size_t>(output.value.result)] += 2;
}

int Pattern::readers(ValueId id) const {
  return readers_[static_cast<std::size_t>(id.node)][static_cast<std::size_t>(id.result)];
}

bool Pattern::read_once(ValueId id) const { return readers(id) == 1; }

std::optional<double> Pattern::number(ValueId id) const {
  if (!is<op::Constant>(id)) return std::nullopt;
  const Tensor& value = node(id).op.as<op::Constant>()->value;
  if (value.elements() != 1 || !is_float(value.dtype())) return std::nullopt;
  return load_datum(value.dtype(), value.data(), 0).number.real();
}

void Pattern::collect(ValueId id, bool root, Product& product) const {
  if (const auto constant = number(id)) {
    product.factor *= *constant;
  } else if (is<op::Mul>(id) && (root || read_once(id))) {
    collect(in(id, 0), false, product);
    collect(in(id, 1), false, product);
  } else if (is<op::Div>(id) && (root || read_once(id)) && number(in(id, 1))) {
    product.factor /= *number(in(id, 1));
    collect(in(id, 0), false, product);
  } else {
    product.values.push_back(id);
  }
}

Pattern::Product Pattern::product(ValueId id) const {
  Product result;
  collect(id, true, result);
  return result;
}

std::optional<Pattern::Cubic> Pattern::polynomial(ValueId id, ValueId x, int depth) const {
  if (id == x) return Cubic{0, 1, 0, 0};
  if (const auto constant = number(id)) return Cubic{*constant, 0, 0, 0};
  if (depth == 0 || id.node < 0 || id.result != 0 || node(id).inputs.size() != 2)
    return std::nullopt;
  const bool sum = is<op::Add>(id), difference = is<op::Sub>(id);
  const auto divisor = is<op::Div>(id) ? number(in(id, 1)) : std::nullopt;
  const double exponent = is<op::Pow>(id) ? number(in(id, 1)).value_or(0) : 0;
  if (!sum && !difference && !divisor && exponent == 0 && !is<op::Mul>(id)) return std::nullopt;
  const auto a = polynomial(in(id, 0), x, depth - 1), b = polynomial(in(id, 1), x, depth - 1);
  if (!a || !b) return std::nullopt;
  if (exponent != 0) {
    const bool plain = *a == Cubic{0, 1, 0, 0};
    if (!plain || (exponent != 2 && exponent != 3)) return std::nullopt;
    return exponent == 2 ? Cubic{0, 0, 1, 0} : Cubic{0, 0, 0, 1};
  }
  Cubic result{};
  for (std::size_t i = 0; i < 4; ++i) {
    if (sum || difference) result[i] = (*a)[i] + (difference ? -1 : 1) * (*b)[i];
    if (divisor) result[i] = (*a)[i] / *divisor;
  }
  if (!is<op::Mul>(id)) return result;
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t j = 0; j < 4; ++j) {
      const double part = (*a)[i] * (*b)[j];
      if (part == 0) continue;
      if (i + j > 3) return std::nullopt;
      result[i + j] += part;
    }
  }
  return result;
}

}  // namespace rlx::passes
