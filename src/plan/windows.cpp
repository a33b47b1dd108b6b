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

/// The results along the last spatial axis, and those of them whose windows end inside of it.
struct Rows {
  std::int64_t results = 0, stride = 1;
  codegen::IndexRange inside;

  bool have_ends() const { return inside.size() < results; }
  /// Whether lanes can be neighbours in a row, most of whose windows end inside of it: at the
  /// borders lanes differ.
  bool can_run_along() const {
    return (stride == 1 || codegen::is_shuffled(stride, few_lanes)) &&
           (!have_ends() || codegen::most_lie_inside(inside, results, few_lanes));
  }
  bool fill_registers() const { return can_run_along() && results >= few_lanes; }
};

Rows rows_of(const Graph& graph, const Region& region) {
  const Node& root = graph.nodes()[static_cast<std::size_t>(region.root)];
  const Window window = window_of(graph, root);
  const std::size_t last = window.extents.size() - 1;
  const std::int64_t results = region.dims[last + 1];
  return {results, window.strides[last],
          inside_of(window, last, results, graph.type(root.inputs[0]).dims()[last + 1])};
}

/// An image that L2 holds beside what is made of it.
constexpr std::int64_t held_bytes = 512 * 1024;

/// Do lanes along rows, of which the results that do not lie inside come one by one, take less than
/// turning an image of so many bytes, and its results back? Cycles of a register's taps, by whether
/// rows share what they read, and of its part of both turns, as measured on Zen 4 with AVX2.
bool is_faster_along(const Window& window, const Rows& rows, std::int64_t bytes, int threads) {
  constexpr double shared = 0.85, alone = 1.3, point = 0.68, across = 0.55;
  constexpr double near_turns = 6, far_turns = 16;
  // Several threads gain more by one kernel than by three.
  const double favour = threads > 1 ? 1.15 : 1;
  const double along = window.extents.size() > 1 ? shared : alone;
  double taps = 1;
  for (const std::int64_t extent : window.extents) taps *= static_cast<double>(extent);
  const double turns = bytes <= held_bytes ? near_turns : far_turns;
  const std::int64_t inside = rows.inside.size();
  const auto results = static_cast<double>(rows.results);
  const auto registers = static_cast<double>((inside + few_lanes - 1) / few_lanes);
  const double row = taps * (along * registers + point * (results - static_cast<double>(inside)));
  return row < favour * results / few_lanes * (across * taps + turns);
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
  // Lanes would be elements far apart where they cannot run along the rows.
  const bool is_held = graph.type(root.inputs[0]).bytes() <= held_bytes;
  const double least = is_held || !rows_of(graph, region).fill_registers() ? 2 : 4;
  double reads = 1;
  for (std::size_t i = 0; i < window.extents.size(); ++i)
    reads *= static_cast<double>(window.extents[i]) / static_cast<double>(window.strides[i]);
  return reads >= least;
}

bool stays_channels_first(const Graph& graph, const Region& region, const View& image,
                          int threads) {
  const Node& root = graph.nodes()[static_cast<std::size_t>(region.root)];
  const Rows rows = rows_of(graph, region);
  const std::size_t last = region.dims.size() - 2;
  if (image.dims.back() == 1 || image.strides[last] != 1 || !rows.can_run_along()) return false;
  if (!turns_image(graph, region)) return true;
  // Rows that fill no register leave a turned image the better one.
  if (rows.stride != 1 || !rows.fill_registers()) return false;
  const auto bytes = static_cast<std::int64_t>(graph.type(root.inputs[0]).bytes());
  return !rows.have_ends() || is_faster_along(window_of(graph, root), rows, bytes, threads);
}

}  // namespace rlx::plan
