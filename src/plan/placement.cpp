// Places parts of concatenations inside their result, and what a copy would only reorder in the
// copy's order.
#include "plan/placement.hpp"

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "graph/winograd.hpp"
#include "plan/cache_sets.hpp"
#include "plan/windows.hpp"

namespace rlx::plan {
namespace {

/// The part of `whole` that starts at `start` on `axis` and has these dims.
View part_of(const View& whole, std::size_t axis, std::int64_t start, const Dims& dims) {
  View view{whole.base, whole.offset + start * whole.strides[axis], dims, whole.strides};
  return view;
}

/// Where a dense value of `dims` must lie so that what `read` shows of it, all of it in some order,
/// lies at `target`; nothing where strides cannot express it.
std::optional<View> place_under(const View& read, const View& target, const Dims& dims) {
  if (read.offset != 0 || read.elements() != element_count(dims)) return std::nullopt;
  std::vector<std::size_t> axes;
  for (std::size_t axis = 0; axis < read.dims.size(); ++axis) {
    if (read.dims[axis] != 1) axes.push_back(axis);
  }
  std::stable_sort(axes.begin(), axes.end(),
                   [&](std::size_t a, std::size_t b) { return read.strides[a] > read.strides[b]; });
  View ordered{read.base, 0, {}, {}}, placed{target.base, target.offset, {}, {}};
  for (const std::size_t axis : axes) {
    ordered.dims.push_back(read.dims[axis]);
    ordered.strides.push_back(read.strides[axis]);
    placed.dims.push_back(target.dims[axis]);
    placed.strides.push_back(target.strides[axis]);
  }
  if (!ordered.is_dense()) return std::nullopt;
  return reshaped(placed, dims);
}

/// Elements that are made side by side are stored side by side, or are too few for a copy, which
/// turns them tile by tile, to be worth its launch.
bool stores_well(const View& placed) {
  constexpr std::int64_t few = 8192;
  if (placed.elements() <= few) return true;
  for (std::size_t axis = placed.dims.size(); axis-- > 0;) {
    if (placed.dims[axis] != 1) return placed.strides[axis] == 1;
  }
  return true;
}

/// Do its slices along the first axis crowd the sets of a cache?
bool crowds_sets(const Type& type) {
  return type.is_static() && type.rank() >= 2 && type.elements() > 0 &&
         crowd_sets(type.dims()[0], type.bytes() / type.dims()[0]);
}

/// The points of an image that windows look at while they walk along a row of it.
std::int64_t points_in_sight(const Window& window) {
  constexpr std::int64_t side_by_side = 4;  // windows whose results are in registers
  std::int64_t points = 1;
  for (const std::int64_t extent : window.extents) points *= extent;
  const std::int64_t width = window.extents.back();
  return points / width * (width + side_by_side);
}

}  // namespace

Placement::Placement(const FlatGraph& flat, const Regions& regions, int threads)
    : graph_(flat.graph),
      regions_(regions),
      threads_(threads),
      views_(regions.views),
      users_(flat.graph.nodes().size()) {
  for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
    for (const ValueId input : graph_.nodes()[i].inputs) {
      if (input.node >= 0)
        users_[static_cast<std::size_t>(input.node)].push_back(static_cast<std::int32_t>(i));
    }
  }
  spread_slices();
  spread_points();
  for (const GraphOutput& output : graph_.outputs()) place_output(output.value);
  // Outer concatenations first: an inner one is then a part that moves as a whole.
  for (std::size_t i = graph_.nodes().size(); i-- > 0;) {
    const std::int32_t region = regions.region_of[i];
    if (region < 0) continue;
    if (regions.list[static_cast<std::size_t>(region)].kind == Region::Kind::concat)
      place_parts(static_cast<std::int32_t>(i));
    if (graph_.nodes()[i].op.is<op::Reshape>()) place_source(static_cast<std::int32_t>(i));
  }
}

