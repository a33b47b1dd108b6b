// Finds slices that share out an image, and writes them as a transposition or into a window.
#include "passes/joined_slices.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "passes/axis_order.hpp"
#include "passes/channel_maps.hpp"
#include "passes/rewriter.hpp"
#include "passes/shuffled_channels.hpp"

namespace rlx::passes {
namespace {

/// Where the elements lie that slices with steps, of slices with steps, take of x.
struct Places {
  ValueId x;
  Axes first, steps;  ///< by axis
};

std::optional<Places> places_of(const Graph& graph, ValueId slices) {
  const auto rank = static_cast<std::size_t>(graph.type(slices).rank());
  Places places{slices, Axes(rank, 0), Axes(rank, 1)};
  const auto next = [&] { return graph.node(places.x).op.as<op::Slice>(); };
  for (const auto* slice = next(); slice; slice = next()) {
    if (std::ranges::all_of(slice->steps, [](std::int64_t step) { return step == 1; })) break;
    for (std::size_t a = 0; a < rank; ++a) {
      if (slice->steps[a] < 1) return std::nullopt;
      places.first[a] = slice->starts[a] + slice->steps[a] * places.first[a];
      places.steps[a] *= slice->steps[a];
    }
    places.x = graph.node(places.x).inputs[0];
  }
  return places;
}

/// The elements of x, each once: slices x[.., first : : step, ..] for all first < step, joined.
struct JoinedSlices {
  ValueId x;
  Dims dims, joined;  ///< of x, and of all slices together
  std::size_t axis = 0;
  Axes steps;    ///< by axis of x
  Axes stepped;  ///< axes with steps, as the digits of a slice's number: the last counts fastest

