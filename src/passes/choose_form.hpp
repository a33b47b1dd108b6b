// Convolutions that can be written in several ways: the forms, and who chooses among them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "rlx/graph.hpp"

namespace rlx::passes {

/// One way to write a convolution with its bias and activation, as a graph by itself.
struct ConvolutionForm {
  std::string what;  ///< "with 2 columns side by side"
  Graph graph;
  double weights = 1;   ///< how many times as large the weights are
  double worth_ns = 0;  ///< what a run must win at least, since the form takes long to prepare
  std::string price;    ///< what else it costs, for people; empty: nothing
};

/// Which form is the fastest. The first one is the convolution as it is.
using ChooseForm =
    std::function<std::size_t(const Node&, const std::vector<ConvolutionForm>& forms)>;

}  // namespace rlx::passes
