// Which ops have a kernel of lines, and making it.
#include "signal/kernels.hpp"

#include <algorithm>
#include <cmath>

#include "rlx/ops.hpp"
#include "signal/frame_kernels.hpp"
#include "signal/part_kernels.hpp"
#include "signal/peaks_kernel.hpp"

namespace rlx::signal {
namespace {

constexpr std::int64_t longest = std::int64_t{1} << 26;

double scale_of(FftNorm norm, bool inverse, std::int64_t n) {
  const auto points = static_cast<double>(n);
  if (norm == FftNorm::ortho) return 1 / std::sqrt(points);
  if ((norm == FftNorm::backward && inverse) || (norm == FftNorm::forward && !inverse))
    return 1 / points;
  return 1;
}

/// The lines along an axis of dims, counted in whole elements.
struct Axis {
  std::int64_t outer = 1, size = 1, inner = 1;
  Axis(const Dims& dims, std::int64_t axis) {
    const auto rank = static_cast<std::int64_t>(dims.size());
    if (axis < 0) axis += rank;
    for (std::int64_t i = 0; i < rank; ++i) {
      std::int64_t& part = i < axis ? outer : i == axis ? size : inner;
      part *= dims[static_cast<std::size_t>(i)];
    }
  }
  Lines complex() const { return {inner, 2 * size * inner, 2, 2 * inner, 1, size}; }
  /// Two numbers of a line make a point.
  Lines pairs() const { return {inner, size * inner, 1, 2 * inner, inner, size / 2}; }
  Lines real() const { return {inner, size * inner, 1, inner, 0, size}; }
};

/// How many lanes share a line of complex points: more than one where lines are fewer than lanes;
/// and up to half of them where the lanes' points fill the first cache and lie apart by what its
/// ways divide: measured 1.3 to 2 times as fast from 512 points on, and slower at 400 and 1000.
template <class T>
int split_of(const Axis& axis, std::int64_t points, codegen::Isa isa) {
  if (axis.inner != 1) return 1;
  constexpr std::int64_t full = 1 << 16;
  const int lanes = LaneJobKernel<T>::lanes_of(isa);
  const std::int64_t bytes = points * 2 * lanes * static_cast<std::int64_t>(sizeof(T));
  const auto pays = [&](int split) {
    return axis.outer * split < lanes || (2 * split < lanes && points % 128 == 0 && bytes >= full);
  };
  int split = 1;
  while (2 * split <= lanes && points % (2 * split) == 0 && pays(split)) split *= 2;
  return split;
}

template <class T>
std::unique_ptr<LineKernel> finish(std::unique_ptr<LaneJobKernel<T>> kernel, const Axis& axis,
                                   const Lines& in, const Lines& out, double scale) {
  Job<T>& job = kernel->job();
  job.in = in;
  job.out = out;
  job.lines = axis.outer * axis.inner;
  job.scale = static_cast<T>(scale);
  return kernel;
}

template <class T>
std::unique_ptr<LineKernel> complex_kernel(const op::Fft& a, const Dims& dims, codegen::Isa isa) {
  const Axis axis(dims, a.axis);
  const int split = split_of<T>(axis, axis.size, isa);
  return finish<T>(std::make_unique<LaneJobKernel<T>>(axis.size, a.inverse, isa, 1, split,
                                                      axis.outer * axis.inner),
                   axis, axis.complex(), axis.complex(), scale_of(a.norm, a.inverse, axis.size));
}

template <class T>
std::unique_ptr<LineKernel> block_kernel(const op::BlockFft& a, const Dims& dims,
                                         codegen::Isa isa) {
  const Axis axis(dims, -1);
  const std::int64_t n = axis.size / 2;
  const Lines lines{1, 2 * n, 0, 1, n, n};
  return finish<T>(std::make_unique<LaneJobKernel<T>>(n, a.inverse, isa, 1), axis, lines, lines,
                   scale_of(a.norm, a.inverse, n));
}

/// Lines of an even length are transformed as half as many complex points.
template <class T>
std::unique_ptr<LineKernel> real_kernel(const op::Rfft& a, const Dims& dims, const Dims& results,
                                        codegen::Isa isa) {
  const Axis axis(dims, a.axis), bins(results, a.axis);
  const bool even = axis.size % 2 == 0;
  const int split = even ? split_of<T>(axis, axis.size / 2, isa) : 1;
  auto kernel = std::make_unique<LaneJobKernel<T>>(even ? axis.size / 2 : axis.size, false, isa, 1,
                                                   split, axis.outer * axis.inner);
  kernel->job().real_input = even;
  if (even) kernel->use_half_roots();
  return finish<T>(std::move(kernel), axis, even ? axis.pairs() : axis.real(), bins.complex(),
                   scale_of(a.norm, false, axis.size));
}

template <class T>
std::unique_ptr<LineKernel> back_kernel(const op::Irfft& a, const Dims& dims, const Dims& results,
                                        codegen::Isa isa) {
  const Axis bins(dims, a.axis), axis(results, a.axis);
  if (axis.size % 2) {
    auto odd =
        std::make_unique<LaneJobKernel<T>>(axis.size, true, isa, 1, 1, axis.outer * axis.inner);
    odd->job().mirrored = true;
    return finish<T>(std::move(odd), axis, bins.complex(), axis.real(),
                     scale_of(a.norm, true, axis.size));
  }
  // Bins that are not there count as zeros, which lines of several lanes do not know.
  const int split = bins.size > axis.size / 2 ? split_of<T>(axis, axis.size / 2, isa) : 1;
  auto kernel = std::make_unique<LaneJobKernel<T>>(axis.size / 2, true, isa, 1, split,
                                                   axis.outer * axis.inner);
  kernel->job().real_output = true;
  kernel->use_half_roots();
  return finish<T>(std::move(kernel), axis, bins.complex(), axis.pairs(),
                   scale_of(a.norm, true, axis.size));
}

/// Along the op's axis, of the longer side; 0: none of these ops.
std::int64_t points_of(const Op& op, const Type& input) {
  if (const auto* fft = op.as<op::Fft>()) return Axis(input.dims(), fft->axis).size;
  if (const auto* rfft = op.as<op::Rfft>()) return Axis(input.dims(), rfft->axis).size;
  if (op.is<op::BlockFft>()) return Axis(input.dims(), -1).size / 2;
  if (op.is<op::WelchPeaks>()) return Axis(input.dims(), -1).size / 2;
  if (const auto* levels = op.as<op::BandLevels>()) return levels->length;
  if (const auto* power = op.as<op::MeanPower>()) return power->length;
  if (const auto* irfft = op.as<op::Irfft>()) {
    const std::int64_t bins = Axis(input.dims(), irfft->axis).size;
    return irfft->length ? irfft->length : 2 * (bins - 1);
  }
  return 0;
}

template <class T>
std::unique_ptr<LineKernel> make(const Op& op, const Dims& in, const Dims& out, codegen::Isa isa) {
  if (const auto* fft = op.as<op::Fft>()) return complex_kernel<T>(*fft, in, isa);
  if (const auto* block = op.as<op::BlockFft>()) return block_kernel<T>(*block, in, isa);
  if (const auto* rfft = op.as<op::Rfft>()) return real_kernel<T>(*rfft, in, out, isa);
  if (const auto* irfft = op.as<op::Irfft>()) return back_kernel<T>(*irfft, in, out, isa);
  return nullptr;
}

}  // namespace

bool has_line_kernel(const Op& op, const Type& input) {
  if (!input.is_static() || input.elements() == 0) return false;
  if (is_part(op)) return true;
  // Reflections of reflections, of a signal shorter than what is put at its ends, are left to Pad.
  const auto* levels = op.as<op::BandLevels>();
  if (levels && input.dims().back() <= std::max(levels->before, levels->behind)) return false;
  const std::int64_t points = points_of(op, input);
  return points > 0 && points <= longest;
}

std::int64_t line_items(const Op& op, std::span<const Type* const> inputs) {
  constexpr std::int64_t usual_lanes = 16;
  const std::int64_t elements = inputs[0]->elements();
  if (is_part(op)) return part_items(elements);
  if (const auto* peaks = op.as<op::WelchPeaks>()) return inputs[0]->dims()[0] / peaks->n_segments;
  if (op.is<op::MeanPower>()) return elements / inputs[0]->dims().back();
  // Of irfft the input has half of the points; signals whose ends are reflected may be shorter than
  // a frame.
  const auto* irfft = op.as<op::Irfft>();
  const std::int64_t each =
      irfft ? Axis(inputs[0]->dims(), irfft->axis).size : points_of(op, *inputs[0]);
  return std::max<std::int64_t>((elements / each + usual_lanes - 1) / usual_lanes, 1);
}

std::unique_ptr<LineKernel> line_kernel(const Op& op, std::span<const Type> inputs,
                                        const Type& result, codegen::Isa isa) {
  const Type& input = inputs[0];
  if (!has_line_kernel(op, input)) return nullptr;
  if (const auto* levels = op.as<op::BandLevels>()) return band_kernel(*levels, inputs, isa);
  if (is_part(op)) return part_kernel(op, input);
  if (const auto* peaks = op.as<op::WelchPeaks>()) return peaks_kernel(*peaks, input);
  if (const auto* power = op.as<op::MeanPower>()) return mean_kernel(*power, input, isa);
  const bool wide = input.dtype == f64 || input.dtype == c128;
  return wide ? make<double>(op, input.dims(), result.dims(), isa)
              : make<float>(op, input.dims(), result.dims(), isa);
}

}  // namespace rlx::signal
