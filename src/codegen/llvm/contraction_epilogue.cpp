// The epilogue over accumulators that are still in their registers, and that of whole rows.
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

bool ContractionContext::may_be_in_place(const loop::Access& access) const {
  return std::ranges::any_of(contraction.stores, [&](const loop::Store& store) {
    return store.access.strides == access.strides && store.access.offset == access.offset;
  });
}

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
    std::vector<Row> rows;
    const bool reads_first = may_be_in_place();
    if (reads_first) {
      for (std::int64_t r = 0; r < rows_; ++r) {
        rows.push_back(row_at(sums, addresses, r));
        for (PointExpression& registers : rows.back().registers) {
          for (const loop::Store& store : contraction.stores) registers.value(store.node);
        }
      }
    }
    for (std::int64_t r = 0; r < rows_; ++r) {
      const auto emit = [&] {
        if (!reads_first) rows.push_back(row_at(sums, addresses, r));
        emit_stores(rows[static_cast<std::size_t>(r)]);
      };
      if (is_of_tall(r)) {
        emitter_.when(is_tall(), emit);
      } else {
        emit();
      }
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

  /// The expressions of a row's registers, and where their stores go.
  struct Row {
    std::vector<PointExpression> registers;
    std::vector<std::vector<PartialAddress>> targets;
  };

  /// Do rows end within a register, and may a result take the place of an operand?
  bool may_be_in_place() const {
    return std::ranges::any_of(masks_, [](Value* mask) { return mask != nullptr; }) &&
           std::ranges::any_of(context_.contraction.accesses, [&](const loop::Access& access) {
             return context_.may_be_in_place(access);
           });
  }

  /// In a short block the last row belongs to the next one.
  bool is_of_tall(std::int64_t r) const { return plan_.one_height && r + 1 == rows_; }
  Value* is_tall() {
    Value* first_tall = builder_.getInt64(plan_.short_blocks * plan_.block_rows);
    return builder_.CreateICmpSGE(part_.argument(3), first_tall);
  }

  Row row_at(const Values& sums, const std::vector<EpilogueAddress>& addresses, std::int64_t r) {
    const loop::Contraction& contraction = context_.contraction;
    const std::size_t loads = contraction.accesses.size();
    Row row;
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
      row.registers.emplace_back(emitter_, contraction.nodes, contraction.accesses, point,
                                 contraction.error_buffer);
      row.registers.back().set_addresses({places.data(), loads});
      row.registers.back().set_accumulator(sums[r * plan_.vectors + v], contraction.accumulator);
      row.targets.emplace_back(places.begin() + static_cast<std::ptrdiff_t>(loads), places.end());
    }
    return row;
  }

  void emit_stores(Row& row) {
    const loop::Contraction& contraction = context_.contraction;
    for (unsigned v = 0; v < plan_.vectors; ++v) {
      for (std::size_t i = 0; i < contraction.stores.size(); ++i) {
        const loop::Store& store = contraction.stores[i];
        const PartialAddress& target = row.targets[v][i];
        if (!masks_[v] || !context_.pads(store.access)) {
          row.registers[v].store(store, target);
          continue;
        }
        const DType dtype = emitter_.kernel.buffers[store.access.buffer].dtype;
        emit_store(emitter_, dtype,
                   splat(emitter_, row.registers[v].value(store.node), plan_.lanes), target.pointer,
                   1, plan_.lanes);
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
