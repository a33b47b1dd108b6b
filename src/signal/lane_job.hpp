// What the vector kernels of Fourier transforms work on: plain tables and addresses, so that the
// files compiled for one instruction set share no inline code with others.
#pragma once

#include <cstdint>

namespace rlx::signal {

template <class T>
struct Tables;

/// Joins `radix` transforms of `length` points each. twiddles[k][q - 1]: (re, im) of
/// exp(-2 pi i k q / (radix length)); roots: (cos, sin) of 2 pi k / radix. A large prime radix has
/// tables of its own instead of roots.
template <class T>
struct Stage {
  std::int64_t radix, length;
  const T* twiddles;
  const T* roots;
  const Tables<T>* inner;
};

/// A complex transform of n points, by stages alone or through a cyclic convolution of `size`.
template <class T>
struct Tables {
  enum class Kind : std::int32_t { stages, rader, bluestein } kind;
  std::int32_t stage_count;
  std::int64_t n, size;
  const Stage<T>* stages;
  const std::int32_t* position;        ///< [n] where the kernel wants point j
  const std::int32_t* source;          ///< [n] where it leaves bin k
  const std::int32_t* inner_position;  ///< [size] where the stages want point j
  const T* kernel;                     ///< [size] transform of the convolution's kernel over size
  const T* chirp;                      ///< [n] of Bluestein's form
  std::int64_t slots;                  ///< points in a buffer of the kernel
  std::int64_t inner_slots;            ///< points behind the second buffer, of stages' own tables
};

/// Where lines lie, in numbers of T: line r begins at start + (r / inner) * outer_step +
/// (r % inner) * inner_step; the real part of point j is `step` * j further, its imaginary part
/// `imaginary` behind that. imaginary = 0: the points are real.
struct Lines {
  std::int64_t inner = 1, outer_step = 0, inner_step = 0, step = 2, imaginary = 1;
  std::int64_t count = 0;  ///< points that are there
  std::int64_t start = 0;  ///< of line 0; below 0 where the first lines are not asked for
};

/// Rows of filters that are zero outside [first, first + count).
template <class T>
struct Band {
  std::int32_t first, count;
  const T* weights;
};

/// Where a point of overlapping frames, two samples, is found: see FrameLoad.
struct FramePoint {
  std::int32_t place, sample;
};

/// What becomes of the bins of a line.
enum class Result : std::int32_t {
  bins,   ///< stored
  bands,  ///< log10 of the filtered power, one number a band
  mean,   ///< power, its mean over the lines of a group of `out.inner` lines
};

/// Transforms of many lines of one length.
template <class T>
struct Job {
  Tables<T> tables;
  Lines in, out;
  std::int64_t lines = 0;
  const T* window = nullptr;      ///< of the numbers of a line, in their order
  bool take_mean_off = false;     ///< of each line, before the window
  const T* half_roots = nullptr;  ///< [n + 1] (re, im) of exp(-2 pi i k / 2n), of real transforms
  bool real_input = false;        ///< lines of 2n real numbers: n + 1 bins come out
  bool real_output = false;       ///< n + 1 bins make 2n real numbers
  bool mirrored = false;          ///< n / 2 + 1 bins of an odd n make n real numbers
  /// Lanes that share a line: each transforms every `split`-th point, n / split of them (the n of
  /// the tables), and what they get is joined across lanes. 1, 2, 4, 8 or 16; more than 1 only for
  /// dense complex points whose bins are stored, or whose bins become real points.
  std::int32_t split = 1;
  /// For `lanes` neighbouring bins at a time and lane q of 1 to split - 1 of a line, what lane q's
  /// bins are multiplied by: `lanes` real parts, then imaginary ones.
  const T* split_twiddles = nullptr;
  const T* split_roots = nullptr;  ///< (cos, sin) of 2 pi k / split
  std::int64_t split_turn = 1;     ///< -1: the inverse, whose runs of bins come in reverse
  const FramePoint* frame_points = nullptr;  ///< [n] in the order of the stages; null: no frames
  T scale = 1;
  Result result = Result::bins;
  const Band<T>* bands = nullptr;
  std::int64_t band_count = 0;
  T least = 0;                     ///< least power of a band
  T offset = 0;                    ///< above 0: added to the power of a band instead
  T* maxima = nullptr;             ///< of Result::bands: the largest of each line, or null
  const T* bin_factors = nullptr;  ///< of Result::mean: what each bin is multiplied by
  void* sums = nullptr;            ///< of Result::mean: `lanes` T and a double for each bin
};

/// [begin, end) counts groups of `lanes` lines; of Result::mean, means. The scratch is aligned to
/// 64 bytes and has (scratch_buffers * slots + inner_slots) * 2 * lanes numbers.
template <class T>
using LaneFunction = void (*)(const Job<T>& job, const T* in, T* out, std::int64_t begin,
                              std::int64_t end, void* scratch);

inline constexpr int scratch_buffers = 2;

template <class T>
struct LaneKernel {
  int lanes;  ///< lines that one call works on side by side
  LaneFunction<T> run;
};

#define RLX_LANE_KERNELS(isa)         \
  namespace isa {                     \
  LaneKernel<float> float_kernel();   \
  LaneKernel<double> double_kernel(); \
  }
RLX_LANE_KERNELS(portable)
RLX_LANE_KERNELS(avx2)
RLX_LANE_KERNELS(avx512)
#undef RLX_LANE_KERNELS

}  // namespace rlx::signal
