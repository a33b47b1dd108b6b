// Windows of depthwise convolutions and pools.
#include "plan/windows.hpp"

#include "codegen/index_range.hpp"
#include "codegen/machine.hpp"
#include "rlx/ops.hpp"

namespace rlx::plan {
namespace {

/// Where the last window along a spatial axis ends.
std::int64_t end_of(const Window& window, std::size_t axis, std::int64_t results) {
  return (results - 1) * window.strides[axis] +
         (window.extents[axis] - 1) * window.dilations[axis] - window.pad_low[axis] + 1;
}

/// Windows along a spatial axis of `extent` elements that lie inside of it.
codegen::IndexRange inside_of(const Window& window, std::size_t axis, std::int64_t results,
                              std::int64_t extent) {
  const std::int64_t reach = (window.extents[axis] - 1) * window.dilations[axis];
  codegen::IndexRange inside =
      codegen::indices_inside(-window.pad_low[axis], window.strides[axis], reach, extent);
  inside.end = std::min(inside.end, results);
  return {inside.begin, std::max(inside.begin, inside.end)};
}

constexpr unsigned few_lanes = 8;
/// An image that L2 holds beside what is made of it.
constexpr std::int64_t held_bytes = 512 * 1024;

/// Do lanes along a row of `results`, of which those that are not `inside` come one by one, take
/// less than turning an image of so many bytes, and its results back? Cycles of a register's taps,
/// by whether rows share what they read, and of its part of both turns, as measured on Zen 4 with
/// AVX2.
bool is_faster_along(const Window& window, std::int64_t results, std::int64_t inside,
                     std::int64_t bytes, int threads) {
  constexpr double shared = 0.85, alone = 1.3, point = 0.68, across = 0.55;
  constexpr double near_turns = 6, far_turns = 16;
  // Several threads gain more by one kernel than by three.
  const double favour = threads > 1 ? 1.15 : 1;
  const double along = window.extents.size() > 1 ? shared : alone;
  double taps = 1;
  for (const std::int64_t extent : window.extents) taps *= static_cast<double>(extent);
  const double turns = bytes <= held_bytes ? near_turns : far_turns;
  const auto registers = static_cast<double>((inside + few_lanes - 1) / few_lanes);
  const double row = taps * (along * registers + point * static_cast<double>(results - inside));
  return row < favour * static_cast<double>(results) / few_lanes * (across * taps + turns);
}

}  // namespace

Window window_of(const Graph& graph, const Node& root) {
  const auto spatial = static_cast<std::size_t>(root.results[0].rank()) - 2;
  if (const auto* conv = root.op.as<op::Conv>()) {
    const Dims w = graph.type(root.inputs[1]).dims();
    return {{w.begin(), w.end() - 2},
            filled(conv->strides, spatial, 1),
            filled(conv->pad_low, spatial, 0),
            filled(conv->dilations, spatial, 1)};
  }
  const auto& pool = *root.op.as<op::WindowReduce>();
  return {pool.window, filled(pool.strides, spatial, 1), filled(pool.pad_low, spatial, 0),
          filled(pool.dilations, spatial, 1)};
}

loop::Access window_access(const Located& x, const Window& window, const Region& region,
                           const Domain& domain, KernelBuffers& buffers, double fill) {
  const std::size_t spatial = window.extents.size(), rank = region.dims.size();
  std::vector<std::int64_t> strides(rank, 0);
  strides[0] = x.view.strides[0];
  strides[rank - 1] = x.view.strides[rank - 1];
  loop::Access access{
      .buffer = buffers.number(x.buffer, false), .offset = x.view.offset, .fill = fill};
  for (std::size_t i = 0; i < spatial; ++i)
    strides[i + 1] = x.view.strides[i + 1] * window.strides[i];
  access.strides = domain.map(strides);
  for (std::size_t i = 0; i < spatial; ++i) {
    const std::int64_t stride = x.view.strides[i + 1];
    access.offset -= window.pad_low[i] * stride;
    access.strides[rank + i] = stride * window.dilations[i];
    if (window.pad_low[i] == 0 && end_of(window, i, region.dims[i + 1]) <= x.view.dims[i + 1])
      continue;
    loop::Guard guard{-window.pad_low[i], x.view.dims[i + 1],
                      std::vector<std::int64_t>(domain.extents.size(), 0)};
    guard.coefficients[i + 1] = window.strides[i];
    guard.coefficients[rank + i] = window.dilations[i];
    access.guards.push_back(std::move(guard));
  }
  return access;
}

bool turns_image(const Graph& graph, const Region& region) {
  // Fewer do not fill registers; lanes then run along the image better.
  constexpr std::int64_t least_channels = 16;
  if (region.dims.back() < least_channels) return false;
  const Node& root = graph.nodes()[static_cast<std::size_t>(region.root)];
  const Window window = window_of(graph, root);
  const double least = graph.type(root.inputs[0]).bytes() <= held_bytes ? 2 : 4;
  double reads = 1;
  for (std::size_t i = 0; i < window.extents.size(); ++i)
    reads *= static_cast<double>(window.extents[i]) / static_cast<double>(window.strides[i]);
  return reads >= least;
}

bool stays_channels_first(const Graph& graph, const Region& region, const View& image,
                          int threads) {
  const Node& root = graph.nodes()[static_cast<std::size_t>(region.root)];
  const Window window = window_of(graph, root);
  const std::size_t last = window.extents.size() - 1;
  const std::int64_t results = region.dims[last + 1];
  if (image.dims.back() == 1 || image.strides[last + 1] != 1) return false;
  const codegen::IndexRange inside = inside_of(window, last, results, image.dims[last + 1]);
  const bool has_ends = inside.size() < results;
  if (has_ends && !codegen::most_lie_inside(inside, results, few_lanes)) return false;
  // Rows that fill no register leave a turned image the better one.
  const std::int64_t stride = window.strides[last];
  if (turns_image(graph, region)) {
    if (stride != 1 || results < few_lanes) return false;
    const auto bytes = static_cast<std::int64_t>(graph.type(root.inputs[0]).bytes());
    return !has_ends || is_faster_along(window, results, inside.size(), bytes, threads);
  }
  return stride == 1 || codegen::is_shuffled(stride, few_lanes);
}

}  // namespace rlx::plan
