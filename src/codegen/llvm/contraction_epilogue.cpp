// The epilogue: the contraction's scalar nodes over a tile of accumulators just stored, a row at a
// time, one or two registers of columns at a time; or over accumulators still in their registers.
#include "codegen/llvm/contraction.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "codegen/llvm/scalar_emitter.hpp"

namespace rlx::codegen {

using llvm::Value;
using Values = std::vector<Value*>;
using Integers = std::vector<std::int64_t>;

namespace {

bool cheap(ScalarOp op) {
  switch (op) {
    case ScalarOp::constant:
    case ScalarOp::load:
    case ScalarOp::accumulator:
    case ScalarOp::neg:
    case ScalarOp::abs:
    case ScalarOp::cast:
    case ScalarOp::add:
    case ScalarOp::sub:
    case ScalarOp::mul:
    case ScalarOp::min:
    case ScalarOp::max:
    case ScalarOp::less:
    case ScalarOp::greater:
    case ScalarOp::select: return true;
    default: return false;
  }
}

bool wide_type(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::i32;
}

}  // namespace

bool ContractionContext::pads(const loop::Access& access) const {
  const loop::Buffer& buffer = emitter.kernel.buffers[access.buffer];
  const std::int64_t padded = plan.column_blocks * plan.block_columns;
  if (!buffer.local || access.offset != 0 || buffer.elements < plan.batches * plan.rows * padded)
    return false;
  // Elements may be left over because matrices lie apart, and not rows.
  const auto lie_apart = [&](const std::vector<std::int64_t>& extents, std::size_t first) {
    for (std::size_t i = 0; i < extents.size(); ++i) {
      if (extents[i] > 1 && access.strides[first + i] < padded) return false;
    }
    return true;
  };
  return lie_apart(contraction.batch_extents, 0) &&
         lie_apart(contraction.m_extents, contraction.batch_extents.size());
}

bool ContractionContext::register_epilogue() const {
  // Sums of bytes are converted and scaled by row and by column before anything else.
  const std::size_t most_operations = contraction.accumulator == DType::i32 ? 8 : 6;
  if (contraction.stores.empty() || plan.tile_steps > 0) return false;
  if (plan.columns % plan.lanes != 0 && !emitter.machine.masks) {
    constexpr unsigned least_bytes = 32;  // of registers with masked loads
    if (emitter.machine.vector_bytes < least_bytes) return false;
  }
  std::size_t operations = 0;
  for (const ScalarNode& node : contraction.nodes) {
    const bool rounds = node.op == ScalarOp::cast && node.dtype == DType::bf16;
    if (!cheap(node.op) || !(wide_type(node.dtype) || node.dtype == DType::boolean || rounds))
      return false;
    operations += node.a >= 0;
  }
  if (operations * contraction.stores.size() > most_operations) return false;
  std::vector<Integers> m_strides;
  const auto simple = [&](const loop::Access& access) {
    const auto first =
        access.strides.begin() + static_cast<std::ptrdiff_t>(contraction.batch_extents.size());
    m_strides.emplace_back(first, access.strides.end() - 1);
    return access.guards.empty() && access.indirect.empty();
  };
  for (const loop::Access& access : contraction.accesses) {
    const std::int64_t step = access.strides.back();
    const bool wide = wide_type(emitter.kernel.buffers[access.buffer].dtype);
    if (!simple(access) || !wide || (step != 0 && step != 1)) return false;
  }
  for (const loop::Store& store : contraction.stores) {
    const DType dtype = emitter.kernel.buffers[store.access.buffer].dtype;
    const bool rounds = dtype == DType::bf16 && emitter.machine.bf16_dot;
    if (!(simple(store.access) && (wide_type(dtype) || rounds)) || store.access.strides.back() != 1)
      return false;
  }
  return merge_dims(contraction.m_extents, m_strides).size() <= 1;
}

bool ContractionContext::own_tail() const {
  if (!plan.tail()) return false;
  if (plan.column_source == ColumnSource::in_place) return true;
  return !emitter.machine.masks && (last_vectors(plan) < plan.vectors || register_epilogue());
}

namespace {

class TileEpilogue {
 public:
  TileEpilogue(const ContractionContext& context, PartFunction& part)
      : contraction_(context.contraction),
        plan_(context.plan),
        part_(part),
        emitter_(part.emitter()),
        builder_(emitter_.builder) {
    for (const loop::Access& access : contraction_.accesses) accesses_.push_back(&access);
    for (const loop::Store& store : contraction_.stores) accesses_.push_back(&store.access);
    batch_dims_ = contraction_.batch_extents.size();
    dims_ = batch_dims_ + contraction_.m_extents.size() + 1;
    // Two registers at a time: long chains of operations such as erf then overlap.
    const unsigned wide = 2 * plan_.lanes;
    const bool cheap_tail = emitter_.machine.masks || plan_.columns % wide == 0;
    lanes_ = plan_.block_columns % wide == 0 && cheap_tail ? wide : plan_.lanes;
  }

