// FIR filters and rational resampling as products of frames with banded matrices: each frame of
// input samples gives a block of results.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/signal_tools.hpp"

namespace rlx {
namespace {

std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
  return a >= 0 ? a / b : -((-a + b - 1) / b);
}

/// y[m] = sum over j of taps[m down + offset - j up] x[j], for m in [0, count).
struct Polyphase {
  std::span<const double> taps;
  std::int64_t up = 1, down = 1, offset = 0, count = 0;
};

/// How results are cut into blocks: block f holds `results` of them and reads samples
/// [f advance + first, f advance + first + width).
struct Blocks {
  std::int64_t results, advance, first, width;
};

Blocks blocks_of(const Polyphase& filter) {
  // Long enough for a matrix product; not so long that the band is lost in zeros.
  const auto taps = static_cast<std::int64_t>(filter.taps.size());
  const std::int64_t wanted = std::clamp<std::int64_t>(taps / (4 * filter.down), 32, 256);
  const std::int64_t periods = std::max<std::int64_t>((wanted + filter.up - 1) / filter.up, 1);
  Blocks blocks{};
  blocks.results = periods * filter.up;
  blocks.advance = periods * filter.down;
  blocks.first = -floor_quotient(taps - 1 - filter.offset, filter.up);
  const std::int64_t last =
      floor_quotient((blocks.results - 1) * filter.down + filter.offset, filter.up);
  blocks.width = last - blocks.first + 1;
  return blocks;
}

Value polyphase(Value signal, const Polyphase& filter) {
  const std::int64_t samples = static_samples(signal, "a filter");
  const Blocks blocks = blocks_of(filter);
  std::vector<double> matrix(static_cast<std::size_t>(blocks.width * blocks.results), 0);
  for (std::int64_t n = 0; n < blocks.results; ++n) {
    for (std::int64_t w = 0; w < blocks.width; ++w) {
      const std::int64_t tap = n * filter.down + filter.offset - (w + blocks.first) * filter.up;
      if (tap >= 0 && tap < static_cast<std::int64_t>(filter.taps.size())) {
        matrix[static_cast<std::size_t>(w * blocks.results + n)] =
            filter.taps[static_cast<std::size_t>(tap)];
      }
    }
  }
  const std::int64_t frames = (filter.count + blocks.results - 1) / blocks.results;
  const std::int64_t needed = (frames - 1) * blocks.advance + blocks.width;
  signal = widened(signal, -blocks.first, needed - samples + blocks.first);
  const Value windows = frame(signal, blocks.width, blocks.advance);
  const Value results =
      matmul(windows, constant_like(signal, {blocks.width, blocks.results}, matrix));
  const Value line = reshape(results, leading(results, 2, {Dim(frames * blocks.results)}));
  return part_of_axis(line, -1, 0, filter.count);
}

void require_taps(std::span<const double> taps) {
  if (taps.empty()) throw Exception(bad_input("A filter of ({}) taps is none.", taps.size()));
}

/// Any length, also one that is a symbol: a convolution of one channel.
Value convolved(Value signal, std::span<const double> taps, std::int64_t low) {
  Dim lines = 1;
  for (int i = 0; i + 1 < signal.rank(); ++i)
    lines = lines * signal.shape()[static_cast<std::size_t>(i)];
  const auto count = static_cast<std::int64_t>(taps.size());
  const Value weights =
      constant_like(signal, {1, 1, count}, std::vector<double>(taps.rbegin(), taps.rend()));
  const Value x = reshape(signal, {lines, 1, signal.shape().back()});
  const Value y = conv(x, weights, {.pad_low = {low}, .pad_high = {0}});
  return reshape(y, leading(signal, 1, {y.shape().back()}));
}

struct Ratio {
  std::int64_t up, down;
  std::vector<double> taps;
  std::int64_t half;
};

/// SciPy's filter of resample_poly: cut off at the lower of both rates.
Ratio ratio_of(std::int64_t up, std::int64_t down) {
  if (up < 1 || down < 1 || std::max(up, down) > (1 << 20))
    throw Exception(bad_input("The ratio ({} / {}) of sample rates is none.", up, down));
  const std::int64_t common = std::gcd(up, down);
  up /= common;
  down /= common;
  if (up == 1 && down == 1) return {1, 1, {1.0}, 0};
  const std::int64_t rate = std::max(up, down), half = 10 * rate;
  const std::array<double, 1> cutoff{1 / static_cast<double>(rate)};
  const Tensor h = firwin(2 * half + 1, cutoff, 2, true, Window::kaiser, 5);
  std::vector<double> taps(h.as<double>().begin(), h.as<double>().end());
  for (double& tap : taps) tap *= static_cast<double>(up);
  return {up, down, std::move(taps), half};
}

std::int64_t resampled_count(std::int64_t samples, std::int64_t up, std::int64_t down) {
  return (samples * up + down - 1) / down;
}

}  // namespace

