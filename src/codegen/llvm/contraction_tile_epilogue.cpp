// The epilogue over a tile of accumulators just stored: the contraction's scalar nodes, one or two
// registers of columns and a few rows at a time.
#include <llvm/Analysis/VectorUtils.h>

#include <algorithm>

#include "codegen/llvm/contraction.hpp"
#include "codegen/llvm/nest_plan.hpp"
#include "codegen/llvm/scalar_values.hpp"

namespace rlx::codegen {
namespace {

using llvm::Value;
using Values = std::vector<Value*>;
using Integers = std::vector<std::int64_t>;

class TileEpilogue {
 public:
  TileEpilogue(const ContractionContext& context, PartFunction& part)
      : context_(context),
        contraction_(context.contraction),
        plan_(context.plan),
        part_(part),
        emitter_(part.emitter()),
        builder_(emitter_.builder) {
    for (const loop::Access& access : contraction_.accesses) accesses_.push_back(&access);
    for (const loop::Store& store : contraction_.stores) accesses_.push_back(&store.access);
    batch_dims_ = contraction_.batch_extents.size();
    dims_ = batch_dims_ + contraction_.m_extents.size() + 1;
    const unsigned wide = 2 * plan_.lanes;
    const bool cheap_tail = emitter_.machine.masks || plan_.columns % wide == 0;
    lanes_ = plan_.block_columns % wide == 0 && cheap_tail ? wide : plan_.lanes;
    rows_together_ = choose_rows();
  }

  void emit() {
    part_.load_buffers(0);
    Value* batch = part_.argument(2);
    batch_index_ = emit_coordinates(emitter_, batch, contraction_.batch_extents);
    const Values bases = offsets(batch, contraction_.batch_extents, 0, true);
    for (std::size_t i = 0; i < accesses_.size(); ++i) {
      bases_.push_back(bytes_at(emitter_.buffers[accesses_[i]->buffer], bases[i]));
    }
    columns_ = columns();
    if (columns_.mask) emit_reading_ahead();
    Value *none = builder_.getInt64(0), *rows = part_.argument(4), *grouped = none;
    if (rows_together_ > 1) {
      Value* step = builder_.getInt64(rows_together_);
      grouped = builder_.CreateMul(builder_.CreateUDiv(rows, step), step);
      emitter_.loop(none, grouped, rows_together_,
                    [&](Value* row) { emit_rows(row, rows_together_); });
    }
    emitter_.loop(grouped, rows, 1, [&](Value* row) { emit_rows(row, 1); });
    builder_.CreateRetVoid();
  }

 private:
  /// Columns of this block of columns, those of them in whole registers, and a mask for the others.
  struct Columns {
    Value *count = nullptr, *whole = nullptr, *mask = nullptr;
  };
  struct Row {
    Value *number = nullptr, *tile = nullptr;  ///< in the block, and its accumulators
    Values index;
    std::vector<PartialAddress> addresses;  ///< as accesses_
  };
  /// What a node reads of every row of the block.
  struct ReadAhead {
    ScalarId node;
    Value* rows;
    bool is_read = false;
  };

  /// A series is a chain of operations in which each waits for the one before; what waits fills the
  /// processor's queue with less than two rows. So rows go side by side, of four registers or six;
  /// of two or three where there are 16, which hold no more (docs/adr/0084).
  std::int64_t choose_rows() const {
    if (!std::ranges::any_of(contraction_.nodes, is_series)) return 1;
    const bool is_wide = lanes_ > plan_.lanes;
    const bool holds_many = emitter_.machine.registers >= 32;
    if (!holds_many && is_wide) return 1;
    const std::int64_t most = !is_wide && holds_many ? 6 : 3, least = most / 2 + 1;
    for (std::int64_t rows = most; rows >= least; --rows) {
      if (plan_.block_rows % rows == 0) return rows;
    }
    return std::min<std::int64_t>(least, std::max<std::int64_t>(plan_.block_rows, 1));
  }

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

