// The builders of signal processing against SciPy's, librosa's and Kaldi's answers.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>

#include "rlx/rlx.hpp"
#include "rlx/signal.hpp"
#include "signal/scipy_answers.hpp"
#include "signal/scipy_spectra_answers.hpp"

namespace rlx {
namespace {

using testing::scipy::Answer;
namespace scipy = testing::scipy;
using Build = std::function<Value(Value)>;

/// Noise of 20 bits with a trend: scipy_answers.py makes the same.
Tensor noise(std::int64_t lines, std::int64_t samples, std::uint64_t state) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < lines * samples; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    values.push_back(static_cast<double>(state >> 44) / 1048576 - 0.5 +
                     static_cast<double>(i % samples) / 1024 + 0.125);
  }
  return Tensor::of<double>({lines, samples}, std::span<const double>(values));
}

Tensor pair_of_lines() { return noise(2, 60, 1); }
Tensor long_line() { return noise(1, 700, 3).reshaped({700}); }
Value other_pair(Value like) {
  const Value y = like.graph().constant(noise(2, 60, 2));
  return like.dtype() == f64 ? y : cast(y, like.dtype());
}
Value first_of(Value x, std::int64_t samples) { return slice(x, {0, 0}, {2, samples}); }

std::vector<double> doubles(const Tensor& tensor) {
  const std::size_t bytes = tensor.bytes();
  if (tensor.dtype() == f64 || tensor.dtype() == c128) {
    const auto* data = reinterpret_cast<const double*>(tensor.data());
    return {data, data + bytes / 8};
  }
  const auto* data = reinterpret_cast<const float*>(tensor.data());
  return {data, data + bytes / 4};
}

Tensor run(const Tensor& x, DType dtype, const Build& build) {
  Graph graph;
  const Value input = graph.input("x", f64, Shape(x.dims().begin(), x.dims().end()));
  graph.output("y", build(dtype == f64 ? input : cast(input, dtype)));
  Session session(Device::cpu);
  CompiledGraph program = session.compile(graph).value();
  const Outputs outputs = program.run_typed(std::vector<NamedInput>{{"x", x}}).value();
  return outputs["y"];
}

/// Largest difference relative to the largest expected number.
double difference(const Tensor& got, const Answer& expected) {
  Dims dims = got.dims();
  if (is_complex(got.dtype())) dims.push_back(2);
  EXPECT_EQ(dims, expected.dims);
  const std::vector<double> values = doubles(got);
  if (values.size() != expected.values.size()) return INFINITY;
  double most = 0, size = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    most = std::max(most, std::abs(values[i] - expected.values[i]));
    if (std::isnan(values[i])) most = INFINITY;
    size = std::max(size, std::abs(expected.values[i]));
  }
  return most / std::max(size, 1e-300);
}

/// f64 within 1e-12 and f32 within 2e-6, relative to the largest number, unless told.
void expect(const char* name, const Tensor& x, const Answer& answer, const Build& build,
            double exact = 1e-12, double single = 2e-6) {
  EXPECT_LT(difference(run(x, f64, build), answer), exact) << name;
  EXPECT_LT(difference(run(x, f32, build), answer), single) << name << " in f32";
}

