// Expressions at a point: addresses of accesses, guards, data-dependent indices, and nodes in the
// order of need.
#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/GlobalVariable.h>
#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <cmath>

#include "codegen/llvm/nest_plan.hpp"
#include "codegen/llvm/scalar_values.hpp"
#include "codegen/llvm/vector_math.hpp"

namespace rlx::codegen {

PointExpression::PointExpression(Emitter& emitter, std::span<const ScalarNode> nodes,
                                 std::span<const loop::Access> accesses, Point point,
                                 int error_buffer)
    : emitter_(emitter),
      nodes_(nodes),
      accesses_(accesses),
      point_(std::move(point)),
      error_buffer_(error_buffer),
      values_(nodes.size(), nullptr) {}

void PointExpression::set_accumulator(llvm::Value* value, DType dtype) {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].op != ScalarOp::accumulator) continue;
    values_[i] = emit_cast(emitter_, dtype, nodes_[i].dtype, value);
  }
}

llvm::Value* PointExpression::guard_holds(const loop::Guard& guard) {
  auto& b = emitter_.builder;
  llvm::Value* position = emitter_.i64(guard.offset);
  for (std::size_t dim = 0; dim < guard.coefficients.size(); ++dim) {
    const std::int64_t coefficient = guard.coefficients[dim];
    if (coefficient == 0) continue;
    llvm::Value* part = b.CreateMul(point_.index[dim], emitter_.i64(coefficient));
    position = b.CreateAdd(position, part);
  }
  const int dim = point_.vector_dim;
  if (point_.lanes > 1 && dim >= 0 && guard.coefficients[dim] != 0) {
    llvm::Value* steps = splat(emitter_, emitter_.i64(guard.coefficients[dim]), point_.lanes);
    position = b.CreateAdd(splat(emitter_, position, point_.lanes),
                           b.CreateMul(lane_numbers(emitter_, point_.lanes), steps));
  }
  llvm::Value* extent = splat(emitter_, emitter_.i64(guard.extent), lanes_of(position));
  return b.CreateICmpULT(position, extent);
}

llvm::Value* PointExpression::indirect_offset(const loop::Indirect& indirect) {
  auto& b = emitter_.builder;
  llvm::Value* raw = value(indirect.node);
  const unsigned lanes = lanes_of(raw);
  auto all = [&](std::int64_t number) { return splat(emitter_, emitter_.i64(number), lanes); };
  llvm::Value* index = emit_cast(emitter_, nodes_[indirect.node].dtype, DType::i64, raw);
  if (indirect.within) return b.CreateMul(index, all(indirect.stride));
  llvm::Value* negative = b.CreateICmpSLT(index, all(0));
  index = b.CreateSelect(negative, b.CreateAdd(index, all(indirect.extent)), index);
  llvm::Value* bad = b.CreateICmpUGE(index, all(indirect.extent));
  if (error_buffer_ >= 0) {
    if (point_.mask && lanes == point_.lanes) bad = b.CreateAnd(bad, point_.mask);
    llvm::Value* any = lanes == 1 ? bad : b.CreateOrReduce(bad);
    emitter_.when(any, [&] { b.CreateStore(b.getInt32(1), emitter_.buffers[error_buffer_]); });
  }
  index = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, index, all(indirect.extent - 1));
  index = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, index, all(0));
  return b.CreateMul(index, all(indirect.stride));
}

llvm::Value* PointExpression::index_offset(const loop::Access& access) {
  llvm::Value* offset = nullptr;
  for (const loop::Indirect& indirect : access.indirect) {
    llvm::Value* part = indirect_offset(indirect);
    offset = offset ? sum_of_offsets(part, offset) : part;
  }
  return offset;
}

llvm::Value* PointExpression::sum_of_offsets(llvm::Value* a, llvm::Value* b) {
  const unsigned lanes = std::max(lanes_of(a), lanes_of(b));
  return emitter_.builder.CreateAdd(splat(emitter_, a, lanes), splat(emitter_, b, lanes));
}

PointExpression::Place PointExpression::place(const loop::Access& access,
                                              const PartialAddress& address) {
  auto& b = emitter_.builder;
  llvm::Type* element = memory_type(emitter_, emitter_.kernel.buffers[access.buffer].dtype);
  Place place{address.pointer, 0};
  llvm::Value* offset = nullptr;
  if (!place.pointer) {
    place.pointer = emitter_.buffers[access.buffer];
    offset = emitter_.i64(access.offset);
  }
  for (std::size_t dim = 0; dim < access.strides.size(); ++dim) {
    const std::int64_t stride = access.strides[dim];
    const bool along = runs_along_lanes(static_cast<int>(dim));
    if (along) place.stride = stride;
    const bool covered = address.pointer && (address.dims >> dim & 1);
    if (stride == 0 || covered) continue;
    llvm::Value* part = point_.index[dim];
    if (!along || stride != 1) part = b.CreateMul(part, emitter_.i64(stride));
    offset = offset ? b.CreateAdd(offset, part) : part;
  }
  if (!offset) offset = emitter_.i64(0);
  llvm::Value* of_data = address.with_index ? nullptr : index_offset(access);
  if (of_data) offset = sum_of_offsets(offset, of_data);
  if (lanes_of(offset) > 1 && place.stride != 0) {
    llvm::Value* steps = splat(emitter_, emitter_.i64(place.stride), point_.lanes);
    offset = b.CreateAdd(offset, b.CreateMul(lane_numbers(emitter_, point_.lanes), steps));
  }
  place.pointer = b.CreateGEP(element, place.pointer, offset);
  place.guard = address.guard ? address.guard : all_hold(access.guards);
  return place;
}

