// The register block: rows x vectors accumulators, A broadcast from memory, one run over k for each
// outer tap. Rows whose taps may fall outside of A read a line of zeros there.
#include <algorithm>
#include <bit>
#include <optional>

#include "codegen/llvm/contraction.hpp"
#include "codegen/llvm/contraction_products.hpp"
#include "codegen/llvm/scalar_emitter.hpp"
#include "codegen/llvm/vector_math.hpp"

namespace rlx::codegen {
namespace {

using llvm::Value;
using Values = std::vector<Value*>;
using Integers = std::vector<std::int64_t>;

class RowBlock {
 public:
  RowBlock(const ContractionContext& context, PartFunction& part, std::int64_t rows, bool tail,
           bool asks)
      : context_(context),
        plan_(context.plan),
        part_(part),
        emitter_(part.emitter()),
        builder_(emitter_.builder),
        products_(context, emitter_),
        rows_(rows),
        tail_(tail),
        asks_(asks) {
    const DType accumulator = context.contraction.accumulator;
    a_bytes_ = static_cast<std::int64_t>(size_of(context.a_dtype()));
    b_bytes_ = static_cast<std::int64_t>(size_of(context.column_dtype()));
    accumulator_bytes_ = static_cast<std::int64_t>(size_of(accumulator));
    vector_type_ = value_type(emitter_, accumulator, plan_.lanes);
    const std::int64_t registers = rows * plan_.vectors;
    sets_ = context.contraction.in_order
                ? 1
                : accumulator_sets(plan_, rows, PlanMachine(emitter_.machine));
    // Straight code lets sums move from register to register, and some of twelve find none.
    unroll_ = sets_ > 1 ? sets_ : (registers >= 12 ? 1 : 4);
    if (nibbles() && unroll_ % 2 != 0) unroll_ *= 2;
  }

  void emit() {
    emit_masks();
    emit_rows();
    if (plan_.asks_for_results && context_.register_epilogue())
      emit_register_epilogue_asking(context_, part_, rows_);
    Values sums(static_cast<std::size_t>(sets_ * rows_ * plan_.vectors),
                llvm::Constant::getNullValue(vector_type_));
    sums = plan_.guards.empty() ? emit_taps(plan_.k_open, sums, false) : emit_guarded(sums);
    emit_stores(sums);
    builder_.CreateRetVoid();
  }

 private:
  Value* bytes_at(Value* pointer, Value* offset) {
    return builder_.CreateGEP(builder_.getInt8Ty(), pointer, offset);
  }
  Value* bytes_at(Value* pointer, std::int64_t offset) {
    return offset == 0 ? pointer : bytes_at(pointer, builder_.getInt64(offset));
  }

  void emit_masks() {
    vector_masks_.assign(plan_.vectors, nullptr);
    if (!plan_.tail() || !(tail_ || context_.register_epilogue())) return;
    // Without masks this is the last column block: what is left is known, and its stores short.
    for (std::int64_t v = 0; v < plan_.vectors; ++v) {
      const std::int64_t rest = plan_.columns % plan_.block_columns - v * plan_.lanes;
      if (!emitter_.machine.masks && rest >= plan_.lanes) continue;
      Value* left = builder_.getInt64(std::max<std::int64_t>(rest, 0));
      if (emitter_.machine.masks) {
        left = builder_.CreateSub(part_.argument(6), builder_.getInt64(v * plan_.lanes));
        left = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, left, builder_.getInt64(0));
      }
      vector_masks_[v] = tail_mask(emitter_, left, plan_.lanes);
    }
  }

