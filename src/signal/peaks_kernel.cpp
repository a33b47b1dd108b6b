// The strongest bins of Welch's estimate.
#include "signal/peaks_kernel.hpp"

#include <algorithm>

namespace rlx::signal {
namespace {

class PeaksKernel final : public LineKernel {
 public:
  PeaksKernel(const op::WelchPeaks& a, std::int64_t rows, std::int64_t width)
      : k_(a.k), segments_(a.n_segments), items_(rows / a.n_segments), points_(width / 2) {}

  std::int64_t work_items() const override { return items_; }
  std::int64_t scratch_bytes() const override {
    return bins() * static_cast<std::int64_t>(sizeof(double)) +
           k_ * static_cast<std::int64_t>(sizeof(Peak));
  }
  void run(void* const* buffers, std::int64_t begin, std::int64_t end,
           void* scratch) const override {
    auto* const power = static_cast<double*>(scratch);
    auto* const peaks = reinterpret_cast<Peak*>(power + bins());
    const auto* spectrum = static_cast<const float*>(buffers[0]);
    auto* out = static_cast<float*>(buffers[1]);
    for (std::int64_t item = begin; item < end; ++item) {
      add_segments(spectrum + item * segments_ * 2 * points_, power);
      find_peaks(power, peaks);
      float* to = out + item * 2 * k_;
      for (std::int64_t i = 0; i < k_; ++i) {
        *to++ = static_cast<float>(peaks[i].bin);
        *to++ = peaks[i].power;
      }
    }
  }

 private:
  struct Peak {
    float power;
    std::int32_t bin;
  };

  std::int64_t bins() const { return points_ / 2 + 1; }

  void add_segments(const float* rows, double* power) const {
    const std::int64_t count = bins();
    std::fill_n(power, count, 0.0);
    for (std::int64_t s = 0; s < segments_; ++s, rows += 2 * points_) {
      const float* const imaginary = rows + points_;
      for (std::int64_t bin = 0; bin < count; ++bin) {
        const double re = rows[bin], im = imaginary[bin];
        power[bin] += re * re + im * im;
      }
    }
  }

  /// In falling power, the lower bin first on ties, compared as they are given: in f32.
  void find_peaks(const double* power, Peak* peaks) const {
    std::int64_t found = 0;
    for (std::int64_t bin = 0; bin < bins(); ++bin) {
      const bool doubled = bin != 0 && 2 * bin != points_;
      const auto value =
          static_cast<float>(power[bin] * (doubled ? 2 : 1) / static_cast<double>(segments_));
      if (found == k_ && !(value > peaks[k_ - 1].power)) continue;
      std::int64_t at = found == k_ ? k_ - 1 : found++;
      for (; at > 0 && value > peaks[at - 1].power; --at) peaks[at] = peaks[at - 1];
      peaks[at] = {value, static_cast<std::int32_t>(bin)};
    }
  }

  std::int64_t k_, segments_, items_, points_;
};

}  // namespace

std::unique_ptr<LineKernel> peaks_kernel(const op::WelchPeaks& a, const Type& spectrum) {
  const Dims dims = spectrum.dims();
  return std::make_unique<PeaksKernel>(a, dims[0], dims[1]);
}

}  // namespace rlx::signal
