// Spectra of signals that arrive hop by hop, with the samples that frames share in a state.
#include "rlx/signal_streams.hpp"

#include "ops/apply.hpp"
#include "ops/signal_tools.hpp"

namespace rlx {
namespace {

/// By how many samples a frame ends before the newest one, so that frames begin where they should.
std::int64_t lag(const StreamFrames& frames, std::int64_t hop) {
  return ((frames.before - frames.n_fft) % hop + hop) % hop;
}

std::int64_t hop_of(const Value& samples) {
  const Type& type = samples.type();
  if (!type.is_static() || type.rank() < 1 || type.shape.back().value() < 1 ||
      (type.dtype != f32 && type.dtype != f64))
    throw Exception(bad_input("A stream takes f32 or f64 [..., hop], not {}.", type.text()));
  return type.shape.back().value();
}

}  // namespace

std::int64_t stream_delay(const StreamFrames& frames, std::int64_t hop) {
  return (frames.n_fft - frames.before + lag(frames, hop)) / hop - 1;
}

Value stream_frame(Value samples, const std::string& name, const StreamFrames& frames) {
  const std::int64_t hop = hop_of(samples);
  if (frames.n_fft < 1 || frames.before < 0 || frames.before >= frames.n_fft)
    throw Exception(bad_input("Frames of ({}) samples that begin ({}) early are no frames.",
                              frames.n_fft, frames.before));
  Dims kept = samples.type().dims();
  kept.back() = frames.n_fft + lag(frames, hop) - hop;
  if (kept.back() == 0) return part_of_axis(samples, -1, 0, frames.n_fft);
  const Value before = samples.graph().state(name, samples.dtype(), kept);
  const Value both = concat({before, samples}, samples.rank() - 1);
  samples.graph().update(before, part_of_axis(both, -1, hop, hop + kept.back()));
  return part_of_axis(both, -1, 0, frames.n_fft);
}

Value stft_stream(Value samples, Value window, const std::string& name,
                  const StreamFrames& frames) {
  return apply(op::Rfft{}, {stream_frame(samples, name, frames) * window});
}

Value log_mel_stream(Value samples, Value filters, const std::string& name,
                     const StreamFrames& frames, op::LogMelFloor floor) {
  if (floor == op::LogMelFloor::clip)
    throw Exception(
        bad_input("A stream does not know the maximum of its clip: its floor is ({}).", "clip"));
  const Value frame = stream_frame(samples, name, frames);
  Graph& graph = samples.graph();
  const Value weights = cast(graph.constant(window(Window::hann, frames.n_fft)), frame.dtype());
  Value level = apply(op::BandLevels{.length = frames.n_fft, .hop = 1}, {frame, weights, filters});
  Shape shape = frame.shape();
  shape.back() = filters.shape()[0];
  level = reshape(level, std::move(shape));
  const auto number = [&](double value) { return graph.constant(level.dtype(), value); };
  if (floor == op::LogMelFloor::frame)
    level = max(level, max_over(level, {level.rank() - 1}, true) - number(8));
  return (level + number(4)) * number(0.25);
}

}  // namespace rlx