  /// Where the rows of A begin: one pointer, where the distance between rows is constant, else a
  /// vector of addresses; and each row's part of each guard. Vectors keep this code short.
  void emit_rows() {
    Integers a_steps;
    for (const AddressDim& dim : plan_.m) a_steps.push_back(dim.a * a_bytes_);
    if (plan_.uniform_rows && plan_.guards.empty()) {
      Value* offset =
          emit_linear_sums(emitter_, part_.argument(3), extents_of(plan_.m), {a_steps}, {0})[0];
      row_pointers_ = {bytes_at(part_.argument(0), offset)};
      const std::int64_t distance = plan_.m.empty() ? 0 : plan_.m[0].a * a_bytes_;
      for (std::int64_t r = 0; r < rows_; ++r) row_distances_.push_back(r * distance);
      return;
    }
    Integers guard_starts;
    for (const GuardBounds& guard : plan_.guards) guard_starts.push_back(guard.offset);
    const Values batch_guards =
        emit_linear_sums(emitter_, part_.argument(2), extents_of(plan_.batch),
                         guard_steps(plan_.batch), guard_starts);
    std::vector<Integers> steps = guard_steps(plan_.m);
    steps.insert(steps.begin(), a_steps);
    const Values sums = emit_linear_sums(emitter_, row_numbers(), extents_of(plan_.m), steps,
                                         Integers(steps.size(), 0));
    Value* base = builder_.CreatePtrToInt(part_.argument(0), builder_.getInt64Ty());
    row_addresses_ = builder_.CreateAdd(sums[0], across_rows(base));
    for (std::size_t g = 0; g < plan_.guards.size(); ++g) {
      row_guards_.push_back(builder_.CreateAdd(sums[g + 1], across_rows(batch_guards[g])));
    }
    llvm::IRBuilder<> entry(&emitter_.function->getEntryBlock(),
                            emitter_.function->getEntryBlock().begin());
    address_slot_ = entry.CreateAlloca(row_addresses_->getType());
  }

  std::vector<Integers> guard_steps(const std::vector<AddressDim>& dims) const {
    std::vector<Integers> steps(plan_.guards.size());
    for (const AddressDim& dim : dims) {
      for (std::size_t g = 0; g < steps.size(); ++g) steps[g].push_back(dim.guards[g]);
    }
    return steps;
  }

  /// The block's rows as a vector; lanes beyond rows_ are rows that do not count.
  Value* row_numbers() {
    std::vector<llvm::Constant*> numbers;
    for (std::size_t r = 0; r < std::bit_ceil(static_cast<std::size_t>(rows_)); ++r) {
      numbers.push_back(builder_.getInt64(r));
    }
    return builder_.CreateAdd(
        builder_.CreateVectorSplat(static_cast<unsigned>(numbers.size()), part_.argument(3)),
        llvm::ConstantVector::get(numbers));
  }

  Value* across_rows(Value* value) {
    return builder_.CreateVectorSplat(
        static_cast<unsigned>(std::bit_ceil(static_cast<std::size_t>(rows_))), value);
  }

  /// The lanes of a vector of addresses as pointers, by way of memory: one store, a load each.
  Values pointers_of(Value* addresses) {
    builder_.CreateStore(addresses, address_slot_);
    Values pointers;
    for (std::int64_t r = 0; r < rows_; ++r) {
      pointers.push_back(builder_.CreateLoad(builder_.getPtrTy(), bytes_at(address_slot_, r * 8)));
    }
    return pointers;
  }

  /// The rows that count of a vector of conditions, as bits.
  Value* row_bits(Value* conditions) {
    const unsigned lanes = lanes_of(conditions);
    Value* bits = builder_.CreateBitCast(conditions, builder_.getIntNTy(lanes));
    return builder_.CreateAnd(bits, all_rows(lanes));
  }
  llvm::Constant* all_rows(unsigned lanes) {
    return builder_.getIntN(lanes, (std::uint64_t{1} << rows_) - 1);
  }

  /// True where no tap of the block leaves A.
  Value* emit_inside() {
    Value* inside = nullptr;
    for (std::size_t g = 0; g < plan_.guards.size(); ++g) {
      std::int64_t low = 0, high = 0;
      for (const AddressDim& dim : plan_.k) {
        const std::int64_t span = dim.guards[g] * (dim.extent - 1);
        (span < 0 ? low : high) += span;
      }
      // 0 <= value + low and value + high < extent, as one comparison.
      llvm::Type* type = row_guards_[g]->getType();
      const std::int64_t room = std::max<std::int64_t>(plan_.guards[g].extent - (high - low), 0);
      Value* good = builder_.CreateICmpULT(
          builder_.CreateAdd(row_guards_[g], llvm::ConstantInt::get(type, low, true)),
          llvm::ConstantInt::get(type, room));
      inside = inside ? builder_.CreateAnd(inside, good) : good;
    }
    return builder_.CreateICmpEQ(row_bits(inside), all_rows(lanes_of(inside)));
  }