Value fir_filter(Value signal, std::span<const double> taps) {
  require_signal(signal, "fir_filter");
  require_taps(taps);
  if (!signal.shape().back().is_static())
    return convolved(signal, taps, static_cast<std::int64_t>(taps.size()) - 1);
  return polyphase(signal, {.taps = taps, .count = signal.shape().back().value()});
}

Filtered fir_filter(Value signal, std::span<const double> taps, Value state) {
  require_signal(signal, "fir_filter");
  require_taps(taps);
  const auto before = static_cast<std::int64_t>(taps.size()) - 1;
  if (!state || state.shape().empty() || state.shape().back() != Dim(before)) {
    throw Exception(bad_input("The state ({}) of a filter of ({}) taps is not [..., {}].",
                              state ? state.type().text() : "none", taps.size(), before));
  }
  const std::int64_t samples = static_samples(signal, "a filter with state");
  const Value all = concat({state, signal}, signal.rank() - 1);
  return {polyphase(all, {.taps = taps, .offset = before, .count = samples}),
          part_of_axis(all, -1, samples, samples + before)};
}

Value resample_poly(Value signal, std::int64_t up, std::int64_t down) {
  require_signal(signal, "resample_poly");
  const Ratio ratio = ratio_of(up, down);
  if (ratio.up == ratio.down) return signal;
  const std::int64_t samples = static_samples(signal, "resample_poly");
  return polyphase(signal, {.taps = ratio.taps,
                            .up = ratio.up,
                            .down = ratio.down,
                            .offset = ratio.half,
                            .count = resampled_count(samples, ratio.up, ratio.down)});
}

Value decimate(Value signal, std::int64_t factor, Decimation filter) {
  require_signal(signal, "decimate");
  if (factor < 1) throw Exception(bad_input("A decimation by ({}) is none.", factor));
  if (factor == 1) return signal;
  const std::int64_t samples = static_samples(signal, "decimate");
  if (filter == Decimation::iir) {
    const std::array<double, 1> cutoff{0.8 / static_cast<double>(factor)};
    const Value kept = sos_filter_both_ways(signal, chebyshev(8, 0.05, cutoff, 2));
    const auto rank = static_cast<std::size_t>(signal.rank());
    Axes starts(rank, 0), limits(rank, op::slice_end), steps(rank, 1);
    limits.back() = samples;
    steps.back() = factor;
    return slice(kept, starts, limits, steps);
  }
  const std::array<double, 1> cutoff{1 / static_cast<double>(factor)};
  const Tensor taps = firwin(20 * factor + 1, cutoff);
  return polyphase(signal, {.taps = taps.as<double>(),
                            .down = factor,
                            .offset = 10 * factor,
                            .count = resampled_count(samples, 1, factor)});
}

Tensor resample(const Tensor& samples, std::int64_t up, std::int64_t down) {
  if (samples.dims().size() != 2 || samples.dtype() != f32)
    throw Exception(bad_input("Samples to resample are not f32 [lines, T]."));
  const Ratio ratio = ratio_of(up, down);
  if (ratio.up == ratio.down) return samples;
  const std::int64_t lines = samples.dims()[0], from = samples.dims()[1];
  const std::int64_t to = resampled_count(from, ratio.up, ratio.down);
  const auto taps = static_cast<std::int64_t>(ratio.taps.size());
  Tensor result(f32, {lines, to});
  auto* out = reinterpret_cast<float*>(result.mutable_data());
  for (std::int64_t line = 0; line < lines; ++line) {
    const float* x = samples.as<float>().data() + line * from;
    for (std::int64_t m = 0; m < to; ++m) {
      const std::int64_t at = m * ratio.down + ratio.half;
      const std::int64_t last = std::min(at / ratio.up, from - 1);
      const std::int64_t first =
          std::max<std::int64_t>(-floor_quotient(taps - 1 - at, ratio.up), 0);
      double sum = 0;
      for (std::int64_t j = first; j <= last; ++j)
        sum += ratio.taps[static_cast<std::size_t>(at - j * ratio.up)] * static_cast<double>(x[j]);
      *out++ = static_cast<float>(sum);
    }
  }
  return result;
}

}  // namespace rlx
