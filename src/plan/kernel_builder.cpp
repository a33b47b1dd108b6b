// Expressions of regions.
#include "plan/kernel_builder.hpp"

#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "graph/elementwise_eval.hpp"
#include "graph/known_places.hpp"
#include "graph/op_info.hpp"
#include "rlx/ops.hpp"

namespace rlx::plan {

std::int32_t KernelBuffers::number(std::int32_t plan_buffer, bool written) {
  for (std::size_t i = 0; i < plan_buffers.size(); ++i) {
    if (plan_buffers[i] != plan_buffer) continue;
    declared[i].written = declared[i].written || written;
    return static_cast<std::int32_t>(i);
  }
  const BufferPlan& buffer = all_[static_cast<std::size_t>(plan_buffer)];
  plan_buffers.push_back(plan_buffer);
  declared.push_back({buffer.dtype, buffer.elements, written, buffer.storage == Storage::worker});
  return static_cast<std::int32_t>(plan_buffers.size() - 1);
}

double reduction_identity(Reduction kind, DType dtype) {
  const double infinity = std::numeric_limits<double>::infinity();
  const int bits = static_cast<int>(size_of(dtype)) * 8;
  const bool is_signed = is_signed_integer(dtype);
  switch (kind) {
    case Reduction::prod:
    case Reduction::all: return 1;
    case Reduction::max:
      if (is_float(dtype)) return -infinity;
      return is_signed ? -std::ldexp(1.0, bits - 1) : 0;
    case Reduction::min:
      if (is_float(dtype)) return infinity;
      return std::ldexp(1.0, is_signed ? bits - 1 : bits) - 1;
    default: return 0;
  }
}

ReduceKind reduce_kind_of(Reduction kind) {
  switch (kind) {
    case Reduction::prod: return ReduceKind::prod;
    case Reduction::min: return ReduceKind::min;
    case Reduction::max: return ReduceKind::max;
    case Reduction::any: return ReduceKind::any;
    case Reduction::all: return ReduceKind::all;
    default: return ReduceKind::sum;
  }
}

ScalarValue ExpressionBuilder::load(loop::Access access, DType dtype) {
  for (std::size_t i = 0; i < accesses_.size(); ++i) {
    if (accesses_[i] == access)
      return builder_.add(
          {.op = ScalarOp::load, .dtype = dtype, .index = static_cast<std::int32_t>(i)});
  }
  accesses_.push_back(std::move(access));
  return builder_.add({.op = ScalarOp::load,
                       .dtype = dtype,
                       .index = static_cast<std::int32_t>(accesses_.size() - 1)});
}

loop::Access ExpressionBuilder::access(std::int32_t buffer, std::int64_t offset,
                                       const std::vector<std::int64_t>& strides, bool written) {
  for (std::size_t axis = 0; axis < origin_.size(); ++axis) offset += origin_[axis] * strides[axis];
  loop::Access result{
      .buffer = buffers_.number(buffer, written), .offset = offset, .strides = map_(strides)};
  // What is the same for all points may be read where there is none.
  for (const loop::Guard& guard : guards_) {
    bool moves = written;
    for (std::size_t dim = 0; dim < result.strides.size(); ++dim)
      moves = moves || (result.strides[dim] != 0 && guard.coefficients[dim] != 0);
    if (moves) result.guards.push_back(guard);
  }
  return result;
}

loop::Access ExpressionBuilder::access_of(ValueId id, bool written) {
  const Located located = locate_(id);
  return access(located.buffer, located.view.offset, broadcast_strides(located.view, dims_),
                written);
}

ScalarValue ExpressionBuilder::operand(ValueId id) {
  if (id.node < 0) return {};
  const auto known = values_.find(id);
  if (known != values_.end()) return known->second;
  if (std::find(recomputed_.begin(), recomputed_.end(), id.node) != recomputed_.end()) {
    add(id.node);
    return values_.at(id);
  }
  const Node& node = graph_.node(id);
  if (const auto* constant = node.op.as<op::Constant>();
      constant && constant->value.elements() == 1) {
    const ScalarDatum datum = load_datum(constant->value.dtype(), constant->value.data(), 0);
    return builder_.add({.op = ScalarOp::constant,
                         .dtype = constant->value.dtype(),
                         .value = datum.number.real(),
                         .integer = datum.integer});
  }
  return load(access_of(id, false), graph_.type(id).dtype);
}

loop::Store ExpressionBuilder::store(ValueId id) {
  return {access_of(id, true), values_.at(id).id()};
}

void ExpressionBuilder::add(std::int32_t index) {
  const Node& node = graph_.nodes()[static_cast<std::size_t>(index)];
  const ValueId id{index, 0};
  if (is_view_op(node.op)) {
    values_[id] = operand(node.inputs[0]);
  } else if (node.op.is<op::Update>()) {
    values_[id] = operand(node.inputs[1]);
  } else if (node.op.is<op::Gather>()) {
    values_[id] = gather(node);
  } else if (node.op.is<op::GatherElements>()) {
    values_[id] = gather_elements(node);
  } else if (node.op.is<op::GatherNd>()) {
    values_[id] = gather_nd(node);
  } else if (node.op.is<op::DynamicSlice>()) {
    values_[id] = dynamic_slice(node);
  } else if (node.op.is<op::Pad>()) {
    values_[id] = padded(node);
  } else if (node.op.is<op::Reduce>() || node.op.is<op::ArgReduce>()) {
    values_[id] = reduction(node);
  } else {
    RLX_CHECK(node.op.info().scalar, "{} has no scalar meaning", node.op.name());
    std::vector<ScalarValue> operands;
    for (const ValueId input : node.inputs) operands.push_back(operand(input));
    values_[id] = node.op.info().scalar(node.op.attributes(), builder_, operands);
  }
}

namespace {

/// By axis of their list, how far each place lies behind the one before it, where that is the same
/// all along the axis.
std::optional<std::vector<std::int64_t>> steps_of(const std::vector<std::int64_t>& places,
                                                  std::span<const std::int64_t> dims) {
  if (places.empty()) return std::nullopt;
  std::vector<std::int64_t> steps(dims.size(), 0);
  std::int64_t below = 1;  // elements of the axes behind
  for (std::size_t axis = dims.size(); axis-- > 0; below *= dims[axis])
    if (dims[axis] > 1) steps[axis] = places[static_cast<std::size_t>(below)] - places[0];
  for (std::size_t i = 0; i < places.size(); ++i) {
    std::int64_t place = places[0], rest = static_cast<std::int64_t>(i);
    for (std::size_t axis = dims.size(); axis-- > 0; rest /= dims[axis])
      place += rest % dims[axis] * steps[axis];
    if (place != places[i]) return std::nullopt;
  }
  return steps;
}

/// The largest step of places of which none lies before the one before it; else 0.
std::int32_t largest_step(const std::vector<std::int64_t>& places) {
  std::int64_t step = 1;
  for (std::size_t i = 1; i < places.size(); ++i) {
    if (places[i] < places[i - 1]) return 0;
    step = std::max(step, places[i] - places[i - 1]);
  }
  return static_cast<std::int32_t>(std::min<std::int64_t>(step, 1 << 30));
}

}  // namespace

// result[outer..., i..., inner...] = x[outer..., index[i...], inner...]; constant places at equal
// distances are strides.
ScalarValue ExpressionBuilder::gather(const Node& node) {
  const Located x = locate_(node.inputs[0]);
  const auto rank = static_cast<std::int64_t>(x.view.dims.size());
  const std::int64_t named = node.op.as<op::Gather>()->axis;
  const auto axis = static_cast<std::size_t>(named < 0 ? named + rank : named);
  const Type& list = graph_.type(node.inputs[1]);
  const auto index_rank = static_cast<std::size_t>(list.rank());
  std::vector<std::int64_t> x_strides(dims_.size(), 0);
  for (std::size_t i = 0; i < x.view.dims.size(); ++i) {
    if (i == axis || x.view.dims[i] == 1) continue;
    x_strides[i < axis ? i : i + index_rank - 1] = x.view.strides[i];
  }
  loop::Indirect part{.stride = x.view.strides[axis], .extent = x.view.dims[axis]};
  const auto [places, from_end] = known_places(graph_.node(node.inputs[1]), part.extent);
  if (const auto steps = steps_of(places, list.dims())) {
    for (std::size_t i = 0; i < index_rank; ++i) x_strides[axis + i] = (*steps)[i] * part.stride;
    const std::int64_t first = x.view.offset + places[0] * part.stride;
    return load(access(x.buffer, first, x_strides, false), node.results[0].dtype);
  }
  ScalarValue position;
  if (values_.contains(node.inputs[1])) {
    position = values_.at(node.inputs[1]);
  } else {
    // Broadcast to the result: axes before and after are of size 1.
    const Located ids = locate_(node.inputs[1]);
    std::vector<std::int64_t> index_strides(dims_.size(), 0);
    for (std::size_t i = 0; i < index_rank; ++i)
      if (ids.view.dims[i] != 1) index_strides[axis + i] = ids.view.strides[i];
    position = load(access(ids.buffer, ids.view.offset, index_strides, false), list.dtype);
  }
  part.within = !places.empty() && !from_end;
  if (part.within) part.step = largest_step(places);
  else position = builder_.cast(position, i64);
  part.node = position.id();
  uses_indices_ = uses_indices_ || !part.within;
  loop::Access picked = access(x.buffer, x.view.offset, x_strides, false);
  picked.indirect.push_back(part);
  return load(std::move(picked), node.results[0].dtype);
}

// result[i, j] = x[index[i, j], j] for axis 0, and so on.
ScalarValue ExpressionBuilder::gather_elements(const Node& node) {
  const Located x = locate_(node.inputs[0]);
  const std::int64_t named = node.op.as<op::GatherElements>()->axis;
  const auto axis = static_cast<std::size_t>(
      named < 0 ? named + static_cast<std::int64_t>(x.view.dims.size()) : named);
  std::vector<std::int64_t> strides = x.view.strides;
  strides[axis] = 0;
  uses_indices_ = true;
  const ScalarValue position = builder_.cast(operand(node.inputs[1]), i64);
  loop::Access picked = access(x.buffer, x.view.offset, strides, false);
  picked.indirect.push_back({position.id(), x.view.strides[axis], x.view.dims[axis]});
  return load(std::move(picked), node.results[0].dtype);
}

// result[b..., i..., inner...] = x[b..., index[b..., i..., :], inner...]
ScalarValue ExpressionBuilder::gather_nd(const Node& node) {
  const Located x = locate_(node.inputs[0]), ids = locate_(node.inputs[1]);
  const auto batches = static_cast<std::size_t>(node.op.as<op::GatherNd>()->batch_dims);
  const std::size_t leading = ids.view.dims.size() - 1;
  const auto depth = static_cast<std::size_t>(ids.view.dims.back());
  std::vector<std::int64_t> index_strides(dims_.size(), 0), x_strides(dims_.size(), 0);
  for (std::size_t i = 0; i < leading; ++i) index_strides[i] = ids.view.strides[i];
  for (std::size_t i = 0; i < batches; ++i) x_strides[i] = x.view.strides[i];
  for (std::size_t i = batches + depth; i < x.view.dims.size(); ++i)
    x_strides[leading + i - batches - depth] = x.view.strides[i];
  uses_indices_ = true;
  loop::Access picked = access(x.buffer, x.view.offset, x_strides, false);
  for (std::size_t k = 0; k < depth; ++k) {
    const std::int64_t first =
        ids.view.offset + static_cast<std::int64_t>(k) * ids.view.strides.back();
    loop::Access index = access(ids.buffer, first, index_strides, false);
    const ScalarValue position =
        builder_.cast(load(std::move(index), graph_.type(node.inputs[1]).dtype), i64);
    picked.indirect.push_back(
        {position.id(), x.view.strides[batches + k], x.view.dims[batches + k]});
  }
  return load(std::move(picked), node.results[0].dtype);
}

// result[i...] = x[clamp(start, 0, dim - size) + i...]
ScalarValue ExpressionBuilder::dynamic_slice(const Node& node) {
  const Located x = locate_(node.inputs[0]);
  uses_indices_ = true;
  loop::Access picked = access(x.buffer, x.view.offset, x.view.strides, false);
  for (std::size_t i = 0; i < x.view.dims.size(); ++i) {
    const std::int64_t last = x.view.dims[i] - dims_[i];
    if (last == 0) continue;
    const ScalarValue start = builder_.cast(operand(node.inputs[1 + i]), i64);
    const ScalarValue inside = scalar::min(scalar::max(start, 0.0), static_cast<double>(last));
    picked.indirect.push_back({inside.id(), x.view.strides[i], x.view.dims[i]});
  }
  return load(std::move(picked), node.results[0].dtype);
}

ScalarValue ExpressionBuilder::padded(const Node& node) {
  const auto* pad = node.op.as<op::Pad>();
  const Located x = locate_(node.inputs[0]);
  loop::Access inside = access(x.buffer, x.view.offset, x.view.strides, false);
  for (std::size_t i = 0; i < dims_.size(); ++i) {
    inside.offset -= pad->low[i] * x.view.strides[i];
    if (pad->low[i] <= 0 && pad->high[i] <= 0) continue;
    std::vector<std::int64_t> unit(dims_.size(), 0);
    unit[i] = 1;
    const std::int64_t start = origin_.empty() ? 0 : origin_[i];
    inside.guards.push_back(
        {.offset = start - pad->low[i], .extent = x.view.dims[i], .coefficients = map_(unit)});
  }
  if (node.inputs.size() > 1 && node.inputs[1].node >= 0) {
    const Tensor& fill = graph_.node(node.inputs[1]).op.as<op::Constant>()->value;
    const ScalarDatum datum = load_datum(fill.dtype(), fill.data(), 0);
    inside.fill = is_float(fill.dtype()) ? datum.number.real() : static_cast<double>(datum.integer);
  }
  return load(std::move(inside), node.results[0].dtype);
}

ScalarValue ExpressionBuilder::reduction(const Node& node) {
  const ScalarValue x = operand(node.inputs[0]);
  if (const auto* arg = node.op.as<op::ArgReduce>()) {
    return builder_.reduce(arg->max ? ReduceKind::argmax : ReduceKind::argmin, x);
  }
  return builder_.reduce(reduce_kind_of(node.op.as<op::Reduce>()->kind), x);
}

}  // namespace rlx::plan
