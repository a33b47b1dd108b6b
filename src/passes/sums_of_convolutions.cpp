// conv(x, A) + conv(x, B) + s * x = conv(x, A + B + s * unit).
#include "passes/sums_of_convolutions.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "graph/weight_only.hpp"
#include "passes/pattern.hpp"
#include "passes/rewriter.hpp"
#include "passes/unit_matrix.hpp"
#include "rlx/ops.hpp"

namespace rlx::passes {
namespace {

std::int64_t at(const Axes& axes, std::size_t dim, std::int64_t otherwise) {
  return axes.empty() ? otherwise : axes[dim];
}

/// What is added: a convolution by its weights [O, C / groups, spatial...], or a value times
/// factors, one for each channel or none.
struct Addend {
  ValueId value;
  const op::Conv* conv = nullptr;
  ValueId of;      ///< what is convolved or multiplied
  ValueId factor;  ///< the weights, or the factors; none: 1
};

/// The window that holds those of several convolutions.
struct Union {
  op::Conv conv;
  std::vector<Axes> low;  ///< by convolution: taps in front of its own
  Axes window;
  Axes middle;  ///< the tap that meets the value's own place; empty: there is none
};

/// Those of the addends that become one convolution: positions, convolutions first.
struct Joined {
  std::vector<std::size_t> positions;
  Union all;
};

class Sums {
 public:
  explicit Sums(const Graph& graph)
      : graph_(graph), pattern_(graph), weight_only_(weight_only_nodes(graph)) {}

  /// All that a sum of f32 adds up, sums among it taken apart; nothing: the node is no such sum.
  std::vector<Addend> addends_of(std::int32_t index) const {
    const Node& root = graph_.nodes()[static_cast<std::size_t>(index)];
    const Type& type = root.results[0];
    std::vector<Addend> addends;
    if (!root.op.is<op::Add>() || !type.is_static() || type.dtype != f32) return addends;
    std::vector<ValueId> open{root.inputs[1], root.inputs[0]};  // the next one at the end
    while (!open.empty()) {
      const ValueId id = open.back();
      open.pop_back();
      if (pattern_.is<op::Add>(id) && pattern_.read_once(id) && graph_.type(id) == type) {
        open.push_back(pattern_.in(id, 1));
        open.push_back(pattern_.in(id, 0));
      } else {
        addends.push_back(addend_of(id, type));
      }
    }
    return addends;
  }

  /// The first of them that can be joined; nothing where none can.
  std::optional<Joined> joined(const std::vector<Addend>& addends) const {
    for (const Addend& first : addends) {
      if (!first.conv) continue;
      std::vector<std::size_t> positions, own;
      for (std::size_t i = 0; i < addends.size(); ++i) {
        const Addend& other = addends[i];
        if (other.of != first.of) continue;
        if (!other.conv) own.push_back(i);
        else if (is_alike(*first.conv, *other.conv)) positions.push_back(i);
      }
      auto all = union_of(addends, positions);
      if (!all) continue;
      const Dims w = dims_of(first.factor);
      constexpr std::int64_t most_weights = 1 << 20;
      const bool has_middle =
          !all->middle.empty() && w[0] == dims_of(first.of)[1] && w[0] * w[1] <= most_weights;
      const bool is_depthwise = w[1] == 1;
      std::erase_if(own, [&](std::size_t i) {
        // Of one wide convolution a plain addend costs nothing in its epilogue.
        return !has_middle ||
               (addends[i].factor.node < 0 && positions.size() == 1 && !is_depthwise);
      });
      positions.insert(positions.end(), own.begin(), own.end());
      if (positions.size() > 1) return Joined{std::move(positions), *std::move(all)};
    }
    return std::nullopt;
  }

  bool is_weight(ValueId id) const {
    return id.node >= 0 && weight_only_[static_cast<std::size_t>(id.node)];
  }

 private:
  Dims dims_of(ValueId id) const { return graph_.type(id).dims(); }