  Values emit_guarded(const Values& zeros) {
    // Long runs hide what finding the rows of a tap costs; short ones are merged where they can.
    constexpr std::int64_t long_run = 16;
    if (plan_.k.back().extent >= long_run || plan_.k.size() == plan_.k_open.size()) {
      return emit_taps(plan_.k, zeros, true);
    }
    llvm::BasicBlock* open = emitter_.new_block("open");
    llvm::BasicBlock* border = emitter_.new_block("border");
    llvm::BasicBlock* join = emitter_.new_block("join");
    builder_.CreateCondBr(emit_inside(), open, border);
    builder_.SetInsertPoint(open);
    const Values open_sums = emit_taps(plan_.k_open, zeros, false);
    llvm::BasicBlock* open_end = builder_.GetInsertBlock();
    builder_.CreateBr(join);
    builder_.SetInsertPoint(border);
    const Values border_sums = emit_taps(plan_.k, zeros, true);
    llvm::BasicBlock* border_end = builder_.GetInsertBlock();
    builder_.CreateBr(join);
    builder_.SetInsertPoint(join);
    return from_either(open_sums, open_end, border_sums, border_end);
  }

  /// Sums by the block that one came from.
  Values from_either(const Values& a, llvm::BasicBlock* a_end, const Values& b,
                     llvm::BasicBlock* b_end) {
    Values sums;
    for (std::size_t i = 0; i < a.size(); ++i) {
      llvm::PHINode* phi = builder_.CreatePHI(vector_type_, 2);
      phi->addIncoming(a[i], a_end);
      phi->addIncoming(b[i], b_end);
      sums.push_back(phi);
    }
    return sums;
  }

  /// All k dims but the last are taps, walked by one loop.
  Values emit_taps(const std::vector<AddressDim>& k, const Values& zeros, bool guarded) {
    Integers extents;
    const bool scaled = scales_columns();  // nowhere beside guards
    std::vector<Integers> steps(2 + (guarded ? plan_.guards.size() : 0) + (scaled ? 1 : 0));
    std::int64_t taps = 1;
    for (std::size_t i = 0; i + 1 < k.size(); ++i) {
      extents.push_back(k[i].extent);
      taps *= k[i].extent;
      steps[0].push_back(k[i].a * a_bytes_);
      steps[1].push_back(column_bytes(k[i].column));
      if (scaled) {
        steps[2].push_back(k[i].scale);
        continue;
      }
      for (std::size_t g = 2; g < steps.size(); ++g) steps[g].push_back(k[i].guards[g - 2]);
    }
    const bool one_pointer = !row_addresses_;
    if (taps == 1 && !guarded) {
      if (scaled) load_scales(nullptr);
      ahead_ = asks_ ? part_.argument(7) : nullptr;
      return emit_run(k.back(), one_pointer ? row_pointers_ : pointers_of(row_addresses_), nullptr,
                      part_.argument(1), zeros);
    }
    // Without guards a tap moves all rows alike: one offset beside the rows' pointers.
    Values pointers = row_pointers_;
    if (!guarded && !one_pointer) pointers = pointers_of(row_addresses_);
    return emitter_.loop(
        emitter_.i64(0), emitter_.i64(taps), 1, zeros, [&](Value* tap, Values sums) {
          const Values at =
              emit_linear_sums(emitter_, tap, extents, steps, Integers(steps.size(), 0));
          Value* columns = bytes_at(part_.argument(1), at[1]);
          if (asks_) {
            Value* asked = builder_.getInt64(k.back().extent / plan_.unit * plan_.asked_bytes);
            ahead_ = bytes_at(part_.argument(7), builder_.CreateMul(tap, asked));
          }
          if (scaled) load_scales(at[2]);
          if (guarded) return emit_guarded_tap(k.back(), columns, at, sums);
          if (!one_pointer) return emit_run(k.back(), pointers, at[0], columns, sums);
          return emit_run(k.back(), {bytes_at(pointers[0], at[0])}, nullptr, columns, sums);
        });
  }

  /// Of bytes that hold two k each.
  bool nibbles() const { return context_.contraction.b_nibbles && scales_columns(); }
  std::int64_t column_bytes(std::int64_t elements) const {
    return elements * b_bytes_ / (nibbles() ? 2 : 1);
  }
  /// Where the columns of step `u` lie; both k of a byte at one place.
  std::int64_t column_at(std::int64_t u, std::int64_t step) const {
    return (nibbles() ? u / 2 * 2 : u) * step;
  }
  /// Packed columns are scaled as they are read; those of a scratch panel are already.
  bool scales_columns() const {
    return context_.contraction.scales_b() && plan_.column_source == ColumnSource::packed;
  }
  /// `at`: elements from the first block's scales on.
  void load_scales(Value* at) {
    const unsigned first = asks_ || plan_.ends_early ? 8 : 7;
    scaled_.emplace(context_, emitter_, part_.argument(first), part_.argument(first + 1), at,
                    plan_.vectors);
  }

