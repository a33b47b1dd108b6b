// Spectra of frames that are never stored: levels of bands, mean power.
#include <cmath>

#include "ops/norm.hpp"
#include "rlx/signal.hpp"

namespace rlx {
namespace {

Status check_frames(std::string_view name, std::int64_t length, std::int64_t hop,
                    const InferArgs& args, std::int64_t extra = 0) {
  const Type &signal = args[0], &window = args[1];
  RLX_TRY(require((signal.dtype == f32 || signal.dtype == f64) && signal.rank() > 0, name,
                  "f32 or f64 signals of at least one axis", signal));
  if (length < 1 || hop < 1)
    return bad_input("The frames of ({}) samples, ({}) apart, are no frames.", length, hop);
  const Dim& samples = signal.shape.back();
  if (samples.is_static() && samples.value() + extra < length) {
    return bad_input("The signal {} is shorter than a frame of ({}) samples.", signal.text(),
                     length);
  }
  if (window.rank() != 1 || window.dtype != signal.dtype || window.shape[0] != Dim(length)) {
    return bad_input("The window {} of {} is not {}[{}].", window.text(), name,
                     name_of(signal.dtype), length);
  }
  return {};
}

Dim frames_of(const Dim& samples, std::int64_t length, std::int64_t hop) {
  return floor_div(shifted(samples, -length), Dim(hop)) + Dim(1);
}

/// |rfft(frame * window)|^2, [..., frames, bins].
Value frame_power(Graph& graph, std::span<const Value> inputs, std::int64_t length,
                  std::int64_t hop, bool take_mean_off) {
  Value frames = graph.add_one(op::Frame{.length = length, .hop = hop}, {inputs[0]});
  if (take_mean_off) frames = frames - mean(frames, {frames.rank() - 1}, true);
  const Value bins = graph.add_one(op::Rfft{}, {frames * inputs[1]});
  const Value re = graph.add_one(op::Real{}, {bins}), im = graph.add_one(op::Imag{}, {bins});
  return re * re + im * im;
}

double frames_total(const Type& signal, std::int64_t length, std::int64_t hop,
                    std::int64_t extra = 0) {
  const auto samples = static_cast<double>(signal.dims().back());
  const double lines = static_cast<double>(signal.elements()) / std::max(samples, 1.0);
  return lines * (std::floor((samples + static_cast<double>(extra) - static_cast<double>(length)) /
                             static_cast<double>(hop)) +
                  1);
}

double frame_flops(std::int64_t length) {
  const auto n = static_cast<double>(length);
  return 2.5 * n * std::log2(std::max(n, 2.0)) + 3 * n;
}

}  // namespace

// levels of bands of each frame's power
template <>
struct Rules<op::BandLevels> {
  using A = op::BandLevels;
  static constexpr std::string_view name = "band_levels";
  static constexpr Arity arity{3, 3};
  static constexpr OpTraits traits{.composite = true};
  static constexpr auto fields = std::tuple{
      field("length", &A::length), field("hop", &A::hop),       field("least", &A::least),
      field("offset", &A::offset), field("before", &A::before), field("behind", &A::behind),
      field("maxima", &A::maxima)};
  static Result<std::vector<Type>> infer(const A& a, const InferArgs& args) {
    constexpr std::int64_t most = std::int64_t{1} << 40;
    if (a.before < 0 || a.behind < 0 || a.before > most || a.behind > most)
      return bad_input("The reflected samples ({}, {}) of band_levels are none.", a.before,
                       a.behind);
    RLX_TRY(check_frames(name, a.length, a.hop, args, a.before + a.behind));
    const Type &signal = args[0], &filters = args[2];
    if (filters.rank() != 2 || filters.dtype != signal.dtype ||
        filters.shape[1] != Dim(a.length / 2 + 1)) {
      return bad_input("The filters {} of band_levels are not {}[bands, {}].", filters.text(),
                       name_of(signal.dtype), a.length / 2 + 1);
    }
    if (!(a.offset >= 0) || !(a.offset < 1e30))
      return bad_input("The offset ({}) of band_levels is below zero or no number.", a.offset);
    if (a.least <= 0)
      return bad_input("The least power ({}) of band_levels has no logarithm.", a.least);
    Type result = signal;
    result.shape.back() =
        frames_of(shifted(signal.shape.back(), a.before + a.behind), a.length, a.hop);
    Type maxima = result;
    result.shape.push_back(filters.shape[0]);
    if (!a.maxima) return std::vector<Type>{std::move(result)};
    return std::vector<Type>{std::move(result), std::move(maxima)};
  }
  static Values body(const A& a, Graph& graph, std::span<const Value> inputs) {
    std::vector<Value> operands(inputs.begin(), inputs.end());
    if (a.before + a.behind > 0) {
      Axes low(static_cast<std::size_t>(inputs[0].rank()), 0), high = low;
      low.back() = a.before;
      high.back() = a.behind;
      operands[0] =
          graph.add_one(op::Pad{.low = low, .high = high, .mode = PadMode::reflect}, {inputs[0]});
    }
    const Value power = frame_power(graph, operands, a.length, a.hop, false);
    const Value energy = graph.add_one(
        op::DotGeneral{.a_contract = {power.rank() - 1}, .b_contract = {1}}, {power, inputs[2]});
    const Value held = a.offset > 0 ? energy + graph.constant(power.dtype(), a.offset)
                                    : max(energy, graph.constant(power.dtype(), a.least));
    const Value levels = log(held) * graph.constant(power.dtype(), 1 / std::log(10.0));
    if (!a.maxima) return {levels};
    return {levels, max_over(levels, {levels.rank() - 1})};
  }
  static OpCost cost(const A& a, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    // Bands overlap about twice; each bin costs its power and two products.
    const double frames = frames_total(*inputs[0], a.length, a.hop, a.before + a.behind);
    return {frames * (frame_flops(a.length) + 3.5 * static_cast<double>(a.length)) +
                20 * static_cast<double>(results[0].elements()),
            bytes_of(inputs, results)};
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> list;
    for (const DType dtype : {f32, f64}) {
      for (const std::int64_t length : {16, 9}) {
        list.push_back({.op = A{.length = length, .hop = 5},
                        .inputs = {Type{dtype, {2, 60}}, Type{dtype, {length}},
                                   Type{dtype, {3, length / 2 + 1}}},
                        .low = 0.5,
                        .high = 2,
                        .tolerance = 1e-4});
      }
    }
    list.push_back({.op = A{.length = 8, .hop = 3, .offset = 1e-3},
                    .inputs = {Type{f32, {30}}, Type{f32, {8}}, Type{f32, {2, 5}}},
                    .low = 0.5,
                    .high = 2,
                    .tolerance = 1e-4});
    list.push_back({.op = A{.length = 8, .hop = 3, .maxima = true},
                    .inputs = {Type{f32, {30}}, Type{f32, {8}}, Type{f32, {2, 5}}},
                    .low = 0.5,
                    .high = 2,
                    .tolerance = 1e-4});
    // The second signal is shorter than what is put at its ends.
    for (const std::int64_t samples : {30, 6}) {
      list.push_back({.op = A{.length = 8, .hop = 4, .before = 9, .behind = 7},
                      .inputs = {Type{f32, {2, samples}}, Type{f32, {8}}, Type{f32, {2, 5}}},
                      .low = 0.5,
                      .high = 2,
                      .tolerance = 1e-4});
    }
    list.push_back({.op = A{.length = 8, .hop = 8, .least = 100},
                    .inputs = {Type{f32, {8}}, Type{f32, {8}}, Type{f32, {2, 5}}},
                    .low = 0,
                    .high = 1,
                    .tolerance = 1e-4});
    return list;
  }
};
RLX_OP(op::BandLevels, "signal")

// Welch's sum of the frames' power
template <>
struct Rules<op::MeanPower> {
  using A = op::MeanPower;
  static constexpr std::string_view name = "mean_power";
  static constexpr Arity arity{2, 2};
  static constexpr OpTraits traits{.composite = true};
  static constexpr auto fields = std::tuple{field("length", &A::length), field("hop", &A::hop),
                                            field("take_mean_off", &A::take_mean_off)};
  static Result<std::vector<Type>> infer(const A& a, const InferArgs& args) {
    RLX_TRY(check_frames(name, a.length, a.hop, args));
    Type result = args[0];
    result.shape.back() = Dim(a.length / 2 + 1);
    return std::vector<Type>{std::move(result)};
  }
  static Values body(const A& a, Graph& graph, std::span<const Value> inputs) {
    const Value power = frame_power(graph, inputs, a.length, a.hop, a.take_mean_off);
    return {mean(power, {power.rank() - 2})};
  }
  static OpCost cost(const A& a, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    return {frames_total(*inputs[0], a.length, a.hop) * (frame_flops(a.length) + 4),
            bytes_of(inputs, results)};
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> list;
    for (const DType dtype : {f32, f64}) {
      for (const bool off : {false, true}) {
        for (const std::int64_t length : {16, 9}) {
          list.push_back({.op = A{.length = length, .hop = 7, .take_mean_off = off},
                          .inputs = {Type{dtype, {2, 150}}, Type{dtype, {length}}},
                          .tolerance = 1e-4});
        }
      }
    }
    return list;
  }
};
RLX_OP(op::MeanPower, "signal")

}  // namespace rlx