  Columns columns() {
    Value* left = builder_.CreateSub(builder_.getInt64(plan_.columns), part_.argument(5));
    Value* count = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, left,
                                                  builder_.getInt64(plan_.block_columns));
    Value* lanes = builder_.getInt64(lanes_);
    Value* whole = builder_.CreateMul(builder_.CreateUDiv(count, lanes), lanes);
    if (!plan_.tail()) whole = builder_.getInt64(plan_.block_columns);
    // Known, so that it is stored in pieces where a mask is dear.
    const std::int64_t rest = plan_.columns % lanes_;
    return {count, whole, rest ? tail_mask(emitter_, builder_.getInt64(rest), lanes_) : nullptr};
  }

  Row enter_row(Value* number) {
    const std::int64_t bytes = static_cast<std::int64_t>(size_of(contraction_.accumulator));
    Row row{.number = number};
    row.tile = bytes_at(part_.argument(1),
                        builder_.CreateMul(number, builder_.getInt64(plan_.block_columns * bytes)));
    Value* linear = builder_.CreateAdd(part_.argument(3), number);
    row.index = emit_coordinates(emitter_, linear, contraction_.m_extents);
    const Values steps = offsets(linear, contraction_.m_extents, batch_dims_, false);
    const std::uint64_t covered = (std::uint64_t{1} << (dims_ - 1)) - 1;
    for (std::size_t i = 0; i < accesses_.size(); ++i) {
      row.addresses.push_back({bytes_at(bases_[i], steps[i]), covered});
    }
    return row;
  }

  /// Reads of all rows what lies in registers that they do not fill, where a result may lie there.
  void emit_reading_ahead() {
    for (std::size_t id = 0; id < contraction_.nodes.size(); ++id) {
      const ScalarNode& node = contraction_.nodes[id];
      if (node.op != ScalarOp::load || node.dtype != DType::f32) continue;
      if (context_.may_be_in_place(contraction_.accesses[static_cast<std::size_t>(node.index)]))
        read_ahead_.push_back({.node = static_cast<ScalarId>(id), .rows = nullptr});
    }
    if (read_ahead_.empty()) return;
    llvm::Type* rows = llvm::ArrayType::get(with_lanes(builder_.getFloatTy(), lanes_),
                                            static_cast<std::uint64_t>(plan_.block_rows + 1));
    for (ReadAhead& ahead : read_ahead_) ahead.rows = builder_.CreateAlloca(rows);
    emitter_.when(has_rest(), [&] {
      emitter_.loop(builder_.getInt64(0), part_.argument(4), 1, [&](Value* number) {
        const Row row = enter_row(number);
        PointExpression point = expression_at(row, columns_.whole, columns_.mask);
        for (const ReadAhead& ahead : read_ahead_)
          builder_.CreateStore(splat(emitter_, point.value(ahead.node), lanes_),
                               place_of(ahead, row));
      });
    });
    for (ReadAhead& ahead : read_ahead_) ahead.is_read = true;
  }
  Value* place_of(const ReadAhead& ahead, const Row& row) {
    return builder_.CreateGEP(with_lanes(builder_.getFloatTy(), lanes_), ahead.rows, row.number);
  }
  /// Are there columns beside those in whole registers?
  Value* has_rest() { return builder_.CreateICmpNE(columns_.whole, columns_.count); }

  void emit_rows(Value* first, std::int64_t count) {
    std::vector<Row> rows;
    for (std::int64_t i = 0; i < count; ++i)
      rows.push_back(enter_row(builder_.CreateAdd(first, builder_.getInt64(i))));
    if (plan_.columns >= lanes_) {
      emitter_.loop(builder_.getInt64(0), columns_.whole, lanes_,
                    [&](Value* at) { emit_columns(rows, at, nullptr); });
    }
    if (!columns_.mask) return;
    emitter_.when(has_rest(), [&] { emit_columns(rows, columns_.whole, columns_.mask); });
  }

  PointExpression expression_at(const Row& row, Value* at, Value* mask) {
    Point point;
    point.index = batch_index_;
    point.index.insert(point.index.end(), row.index.begin(), row.index.end());
    point.index.push_back(builder_.CreateAdd(part_.argument(5), at));
    point.vector_dim = static_cast<int>(dims_) - 1;
    point.lanes = lanes_;
    point.mask = mask;
    PointExpression expression(emitter_, contraction_.nodes, contraction_.accesses,
                               std::move(point), contraction_.error_buffer);
    expression.set_addresses({row.addresses.data(), contraction_.accesses.size()});
    if (!mask) return expression;
    llvm::Type* lanes = with_lanes(builder_.getFloatTy(), lanes_);
    for (const ReadAhead& ahead : read_ahead_) {
      if (ahead.is_read)
        expression.set(ahead.node, builder_.CreateLoad(lanes, place_of(ahead, row)));
    }
    return expression;
  }

