// Transposed convolutions with strides as plain ones of which every channel block is one phase of
// the result (sub-pixel convolutions): nothing is multiplied with zeros between the elements of x.
#include "passes/sub_pixel.hpp"

#include <algorithm>
#include <functional>
#include <optional>

#include "passes/axis_order.hpp"
#include "passes/channel_maps.hpp"
#include "passes/passes.hpp"
#include "passes/phases.hpp"
#include "passes/rewriter.hpp"
#include "passes/shuffled_channels.hpp"

namespace rlx::passes {
namespace {

/// Ways to compute the phases, by how many axes have theirs apart; nothing: all are together.
using Apart = std::optional<std::size_t>;

/// A convolution with phases and the maps around it that treat all points of a channel alike.
struct Upsampling : FoundProduct {
  Phases phases;
  std::optional<ShuffledChannels> shuffled;  ///< a plain convolution's; nothing: it is transposed
  std::int32_t larger = -1;                  ///< the node whose result is the larger image
  std::vector<std::int32_t> before, behind;  ///< maps between the product and it, and behind it
  Apart apart;

  op::Conv convolution(const op::Conv& conv, const Phases& of) const {
    op::Conv plain = shuffled ? conv : plain_convolution(of);
    plain.channels_last = true;
    return plain;
  }
  Value weights(Value w) const {
    return shuffled ? shuffled->weights(w) : phase_weights(w, phases);
  }
};

/// What follows a part, the number of which is given, of these phases.
using WithMaps = std::function<Result<Value>(Value y, const Phases& of, std::size_t part)>;

/// The convolutions of x [N, spatial..., in], joined: [N, spatial..., g * out].
Result<Value> convolved(const Upsampling& up, const op::Conv& conv, Value x, Value w,
                        const WithMaps& with_maps) {
  const auto made = [&](Value some, const Phases& of, std::size_t part) {
    return with_maps(x.graph().add_one(up.convolution(conv, of), {x, some}), of, part);
  };
  const Value weights = up.weights(w);
  if (!up.apart) {
    RLX_ASSIGN(const Value y, made(weights, up.phases, 0));
    return joined_phases(y, up.phases);
  }
  const PhaseParts parts{up.phases, *up.apart};
  Values results;
  for (const Value& some : parts.slices(weights)) {
    RLX_ASSIGN(const Value part, made(some, parts.of_part(), results.size()));
    results.push_back(part);
  }
  return parts.joined(results);
}

/// An operand of one number, or one for each channel of the convolution, for a part of it.
Value operand_before(const Upsampling& up, Value value, const Phases& of, std::size_t part) {
  if (!up.shuffled || value.type().elements() == 1) return channel_operand(value, of);
  const Value all = up.shuffled->channels(value);
  return up.apart ? PhaseParts{up.phases, *up.apart}.slices(all)[part] : all;
}

class Finder {
 public:
  explicit Finder(const Graph& graph) : graph_(graph), maps_(graph) {}

  std::vector<Upsampling> found(const ChooseForms& choose) const {
    std::vector<Upsampling> found;
    std::vector<FormQuestion> questions;
    std::vector<std::size_t> asked;  // in `found`, by question
    for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
      auto up = upsampling(static_cast<std::int32_t>(i));
      if (!up) continue;
      const bool asks = choose && may_be_apart(*up);
      if (up->shuffled && !asks) continue;
      if (asks) {
        questions.push_back(question(*up));
        asked.push_back(found.size());
      }
      found.push_back(std::move(*up));
    }
    if (!questions.empty()) {
      const std::vector<std::size_t> chosen = choose(graph_, questions);
      for (std::size_t i = 0; i < asked.size(); ++i) {
        Upsampling& up = found[asked[i]];
        up.apart = ways(up)[chosen[i]];
      }
    }
    // What leaves the program is woven and turned at once.
    std::erase_if(found, [&](const Upsampling& up) {
      return up.shuffled && !up.apart && maps_.only_reader(up.last()) < 0;
    });
    return found;
  }

 private:
  const Node& node(std::int32_t index) const {
    return graph_.nodes()[static_cast<std::size_t>(index)];
  }

  std::optional<Upsampling> upsampling(std::int32_t index) const {
    Upsampling up;
    up.product = up.larger = index;
    if (auto phases = phases_of(graph_, node(index))) {
      up.phases = std::move(*phases);
      up.behind = up.maps = maps_.behind(index, 1);
      return up;
    }
    if (!is_plain_convolution(graph_, node(index)) || !maps_.is_weight_only(node(index).inputs[1]))
      return std::nullopt;
    up.before = up.maps = maps_.behind(index, 1);
    std::vector<std::int32_t> chain;
    for (std::int32_t reader = maps_.only_reader(up.last()); reader >= 0 && chain.size() < 3;
         reader = maps_.only_reader(reader))
      chain.push_back(reader);
    up.shuffled = shuffled_channels(graph_, node(index), chain);
    if (!up.shuffled) return std::nullopt;
    up.phases = up.shuffled->phases;
    up.larger = chain.back();
    up.behind = maps_.behind(up.larger, 1);
    up.maps.insert(up.maps.end(), chain.begin(), chain.end());
    up.maps.insert(up.maps.end(), up.behind.begin(), up.behind.end());
    return up;
  }

