// Who chooses among forms of convolutions, asked question by question.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "passes/choose_form.hpp"

namespace rlx::testing {

inline passes::ChooseForms one_by_one(
    std::function<std::size_t(const Node&, const std::vector<passes::ConvolutionForm>&)> choose) {
  return [choose = std::move(choose)](const Graph& graph,
                                      std::span<const passes::FormQuestion> questions) {
    std::vector<std::size_t> chosen;
    for (const auto& [node, forms] : questions)
      chosen.push_back(choose(graph.nodes()[static_cast<std::size_t>(node)], forms));
    return chosen;
  };
}

/// Every convolution in that form (0: as it is).
inline passes::ChooseForms always(std::size_t form) {
  return one_by_one([form](const auto&, const auto&) { return form; });
}

}  // namespace rlx::testing
