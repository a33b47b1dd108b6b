// Predictions of convolutions in several forms, and the questions that explain lists.
#include "runtime/form_choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <compare>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "base/error_in_flight.hpp"
#include "cost/machine_model.hpp"
#include "cost/op_cost.hpp"
#include "graph/op_info.hpp"
#include "graph/weight_only.hpp"
#include "passes/passes.hpp"
#include "rlx/ops.hpp"

namespace rlx {
namespace {

/// Other forms often mean more kernels, whose times add up less surely, and larger weights: over
/// the form before, a small gain is none.
constexpr double least_gain = 1.1;

/// What forms may cost in memory together: so much of what the program takes with its convolutions
/// as they are, or as much as a runtime takes anyway.
constexpr double most_of_program = 0.5, always_bytes = 24e6;

/// Programs of which the teams of threads, and what cores fetch from each other, are a good part.
constexpr double short_ns = 300e3;

/// What a run touches: `weights`, those values that are known before it and read in it, and twice
/// the largest other one, whose memory the rest share.
struct Touched {
  double weights = 0, largest = 0;

  double bytes() const { return weights + 2 * largest; }
};

Touched touched_by(const Graph& graph) {
  const std::vector<bool> known = weight_only_nodes(graph);
  std::set<ValueId> weights;
  Touched touched;
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (known[i]) continue;
    const Node& node = graph.nodes()[i];
    for (const ValueId id : node.inputs)
      if (id.node >= 0 && known[static_cast<std::size_t>(id.node)]) weights.insert(id);
    for (const Type& type : node.results)
      if (type.is_static())
        touched.largest = std::max(touched.largest, static_cast<double>(type.bytes()));
  }
  for (const ValueId id : weights) {
    const Type& type = graph.type(id);
    if (type.is_static()) touched.weights += static_cast<double>(type.bytes());
  }
  return touched;
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
  const double bytes = touched_by(graph).bytes();
  return {bytes, cost::about_ns(flops, bytes, *model)};
}

/// Passes name a layer as it is differently, but it is the same.
std::string key_of(const std::string& layer, const std::vector<passes::ConvolutionForm>& forms,
                   std::size_t form) {
  return form == 0 ? layer : layer + forms[form].what;
}

/// What it takes, with what a run must win for it: no more than what is worth any start in a
/// program whose convolutions as they are take `direct_ns`.
double price(const passes::ConvolutionForm& form, double ns, double direct_ns) {
  constexpr double worth_any_start = 0.03;
  return ns + std::min(form.worth_ns, worth_any_start * direct_ns);
}
/// The same where it is to take the place of another form.
double price_with_gain(const passes::ConvolutionForm& form, double ns, double direct_ns) {
  return price(form, ns, direct_ns) + ns * (least_gain - 1);
}

}  // namespace

FormChoice::FormChoice(Backend& backend, int threads, const IoFusionGate& gate,
                       const GivenAnswers& given, const Graph& whole,
                       passes::PrecisionPolicy policy, bool reorders)
    : backend_(backend),
      threads_(threads),
      gate_(gate),
      given_(given),
      whole_(work_of(backend, whole)),
      policy_(std::move(policy)),
      reorders_(reorders),
      identity_(backend.prospects_identity()),
      memory_left_(std::max(always_bytes, most_of_program * touched_by(whole).bytes())) {}

FormChoice::Layer FormChoice::layer(const passes::FormQuestion& question) const {
  const Graph graph = question.forms[0].graph().value();
  const cost::Elsewhere own = work_of(backend_, graph);
  return {print(graph),
          {std::max(0.0, whole_.bytes - own.bytes), std::max(0.0, whole_.ns - own.ns)}};
}

Result<Graph> FormChoice::in_forms(Graph graph, int threads) const {
  const GivenAnswers none;
  FormChoice inside(backend_, threads, gate_, none, graph, policy_);
  return passes::winograd(std::move(graph), [&](const Graph& within, Questions asked) {
    return inside.fastest(within, asked);
  });
}