  bool may_be_apart(const Upsampling& up) const {
    const std::vector<PhaseAxis>& axes = up.phases.axes;
    const bool rows = std::any_of(axes.begin(), axes.end() - 1,
                                  [](const PhaseAxis& axis) { return axis.stride > 1; });
    const Type& type = node(up.product).results[0];
    double work = static_cast<double>(type.elements() * up.phases.in);
    for (const PhaseAxis& axis : axes) work *= static_cast<double>(axis.taps);
    return up.phases.groups == 1 && rows && work >= least_work_to_ask && type.dtype == f32;
  }

  /// The channels that are joined with the result, where its only reader does that: 0 where not.
  std::int64_t joined_channels(const Upsampling& up) const {
    const std::int32_t reader = maps_.only_reader(up.last());
    const auto* concat = reader < 0 ? nullptr : node(reader).op.as<op::Concat>();
    if (!concat || !node(reader).results[0].is_static()) return 0;
    const Dims dims = node(reader).results[0].dims();
    const std::int64_t axis = concat->axis < 0 ? concat->axis + std::ssize(dims) : concat->axis;
    return axis == 1 ? dims[1] - up.phases.out : 0;
  }

  /// Rows lie side by side in the result, and nothing is left to weave; among other channels only
  /// single phases do.
  std::vector<Apart> ways(const Upsampling& up) const {
    const std::size_t axes = up.phases.axes.size();
    std::vector<Apart> ways{axes - 1, Apart()};
    if (joined_channels(up) > 0) ways.insert(ways.begin(), axes);
    return ways;
  }

  static std::string name_of(const Upsampling& up, Apart way) {
    if (!way) return "with all phases together";
    return *way == up.phases.axes.size() ? "phase by phase" : "by rows of phases";
  }

  FormQuestion question(const Upsampling& up) const {
    FormQuestion asked{up.product, {}};
    for (const Apart way : ways(up)) {
      Upsampling so = up;
      so.apart = way;
      asked.forms.push_back({.what = name_of(up, way),
                             .graph = [so, this] { return alone(so); },
                             .asks_again = true});
    }
    return asked;
  }

  /// By itself, with the bias and activation that most have, and among the channels that it is
  /// joined with.
  Result<Graph> alone(const Upsampling& up) const {
    const Node& product = node(up.product);
    const int rank = product.results[0].rank();
    Graph graph;
    const Axes order = to_channels_last(rank);
    const Value x = graph.input("x", f32, permuted(graph_.type(product.inputs[0]).shape, order));
    const Value w = graph.param("w", f32, graph_.type(product.inputs[1]).dims());
    const Value bias = graph.param("b", f32, {up.phases.out});
    RLX_ASSIGN(Value y, convolved(up, *product.op.as<op::Conv>(), x, w,
                                  [&](Value part, const Phases& of, std::size_t) -> Result<Value> {
                                    return relu(part + channel_operand(bias, of));
                                  }));
    if (const std::int64_t others = joined_channels(up); others > 0) {
      Shape beside = y.shape();
      beside.back() = others;
      y = concat({y, relu(graph.input("beside", f32, beside))}, rank - 1);
    }
    graph.output("y", y);
    return graph;
  }

  const Graph& graph_;
  ChannelMaps maps_;
};

Result<Value> upsampled(Rewriter& rewriter, const Upsampling& up) {
  const Node& product = rewriter.source().nodes()[static_cast<std::size_t>(up.product)];
  const Values inputs = rewriter.values_of(product);
  const int rank = product.results[0].rank();
  const auto with_maps = [&](Value y, const Phases& of, std::size_t part) -> Result<Value> {
    const auto before = [&](Value value) { return operand_before(up, value, of, part); };
    if (inputs.size() > 2 && inputs[2]) y = y + before(inputs[2]);
    RLX_ASSIGN(y, add_maps(rewriter, up.product, up.before, y, before));
    return add_maps(rewriter, up.larger, up.behind, y,
                    [&](Value value) { return channel_operand(value, of); });
  };
  const Value x = transpose(inputs[0], to_channels_last(rank));
  RLX_ASSIGN(const Value y, convolved(up, *product.op.as<op::Conv>(), x, inputs[1], with_maps));
  return transpose(y, to_channels_first(rank));
}

}  // namespace

Result<Graph> sub_pixel(Graph graph, const ChooseForms& choose) {
  try {
    const std::vector<Upsampling> found = Finder(graph).found(choose);
    return replace_found(std::move(graph), found, upsampled);
  } catch (const Exception& exception) {
    return exception.error();
  }
}

}  // namespace rlx::passes
