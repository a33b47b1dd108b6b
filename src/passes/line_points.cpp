// Convolutions with windows that are long along one axis, by minimal filtering F(m, r) of the lines
// of that axis: transforms of pieces of lines around one grouped convolution, of which each group
// is a point. F(4, 4) has 7 products for the 16 of a direct sum, F(3, 3) 5 for 9. Longer windows
// are parts of r taps; with m = r they all read the same points, each one tile behind the other.
#include <fmt/format.h>

#include <optional>

#include "passes/channel_maps.hpp"
#include "passes/line_form.hpp"
#include "passes/passes.hpp"
#include "passes/rewriter.hpp"

namespace rlx::passes {
namespace {

using Finish = std::function<Result<Value>(Value)>;

/// Is it one of those that tiles of both axes of an image serve better?
bool is_square(const Layer& layer) {
  const std::size_t axes = layer.filter.size() - 2;
  if (axes < 2) return false;
  const std::size_t height = axes - 2, width = axes - 1;
  return layer.filter[height] == 3 && layer.filter[width] == 3 && layer.dilation(height) == 1 &&
         layer.dilation(width) == 1 && layer.stride(height) == layer.stride(width);
}

class Finder {
 public:
  explicit Finder(const Graph& graph) : graph_(graph), maps_(graph) {}

  struct Found : FoundProduct {
    LineForm form;
  };

  std::vector<Found> found(const ChooseForms& choose) const {
    std::vector<FormQuestion> questions;
    std::vector<LineForm> forms;
    for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
      const auto index = static_cast<std::int32_t>(i);
      const auto form = form_of(graph_.nodes()[i]);
      if (!form) continue;
      questions.push_back(question(index, *form));
      forms.push_back(*form);
    }
    const std::vector<std::size_t> chosen = choose(graph_, questions);
    std::vector<Found> found;
    for (std::size_t i = 0; i < questions.size(); ++i) {
      if (chosen[i] == 0) continue;
      const std::int32_t conv = questions[i].node;
      const int rank = graph_.nodes()[static_cast<std::size_t>(conv)].results[0].rank();
      found.push_back({{conv, maps_.behind(conv, static_cast<std::size_t>(rank) - 1)}, forms[i]});
    }
    return found;
  }

 private:
  /// The form with the fewest products, if any has few enough.
  std::optional<LineForm> form_of(const Node& node) const {
    const auto* conv = node.op.as<op::Conv>();
    if (!conv || !conv->channels_last || conv->transposed || node.inputs.size() != 2 ||
        !maps_.is_weight_only(node.inputs[1]))
      return std::nullopt;
    const Type &x = graph_.type(node.inputs[0]), &w = graph_.type(node.inputs[1]),
               &y = node.results[0];
    if (!x.is_static() || !w.is_static() || x.dtype != f32 || w.dtype != f32 || x.rank() < 3 ||
        y.elements() == 0)
      return std::nullopt;
    const Layer layer{x.dims(), w.dims(), y.dims(), *conv};
    const std::int64_t channels = *(layer.filter.end() - 2),
                       columns = layer.filter.back() / conv->groups;
    // Less than this is not worth a question; points of fewer channels leave lanes empty.
    constexpr double least_flops = 4e6;
    constexpr std::int64_t least_channels = 8;
    const double flops = 2.0 * static_cast<double>(y.elements()) *
                         static_cast<double>(w.elements() / layer.filter.back());
    if (flops < least_flops || is_square(layer) || std::min(channels, columns) < least_channels)
      return std::nullopt;
    std::optional<LineForm> best;
    for (std::size_t line = 0; line + 2 < layer.filter.size(); ++line) {
      for (const lines::Tile& tile : lines::tiles) {
        auto form = line_form(layer, line, tile);
        // What errs more must win something. Where the taps between are direct, less is
        // transformed.
        constexpr double most_products = 0.7, most_beside_direct = 0.77, least_gain = 1.2;
        const double gain = best && best->line == line ? least_gain : 1;
        if (!form || form->products() > (form->every > 1 ? most_beside_direct : most_products) ||
            (best && gain * form->products() >= best->products()))
          continue;
        best = std::move(form);
      }
    }
    return best;
  }

  FormQuestion question(std::int32_t index, const LineForm& form) const {
    FormQuestion asked{
        index,
        {{.what = "by the direct sum", .graph = [=, this] { return alone(index, std::nullopt); }}}};
    const Type& w = graph_.type(graph_.nodes()[static_cast<std::size_t>(index)].inputs[1]);
    const double bytes = form.weights() * static_cast<double>(w.bytes());
    asked.forms.push_back({.what = fmt::format("by minimal filtering F({}, {}) of lines",
                                               form.tile.outputs, form.tile.taps),
                           .graph = [=, this] { return alone(index, form); },
                           .weights = form.weights(),
                           .worth_ns = worth_of_start(bytes),
                           .price = fmt::format("errors up to {} of the result's deviation",
                                                lines::error_of(form.tile))});
    return asked;
  }

  /// The convolution alone, with the bias and activation that most have, as a graph of its own.
  Result<Graph> alone(std::int32_t index, const std::optional<LineForm>& form) const {
    const Node& node = graph_.nodes()[static_cast<std::size_t>(index)];
    const auto& conv = *node.op.as<op::Conv>();
    Graph result;
    const Value x = input_as_read(result, graph_, node.inputs[0]);
    const Value w = result.param("w", f32, graph_.type(node.inputs[1]).dims());
    const Value bias = result.param("b", f32, {w.type().dims().back()});
    const Finish finish = [&](Value y) -> Result<Value> { return relu(y + bias); };
    RLX_ASSIGN(const Value y,
               form ? by_lines(x, w, *form, finish) : finish(result.add_one(conv, {x, w})));
    result.output("y", y);
    return result;
  }

  const Graph& graph_;
  ChannelMaps maps_;
};

Result<Value> rewritten(Rewriter& rewriter, const Finder::Found& found) {
  const Node& node = rewriter.source().nodes()[static_cast<std::size_t>(found.product)];
  const Values inputs = rewriter.values_of(node);
  RLX_ASSIGN(const Value y, by_lines(inputs[0], inputs[1], found.form, [&](Value lines) {
               return add_maps(rewriter, found.product, found.maps, lines, for_last_axis);
             }));
  return reshape(y, node.results[0].shape);
}

}  // namespace

Result<Graph> line_points(Graph graph, const ChooseForms& choose) {
  try {
    const auto found = Finder(graph).found(choose);
    return replace_found(std::move(graph), found, rewritten);
  } catch (const Exception& exception) {
    return exception.error();
  }
}

}  // namespace rlx::passes
