// Frames of a signal, log-mel spectra and the peaks of Welch's estimate (definitions in the
// specification, section 4).
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/norm.hpp"
#include "ops/signal_tools.hpp"
#include "rlx/signal.hpp"

namespace rlx {
namespace {

// The powers of one row of a spectrum.
std::vector<double> row_power(const TensorView& spectrum,
                              const std::vector<std::complex<double>>& values, std::int64_t row,
                              std::int64_t bins) {
  const std::int64_t width = spectrum.dims.back();
  const std::complex<double>* first = values.data() + row * width;
  std::vector<double> power(bins);
  for (std::int64_t k = 0; k < bins; ++k) {
    power[k] = is_complex(spectrum.dtype)
                   ? std::norm(first[k])
                   : first[k].real() * first[k].real() +
                         first[k + width / 2].real() * first[k + width / 2].real();
  }
  return power;
}

DType real_of(DType dtype) { return dtype == c64 ? f32 : dtype == c128 ? f64 : dtype; }

}  // namespace

// result[..., i, j] = signal[..., i hop + j]
template <>
struct Rules<op::Frame> {
  static constexpr std::string_view name = "frame";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{.composite = true};
  static constexpr auto fields =
      std::tuple{field("length", &op::Frame::length), field("hop", &op::Frame::hop)};
  static Result<std::vector<Type>> infer(const op::Frame& a, const InferArgs& args) {
    RLX_TRY(require(args[0].rank() > 0, name, "signals of at least one axis", args[0]));
    if (a.length < 1 || a.hop < 1)
      return bad_input("The frames of ({}) samples, ({}) apart, are no frames.", a.length, a.hop);
    const Dim& samples = args[0].shape.back();
    if (samples.is_static() && samples.value() < a.length) {
      return bad_input("The signal {} is shorter than a frame of ({}) samples.", args[0].text(),
                       a.length);
    }
    Type result = args[0];
    result.shape.back() = floor_div(shifted(samples, -a.length), Dim(a.hop)) + Dim(1);
    result.shape.push_back(Dim(a.length));
    return std::vector<Type>{std::move(result)};
  }
  static Status eval(const op::Frame& a, const EvalArgs& args) {
    const TensorView& x = args.in(0);
    const MutableTensorView& out = args.out(0);
    const auto size = static_cast<std::int64_t>(size_of(x.dtype));
    const std::int64_t samples = x.dims.back(), frames = out.dims[out.rank() - 2];
    std::byte* to = out.data;
    for (std::int64_t row = 0; row < x.elements() / samples; ++row) {
      for (std::int64_t i = 0; i < frames; ++i)
        to = std::copy_n(x.data + (row * samples + i * a.hop) * size, a.length * size, to);
    }
    return {};
  }
  static Values body(const op::Frame& a, Graph& graph, std::span<const Value> inputs) {
    const Dim frames = floor_div(shifted(inputs[0].shape().back(), -a.length), Dim(a.hop)) + Dim(1);
    const Value starts = graph.add_one(op::Iota{i64, {frames, 1}, 0}, {}) *
                         graph.constant(Tensor::scalar<std::int64_t>(a.hop));
    const Value positions = starts + graph.add_one(op::Iota{i64, {1, a.length}, 1}, {});
    return {gather(inputs[0], positions, inputs[0].rank() - 1)};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::Frame{.length = 4, .hop = 2}, .inputs = {Type{f32, {2, 11}}}},
            {.op = op::Frame{.length = 3, .hop = 5}, .inputs = {Type{i16, {13}}}},
            {.op = op::Frame{.length = 5}, .inputs = {Type{f32, {2, 1, 5}}}}};
  }
};
RLX_OP(op::Frame, "signal")

// (max(l, max(l) - 8) + 4) / 4 with l = log10(max(filters · power, 1e-10)); a clip is the last two
// axes of l
template <>
struct Rules<op::LogMel> {
  static constexpr std::string_view name = "log_mel";
  static constexpr Arity arity{2, 2};
  static constexpr OpTraits traits{.composite = true, .host_only = true};
  static constexpr auto fields = std::tuple{field("floor", &op::LogMel::floor)};
  static constexpr double least_power = 1e-10, range = 8;

