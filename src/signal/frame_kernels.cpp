// Kernels over frames of signals whose spectra are never stored.
#include "signal/frame_kernels.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

namespace rlx::signal {
namespace {

/// The transform of frames of an even length goes by half as many complex points.
template <class T>
class FrameKernel : public LaneJobKernel<T> {
 public:
  /// extra: samples that stand beyond the ends of the signal.
  FrameKernel(const Type& signal, std::int64_t length, std::int64_t hop, std::int64_t extra,
              codegen::Isa isa, int out_buffer)
      : LaneJobKernel<T>(length % 2 ? length : length / 2, false, isa, out_buffer) {
    const std::int64_t samples = signal.dims().back(),
                       frames = (samples + extra - length) / hop + 1;
    const bool even = length % 2 == 0;
    Job<T>& job = this->job();
    job.real_input = even;
    if (even) this->use_half_roots();
    job.in = {frames, samples, hop, even ? 2 : 1, even ? 1 : 0, even ? length / 2 : length};
    job.lines = signal.elements() / samples * frames;
    job.out.count = length / 2 + 1;
    job.out.step = 1;
    job.out.imaginary = 0;
    if (even) find_points(length, hop, LaneJobKernel<T>::lanes_of(isa));
  }

 protected:
  std::int64_t lane_bytes() const { return (LaneJobKernel<T>::scratch_bytes() + 63) / 64 * 64; }

 private:
  /// Of frames that overlap, in the order in which the first stage takes them.
  void find_points(std::int64_t length, std::int64_t hop, std::int64_t lanes) {
    const std::int64_t most_hops = std::min<std::int64_t>(lanes, 4);
    const Tables<T>& tables = this->job().tables;
    if (tables.kind != Tables<T>::Kind::stages || hop % lanes != 0 || length % lanes != 0 ||
        hop >= length || length > most_hops * hop)
      return;
    points_.resize(static_cast<std::size_t>(length / 2));
    for (std::int64_t j = 0; j < length / 2; ++j) {
      const auto slot = static_cast<std::size_t>(tables.position[j]);
      points_[slot] = {static_cast<std::int32_t>(2 * j % hop * 2 * lanes + 2 * j / hop),
                       static_cast<std::int32_t>(2 * j)};
    }
    this->job().frame_points = points_.data();
  }
  std::vector<FramePoint> points_;
};

constexpr std::int64_t block = 16;

/// Whether a block of numbers is zero.
template <class T>
bool is_zero(const T* numbers) {
  std::array<std::uint64_t, block* static_cast<std::int64_t>(sizeof(T)) / 8> words;
  std::memcpy(words.data(), numbers, sizeof(words));
  std::uint64_t any = 0;
  for (const std::uint64_t word : words) any |= word;
  return any == 0;
}

/// Where the weights of a filter are not zero, in whole steps of what the kernel sums at once.
template <class T>
Band<T> band_of(const T* filter, std::int64_t bins) {
  constexpr std::int64_t step = 4;
  std::int64_t first = 0, last = bins;
  while (first + block <= bins && is_zero(filter + first)) first += block;
  while (first < bins && filter[first] == 0) ++first;
  while (last - block >= first && is_zero(filter + last - block)) last -= block;
  while (last > first && filter[last - 1] == 0) --last;
  // Weights of zero make the count whole: in front where the bins end.
  const std::int64_t count = std::min((last - first + step - 1) / step * step, bins);
  first = std::min(first, bins - count);
  return {static_cast<std::int32_t>(first), static_cast<std::int32_t>(count), filter + first};
}

template <class T>
class BandKernel final : public FrameKernel<T> {
 public:
  BandKernel(const op::BandLevels& a, std::span<const Type> inputs, codegen::Isa isa)
      : FrameKernel<T>(inputs[0], a.length, a.hop, a.before + a.behind, isa, 3),
        bands_(inputs[2].dims()[0]),
        samples_(inputs[0].dims().back()),
        length_(a.length),
        before_(a.before),
        behind_(a.behind),
        has_maxima_(a.maxima),
        lanes_(LaneJobKernel<T>::lanes_of(isa)) {
    Job<T>& job = this->job();
    job.result = Result::bands;
    job.band_count = bands_;
    job.out.outer_step = bands_;
    // Logarithms on lanes are of normal numbers.
    job.least = static_cast<T>(a.offset > 0 ? double{std::numeric_limits<T>::min()} : a.least);
    job.offset = static_cast<T>(a.offset);
  }
  /// Behind the scratch of the lanes lie the bands, their weights and frames that reach beyond the
  /// ends.
  std::int64_t scratch_bytes() const override {
    return this->lane_bytes() + band_bytes() + weights_room() * std::int64_t{sizeof(T)} +
           (before_ + behind_ ? lanes_ * length_ * static_cast<std::int64_t>(sizeof(T)) : 0);
  }
  void run(void* const* buffers, std::int64_t begin, std::int64_t end,
           void* scratch) const override {
    auto* bands = reinterpret_cast<Band<T>*>(static_cast<std::byte*>(scratch) + this->lane_bytes());
    const auto* filters = static_cast<const T*>(buffers[2]);
    const std::int64_t bins = this->job().out.count;
    T* const weights = reinterpret_cast<T*>(reinterpret_cast<std::byte*>(bands) + band_bytes());
    std::int64_t used = 0;
    for (std::int64_t band = 0; band < bands_; ++band) {
      Band<T>& own = bands[band];
      own = band_of(filters + band * bins, bins);
      // Side by side they take a sixth of the cache that the rows of the matrix take.
      if (used + own.count > weights_room()) continue;
      std::copy_n(own.weights, own.count, weights + used);
      own.weights = weights + used;
      used += own.count;
    }
    Job<T> job = this->job();
    job.window = static_cast<const T*>(buffers[1]);
    job.bands = bands;
    if (has_maxima_) job.maxima = static_cast<T*>(buffers[4]);
    if (before_ + behind_ == 0) return this->run_job(job, buffers, begin, end, scratch);
    for (std::int64_t group = begin; group < end;) {
      if (!is_within(group)) {
        run_at_ends(job, buffers, group++, scratch);
        continue;
      }
      std::int64_t last = group + 1;
      while (last < end && is_within(last)) ++last;
      Job<T> inner = job;
      inner.in.start = -before_;
      inner.lines = last * lanes_;
      this->run_job(inner, buffers, group, last, scratch);
      group = last;
    }
  }

