// Convolutions written along one of their axes, by minimal filtering of its lines.
#pragma once

#include <functional>
#include <optional>

#include "graph/line_points.hpp"
#include "rlx/graph.hpp"
#include "rlx/ops.hpp"

namespace rlx::passes {

/// A convolution x [N, .., C] by w [.., C, K].
struct Layer {
  Dims image, filter, result;
  op::Conv conv;

  /// Of spatial axis `axis`.
  std::int64_t stride(std::size_t axis) const { return at(conv.strides, axis, 1); }
  std::int64_t dilation(std::size_t axis) const { return at(conv.dilations, axis, 1); }
  std::int64_t low(std::size_t axis) const { return at(conv.pad_low, axis, 0); }
  std::int64_t high(std::size_t axis) const { return at(conv.pad_high, axis, 0); }

 private:
  static std::int64_t at(const Axes& list, std::size_t axis, std::int64_t otherwise) {
    return list.empty() ? otherwise : list[axis];
  }
};

/// The same along one axis. Behind it comes another one of the places between dilated taps.
struct LineForm {
  Layer layer;
  std::size_t line = 0;  ///< the spatial axis: axis line + 1 of x
  lines::Tile tile{};
  /// Pixels that lie in the channels of one of the layer's, along the line, and the zeros before
  /// the first of the taps that lie there.
  std::int64_t stride = 1, delay = 0;
  /// The layer has each every-th pixel alone, from `first` on, and the taps that meet these. Those
  /// between them are summed directly.
  std::int64_t every = 1, first = 0;
  std::int64_t direct_taps = 0;  ///< of the convolution, pixel by pixel

  std::int64_t taps() const { return layer.filter[line]; }
  std::int64_t parts() const { return (taps() + tile.taps - 1) / tile.taps; }
  std::int64_t results() const { return layer.result[line + 1]; }
  std::int64_t dilation() const { return layer.dilation(line); }
  /// From a tile to the next one.
  std::int64_t apart() const { return dilation() * tile.outputs; }
  std::int64_t tiles() const { return (results() + apart() - 1) / apart(); }
  /// Results of whole tiles that no line has.
  std::int64_t cut() const { return tiles() * apart() - results(); }
  /// Pixels that the tiles read, with those that are zeros.
  std::int64_t reads() const {
    return (tiles() + parts() - 1) * apart() + dilation() * (tile.taps - 1);
  }
  /// Products beside those of the direct sum.
  double products() const {
    return share(static_cast<double>(tiles() * dilation()) / static_cast<double>(results()));
  }
  /// Weights beside those of the direct sum.
  double weights() const { return share(1); }

 private:
  /// What the points, each counted so often, and the taps between have of the direct sum.
  double share(double times) const {
    const double points = times * static_cast<double>(tile.points() * parts() * stride);
    return (points + static_cast<double>(every - 1)) / static_cast<double>(direct_taps);
  }
};

/// The layer along spatial axis `line` with these tiles, if it can be written so.
std::optional<LineForm> line_form(const Layer& layer, std::size_t line, const lines::Tile& tile);

/// The layer's convolution of x by w by points of lines, what follows it done by `finish`; the
/// result has the dims of the form's layer.
Result<Value> by_lines(Value x, Value w, const LineForm& form,
                       const std::function<Result<Value>(Value)>& finish);

}  // namespace rlx::passes
