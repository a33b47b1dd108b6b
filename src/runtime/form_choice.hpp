// Asks the device's cost model which form of a convolution is the fastest.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "backends/backend.hpp"
#include "graph/questions.hpp"
#include "passes/choose_form.hpp"
#include "rlx/cost.hpp"

namespace rlx {

/// Keeps the answers of one program, with their reasons.
class FormChoice {
 public:
  /// `whole`: the program that the convolutions are part of.
  FormChoice(const Backend& backend, int threads, const GivenAnswers& given, const Graph& whole);

  /// The fastest form; 0 for the first one, the convolution as it is.
  std::size_t fastest(const Node& node, const std::vector<passes::ConvolutionForm>& forms);

  /// Adds what the forms that were taken cost in memory, where they do.
  void claim_memory();

  std::vector<Explanation::Claim> claims;
  std::vector<FusionQuestion> questions;

 private:
  /// ns where weights lie as they will in the whole program. Networks repeat their layers: each
  /// different one is planned once. `name`: of the layer and the form that the graph has.
  Result<double> predicted(const Graph& graph, const std::string& name, double weight_bytes);

  const Backend& backend_;
  const int threads_;
  const GivenAnswers& given_;
  const double nearer_;  ///< what a byte of weights takes less than predicted, in ns
  std::map<std::string, Result<double>> known_;
  double direct_bytes_ = 0, form_bytes_ = 0;  ///< weights that became larger: before and after
  int asked_ = 0;
};

}  // namespace rlx