  /// Rows outside read zeros; a tap with all rows outside is left out.
  Values emit_guarded_tap(const AddressDim& inner, Value* columns, const Values& at,
                          const Values& sums) {
    Value* inside = nullptr;
    for (std::size_t g = 0; g < plan_.guards.size(); ++g) {
      Value* position = builder_.CreateAdd(row_guards_[g], across_rows(at[g + 2]));
      auto* extent = llvm::ConstantInt::get(position->getType(),
                                            std::max<std::int64_t>(plan_.guards[g].extent, 0));
      Value* good = builder_.CreateICmpULT(position, extent);
      inside = inside ? builder_.CreateAnd(inside, good) : good;
    }
    llvm::BasicBlock* before = builder_.GetInsertBlock();
    llvm::BasicBlock* work = emitter_.new_block("tap");
    llvm::BasicBlock* next = emitter_.new_block("next_tap");
    Value* bits = row_bits(inside);
    builder_.CreateCondBr(builder_.CreateICmpNE(bits, llvm::ConstantInt::get(bits->getType(), 0)),
                          work, next);
    builder_.SetInsertPoint(work);
    Value* zeros = builder_.CreatePtrToInt(part_.argument(5), builder_.getInt64Ty());
    Value* addresses = builder_.CreateSelect(
        inside, builder_.CreateAdd(row_addresses_, across_rows(at[0])), across_rows(zeros));
    const Values done = emit_run(inner, pointers_of(addresses), nullptr, columns, sums);
    llvm::BasicBlock* work_end = builder_.GetInsertBlock();
    builder_.CreateBr(next);
    builder_.SetInsertPoint(next);
    return from_either(sums, before, done, work_end);
  }

  /// One run along the innermost k dim, `a_offset` (null: 0) bytes behind the pointers.
  Values emit_run(const AddressDim& inner, const Values& pointers, Value* a_offset, Value* columns,
                  Values sums) {
    constexpr std::int64_t most_straight = 128;  // multiply-adds of a run without a loop
    const std::int64_t registers = rows_ * plan_.vectors;
    const std::int64_t steps = inner.extent / plan_.unit;
    std::int64_t rounds = steps / unroll_;
    if (steps * registers <= most_straight || rounds == 1) rounds = 0;
    const std::int64_t rest = steps - rounds * unroll_;
    const std::int64_t a_step = inner.a * a_bytes_ * plan_.unit;
    const std::int64_t b_step = column_bytes(inner.column);
    holds_back_ = few_registers() || rows_share_elements(std::max(unroll_, rest), a_step);
    if (rounds > 0) emit_run_loop(rounds, a_step, b_step, pointers, columns, a_offset, sums);
    for (std::int64_t u = 0; u < rest; ++u)
      emit_step(pointers, a_offset, u * a_step, columns, column_at(u, b_step), u, plan_.unit, sums);
    const std::int64_t left = inner.extent % plan_.unit;
    if (left > 0)
      emit_step(pointers, a_offset, rest * a_step, columns, column_at(rest, b_step), rest, left,
                sums);
    return sums;
  }

  bool few_registers() const { return emitter_.machine.registers < 32; }

  /// Whether a row reads at one of so many steps what another row reads at an earlier one, as
  /// neighbouring columns of an image do.
  bool rows_share_elements(std::int64_t steps, std::int64_t a_step) const {
    if (row_distances_.size() < 2 || row_distances_[1] <= 0) return false;
    for (std::int64_t u = 1; u < steps; ++u) {
      const std::int64_t apart = u * a_step;
      if (apart > 0 && apart % row_distances_[1] == 0 && apart <= row_distances_.back())
        return true;
    }
    return false;
  }