  static Result<std::vector<Type>> infer(const op::LogMel&, const InferArgs& args) {
    const Type &spectrum = args[0], &filters = args[1];
    const DType dtype = real_of(spectrum.dtype);
    RLX_TRY(require((dtype == f32 || dtype == f64) && spectrum.rank() > 0, name,
                    "f32, f64 or complex spectra", spectrum));
    if (filters.rank() != 2 || filters.dtype != dtype || !filters.shape[1].is_static()) {
      return bad_input("The filters {} of log_mel are not {}[mels, bins].", filters.text(),
                       name_of(dtype));
    }
    RLX_TRY(check_bins(spectrum, filters.shape[1].value()));
    Type result{dtype, spectrum.shape};
    result.shape.back() = filters.shape[0];
    return std::vector<Type>{std::move(result)};
  }
  static Status eval(const op::LogMel& a, const EvalArgs& args) {
    const TensorView &spectrum = args.in(0), &filters = args.in(1);
    const std::int64_t mels = filters.dims[0], bins = filters.dims[1],
                       rows = mels ? args.out(0).elements() / mels : 0;
    const auto values = load_all<std::complex<double>>(spectrum);
    const std::vector<double> weights = load_all<double>(filters);
    std::vector<double> result;
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::vector<double> power = row_power(spectrum, values, row, bins);
      for (std::int64_t m = 0; m < mels; ++m) {
        const double energy =
            std::inner_product(power.begin(), power.end(), weights.begin() + m * bins, 0.0);
        result.push_back(std::log10(std::max(energy, least_power)));
      }
    }
    apply_floor(result, span_of_floor(a.floor, args.out(0).dims));
    store_all<double>(args.out(0), result);
    return {};
  }
  static Values body(const op::LogMel& a, Graph& graph, std::span<const Value> inputs) {
    const Value power = power_of(first_bins(inputs[0], inputs[1].shape()[1].value()));
    const auto number = [&](double value) { return graph.constant(power.dtype(), value); };
    const Value energy = graph.add_one(
        op::DotGeneral{.a_contract = {power.rank() - 1}, .b_contract = {1}}, {power, inputs[1]});
    Value level = log(max(energy, number(least_power))) * number(1 / std::log(10.0));
    if (a.floor != op::LogMelFloor::none) {
      Axes axes{level.rank() - 1};
      if (a.floor == op::LogMelFloor::clip && level.rank() > 1)
        axes.insert(axes.begin(), level.rank() - 2);
      level = max(level, max_over(level, axes, true) - number(range));
    }
    return {(level + number(4)) * number(0.25)};
  }
  static OpCost cost(const op::LogMel&, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    const auto bins = static_cast<double>(inputs[1]->dims()[1]),
               mels = static_cast<double>(inputs[1]->dims()[0]);
    const double rows = static_cast<double>(results[0].elements()) / std::max(mels, 1.0);
    return {rows * bins * (3 + 2 * mels) + 12 * rows * mels, bytes_of(inputs, results)};
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> list;
    for (const auto floor :
         {op::LogMelFloor::none, op::LogMelFloor::frame, op::LogMelFloor::clip}) {
      list.push_back({.op = op::LogMel{floor},
                      .inputs = {Type{f32, {2, 5, 32}}, Type{f32, {4, 9}}},
                      .low = 0,
                      .high = 2});
    }
    list.push_back({.op = op::LogMel{},
                    .inputs = {Type{c64, {5, 9}}, Type{f32, {4, 9}}},
                    .low = 0,
                    .high = 2});
    list.push_back({.op = op::LogMel{},
                    .inputs = {Type{f64, {32}}, Type{f64, {4, 9}}},
                    .low = 0,
                    .high = 1e-6});
    return list;
  }

 private:
  static Status check_bins(const Type& spectrum, std::int64_t bins) {
    const Dim& width = spectrum.shape.back();
    if (!width.is_static()) return {};
    const bool fits = is_complex(spectrum.dtype)
                          ? bins <= width.value()
                          : width.value() % 2 == 0 && bins == width.value() / 4 + 1;
    if (fits) return {};
    return bad_input("The filters of log_mel take ({}) bins, which is not what {} has.", bins,
                     spectrum.text());
  }
  // How many elements share a maximum; 0: none has a floor.
  static std::int64_t span_of_floor(op::LogMelFloor floor, std::span<const std::int64_t> dims) {
    if (floor == op::LogMelFloor::none) return 0;
    const std::size_t axes = floor == op::LogMelFloor::clip ? 2 : 1;
    return product(dims, dims.size() - std::min(axes, dims.size()), dims.size());
  }
  static void apply_floor(std::vector<double>& levels, std::int64_t span) {
    for (std::size_t i = 0; span && i < levels.size(); i += span) {
      const auto first = levels.begin() + static_cast<std::ptrdiff_t>(i), last = first + span;
      const double floor = *std::max_element(first, last) - range;
      std::for_each(first, last, [&](double& level) { level = std::max(level, floor); });
    }
    for (double& level : levels) level = (level + 4) / 4;
  }
};
RLX_OP(op::LogMel, "signal")

// the k strongest bins of the mean one-sided power over segments, as (bin, power) pairs
template <>
struct Rules<op::WelchPeaks> {
  using A = op::WelchPeaks;
  static constexpr std::string_view name = "welch_peaks";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{.composite = true, .host_only = true};
  static constexpr auto fields = std::tuple{field("k", &A::k), field("n_segments", &A::n_segments)};

