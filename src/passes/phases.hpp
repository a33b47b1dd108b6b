// Transposed convolutions with strides as plain ones of which every channel block is one phase of
// the result: the arithmetic of shapes, and the forms of weights, operands and results.
#pragma once

#include <optional>
#include <vector>

#include "rlx/graph.hpp"
#include "rlx/ops.hpp"

namespace rlx::passes {

/// One spatial axis: result[q * stride + phase] = sum over t of x[q - t] * w[t * stride + phase].
struct PhaseAxis {
  std::int64_t stride = 1, taps = 1;       ///< taps of a phase
  std::int64_t pad_low = 0, pad_high = 0;  ///< of the plain convolution over x
  std::int64_t places = 1;                 ///< its results
  std::int64_t start = 0, size = 1;        ///< the part of places * stride that is the result
  std::int64_t missing = 0;                ///< taps that the kernel lacks of taps * stride
};

/// A transposed convolution as a plain one.
struct Phases {
  std::vector<PhaseAxis> axes;
  std::int64_t groups = 1, in = 1, out = 1;  ///< channels of a group

  std::int64_t count() const;     ///< phases
  std::int64_t channels() const;  ///< of the plain convolution: group, phase, out
  bool are_whole() const;         ///< every phase has all taps
};

/// The phases of the node, a transposed convolution of static shapes with channels first; nothing
/// where it is none, has no strides, or is better off as windows over spread elements.
std::optional<Phases> phases_of(const Graph& graph, const Node& node);

/// The plain convolution's strides, dilations, paddings and groups.
op::Conv plain_convolution(const Phases& phases);

/// w [g*in, out, k...] -> [taps..., in, g * phases * out], the taps of a phase in reverse; taps
/// that the kernel lacks are 0.
Value phase_weights(Value w, const Phases& phases);

/// An operand of one number, or one for each channel, for channels (group, phase, out): a scalar or
/// a vector.
Value channel_operand(Value x, const Phases& phases);

/// y [N, places..., g * phases * out] -> [N, size..., g * out]: woven, then cropped.
Value joined_phases(Value y, const Phases& phases);

/// Convolutions of some of the phases each, of one group, whose results lie in the joined one in
/// rows of their own, so that nothing is woven: those of all axes but the last, or of all axes, are
/// `apart`.
struct PhaseParts {
  Phases phases;
  std::size_t apart = 1;  ///< the first axes

  /// The phases of a part, as if the axes that are apart had no strides.
  Phases of_part() const;
  /// What belongs to each part of a value whose last axis is (phases, out).
  Values slices(Value all) const;
  /// The parts' results [N, places..., phases of a part * out] -> [N, size..., out], cropped.
  Value joined(const Values& parts) const;
};

}  // namespace rlx::passes