  std::int64_t step(std::int64_t a) const { return steps[static_cast<std::size_t>(a)]; }
  bool has_steps(std::size_t a) const { return steps[a] > 1; }
};

/// Does slice i begin where the i-th combination of the first elements of those axes lies?
bool are_in_order(const std::vector<Places>& slices, const Axes& axes) {
  for (std::size_t i = 0; i < slices.size(); ++i) {
    auto rest = static_cast<std::int64_t>(i);
    for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
      const auto a = static_cast<std::size_t>(*axis);
      if (slices[i].first[a] != rest % slices[i].steps[a]) return false;
      rest /= slices[i].steps[a];
    }
  }
  return true;
}

std::optional<JoinedSlices> joined_slices(const Graph& graph, const Node& node) {
  const auto* concat = node.op.as<op::Concat>();
  if (!concat || node.inputs.size() < 2 || !node.results[0].is_static()) return std::nullopt;
  std::vector<Places> slices;
  for (const ValueId part : node.inputs) {
    auto places = places_of(graph, part);
    if (!places || graph.type(part) != graph.type(node.inputs[0])) return std::nullopt;
    slices.push_back(std::move(*places));
  }
  const auto alike = [&](const Places& slice) {
    return slice.x == slices[0].x && slice.steps == slices[0].steps;
  };
  if (!std::ranges::all_of(slices, alike) || !graph.type(slices[0].x).is_static())
    return std::nullopt;
  JoinedSlices found{
      slices[0].x, graph.type(slices[0].x).dims(), node.results[0].dims(), 0, slices[0].steps, {}};
  const Dims part = graph.type(node.inputs[0]).dims();
  std::int64_t count = 1;
  for (std::size_t a = 0; a < part.size(); ++a) {
    if (part[a] == 0 || part[a] * found.steps[a] != found.dims[a]) return std::nullopt;
    if (found.has_steps(a)) found.stepped.push_back(static_cast<std::int64_t>(a));
    count *= found.steps[a];
  }
  if (count != std::ssize(slices)) return std::nullopt;
  found.axis =
      static_cast<std::size_t>(concat->axis < 0 ? concat->axis + std::ssize(part) : concat->axis);
  do {
    if (are_in_order(slices, found.stepped)) return found;
  } while (std::ranges::next_permutation(found.stepped).found);
  return std::nullopt;
}

/// The same elements by one transposition.
Value transposed(Value x, const JoinedSlices& slices) {
  Shape split;
  std::vector<std::int64_t> place(slices.dims.size()), step(slices.dims.size());  // in `split`
  for (std::size_t a = 0; a < slices.dims.size(); ++a) {
    place[a] = std::ssize(split);
    split.emplace_back(slices.dims[a] / slices.steps[a]);
    if (!slices.has_steps(a)) continue;
    step[a] = std::ssize(split);
    split.emplace_back(slices.steps[a]);
  }
  Axes perm;
  for (std::size_t a = 0; a < slices.dims.size(); ++a) {
    if (a == slices.axis)
      for (const std::int64_t s : slices.stepped) perm.push_back(step[static_cast<std::size_t>(s)]);
    perm.push_back(place[a]);
  }
  return reshape(transpose(reshape(x, split), perm), to_shape(slices.joined));
}

/// A convolution of the slices as one of x: tap t of those that begin at `first` is its tap
/// t * step + first.
op::Conv convolution_over_image(op::Conv conv, const JoinedSlices& slices) {
  for (std::size_t i = 0; i + 2 < slices.steps.size(); ++i) {
    const std::int64_t step = slices.steps[i + 2];
    if (!conv.strides.empty()) conv.strides[i] *= step;
    if (!conv.pad_low.empty()) conv.pad_low[i] *= step;
    if (!conv.pad_high.empty()) conv.pad_high[i] *= step;
    if (!conv.dilations.empty() && step > 1) conv.dilations[i] = 1;
  }
  if (conv.strides.empty()) conv.strides = {slices.steps.begin() + 2, slices.steps.end()};
  return conv;
}

/// [out, channels, taps..] of it, for a kernel [out, (first elements.., channels), taps..].
Shape kernel_over_image(Shape kernel, const JoinedSlices& slices) {
  kernel[1] = slices.dims[1];
  for (std::size_t a = 2; a < kernel.size(); ++a) kernel[a] = kernel[a] * Dim(slices.steps[a]);
  return kernel;
}

Value weights_over_image(Value w, const JoinedSlices& slices) {
  const Shape kernel = w.shape();
  Shape split{kernel[0]};
  std::vector<std::int64_t> first(slices.steps.size());  // in `split`, by axis
  for (const std::int64_t a : slices.stepped) {
    first[static_cast<std::size_t>(a)] = std::ssize(split);
    split.emplace_back(slices.step(a));
  }
  Axes perm{0, std::ssize(split)};
  split.emplace_back(slices.dims[1]);
  for (std::size_t a = 2; a < kernel.size(); ++a) {
    perm.push_back(std::ssize(split));
    split.push_back(kernel[a]);
    if (slices.has_steps(a)) perm.push_back(first[a]);
  }
  return reshape(transpose(reshape(w, split), perm), kernel_over_image(kernel, slices));
}

/// Does it read slices of an image's planes, joined as its channels, so that its taps lie side by
/// side in the image?
bool reads_neighbours(const op::Conv& conv, const Dims& kernel, const JoinedSlices& slices) {
  if (slices.axis != 1 || slices.has_steps(0) || slices.has_steps(1)) return false;
  for (std::size_t a = 2; a < kernel.size(); ++a) {
    const bool dilated = !conv.dilations.empty() && conv.dilations[a - 2] > 1 && kernel[a] > 1;
    if (dilated && slices.has_steps(a)) return false;
  }
  return true;
}

class Finder {
 public:
  explicit Finder(const Graph& graph) : graph_(graph), maps_(graph) {
    for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
      const auto index = static_cast<std::int32_t>(i);
      if (auto slices = joined_slices(graph, node(index)))
        slices_.emplace(index, std::move(*slices));
      else if (slices_of(index)) convolutions_.push_back(index);
    }
  }

  /// What a node joins; null where it does not.
  const JoinedSlices* joined_by(std::int32_t index) const {
    const auto found = slices_.find(index);
    return found == slices_.end() ? nullptr : &found->second;
  }

