// Binding the names of dims: symbols of inputs, and names for what data decides (op::NameDims).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "rlx/graph.hpp"

namespace rlx {

/// What each symbol stands for.
using SymbolValues = std::map<std::string, std::int64_t>;

/// The op with the dims in its attributes, and in those of the graphs inside it, as numbers where
/// the symbols tell them; shares the attributes where nothing changes.
Result<Op> bound_op(const Op& op, const SymbolValues& values);

/// Adds the names in the dims of an op's attributes, and of the graphs inside it.
void collect_names(const Op& op, std::set<std::string>& names);

/// Takes what `shape` names from the numbers in `actual`, which has as many dims; a name for two
/// different numbers is an error.
Status learn_dims(const Shape& shape, const Shape& actual, SymbolValues& values);

}  // namespace rlx
