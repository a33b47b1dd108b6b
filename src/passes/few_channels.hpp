// Convolutions with few output channels, which leave most lanes of a register idle.
#pragma once

#include "passes/choose_form.hpp"
#include "rlx/graph.hpp"
#include "rlx/result.hpp"

namespace rlx::passes {

/// Channels-last f32 convolutions by weights with few output channels as convolutions whose
/// channels are those of several neighbouring columns, or as one product of all taps whose planes
/// are shifted and added; those of one tap whose images lie with their channels first, as a product
/// of the weights and each image as it lies. All where the choice falls on them. The maps behind
/// them that treat all points of a channel alike come along. Sums may be taken in another order.
Result<Graph> few_channels(Graph graph, const ChooseForms& choose);

}  // namespace rlx::passes