#define EXPECT_ANSWER(x, answer, ...) \
  expect(#answer, x, scipy::answer, [&](Value value) { return __VA_ARGS__; })

TEST(Scipy, Windows) {
  struct Case {
    Window kind;
    const Answer& answer;
    double parameter = 0;
  };
  for (const Case& each :
       {Case{Window::bartlett, scipy::window_bartlett},
        Case{Window::blackman_harris, scipy::window_blackmanharris},
        Case{Window::bohman, scipy::window_bohman}, Case{Window::cosine, scipy::window_cosine},
        Case{Window::nuttall, scipy::window_nuttall}, Case{Window::parzen, scipy::window_parzen},
        Case{Window::triangle, scipy::window_triang}, Case{Window::tukey, scipy::window_tukey, 0.4},
        Case{Window::flat_top, scipy::window_flattop},
        Case{Window::kaiser, scipy::window_kaiser, 5},
        Case{Window::gaussian, scipy::window_gaussian, 2}}) {
    std::vector<double> values;
    for (const std::int64_t length : {7, 8}) {
      for (const bool periodic : {false, true}) {
        const Tensor part = window(each.kind, length, periodic, each.parameter);
        values.insert(values.end(), part.as<double>().begin(), part.as<double>().end());
      }
    }
    const Tensor all = Tensor::of<double>({30}, std::span<const double>(values));
    EXPECT_LT(difference(all, each.answer), 1e-15) << static_cast<int>(each.kind);
  }
}

TEST(Scipy, Welch) {
  const Tensor x = pair_of_lines();
  EXPECT_ANSWER(x, welch_linear,
                welch(value, {.sample_rate = 100,
                              .window = Window::hamming,
                              .length = 16,
                              .overlap = 10,
                              .detrend = Detrend::linear}));
  EXPECT_ANSWER(
      x, welch_median,
      welch(value, {.sample_rate = 100, .length = 15, .overlap = 8, .average = Average::median}));
  EXPECT_ANSWER(
      x, welch_median_even,
      welch(value,
            {.length = 16, .overlap = 4, .detrend = Detrend::none, .average = Average::median}));
  EXPECT_ANSWER(x, welch_two_sided,
                welch(value, {.sample_rate = 10,
                              .window = Window::blackman,
                              .length = 12,
                              .overlap = 6,
                              .onesided = false}));
  EXPECT_ANSWER(x, welch_padded,
                welch(value, {.sample_rate = 10,
                              .length = 12,
                              .overlap = 6,
                              .scaling = SpectrumScaling::spectrum,
                              .n_fft = 17}));
}

TEST(Scipy, CrossDensities) {
  const Tensor x = pair_of_lines();
  WelchOptions options{.sample_rate = 100, .length = 16, .overlap = 8};
  EXPECT_ANSWER(x, csd_mean, csd(value, other_pair(value), options));
  EXPECT_ANSWER(x, coherence, coherence(value, other_pair(value), options));
  options.average = Average::median;
  options.scaling = SpectrumScaling::spectrum;
  EXPECT_ANSWER(x, csd_median, csd(value, other_pair(value), options));
  options = {.sample_rate = 100, .length = 9, .overlap = 3, .onesided = false};
  EXPECT_ANSWER(x, csd_two_sided, csd(value, other_pair(value), options));
}

TEST(Scipy, SpectrogramAndPeriodogram) {
  const Tensor x = pair_of_lines();
  EXPECT_ANSWER(x, spectrogram,
                spectrogram(value, WelchOptions{.sample_rate = 50,
                                                .window = Window::tukey,
                                                .window_parameter = 0.25,
                                                .length = 16,
                                                .overlap = 2}));
  EXPECT_ANSWER(x, periodogram, periodogram(value, 50));
  EXPECT_ANSWER(x, periodogram_linear,
                periodogram(first_of(value, 31), 50, Detrend::linear, SpectrumScaling::spectrum));
}

// Bins that are real have the angle 0 or pi, never -pi, and steps of just pi are no jumps
// (numpy.unwrap).
TEST(Scipy, AnglesOfRealBins) {
  for (const DType dtype : {f32, f64}) {
    for (const bool onesided : {true, false}) {
      Graph graph;
      const Value x = cast(graph.input("x", f32, {12}), dtype);
      const WelchOptions options{.window = Window::boxcar,
                                 .length = 4,
                                 .overlap = 0,
                                 .detrend = Detrend::none,
                                 .onesided = onesided};
      graph.output("angle", cast(spectrogram(x, options, SpectrogramMode::angle), f32));
      graph.output("phase", cast(spectrogram(x, options, SpectrogramMode::phase), f32));
      CompiledGraph program = Session(Device::cpu).compile(graph).value();
      // Segments that are even, with the bins -1 2 -3 2, 3 0 -1 0 and 0 0 0 0.
      const std::vector<float> values{0, 0.5f, -2, 0.5f, 0.5f, 1, 0.5f, 1, 0, 0, 0, 0};
      const Outputs outputs = program.run({{"x", values}}).value();
      constexpr float pi = std::numbers::pi_v<float>;
      const float expected[4][3] = {{pi, 0, 0}, {0, 0, 0}, {pi, pi, 0}, {0, 0, 0}};
      for (const char* const mode : {"angle", "phase"}) {
        const auto got = outputs[mode].as<float>();
        ASSERT_EQ(got.size(), onesided ? 9U : 12U);
        for (std::size_t i = 0; i < got.size(); ++i) {
          // The size of a bin that is zero says nothing of its angle.
          if (expected[i / 3][i % 3] == 0 && i % 3 > 0) continue;
          EXPECT_FLOAT_EQ(got[i], expected[i / 3][i % 3]) << mode << " " << i;
        }
      }
    }
  }
}

TEST(Scipy, SpectrogramModes) {
  const Tensor x = pair_of_lines();
  WelchOptions options{.sample_rate = 50,
                       .length = 16,
                       .overlap = 5,
                       .detrend = Detrend::none,
                       .scaling = SpectrumScaling::spectrum};
  using enum SpectrogramMode;
  EXPECT_ANSWER(x, spectrogram_complex, spectrogram(first_of(value, 27), options, complex));
  EXPECT_ANSWER(x, spectrogram_magnitude, spectrogram(first_of(value, 27), options, magnitude));
  EXPECT_ANSWER(x, spectrogram_angle, spectrogram(first_of(value, 27), options, angle));
  EXPECT_ANSWER(x, spectrogram_phase, spectrogram(first_of(value, 27), options, phase));
  options = {.sample_rate = 50,
             .window = Window::hamming,
             .length = 15,
             .overlap = 5,
             .onesided = false,
             .n_fft = 18};
  EXPECT_ANSWER(x, spectrogram_two_sided, spectrogram(first_of(value, 25), options, magnitude));
  Graph graph;
  const Value line = graph.input("x", f64, {60});
  EXPECT_THROW(spectrogram(line, options, static_cast<SpectrogramMode>(7)), Exception);
}

TEST(Scipy, ShortTimeTransforms) {
  const Tensor x = pair_of_lines();
  EXPECT_ANSWER(x, stft_scipy, stft(value, scipy_stft(16, 12)));
  StftOptions odd = scipy_stft(15, 10, Window::hamming);
  odd.n_fft = 20;
  odd.extension = Extension::odd;
  odd.scaling = StftScaling::density;
  odd.sample_rate = 50;
  EXPECT_ANSWER(x, stft_scipy_odd, stft(value, odd));
  StftOptions plain = scipy_stft(16, 8);
  plain.centre = plain.whole = false;
  EXPECT_ANSWER(x, stft_scipy_plain, stft(value, plain));
  EXPECT_ANSWER(x, stft_librosa, stft(value, {.n_fft = 16, .hop = 5, .length = 12}));
}

/// The bins weighed, so that the spectrum is no signal's own.
Value with_slope(Value spectrum) {
  std::vector<double> factors;
  for (int k = 1; k < 10; ++k) factors.push_back(k / 8.0);
  const DType real = spectrum.dtype() == c128 ? f64 : f32;
  const Value slope =
      cast(spectrum.graph().constant(Tensor::of<double>({9, 1}, std::span<const double>(factors))),
           real);
  Graph& graph = spectrum.graph();
  const Value re = graph.add_one(op::Real{}, {spectrum}),
              im = graph.add_one(op::Imag{}, {spectrum});
  return graph.add_one(op::MakeComplex{}, {re * slope, im * slope});
}

TEST(Scipy, InverseShortTimeTransforms) {
  const Tensor x = pair_of_lines();
  const StftOptions torch{.n_fft = 16, .hop = 4, .extension = Extension::zeros};
  EXPECT_ANSWER(x, istft_librosa, istft(with_slope(stft(value, torch)), torch, 57));
  const StftOptions whole = scipy_stft(16, 11, Window::hamming);
  EXPECT_ANSWER(x, istft_scipy, istft(with_slope(stft(value, whole)), whole));
}

TEST(Scipy, InverseOfTheTransformIsTheSignal) {
  for (const bool onesided : {true, false}) {
    for (const StftScaling scaling : {StftScaling::none, StftScaling::orthonormal}) {
      const StftOptions options{
          .n_fft = 15, .hop = 6, .length = 13, .onesided = onesided, .scaling = scaling};
      const Tensor x = pair_of_lines();
      const Tensor back =
          run(x, f64, [&](Value v) { return istft(stft(v, options), options, 60); });
      EXPECT_LT(difference(back, {x.dims(), doubles(x)}), 1e-14);
    }
  }
}

TEST(Scipy, UncoveredSamplesAreAnError) {
  Graph graph;
  const Value x = graph.input("x", f32, {100});
  const StftOptions options{.n_fft = 16, .hop = 16};
  const Value spectrum = stft(x, options);
  try {
    istft(spectrum, options);
    FAIL();
  } catch (const Exception& exception) {
    EXPECT_STREQ(exception.what(),
                 "The window of (16) points, (16) apart, leaves samples uncovered: no inverse "
                 "exists (NOLA).");
  }
  EXPECT_TRUE(nonzero_overlap_add(window(Window::hann, 16), 8));
  EXPECT_FALSE(nonzero_overlap_add(window(Window::hann, 16), 16));
}

TEST(Scipy, CosineTransforms) {
  struct Case {
    int type;
    std::int64_t points;
    const Answer& answer;
  };
  for (const Case& each :
       {Case{2, 1, scipy::dct2_1}, Case{3, 1, scipy::dct3_1}, Case{4, 1, scipy::dct4_1},
        Case{1, 2, scipy::dct1_2}, Case{2, 2, scipy::dct2_2}, Case{3, 2, scipy::dct3_2},
        Case{4, 2, scipy::dct4_2}, Case{1, 7, scipy::dct1_7}, Case{2, 7, scipy::dct2_7},
        Case{3, 7, scipy::dct3_7}, Case{4, 7, scipy::dct4_7}, Case{1, 12, scipy::dct1_12},
        Case{2, 12, scipy::dct2_12}, Case{3, 12, scipy::dct3_12}, Case{4, 12, scipy::dct4_12}}) {
    const auto build = [&](Value x) {
      const Value v = first_of(x, each.points);
      Values parts;
      for (const Value y : {dct(v, each.type), dct(v, each.type, FftNorm::ortho),
                            idct(v, each.type), idct(v, each.type, FftNorm::ortho)})
        parts.push_back(unsqueeze(y, {0}));
      return concat(parts, 0);
    };
    const std::string name =
        "dct " + std::to_string(each.type) + " of " + std::to_string(each.points);
    expect(name.c_str(), pair_of_lines(), each.answer, build);
  }
}

TEST(Scipy, AnalyticSignals) {
  const Tensor x = pair_of_lines();
  EXPECT_ANSWER(x, hilbert_odd, hilbert(first_of(value, 15)));
  EXPECT_ANSWER(x, hilbert_even, hilbert(first_of(value, 16)));
}

const std::array<Section, 2> sections{{{0.2, 0.3, 0.1, 1, -0.6, 0.3}, {1, -1, 0.5, 2, 0.4, -0.2}}};

TEST(Scipy, FirFilters) {
  const std::array<double, 1> low{0.3}, high{30};
  const std::array<double, 2> band{10, 20};
  const Tensor taps = firwin(9, low);
  EXPECT_LT(difference(taps, scipy::firwin_low), 1e-14);
  EXPECT_LT(difference(firwin(11, high, 100, false, Window::kaiser, 6), scipy::firwin_high), 1e-14);
  EXPECT_LT(difference(firwin(12, band, 100, false), scipy::firwin_band), 1e-14);
  EXPECT_ANSWER(pair_of_lines(), fir, fir_filter(value, taps.as<double>()));
}

/// Chunks with the state handed on give what the whole signal gives.
TEST(Scipy, FiltersStream) {
  const Tensor taps = firwin(9, std::array<double, 1>{0.3});
  const auto in_chunks = [&](Value x, Value state, const auto& filter) {
    Values parts;
    for (std::int64_t at = 0; at < 60; at += 20) {
      const Filtered part = filter(slice(x, {0, at}, {2, at + 20}), state);
      parts.push_back(part.signal);
      state = part.state;
    }
    return concat(parts, 1);
  };
  const auto zeros = [](Value x, Shape shape) {
    return broadcast(x.graph().constant(x.dtype(), 0), shape);
  };
  EXPECT_ANSWER(pair_of_lines(), fir,
                in_chunks(value, zeros(value, {2, 8}), [&](Value x, Value state) {
                  return fir_filter(x, taps.as<double>(), state);
                }));
  const auto with_state = [&](Value x) {
    const Value state = x.graph().constant(noise(4, 2, 5).reshaped({2, 2, 2}));
    return sos_filter(x, sections, x.dtype() == f64 ? state : cast(state, x.dtype()));
  };
  EXPECT_ANSWER(pair_of_lines(), sos_state_signal, with_state(value).signal);
  EXPECT_ANSWER(pair_of_lines(), sos_state, with_state(value).state);
}

TEST(Scipy, SecondOrderSections) {
  const auto every_seventh = [](Value x) { return slice(x, {0}, {700}, {7}); };
  EXPECT_ANSWER(long_line(), sos, every_seventh(sos_filter(value, sections)));
  EXPECT_ANSWER(pair_of_lines(), sos_both_ways, sos_filter_both_ways(value, sections));
  const auto first = [](Value x) { return reshape(slice(x, {0, 0}, {1, 60}), {60}); };
  const auto designed = [&](Value x, int order, std::vector<double> cutoffs, bool high = false) {
    return sos_filter(first(x), butterworth(order, cutoffs, 100, high));
  };
  EXPECT_ANSWER(pair_of_lines(), butter_low, designed(value, 5, {8}));
  EXPECT_ANSWER(pair_of_lines(), butter_high, designed(value, 4, {8}, true));
  EXPECT_ANSWER(pair_of_lines(), butter_band, designed(value, 3, {8, 13}));
  EXPECT_ANSWER(pair_of_lines(), butter_wide, designed(value, 1, {1, 45}));
  const std::array<double, 2> cutoffs{8, 13};
  const auto low = chebyshev(5, 0.5, std::span(cutoffs).first(1), 100);
  EXPECT_ANSWER(pair_of_lines(), cheby_low, sos_filter(first(value), low));
  EXPECT_ANSWER(pair_of_lines(), cheby_band,
                sos_filter(first(value), chebyshev(4, 3, cutoffs, 100)));
}

TEST(Scipy, Resampling) {
  EXPECT_ANSWER(pair_of_lines(), resample_3_2, resample_poly(value, 3, 2));
  EXPECT_ANSWER(long_line(), resample_down, slice(resample_poly(value, 2, 14), {0}, {100}, {2}));
  EXPECT_ANSWER(pair_of_lines(), resample_up,
                resample_poly(reshape(slice(value, {0, 0}, {1, 20}), {20}), 7, 3));
  EXPECT_ANSWER(long_line(), decimate,
                slice(rlx::decimate(value, 5, Decimation::fir), {0}, {140}, {2}));
  EXPECT_ANSWER(long_line(), decimate_iir, slice(rlx::decimate(value, 4), {0}, {175}, {5}));
}

TEST(Scipy, ResamplingWithoutAGraph) {
  const std::vector<double> exact = doubles(pair_of_lines());
  const std::vector<float> x(exact.begin(), exact.end());
  const Tensor got = resample(Tensor::of<float>({2, 60}, std::span<const float>(x)), 3, 2);
  EXPECT_LT(difference(got, scipy::resample_3_2), 1e-7);
}

TEST(Scipy, MelFeatures) {
  const MelOptions slaney{.sample_rate = 8000, .n_fft = 40, .n_mels = 5};
  EXPECT_LT(difference(mel_filters(slaney), scipy::mel_slaney), 1e-13);
  MelOptions plain = slaney;
  plain.area_norm = false;
  EXPECT_LT(difference(mel_filters(plain), scipy::mel_plain), 1e-13);
  MelOptions htk = plain;
  htk.scale = MelScale::htk;
  htk.low = 50;
  htk.high = 3000;
  EXPECT_LT(difference(mel_filters(htk), scipy::mel_htk), 1e-13);
  // librosa's own filters are f32.
  expect(
      "mel_spectrogram", long_line(), scipy::mel_spectrogram,
      [](Value value) {
        return mel_spectrogram(value, {.sample_rate = 8000, .n_mels = 6}, {.n_fft = 64, .hop = 40});
      },
      2e-7);
  const auto cepstra = [](Value value, bool plain_frames) {
    MfccOptions options{.n_mfcc = 7, .top_db = 30, .lifter = 5};
    options.mel = {.sample_rate = 8000, .n_mels = 10};
    options.frames = {.n_fft = 64, .hop = 60, .window_first = !plain_frames};
    return mfcc(value * value * value, options);
  };
  for (const bool plain_frames : {true, false}) {
    expect(
        "mfcc", long_line(), scipy::mfcc, [&](Value value) { return cepstra(value, plain_frames); },
        2e-7, 1e-5);
  }
}

TEST(Scipy, KaldiFeatures) {
  KaldiOptions fbank{.sample_rate = 8000, .n_mels = 10, .energy_floor = 0};
  const auto louder = [](Value x) { return x * x.graph().constant(x.dtype(), 1000); };
  EXPECT_ANSWER(long_line(), kaldi_fbank, kaldi_fbank(louder(value), fbank));
  fbank.use_energy = true;
  fbank.raw_energy = false;
  EXPECT_ANSWER(long_line(), kaldi_fbank_energy, kaldi_fbank(louder(value), fbank));
  fbank.raw_energy = true;
  fbank.snip_edges = false;
  EXPECT_ANSWER(long_line(), kaldi_fbank_edges, kaldi_fbank(louder(value), fbank));
  KaldiOptions mfcc{
      .sample_rate = 8000, .n_mels = 12, .use_energy = true, .energy_floor = 0, .n_ceps = 7};
  const auto coefficients = [&](Value value) { return kaldi_mfcc(louder(value), mfcc); };
  expect("kaldi_mfcc", long_line(), scipy::kaldi_mfcc, coefficients, 1e-12, 1e-5);
  mfcc.use_energy = false;
  expect("kaldi_mfcc_plain", long_line(), scipy::kaldi_mfcc_plain, coefficients, 1e-12, 1e-5);
}

TEST(Scipy, WrongCallsAreSentences) {
  Graph graph;
  const Value x = graph.input("x", f32, {100}), integers = graph.input("i", i32, {100});
  const Value open = graph.input("open", f32, {"T"});
  const std::vector<std::function<void()>> calls{
      [&] { welch(integers); },
      [&] { welch(x, {.length = 16, .overlap = 16}); },
      [&] { welch(x, {.length = 16, .overlap = 8, .n_fft = 8}); },
      [&] { welch(x); },
      [&] { welch(open, {.length = 16, .overlap = 8, .average = Average::median}); },
      [&] { stft(x, {.n_fft = 16, .length = 17}); },
      [&] { istft(x); },
      [&] { dct(x, 5); },
      [&] { dct(open); },
      [&] { fir_filter(x, {}); },
      [&] { sos_filter(x, {}); },
      [&] { sos_filter(x, std::array<Section, 1>{{{1, 0, 0, 0, 0, 0}}}); },
      [&] { sos_filter(x, sections, x); },
      [&] { resample_poly(x, 0, 1); },
      [&] { decimate(x, 0); },
      [&] { mel_filters({.n_mels = 0}); },
      [&] { mel_filters({.low = 9000}); },
      [&] { kaldi_fbank(x, {.frame_length = 0}); },
      [&] { firwin(8, std::array<double, 1>{0.5}, 2, false); },
      [&] { firwin(9, std::array<double, 1>{1.5}); },
      [&] { butterworth(0, std::array<double, 1>{0.5}, 2); },
      [&] { window(Window::kaiser, 8, true, 1e6); },
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    try {
      calls[i]();
      ADD_FAILURE() << "call " << i;
    } catch (const Exception& exception) {
      const std::string message = exception.what();
      EXPECT_NE(message.find('('), std::string::npos) << message;
    }
  }
}

}  // namespace
}  // namespace rlx