  void emit() {
    part_.load_buffers(0);
    Value* batch = part_.argument(2);
    batch_index_ = emit_coordinates(emitter_, batch, contraction_.batch_extents);
    const Values bases = offsets(batch, contraction_.batch_extents, 0, true);
    for (std::size_t i = 0; i < accesses_.size(); ++i) {
      bases_.push_back(bytes_at(emitter_.buffers[accesses_[i]->buffer], bases[i]));
    }
    const std::int64_t bytes = static_cast<std::int64_t>(size_of(contraction_.accumulator));
    emitter_.loop(emitter_.i64(0), part_.argument(4), 1, [&](Value* row) {
      Value* tile_offset = builder_.CreateMul(row, builder_.getInt64(plan_.block_columns * bytes));
      emit_row(builder_.CreateAdd(part_.argument(3), row),
               bytes_at(part_.argument(1), tile_offset));
    });
    builder_.CreateRetVoid();
  }

 private:
  Value* bytes_at(Value* pointer, Value* offset) {
    return builder_.CreateGEP(builder_.getInt8Ty(), pointer, offset);
  }
  std::int64_t element_bytes(const loop::Access& access) const {
    return static_cast<std::int64_t>(size_of(emitter_.kernel.buffers[access.buffer].dtype));
  }

  /// Byte offsets of every access along some dims, from `first` in the domain on.
  Values offsets(Value* linear, const Integers& extents, std::size_t first, bool with_start) {
    std::vector<Integers> strides;
    Integers starts;
    for (const loop::Access* access : accesses_) {
      Integers list;
      for (std::size_t i = 0; i < extents.size(); ++i) {
        list.push_back(access->strides[first + i] * element_bytes(*access));
      }
      strides.push_back(std::move(list));
      starts.push_back(with_start ? access->offset * element_bytes(*access) : 0);
    }
    const std::vector<AddressDim> merged = merge_dims(extents, strides);
    Integers merged_extents;
    std::vector<Integers> steps(accesses_.size());
    for (const AddressDim& dim : merged) {
      merged_extents.push_back(dim.extent);
      for (std::size_t i = 0; i < steps.size(); ++i) steps[i].push_back(dim.guards[i]);
    }
    return emit_linear_sums(emitter_, linear, merged_extents, steps, starts);
  }

  void emit_row(Value* row, Value* tile) {
    row_index_ = emit_coordinates(emitter_, row, contraction_.m_extents);
    const Values steps = offsets(row, contraction_.m_extents, batch_dims_, false);
    const std::uint64_t covered = (std::uint64_t{1} << (dims_ - 1)) - 1;
    addresses_.clear();
    for (std::size_t i = 0; i < accesses_.size(); ++i) {
      addresses_.push_back({bytes_at(bases_[i], steps[i]), covered});
    }
    Value* left = builder_.CreateSub(builder_.getInt64(plan_.columns), part_.argument(5));
    Value* count = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, left,
                                                  builder_.getInt64(plan_.block_columns));
    Value* lanes = builder_.getInt64(lanes_);
    Value* whole = builder_.CreateMul(builder_.CreateUDiv(count, lanes), lanes);
    if (!plan_.tail()) whole = builder_.getInt64(plan_.block_columns);
    if (plan_.columns >= lanes_) {
      emitter_.loop(emitter_.i64(0), whole, lanes_,
                    [&](Value* at) { emit_columns(tile, at, nullptr); });
    }
    if (plan_.columns % lanes_ == 0) return;
    emitter_.when(builder_.CreateICmpNE(whole, count), [&] {
      Value* rest = builder_.CreateSub(count, whole);
      emit_columns(tile, whole, tail_mask(emitter_, rest, lanes_));
    });
  }

