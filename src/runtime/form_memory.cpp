// Gives up the least time for each byte until the forms fit.
#include "runtime/form_memory.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

namespace rlx {
namespace {

struct Memory {
  double weights = 0, arena = 0;
};

Memory memory_of(const FormCosts& layers, const std::vector<std::size_t>& chosen) {
  Memory all;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const FormCost& form = layers[i][chosen[i]];
    all.weights += form.weight_bytes;
    all.arena = std::max(all.arena, form.arena_bytes);
  }
  return all;
}

}  // namespace

double more_memory(const FormCosts& layers, const std::vector<std::size_t>& chosen) {
  const Memory with = memory_of(layers, chosen);
  const Memory direct = memory_of(layers, std::vector<std::size_t>(layers.size(), 0));
  return with.weights - direct.weights + std::max(0.0, with.arena - direct.arena);
}

std::vector<std::size_t> within_memory(const FormCosts& layers, std::vector<std::size_t> chosen,
                                       double most) {
  struct Step {
    std::size_t layer, form;
    double ns_lost_per_byte;
  };
  for (double more = more_memory(layers, chosen); more > most; more = more_memory(layers, chosen)) {
    std::optional<Step> best;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      for (std::size_t form = 0; form < layers[i].size(); ++form) {
        std::vector<std::size_t> with = chosen;
        with[i] = form;
        const double saved = more - more_memory(layers, with);
        const double lost = layers[i][form].ns - layers[i][chosen[i]].ns;
        if (saved <= 0 || !std::isfinite(layers[i][form].ns)) continue;
        const Step step{i, form, lost / saved};
        if (!best || step.ns_lost_per_byte < best->ns_lost_per_byte) best = step;
      }
    }
    if (!best) break;
    chosen[best->layer] = best->form;
  }
  return chosen;
}

}  // namespace rlx
