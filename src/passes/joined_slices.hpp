// Images whose neighbouring elements become channels: concatenations of slices with steps.
#pragma once

#include "passes/choose_form.hpp"
#include "rlx/graph.hpp"
#include "rlx/result.hpp"

namespace rlx::passes {

/// Concatenations of the slices x[.., first : : step, ..] that hold every element of x once
/// (patches that a Swin transformer merges, the focus of a YOLO) as one transposition. A
/// convolution of such slices is one over x itself, its windows and strides larger by the steps,
/// where the choice falls on it; nobody is asked where `choose` is null. Wants convolutions with
/// their channels first.
Result<Graph> joined_slices(Graph graph, const ChooseForms& choose);

}  // namespace rlx::passes
