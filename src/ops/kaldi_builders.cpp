// Kaldi's filter-bank and cepstral features (feature-window.cc, mel-computations.cc,
// feature-mfcc.cc say what they are).
#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "ops/signal_tools.hpp"

namespace rlx {
namespace {

constexpr double epsilon = 1.1920928955078125e-07;  // of f32: the least energy

struct KaldiPlan {
  std::int64_t length, shift, n_fft;
};

KaldiPlan plan_of(const KaldiOptions& options) {
  const auto samples = [&](double ms) {
    const double count = options.sample_rate * ms * 0.001;
    return count >= 1 && count < 1 << 24 ? static_cast<std::int64_t>(count) : 0;
  };
  KaldiPlan plan{samples(options.frame_length), samples(options.frame_shift), 0};
  if (plan.length < 2 || plan.shift < 1) {
    throw Exception(bad_input("Frames of ({}) ms, ({}) ms apart, at ({}) Hz are none.",
                              options.frame_length, options.frame_shift, options.sample_rate));
  }
  plan.n_fft = plan.length;
  if (options.round_to_power_of_two) {
    plan.n_fft = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(plan.length)));
  }
  if (plan.n_fft % 2 != 0)
    throw Exception(bad_input("Frames of an odd number ({}) of points have no bins.", plan.n_fft));
  return plan;
}

/// [..., frames, length].
Value frames_of(Value signal, const KaldiOptions& options, const KaldiPlan& plan) {
  if (options.snip_edges) return frame(signal, plan.length, plan.shift);
  // Frame k is centred on (k + 1/2) shift; what lies beyond the ends is mirrored, end included.
  const std::int64_t samples = static_samples(signal, "frames over the edges");
  const std::int64_t count = (samples + plan.shift / 2) / plan.shift;
  const std::int64_t before = plan.length / 2 - plan.shift / 2;
  const std::int64_t behind = (count - 1) * plan.shift + plan.length - before - samples;
  if (count < 1 || std::max(before, behind) > samples) {
    throw Exception(bad_input("The signal {} is too short for frames of ({}) samples.",
                              signal.type().text(), plan.length));
  }
  Values parts;
  if (before > 0) parts.push_back(reversed(part_of_axis(signal, -1, 0, before)));
  parts.push_back(
      widened(signal, std::min<std::int64_t>(before, 0), std::min<std::int64_t>(behind, 0)));
  if (behind > 0) parts.push_back(reversed(part_of_axis(signal, -1, samples - behind, samples)));
  const Value all = parts.size() == 1 ? parts[0] : concat(parts, signal.rank() - 1);
  return frame(all, plan.length, plan.shift);
}

/// x[j] - c x[j - 1], the first sample standing for what is before it.
Value emphasised(Value frames, double coefficient, std::int64_t length) {
  if (coefficient == 0) return frames;
  const Value before = concat(
      {part_of_axis(frames, -1, 0, 1), part_of_axis(frames, -1, 0, length - 1)}, frames.rank() - 1);
  return frames - constant_like(frames, coefficient) * before;
}

/// log of the energy, [..., frames, 1].
Value log_energy(Value frames, double floor) {
  const Value energy = sum(frames * frames, {frames.rank() - 1}, true);
  const Value level = log(max(energy, constant_like(frames, epsilon)));
  return floor > 0 ? max(level, constant_like(frames, std::log(floor))) : level;
}

/// Filters that are triangles on the mel scale, [n_fft / 2 + 1, n_mels]; Nyquist's bin is not used.
std::vector<double> filters_of(const KaldiOptions& options, std::int64_t n_fft) {
  const double nyquist = options.sample_rate / 2;
  const double upper = options.high > 0 ? options.high : nyquist + options.high;
  if (options.n_mels < 1 || !(options.low >= 0) || !(upper > options.low) || upper > nyquist) {
    throw Exception(bad_input("({}) mel filters from ({}) to ({}) Hz are none.", options.n_mels,
                              options.low, upper));
  }
  const auto mel_of = [](double hz) { return 1127 * std::log(1 + hz / 700); };
  const double low = mel_of(options.low);
  const double step = (mel_of(upper) - low) / static_cast<double>(options.n_mels + 1);
  std::vector<double> weights;
  for (std::int64_t k = 0; k <= n_fft / 2; ++k) {
    const double mel =
        mel_of(static_cast<double>(k) * options.sample_rate / static_cast<double>(n_fft));
    for (std::int64_t i = 0; i < options.n_mels; ++i) {
      const double left = low + static_cast<double>(i) * step;
      const double rising = (mel - left) / step, falling = (left + 2 * step - mel) / step;
      weights.push_back(k == n_fft / 2 ? 0 : std::max(0.0, std::min(rising, falling)));
    }
  }
  return weights;
}

struct Features {
  Value bands;   ///< [..., frames, n_mels]
  Value energy;  ///< [..., frames, 1]
};

Features features_of(Value signal, const KaldiOptions& options) {
  require_signal(signal, "kaldi_fbank");
  const KaldiPlan plan = plan_of(options);
  Value frames = frames_of(signal, options, plan);
  if (options.remove_dc) frames = frames - mean(frames, {frames.rank() - 1}, true);
  Features features;
  if (options.raw_energy) features.energy = log_energy(frames, options.energy_floor);
  frames = emphasised(frames, options.preemphasis, plan.length);
  frames = frames * constant_like(frames, window(options.window, plan.length, false));
  if (!options.raw_energy) features.energy = log_energy(frames, options.energy_floor);
  Value bins = power_of(spectrum_parts(frames, plan.n_fft, true));
  if (!options.power) bins = sqrt(bins);
  features.bands = matmul(bins, constant_like(bins, {plan.n_fft / 2 + 1, options.n_mels},
                                              filters_of(options, plan.n_fft)));
  if (options.log) features.bands = log(max(features.bands, constant_like(bins, epsilon)));
  return features;
}

}  // namespace

Value kaldi_fbank(Value signal, const KaldiOptions& options) {
  const Features features = features_of(signal, options);
  if (!options.use_energy) return features.bands;
  return concat({features.energy, features.bands}, features.bands.rank() - 1);
}

Value kaldi_mfcc(Value signal, const KaldiOptions& options) {
  const std::int64_t mels = options.n_mels, count = options.n_ceps;
  if (count < 1 || count > mels)
    throw Exception(bad_input("({}) coefficients of ({}) mel filters are none.", count, mels));
  KaldiOptions logarithmic = options;
  logarithmic.log = true;
  const Features features = features_of(signal, logarithmic);
  std::vector<double> matrix;
  for (std::int64_t m = 0; m < mels; ++m) {
    for (std::int64_t k = 0; k < count; ++k) {
      const auto n = static_cast<double>(mels), at = static_cast<double>(k);
      double lifter = 1;
      if (options.lifter > 0)
        lifter += options.lifter / 2 * std::sin(std::numbers::pi * at / options.lifter);
      matrix.push_back(lifter * std::sqrt((k == 0 ? 1 : 2) / n) *
                       std::cos(std::numbers::pi / n * (static_cast<double>(m) + 0.5) * at));
    }
  }
  const Value ceps = matmul(features.bands, constant_like(signal, {mels, count}, matrix));
  if (!options.use_energy) return ceps;
  const std::int64_t axis = ceps.rank() - 1;
  if (count == 1) return features.energy;
  return concat({features.energy, part_of_axis(ceps, -1, 1, count)}, axis);
}

}  // namespace rlx
