// Finds convolutions with few output channels, asks which form is the fastest, and writes it.
#include "passes/few_channels.hpp"

#include <map>
#include <optional>

#include "passes/channel_maps.hpp"
#include "passes/convolution_forms.hpp"
#include "passes/passes.hpp"
#include "passes/rewriter.hpp"

namespace rlx::passes {
namespace {

/// Multiply-adds that are worth a question.
constexpr double least_work = 50'000;

/// A convolution, the maps behind it that treat all points of a channel alike, and its new form.
struct Rewrite {
  std::int32_t conv = -1;
  std::vector<std::int32_t> maps;  ///< each reads the one before
  std::unique_ptr<Form> form;

  std::int32_t last() const { return maps.empty() ? conv : maps.back(); }
};

class Finder {
 public:
  Finder(const Graph& graph, const ChooseForm& choose)
      : graph_(graph), choose_(choose), maps_(graph) {}

  std::optional<Rewrite> at(std::int32_t index) const {
    const Node& node = graph_.nodes()[static_cast<std::size_t>(index)];
    const auto found = convolution(node);
    if (!found) return std::nullopt;
    std::vector<std::unique_ptr<Form>> forms = forms_of(*found);
    if (forms.empty()) return std::nullopt;
    std::vector<ConvolutionForm> asked;
    asked.push_back({"as it is", alone(*found, nullptr), 1});
    for (const auto& form : forms)
      asked.push_back({form->what(), alone(*found, form.get()), form->weights()});
    const std::size_t chosen = choose_(node, asked);
    if (chosen == 0) return std::nullopt;
    return Rewrite{.conv = index,
                   .maps = maps_.behind(index, node.results[0].shape.size() - 1),
                   .form = std::move(forms[chosen - 1])};
  }

 private:
  std::optional<FewChannels> convolution(const Node& node) const {
    const auto* conv = node.op.as<op::Conv>();
    if (!conv || !conv->channels_last || conv->transposed || conv->groups != 1 ||
        node.inputs.size() != 2)
      return std::nullopt;
    const Type &x = graph_.type(node.inputs[0]), &w = graph_.type(node.inputs[1]);
    const bool known = x.is_static() && w.is_static() && node.results[0].is_static();
    if (!known || x.dtype != f32 || w.dtype != f32 || x.rank() < 3) return std::nullopt;
    if (!maps_.is_weight_only(node.inputs[1])) return std::nullopt;
    FewChannels found{*conv, x.dims(), w.dims(), node.results[0].dims()};
    const double work =
        static_cast<double>(found.points()) * static_cast<double>(element_count(found.w));
    if (work < least_work) return std::nullopt;
    return found;
  }

  /// The convolution alone, with the bias and activation that most have, as a graph of its own.
  static Graph alone(const FewChannels& c, const Form* form) {
    Graph result;
    const Value x = result.input("x", f32, Shape(c.x.begin(), c.x.end()));
    const Value w = result.param("w", f32, c.w), bias = result.param("b", f32, {c.outputs()});
    if (form) {
      const Value y = relu(form->result(x, w) + form->of_channels(bias));
      result.output("y", form->in_order(y));
    } else {
      result.output("y", relu(result.add_one(c.conv, {x, w}) + bias));
    }
    return result;
  }

  const Graph& graph_;
  const ChooseForm& choose_;
  ChannelMaps maps_;
};

Value map_operand(Value operand, const Form& form) {
  const std::int64_t count = operand.type().elements();
  return count == 1 ? reshape(operand, Shape{}) : form.of_channels(reshape(operand, {Dim(count)}));
}

Result<Value> rewritten(Rewriter& rewriter, const Rewrite& found) {
  const Node& conv = rewriter.source().nodes()[static_cast<std::size_t>(found.conv)];
  const Values inputs = rewriter.values_of(conv);
  RLX_ASSIGN(const Value y,
             add_maps(rewriter, found.conv, found.maps, found.form->result(inputs[0], inputs[1]),
                      [&](Value operand) { return map_operand(operand, *found.form); }));
  return found.form->in_order(y);
}

}  // namespace

Result<Graph> few_channels(const Graph& graph, const ChooseForm& choose) {
  const Finder finder(graph, choose);
  std::map<std::int32_t, Rewrite> found;  // by their last node
  try {
    for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
      auto rewrite = finder.at(static_cast<std::int32_t>(i));
      if (!rewrite) continue;
      const std::int32_t last = rewrite->last();
      found.emplace(last, std::move(*rewrite));
    }
  } catch (const Exception& exception) {
    return exception.error();
  }
  if (found.empty()) return graph;
  RLX_ASSIGN(
      const Graph made,
      rewrite(graph, [&](Rewriter& rewriter, std::int32_t index, const Node&) -> Result<bool> {
        const auto here = found.find(index);
        if (here == found.end()) return false;
        RLX_ASSIGN(const Value y, rewritten(rewriter, here->second));
        rewriter.replace(index, Values{y});
        return true;
      }));
  return drop_dead(made);
}

}  // namespace rlx::passes