// Kernels that walk through many slices side by side (the points of Winograd's tiles) would have
// each line of a slice thrown out by those of the others before its second half is read or written.
void Placement::spread_slices() {
  std::map<ValueId, std::map<std::int32_t, std::set<std::int64_t>>> read;  // places, by region
  for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
    const Node& node = graph_.nodes()[i];
    const std::int32_t region = regions_.region_of[i];
    if (region < 0) continue;
    const auto* concat = node.op.as<op::Concat>();
    const bool makes_slices = (concat && concat->axis == 0 && std::ssize(node.inputs) > ways) ||
                              node.op.is<op::WinogradImage>();
    if (makes_slices && crowds_sets(node.results[0])) spread({static_cast<std::int32_t>(i), 0});
    if (node.op.is<op::WinogradOutputs>() && crowds_sets(graph_.type(of(node.inputs[0]).base)))
      spread(of(node.inputs[0]).base);
    for (const ValueId id : node.inputs) {
      if (id.node < 0 || of(id).base == id || !crowds_sets(graph_.type(of(id).base))) continue;
      read[of(id).base][region].insert(of(id).offset);
    }
  }
  for (const auto& [base, regions] : read) {
    const bool many = std::ranges::any_of(
        regions, [](const auto& places) { return std::ssize(places.second) > ways; });
    if (many) spread(base);
  }
}

// Windows over channels-last images read points that lie as far apart as these have channels, or
// what the images are parts of.
void Placement::spread_points() {
  for (const Region& region : regions_.list) {
    if (region.kind != Region::Kind::window) continue;
    const Node& root = graph_.nodes()[static_cast<std::size_t>(region.root)];
    const View& image = of(root.inputs[0]);
    const Type& made = graph_.type(image.base);
    if (image.dims.size() < 3 || made.rank() < 2 || made.dims().back() != image.dims.back() ||
        image.strides.back() != 1)
      continue;
    const ValueId whole = joined_with_others(image.base);
    const Type& type = graph_.type(whole);
    const std::int64_t bytes = type.dims().back() * static_cast<std::int64_t>(size_of(type.dtype));
    if (crowd_sets(points_in_sight(window_of(graph_, root)), bytes))
      spread(whole, static_cast<std::size_t>(type.rank()) - 2);
  }
}

ValueId Placement::joined_with_others(ValueId part) const {
  for (const std::int32_t user : users_[static_cast<std::size_t>(part.node)]) {
    const std::int32_t region = regions_.region_of[static_cast<std::size_t>(user)];
    if (region >= 0 && regions_.list[static_cast<std::size_t>(region)].kind == Region::Kind::concat)
      return joined_with_others({user, 0});
  }
  return part;
}

/// A line between each two slices of an axis.
void Placement::spread(ValueId base, std::size_t axis) {
  const Type& type = graph_.type(base);
  View view = of(base);
  if (base.result != 0 || spread_.contains(base) || !may_move(base, base.node)) return;
  const std::int64_t dense = view.strides[axis];
  const std::int64_t spread = dense + line_elements(type.dtype);
  for (std::size_t a = 0; a <= axis; ++a) view.strides[a] = view.strides[a] / dense * spread;
  if (move(base, view)) spread_[base] = view.strides[0] * view.dims[0];
}

std::int64_t Placement::elements(ValueId base) const {
  const auto found = spread_.find(base);
  return found == spread_.end() ? graph_.type(base).elements() : found->second;
}

void Placement::place_parts(std::int32_t concat) {
  const Node& node = graph_.nodes()[static_cast<std::size_t>(concat)];
  const View whole = of({concat, 0});
  const std::int64_t named = node.op.as<op::Concat>()->axis;
  const auto axis = static_cast<std::size_t>(
      named < 0 ? named + static_cast<std::int64_t>(whole.dims.size()) : named);
  std::int64_t start = 0;
  for (std::size_t k = 0; k < node.inputs.size(); ++k) {
    const ValueId part = node.inputs[k];
    const Dims dims = graph_.type(part).dims();
    // A part may be another value seen through views.
    const View seen = of(part);
    const ValueId source = seen.base;
    if (source.result == 0 && may_move(source, concat)) {
      const auto target =
          place_under(seen, part_of(whole, axis, start, dims), graph_.type(source).dims());
      const bool well = target && (source == part || stores_well(*target));
      if (well && move(source, *target)) in_place_[{concat, k}] = true;
    }
    start += dims[axis];
  }
}

// reshape(transpose(v)) is v itself where v is stored in the transposed order from the start.
void Placement::place_source(std::int32_t copy) {
  const View read = of(graph_.nodes()[static_cast<std::size_t>(copy)].inputs[0]);
  const ValueId source = read.base;
  if (source.result != 0 || !may_move(source, copy)) return;
  const auto target = reshaped(of({copy, 0}), read.dims);
  if (!target) return;
  const auto placed = place_under(read, *target, graph_.type(source).dims());
  if (placed && move(source, *placed)) in_place_[{copy, 0}] = true;
}

