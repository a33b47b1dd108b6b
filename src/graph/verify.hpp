// Finding what breaks the rules of a graph, for verify and for the parser.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rlx/graph.hpp"

namespace rlx {

/// A broken rule: the node (or -1: of the graph) and a sentence.
struct Defect {
  int node = -1;
  std::string sentence;
};

/// Whether results are inferred again and subgraphs looked into: the parser has done both.
enum class VerifyTypes { no, yes };

std::optional<Defect> find_defect(const Graph& graph, VerifyTypes types);

/// The same types, unknown dims in the same places.
bool same_types(const std::vector<Type>& a, const std::vector<Type>& b);
/// "f32[2,3], i64[2]".
std::string type_list(const std::vector<Type>& types);

}  // namespace rlx