  void emit_columns(Value* tile, Value* at, Value* mask) {
    const std::int64_t bytes = static_cast<std::int64_t>(size_of(contraction_.accumulator));
    Point point;
    point.index = batch_index_;
    point.index.insert(point.index.end(), row_index_.begin(), row_index_.end());
    point.index.push_back(builder_.CreateAdd(part_.argument(5), at));
    point.vector_dim = static_cast<int>(dims_) - 1;
    point.lanes = lanes_;
    point.mask = mask;
    PointExpression expression(emitter_, contraction_.nodes, contraction_.accesses, point,
                               contraction_.error_buffer);
    const std::size_t loads = contraction_.accesses.size();
    expression.set_addresses({addresses_.data(), loads});
    Value* accumulators =
        emit_load(emitter_, contraction_.accumulator,
                  bytes_at(tile, builder_.CreateMul(at, builder_.getInt64(bytes))), 1, lanes_);
    expression.set_accumulator(accumulators, contraction_.accumulator);
    for (std::size_t i = 0; i < contraction_.stores.size(); ++i) {
      expression.store(contraction_.stores[i], addresses_[loads + i]);
    }
  }

  const loop::Contraction& contraction_;
  const ContractionPlan& plan_;
  PartFunction& part_;
  Emitter& emitter_;
  llvm::IRBuilder<>& builder_;
  std::vector<const loop::Access*> accesses_;  ///< loads, then stores
  unsigned lanes_ = 1;                         ///< columns computed at a time
  std::size_t batch_dims_ = 0, dims_ = 0;
  Values batch_index_, row_index_, bases_;
  std::vector<PartialAddress> addresses_;  ///< as accesses_, in the current row
};

/// The nodes on each register of accumulators, without the way through the tile.
class RegisterEpilogue {
 public:
  RegisterEpilogue(const ContractionContext& context, PartFunction& part, std::int64_t rows,
                   const Values& masks)
      : context_(context),
        plan_(context.plan),
        part_(part),
        emitter_(part.emitter()),
        builder_(emitter_.builder),
        rows_(rows),
        masks_(masks) {}

  /// Asks for the lines that the epilogue will read and write; they arrive while sums are made.
  void emit_asking() {
    const loop::Contraction& contraction = context_.contraction;
    part_.load_buffers(4);
    for (const loop::Access& access : contraction.accesses) emit_asking(access, false);
    for (const loop::Store& store : contraction.stores) emit_asking(store.access, true);
  }

  void emit(const Values& sums) {
    const loop::Contraction& contraction = context_.contraction;
    part_.load_buffers(4);
    std::vector<EpilogueAddress> addresses;
    for (const loop::Access& access : contraction.accesses) {
      addresses.push_back(epilogue_address(access));
    }
    for (const loop::Store& store : contraction.stores) {
      addresses.push_back(epilogue_address(store.access));
    }
    for (std::int64_t r = 0; r < rows_; ++r) {
      if (!plan_.one_height || r + 1 < rows_) {
        emit_row(sums, addresses, r);
        continue;
      }
      // In a short block the last row belongs to the next one.
      Value* first_tall = builder_.getInt64(plan_.short_blocks * plan_.block_rows);
      emitter_.when(builder_.CreateICmpSGE(part_.argument(3), first_tall),
                    [&] { emit_row(sums, addresses, r); });
    }
  }

 private:
  /// An access of the epilogue at the block's first element, and its steps in bytes.
  struct EpilogueAddress {
    Value* first = nullptr;
    std::int64_t row_step = 0, column_step = 0;
  };

  void emit_asking(const loop::Access& access, bool write) {
    constexpr std::int64_t line = 64;
    if (emitter_.kernel.buffers[access.buffer].local) return;
    const EpilogueAddress address = epilogue_address(access);
    if (address.row_step == 0 || address.column_step == 0) return;
    const std::int64_t bytes = plan_.vectors * plan_.lanes * address.column_step;
    for (std::int64_t r = 0; r < rows_; ++r) {
      for (std::int64_t at = 0; at < bytes; at += line) {
        emit_prefetch(emitter_, bytes_at(address.first, r * address.row_step + at), write, 3);
      }
    }
  }

