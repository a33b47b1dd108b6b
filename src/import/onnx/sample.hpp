// Reading images at fractional places: what GridSample, RoiAlign and DeformConv share.
#pragma once

#include <vector>

#include "import/onnx/node_context.hpp"

namespace rlx::onnx {

/// Neighbours along one axis: integer places (i64) and their weights, all [N, P].
struct Neighbour {
  Value place, weight;
};

/// Sum over all combinations of neighbours of weight times pixel.
/// image [N, C, spatial...]; one list of neighbours for each spatial axis; result [N, C, P].
/// A place outside the image must carry the weight 0; it is clamped.
Value weighted_pixels(NodeContext& c, const Value& image,
                      const std::vector<std::vector<Neighbour>>& axes);

}  // namespace rlx::onnx
