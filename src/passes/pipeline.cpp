// Passes by name.
#include "base/error.hpp"
#include "passes/few_channels.hpp"
#include "passes/joined_slices.hpp"
#include "passes/maps_of_parts.hpp"
#include "passes/merge_products.hpp"
#include "passes/passes.hpp"
#include "passes/recast_norms.hpp"
#include "passes/split_batches.hpp"
#include "passes/sub_pixel.hpp"
#include "passes/sums_of_convolutions.hpp"
#include "passes/thin_groups.hpp"

namespace rlx::passes {

std::span<const Pass> all_passes() {
  static constexpr auto specialise_nothing = [](Graph graph) { return specialise(graph, {}); };
  static constexpr auto lower_all = [](Graph graph) {
    return lower(std::move(graph), [](const Graph&, const Node&) { return false; });
  };
  static constexpr auto stack_by_preset = [](Graph graph) {
    return stack_products(std::move(graph), IoFusionGate::preset(Device::cpu), nullptr);
  };
  static constexpr auto parts_by_preset = [](Graph graph) {
    return maps_of_parts(std::move(graph), IoFusionGate::preset(Device::cpu), nullptr);
  };
  static constexpr auto batches_by_preset = [](Graph graph) {
    return split_batches(std::move(graph), IoFusionGate::preset(Device::cpu), nullptr);
  };
  static constexpr auto last_of = [](const Graph&, std::span<const FormQuestion> questions) {
    std::vector<std::size_t> last;
    for (const FormQuestion& question : questions) last.push_back(question.forms.size() - 1);
    return last;
  };
  static constexpr auto winograd_last = [](Graph graph) {
    return winograd(std::move(graph), last_of);
  };
  static constexpr auto few_channels_last = [](Graph graph) {
    return few_channels(std::move(graph), last_of);
  };
  static constexpr auto slices_over_images = [](Graph graph) {
    return joined_slices(std::move(graph), last_of);
  };
  static constexpr auto phases_together = [](Graph graph) {
    return sub_pixel(std::move(graph), nullptr);
  };
  static constexpr auto recast_for_two = [](Graph graph) {
    return recast_norms(std::move(graph), 2);
  };
  static constexpr auto thin_groups_of_16 = [](Graph graph) {
    return thin_groups(std::move(graph), 16);
  };
  static const Pass passes[] = {{"specialise", specialise_nothing},
                                {"loop_forms", loop_forms},
                                {"recognise", recognise},
                                {"byte_tables", byte_tables},
                                {"lower", lower_all},
                                {"transforms_as_products", transforms_as_products},
                                {"joined_slices", slices_over_images},
                                {"sub_pixel", phases_together},
                                {"integer_products", integer_products},
                                {"canonicalise", canonicalise},
                                {"sums_of_convolutions", sums_of_convolutions},
                                {"single_columns", single_columns},
                                {"thin_groups", thin_groups_of_16},
                                {"channels_last", [](Graph graph) { return channels_last(graph); }},
                                {"known_gathers", known_gathers},
                                {"recast_norms", recast_for_two},
                                {"unflatten_products", unflatten_products},
                                {"maps_of_parts", parts_by_preset},
                                {"split_batches", batches_by_preset},
                                {"stack_products", stack_by_preset},
                                {"few_channels", few_channels_last},
                                {"winograd", winograd_last},
                                {"merge_products", merge_products},
                                {"simplify", simplify},
                                {"merge_equal", merge_equal},
                                {"drop_dead", drop_dead}};
  return passes;
}

Result<Graph> run_passes(Graph graph, std::span<const std::string> names) {
  for (const std::string& name : names) {
    const Pass* found = nullptr;
    for (const Pass& pass : all_passes()) {
      if (pass.name == name) found = &pass;
    }
    if (!found) return error(ErrorKind::usage, "There is no pass ({}).", name);
    RLX_ASSIGN(graph, found->run(std::move(graph)));
  }
  return graph;
}

}  // namespace rlx::passes