  /// Where the rows of the next block begin; behind the last block the first rows of A, which the
  /// next column block reads.
  Value* rows_behind() {
    Value* number = builder_.CreateAdd(part_.argument(3), builder_.getInt64(rows_));
    Value* behind = bytes_at(row_pointers_[0], rows_ * plan_.m.front().a * a_bytes_);
    return builder_.CreateSelect(builder_.CreateICmpULT(number, builder_.getInt64(plan_.rows)),
                                 behind, part_.argument(0));
  }

  /// Goes along with a loop, and asks in each round for the bytes that it passes, or one line.
  struct AskingPointer {
    Value* from;
    std::int64_t bytes;
    bool one_line = false;
    llvm::PHINode* at = nullptr;
  };

  void emit_run_loop(std::int64_t rounds, std::int64_t a_step, std::int64_t b_step,
                     const Values& pointers, Value*& columns, Value*& a_offset, Values& sums) {
    const bool one = pointers.size() == 1;
    Value* first_a = a_offset ? a_offset : builder_.getInt64(0);
    if (one) first_a = a_offset ? bytes_at(pointers[0], a_offset) : pointers[0];
    Value* made = builder_.getInt64(rounds);
    if (plan_.ends_early) made = part_.rounds_that_count(unroll_ * plan_.unit, rounds);
    std::vector<AskingPointer> asking;
    if (asks_) asking.push_back({ahead_, unroll_ * plan_.asked_bytes});
    if (plan_.asks_for_rows) asking.push_back({rows_behind(), unroll_ * rows_ * a_step});
    if (plan_.asks_for_pages)
      asking.push_back({bytes_at(columns, pages_ahead_bytes), unroll_ * b_step, true});
    llvm::BasicBlock* before = builder_.GetInsertBlock();
    llvm::BasicBlock* body = emitter_.new_block("k");
    llvm::BasicBlock* after = emitter_.new_block("k_end");
    builder_.CreateBr(body);
    builder_.SetInsertPoint(body);
    llvm::PHINode* count = builder_.CreatePHI(builder_.getInt64Ty(), 2);
    llvm::PHINode* b = builder_.CreatePHI(builder_.getPtrTy(), 2);
    llvm::PHINode* a = builder_.CreatePHI(first_a->getType(), 2);
    for (AskingPointer& pointer : asking) pointer.at = builder_.CreatePHI(builder_.getPtrTy(), 2);
    std::vector<llvm::PHINode*> phis;
    for (Value*& sum : sums) {
      phis.push_back(builder_.CreatePHI(vector_type_, 2));
      phis.back()->addIncoming(sum, before);
      sum = phis.back();
    }
    for (std::int64_t u = 0; u < unroll_; ++u) {
      emit_step(one ? Values{a} : pointers, one ? nullptr : a, u * a_step, b, column_at(u, b_step),
                u, plan_.unit, sums);
    }
    for (const AskingPointer& pointer : asking) {
      pointer.at->addIncoming(pointer.from, before);
      emit_asking(emitter_, pointer.at, pointer.one_line ? 1 : pointer.bytes);
      pointer.at->addIncoming(bytes_at(pointer.at, pointer.bytes), body);
    }
    Value* next_a = one ? bytes_at(a, unroll_ * a_step)
                        : builder_.CreateAdd(a, builder_.getInt64(unroll_ * a_step));
    Value* next_b = bytes_at(b, unroll_ * b_step);
    Value* next_count = builder_.CreateSub(count, builder_.getInt64(1));
    count->addIncoming(made, before);
    count->addIncoming(next_count, body);
    b->addIncoming(columns, before);
    b->addIncoming(next_b, body);
    a->addIncoming(first_a, before);
    a->addIncoming(next_a, body);
    for (std::size_t i = 0; i < phis.size(); ++i) phis[i]->addIncoming(sums[i], body);
    builder_.CreateCondBr(builder_.CreateICmpNE(next_count, builder_.getInt64(0)), body, after);
    builder_.SetInsertPoint(after);
    columns = next_b;
    Value* passed = builder_.CreateMul(made, builder_.getInt64(unroll_ * a_step));
    a_offset = a_offset ? builder_.CreateAdd(a_offset, passed) : passed;
  }

