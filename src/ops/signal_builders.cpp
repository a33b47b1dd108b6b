// Log-mel features as Whisper takes them, composed of ops.
#include <utility>

#include "ops/signal_tools.hpp"

namespace rlx {

Value log_mel_features(Value signal, Value filters, std::int64_t n_fft, std::int64_t hop,
                       op::LogMelFloor floor) {
  // One hop less at the end: the frame that is dropped is not made.
  op::BandLevels levels{.length = n_fft,
                        .hop = hop,
                        .before = n_fft / 2,
                        .behind = n_fft / 2 - hop,
                        .maxima = floor != op::LogMelFloor::none};
  Value ends = signal;
  if (levels.behind < 0) {
    Axes low(static_cast<std::size_t>(signal.rank()), 0), high = low;
    low.back() = std::exchange(levels.before, 0);
    high.back() = std::exchange(levels.behind, 0);
    ends = apply(op::Pad{.low = low, .high = high, .mode = PadMode::reflect}, {signal});
  }
  const Value weights = constant_like(signal, window(Window::hann, n_fft));
  const Values found = signal.graph().add(levels, Values{ends, weights, filters});
  Value level = found[0];
  const std::int64_t frames = level.rank() - 2;
  const auto number = [&](double value) { return level.graph().constant(level.dtype(), value); };
  if (floor != op::LogMelFloor::none) {
    Value most = unsqueeze(found[1], {frames + 1});
    if (floor == op::LogMelFloor::clip) most = max_over(most, {frames}, true);
    level = max(level, most - number(8));
  }
  return (level + number(4)) * number(0.25);
}

}  // namespace rlx
