// Predictions of convolutions in several forms, and the questions that explain lists.
#include "runtime/form_choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "base/error.hpp"
#include "base/error_in_flight.hpp"
#include "cost/machine_model.hpp"
#include "cost/op_cost.hpp"
#include "graph/op_info.hpp"
#include "rlx/ops.hpp"

namespace rlx {
namespace {

/// Other forms often mean more kernels, whose times add up less surely, and larger weights: over
/// the form before, a small gain is none.
constexpr double least_gain = 1.1;

double weight_bytes(const Graph& graph) {
  double bytes = 0;
  for (const Node& node : graph.nodes()) {
    if (node.op.is<op::Param>() || node.op.is<op::Constant>())
      bytes += static_cast<double>(node.results[0].bytes());
  }
  return bytes;
}

/// What a run touches: its weights, and twice the largest value, whose memory the others share.
double touched_bytes(const Graph& graph) {
  double largest = 0;
  for (const Node& node : graph.nodes()) {
    for (const Type& type : node.results)
      if (type.is_static()) largest = std::max(largest, static_cast<double>(type.bytes()));
  }
  return weight_bytes(graph) + 2 * largest;
}

/// What a run of the graph does, by its products alone.
cost::Elsewhere work_of(const Backend& backend, const Graph& graph) {
  const cost::MachineModel* const model = backend.model();
  if (!model) return {};
  double flops = 0;
  for (const Node& node : graph.nodes()) {
    if (const auto shape = cost::matmul_shape(graph, node))
      flops += 2.0 * static_cast<double>(shape->m) * static_cast<double>(shape->k) *
               static_cast<double>(shape->n);
  }
  const double bytes = touched_bytes(graph);
  return {bytes, cost::about_ns(flops, bytes, *model)};
}

/// Passes name a layer as it is differently, but it is the same.
std::string key_of(const std::string& layer, const std::vector<passes::ConvolutionForm>& forms,
                   std::size_t form) {
  return form == 0 ? layer : layer + forms[form].what;
}

}  // namespace

FormChoice::FormChoice(Backend& backend, int threads, const GivenAnswers& given, const Graph& whole)
    : backend_(backend), threads_(threads), given_(given), whole_(work_of(backend, whole)) {}

FormChoice::Layer FormChoice::layer(const passes::FormQuestion& question) const {
  const Graph graph = question.forms[0].graph().value();
  const cost::Elsewhere own = work_of(backend_, graph);
  return {print(graph),
          {std::max(0.0, whole_.bytes - own.bytes), std::max(0.0, whole_.ns - own.ns)}};
}

Result<FormChoice::Planned> FormChoice::planned(const passes::ConvolutionForm& form,
                                                const cost::Elsewhere& others) const try {
  RLX_ASSIGN(const Graph graph, form.graph());
  RLX_ASSIGN(const double ns, backend_.predicted_ns(graph, threads_, others));
  return Planned{ns, profile_graph_io(graph), weight_bytes(graph)};
} catch (...) {
  return error_in_flight();
}

Status FormChoice::plan(std::span<const passes::FormQuestion> questions,
                        const std::vector<Layer>& layers) {
  struct Work {
    const passes::ConvolutionForm* form;
    const Layer* layer;
    Result<Planned>* result;
  };
  std::vector<Work> work;
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const auto& forms = questions[i].forms;
    for (std::size_t k = 0; k < forms.size(); ++k) {
      const auto [known, is_new] = known_.try_emplace(key_of(layers[i].text, forms, k), Planned{});
      if (is_new) work.push_back({&forms[k], &layers[i], &known->second});
    }
  }
  std::atomic<std::size_t> next = 0;
  backend_.run_lanes(backend_.lanes(), [&](int) {
    for (std::size_t i = next++; i < work.size(); i = next++)
      *work[i].result = planned(*work[i].form, work[i].layer->others);
  });
  for (const Work& done : work) {
    if (!done.result->ok() && done.result->error().kind == ErrorKind::out_of_memory)
      return done.result->error();
  }
  return {};
}

std::vector<std::size_t> FormChoice::fastest(const Graph& graph,
                                             std::span<const passes::FormQuestion> questions) {
  std::vector<Layer> layers;
  for (const passes::FormQuestion& question : questions) layers.push_back(layer(question));
  if (Status status = plan(questions, layers); !status.ok()) throw Exception(status.error());
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < questions.size(); ++i)
    chosen.push_back(fastest(graph.nodes()[static_cast<std::size_t>(questions[i].node)],
                             questions[i].forms, layers[i].text));
  return chosen;
}

void FormChoice::claim_memory() {
  if (direct_bytes_ == 0) return;
  claims.push_back(
      {"memory", "", true,
       fmt::format("given for speed: weights of convolutions in other forms are {:.1f} MB, and "
                   "would be {:.1f} MB for direct sums (exact keeps those)",
                   form_bytes_ * 1e-6, direct_bytes_ * 1e-6)});
}

std::size_t FormChoice::fastest(const Node& node, const std::vector<passes::ConvolutionForm>& forms,
                                const std::string& layer) {
  const auto planned = [&](std::size_t i) -> const Result<Planned>& {
    return known_.at(key_of(layer, forms, i));
  };
  const Result<Planned>& direct = planned(0);
  if (!direct.ok()) return 0;
  const double weights = direct->weight_bytes;
  const auto predicted = [&](std::size_t i) { return planned(i)->ns; };
  // With what a run must win for the form.
  const auto price = [&](std::size_t i) { return predicted(i) + forms[i].worth_ns; };
  std::size_t best = 0;
  std::string times = fmt::format("{:.1f} us {}", predicted(0) * 1e-3, forms[0].what);
  std::vector<FusionQuestion> asked(forms.size());
  const int number = asked_++;
  for (std::size_t i = 1; i < forms.size(); ++i) {
    if (!planned(i).ok()) continue;
    const double time = predicted(i);
    const double with_gain = price(i) + time * (least_gain - 1);
    asked[i] = {.what = fmt::format("write conv ({}) {}", number, forms[i].what),
                .kind = "form",
                .before = direct->io,
                .after = planned(i)->io,
                .work_added_ns = with_gain,
                .score_ns = predicted(0) - with_gain};
    times += fmt::format(", {:.1f} us {}", time * 1e-3, forms[i].what);
    if (with_gain < price(best)) best = i;
  }
  for (std::size_t i = forms.size(); i-- > 1;) {
    if (!asked[i].what.empty() && answer_to(asked[i].what, given_, false)) best = i;
  }
  if (best > 0 && !answer_to(asked[best].what, given_, true)) best = 0;
  for (std::size_t i = 1; i < forms.size(); ++i) {
    if (asked[i].what.empty()) continue;
    asked[i].fused = i == best;
    questions.push_back(std::move(asked[i]));
  }
  if (!forms[best].price.empty()) times += "; " + forms[best].price;
  if (forms[best].weights > 1) {
    direct_bytes_ += weights;
    form_bytes_ += weights * forms[best].weights;
    times += fmt::format("; weights {:.1f} times as large", forms[best].weights);
  }
  claims.push_back({std::string(node.op.name()), node.origin, best > 0,
                    fmt::format("{}: {}", forms[best].what, times)});
  return best;
}

}  // namespace rlx
