// Log-mel features as Whisper takes them, composed of ops.
#include <utility>

#include "ops/signal_tools.hpp"

namespace rlx {

Value log_mel_features(Value signal, Value filters, std::int64_t n_fft, std::int64_t hop,
                       op::LogMelFloor floor) {
  // One hop less at the end: the frame that is dropped is not made.
  op::BandLevels levels{
      .length = n_fft, .hop = hop, .before = n_fft / 2, .behind = n_fft / 2 - hop};
  Value ends = signal;
  if (levels.behind < 0) {
    Axes low(static_cast<std::size_t>(signal.rank()), 0), high = low;
    low.back() = std::exchange(levels.before, 0);
    high.back() = std::exchange(levels.behind, 0);
    ends = apply(op::Pad{.low = low, .high = high, .mode = PadMode::reflect}, {signal});
  }
  Value level = apply(levels, {ends, constant_like(signal, window(Window::hann, n_fft)), filters});
  const std::int64_t frames = level.rank() - 2;
  const auto number = [&](double value) { return level.graph().constant(level.dtype(), value); };
  if (floor != op::LogMelFloor::none) {
    Axes axes{frames + 1};
    if (floor == op::LogMelFloor::clip) axes = {frames, frames + 1};
    level = max(level, max_over(level, axes, true) - number(8));
  }
  return (level + number(4)) * number(0.25);
}

}  // namespace rlx
