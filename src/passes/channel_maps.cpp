// Finds maps behind convolutions and writes them again.
#include "passes/channel_maps.hpp"

#include <algorithm>

#include "graph/weight_only.hpp"
#include "passes/pattern.hpp"

namespace rlx::passes {

ChannelMaps::ChannelMaps(const Graph& graph)
    : graph_(graph), readers_(readers_of(graph)), weight_only_(weight_only_nodes(graph)) {}

std::vector<std::int32_t> ChannelMaps::behind(std::int32_t node, std::size_t channel_axis) const {
  const auto& nodes = graph_.nodes();
  const Dims dims = nodes[static_cast<std::size_t>(node)].results[0].dims();
  std::vector<std::int32_t> maps;
  while (true) {
    const std::int32_t here = maps.empty() ? node : maps.back();
    const auto& readers = readers_[static_cast<std::size_t>(here)];
    if (readers.size() != 1 || readers[0] < 0) return maps;
    const Node& next = nodes[static_cast<std::size_t>(readers[0])];
    if (!next.op.info().traits.elementwise || next.results.size() != 1 ||
        !next.results[0].is_static() || next.results[0].dims() != dims)
      return maps;
    const bool alike = std::ranges::all_of(next.inputs, [&](ValueId id) {
      return id.node < 0 || id == ValueId{here, 0} || is_of_channels(id, dims, channel_axis);
    });
    if (!alike) return maps;
    maps.push_back(readers[0]);
  }
}

std::int32_t ChannelMaps::only_reader(std::int32_t node) const {
  const auto& readers = readers_[static_cast<std::size_t>(node)];
  return readers.size() == 1 ? readers[0] : -1;
}

const op::Transpose* ChannelMaps::shown_by(std::int32_t node) const {
  const std::int32_t reader = only_reader(node);
  return reader < 0 ? nullptr
                    : graph_.nodes()[static_cast<std::size_t>(reader)].op.as<op::Transpose>();
}

bool ChannelMaps::is_of_channels(ValueId id, const Dims& dims, std::size_t channel_axis) const {
  if (!is_weight_only(id) || !graph_.type(id).is_static()) return false;
  const Dims own = graph_.type(id).dims();
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (own[i] != 1 && i + dims.size() - own.size() != channel_axis) return false;
  }
  return true;
}

Value for_last_axis(Value operand) {
  const std::int64_t count = operand.type().elements();
  return reshape(operand, count == 1 ? Shape{} : Shape{Dim(count)});
}

Result<Value> add_maps(Rewriter& rewriter, std::int32_t node, const std::vector<std::int32_t>& maps,
                       Value y, const std::function<Value(Value)>& operand) {
  std::int32_t before = node;
  for (const std::int32_t index : maps) {
    const Node& map = rewriter.source().nodes()[static_cast<std::size_t>(index)];
    std::vector<ValueId> operands;
    for (const ValueId id : map.inputs) {
      if (id.node < 0) {
        operands.push_back(id);
      } else if (id == ValueId{before, 0}) {
        operands.push_back(y.id());
      } else {
        operands.push_back(operand(rewriter.target().handle(rewriter(id))).id());
      }
    }
    RLX_ASSIGN(const auto made, rewriter.target().try_add(map.op, operands, {}, map.origin));
    y = rewriter.target().handle(made[0]);
    before = index;
  }
  return y;
}

}  // namespace rlx::passes