  /// That of the convolutions at these positions. Nothing where kernels lie between each other's
  /// taps, or the window has more taps than they.
  std::optional<Union> union_of(const std::vector<Addend>& addends,
                                const std::vector<std::size_t>& positions) const {
    std::vector<const Addend*> convs;
    for (const std::size_t i : positions) convs.push_back(&addends[i]);
    const Dims in = dims_of(convs[0]->of), out = dims_of(convs[0]->value);
    const std::size_t dims = in.size() - 2;
    Union all{.conv = *convs[0]->conv, .low = {convs.size(), Axes(dims, 0)}};
    all.conv.strides.resize(dims, 1);
    all.conv.pad_low.resize(dims), all.conv.pad_high.resize(dims), all.conv.dilations.resize(dims);
    double taps = 1, own_taps = 0;
    bool has_middle = true;
    for (const Addend* addend : convs) {
      double own = 1;
      for (std::size_t d = 0; d < dims; ++d)
        own *= static_cast<double>(dims_of(addend->factor)[2 + d]);
      own_taps += own;
    }
    for (std::size_t d = 0; d < dims; ++d) {
      std::int64_t dilation = 1, low = 0, window = 1;
      for (const Addend* addend : convs) {
        low = std::max(low, at(addend->conv->pad_low, d, 0));
        if (dims_of(addend->factor)[2 + d] > 1) dilation = at(addend->conv->dilations, d, 1);
      }
      for (std::size_t k = 0; k < convs.size(); ++k) {
        const std::int64_t size = dims_of(convs[k]->factor)[2 + d];
        const std::int64_t before = low - at(convs[k]->conv->pad_low, d, 0);
        if (before % dilation != 0 || (size > 1 && at(convs[k]->conv->dilations, d, 1) != dilation))
          return std::nullopt;
        all.low[k][d] = before / dilation;
        window = std::max(window, before / dilation + size);
      }
      const std::int64_t reach = (window - 1) * dilation + 1, step = all.conv.strides[d];
      const std::int64_t high =
          std::max<std::int64_t>((out[2 + d] - 1) * step + reach - in[2 + d] - low, 0);
      if ((in[2 + d] + low + high - reach) / step + 1 != out[2 + d]) return std::nullopt;
      all.conv.pad_low[d] = low, all.conv.pad_high[d] = high, all.conv.dilations[d] = dilation;
      all.window.push_back(window);
      taps *= static_cast<double>(window);
      has_middle = has_middle && step == 1 && low % dilation == 0 && low / dilation < window;
      all.middle.push_back(low / dilation);
    }
    if (taps > own_taps) return std::nullopt;
    if (!has_middle) all.middle.clear();
    return all;
  }

  Addend addend_of(ValueId id, const Type& type) const {
    if (graph_.type(id) != type) return {.value = id};
    const Node& node = pattern_.node(id);
    if (const auto* const conv = node.op.as<op::Conv>()) {
      const bool is_plain = !conv->transposed && !conv->channels_last && node.inputs.size() == 2 &&
                            pattern_.read_once(id) && is_weight(node.inputs[1]) &&
                            graph_.type(node.inputs[0]).is_static();
      if (is_plain) return {id, conv, node.inputs[0], node.inputs[1]};
    }
    if (node.op.is<op::Mul>() && pattern_.read_once(id)) {
      for (const std::size_t k : {0U, 1U}) {
        if (is_by_channel(node.inputs[1 - k], type.rank()))
          return {id, nullptr, node.inputs[k], node.inputs[1 - k]};
      }
    }
    return {id, nullptr, id, {}};
  }

  /// Weights [1, C, 1, ...] or [C, 1, ...], or one for all channels.
  bool is_by_channel(ValueId id, std::size_t rank) const {
    if (!is_weight(id) || graph_.type(id).dtype != f32) return false;
    const Dims dims = dims_of(id);
    for (std::size_t i = 0; i < dims.size(); ++i)
      if (dims[i] != 1 && i + rank != dims.size() + 1) return false;
    return dims.size() <= rank;
  }

  static bool is_alike(const op::Conv& a, const op::Conv& b) {
    const auto steps = [](const op::Conv& conv) {
      Axes all = conv.strides;
      while (!all.empty() && all.back() == 1) all.pop_back();
      return all;
    };
    return a.groups == b.groups && steps(a) == steps(b);
  }

