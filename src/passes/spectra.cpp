// Spectra of frames, taken apart by exporters, as the ops that never store them.
#include "passes/spectra.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "rlx/signal.hpp"

namespace rlx::passes {
namespace {

Shape without_ones(const Type& type) {
  Shape shape;
  for (const Dim& dim : type.shape) {
    if (!(dim == Dim(1))) shape.push_back(dim);
  }
  return shape;
}

/// The value behind reshapes that only add or drop axes of size 1, each read once but the first.
ValueId core(const Pattern& p, ValueId id, int readers = 1) {
  while (p.is<op::Reshape>(id) && p.readers(id) <= std::exchange(readers, 1) &&
         without_ones(p.graph().type(id)) == without_ones(p.graph().type(p.in(id, 0))))
    id = p.in(id, 0);
  return id;
}

bool is_last(const Type& type, std::int64_t axis) { return axis == -1 || axis == type.rank() - 1; }

/// What a square is taken of, once: v * v or pow(v, 2), which nothing else reads.
std::optional<ValueId> square_of(const Pattern& p, ValueId id) {
  if (p.readers(id) != 1) return std::nullopt;
  if (p.is<op::Mul>(id) && p.in(id, 0) == p.in(id, 1) && p.readers(p.in(id, 0)) == 2)
    return p.in(id, 0);
  if (p.is<op::Pow>(id) && p.number(p.in(id, 1)) == 2.0 && p.readers(p.in(id, 0)) == 1)
    return p.in(id, 0);
  return std::nullopt;
}

/// Whether it swaps the last two axes but for `behind` ones behind them.
bool swaps(const Pattern& p, ValueId id, int behind = 0) {
  const auto* transpose = p.is<op::Transpose>(id) ? p.node(id).op.as<op::Transpose>() : nullptr;
  if (!transpose) return false;
  const std::int64_t rank = p.graph().type(id).rank(), last = rank - 1 - behind;
  if (last < 1) return false;
  for (std::int64_t i = 0; i < rank; ++i) {
    const std::int64_t from = i == last ? last - 1 : i == last - 1 ? last : i;
    if (transpose->perm[static_cast<std::size_t>(i)] != from) return false;
  }
  return true;
}
/// Goes through such a transposition that at most `readers` operands read, the only one.
ValueId unswapped(const Pattern& p, ValueId id, int readers, bool& swapped, int behind = 0) {
  if (!swaps(p, id, behind) || p.readers(id) > readers || p.readers(p.in(id, 0)) != 1) return id;
  swapped = !swapped;
  return p.in(id, 0);
}

/// A real or imaginary part: the complex value, and which part. swapped: it is that of the value
/// with its last two axes swapped.
struct Part {
  ValueId bins;
  bool imaginary = false, swapped = false;
};
std::optional<Part> part_of(const Pattern& p, ValueId id) {
  Part part;
  id = unswapped(p, core(p, id, 2), 2, part.swapped);
  // ONNX: one half of the two parts side by side on the last axis.
  if (p.is<op::Slice>(id)) {
    const ValueId both = unswapped(p, p.in(id, 0), 2, part.swapped, 1);
    const Type &sliced = p.graph().type(p.in(id, 0)), &half = p.graph().type(id);
    const Type& whole = p.graph().type(both);
    const auto* concat = p.is<op::Concat>(both) ? p.node(both).op.as<op::Concat>() : nullptr;
    const bool halves = concat && p.node(both).inputs.size() == 2 && p.readers(both) <= 2 &&
                        is_last(whole, concat->axis) && whole.shape.back() == Dim(2) &&
                        half.shape.back() == Dim(1) && half.rank() == whole.rank() &&
                        std::equal(half.shape.begin(), half.shape.end() - 1, sliced.shape.begin());
    if (!halves) return std::nullopt;
    const std::int64_t start = p.node(id).op.as<op::Slice>()->starts.back();
    if (start < -2 || start > 1) return std::nullopt;
    id = core(p, p.in(both, static_cast<std::size_t>(start < 0 ? start + 2 : start)));
  }
  if (!p.is<op::Real>(id) && !p.is<op::Imag>(id)) return std::nullopt;
  part.bins = p.in(id, 0);
  part.imaginary = p.is<op::Imag>(id);
  return part;
}

/// The bins of a power, and whether the power has their last two axes swapped.
struct Bins {
  ValueId id;
  bool swapped = false;
};

/// |bins|^2, however it is written: the bins.
std::optional<Bins> bins_of_power(const Pattern& p, ValueId id) {
  bool swapped = false;
  id = core(p, unswapped(p, core(p, id), 1, swapped));
  if (p.readers(id) != 1) return std::nullopt;
  std::optional<Part> parts[2];
  if (p.is<op::Add>(id)) {
    for (std::size_t k = 0; k < 2; ++k) {
      const auto v = square_of(p, core(p, p.in(id, k)));
      if (v) parts[k] = part_of(p, *v);
    }
  } else if (const auto* sum = p.is<op::Reduce>(id) ? p.node(id).op.as<op::Reduce>() : nullptr;
             sum && sum->kind == Reduction::sum && sum->axes.size() == 1 &&
             is_last(p.graph().type(p.in(id, 0)), sum->axes[0])) {
    const auto both = square_of(p, p.in(id, 0));
    if (!both || !p.is<op::Concat>(*both) || p.node(*both).inputs.size() != 2) return std::nullopt;
    const Type& whole = p.graph().type(*both);
    if (!is_last(whole, p.node(*both).op.as<op::Concat>()->axis) || !(whole.shape.back() == Dim(2)))
      return std::nullopt;
    for (std::size_t k = 0; k < 2; ++k) parts[k] = part_of(p, p.in(*both, k));
  }
  if (!parts[0] || !parts[1] || !(parts[0]->bins == parts[1]->bins) ||
      parts[0]->imaginary == parts[1]->imaginary || parts[0]->swapped != parts[1]->swapped ||
      p.readers(parts[0]->bins) != 2)
    return std::nullopt;
  swapped = swapped != parts[0]->swapped;
  const ValueId bins = unswapped(p, parts[0]->bins, 2, swapped);
  return Bins{bins, swapped};
}

/// rfft(frame(signal) * window), with the mean of each frame taken off before or not.
struct Frames {
  ValueId signal, window;
  std::int64_t length = 0, hop = 1;
  bool take_mean_off = false;
};

/// x - mean(x) over the last axis: x.
std::optional<ValueId> without_mean(const Pattern& p, ValueId id) {
  if (!p.is<op::Sub>(id) || p.readers(id) != 1) return std::nullopt;
  const ValueId x = p.in(id, 0), mean = p.in(id, 1);
  const auto* reduce = p.is<op::Reduce>(mean) ? p.node(mean).op.as<op::Reduce>() : nullptr;
  const bool fits = reduce && reduce->kind == Reduction::mean && reduce->keep_dims &&
                    reduce->axes.size() == 1 && p.readers(mean) == 1 && p.in(mean, 0) == x &&
                    is_last(p.graph().type(x), reduce->axes[0]) && p.readers(x) == 2;
  return fits ? std::optional(x) : std::nullopt;
}

std::optional<Frames> frames_of_bins(const Pattern& p, ValueId bins) {
  const auto* rfft = p.is<op::Rfft>(bins) ? p.node(bins).op.as<op::Rfft>() : nullptr;
  if (!rfft || rfft->norm != FftNorm::backward) return std::nullopt;
  const Type& in = p.graph().type(p.in(bins, 0));
  if (!is_last(in, rfft->axis) || !in.is_static()) return std::nullopt;
  const ValueId weighted = core(p, p.in(bins, 0));
  if (!p.is<op::Mul>(weighted) || p.readers(weighted) != 1) return std::nullopt;
  for (std::size_t k = 0; k < 2; ++k) {
    Frames found;
    ValueId frames = core(p, p.in(weighted, k));
    if (const auto x = without_mean(p, frames)) {
      frames = core(p, *x);
      found.take_mean_off = true;
    }
    const auto* frame = p.is<op::Frame>(frames) ? p.node(frames).op.as<op::Frame>() : nullptr;
    if (!frame || p.readers(frames) != (found.take_mean_off ? 2 : 1)) continue;
    found.signal = p.in(frames, 0);
    found.window = p.in(weighted, 1 - k);
    found.length = frame->length;
    found.hop = frame->hop;
    const Type& window = p.graph().type(found.window);
    // The window lies along the samples of a frame, as nothing else of its size does.
    if (!(in.shape.back() == Dim(found.length)) || !window.is_static() || found.length < 2 ||
        window.elements() != found.length || window.dtype != in.dtype)
      continue;
    const Shape &whole = p.graph().type(weighted).shape, &own = window.shape;
    const auto along = std::find(own.begin(), own.end(), Dim(found.length));
    const auto behind = own.end() - along;
    if (behind > static_cast<std::ptrdiff_t>(whole.size()) ||
        !(*(whole.end() - behind) == Dim(found.length)) ||
        std::any_of(whole.end() - behind + 1, whole.end(),
                    [](const Dim& dim) { return !(dim == Dim(1)); }))
      continue;
    return found;
  }
  return std::nullopt;
}

/// What keeps an energy off zero before its logarithm.
struct Held {
  ValueId energy;
  double least = 1e-10, offset = 0;
};
/// max(x, least), clamp(x, least) or x + offset, above the smallest normal number.
std::optional<Held> held(const Pattern& p, ValueId id) {
  if (p.readers(id) != 1) return std::nullopt;
  std::optional<double> least;
  Held found;
  if (p.is<op::Max>(id) || p.is<op::Add>(id)) {
    for (std::size_t k = 0; k < 2 && !least; ++k) {
      least = p.number(p.in(id, 1 - k));
      found.energy = p.in(id, k);
    }
  } else if (p.is<op::Clamp>(id)) {
    const auto& inputs = p.node(id).inputs;
    const bool open = inputs.size() < 3 || inputs[2].node < 0 ||
                      p.number(inputs[2]).value_or(0) >= std::numeric_limits<float>::max();
    if (open && inputs.size() > 1 && inputs[1].node >= 0) least = p.number(inputs[1]);
    found.energy = p.in(id, 0);
  }
  if (!least || !(*least >= std::numeric_limits<float>::min()) || !(*least < 1e30))
    return std::nullopt;
  (p.is<op::Add>(id) ? found.offset : found.least) = *least;
  return found;
}

/// A product of power and filters: which operand is the power, and which axis of it the bins are.
struct BandEnergy {
  ValueId power, filters;
  bool filters_first = false;
  std::int64_t filter_bins = 0;  ///< the axis of the filters that is summed over
  std::int64_t batch = 0;        ///< leading axes that both have
};
std::optional<BandEnergy> band_energy(const Pattern& p, ValueId energy, bool filters_first) {
  const auto* dot = p.is<op::DotGeneral>(energy) ? p.node(energy).op.as<op::DotGeneral>() : nullptr;
  if (!dot || p.readers(energy) != 1 || dot->a_contract.size() != 1) return std::nullopt;
  BandEnergy found;
  found.filters_first = filters_first;
  found.power = p.in(energy, filters_first ? 1 : 0);
  found.filters = p.in(energy, filters_first ? 0 : 1);
  found.filter_bins = (filters_first ? dot->a_contract : dot->b_contract)[0];
  found.batch = static_cast<std::int64_t>(dot->a_batch.size());
  for (std::int64_t i = 0; i < found.batch; ++i) {
    const auto k = static_cast<std::size_t>(i);
    if (dot->a_batch[k] != i || dot->b_batch[k] != i) return std::nullopt;
  }
  // One matrix, repeated for every item of the batch or not.
  if (p.is<op::Broadcast>(found.filters)) {
    found.filters = p.in(found.filters, 0);
    found.filter_bins -= found.batch;
  }
  found.filters = core(p, found.filters, std::numeric_limits<int>::max());
  const Type& matrix = p.graph().type(found.filters);
  const std::int64_t rank = p.graph().type(found.power).rank();
  if (matrix.rank() != 2 || found.filter_bins < 0 || found.filter_bins > 1 || rank < 2)
    return std::nullopt;
  // All but frames and bins is one batch, or none is.
  if (found.batch != 0 && found.batch != rank - 2) return std::nullopt;
  return found;
}

Value window_of(Rewriter& rewriter, const Frames& frames) {
  return reshape(rewriter.target().handle(rewriter(frames.window)), {frames.length});
}

/// [..., frames, bands] as the product has it: the bands before the batch where its filters come
/// first, or between it and the frames.
Value as_product(Value levels, const BandEnergy& energy) {
  if (!energy.filters_first) return levels;
  const std::int64_t rank = levels.rank();
  Axes perm;
  for (std::int64_t i = 0; i < rank - 1; ++i) perm.push_back(i);
  perm.insert(perm.begin() + energy.batch, rank - 1);
  return transpose(levels, perm);
}

/// The signal whose ends a frame's signal reflects, read by nothing else; that signal itself where
/// it is no such thing.
struct Reflected {
  ValueId signal;
  std::int64_t before = 0, behind = 0;
};
Reflected reflected(const Pattern& p, ValueId id) {
  const auto* pad = p.is<op::Pad>(id) ? p.node(id).op.as<op::Pad>() : nullptr;
  if (!pad || pad->mode != PadMode::reflect || p.readers(id) != 1) return {id};
  const auto is_none = [](std::int64_t count) { return count == 0; };
  if (!std::all_of(pad->low.begin(), pad->low.end() - 1, is_none) ||
      !std::all_of(pad->high.begin(), pad->high.end() - 1, is_none) || pad->low.back() < 0 ||
      pad->high.back() < 0)
    return {id};
  return {p.in(id, 0), pad->low.back(), pad->high.back()};
}

Result<bool> band_levels(Rewriter& rewriter, const Pattern& p, ValueId id, bool filters_first) {
  if (!p.is<op::Log>(id)) return false;
  const auto limited = held(p, core(p, p.in(id, 0)));
  if (!limited) return false;
  const auto energy = band_energy(p, core(p, limited->energy), filters_first);
  if (!energy) return false;
  const auto bins = bins_of_power(p, energy->power);
  const auto frames = bins ? frames_of_bins(p, bins->id) : std::nullopt;
  if (!frames || frames->take_mean_off) return false;
  // The product sums over the bins.
  const Node& dot = p.node(core(p, limited->energy));
  const Type& power = p.graph().type(energy->power);
  const std::int64_t axis = power.rank() - (bins->swapped ? 2 : 1);
  const auto& contract = filters_first ? dot.op.as<op::DotGeneral>()->b_contract
                                       : dot.op.as<op::DotGeneral>()->a_contract;
  if (contract[0] != axis ||
      !(power.shape[static_cast<std::size_t>(axis)] == Dim(frames->length / 2 + 1)))
    return false;
  Value weights = rewriter.target().handle(rewriter(energy->filters));
  if (energy->filter_bins == 0) weights = transpose(weights, {1, 0});
  const Reflected ends = reflected(p, frames->signal);
  const Value signal = rewriter.target().handle(rewriter(ends.signal));
  const Value levels = rewriter.target().add_one(op::BandLevels{.length = frames->length,
                                                                .hop = frames->hop,
                                                                .least = limited->least,
                                                                .offset = limited->offset,
                                                                .before = ends.before,
                                                                .behind = ends.behind},
                                                 {signal, window_of(rewriter, *frames), weights});
  const Type& type = p.graph().type(id);
  Shape whole = power.shape;  // what the levels are, axes of size 1 included
  if (bins->swapped) std::swap(whole.back(), whole[whole.size() - 2]);
  whole.back() = levels.shape().back();
  const Value natural = levels * rewriter.target().constant(type.dtype, std::log(10.0));
  const Value shaped = as_product(reshape(natural, whole), *energy);
  rewriter.replace(id.node, Values{reshape(shaped, type.shape)});
  return true;
}

Result<bool> mean_power(Rewriter& rewriter, const Pattern& p, ValueId id) {
  const auto* reduce = p.is<op::Reduce>(id) ? p.node(id).op.as<op::Reduce>() : nullptr;
  if (!reduce || reduce->kind != Reduction::mean || reduce->axes.size() != 1) return false;
  const Type& power = p.graph().type(p.in(id, 0));
  const std::int64_t axis = reduce->axes[0];
  if (power.rank() < 2 || (axis != -2 && axis != power.rank() - 2)) return false;
  const auto bins = bins_of_power(p, p.in(id, 0));
  const auto frames = bins && !bins->swapped ? frames_of_bins(p, bins->id) : std::nullopt;
  // Frames of one signal: the axis in front of the bins is theirs.
  if (!frames || !(power.shape.back() == Dim(frames->length / 2 + 1))) return false;
  const Type& signal_type = p.graph().type(frames->signal);
  const Dim count((signal_type.shape.back().value() - frames->length) / frames->hop + 1);
  if (power.rank() != signal_type.rank() + 1 || !(power.shape[power.shape.size() - 2] == count))
    return false;
  const Value signal = rewriter.target().handle(rewriter(frames->signal));
  const Value mean = rewriter.target().add_one(
      op::MeanPower{
          .length = frames->length, .hop = frames->hop, .take_mean_off = frames->take_mean_off},
      {signal, window_of(rewriter, *frames)});
  rewriter.replace(id.node, Values{reshape(mean, p.graph().type(id).shape)});
  return true;
}

}  // namespace

Result<bool> spectra_of_frames(Rewriter& rewriter, const Pattern& p, std::int32_t index) {
  const ValueId id{index, 0};
  const Type& type = p.graph().type(id);
  if (!type.is_static() || (type.dtype != f32 && type.dtype != f64)) return false;
  for (const bool filters_first : {false, true}) {
    RLX_ASSIGN(const bool levels, band_levels(rewriter, p, id, filters_first));
    if (levels) return true;
  }
  return mean_power(rewriter, p, id);
}

}  // namespace rlx::passes