Result<PlannedForm> FormChoice::planned(const passes::ConvolutionForm& form,
                                        const cost::Elsewhere& others, int threads) const try {
  RLX_ASSIGN(Graph graph, form.graph());
  if (asks_again(form)) {
    RLX_ASSIGN(graph, in_forms(std::move(graph), threads));
  }
  if (policy_.asked != Precision::f32) {
    std::vector<Explanation::Claim> of_the_form;
    RLX_ASSIGN(graph, passes::narrow_products(graph, policy_, of_the_form));
  }
  RLX_ASSIGN(const Backend::Prospect alone, backend_.prospect(graph, threads, others));
  return PlannedForm{alone, touched_by(graph).weights};
} catch (...) {
  return error_in_flight();
}

Status FormChoice::plan(Questions asked, const std::vector<Layer>& layers, int threads) {
  struct Work {
    const passes::ConvolutionForm* form;
    const Layer* layer;
    Result<PlannedForm>* result;
  };
  std::vector<Work> work;
  std::vector<Digest> names;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const auto& forms = asked[i].forms;
    for (std::size_t k = 0; k < forms.size(); ++k) {
      const std::string key = key_of(layers[i].text, forms, k);
      const auto [known, is_new] = known_.try_emplace({threads, key}, PlannedForm{});
      if (!is_new) continue;
      work.push_back({&forms[k], &layers[i], &known->second});
      if (!identity_.empty()) names.push_back(name_of(key, layers[i].others, threads));
    }
  }
  std::optional<FormCache> cache;
  if (!names.empty()) cache.emplace(FormCache::open_for_user());
  if (const auto kept = cache ? cache->load(names) : std::nullopt) {
    for (std::size_t i = 0; i < work.size(); ++i) *work[i].result = (*kept)[i];
    return {};
  }
  const auto settle = [&](const Work& item) {
    *item.result = planned(*item.form, item.layer->others, threads);
  };
  // Those that ask again want the lanes themselves.
  for (const Work& item : work)
    if (asks_again(*item.form)) settle(item);
  std::atomic<std::size_t> next = 0;
  backend_.run_lanes(backend_.lanes(), [&](int) {
    for (std::size_t i = next++; i < work.size(); i = next++)
      if (!asks_again(*work[i].form)) settle(work[i]);
  });
  std::vector<PlannedForm> planned_forms;
  for (const Work& done : work) {
    if (done.result->ok()) planned_forms.push_back(**done.result);
    else if (done.result->error().kind == ErrorKind::out_of_memory) return done.result->error();
  }
  if (cache && planned_forms.size() == names.size()) cache->store(names, planned_forms);
  return {};
}

Digest FormChoice::name_of(const std::string& key, const cost::Elsewhere& others,
                           int threads) const {
  Hasher hasher;
  hasher.add_field("rlx form").add_field(identity_).add_field(rlx::name_of(policy_.asked));
  for (const int number : {threads_, threads, reorders_ ? 1 : 0})
    hasher.add_field(static_cast<std::uint64_t>(number));
  hasher.add_field(key);
  for (const double figure : {others.bytes, others.ns})
    hasher.add_field(std::bit_cast<std::uint64_t>(figure));
  return hasher.finish();
}

const Result<PlannedForm>& FormChoice::known(const Layer& layer,
                                             const std::vector<passes::ConvolutionForm>& forms,
                                             std::size_t form, int threads) const {
  return known_.at({threads, key_of(layer.text, forms, form)});
}

FormChoice::Choice FormChoice::fastest_on(Questions asked, const std::vector<Layer>& layers,
                                          int threads) {
  if (Status status = plan(asked, layers, threads); !status.ok()) throw Exception(status.error());
  const double direct_ns = total_ns(asked, layers, Choice(asked.size(), 0), threads);
  Choice chosen;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const auto& forms = asked[i].forms;
    std::size_t best = 0;
    const Result<PlannedForm>& direct = known(layers[i], forms, 0, threads);
    double least = direct.ok() ? price(forms[0], direct->ns, direct_ns) : 0;
    for (std::size_t k = 1; k < forms.size(); ++k) {
      const Result<PlannedForm>& form = known(layers[i], forms, k, threads);
      if (!form.ok() || price_with_gain(forms[k], form->ns, direct_ns) >= least) continue;
      best = k;
      least = price(forms[k], form->ns, direct_ns);
    }
    chosen.push_back(best);
  }
  return chosen;
}

