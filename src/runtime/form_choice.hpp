// Asks the device's cost model which form of a convolution is the fastest.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "backends/backend.hpp"
#include "graph/questions.hpp"
#include "passes/choose_form.hpp"
#include "passes/precision.hpp"
#include "rlx/cost.hpp"
#include "runtime/form_cache.hpp"
#include "runtime/form_memory.hpp"

namespace rlx {

/// Keeps the answers of one program, with their reasons.
class FormChoice {
 public:
  /// `whole`: the program that the convolutions are part of, whose products compute as `policy`
  /// says. `reorders`: may sums be taken in another order?
  FormChoice(Backend& backend, int threads, const IoFusionGate& gate, const GivenAnswers& given,
             const Graph& whole, passes::PrecisionPolicy policy = {}, bool reorders = true);

  using Choice = std::vector<std::size_t>;  ///< by question: a form, 0 the first one, as it is
  /// Predicted ns of the whole program with its convolutions so.
  using PredictWhole = std::function<Result<double>(const Choice&)>;

  /// The fastest form of each convolution of `graph`: layer by layer, and where `whole` is given
  /// and the program is short, what is fastest in all of it. What the forms of all calls cost in
  /// memory together has a limit.
  Choice fastest(const Graph& graph, std::span<const passes::FormQuestion> questions,
                 const PredictWhole& whole = nullptr);

  /// Adds what the forms that were taken cost in memory, where they do.
  void claim_memory();

  std::vector<Explanation::Claim> claims;
  std::vector<FusionQuestion> questions;

 private:
  /// A convolution as it is: its text, and what the rest of the program does.
  struct Layer {
    std::string text;
    cost::Elsewhere others;
  };
  using Questions = std::span<const passes::FormQuestion>;
  Layer layer(const passes::FormQuestion& question) const;
  Choice by_layer(Questions asked, const std::vector<Layer>& layers);
  /// What may be faster than that in the whole of a short program of one such layer.
  std::vector<Choice> others(Questions asked, const std::vector<Layer>& layers,
                             const Choice& by_layer);
  /// Do its convolutions take forms of their own?
  bool asks_again(const passes::ConvolutionForm& form) const {
    return form.asks_again && reorders_;
  }
  /// A form with its convolutions in those.
  Result<Graph> in_forms(Graph graph, int threads) const;
  Result<PlannedForm> planned(const passes::ConvolutionForm& form, const cost::Elsewhere& others,
                              int threads) const;
  /// Names one for the cache on disk: `key` as in `known_`.
  Digest name_of(const std::string& key, const cost::Elsewhere& others, int threads) const;
  /// Plans for so many threads what is not known yet, side by side, or takes it from the disk.
  Status plan(Questions asked, const std::vector<Layer>& layers, int threads);
  const Result<PlannedForm>& known(const Layer& layer,
                                   const std::vector<passes::ConvolutionForm>& forms,
                                   std::size_t form, int threads) const;
  /// Every form of every layer, as the program's threads run it.
  FormCosts costs(Questions asked, const std::vector<Layer>& layers) const;
  /// The fastest form on so many threads, by question.
  Choice fastest_on(Questions asked, const std::vector<Layer>& layers, int threads);
  /// What these forms take together on so many threads.
  double total_ns(Questions asked, const std::vector<Layer>& layers, const Choice& forms,
                  int threads) const;
  /// Kernels that these forms make together.
  std::size_t launches(Questions asked, const std::vector<Layer>& layers,
                       const Choice& forms) const;
  /// Notes what was chosen and why. The form that is taken: `best`, or what was answered.
  /// `direct_ns`: of all convolutions as they are. `fastest`: what would be taken for any memory.
  std::size_t record(const Node& node, const std::vector<passes::ConvolutionForm>& forms,
                     const Layer& layer, std::size_t best, std::size_t fastest, double direct_ns);

  Backend& backend_;
  const int threads_;
  const IoFusionGate gate_;
  const GivenAnswers& given_;
  const cost::Elsewhere whole_;  ///< what a run of the program does
  const passes::PrecisionPolicy policy_;
  const bool reorders_;
  const std::string identity_;  ///< of the device's prospects
  /// By threads, and the layer's text and the form. Networks repeat their layers: each different
  /// one is planned once.
  std::map<std::pair<int, std::string>, Result<PlannedForm>> known_;
  double direct_bytes_ = 0, form_bytes_ = 0;  ///< weights that became larger: before and after
  double direct_arena_ = 0, form_arena_ = 0;  ///< that the largest layer takes: before and after
  double memory_left_;                        ///< that further forms may cost
  int asked_ = 0;
};

}  // namespace rlx