  const Graph& graph_;
  Pattern pattern_;
  std::vector<bool> weight_only_;
};

// w [O, C / groups, spatial...], with zeros in front and behind as far as the window goes.
Value in_window(Value w, const Axes& low, const Axes& window) {
  Axes front{0, 0}, behind{0, 0};
  for (std::size_t d = 0; d < window.size(); ++d) {
    front.push_back(low[d]);
    behind.push_back(window[d] - low[d] - w.shape()[2 + d].value());
  }
  const bool fits = std::ranges::all_of(front, [](auto n) { return n == 0; }) &&
                    std::ranges::all_of(behind, [](auto n) { return n == 0; });
  return fits ? w : pad(w, front, behind);
}

// The weights of a convolution that multiplies each of the channels by its factor: [channels,
// channels / groups, 1, ...].
Value as_weights(Graph& graph, std::optional<Value> factor, std::int64_t channels,
                 std::int64_t groups, std::size_t dims) {
  const std::int64_t share = channels / groups;
  Shape shape{channels, share}, by_channel{channels, 1};
  shape.resize(2 + dims, Dim(1)), by_channel.resize(2 + dims, Dim(1));
  const Value unit = graph.constant(unit_matrix(share));
  const Value units =
      reshape(broadcast(reshape(unit, {1, share, share}), {groups, share, share}), shape);
  if (!factor) return units;
  return units *
         (factor->type().elements() == 1 ? reshape(*factor, {}) : reshape(*factor, by_channel));
}

}  // namespace

Result<Graph> sums_of_convolutions(Graph graph) {
  const auto is_conv = [](const Node& node) { return node.op.is<op::Conv>(); };
  if (std::ranges::none_of(graph.nodes(), is_conv)) return graph;
  const Sums sums(graph);
  const auto readers = readers_of(graph);
  const auto add_up = [&](Rewriter& rewriter, std::int32_t index,
                          const Node& node) -> Result<bool> {
    if (!node.op.is<op::Add>()) return false;
    const auto& read_by = readers[static_cast<std::size_t>(index)];
    const bool is_part = read_by.size() == 1 && read_by[0] >= 0 &&
                         graph.nodes()[static_cast<std::size_t>(read_by[0])].op.is<op::Add>() &&
                         graph.type({read_by[0], 0}) == node.results[0];
    if (is_part) return false;
    const std::vector<Addend> addends = sums.addends_of(index);
    const auto found = sums.joined(addends);
    if (!found) return false;
    const auto& [joined, all] = *found;
    Graph& target = rewriter.target();
    const auto handle = [&](ValueId id) { return target.handle(rewriter(id)); };
    const Value x = handle(addends[joined[0]].of);
    // Weights of one place in the window add up before they are padded to it.
    std::map<std::pair<Axes, Dims>, Value> by_place;
    for (std::size_t k = 0; k < joined.size(); ++k) {
      const Addend& addend = addends[joined[k]];
      std::optional<Value> factor;
      if (addend.factor.node >= 0) factor = handle(addend.factor);
      const Value own = addend.conv ? *factor
                                    : as_weights(target, factor, x.shape()[1].value(),
                                                 all.conv.groups, all.window.size());
      const Axes& low = addend.conv ? all.low[k] : all.middle;
      const auto [place, is_new] = by_place.try_emplace({low, own.type().dims()}, own);
      if (!is_new) place->second = place->second + own;
    }
    std::optional<Value> weights;
    for (const auto& [place, own] : by_place) {
      const Value padded = in_window(own, place.first, all.window);
      weights = weights ? *weights + padded : padded;
    }
    Value sum = target.add_one(all.conv, {x, *weights});
    std::optional<Value> bias;
    std::vector<Value> others;
    for (std::size_t i = 0; i < addends.size(); ++i) {
      if (std::ranges::find(joined, i) != joined.end()) continue;
      const Value other = handle(addends[i].value);
      if (!sums.is_weight(addends[i].value)) others.push_back(other);
      else bias = bias ? *bias + other : other;
    }
    if (bias) sum = sum + *bias;
    for (const Value& other : others) sum = sum + other;
    rewriter.replace(index, Values{sum});
    return true;
  };
  return rewrite(graph, add_up);
}

}  // namespace rlx::passes