double FormChoice::total_ns(Questions asked, const std::vector<Layer>& layers, const Choice& forms,
                            int threads) const {
  double sum = 0;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const Result<PlannedForm>& form = known(layers[i], asked[i].forms, forms[i], threads);
    if (form.ok()) sum += form->ns;
  }
  return sum;
}

FormCosts FormChoice::costs(Questions asked, const std::vector<Layer>& layers) const {
  FormCosts all(asked.size());
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const auto& forms = asked[i].forms;
    const Result<PlannedForm>& direct = known(layers[i], forms, 0, threads_);
    for (std::size_t k = 0; k < forms.size(); ++k) {
      const Result<PlannedForm>& form = known(layers[i], forms, k, threads_);
      all[i].push_back(!form.ok() || !direct.ok()
                           ? FormCost{}
                           : FormCost{form->ns, direct->weight_bytes * forms[k].weights,
                                      static_cast<double>(form->arena_bytes)});
    }
  }
  return all;
}

std::size_t FormChoice::launches(Questions asked, const std::vector<Layer>& layers,
                                 const Choice& forms) const {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const Result<PlannedForm>& form = known(layers[i], asked[i].forms, forms[i], threads_);
    if (form.ok()) sum += static_cast<std::size_t>(form->io.kernel_launches);
  }
  return sum;
}

FormChoice::Choice FormChoice::by_layer(Questions asked, const std::vector<Layer>& layers) {
  Choice chosen = fastest_on(asked, layers, threads_);
  // What work is shared out for may take as long alone in another form, with no team to call and no
  // bytes to fetch from other cores: where programs are short, that form is asked for as well, and
  // shared ones must gain something.
  const double shared_ns = total_ns(asked, layers, chosen, threads_);
  if (threads_ != 1 && backend_.lanes() > 1 && shared_ns < short_ns) {
    Choice alone = fastest_on(asked, layers, 1);
    if (total_ns(asked, layers, alone, 1) < least_gain * shared_ns) chosen = std::move(alone);
  }
  return chosen;
}

// What a layer's results cost those who read them, and what one thread does all alone, is known of
// the whole alone.
std::vector<FormChoice::Choice> FormChoice::others(Questions asked,
                                                   const std::vector<Layer>& layers,
                                                   const Choice& by_layer) {
  std::vector<Choice> all;
  // Each plan takes a millisecond or more of a start: too much where several layers have forms.
  if (asked.size() != 1 || threads_ == 1 || backend_.lanes() == 1) return all;
  constexpr double worth_a_look = 1.5;
  const double least = total_ns(asked, layers, by_layer, threads_);
  if (least > short_ns) return all;
  const auto add = [&](const Choice& form, int threads) {
    if (total_ns(asked, layers, form, threads) < worth_a_look * least && form != by_layer &&
        std::ranges::find(all, form) == all.end())
      all.push_back(form);
  };
  add(fastest_on(asked, layers, 1), 1);
  const std::vector<passes::ConvolutionForm>& forms = asked[0].forms;
  for (std::size_t form = 1; form < forms.size(); ++form) {
    if (known(layers[0], forms, form, threads_).ok()) add({form}, threads_);
  }
  return all;
}

