// Copies one column block of an unpacked B into a worker's scratch panel: by register transposition
// where B runs along k, by whole registers where it runs along n, element by
// element elsewhere. Integers and bf16 are paired along k.
#include <optional>

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
    Integers extents, steps, scale_steps;
    std::int64_t taps = 1;
    for (std::size_t i = 0; i + 1 < k.size(); ++i) {
      extents.push_back(k[i].extent);
      steps.push_back(source_bytes(k[i].b));
      scale_steps.push_back(k[i].scale);
      taps *= k[i].extent;
    }
    const AddressDim& inner = k.back();
    const std::int64_t inner_steps = (inner.extent + plan_.unit - 1) / plan_.unit;
    const std::int64_t tap_bytes = inner_steps * plan_.block_columns * bytes_;
    emitter_.loop(emitter_.i64(0), emitter_.i64(taps), 1, [&](Value* tap) {
      const Values at = emit_linear_sums(emitter_, tap, extents, {steps, scale_steps}, {0, 0});
      Value* source = bytes_at(part_.argument(0), at[0]);
      if (contraction_.scales_b())
        scaled_.emplace(context_, emitter_, part_.argument(3), part_.argument(4), at[1],
                        plan_.vectors);
      Value* panel = bytes_at(part_.argument(1), scaled(tap, tap_bytes));
      if (context_.columns_contiguous()) {
        emit_lines(inner, source, panel);
        return;
      }
      emitter_.loop(emitter_.i64(0), emitter_.i64(plan_.block_columns), plan_.lanes,
                    [&](Value* column) { emit_columns(inner, strip_at(source, panel, column)); });
    });
    builder_.CreateRetVoid();
  }

 private:
  Value* bytes_at(Value* pointer, Value* offset) {
    return builder_.CreateGEP(builder_.getInt8Ty(), pointer, offset);
  }
  std::int64_t source_bytes(std::int64_t elements) const {
    return elements * b_bytes_ / (contraction_.b_nibbles ? 2 : 1);
  }
  Value* scaled(Value* index, std::int64_t step) {
    return builder_.CreateMul(index, builder_.getInt64(step));
  }

  /// A register's width of columns.
  struct Strip {
    Value* panel;           ///< where they go
    Values pointers;        ///< to the columns; one where they lie side by side
    Value* mask = nullptr;  ///< the columns that exist, where others must not be read
    unsigned number = 0;    ///< of strips that lie side by side
  };

  /// The strip from `column` on. Columns that do not exist hold anything: their sums are never
  /// stored.
  Strip strip_at(Value* source, Value* panel, Value* column) {
    Strip strip{bytes_at(panel, scaled(column, bytes_)), {}};
    if (context_.columns_contiguous()) {
      strip.pointers.push_back(bytes_at(source, scaled(column, b_bytes_)));
      if (contraction_.b_packed || !plan_.tail()) return strip;
      Value* left = builder_.CreateSub(part_.argument(2), column);
      left = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, left, builder_.getInt64(0));
      strip.mask = tail_mask(emitter_, left, plan_.lanes);
      return strip;
    }
    Value* last = builder_.CreateSub(part_.argument(2), builder_.getInt64(1));
    for (unsigned lane = 0; lane < plan_.lanes; ++lane) {
      Value* at = builder_.CreateAdd(column, builder_.getInt64(lane));
      if (plan_.tail()) at = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, at, last);
      strip.pointers.push_back(bytes_at(source, scaled(at, contraction_.b_n_stride * b_bytes_)));
    }
    return strip;
  }

  /// All strips of a step of k one beside the other, as they lie in B: a row of it may be a page.
  void emit_lines(const AddressDim& inner, Value* source, Value* panel) {
    std::vector<Strip> strips;
    for (unsigned v = 0; v < plan_.vectors; ++v) {
      strips.push_back(strip_at(source, panel, builder_.getInt64(std::int64_t{v} * plan_.lanes)));
      strips.back().number = v;
    }
    emit_steps(inner, 0, strips);
  }

  /// The columns of a strip, each along k.
  void emit_columns(const AddressDim& inner, const Strip& strip) {
    ask_for_next_panel(inner, strip);
    std::int64_t done = 0;
    if (inner.b == 1) {
      // Pairs that lie side by side in memory are elements of 32 bits.
      const std::int64_t square = plan_.lanes * (whole_pairs() ? plan_.unit : 1);
      done = inner.extent / square * square;
      emitter_.loop(emitter_.i64(0), emitter_.i64(done), square,
                    [&](Value* k) { emit_square(strip, k); });
      // The rest in a last square that lies on the one before, unless few elements are left, which
      // are sooner copied one by one.
      constexpr std::int64_t few_of = 4;
      const std::int64_t last = inner.extent - square, rest = inner.extent - done;
      if (last >= 0 && last % plan_.unit == 0 && rest * few_of >= square) {
        emit_square(strip, emitter_.i64(last));
        done = inner.extent;
      }
    }
    emit_steps(inner, done, {strip});
  }

  /// Steps of k from the one of element `first` on.
  void emit_steps(const AddressDim& inner, std::int64_t first, const std::vector<Strip>& strips) {
    if (contraction_.b_nibbles) return emit_nibble_steps(inner, strips);
    const std::int64_t whole = first + (inner.extent - first) / plan_.unit * plan_.unit;
    emitter_.loop(emitter_.i64(first), emitter_.i64(whole), plan_.unit, [&](Value* k) {
      for (const Strip& strip : strips) {
        Values rows;
        for (std::int64_t u = 0; u < plan_.unit; ++u)
          rows.push_back(load_row(strip, inner, builder_.CreateAdd(k, builder_.getInt64(u))));
        store_step(strip, k, rows);
      }
    });
    if (whole == inner.extent) return;
    for (const Strip& strip : strips)
      store_step(strip, emitter_.i64(whole), {load_row(strip, inner, emitter_.i64(whole))});
  }

  /// The same of bytes that hold two k each.
  void emit_nibble_steps(const AddressDim& inner, const std::vector<Strip>& strips) {
    emitter_.loop(emitter_.i64(0), emitter_.i64(inner.extent), 2, [&](Value* k) {
      for (const Strip& strip : strips) {
        Value* at = bytes_at(strip.pointers[0], scaled(k, source_bytes(inner.b)));
        for (const bool odd : {false, true}) {
          Value* row = emit_nibbles(context_, emitter_, at, odd);
          Value* step = builder_.CreateAdd(k, builder_.getInt64(odd ? 1 : 0));
          store_panel_row(strip, step, scaled_->scaled(row, strip.number));
        }
      }
    });
  }

  /// Columns that lie one behind the other are a stream, which stands still while rows are
  /// multiplied with the panel: asks for the strip's place in the next one.
  void ask_for_next_panel(const AddressDim& inner, const Strip& strip) {
    constexpr std::int64_t line = 64;
    const bool stream =
        plan_.k_open.size() == 1 && inner.b == 1 && contraction_.b_n_stride == inner.extent;
    if (!stream || plan_.column_blocks == 1) return;
    const std::int64_t column_bytes = inner.extent * b_bytes_;
    Value* next =
        bytes_at(strip.pointers[0], builder_.getInt64(plan_.block_columns * column_bytes));
    emitter_.loop(emitter_.i64(0), emitter_.i64(plan_.lanes * column_bytes), line,
                  [&](Value* at) { emit_prefetch(emitter_, bytes_at(next, at), false, 2); });
  }

  /// Pairs that need no widening: they travel as bits.
  bool whole_pairs() const { return plan_.unit == 2 && size_of(context_.b_dtype()) == 2; }
  DType source_dtype() const { return whole_pairs() ? DType::u16 : context_.b_dtype(); }
  DType panel_dtype() const { return plan_.unit > 1 ? DType::i32 : contraction_.accumulator; }

  /// A register of columns of one k.
  Value* load_row(const Strip& strip, const AddressDim& inner, Value* k) {
    Value* offset = scaled(k, inner.b * b_bytes_);
    if (context_.columns_contiguous()) {
      Value* row = emit_widening_load(emitter_, source_dtype(), panel_dtype(),
                                      bytes_at(strip.pointers[0], offset), plan_.lanes, strip.mask);
      return scaled_ ? scaled_->scaled(row, strip.number) : row;
    }
    Value* row = llvm::PoisonValue::get(value_type(emitter_, panel_dtype(), plan_.lanes));
    for (unsigned lane = 0; lane < plan_.lanes; ++lane) {
      Value* element = emit_widening_load(emitter_, source_dtype(), panel_dtype(),
                                          bytes_at(strip.pointers[lane], offset), 1);
      row = builder_.CreateInsertElement(row, element, lane);
    }
    return row;
  }

  /// Stores the rows from k on as one step of the panel; a missing second row counts as zeros.
  void store_step(const Strip& strip, Value* k, const Values& rows) {
    Value* row = rows[0];
    if (plan_.unit == 2) {
      llvm::Type* type = row->getType();
      row = builder_.CreateAnd(row, llvm::ConstantInt::get(type, 0xffff));
      if (rows.size() == 2) {
        Value* high = builder_.CreateShl(rows[1], llvm::ConstantInt::get(type, 16));
        row = builder_.CreateOr(row, high);
      }
    }
    Value* step = plan_.unit == 1 ? k : builder_.CreateUDiv(k, builder_.getInt64(plan_.unit));
    store_panel_row(strip, step, row);
  }

  void store_panel_row(const Strip& strip, Value* step, Value* row) {
    emit_store(emitter_, panel_dtype(), row,
               bytes_at(strip.panel, scaled(step, plan_.block_columns * bytes_)), 1, plan_.lanes);
  }

  /// lanes x lanes elements, transposed by log2(lanes) rounds of interleaving halves.
  void emit_square(const Strip& strip, Value* k) {
    const unsigned lanes = plan_.lanes;
    Values rows;
    llvm::Type* pairs = llvm::FixedVectorType::get(builder_.getInt32Ty(), lanes);
    for (Value* pointer : strip.pointers) {
      Value* at = bytes_at(pointer, scaled(k, b_bytes_));
      rows.push_back(whole_pairs()
                         ? builder_.CreateAlignedLoad(pairs, at, llvm::Align(2))
                         : emit_widening_load(emitter_, source_dtype(), panel_dtype(), at, lanes));
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
    if (whole_pairs()) {
      Value* step = builder_.CreateUDiv(k, builder_.getInt64(plan_.unit));
      for (unsigned i = 0; i < lanes; ++i)
        store_panel_row(strip, builder_.CreateAdd(step, builder_.getInt64(i)), rows[i]);
      return;
    }
    for (unsigned i = 0; i < lanes; i += static_cast<unsigned>(plan_.unit)) {
      const auto first = rows.begin() + i;
      store_step(strip, builder_.CreateAdd(k, builder_.getInt64(i)),
                 Values(first, first + plan_.unit));
    }
  }

  const ContractionContext& context_;
  const loop::Contraction& contraction_;
  const ContractionPlan& plan_;
  PartFunction& part_;
  Emitter& emitter_;
  llvm::IRBuilder<>& builder_;
  std::int64_t b_bytes_, bytes_;
  std::optional<ScaledColumns> scaled_;  ///< of the tap that is being emitted
};

}  // namespace

llvm::Function* emit_panel_copy(const ContractionContext& context) {
  llvm::Type* pointer = context.emitter.builder.getPtrTy();
  llvm::Type* integer = context.emitter.builder.getInt64Ty();
  std::vector<llvm::Type*> parameters{pointer, pointer, integer};
  if (context.contraction.scales_b()) parameters.insert(parameters.end(), 2, pointer);
  PartFunction part(context.emitter, "copy_panel", parameters);
  PanelCopy(context, part).emit();
  return part.function();
}

}  // namespace rlx::codegen