llvm::Value* PointExpression::all_hold(std::span<const loop::Guard> guards) {
  llvm::Value* all = nullptr;
  for (const loop::Guard& guard : guards) {
    llvm::Value* holds = guard_holds(guard);
    if (!all) {
      all = holds;
      continue;
    }
    const unsigned lanes = std::max(lanes_of(holds), lanes_of(all));
    all = emitter_.builder.CreateAnd(splat(emitter_, all, lanes), splat(emitter_, holds, lanes));
  }
  return all;
}

llvm::Value* PointExpression::lane_mask(llvm::Value* guard) {
  if (!guard || !point_.mask) return guard ? guard : point_.mask;
  return emitter_.builder.CreateAnd(splat(emitter_, guard, point_.lanes), point_.mask);
}

// A load whose mask has no lane left is harmless, but takes hundreds of cycles where its address
// lies on a page that is not there: before the first page of a buffer, behind the last one. Guards
// along the lanes reach a line or two beyond, and asking them costs more than it saves.
llvm::Value* PointExpression::safe_pointer(const Place& place, const loop::Access& access) {
  if (place.stride == 0 || !emitter_.machine.masks) return place.pointer;
  auto& b = emitter_.builder;
  llvm::Value* inside = nullptr;
  for (const loop::Guard& guard : access.guards) {
    llvm::Value* holds = guard_holds(guard);
    if (lanes_of(holds) > 1) continue;
    inside = inside ? b.CreateAnd(inside, holds) : holds;
  }
  return inside ? b.CreateSelect(inside, place.pointer, emitter_.buffers[access.buffer])
                : place.pointer;
}

namespace {

constexpr unsigned line_bytes = 64;

/// A line of zeros.
llvm::Value* zeros(Emitter& emitter) {
  if (llvm::GlobalVariable* known = emitter.module.getNamedGlobal("zeros")) return known;
  auto* type = llvm::ArrayType::get(emitter.builder.getInt8Ty(), line_bytes);
  auto* line =
      new llvm::GlobalVariable(emitter.module, type, true, llvm::GlobalValue::PrivateLinkage,
                               llvm::ConstantAggregateZero::get(type), "zeros");
  line->setAlignment(llvm::Align(line_bytes));
  return line;
}

}  // namespace

llvm::Value* PointExpression::load(const ScalarNode& node) {
  const loop::Access& access = accesses_[node.index];
  const PartialAddress address =
      addresses_.empty() ? PartialAddress{} : addresses_[static_cast<std::size_t>(node.index)];
  const DType dtype = emitter_.kernel.buffers[access.buffer].dtype;
  if (const loop::Indirect* part = picked_part(access, dtype, nodes_, accesses_, point_.vector_dim,
                                               point_.lanes, emitter_.machine)) {
    loop::Access row = access;
    row.indirect.clear();
    return emit_picked(emitter_, dtype, place(row, address).pointer, value(part->node),
                       part->extent, part->step);
  }
  Place place = this->place(access, address);
  llvm::Constant* fill =
      constant_of(emitter_, dtype, 1, access.fill, static_cast<std::int64_t>(access.fill));
  if (lanes_of(place.pointer) > 1) {
    llvm::Value* mask = lane_mask(place.guard);
    if (mask) mask = splat(emitter_, mask, point_.lanes);
    return emit_gather(emitter_, dtype, place.pointer, mask, fill);
  }
  // All lanes or none, which are then zeros: those are read from elsewhere, under no mask.
  const bool is_whole =
      point_.alone && place.guard && lanes_of(place.guard) == 1 && place.stride == 1;
  const bool is_in_line = point_.lanes > 1 && point_.lanes * size_of(dtype) <= line_bytes;
  if (is_whole && is_in_line && access.fill == 0 && !std::signbit(access.fill)) {
    place.pointer = emitter_.builder.CreateSelect(place.guard, place.pointer, zeros(emitter_));
    place.guard = nullptr;
  }
  place.pointer = place.guard ? safe_pointer(place, access) : place.pointer;
  // A broadcast element exists whenever one lane does, so the tail's mask does not matter to it.
  llvm::Value* mask = place.stride == 0 ? place.guard : lane_mask(place.guard);
  if (mask && lanes_of(mask) == 1 && place.stride != 0 && emitter_.machine.masks) {
    mask = splat(emitter_, mask, point_.lanes);
  }
  return emit_load(emitter_, dtype, place.pointer, place.stride, point_.lanes, mask,
                   place.guard ? fill : nullptr);
}