  static Result<std::vector<Type>> infer(const A& a, const InferArgs& args) {
    const Type& x = args[0];
    RLX_TRY(require(x.dtype == f32 && x.rank() == 2, name, "f32[rows, 2 n_fft]", x));
    if (a.n_segments < 1 || (x.shape[0].is_static() && x.shape[0].value() % a.n_segments)) {
      return bad_input("The rows ({}) of welch_peaks are no multiple of its segments ({}).",
                       x.shape[0].text(), a.n_segments);
    }
    const Dim& width = x.shape[1];
    if (!width.is_static() || width.value() < 2 || width.value() % 2) {
      return bad_input("The last dim ({}) of {} is not twice a number of points.", width.text(),
                       x.text());
    }
    const std::int64_t bins = bins_of(width.value());
    if (a.k < 1 || a.k > bins)
      return bad_input("The number of peaks ({}) of welch_peaks is outside 1 to ({}) bins.", a.k,
                       bins);
    return std::vector<Type>{{f32, {floor_div(x.shape[0], Dim(a.n_segments)), Dim(2 * a.k)}}};
  }
  static Status eval(const A& a, const EvalArgs& args) {
    const TensorView& x = args.in(0);
    const std::int64_t bins = bins_of(x.dims[1]);
    const auto values = load_all<std::complex<double>>(x);
    std::vector<double> result;
    for (std::int64_t item = 0; item < x.dims[0] / a.n_segments; ++item) {
      std::vector<double> power(bins, 0.0);
      for (std::int64_t s = 0; s < a.n_segments; ++s) {
        const std::vector<double> segment = row_power(x, values, item * a.n_segments + s, bins);
        for (std::int64_t k = 0; k < bins; ++k) power[k] += segment[k];
      }
      for (std::int64_t k = 0; k < bins; ++k) {
        // Compared as they are given, in f32, so that ties are those that the caller sees.
        power[k] =
            static_cast<float>(power[k] * factor(k, x.dims[1]) / static_cast<double>(a.n_segments));
      }
      std::vector<std::int64_t> order(bins);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](std::int64_t i, std::int64_t j) { return power[i] > power[j]; });
      for (std::int64_t k = 0; k < a.k; ++k)
        result.insert(result.end(), {static_cast<double>(order[k]), power[order[k]]});
    }
    store_all<double>(args.out(0), result);
    return {};
  }
  static Values body(const A& a, Graph& graph, std::span<const Value> inputs) {
    const std::int64_t width = inputs[0].shape()[1].value(), bins = bins_of(width);
    const Dim items = floor_div(inputs[0].shape()[0], Dim(a.n_segments));
    const Value segments =
        reshape(power_of(first_bins(inputs[0], bins)), {items, a.n_segments, bins});
    std::vector<float> factors;
    for (std::int64_t k = 0; k < bins; ++k) factors.push_back(static_cast<float>(factor(k, width)));
    const Value weights =
        graph.constant(Tensor::of<float>({bins}, std::span<const float>(factors)));
    const Value mean_power =
        sum(segments, {1}) * weights / graph.constant(f32, static_cast<double>(a.n_segments));
    const std::vector<Value> inputs_of_top{mean_power};
    const Values top = graph.add(op::TopK{.k = a.k, .axis = 1}, inputs_of_top);
    const Value pairs = concat({unsqueeze(cast(top[1], f32), {2}), unsqueeze(top[0], {2})}, 2);
    return {reshape(pairs, {items, 2 * a.k})};
  }
  static OpCost cost(const A&, std::span<const Type* const> inputs, std::span<const Type> results) {
    return {2 * static_cast<double>(inputs[0]->elements()), bytes_of(inputs, results)};
  }
  static std::vector<Sample> samples() {
    return {{.op = A{.k = 16, .n_segments = 2}, .inputs = {Type{f32, {4, 512}}}},
            {.op = A{.k = 5}, .inputs = {Type{f32, {3, 18}}}},
            {.op = A{.k = 2, .n_segments = 3}, .inputs = {Type{f32, {3, 4}}}}};
  }

 private:
  static std::int64_t bins_of(std::int64_t width) { return width / 4 + 1; }
  // One-sided: bins other than DC and Nyquist stand for their mirror images too.
  static double factor(std::int64_t bin, std::int64_t width) {
    const std::int64_t points = width / 2;
    return bin == 0 || 2 * bin == points ? 1 : 2;
  }
};
RLX_OP(op::WelchPeaks, "signal")

OpList signal_ops() {
  static const OpInfo* const list[] = {
      &info_of<op::Fft>(),       &info_of<op::Rfft>(),          &info_of<op::Irfft>(),
      &info_of<op::BlockFft>(),  &info_of<op::MakeComplex>(),   &info_of<op::Real>(),
      &info_of<op::Imag>(),      &info_of<op::Conj>(),          &info_of<op::Frame>(),
      &info_of<op::LogMel>(),    &info_of<op::WelchPeaks>(),    &info_of<op::BandLevels>(),
      &info_of<op::MeanPower>(), &info_of<op::LogMelBackward>()};
  return list;
}

}  // namespace rlx
