// Mel filters, mel spectrograms, decibels and cepstral coefficients as librosa and torchaudio mean
// them.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/signal_tools.hpp"

namespace rlx {
namespace {

// Slaney's scale: linear below 1 kHz, then 27 steps for each factor of 6.4.
constexpr double linear_step = 200.0 / 3, knee_hz = 1000, knee_mel = knee_hz / linear_step;
const double log_step = std::log(6.4) / 27;

double mel_of(double hz, MelScale scale) {
  if (scale == MelScale::htk) return 2595 * std::log10(1 + hz / 700);
  return hz < knee_hz ? hz / linear_step : knee_mel + std::log(hz / knee_hz) / log_step;
}

double hz_of(double mel, MelScale scale) {
  if (scale == MelScale::htk) return 700 * (std::pow(10, mel / 2595) - 1);
  return mel < knee_mel ? mel * linear_step : knee_hz * std::exp(log_step * (mel - knee_mel));
}

double upper_edge(const MelOptions& options) {
  return options.high > 0 ? options.high : options.sample_rate / 2;
}

void check(const MelOptions& options) {
  if (options.n_fft < 1 || options.n_mels < 1 || !(options.sample_rate > 0)) {
    throw Exception(bad_input("({}) mel filters of ({}) points at ({}) Hz are none.",
                              options.n_mels, options.n_fft, options.sample_rate));
  }
  if (!(options.low >= 0) || !(upper_edge(options) > options.low)) {
    throw Exception(
        bad_input("The band from ({}) to ({}) Hz is none.", options.low, upper_edge(options)));
  }
}

/// Levels of bands in dB, [..., frames, n_mels]; one op where the frames allow it.
Value band_decibels(Value signal, const MelOptions& mel, const StftOptions& frames, double least) {
  const std::int64_t length = frames.length == 0 ? frames.n_fft : frames.length;
  const bool is_plain = frames.onesided && frames.scaling == StftScaling::none && !frames.whole &&
                        length == frames.n_fft && !frames.window_first;
  if (!is_plain) {
    const Value energy = swapped(mel_spectrogram(signal, mel, frames));
    return power_to_db(energy, least, 0);
  }
  const std::int64_t margin = frames.centre ? frames.n_fft / 2 : 0;
  const bool reflects = frames.extension == Extension::reflect;
  const Value ends = reflects ? signal : extended(signal, margin, margin, frames.extension);
  const Tensor weights = window(frames.window, length, frames.periodic, frames.window_parameter);
  const std::int64_t hop = frames.hop == 0 ? std::max<std::int64_t>(length / 4, 1) : frames.hop;
  const Value levels =
      apply(op::BandLevels{.length = length,
                           .hop = hop,
                           .least = least,
                           .before = reflects ? margin : 0,
                           .behind = reflects ? margin : 0},
            {ends, constant_like(signal, weights), constant_like(signal, mel_filters(mel))});
  return levels * constant_like(signal, 10);
}

Value with_floor(Value decibels, double top_db) {
  if (top_db <= 0) return decibels;
  const std::int64_t rank = decibels.rank();
  const Axes axes = rank > 1 ? Axes{rank - 2, rank - 1} : Axes{0};
  return max(decibels, max_over(decibels, axes, true) - constant_like(decibels, top_db));
}

MelOptions matching(MelOptions mel, const StftOptions& frames) {
  mel.n_fft = frames.n_fft;
  return mel;
}

}  // namespace

Tensor mel_filters(const MelOptions& options) {
  check(options);
  const std::int64_t bins = options.n_fft / 2 + 1;
  const double low = mel_of(options.low, options.scale);
  const double high = mel_of(upper_edge(options), options.scale);
  std::vector<double> edges, values;
  for (std::int64_t i = 0; i < options.n_mels + 2; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(options.n_mels + 1);
    edges.push_back(hz_of(low + (high - low) * share, options.scale));
  }
  for (std::size_t i = 0; i + 2 < edges.size(); ++i) {
    const double left = edges[i], centre = edges[i + 1], right = edges[i + 2];
    const double height = options.area_norm ? 2 / (right - left) : 1;
    for (std::int64_t k = 0; k < bins; ++k) {
      const double hz =
          static_cast<double>(k) * options.sample_rate / static_cast<double>(options.n_fft);
      const double rising = (hz - left) / (centre - left);
      const double falling = (right - hz) / (right - centre);
      values.push_back(height * std::max(0.0, std::min(rising, falling)));
    }
  }
  return Tensor::of<double>({options.n_mels, bins}, std::span<const double>(values));
}

Value mel_spectrogram(Value signal, const MelOptions& mel, const StftOptions& frames,
                      double power) {
  if (!frames.onesided)
    throw Exception(bad_input("Mel filters want the bins of a one-sided transform."));
  const Value bins = swapped(spectrogram(signal, frames, power));
  const Value filters = constant_like(signal, mel_filters(matching(mel, frames)));
  return swapped(matmul(bins, transpose(filters, {1, 0})));
}

Value power_to_db(Value power, double least, double top_db) {
  require_signal(power, "power_to_db");
  if (!(least > 0)) throw Exception(bad_input("The least power ({}) has no logarithm.", least));
  const Value level = log(max(power, constant_like(power, least)));
  return with_floor(level * constant_like(power, 10 / std::numbers::ln10), top_db);
}

Value mfcc(Value signal, const MfccOptions& options) {
  require_signal(signal, "mfcc");
  const std::int64_t mels = options.mel.n_mels, count = options.n_mfcc;
  if (count < 1 || count > mels) {
    throw Exception(bad_input("({}) coefficients of ({}) mel filters are none.", count, mels));
  }
  const MelOptions mel = matching(options.mel, options.frames);
  const Value decibels =
      with_floor(band_decibels(signal, mel, options.frames, 1e-10), options.top_db);
  // The cosine transform of type 2, orthonormal, as a product: few coefficients are wanted.
  std::vector<double> matrix;
  const auto n = static_cast<double>(mels);
  for (std::int64_t m = 0; m < mels; ++m) {
    for (std::int64_t k = 0; k < count; ++k) {
      const auto at = static_cast<double>(k);
      double lifter = 1;
      if (options.lifter > 0)
        lifter += options.lifter / 2 * std::sin(std::numbers::pi * (at + 1) / options.lifter);
      matrix.push_back(
          lifter * std::sqrt((k == 0 ? 1 : 2) / n) *
          std::cos(std::numbers::pi * at * (2 * static_cast<double>(m) + 1) / (2 * n)));
    }
  }
  return swapped(matmul(decibels, constant_like(signal, {mels, count}, matrix)));
}

}  // namespace rlx
