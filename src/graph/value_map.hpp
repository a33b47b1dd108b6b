// Where the values of a graph are in another graph that is made of it node by node.
#pragma once

#include <vector>

#include "rlx/graph.hpp"

namespace rlx {

class ValueMap {
 public:
  explicit ValueMap(const Graph& source) : results_(source.nodes().size()) {}

  /// The results of a node of the source, to be filled in before a value of it is asked for.
  std::vector<ValueId>& operator[](std::size_t node) { return results_[node]; }

  /// Where a value went; an operand that is left out stays so.
  ValueId operator()(ValueId id) const {
    if (id.node < 0) return id;
    return results_[static_cast<std::size_t>(id.node)][static_cast<std::size_t>(id.result)];
  }
  std::vector<ValueId> operator()(const std::vector<ValueId>& ids) const {
    std::vector<ValueId> found;
    found.reserve(ids.size());
    for (const ValueId id : ids) found.push_back((*this)(id));
    return found;
  }

 private:
  std::vector<std::vector<ValueId>> results_;
};

}  // namespace rlx
