// Ops that move elements to places known at compile time, as gathers, which are generated and fuse.
#include <algorithm>

#include "passes/passes.hpp"
#include "passes/rewriter.hpp"

namespace rlx::passes {
namespace {

/// Which element of an axis of `size` stands at `position` of its padded form.
std::int64_t source_of(PadMode mode, std::int64_t position, std::int64_t size) {
  if (mode == PadMode::edge) return std::clamp<std::int64_t>(position, 0, size - 1);
  if (mode == PadMode::wrap) return (position % size + size) % size;
  if (size == 1) return 0;
  const std::int64_t period = 2 * (size - 1);
  const std::int64_t folded = (position % period + period) % period;
  return folded < size ? folded : period - folded;
}

// pad(x, reflect | edge | wrap) = gather(x, positions known here), axis by axis
Result<bool> pad_as_gathers(Rewriter& rewriter, std::int32_t index, const Node& node,
                            const op::Pad& pad) {
  Value x = rewriter.values_of(node)[0];
  if (pad.mode == PadMode::constant || !x.type().is_static() || x.type().elements() == 0) {
    return false;
  }
  for (std::size_t axis = 0; axis < pad.low.size(); ++axis) {
    if (pad.low[axis] == 0 && pad.high[axis] == 0) continue;
    const std::int64_t size = x.shape()[axis].value();
    std::vector<std::int64_t> sources;
    for (std::int64_t i = -pad.low[axis]; i < size + pad.high[axis]; ++i) {
      sources.push_back(source_of(pad.mode, i, size));
    }
    const Tensor positions =
        Tensor::of<std::int64_t>({static_cast<std::int64_t>(sources.size())}, sources);
    x = gather(x, rewriter.target().constant(positions), static_cast<std::int64_t>(axis));
  }
  rewriter.replace(index, Values{x});
  return true;
}

/// For every block of x: the update that lands there, or -1. Later updates win.
std::vector<std::int64_t> updates_by_block(const Tensor& indices, std::span<const std::int64_t> blocks) {
  const std::int64_t depth = indices.dims().back();
  const std::span<const std::int64_t> values = indices.as<std::int64_t>();
  std::vector<std::int64_t> update(static_cast<std::size_t>(element_count(blocks)), -1);
  for (std::int64_t u = 0; depth > 0 && u < indices.elements() / depth; ++u) {
    std::int64_t block = 0;
    for (std::int64_t k = 0; k < depth; ++k) {
      const std::int64_t size = blocks[static_cast<std::size_t>(k)];
      std::int64_t position = values[static_cast<std::size_t>(u * depth + k)];
      if (position < 0) position += size;
      if (position < 0 || position >= size) return {};  // the evaluation says what is wrong
      block = block * size + position;
    }
    update[static_cast<std::size_t>(block)] = u;
  }
  return update;
}

// scatter(x, known indices, updates) = select(some update lands here, gather(updates, which one), x)
Result<bool> scatter_as_gather(Rewriter& rewriter, std::int32_t index, const Node& node,
                               const op::ScatterNd& scatter) {
  const Values inputs = rewriter.values_of(node);
  const Value &x = inputs[0], &updates = inputs[2];
  if (scatter.mode != ScatterMode::assign || !x.type().is_static() || !updates.type().is_static() ||
      inputs[1].dtype() != i64 || updates.type().elements() == 0) {
    return false;
  }
  const auto indices = rewriter.target().constant_value(inputs[1].id());
  if (!indices) return false;
  const auto depth = static_cast<std::size_t>(indices->dims().back());
  const Dims dims = x.type().dims();
  const Dims blocks(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(depth));
  std::vector<std::int64_t> which = updates_by_block(*indices, blocks);
  if (which.empty() || depth == 0) return false;
  Tensor lands(boolean, blocks);
  for (std::size_t i = 0; i < which.size(); ++i) {
    lands.mutable_data()[i] = static_cast<std::byte>(which[i] >= 0);
    which[i] = std::max<std::int64_t>(which[i], 0);
  }
  Shape flat{Dim(element_count(indices->dims()) / indices->dims().back())};
  Shape mask_shape = to_shape(blocks);
  for (std::size_t i = depth; i < dims.size(); ++i) {
    flat.push_back(dims[i]);
    mask_shape.push_back(1);
  }
  Graph& target = rewriter.target();
  const Value mask = reshape(target.constant(lands), mask_shape);
  const Value picked = gather(reshape(updates, flat), target.constant(Tensor::of<std::int64_t>(blocks, which)), 0);
  rewriter.replace(index, Values{select(mask, picked, x)});
  return true;
}

}  // namespace

Result<Graph> as_gathers(const Graph& graph) {
  return rewrite(graph, [](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
    if (const auto* pad = node.op.as<op::Pad>()) return pad_as_gathers(rewriter, index, node, *pad);
    if (const auto* scatter = node.op.as<op::ScatterNd>()) {
      return scatter_as_gather(rewriter, index, node, *scatter);
    }
    return false;
  });
}

}  // namespace rlx::passes