// An output that shows a value in another order is that value where it is stored in this order from
// the start, and nobody else reads it.
void Placement::place_output(ValueId output) {
  const View read = of(output);
  const ValueId source = read.base;
  if (source == output || source.result != 0 || !can_move(source)) return;
  const auto& outputs = graph_.outputs();
  const auto shown = std::ranges::count_if(
      outputs, [&](const GraphOutput& other) { return of(other.value).base == source; });
  if (shown > 1 || is_read_by_kernels(source) || !turns_well(source, read)) return;
  const Dims dims = graph_.type(source).dims();
  const auto placed = place_under(read, View::dense(source, read.dims), dims);
  if (placed) move(source, *placed);
}

/// A map reads by tiles what it stores in another order, if its values find registers and tiles are
/// full; windows may go along the rows of images that lie in that order. Sums and products would
/// store lane by lane: a copy behind them takes half as long.
bool Placement::turns_well(ValueId source, const View& shown) const {
  constexpr std::size_t most_nodes = 2;
  constexpr std::int64_t least = 16;
  const std::int32_t index = regions_.region_of[static_cast<std::size_t>(source.node)];
  const Region& region = regions_.list[static_cast<std::size_t>(index)];
  if (region.kind == Region::Kind::window) {
    const Node& root = graph_.nodes()[static_cast<std::size_t>(region.root)];
    return shown.dims.back() > 1 &&
           stays_channels_first(graph_, region, of(root.inputs[0]), threads_);
  }
  return region.kind == Region::Kind::nest && region.reduced.empty() &&
         region.nodes.size() + region.recomputed.size() <= most_nodes && !region.dims.empty() &&
         region.dims.back() >= least && shown.dims.back() >= least;
}

bool Placement::is_read_by_kernels(ValueId value) const {
  return std::ranges::any_of(users_[static_cast<std::size_t>(value.node)], [&](std::int32_t user) {
    return regions_.region_of[static_cast<std::size_t>(user)] >= 0 || is_read_by_kernels({user, 0});
  });
}

bool Placement::may_move(ValueId part, std::int32_t reader) const {
  const auto& outputs = graph_.outputs();
  if (!can_move(part) || std::ranges::any_of(outputs, [&](const GraphOutput& output) {
        return of(output.value).base == part;
      }))
    return false;
  const auto& operands = graph_.nodes()[static_cast<std::size_t>(reader)].inputs;
  return std::count(operands.begin(), operands.end(), part) <= 1;
}

bool Placement::can_move(ValueId part) const {
  const auto node = static_cast<std::size_t>(part.node);
  const std::int32_t region = regions_.region_of[node];
  if (region < 0 || of(part).base != part)
    return false;  // a leaf, a weight, a view, or moved before
  // What holds another value, or its parts, already stays with them.
  if (is_view_op(graph_.nodes()[node].op) && in_place_.contains({part.node, 0})) return false;
  const Region::Kind kind = regions_.list[static_cast<std::size_t>(region)].kind;
  return kind != Region::Kind::host && kind != Region::Kind::recurrence;
}

bool Placement::move(ValueId part, const View& target) {
  // A copy stores the points of its operand, in their order.
  const Node& made = graph_.nodes()[static_cast<std::size_t>(part.node)];
  if (is_view_op(made.op) && !reshaped(target, graph_.type(made.inputs[0]).dims())) return false;
  // Everything that reads the part must be able to read it with gaps between its rows.
  std::vector<std::pair<std::int32_t, View>> moved{{part.node, target}};
  for (std::size_t i = 0; i < moved.size(); ++i) {
    const auto [index, view] = moved[i];
    for (const std::int32_t user : users_[static_cast<std::size_t>(index)]) {
      const Node& node = graph_.nodes()[static_cast<std::size_t>(user)];
      const std::int32_t region = regions_.region_of[static_cast<std::size_t>(user)];
      if (region >= 0) {
        if (in_place_.contains({user, 0}) && is_view_op(node.op)) return false;
        if (regions_.list[static_cast<std::size_t>(region)].kind == Region::Kind::host)
          return false;
        continue;
      }
      const bool read_through = node.op.is<op::Cast>() && of({user, 0}).base != ValueId{user, 0};
      if (!is_view_op(node.op) && !read_through) continue;
      const auto through = view_through(node, view);
      if (!through) return false;
      moved.push_back({user, *through});
    }
  }
  for (const auto& [index, view] : moved) views_[static_cast<std::size_t>(index)][0] = view;
  return true;
}

}  // namespace rlx::plan
