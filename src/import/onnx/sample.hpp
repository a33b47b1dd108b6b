// Reading images at fractional places: what GridSample, RoiAlign and DeformConv share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "import/onnx/node_context.hpp"

namespace rlx::onnx {

/// Neighbours along one axis: integer places (i64) and their weights, all [N, P].
struct Neighbour {
  Value place, weight;
};

/// What a place outside the image is worth.
enum class Outside : std::uint8_t { zeros, border, reflection };

/// One spatial axis; with corners aligned the image ends at the centres of its outer pixels.
struct PixelAxis {
  std::int64_t size = 0;
  bool align_corners = false;
  Outside outside = Outside::zeros;
  double low() const { return align_corners ? 0 : -0.5; }
  double high() const {
    return align_corners ? static_cast<double>(size - 1) : static_cast<double>(size) - 0.5;
  }
};

/// The pixels next to fractional places x [N, P] by mode: nearest, linear or cubic.
std::vector<Neighbour> neighbours(NodeContext& c, Value x, const std::string& mode,
                                  const PixelAxis& axis);

/// Sum over all combinations of neighbours of weight times pixel.
/// image [N, C, spatial...]; one list of neighbours for each spatial axis; result [N, C, P].
/// A place outside the image must carry the weight 0; it is clamped. With `maximum`, the largest of
/// the weighted pixels instead of their sum.
Value weighted_pixels(NodeContext& c, const Value& image,
                      const std::vector<std::vector<Neighbour>>& axes, bool maximum = false);

}  // namespace rlx::onnx
