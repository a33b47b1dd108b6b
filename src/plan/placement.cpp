// Places parts of concatenations inside their result, and what a copy would only reorder in the
// copy's order.
#include "plan/placement.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace rlx::plan {
namespace {

/// The part of `whole` that starts at `start` on `axis` and has these dims.
View part_of(const View& whole, std::size_t axis, std::int64_t start, const Dims& dims) {
  View view{whole.base, whole.offset + start * whole.strides[axis], dims, whole.strides};
  return view;
}

}  // namespace

Placement::Placement(const FlatGraph& flat, const Regions& regions)
    : graph_(flat.graph),
      regions_(regions),
      views_(regions.views),
      users_(flat.graph.nodes().size()) {
  for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
    for (const ValueId input : graph_.nodes()[i].inputs) {
      if (input.node >= 0)
        users_[static_cast<std::size_t>(input.node)].push_back(static_cast<std::int32_t>(i));
    }
  }
  // Outer concatenations first: an inner one is then a part that moves as a whole.
  for (std::size_t i = graph_.nodes().size(); i-- > 0;) {
    const std::int32_t region = regions.region_of[i];
    if (region < 0) continue;
    if (regions.list[static_cast<std::size_t>(region)].kind == Region::Kind::concat)
      place_parts(static_cast<std::int32_t>(i));
    if (graph_.nodes()[i].op.is<op::Reshape>()) place_source(static_cast<std::int32_t>(i));
  }
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
    if (may_move(part, concat) && move(part, part_of(whole, axis, start, dims)))
      in_place_[{concat, k}] = true;
    start += dims[axis];
  }
}

// reshape(transpose(v)) is v itself where v is stored in the transposed order from the start.
void Placement::place_source(std::int32_t copy) {
  const View read = of(graph_.nodes()[static_cast<std::size_t>(copy)].inputs[0]);
  const ValueId source = read.base;
  if (source.result != 0 || !may_move(source, copy) || read.offset != 0) return;
  const View dense = of(source);
  if (read.elements() != dense.elements()) return;
  const auto target = reshaped(of({copy, 0}), read.dims);
  if (!target) return;
  View placed{target->base, target->offset, dense.dims,
              std::vector<std::int64_t>(dense.dims.size(), 0)};
  for (std::size_t axis = 0; axis < dense.dims.size(); ++axis) {
    if (dense.dims[axis] == 1) continue;
    std::size_t same = 0;
    while (same < read.dims.size() &&
           (read.dims[same] != dense.dims[axis] || read.strides[same] != dense.strides[axis]))
      ++same;
    if (same == read.dims.size()) return;
    placed.strides[axis] = target->strides[same];
  }
  if (move(source, placed)) in_place_[{copy, 0}] = true;
}

bool Placement::may_move(ValueId part, std::int32_t reader) const {
  const auto node = static_cast<std::size_t>(part.node);
  const std::int32_t region = regions_.region_of[node];
  if (region < 0 || of(part).base != part)
    return false;  // a leaf, a weight, a view, or moved before
  if (is_view_op(graph_.nodes()[node].op)) return false;  // a copy stores in its own order
  const Region::Kind kind = regions_.list[static_cast<std::size_t>(region)].kind;
  if (kind == Region::Kind::host || kind == Region::Kind::recurrence) return false;
  const auto& outputs = graph_.outputs();
  if (std::any_of(outputs.begin(), outputs.end(),
                  [&](const GraphOutput& output) { return of(output.value).base == part; }))
    return false;
  const auto& operands = graph_.nodes()[static_cast<std::size_t>(reader)].inputs;
  return std::count(operands.begin(), operands.end(), part) <= 1;
}

bool Placement::move(ValueId part, const View& target) {
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
      if (!is_view_op(node.op)) continue;
      const auto through = view_through(node, view);
      if (!through) return false;
      moved.push_back({user, *through});
    }
  }
  for (const auto& [index, view] : moved) views_[static_cast<std::size_t>(index)][0] = view;
  return true;
}

}  // namespace rlx::plan