  EpilogueAddress epilogue_address(const loop::Access& access) {
    const loop::Contraction& contraction = context_.contraction;
    const auto bytes =
        static_cast<std::int64_t>(size_of(emitter_.kernel.buffers[access.buffer].dtype));
    const auto first_m =
        access.strides.begin() + static_cast<std::ptrdiff_t>(contraction.batch_extents.size());
    Integers batch_steps(access.strides.begin(), first_m);
    for (std::int64_t& step : batch_steps) step *= bytes;
    // The rows are one dim here, or none.
    const auto rows =
        merge_dims(contraction.m_extents, {Integers(first_m, access.strides.end() - 1)});
    EpilogueAddress address;
    address.row_step = rows.empty() ? 0 : rows[0].guards[0] * bytes;
    address.column_step = access.strides.back() * bytes;
    Value* offset = emit_linear_sums(emitter_, part_.argument(2), contraction.batch_extents,
                                     {batch_steps}, {access.offset * bytes})[0];
    Value* column = builder_.CreateSub(builder_.getInt64(plan_.columns), part_.argument(6));
    const auto moved = [&](Value* index, std::int64_t step) {
      return builder_.CreateAdd(offset, builder_.CreateMul(index, builder_.getInt64(step)));
    };
    offset = moved(part_.argument(3), address.row_step);
    offset = moved(column, address.column_step);
    address.first = bytes_at(emitter_.buffers[access.buffer], offset);
    return address;
  }

  void emit_row(const Values& sums, const std::vector<EpilogueAddress>& addresses, std::int64_t r) {
    const loop::Contraction& contraction = context_.contraction;
    const std::size_t loads = contraction.accesses.size();
    Point point;
    point.index.assign(contraction.stores[0].access.strides.size(), builder_.getInt64(0));
    point.vector_dim = static_cast<int>(point.index.size()) - 1;
    point.lanes = plan_.lanes;
    for (unsigned v = 0; v < plan_.vectors; ++v) {
      std::vector<PartialAddress> places;
      for (const EpilogueAddress& address : addresses) {
        const std::int64_t at = r * address.row_step + v * plan_.lanes * address.column_step;
        places.push_back({bytes_at(address.first, at), ~std::uint64_t{0}});
      }
      point.mask = masks_[v];
      PointExpression expression(emitter_, contraction.nodes, contraction.accesses, point,
                                 contraction.error_buffer);
      expression.set_addresses({places.data(), loads});
      expression.set_accumulator(sums[r * plan_.vectors + v], contraction.accumulator);
      for (std::size_t i = 0; i < contraction.stores.size(); ++i) {
        const loop::Store& store = contraction.stores[i];
        if (!masks_[v] || !context_.pads(store.access)) {
          expression.store(store, places[loads + i]);
          continue;
        }
        const DType dtype = emitter_.kernel.buffers[store.access.buffer].dtype;
        emit_store(emitter_, dtype, splat(emitter_, expression.value(store.node), plan_.lanes),
                   places[loads + i].pointer, 1, plan_.lanes);
      }
    }
  }

  Value* bytes_at(Value* pointer, Value* offset) {
    return builder_.CreateGEP(builder_.getInt8Ty(), pointer, offset);
  }
  Value* bytes_at(Value* pointer, std::int64_t offset) {
    return offset == 0 ? pointer : bytes_at(pointer, builder_.getInt64(offset));
  }

  const ContractionContext& context_;
  const ContractionPlan& plan_;
  PartFunction& part_;
  Emitter& emitter_;
  llvm::IRBuilder<>& builder_;
  std::int64_t rows_;
  const Values& masks_;  ///< by vector; null: all columns are there
};

}  // namespace

void emit_register_epilogue(const ContractionContext& context, PartFunction& part,
                            std::int64_t rows, const std::vector<llvm::Value*>& sums,
                            const std::vector<llvm::Value*>& masks) {
  RegisterEpilogue(context, part, rows, masks).emit(sums);
}

void emit_register_epilogue_asking(const ContractionContext& context, PartFunction& part,
                                   std::int64_t rows) {
  const Values no_masks;
  RegisterEpilogue(context, part, rows, no_masks).emit_asking();
}

llvm::Function* emit_tile_epilogue(const ContractionContext& context) {
  llvm::Type* pointer = context.emitter.builder.getPtrTy();
  llvm::Type* integer = context.emitter.builder.getInt64Ty();
  PartFunction part(context.emitter, "epilogue",
                    {pointer, pointer, integer, integer, integer, integer});
  TileEpilogue(context, part).emit();
  return part.function();
}

Result<BodyFunction> emit_row_epilogue(Emitter& emitter, const loop::Nest& nodes,
                                       std::int64_t rows) {
  RLX_ASSIGN(const BodyFunction made, emit_body(emitter, "row_epilogue", [&](Emitter& inner) {
               return emit_nest(inner, nodes, true);
             }));
  if (made.shape.work_items != rows) {
    return internal_error("The row epilogue's work items ({}) are not its rows ({}).",
                          made.shape.work_items, rows);
  }
  return made;
}

}  // namespace rlx::codegen
