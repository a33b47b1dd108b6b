// Predictions of convolutions in several forms, and the questions that explain lists.
#include "runtime/form_choice.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cost/machine_model.hpp"
#include "graph/op_info.hpp"
#include "rlx/ops.hpp"

namespace rlx {
namespace {

/// Other forms often mean more kernels, whose times add up less surely: a small gain is none.
constexpr double least_gain = 1.1;

double weight_bytes(const Graph& graph) {
  double bytes = 0;
  for (const Node& node : graph.nodes()) {
    if (node.op.is<op::Param>() || node.op.is<op::Constant>())
      bytes += static_cast<double>(node.results[0].bytes());
  }
  return bytes;
}

/// Predictions of parts of a program take their weights to come from memory. What a byte of them
/// takes less, in ns, where the weights and the largest value of the whole program stay in a cache.
double nearer_ns_per_byte(const Backend& backend, const Graph& whole) {
  const cost::MachineModel* const model = backend.model();
  if (!model) return 0;
  double largest = 0;
  for (const Node& node : whole.nodes()) {
    for (const Type& type : node.results)
      if (type.is_static()) largest = std::max(largest, static_cast<double>(type.bytes()));
  }
  const double bytes = weight_bytes(whole) + 2 * largest;
  for (const std::size_t level : {std::size_t{1}, std::size_t{2}}) {
    if (bytes < 0.7 * static_cast<double>(model->cache_bytes[level]))
      return std::max(0.0, 1 / model->memory_all - 1 / model->read[level]);
  }
  return 0;
}

}  // namespace

FormChoice::FormChoice(const Backend& backend, int threads, const GivenAnswers& given,
                       const Graph& whole)
    : backend_(backend),
      threads_(threads),
      given_(given),
      nearer_(nearer_ns_per_byte(backend, whole)) {}

Result<double> FormChoice::predicted(const Graph& graph, const std::string& name,
                                     double weight_bytes) {
  auto known = known_.find(name);
  if (known == known_.end())
    known = known_.emplace(name, backend_.predicted_ns(graph, threads_)).first;
  if (!known->second.ok()) return known->second;
  return *known->second - weight_bytes * nearer_;
}

void FormChoice::claim_memory() {
  if (direct_bytes_ == 0) return;
  claims.push_back(
      {"memory", "", true,
       fmt::format("given for speed: weights of convolutions in other forms are {:.1f} MB, and "
                   "would be {:.1f} MB for direct sums (exact keeps those)",
                   form_bytes_ * 1e-6, direct_bytes_ * 1e-6)});
}

std::size_t FormChoice::fastest(const Node& node,
                                const std::vector<passes::ConvolutionForm>& forms) {
  const double weights = weight_bytes(forms[0].graph);
  const std::string layer = print(forms[0].graph);
  const Result<double> direct = predicted(forms[0].graph, layer, weights);
  if (!direct.ok()) return 0;
  std::size_t best = 0;
  double least = *direct;
  std::string times = fmt::format("{:.1f} us {}", *direct * 1e-3, forms[0].what);
  std::vector<FusionQuestion> asked(forms.size());
  const int number = asked_++;
  for (std::size_t i = 1; i < forms.size(); ++i) {
    const Result<double> time =
        predicted(forms[i].graph, layer + forms[i].what, weights * forms[i].weights);
    if (!time.ok()) continue;
    const double with_gain = *time * least_gain + forms[i].worth_ns;
    asked[i] = {.what = fmt::format("write conv ({}) {}", number, forms[i].what),
                .kind = "form",
                .before = profile_graph_io(forms[0].graph),
                .after = profile_graph_io(forms[i].graph),
                .work_added_ns = with_gain,
                .score_ns = *direct - with_gain};
    times += fmt::format(", {:.1f} us {}", *time * 1e-3, forms[i].what);
    if (with_gain < least) best = i, least = with_gain;
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