FormChoice::Choice FormChoice::fastest(const Graph& graph, Questions asked,
                                       const PredictWhole& whole) {
  std::vector<Layer> layers;
  for (const passes::FormQuestion& question : asked) layers.push_back(layer(question));
  Choice chosen = by_layer(asked, layers);
  const std::vector<Choice> candidates =
      whole ? others(asked, layers, chosen) : std::vector<Choice>();
  Result<double> least = candidates.empty() ? Result<double>(0.0) : whole(chosen);
  for (const Choice& candidate : candidates) {
    constexpr double small_gain = 1.05;  // is none: predictions differ by as much
    const auto more = launches(asked, layers, candidate) <=> launches(asked, layers, chosen);
    const double gain = more > 0 ? least_gain : more < 0 ? 1 / least_gain : small_gain;
    Result<double> ns = whole(candidate);
    if (!ns.ok() || (least.ok() && *ns * gain > *least)) continue;
    chosen = candidate;
    least = std::move(ns);
  }
  const FormCosts costs_of = costs(asked, layers);
  Choice taken = within_memory(costs_of, chosen, memory_left_);
  const double direct_ns = total_ns(asked, layers, Choice(asked.size(), 0), threads_);
  for (std::size_t i = 0; i < asked.size(); ++i)
    taken[i] = record(graph.nodes()[static_cast<std::size_t>(asked[i].node)], asked[i].forms,
                      layers[i], taken[i], chosen[i], direct_ns);
  memory_left_ -= more_memory(costs_of, taken);
  return taken;
}

void FormChoice::claim_memory() {
  if (direct_bytes_ == 0) return;
  claims.push_back(
      {"memory", "", true,
       fmt::format("given for speed: weights of convolutions in other forms are {:.1f} MB, and "
                   "would be {:.1f} MB for direct sums (exact keeps those); a run of one takes up "
                   "to {:.1f} MB, and would take {:.1f} MB",
                   form_bytes_ * 1e-6, direct_bytes_ * 1e-6, form_arena_ * 1e-6,
                   direct_arena_ * 1e-6)});
}

std::size_t FormChoice::record(const Node& node, const std::vector<passes::ConvolutionForm>& forms,
                               const Layer& layer, std::size_t best, std::size_t fastest,
                               double direct_ns) {
  const Result<PlannedForm>& direct = known(layer, forms, 0, threads_);
  if (!direct.ok()) return 0;
  std::string times = fmt::format("{:.1f} us {}", direct->ns * 1e-3, forms[0].what);
  std::vector<FusionQuestion> asked(forms.size());
  const int number = asked_++;
  for (std::size_t i = 1; i < forms.size(); ++i) {
    const Result<PlannedForm>& form = known(layer, forms, i, threads_);
    if (!form.ok()) continue;
    const double score = direct->ns - price_with_gain(forms[i], form->ns, direct_ns);
    asked[i] = {.what = fmt::format("write conv ({}) {}", number, forms[i].what),
                .kind = "form",
                .before = direct->io,
                .after = form->io,
                .before_ns = direct->ns,
                .after_ns = form->ns,
                .work_added_ns = gate_.score_ns(direct->io, form->io) - score,
                .score_ns = score};
    times += fmt::format(", {:.1f} us {}", form->ns * 1e-3, forms[i].what);
  }
  std::string given_up;
  if (best != fastest)
    given_up = fmt::format("; {} wins too little for its memory", forms[fastest].what);
  for (std::size_t i = forms.size(); i-- > 1;) {
    if (!asked[i].what.empty() && answer_to(asked[i].what, given_, false)) best = i;
  }
  if (best > 0 && !answer_to(asked[best].what, given_, true)) best = 0;
  for (std::size_t i = 1; i < forms.size(); ++i) {
    if (asked[i].what.empty()) continue;
    asked[i].fused = i == best;
    questions.push_back(std::move(asked[i]));
  }
  times += given_up;
  if (!forms[best].price.empty()) times += "; " + forms[best].price;
  if (forms[best].weights > 1) {
    direct_bytes_ += direct->weight_bytes;
    form_bytes_ += direct->weight_bytes * forms[best].weights;
    const Result<PlannedForm>& form = known(layer, forms, best, threads_);
    direct_arena_ = std::max(direct_arena_, static_cast<double>(direct->arena_bytes));
    if (form.ok()) form_arena_ = std::max(form_arena_, static_cast<double>(form->arena_bytes));
    times += fmt::format("; weights {:.1f} times as large", forms[best].weights);
  }
  claims.push_back({std::string(node.op.name()), node.origin, best > 0,
                    fmt::format("{}: {}", forms[best].what, times)});
  return best;
}

}  // namespace rlx
