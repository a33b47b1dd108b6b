// Signal processing over the last axis, as SciPy, librosa and torchaudio mean it: windows,
// short-time transforms, spectral densities, filters, resampling, mel features. Builders compose
// ops; their coefficients are computed in f64 when the graph is built. Signals are f32 or f64 [...,
// T] unless said otherwise; wrong calls throw Exception. docs/signal.md lists the names of the
// other libraries.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "rlx/graph.hpp"
#include "rlx/ops.hpp"

namespace rlx {
namespace op {

/// (signal [..., T], window [length], filters [bands, length/2 + 1]) -> [..., frames, bands]:
/// log10(max(filters · |rfft(frame * window)|^2, least)) of frames that begin `hop` apart. The
/// spectrum is never stored where the device has a kernel for it. An offset above 0 is added to the
/// energies instead of `least`: log10(filters · |rfft(frame * window)|^2 + offset). The frames are
/// those of the signal with `before` and `behind` samples reflected at its ends. With `maxima` the
/// largest level of each frame is a second result, [..., frames].
struct BandLevels {
  std::int64_t length = 0, hop = 1;
  double least = 1e-10, offset = 0;
  std::int64_t before = 0, behind = 0;
  bool maxima = false;
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

// ---- Fourier transforms -----------------------------------------------------------------------
/// numpy.fft's of one axis: `points` of it, the first ones or with zeros behind (0: those there
/// are). The real x of fft and fftn is taken as complex. Axes that are cut or widened are static.
Value fft(Value x, std::int64_t points = 0, std::int64_t axis = -1,
          FftNorm norm = FftNorm::backward);
Value ifft(Value x, std::int64_t points = 0, std::int64_t axis = -1,
           FftNorm norm = FftNorm::backward);
/// Real to complex, the first points / 2 + 1 bins.
Value rfft(Value x, std::int64_t points = 0, std::int64_t axis = -1,
           FftNorm norm = FftNorm::backward);
/// Back to so many points; 0: 2 (bins - 1).
Value irfft(Value x, std::int64_t points = 0, std::int64_t axis = -1,
            FftNorm norm = FftNorm::backward);
/// Over several axes, all of them unless told; fft2 is fftn(x, {-2, -1}).
Value fftn(Value x, const Axes& axes = {}, FftNorm norm = FftNorm::backward);
Value ifftn(Value x, const Axes& axes = {}, FftNorm norm = FftNorm::backward);
/// The last of the axes is real in the signal and has points / 2 + 1 bins in the spectrum.
Value rfftn(Value x, const Axes& axes = {}, FftNorm norm = FftNorm::backward);
Value irfftn(Value x, std::int64_t last_points = 0, const Axes& axes = {},
             FftNorm norm = FftNorm::backward);

// ---- windows ----------------------------------------------------------------------------------
/// scipy.signal.windows, and Kaldi's povey. `parameter` is beta of kaiser, the deviation of
/// gaussian and the tapered share of tukey.
enum class Window : std::uint8_t {
  boxcar,
  hann,
  hamming,
  blackman,
  flat_top,
  kaiser,
  gaussian,
  bartlett,
  blackman_harris,
  bohman,
  cosine,
  nuttall,
  parzen,
  tukey,
  triangle,
  povey
};
/// f64[length]. Periodic windows are for spectra, symmetric ones for filters.
Tensor window(Window kind, std::int64_t length, bool periodic = true, double parameter = 0);

// ---- frames and short-time transforms ---------------------------------------------------------
/// [..., T] of any dtype -> [..., 1 + (T - length) / hop, length].
Value frame(Value signal, std::int64_t length, std::int64_t hop);
/// The sum of frames that begin `hop` apart: [..., frames, length] -> [..., (frames - 1) * hop +
/// length].
Value overlap_add(Value frames, std::int64_t hop);
/// SciPy's check_NOLA: whether some frame's window is above `tolerance` at every sample.
bool nonzero_overlap_add(const Tensor& window, std::int64_t hop, double tolerance = 1e-10);

/// What stands beyond the ends of a signal; reflect leaves out the end itself, odd turns the signal
/// about its end point.
enum class Extension : std::uint8_t { zeros, reflect, edge, odd };
enum class StftScaling : std::uint8_t { none, spectrum, density, orthonormal };
/// The defaults are torch.stft's with a Hann window; scipy_stft gives SciPy's.
struct StftOptions {
  std::int64_t n_fft = 400;
  std::int64_t hop = 0;     ///< 0: a quarter of the window
  std::int64_t length = 0;  ///< points of the window; 0: n_fft
  Window window = Window::hann;
  double window_parameter = 0;
  bool periodic = true;
  bool centre = true;  ///< frame k is centred on sample k * hop: half a frame is put at both ends
  Extension extension = Extension::reflect;
  bool window_first = false;  ///< a shorter window begins the frame (SciPy), or lies in its middle
  bool whole = false;         ///< zeros behind the signal until the last frame is whole (SciPy)
  bool onesided = true;
  StftScaling scaling = StftScaling::none;  ///< orthonormal: 1 / sqrt(n_fft), torch's `normalized`
  double sample_rate = 1;                   ///< of density
};
/// scipy.signal.stft's: zeros at the ends, whole frames, scaled as a spectrum.
StftOptions scipy_stft(std::int64_t length, std::int64_t overlap, Window window = Window::hann,
                       double window_parameter = 0);
/// [..., T] -> complex [..., n_fft / 2 + 1 or n_fft, frames].
Value stft(Value signal, const StftOptions& options = {});
/// The signal whose stft is nearest: what `stft` gave, to [..., samples]; without `samples`, what
/// the frames cover without the centring. Throws where windows leave samples uncovered (NOLA); at
/// ends that no window covers the result is not normalised (as SciPy). Frames must be static.
Value istft(Value spectrum, const StftOptions& options = {},
            std::optional<std::int64_t> samples = {});
/// torchaudio's Spectrogram: |stft|^power, [..., bins, frames].
Value spectrogram(Value signal, const StftOptions& options, double power = 2);

// ---- spectral densities -----------------------------------------------------------------------
enum class SpectrumScaling : std::uint8_t { density, spectrum };
enum class Detrend : std::uint8_t { none, constant, linear };
enum class Average : std::uint8_t { mean, median };
/// As scipy.signal.welch.
struct WelchOptions {
  double sample_rate = 1;
  Window window = Window::hann;
  double window_parameter = 0;
  std::int64_t length = 256, overlap = 128;
  Detrend detrend = Detrend::constant;  ///< what each segment loses
  SpectrumScaling scaling = SpectrumScaling::density;
  Average average = Average::mean;  ///< median: with SciPy's correction of its bias; T static
  bool onesided = true;
  std::int64_t n_fft = 0;  ///< zeros are put behind segments; 0: length
};
/// [..., T] -> [..., bins]; bins = n_fft / 2 + 1, or n_fft where two-sided.
Value welch(Value signal, const WelchOptions& options = {});
/// Cross density of two signals of one shape, conj(X) Y: complex [..., bins].
Value csd(Value x, Value y, const WelchOptions& options = {});
/// |csd|^2 / (welch(x) welch(y)): [..., bins].
Value coherence(Value x, Value y, const WelchOptions& options = {});
/// What scipy.signal.spectrogram gives of each segment's bins: its power; the scaled complex bins,
/// not doubled where one-sided; their size; their angle in radians; the angle without its jumps
/// from bin to bin (numpy.unwrap).
enum class SpectrogramMode : std::uint8_t { psd, complex, magnitude, angle, phase };
/// scipy.signal.spectrogram: [..., bins, segments]. SciPy's own defaults are a window of tukey,
/// 0.25 and an overlap of length / 8.
Value spectrogram(Value signal, const WelchOptions& options = {},
                  SpectrogramMode mode = SpectrogramMode::psd);
/// The density of each line, as one segment (length and overlap of the options do not count):
/// [..., T] -> [..., bins]. T static.
Value psd(Value signal, const WelchOptions& options);
/// scipy.signal.periodogram: psd under a boxcar.
Value periodogram(Value signal, double sample_rate = 1, Detrend detrend = Detrend::constant,
                  SpectrumScaling scaling = SpectrumScaling::density);

// ---- cosine transforms, the analytic signal ---------------------------------------------------
/// scipy.fft.dct and idct of type 1 to 4 over the last axis, of static length (type 1: at least 2).
/// Norms as there; none scales neither direction.
Value dct(Value x, int type = 2, FftNorm norm = FftNorm::backward);
Value idct(Value x, int type = 2, FftNorm norm = FftNorm::backward);
/// scipy.signal.hilbert: the analytic signal, complex [..., T]. T static.
Value hilbert(Value signal);

// ---- filters ----------------------------------------------------------------------------------
/// What a filter gives, and its state after the last sample, to be fed with the next chunk.
struct Filtered {
  Value signal, state;
};
/// scipy.signal.lfilter(taps, 1, x) from rest: [..., T] -> [..., T].
Value fir_filter(Value signal, std::span<const double> taps);
/// With state: the taps - 1 samples before the signal, [..., taps - 1].
Filtered fir_filter(Value signal, std::span<const double> taps, Value state);
/// One second-order section: b0 b1 b2 a0 a1 a2, a0 not 0.
using Section = std::array<double, 6>;
/// scipy.signal.sosfilt. Computed in blocks, as products with the filter's responses, so that it
/// runs at the speed of matmul, its states in f64. T static.
Value sos_filter(Value signal, std::span<const Section> sections);
/// With state [..., sections, 2] (SciPy's zi has its sections first), of the signal's dtype or f64,
/// in which streams of f32 lose nothing from chunk to chunk.
Filtered sos_filter(Value signal, std::span<const Section> sections, Value state);
/// scipy.signal.sosfiltfilt: forwards and backwards, from odd extensions in their steady state.
Value sos_filter_both_ways(Value signal, std::span<const Section> sections);
/// scipy.signal.butter(output="sos"): one cutoff and `highpass`, or two for a band. As a response
/// these are SciPy's filters; the pairing of poles may differ.
std::vector<Section> butterworth(int order, std::span<const double> cutoffs, double sample_rate,
                                 bool highpass = false);
/// scipy.signal.cheby1(output="sos"): `ripple` decibels within what passes.
std::vector<Section> chebyshev(int order, double ripple, std::span<const double> cutoffs,
                               double sample_rate, bool highpass = false);
/// scipy.signal.firwin: `cutoffs` (rising, in units of sample_rate) part bands that pass and stop
/// in turn; the first passes where `pass_zero`. f64[taps], scaled to 1 within the first passing
/// band.
Tensor firwin(std::int64_t taps, std::span<const double> cutoffs, double sample_rate = 2,
              bool pass_zero = true, Window window = Window::hamming, double parameter = 0);

/// scipy.signal.resample_poly with its Kaiser window (5.0): [..., T] -> [..., ceil(T up / down)].
Value resample_poly(Value signal, std::int64_t up, std::int64_t down);
/// scipy.signal.decimate, without delay: by Chebyshev's filter of order 8, forwards and backwards;
/// fir: by 20 factor + 1 taps under Hamming's window.
enum class Decimation : std::uint8_t { iir, fir };
Value decimate(Value signal, std::int64_t factor, Decimation filter = Decimation::iir);
/// resample_poly of f32 samples at once, without a graph: [lines, T].
Tensor resample(const Tensor& samples, std::int64_t up, std::int64_t down);

// ---- mel features -----------------------------------------------------------------------------
enum class MelScale : std::uint8_t { slaney, htk };
/// librosa.filters.mel (torchaudio's melscale_fbanks, transposed): f64[n_mels, n_fft / 2 + 1].
struct MelOptions {
  double sample_rate = 16000;
  std::int64_t n_fft = 400, n_mels = 80;
  double low = 0, high = 0;  ///< Hz; a high of 0: half the sample rate
  MelScale scale = MelScale::slaney;
  bool area_norm = true;  ///< each filter has the same area (norm="slaney")
};
Tensor mel_filters(const MelOptions& options);
/// Mel energies, [..., n_mels, frames]; n_fft is the frames'.
Value mel_spectrogram(Value signal, const MelOptions& mel, const StftOptions& frames,
                      double power = 2);
/// librosa.power_to_db with ref 1: 10 log10(max(x, least)), no less than its maximum over the last
/// two axes minus `top_db` (0: no such floor).
Value power_to_db(Value power, double least = 1e-10, double top_db = 80);
/// librosa.feature.mfcc and torchaudio.transforms.MFCC (there: scale htk, no area norm):
/// [..., n_mfcc, frames].
struct MfccOptions {
  std::int64_t n_mfcc = 20;
  double top_db = 80;
  double lifter = 0;  ///< librosa's lifter; 0: none
  MelOptions mel;
  StftOptions frames;
};
Value mfcc(Value signal, const MfccOptions& options = {});

/// Kaldi's compute-fbank-feats and compute-mfcc-feats (torchaudio.compliance.kaldi), dither 0.
/// Times are ms. Kaldi takes samples as 16-bit numbers: scale by 32768 where they are not.
struct KaldiOptions {
  double sample_rate = 16000, frame_length = 25, frame_shift = 10;
  double preemphasis = 0.97;
  bool remove_dc = true;
  Window window = Window::povey;
  bool round_to_power_of_two = true;
  bool snip_edges = true;  ///< false: the ends are reflected, T static
  std::int64_t n_mels = 23;
  double low = 20, high = 0;  ///< a high of 0 or less: so much below half the sample rate
  bool log = true, power = true;
  bool use_energy = false;  ///< the log energy comes first (of MFCC: in place of the first)
  bool raw_energy = true;   ///< it is taken before pre-emphasis and window
  double energy_floor = 1;  ///< of the log energy; 0: none
  std::int64_t n_ceps = 13;
  double lifter = 22;
};
/// [..., T] -> [..., frames, n_mels (+ 1 with energy)].
Value kaldi_fbank(Value signal, const KaldiOptions& options = {});
/// [..., T] -> [..., frames, n_ceps].
Value kaldi_mfcc(Value signal, const KaldiOptions& options = {});

/// log10 of mel energies as Whisper takes them: the signal [..., T] reflected by n_fft / 2 at both
/// ends, frames of n_fft points `hop` apart under Hann's window, the last frame dropped; floor
/// as in op::LogMel; result [..., T / hop, n_mels]. filters [n_mels, n_fft/2 + 1] of the signal's
/// dtype.
Value log_mel_features(Value signal, Value filters, std::int64_t n_fft, std::int64_t hop,
                       op::LogMelFloor floor = op::LogMelFloor::clip);

}  // namespace rlx
