// Convolutions with few output channels, which leave most lanes of a register idle.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "rlx/graph.hpp"
#include "rlx/result.hpp"

namespace rlx::passes {

/// One way to write a convolution with its bias and activation, as a graph by itself.
struct ConvolutionForm {
  std::string what;  ///< "with 2 columns side by side"
  Graph graph;
  double weights = 1;  ///< how many times as large the weights are
};

/// Which form is the fastest. The first one is the convolution as it is.
using ChooseForm =
    std::function<std::size_t(const Node&, const std::vector<ConvolutionForm>& forms)>;

/// Channels-last f32 convolutions by weights with few output channels as convolutions whose
/// channels are those of several neighbouring columns, or as one product of all taps whose planes
/// are shifted and added; where the choice falls on them. The maps behind them that treat all
/// points of a channel alike come along. Sums may be taken in another order.
Result<Graph> few_channels(const Graph& graph, const ChooseForm& choose);

}  // namespace rlx::passes