  /// One k, or a group of `group`: the columns' registers, then for each row a broadcast and its
  /// multiply-adds. `number`: of the step in its straight code.
  void emit_step(Values pointers, Value* a_offset, std::int64_t a_at, Value* columns,
                 std::int64_t b_at, std::int64_t number, std::int64_t group, Values& sums) {
    const std::int64_t set = number % sets_;
    if (holds_back_ && number > 0) {
      const std::int64_t before = (number - 1) % sets_;
      hold_back(emitter_, sums[(before + 1) * rows_ * plan_.vectors - 1], pointers, columns);
    }
    Values b;
    for (unsigned v = 0; v < plan_.vectors; ++v) {
      Value* at = bytes_at(columns, b_at + static_cast<std::int64_t>(v * plan_.lanes) * b_bytes_);
      Value* read = nibbles() ? emit_nibbles(context_, emitter_, at, number % 2 != 0)
                              : products_.columns(at, tail_ ? vector_masks_[v] : nullptr);
      b.push_back(scaled_ ? scaled_->scaled(read, v) : read);
    }
    for (std::int64_t r = 0; r < rows_; ++r) {
      const bool one = pointers.size() == 1;
      Value* at = pointers[one ? 0 : r];
      if (a_offset) at = bytes_at(at, a_offset);
      at = bytes_at(at, a_at + (row_distances_.empty() ? 0 : row_distances_[r]));
      Value* a = splat(emitter_, products_.element(at, group), plan_.lanes);
      for (unsigned v = 0; v < plan_.vectors; ++v) {
        Value*& sum = sums[(set * rows_ + r) * plan_.vectors + v];
        sum = products_.add(sum, a, b[v]);
      }
    }
  }

  void emit_stores(Values& sums) {
    const DType accumulator = context_.contraction.accumulator;
    const std::size_t registers = static_cast<std::size_t>(rows_ * plan_.vectors);
    for (std::size_t i = registers; i < sums.size(); ++i) {
      Value*& sum = sums[i % registers];
      sum = accumulator == DType::i32 ? builder_.CreateAdd(sum, sums[i])
                                      : builder_.CreateFAdd(sum, sums[i]);
    }
    if (context_.register_epilogue())
      return emit_register_epilogue(context_, part_, rows_, sums, vector_masks_);
    for (std::int64_t r = 0; r < rows_; ++r) {
      for (unsigned v = 0; v < plan_.vectors; ++v) {
        const std::int64_t at = r * plan_.block_columns + v * plan_.lanes;
        emit_store(emitter_, accumulator, sums[r * plan_.vectors + v],
                   bytes_at(part_.argument(4), at * accumulator_bytes_), 1, plan_.lanes);
      }
    }
  }

  const ContractionContext& context_;
  const ContractionPlan& plan_;
  PartFunction& part_;
  Emitter& emitter_;
  llvm::IRBuilder<>& builder_;
  ProductEmitter products_;
  std::optional<ScaledColumns> scaled_;  ///< of the run that is being emitted
  std::int64_t rows_, a_bytes_ = 0, b_bytes_ = 0, accumulator_bytes_ = 0, sets_ = 1, unroll_ = 1;
  bool tail_, asks_;
  llvm::Type* vector_type_ = nullptr;
  Values vector_masks_, row_pointers_;
  Value* row_addresses_ = nullptr;  ///< <rows x i64>, where one pointer does not serve
  Values row_guards_;               ///< <rows x i64> for each guard
  Value* address_slot_ = nullptr;
  Value* ahead_ = nullptr;   ///< what the run that is being emitted asks for
  bool holds_back_ = false;  ///< loads of a step come after the sums of the one before
  Integers row_distances_;   ///< bytes from the one pointer, where there is only one
};

}  // namespace

llvm::Function* emit_row_block(const ContractionContext& context, std::int64_t rows, bool tail,
                               bool asks) {
  llvm::Type* pointer = context.emitter.builder.getPtrTy();
  llvm::Type* integer = context.emitter.builder.getInt64Ty();
  std::vector<llvm::Type*> parameters{pointer, pointer, integer, integer,
                                      pointer, pointer, integer};
  if (asks) parameters.push_back(pointer);
  if (context.plan.ends_early) parameters.push_back(integer);
  if (context.contraction.scales_b()) parameters.insert(parameters.end(), 2, pointer);
  PartFunction part(context.emitter, "rows_" + std::to_string(rows) + (tail ? "_tail" : ""),
                    parameters);
  if (context.plan.tile_steps > 0) {
    emit_tile_block(context, part, rows, asks);
  } else {
    RowBlock(context, part, rows, tail, asks).emit();
  }
  return part.function();
}

}  // namespace rlx::codegen
