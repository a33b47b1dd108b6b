// Lists of places that a graph holds as constants: what gathers read is known beforehand.
#pragma once

#include <cstdint>
#include <vector>

#include "rlx/graph.hpp"

namespace rlx {

/// A constant list of places along an axis of `extent` elements, those below 0 counted from its
/// end; empty where `list` is no constant or one of them is not there.
struct KnownPlaces {
  std::vector<std::int64_t> places;  ///< in [0, extent), row-major
  bool from_end = false;             ///< the list counts some from the end
};
KnownPlaces known_places(const Node& list, std::int64_t extent);

}  // namespace rlx