  /// What a convolution reads, where it may be one over the image; null where not.
  const JoinedSlices* slices_of(std::int32_t index) const {
    const Node& conv = node(index);
    if (!is_plain_convolution(graph_, conv) || !maps_.is_weight_only(conv.inputs[1]))
      return nullptr;
    const std::int32_t read = conv.inputs[0].node;
    const JoinedSlices* slices = joined_by(read);
    const Dims kernel = graph_.type(conv.inputs[1]).dims();
    if (!slices || maps_.only_reader(read) != index ||
        !reads_neighbours(*conv.op.as<op::Conv>(), kernel, *slices))
      return nullptr;
    const double points = static_cast<double>(conv.results[0].elements() / kernel[0]);
    const double work = points * static_cast<double>(element_count(kernel));
    return work < least_work_to_ask ? nullptr : slices;
  }

  /// The convolutions that become ones over the image.
  std::set<std::int32_t> over_images(const ChooseForms& choose) const {
    std::set<std::int32_t> over;
    if (!choose || convolutions_.empty()) return over;
    std::vector<FormQuestion> questions;
    for (const std::int32_t conv : convolutions_) questions.push_back(question(conv));
    const std::vector<std::size_t> chosen = choose(graph_, questions);
    for (std::size_t i = 0; i < chosen.size(); ++i)
      if (chosen[i] == 1) over.insert(convolutions_[i]);
    return over;
  }

 private:
  const Node& node(std::int32_t index) const {
    return graph_.nodes()[static_cast<std::size_t>(index)];
  }

  FormQuestion question(std::int32_t conv) const {
    return {conv,
            {{.what = "over its slices",
              .graph = [=, this] { return alone(conv, false); },
              .asks_again = true},
             {.what = "over the whole image",
              .graph = [=, this] { return alone(conv, true); },
              .asks_again = true}}};
  }

  /// By itself, with the bias and activation that most have, as its image lies: a program's input
  /// in planes.
  Result<Graph> alone(std::int32_t index, bool over_image) const {
    const JoinedSlices& slices = *slices_of(index);
    op::Conv conv = *node(index).op.as<op::Conv>();
    const Shape kernel = graph_.type(node(index).inputs[1]).shape;
    const Axes last = to_channels_last(node(index).results[0].rank());
    Graph graph;
    const bool planes = graph_.node(slices.x).op.is<op::Input>();
    const Shape dims = to_shape(slices.dims);
    const Value x = planes ? graph.input("x", f32, dims)
                           : transpose(graph.input("x", f32, permuted(dims, last)), inverse(last));
    Shape taps = over_image ? kernel_over_image(kernel, slices) : kernel;
    if (over_image) conv = convolution_over_image(conv, slices);
    std::rotate(taps.begin(), taps.begin() + 2, taps.end());  // [taps.., out, in]
    std::swap(taps.back(), *(taps.end() - 2));
    const Value w = graph.param("w", f32, Type{f32, taps}.dims());
    const Value bias = graph.param("b", f32, {kernel[0].value()});
    conv.channels_last = true;
    const Value image = transpose(over_image ? x : transposed(x, slices), last);
    graph.output("y", relu(graph.add_one(conv, {image, w}) + bias));
    return graph;
  }

  const Graph& graph_;
  ChannelMaps maps_;
  std::map<std::int32_t, JoinedSlices> slices_;  ///< by node
  std::vector<std::int32_t> convolutions_;
};

}  // namespace

Result<Graph> joined_slices(Graph graph, const ChooseForms& choose) {
  try {
    const Finder finder(graph);
    const std::set<std::int32_t> over_images = finder.over_images(choose);
    return rewrite(graph,
                   [&](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
                     const auto image = [&](const JoinedSlices& slices) {
                       return rewriter.target().handle(rewriter(slices.x));
                     };
                     if (const JoinedSlices* slices = finder.joined_by(index)) {
                       rewriter.replace(index, Values{transposed(image(*slices), *slices)});
                       return true;
                     }
                     if (!over_images.contains(index)) return false;
                     const JoinedSlices& slices = *finder.slices_of(index);
                     Values inputs = rewriter.values_of(node);
                     inputs[0] = image(slices);
                     inputs[1] = weights_over_image(inputs[1], slices);
                     op::Conv conv = convolution_over_image(*node.op.as<op::Conv>(), slices);
                     rewriter.replace(index, rewriter.target().add(std::move(conv), inputs));
                     return true;
                   });
  } catch (const Exception& exception) {
    return exception.error();
  }
}

}  // namespace rlx::passes
