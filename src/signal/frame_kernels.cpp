// Kernels over frames of signals whose spectra are never stored.
#include "signal/frame_kernels.hpp"

#include <limits>

namespace rlx::signal {
namespace {

/// The transform of frames of an even length goes by half as many complex points.
template <class T>
class FrameKernel : public LaneJobKernel<T> {
 public:
  FrameKernel(const Type& signal, std::int64_t length, std::int64_t hop, codegen::Isa isa,
              int out_buffer)
      : LaneJobKernel<T>(length % 2 ? length : length / 2, false, isa, out_buffer) {
    const std::int64_t samples = signal.dims().back(), frames = (samples - length) / hop + 1;
    const bool even = length % 2 == 0;
    Job<T>& job = this->job();
    job.real_input = even;
    if (even) this->use_half_roots();
    job.in = {frames, samples, hop, even ? 2 : 1, even ? 1 : 0, even ? length / 2 : length};
    job.lines = signal.elements() / samples * frames;
    job.out.count = length / 2 + 1;
    job.out.step = 1;
    job.out.imaginary = 0;
  }
};

template <class T>
class BandKernel final : public FrameKernel<T> {
 public:
  BandKernel(const op::BandLevels& a, std::span<const Type> inputs, codegen::Isa isa)
      : FrameKernel<T>(inputs[0], a.length, a.hop, isa, 3), bands_(inputs[2].dims()[0]) {
    Job<T>& job = this->job();
    job.result = Result::bands;
    job.band_count = bands_;
    job.out.outer_step = bands_;
    // Logarithms on lanes are of normal numbers.
    job.least = static_cast<T>(a.offset > 0 ? double{std::numeric_limits<T>::min()} : a.least);
    job.offset = static_cast<T>(a.offset);
  }
  /// The bands lie behind the scratch of the lanes.
  std::int64_t scratch_bytes() const override {
    return lane_bytes() + bands_ * static_cast<std::int64_t>(sizeof(Band<T>));
  }
  void run(void* const* buffers, std::int64_t begin, std::int64_t end,
           void* scratch) const override {
    auto* bands = reinterpret_cast<Band<T>*>(static_cast<std::byte*>(scratch) + lane_bytes());
    const auto* filters = static_cast<const T*>(buffers[2]);
    const std::int64_t bins = this->job().out.count;
    for (std::int64_t band = 0; band < bands_; ++band, filters += bins) {
      std::int64_t first = 0, last = bins;
      while (first < bins && filters[first] == 0) ++first;
      while (last > first && filters[last - 1] == 0) --last;
      bands[band] = {static_cast<std::int32_t>(first), static_cast<std::int32_t>(last - first),
                     filters + first};
    }
    Job<T> job = this->job();
    job.window = static_cast<const T*>(buffers[1]);
    job.bands = bands;
    this->run_job(job, buffers, begin, end, scratch);
  }

 private:
  std::int64_t lane_bytes() const { return (LaneJobKernel<T>::scratch_bytes() + 63) / 64 * 64; }
  std::int64_t bands_;
};

template <class T>
class MeanKernel final : public FrameKernel<T> {
 public:
  MeanKernel(const op::MeanPower& a, const Type& signal, codegen::Isa isa)
      : FrameKernel<T>(signal, a.length, a.hop, isa, 2) {
    Job<T>& job = this->job();
    job.result = Result::mean;
    job.take_mean_off = a.take_mean_off;
    job.out.inner = job.in.inner;
    job.out.outer_step = job.out.count;
    factors_.assign(static_cast<std::size_t>(job.out.count), T(1) / static_cast<T>(job.in.inner));
    job.bin_factors = factors_.data();
  }
  void run(void* const* buffers, std::int64_t begin, std::int64_t end,
           void* scratch) const override {
    Job<T> job = this->job();
    job.window = static_cast<const T*>(buffers[1]);
    this->run_job(job, buffers, begin, end, scratch);
  }

 private:
  std::vector<T> factors_;
};

}  // namespace

std::unique_ptr<LineKernel> band_kernel(const op::BandLevels& a, std::span<const Type> inputs,
                                        codegen::Isa isa) {
  if (inputs[0].dtype == f64) return std::make_unique<BandKernel<double>>(a, inputs, isa);
  return std::make_unique<BandKernel<float>>(a, inputs, isa);
}

std::unique_ptr<LineKernel> mean_kernel(const op::MeanPower& a, const Type& signal,
                                        codegen::Isa isa) {
  if (signal.dtype == f64) return std::make_unique<MeanKernel<double>>(a, signal, isa);
  return std::make_unique<MeanKernel<float>>(a, signal, isa);
}

}  // namespace rlx::signal
