// Fourier transforms against NumPy, frames, log-mel and Welch peaks against their definitions, and
// what they refuse.
#include <numbers>

#include "ops/fft.hpp"
#include "ops/numeric.hpp"
#include "ops/numpy_answers.hpp"

namespace rlx {
namespace {

using namespace testing;

Tensor complex_pattern(Dims dims) {
  return results_of(op::MakeComplex{}, {pattern(dims, 1), pattern(dims, 2)})[0];
}

// Answers hold complex values as pairs of real and imaginary parts.
void expect_complex(const Tensor& actual, const Answer& answer) {
  EXPECT_EQ(actual.dtype(), c64);
  std::vector<double> pairs;
  for (const auto& value : load_all<std::complex<double>>(actual))
    pairs.insert(pairs.end(), {value.real(), value.imag()});
  ASSERT_EQ(actual.dims(), answer.dims);
  ASSERT_EQ(pairs.size(), answer.values.size());
  for (std::size_t i = 0; i < pairs.size(); ++i)
    EXPECT_NEAR(pairs[i], answer.values[i], 1e-5 * (1 + std::abs(answer.values[i])));
}

TEST(Fft, agrees_with_numpy_at_smooth_and_prime_lengths) {
  expect_complex(results_of(op::Fft{}, {complex_pattern({2, 6})})[0], numpy::fft_6);
  expect_complex(results_of(op::Fft{}, {complex_pattern({2, 30})})[0], numpy::fft_30);
  expect_complex(results_of(op::Fft{}, {complex_pattern({2, 37})})[0], numpy::fft_37);
  expect_complex(results_of(op::Rfft{}, {pattern({2, 6}, 1)})[0], numpy::rfft_6);
  expect_complex(results_of(op::Rfft{}, {pattern({2, 30}, 1)})[0], numpy::rfft_30);
  expect_complex(results_of(op::Rfft{}, {pattern({2, 37}, 1)})[0], numpy::rfft_37);
}

TEST(Fft, takes_axes_and_norms) {
  const op::Fft fft{.axis = 0, .inverse = true, .norm = FftNorm::ortho};
  expect_complex(results_of(fft, {complex_pattern({2, 6})})[0], numpy::ifft_ortho);
}

TEST(Fft, comes_back_within_rounding_at_every_kind_of_length) {
  for (const std::int64_t n : {1, 2, 97, 1009, 4096, 6000, 2 * 1009}) {
    std::vector<std::complex<double>> x;
    for (std::int64_t k = 0; k < n; ++k)
      x.emplace_back(std::sin(static_cast<double>(k * k % 101)),
                     std::cos(static_cast<double>(k % 17)));
    const FourierTransform fft(n);
    const auto back = fft.run(fft.run(x, false), true);
    for (std::int64_t k = 0; k < n; ++k)
      ASSERT_NEAR(std::abs(back[k] / static_cast<double>(n) - x[k]), 0, 1e-13) << n << " at " << k;
  }
}

TEST(Fft, roots_are_exact_where_the_circle_is) {
  EXPECT_EQ(root_of_unity(0, 12), std::complex<double>(1, 0));
  EXPECT_EQ(root_of_unity(3, 12), std::complex<double>(0, -1));
  EXPECT_EQ(root_of_unity(6, 12), std::complex<double>(-1, 0));
  EXPECT_EQ(root_of_unity(-3, 12), std::complex<double>(0, 1));
  for (std::int64_t k = -40; k < 40; ++k) {
    const double angle = -2 * std::numbers::pi * static_cast<double>(k) / 37;
    EXPECT_NEAR(std::abs(root_of_unity(k, 37) - std::polar(1.0, angle)), 0, 2e-15) << k;
  }
}

TEST(Irfft, drops_and_fills_bins_as_numpy_does) {
  const Tensor bins = complex_pattern({2, 6});
  expect_answer(results_of(op::Irfft{}, {bins})[0], numpy::irfft_even);
  expect_answer(results_of(op::Irfft{.length = 9, .norm = FftNorm::forward}, {bins})[0],
                numpy::irfft_odd);
  expect_answer(results_of(op::Irfft{.length = 16}, {bins})[0], numpy::irfft_long);
}

TEST(BlockFft, holds_real_parts_before_imaginary_parts) {
  const Tensor block = Tensor::of<float>({1, 8}, {1, 2, 3, 4, 0, 0, 0, 0});
  const Tensor spectrum = results_of(op::BlockFft{}, {block})[0];
  expect_values(spectrum, {1, 8}, {10, -2, -2, -2, 0, 2, 0, -2});
  expect_values(results_of(op::BlockFft{.inverse = true}, {spectrum})[0], {1, 8},
                {1, 2, 3, 4, 0, 0, 0, 0});
  expect_values(results_of(op::BlockFft{.inverse = true, .norm = FftNorm::none}, {spectrum})[0],
                {1, 8}, {4, 8, 12, 16, 0, 0, 0, 0});
}

TEST(Fft, refuses_with_sentences) {
  EXPECT_EQ(refusal_of(op::Fft{}, {Tensor(f32, {4})}),
            "The op fft takes complex numbers, not f32[4].");
  EXPECT_EQ(refusal_of(op::Fft{.axis = 1}, {Tensor(c64, {4})}),
            "Axis (1) is outside the rank (1) of c64[4].");
  EXPECT_EQ(refusal_of(op::Rfft{}, {Tensor(f32, {2, 0})}),
            "The op rfft has no points along its axis of f32[2,0].");
  EXPECT_EQ(refusal_of(op::Irfft{}, {Tensor(c64, {1})}),
            "The length (0) of irfft must be at least 1.");
  EXPECT_EQ(refusal_of(op::BlockFft{}, {Tensor(f32, {2, 5})}),
            "The last dim (5) of f32[2,5] is not twice a number of points.");
  EXPECT_EQ(refusal_of(op::MakeComplex{}, {Tensor(f32, {2}), Tensor(f32, {3})}),
            "The parts of make_complex differ in shape: f32[2] and f32[3].");
}

TEST(Frame, cuts_overlapping_frames) {
  const Tensor signal = Tensor::of<float>({7}, {0, 1, 2, 3, 4, 5, 6});
  expect_values(results_of(op::Frame{.length = 3, .hop = 2}, {signal})[0], {3, 3},
                {0, 1, 2, 2, 3, 4, 4, 5, 6});
  EXPECT_EQ(refusal_of(op::Frame{.length = 8}, {signal}),
            "The signal f32[7] is shorter than a frame of (8) samples.");
  EXPECT_EQ(refusal_of(op::Frame{.length = 0}, {signal}),
            "The frames of (0) samples, (1) apart, are no frames.");
}

TEST(LogMel, floors_by_frame_by_clip_or_not_at_all) {
  std::vector<double> values = load_all<double>(pattern({2, 3, 32}, 1)),
                      weights = load_all<double>(pattern({4, 9}, 2));
  for (int i = 0; i < 32; ++i) values[i] *= 1e-5;
  for (double& weight : weights) weight = std::abs(weight);
  Tensor spectrum(f32, {2, 3, 32}), filters(f32, {4, 9});
  store_all<double>({f32, spectrum.dims(), spectrum.mutable_data()}, values);
  store_all<double>({f32, filters.dims(), filters.mutable_data()}, weights);
  expect_answer(results_of(op::LogMel{op::LogMelFloor::none}, {spectrum, filters})[0],
                numpy::log_mel_none);
  expect_answer(results_of(op::LogMel{op::LogMelFloor::frame}, {spectrum, filters})[0],
                numpy::log_mel_frame);
  expect_answer(results_of(op::LogMel{op::LogMelFloor::clip}, {spectrum, filters})[0],
                numpy::log_mel_clip);
  EXPECT_EQ(refusal_of(op::LogMel{}, {spectrum, Tensor(f32, {4, 8})}),
            "The filters of log_mel take (8) bins, which is not what f32[2,3,32] has.");
}

TEST(WelchPeaks, gives_the_strongest_bins_as_pairs) {
  expect_answer(results_of(op::WelchPeaks{.k = 5, .n_segments = 2}, {pattern({4, 32}, 3)})[0],
                numpy::welch_even);
  expect_answer(results_of(op::WelchPeaks{.k = 5}, {pattern({3, 18}, 3)})[0], numpy::welch_odd);
}

TEST(WelchPeaks, the_lower_bin_is_first_on_ties) {
  // Four points: bins 0, 1, 2 of power 4, 2 * 2 and 4.
  const Tensor spectrum = Tensor::of<float>({1, 8}, {2, 1, 2, 0, 0, 1, 0, 0});
  expect_values(results_of(op::WelchPeaks{.k = 3}, {spectrum})[0], {1, 6}, {0, 4, 1, 4, 2, 4});
}

TEST(WelchPeaks, has_256_bytes_for_two_items_of_16_peaks) {
  Graph graph;
  const Value peaks =
      welch_peaks(graph.input("spectrum", f32, {4, 512}), {.k = 16, .n_segments = 2});
  EXPECT_EQ(peaks.type().text(), "f32[2,32]");
  EXPECT_EQ(peaks.type().bytes(), 256);
}

TEST(WelchPeaks, refuses_with_sentences) {
  const Tensor spectrum(f32, {4, 32});
  EXPECT_EQ(refusal_of(op::WelchPeaks{.k = 10, .n_segments = 2}, {spectrum}),
            "The number of peaks (10) of welch_peaks is outside 1 to (9) bins.");
  EXPECT_EQ(refusal_of(op::WelchPeaks{.n_segments = 3}, {spectrum}),
            "The rows (4) of welch_peaks are no multiple of its segments (3).");
}

}  // namespace
}  // namespace rlx
