// Reads constant lists of places.
#include "graph/known_places.hpp"

#include "graph/elementwise_eval.hpp"
#include "rlx/ops.hpp"

namespace rlx {

KnownPlaces known_places(const Node& list, std::int64_t extent) {
  const auto* constant = list.op.as<op::Constant>();
  if (constant == nullptr) return {};
  KnownPlaces known;
  const Tensor& value = constant->value;
  for (std::int64_t i = 0; i < value.elements(); ++i) {
    const std::int64_t place = load_datum(value.dtype(), value.data(), i).integer;
    if (place < -extent || place >= extent) return {};
    known.from_end = known.from_end || place < 0;
    known.places.push_back(place < 0 ? place + extent : place);
  }
  return known;
}

}  // namespace rlx
