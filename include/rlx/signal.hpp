// Signal processing over the last axis: windows, spectral density, log-mel features.
#pragma once

#include <cstdint>
#include <string_view>

#include "rlx/graph.hpp"
#include "rlx/ops.hpp"

namespace rlx {
namespace op {

/// (signal [..., T], window [length], filters [bands, length/2 + 1]) -> [..., frames, bands]:
/// log10(max(filters · |rfft(frame * window)|^2, least)) of frames that begin `hop` apart. The
/// spectrum is never stored where the device has a kernel for it.
struct BandLevels {
  std::int64_t length = 0, hop = 1;
  double least = 1e-10;
};
/// (signal [..., T], window [length]) -> [..., length/2 + 1]: |rfft(frame * window)|^2, its mean
/// over frames that begin `hop` apart; with take_mean_off each frame loses its mean first.
struct MeanPower {
  std::int64_t length = 0, hop = 1;
  bool take_mean_off = false;
};

/// (spectrum, filters, gradient of log_mel's result) -> the gradient for the spectrum, of its type:
/// the true derivative of op::LogMel with that floor, which moves with the maximum. Places that
/// share the maximum share what floored places hand to it.
struct LogMelBackward {
  LogMelFloor floor = LogMelFloor::clip;
};

}  // namespace op

/// SciPy's windows; `parameter` is beta of kaiser and the deviation of gaussian.
enum class Window : std::uint8_t { boxcar, hann, hamming, blackman, flat_top, kaiser, gaussian };
/// f64[length]. Periodic windows are for spectra, symmetric ones for filters.
Tensor window(Window kind, std::int64_t length, bool periodic = true, double parameter = 0);

/// log10 of mel energies as Whisper takes them: the signal [..., T] reflected by n_fft / 2 at both
/// ends, frames of n_fft points `hop` apart under Hann's window, the last frame dropped; floor
/// as in op::LogMel; result [..., T / hop, n_mels]. filters [n_mels, n_fft/2 + 1] of the signal's
/// dtype.
Value log_mel_features(Value signal, Value filters, std::int64_t n_fft, std::int64_t hop,
                       op::LogMelFloor floor = op::LogMelFloor::clip);

enum class SpectrumScaling : std::uint8_t { density, spectrum };
/// As scipy.signal.welch: one-sided, mean over segments.
struct WelchOptions {
  double sample_rate = 1;
  Window window = Window::hann;
  double window_parameter = 0;
  std::int64_t length = 256, overlap = 128;
  bool detrend = true;  ///< each segment loses its mean
  SpectrumScaling scaling = SpectrumScaling::density;
};
/// (signal [..., T], f32 or f64) -> [..., length/2 + 1].
Value welch(Value signal, const WelchOptions& options = {});

}  // namespace rlx
