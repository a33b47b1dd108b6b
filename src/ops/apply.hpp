// What builder functions share: applying an op to operands of one graph.
#pragma once

#include <initializer_list>

#include "base/error.hpp"
#include "rlx/ops.hpp"

namespace rlx {

/// The graph of the operands. Left-out optional operands have none; the first one must be there.
inline Graph& common_graph(std::initializer_list<Value> operands) {
  const Value& first = *operands.begin();
  if (!first) throw Exception(bad_input("The first operand is left out but is not optional."));
  for (const Value& operand : operands) {
    if (operand && &operand.graph() != &first.graph())
      throw Exception(bad_input("The operands belong to different graphs."));
  }
  return first.graph();
}

/// The first result of the op on those operands.
inline Value apply(Op op, std::initializer_list<Value> operands) {
  return common_graph(operands).add_one(std::move(op), operands);
}

/// An op whose last operands may be left out.
inline Value apply_optional(Op op, std::initializer_list<Value> operands) {
  Graph& graph = common_graph(operands);
  Values present(operands);
  while (!present.back()) present.pop_back();
  return graph.add(std::move(op), present).front();
}

}  // namespace rlx
