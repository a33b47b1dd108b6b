// Finds convolutions with few output channels, asks which form is the fastest, and writes it.
#include "passes/few_channels.hpp"

#include <memory>
#include <optional>

#include "passes/axis_order.hpp"
#include "passes/channel_maps.hpp"
#include "passes/convolution_forms.hpp"
#include "passes/passes.hpp"
#include "passes/rewriter.hpp"

namespace rlx::passes {
namespace {

struct Rewrite : FoundProduct {
  std::shared_ptr<const Form> form;
};

class Finder {
 public:
  explicit Finder(const Graph& graph) : graph_(graph), maps_(graph) {}

  std::vector<Rewrite> found(const ChooseForms& choose) const {
    std::vector<FormQuestion> questions;
    std::vector<Forms> forms;  // but the first, by question
    for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
      const auto index = static_cast<std::int32_t>(i);
      const auto conv = convolution(graph_.nodes()[i]);
      if (!conv) continue;
      Forms others = forms_of(*conv);
      if (others.empty()) continue;
      questions.push_back(question(index, *conv, others));
      forms.push_back(std::move(others));
    }
    const std::vector<std::size_t> chosen = choose(graph_, questions);
    std::vector<Rewrite> found;
    for (std::size_t i = 0; i < questions.size(); ++i) {
      if (chosen[i] == 0) continue;
      const std::int32_t conv = questions[i].node;
      const std::size_t rank = graph_.nodes()[static_cast<std::size_t>(conv)].results[0].rank();
      found.push_back({{conv, maps_.behind(conv, rank - 1)}, forms[i][chosen[i] - 1]});
    }
    return found;
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
    const auto* order = graph_.node(node.inputs[0]).op.as<op::Transpose>();
    found.planes = order && order->perm == to_channels_last(x.rank());
    const double work =
        static_cast<double>(found.points()) * static_cast<double>(element_count(found.w));
    if (work < least_work_to_ask) return std::nullopt;
    return found;
  }

  FormQuestion question(std::int32_t node, const FewChannels& conv, const Forms& others) const {
    FormQuestion asked{node, {}};
    asked.forms.push_back({"as it is", [=, this] { return alone(node, conv, nullptr); }, 1});
    for (const auto& form : others)
      asked.forms.push_back(
          {form->what(), [=, this] { return alone(node, conv, form.get()); }, form->weights()});
    return asked;
  }

  /// The convolution alone, with the bias and activation that most have, as a graph of its own; its
  /// result in the order in which it is read.
  Result<Graph> alone(std::int32_t node, const FewChannels& c, const Form* form) const {
    Graph result;
    const ValueId read = graph_.nodes()[static_cast<std::size_t>(node)].inputs[0];
    const Value x = input_as_read(result, graph_, read);
    const Value w = result.param("w", f32, c.w), bias = result.param("b", f32, {c.outputs()});
    const Value y = form ? form->in_order(relu(form->result(x, w) + form->of_channels(bias)))
                         : relu(result.add_one(c.conv, {x, w}) + bias);
    const auto maps = maps_.behind(node, c.y.size() - 1);
    const op::Transpose* order = maps_.shown_by(maps.empty() ? node : maps.back());
    result.output("y", order ? transpose(y, order->perm) : y);
    return result;
  }

  const Graph& graph_;
  ChannelMaps maps_;
};

Value map_operand(Value operand, const Form& form) {
  const std::int64_t count = operand.type().elements();
  return count == 1 ? reshape(operand, Shape{}) : form.of_channels(reshape(operand, {Dim(count)}));
}

Result<Value> rewritten(Rewriter& rewriter, const Rewrite& found) {
  const Node& conv = rewriter.source().nodes()[static_cast<std::size_t>(found.product)];
  const Values inputs = rewriter.values_of(conv);
  RLX_ASSIGN(const Value y,
             add_maps(rewriter, found.product, found.maps, found.form->result(inputs[0], inputs[1]),
                      [&](Value operand) { return map_operand(operand, *found.form); }));
  return found.form->in_order(y);
}

}  // namespace

Result<Graph> few_channels(Graph graph, const ChooseForms& choose) {
  try {
    const auto found = Finder(graph).found(choose);
    return replace_found(std::move(graph), found, rewritten);
  } catch (const Exception& exception) {
    return exception.error();
  }
}

}  // namespace rlx::passes