 private:
  std::int64_t band_bytes() const {
    return (bands_ * static_cast<std::int64_t>(sizeof(Band<T>)) + 63) / 64 * 64;
  }
  /// Of filters that overlap about twice, with what makes their counts whole.
  std::int64_t weights_room() const {
    return (2 * this->job().out.count + 4 * bands_ + block - 1) / block * block;
  }
  /// Where a line begins in its signal.
  std::int64_t start_of(std::int64_t line) const {
    const Lines& in = this->job().in;
    return line % in.inner * in.inner_step - before_;
  }
  /// Whether the frames of a group, all there, lie within their signals.
  bool is_within(std::int64_t group) const {
    const std::int64_t first = group * lanes_, last = first + lanes_ - 1;
    return last < this->job().lines &&
           first / this->job().in.inner == last / this->job().in.inner && start_of(first) >= 0 &&
           start_of(last) + length_ <= samples_;
  }
  /// Frames whose samples beyond the ends are those as far in front of them.
  void run_at_ends(const Job<T>& whole, void* const* buffers, std::int64_t group,
                   void* scratch) const {
    auto* const frames =
        reinterpret_cast<T*>(static_cast<std::byte*>(scratch) + this->lane_bytes() + band_bytes()) +
        weights_room();
    const std::int64_t first = group * lanes_, count = std::min(lanes_, whole.lines - first);
    for (std::int64_t lane = 0; lane < count; ++lane) {
      const std::int64_t line = first + lane, start = start_of(line);
      const T* const from =
          static_cast<const T*>(buffers[0]) + line / whole.in.inner * whole.in.outer_step;
      T* const frame = frames + lane * length_;
      const std::int64_t inside = std::clamp<std::int64_t>(-start, 0, length_),
                         behind = std::clamp(samples_ - start, inside, length_);
      for (std::int64_t j = 0; j < inside; ++j) frame[j] = from[-(start + j)];
      if (behind > inside) std::copy_n(from + (start + inside), behind - inside, frame + inside);
      for (std::int64_t j = behind; j < length_; ++j)
        frame[j] = from[2 * (samples_ - 1) - start - j];
    }
    Job<T> job = whole;
    job.in.inner = count;
    job.in.outer_step = 0;
    job.in.inner_step = length_;
    job.lines = count;
    if (has_maxima_) job.maxima += first;
    void* own[] = {frames, buffers[1], buffers[2], static_cast<T*>(buffers[3]) + first * bands_};
    this->run_job(job, own, 0, 1, scratch);
  }

  std::int64_t bands_, samples_, length_, before_, behind_;
  bool has_maxima_;
  std::int64_t lanes_;
};

template <class T>
class MeanKernel final : public FrameKernel<T> {
 public:
  MeanKernel(const op::MeanPower& a, const Type& signal, codegen::Isa isa)
      : FrameKernel<T>(signal, a.length, a.hop, 0, isa, 2) {
    Job<T>& job = this->job();
    job.result = Result::mean;
    job.take_mean_off = a.take_mean_off;
    job.out.inner = job.in.inner;
    job.out.outer_step = job.out.count;
    factors_.assign(static_cast<std::size_t>(job.out.count), T(1) / static_cast<T>(job.in.inner));
    job.bin_factors = factors_.data();
    sum_bytes_ = job.out.count * (LaneJobKernel<T>::lanes_of(isa) * std::int64_t{sizeof(T)} + 8);
  }
  /// Behind the scratch of the lanes lie the sums.
  std::int64_t scratch_bytes() const override { return this->lane_bytes() + sum_bytes_; }
  void run(void* const* buffers, std::int64_t begin, std::int64_t end,
           void* scratch) const override {
    Job<T> job = this->job();
    job.window = static_cast<const T*>(buffers[1]);
    job.sums = static_cast<std::byte*>(scratch) + this->lane_bytes();
    this->run_job(job, buffers, begin, end, scratch);
  }

 private:
  std::vector<T> factors_;
  std::int64_t sum_bytes_;
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
