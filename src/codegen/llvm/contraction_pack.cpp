// Copies one column block of an unpacked B into a worker's scratch panel: by register transposition
// where B runs along k, element by element elsewhere.
#include "codegen/llvm/contraction.hpp"
#include "codegen/llvm/scalar_emitter.hpp"

namespace rlx::codegen {
namespace {

using llvm::Value;
using Values = std::vector<Value*>;
using Integers = std::vector<std::int64_t>;

class PanelCopy {
 public:
  PanelCopy(const ContractionContext& context, PartFunction& part)
      : context_(context),
        contraction_(context.contraction),
        plan_(context.plan),
        part_(part),
        emitter_(part.emitter()),
        builder_(emitter_.builder),
        b_bytes_(static_cast<std::int64_t>(size_of(context.b_dtype()))),
        bytes_(static_cast<std::int64_t>(size_of(contraction_.accumulator))) {}

  void emit() {
    const std::vector<AddressDim>& k = plan_.k_open;
    Integers extents, steps;
    std::int64_t taps = 1;
    for (std::size_t i = 0; i + 1 < k.size(); ++i) {
      extents.push_back(k[i].extent);
      steps.push_back(k[i].b * b_bytes_);
      taps *= k[i].extent;
    }
    const AddressDim& inner = k.back();
    const std::int64_t tap_bytes = inner.extent * plan_.block_columns * bytes_;
    emitter_.loop(emitter_.i64(0), emitter_.i64(taps), 1, [&](Value* tap) {
      Value* offset = emit_linear_sums(emitter_, tap, extents, {steps}, {0})[0];
      Value* panel =
          bytes_at(part_.argument(1), builder_.CreateMul(tap, builder_.getInt64(tap_bytes)));
      emitter_.loop(emitter_.i64(0), emitter_.i64(plan_.block_columns), plan_.lanes,
                    [&](Value* column) {
                      emit_strip(inner, bytes_at(part_.argument(0), offset),
                                 bytes_at(panel, scaled(column, bytes_)), column);
                    });
    });
    builder_.CreateRetVoid();
  }

 private:
  Value* bytes_at(Value* pointer, Value* offset) {
    return builder_.CreateGEP(builder_.getInt8Ty(), pointer, offset);
  }
  Value* scaled(Value* index, std::int64_t step) {
    return builder_.CreateMul(index, builder_.getInt64(step));
  }

  /// One register's width of columns, from `column` on.
  void emit_strip(const AddressDim& inner, Value* source, Value* panel, Value* column) {
    // Columns that do not exist repeat the last one: their sums are never stored.
    Value* last = builder_.CreateSub(part_.argument(2), builder_.getInt64(1));
    Values pointers;
    for (unsigned lane = 0; lane < plan_.lanes; ++lane) {
      Value* at = builder_.CreateAdd(column, builder_.getInt64(lane));
      if (plan_.tail()) at = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, at, last);
      pointers.push_back(bytes_at(source, scaled(at, contraction_.b_n_stride * b_bytes_)));
    }
    const std::int64_t lanes = plan_.lanes;
    std::int64_t done = 0;
    if (inner.b == 1) {
      done = inner.extent / lanes * lanes;
      emitter_.loop(emitter_.i64(0), emitter_.i64(done), lanes,
                    [&](Value* k) { emit_square(pointers, panel, k); });
    }
    emitter_.loop(emitter_.i64(done), emitter_.i64(inner.extent), 1, [&](Value* k) {
      Value* row =
          llvm::PoisonValue::get(value_type(emitter_, contraction_.accumulator, plan_.lanes));
      for (unsigned lane = 0; lane < plan_.lanes; ++lane) {
        Value* element =
            emit_widening_load(emitter_, context_.b_dtype(), contraction_.accumulator,
                               bytes_at(pointers[lane], scaled(k, inner.b * b_bytes_)), 1);
        row = builder_.CreateInsertElement(row, element, lane);
      }
      emit_store(emitter_, contraction_.accumulator, row, panel_row(panel, k), 1, plan_.lanes);
    });
  }

  Value* panel_row(Value* panel, Value* k) {
    return bytes_at(panel, scaled(k, plan_.block_columns * bytes_));
  }

  /// lanes x lanes elements, transposed by log2(lanes) rounds of interleaving halves.
  void emit_square(const Values& pointers, Value* panel, Value* k) {
    const unsigned lanes = plan_.lanes;
    Values rows;
    for (Value* pointer : pointers) {
      rows.push_back(emit_widening_load(emitter_, context_.b_dtype(), contraction_.accumulator,
                                        bytes_at(pointer, scaled(k, b_bytes_)), lanes));
    }
    std::vector<int> low, high;
    for (unsigned i = 0; i < lanes; ++i) {
      low.push_back(static_cast<int>(i / 2 + (i % 2) * lanes));
      high.push_back(static_cast<int>((lanes + i) / 2 + (i % 2) * lanes));
    }
    for (unsigned round = 1; round < lanes; round *= 2) {
      Values next(lanes);
      for (unsigned i = 0; i < lanes / 2; ++i) {
        next[2 * i] = builder_.CreateShuffleVector(rows[i], rows[i + lanes / 2], low);
        next[2 * i + 1] = builder_.CreateShuffleVector(rows[i], rows[i + lanes / 2], high);
      }
      rows = std::move(next);
    }
    for (unsigned i = 0; i < lanes; ++i) {
      Value* at = panel_row(panel, builder_.CreateAdd(k, builder_.getInt64(i)));
      emit_store(emitter_, contraction_.accumulator, rows[i], at, 1, lanes);
    }
  }

  const ContractionContext& context_;
  const loop::Contraction& contraction_;
  const ContractionPlan& plan_;
  PartFunction& part_;
  Emitter& emitter_;
  llvm::IRBuilder<>& builder_;
  std::int64_t b_bytes_, bytes_;
};

}  // namespace

llvm::Function* emit_panel_copy(const ContractionContext& context) {
  llvm::Type* pointer = context.emitter.builder.getPtrTy();
  PartFunction part(context.emitter, "copy_panel",
                    {pointer, pointer, context.emitter.builder.getInt64Ty()});
  PanelCopy(context, part).emit();
  return part.function();
}

}  // namespace rlx::codegen