void PointExpression::store(const loop::Store& store, const PartialAddress& address) {
  const DType dtype = emitter_.kernel.buffers[store.access.buffer].dtype;
  llvm::Value* stored = value(store.node);
  const Place place = this->place(store.access, address);
  if (lanes_of(place.pointer) > 1) {
    llvm::Value* mask = lane_mask(place.guard);
    if (mask) mask = splat(emitter_, mask, point_.lanes);
    emit_scatter(emitter_, dtype, stored, place.pointer, mask);
    return;
  }
  const bool single = place.stride == 0 && lanes_of(stored) == 1;
  llvm::Value* mask = single ? place.guard : lane_mask(place.guard);
  if (single && mask && lanes_of(mask) > 1) mask = emitter_.builder.CreateOrReduce(lane_mask(mask));
  const bool in_place =
      std::any_of(accesses_.begin(), accesses_.end(),
                  [&](const loop::Access& access) { return access.buffer == store.access.buffer; });
  emit_store(emitter_, dtype, stored, place.pointer, place.stride, single ? 1 : point_.lanes, mask,
             in_place);
}

std::optional<PointExpression::Series> PointExpression::in_one_go(const ScalarNode& node) const {
  if (is_softmax_power(node, nodes_)) return Series{node.a, emit_normal_exp};
  const ScalarId exponent = emitter_.machine.masks ? logistic_of(node, nodes_) : -1;
  if (exponent >= 0) return Series{exponent, emit_logistic};
  const ScalarId known = emitter_.machine.fma ? curve_beside_one(node, nodes_) : -1;
  if (known < 0 || values_[known]) return std::nullopt;
  const ScalarNode& curve = nodes_[known];
  switch (curve.op) {
    case ScalarOp::erf: return Series{curve.a, emit_one_plus_erf};
    case ScalarOp::tanh: return Series{curve.a, emit_one_plus_tanh};
    default: return Series{curve.a, emit_one_plus_exp};
  }
}

ScalarId PointExpression::operand_of_series(ScalarId node) const {
  const ScalarNode& made = nodes_[node];
  if (made.dtype != DType::f32 || values_[node]) return -1;
  if (const auto series = in_one_go(made)) return series->operand;
  return is_series(made) && made.b < 0 ? made.a : -1;
}

void PointExpression::value_of_both(PointExpression& first, PointExpression& second,
                                    ScalarId node) {
  const ScalarId operand = first.operand_of_series(node);
  if (operand >= 0 && operand == second.operand_of_series(node)) {
    llvm::Value *a = first.value(operand), *b = second.value(operand);
    const unsigned lanes = lanes_of(a);
    if (lanes > 1 && lanes_of(b) == lanes) {
      Emitter& emitter = first.emitter_;
      llvm::Value* both = llvm::concatenateVectors(emitter.builder, {a, b});
      const ScalarNode& made = first.nodes_[node];
      const auto series = first.in_one_go(made);
      both = series ? series->emit(emitter, both) : emit_unary_math(emitter, made.op, both);
      const auto half = [&](unsigned from) {
        return emitter.builder.CreateShuffleVector(both,
                                                   llvm::createSequentialMask(from, lanes, 0));
      };
      first.set(node, half(0));
      second.set(node, half(lanes));
      return;
    }
  }
  first.value(node);
  second.value(node);
}

llvm::Value* PointExpression::value(ScalarId id) {
  llvm::Value*& known = values_[id];
  if (known) return known;
  const ScalarNode& node = nodes_[id];
  switch (node.op) {
    case ScalarOp::constant:
      known = constant_of(emitter_, node.dtype, 1, node.value, node.integer);
      break;
    case ScalarOp::load: known = load(node); break;
    case ScalarOp::domain_index: {
      known = point_.index[node.index];
      if (runs_along_lanes(node.index)) {
        known = emitter_.builder.CreateAdd(splat(emitter_, known, point_.lanes),
                                           lane_numbers(emitter_, point_.lanes));
      }
      break;
    }
    default: {
      if (const auto series = in_one_go(node)) {
        known = series->emit(emitter_, value(series->operand));
        break;
      }
      llvm::Value* a = value(node.a);
      llvm::Value* b = node.b >= 0 ? value(node.b) : nullptr;
      llvm::Value* c = node.c >= 0 ? value(node.c) : nullptr;
      const DType operand = nodes_[node.op == ScalarOp::select ? node.b : node.a].dtype;
      known = emit_scalar(emitter_, node, operand, a, b, c);
    }
  }
  return values_[id];
}

std::optional<std::string> cannot_generate(const loop::Kernel& kernel,
                                           std::span<const ScalarNode> nodes) {
  for (const loop::Buffer& buffer : kernel.buffers) {
    if (!is_complex(buffer.dtype)) continue;
    return "Complex element types (" + std::string(name_of(buffer.dtype)) + ") are not generated.";
  }
  for (const ScalarNode& node : nodes) {
    if (!is_complex(node.dtype)) continue;
    return "Complex element types (" + std::string(name_of(node.dtype)) + ") are not generated.";
  }
  return std::nullopt;
}

}  // namespace rlx::codegen