  Value* accumulators_of(const Row& row, Value* at) {
    const std::int64_t bytes = static_cast<std::int64_t>(size_of(contraction_.accumulator));
    return emit_load(emitter_, contraction_.accumulator,
                     bytes_at(row.tile, builder_.CreateMul(at, builder_.getInt64(bytes))), 1,
                     lanes_);
  }

  void emit_columns(const std::vector<Row>& rows, Value* at, Value* mask) {
    std::vector<PointExpression> points;
    for (const Row& row : rows) points.push_back(expression_at(row, at, mask));
    if (rows.size() == 1) {
      points[0].set_accumulator(accumulators_of(rows[0], at), contraction_.accumulator);
    } else {
      emit_together(rows, points, at);
    }
    const std::size_t loads = contraction_.accesses.size();
    for (std::size_t i = 0; i < contraction_.stores.size(); ++i) {
      for (std::size_t r = 0; r < rows.size(); ++r)
        points[r].store(contraction_.stores[i], rows[r].addresses[loads + i]);
    }
  }

  /// Gives each row what it stores, computed with the lanes of all rows in one value.
  void emit_together(const std::vector<Row>& rows, std::vector<PointExpression>& points,
                     Value* at) {
    Point point;
    point.index.assign(dims_, builder_.getInt64(0));
    point.vector_dim = static_cast<int>(dims_) - 1;
    point.lanes = lanes_ * static_cast<unsigned>(rows.size());
    PointExpression all(emitter_, contraction_.nodes, contraction_.accesses, std::move(point),
                        contraction_.error_buffer);
    const auto joined = [&](const auto& of_row) {
      Values parts;
      for (std::size_t r = 0; r < rows.size(); ++r)
        parts.push_back(splat(emitter_, of_row(r), lanes_));
      return llvm::concatenateVectors(builder_, parts);
    };
    for (std::size_t id = 0; id < contraction_.nodes.size(); ++id) {
      const ScalarOp op = contraction_.nodes[id].op;
      const auto node = static_cast<ScalarId>(id);
      if (op == ScalarOp::load || op == ScalarOp::domain_index)
        all.set(node, joined([&](std::size_t r) { return points[r].value(node); }));
    }
    all.set_accumulator(joined([&](std::size_t r) { return accumulators_of(rows[r], at); }),
                        contraction_.accumulator);
    for (const loop::Store& store : contraction_.stores) {
      Value* values = splat(emitter_, all.value(store.node), all.point().lanes);
      for (std::size_t r = 0; r < rows.size(); ++r) {
        const auto first = static_cast<unsigned>(r) * lanes_;
        points[r].set(store.node, builder_.CreateShuffleVector(
                                      values, llvm::createSequentialMask(first, lanes_, 0)));
      }
    }
  }

  const ContractionContext& context_;
  const loop::Contraction& contraction_;
  const ContractionPlan& plan_;
  PartFunction& part_;
  Emitter& emitter_;
  llvm::IRBuilder<>& builder_;
  std::vector<const loop::Access*> accesses_;  ///< loads, then stores
  unsigned lanes_ = 1;                         ///< columns computed at a time
  std::int64_t rows_together_ = 1;
  std::size_t batch_dims_ = 0, dims_ = 0;
  Values batch_index_, bases_;
  Columns columns_;
  std::vector<ReadAhead> read_ahead_;
};

}  // namespace

llvm::Function* emit_tile_epilogue(const ContractionContext& context) {
  llvm::Type* pointer = context.emitter.builder.getPtrTy();
  llvm::Type* integer = context.emitter.builder.getInt64Ty();
  PartFunction part(context.emitter, "epilogue",
                    {pointer, pointer, integer, integer, integer, integer});
  TileEpilogue(context, part).emit();
  return part.function();
}

}  // namespace rlx::codegen
