// The loops of a contraction: work items to column blocks to row blocks, the panel that a worker
// keeps in its scratch, and the row epilogue behind whole rows.
#include "codegen/llvm/contraction.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "codegen/llvm/scalar_emitter.hpp"

namespace rlx::codegen {

using llvm::Value;
using Values = std::vector<Value*>;
using Integers = std::vector<std::int64_t>;

namespace {

class ContractionEmitter {
 public:
  ContractionEmitter(const ContractionContext& context)
      : context_(context),
        contraction_(context.contraction),
        plan_(context.plan),
        emitter_(context.emitter),
        builder_(emitter_.builder),
        narrow_(plan_),
        full_(plan_) {
    // With masks one code serves all column blocks, unless the last one must not read on.
    if (!context.own_tail() || emitter_.machine.masks) return;
    narrow_ = narrow_plan(plan_);
    if (context.register_epilogue()) full_ = full_plan(plan_);
  }

  Result<KernelShape> emit() {
    if (plan_.work_items == 0) return KernelShape{};
    lay_out_scratch();
    emit_parts();
    if (plan_.whole_rows) {
      RLX_TRY(add_row_epilogue());
    }
    emit_preamble();
    if (plan_.tile_steps > 0) emit_tile_config(context_, plan_.tallest_rows());
    emitter_.loop(emitter_.begin, emitter_.end, 1, [&](Value* item) { emit_item(item); });
    if (plan_.tile_steps > 0) emit_tile_release(emitter_);
    return KernelShape{plan_.work_items, scratch_bytes_};
  }

 private:
  Value* bytes_at(Value* pointer, Value* offset) {
    return builder_.CreateGEP(builder_.getInt8Ty(), pointer, offset);
  }
  Value* bytes_at(Value* pointer, std::int64_t offset) {
    return offset == 0 ? pointer : bytes_at(pointer, builder_.getInt64(offset));
  }
  std::int64_t b_bytes() const { return static_cast<std::int64_t>(size_of(context_.b_dtype())); }

  /// [zero line][tile][source of the panel][panel][lines][the row epilogue's own]
  void lay_out_scratch() {
    const auto accumulator_bytes = static_cast<std::int64_t>(size_of(contraction_.accumulator));
    if (!plan_.guards.empty()) {
      const AddressDim& inner = plan_.k.back();
      const auto a_bytes = static_cast<std::int64_t>(size_of(context_.a_dtype()));
      zero_line_bytes_ = align_up((inner.a * (inner.extent - 1) + 1) * a_bytes);
    }
    tile_at_ = zero_line_bytes_;
    const bool direct = context_.register_epilogue();
    panel_source_at_ =
        tile_at_ +
        (direct ? 0 : align_up(plan_.tallest_rows() * plan_.block_columns * accumulator_bytes));
    scratch_bytes_ = panel_source_at_;
    if (plan_.column_source == ColumnSource::scratch) {
      panel_at_ = panel_source_at_ + 64;
      scratch_bytes_ =
          panel_at_ + align_up(plan_.block_columns * plan_.panel_steps * accumulator_bytes);
    }
    if (plan_.line.segments > 0) {
      const auto a_bytes = static_cast<std::int64_t>(size_of(context_.a_dtype()));
      lines_at_ = scratch_bytes_;
      line_bytes_ = align_up(plan_.line.count() * plan_.line.pitch * a_bytes);
      scratch_bytes_ += line_bytes_;
    }
  }

  void emit_parts() {
    const bool tails = context_.own_tail();
    const bool all_tails = tails && plan_.column_blocks == 1;
    const bool in_place = plan_.column_source == ColumnSource::in_place;
    for (int tail = 0; tail < (tails ? 2 : 1); ++tail) {
      if (all_tails && tail == 0) continue;
      const ContractionContext context{emitter_, contraction_, tail == 1 ? narrow_ : full_};
      const bool ends = tail == 1 && in_place;
      if (!plan_.one_height)
        blocks_[tail][0] = emit_row_block(context, plan_.block_rows, ends, asks());
      if (plan_.short_blocks < plan_.row_blocks)
        blocks_[tail][1] = emit_row_block(context, plan_.block_rows + 1, ends, asks());
    }
    if (plan_.column_source == ColumnSource::scratch) copy_ = emit_panel_copy(context_);
    if (plan_.line.segments > 0) copy_lines_ = emit_line_copy(context_);
    if (!context_.register_epilogue()) epilogue_ = emit_tile_epilogue(context_);
  }

  Status add_row_epilogue() {
    RLX_ASSIGN(const BodyFunction made,
               emit_row_epilogue(emitter_, contraction_.row_epilogue, plan_.batches * plan_.rows));
    row_epilogue_ = made.function;
    row_epilogue_scratch_at_ = scratch_bytes_;
    scratch_bytes_ += align_up(made.shape.scratch_bytes);
    return {};
  }

  /// What every item uses: bases, and scratch that must hold something known.
  void emit_preamble() {
    const auto a_bytes = static_cast<std::int64_t>(size_of(context_.a_dtype()));
    a_ = bytes_at(emitter_.buffers[contraction_.a_buffer], contraction_.a_offset * a_bytes);
    const std::int64_t b_offset = contraction_.b_offset;
    b_ = bytes_at(emitter_.buffers[contraction_.b_buffer], b_offset * b_bytes());
    emit_zeros(0, zero_line_bytes_);
    // Margins stay zero from here on.
    emit_zeros(lines_at_, line_bytes_);
    if (copy_) {
      builder_.CreateStore(llvm::ConstantPointerNull::get(builder_.getPtrTy()),
                           bytes_at(emitter_.scratch, panel_source_at_));
    }
  }

  /// Zeros in scratch.
  void emit_zeros(std::int64_t first, std::int64_t bytes) {
    auto* zeros = llvm::Constant::getNullValue(
        llvm::FixedVectorType::get(builder_.getInt8Ty(), emitter_.machine.vector_bytes));
    emitter_.loop(emitter_.i64(first), emitter_.i64(first + bytes), emitter_.machine.vector_bytes,
                  [&](Value* at) {
                    builder_.CreateAlignedStore(zeros, bytes_at(emitter_.scratch, at),
                                                llvm::Align(16));
                  });
  }

  /// Segments one by one: their lines, then all their blocks.
  void emit_segments(Value* item) {
    const Values at = emit_coordinates(emitter_, item, {plan_.batches, plan_.row_groups}, true);
    batch_ = at[0];
    Value* first = builder_.CreateMul(at[1], builder_.getInt64(plan_.group_blocks));
    Value* last = builder_.CreateBinaryIntrinsic(
        llvm::Intrinsic::smin, builder_.CreateAdd(first, builder_.getInt64(plan_.group_blocks)),
        builder_.getInt64(plan_.line.segments));
    emit_batch_bases();
    Value* image = a_batch_;
    first_block_ = builder_.getInt64(0);
    last_block_ = builder_.getInt64(plan_.row_blocks);
    emitter_.loop(first, last, 1, [&](Value* segment) {
      Value* lines = bytes_at(emitter_.scratch, lines_at_);
      builder_.CreateCall(copy_lines_, {image, lines, segment});
      first_row_ = builder_.CreateMul(segment, builder_.getInt64(plan_.rows));
      // Row numbers count over all segments, the copy begins with the segment's first row.
      const auto a_bytes = static_cast<std::int64_t>(size_of(context_.a_dtype()));
      const std::int64_t row_bytes = plan_.m.front().a * a_bytes;
      a_batch_ = bytes_at(lines, builder_.CreateMul(first_row_, builder_.getInt64(-row_bytes)));
      emitter_.loop(emitter_.i64(0), emitter_.i64(plan_.column_blocks), 1,
                    [&](Value* block) { emit_column_block(block); });
    });
  }

  /// Batch, column block and row group of an item. Items run over row groups first, so that a
  /// worker meets the same panel many times, or over columns, so that it meets the same rows.
  std::array<Value*, 3> parts_of(Value* item) {
    if (plan_.whole_rows) {
      const Values at = emit_coordinates(emitter_, item, {plan_.batches, plan_.row_groups}, true);
      return {at[0], nullptr, at[1]};
    }
    if (plan_.rows_outermost) {
      const Values at = emit_coordinates(
          emitter_, item, {plan_.row_groups, plan_.batches, plan_.column_blocks}, true);
      return {at[1], at[2], at[0]};
    }
    const Values at = emit_coordinates(
        emitter_, item, {plan_.batches, plan_.column_blocks, plan_.row_groups}, true);
    return {at[0], at[1], at[2]};
  }

  void emit_item(Value* item) {
    if (copy_lines_) return emit_segments(item);
    const auto [batch, column_block, group] = parts_of(item);
    batch_ = batch;
    first_block_ = first_block_of(group);
    last_block_ = first_block_of(builder_.CreateAdd(group, builder_.getInt64(1)));
    emit_batch_bases();
    if (!plan_.whole_rows) return emit_column_block(column_block);
    emitter_.loop(emitter_.i64(0), emitter_.i64(plan_.column_blocks), 1,
                  [&](Value* block) { emit_column_block(block); });
    Value* before = builder_.CreateMul(batch_, builder_.getInt64(plan_.rows));
    builder_.CreateCall(row_epilogue_, {emitter_.function->getArg(0),
                                        builder_.CreateAdd(before, row_of(first_block_)),
                                        builder_.CreateAdd(before, row_of(last_block_)),
                                        bytes_at(emitter_.scratch, row_epilogue_scratch_at_)});
  }

  void emit_batch_bases() {
    const auto a_bytes = static_cast<std::int64_t>(size_of(context_.a_dtype()));
    Integers a_steps, b_steps;
    for (const AddressDim& dim : plan_.batch) {
      a_steps.push_back(dim.a * a_bytes);
      b_steps.push_back(dim.b * b_bytes());
    }
    const Values sums =
        emit_linear_sums(emitter_, batch_, extents_of(plan_.batch), {a_steps, b_steps}, {0, 0});
    a_batch_ = bytes_at(a_, sums[0]);
    b_batch_ = bytes_at(b_, sums[1]);
  }

  /// Groups differ by one block at most: half of them have half of the blocks.
  Value* first_block_of(Value* group) {
    Value* blocks = builder_.CreateMul(group, builder_.getInt64(plan_.row_blocks));
    return emitter_.quotient(blocks, plan_.row_groups, plan_.row_groups * plan_.row_blocks);
  }

  /// First row of a row block.
  Value* row_of(Value* block) {
    Value* row = builder_.CreateMul(block, builder_.getInt64(plan_.block_rows));
    if (plan_.short_blocks == plan_.row_blocks) return row;
    Value* tall = builder_.CreateSub(block, builder_.getInt64(plan_.short_blocks));
    return builder_.CreateAdd(
        row, builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, tall, builder_.getInt64(0)));
  }

  /// B's element of the first k and that column.
  Value* source_column(Value* first_column) {
    if (!contraction_.b_packed) {
      Value* step = builder_.getInt64(contraction_.b_n_stride * b_bytes());
      return bytes_at(b_batch_, builder_.CreateMul(first_column, step));
    }
    Value* width = builder_.getInt64(plan_.panel_width);
    Value* panel = builder_.CreateUDiv(first_column, width);
    Value* inside = builder_.CreateURem(first_column, width);
    const std::int64_t panel_bytes = context_.packed_panel_bytes(),
                       column_bytes = context_.packed_column_bytes();
    Value* columns = bytes_at(b_batch_, builder_.CreateMul(panel, builder_.getInt64(panel_bytes)));
    return bytes_at(columns, builder_.CreateMul(inside, builder_.getInt64(column_bytes)));
  }

  /// The scales and zeros (null: none) of the first block of k from that column on; nothing where B
  /// is not scaled.
  Values source_scales(Value* first_column) {
    if (!contraction_.scales_b()) return {};
    Value* width = builder_.getInt64(plan_.panel_width);
    Value* panel = builder_.CreateUDiv(first_column, width);
    Value* line =
        builder_.CreateMul(panel, builder_.getInt64(plan_.panel_width * contraction_.b_blocks));
    Value* at = builder_.CreateAdd(line, builder_.CreateURem(first_column, width));
    Value* scales = bytes_at(emitter_.buffers[contraction_.b_scale_buffer],
                             builder_.CreateMul(at, builder_.getInt64(sizeof(float))));
    if (!context_.has_zeros()) return {scales, llvm::ConstantPointerNull::get(builder_.getPtrTy())};
    return {scales, bytes_at(emitter_.buffers[contraction_.b_zero_buffer], at)};
  }

  Value* emit_columns(Value* first_column, Value* columns_left, const Values& scales) {
    Value* columns = source_column(first_column);
    if (!copy_) return columns;
    // The panel of the item before stays where the next one wants the same.
    Value* slot = bytes_at(emitter_.scratch, panel_source_at_);
    Value* panel = bytes_at(emitter_.scratch, panel_at_);
    Value* held = builder_.CreateLoad(builder_.getPtrTy(), slot);
    emitter_.when(builder_.CreateICmpNE(held, columns), [&] {
      Values arguments{columns, panel, columns_left};
      arguments.insert(arguments.end(), scales.begin(), scales.end());
      builder_.CreateCall(copy_, arguments);
      builder_.CreateStore(columns, slot);
    });
    return panel;
  }

  bool asks() const { return plan_.asking_blocks > 0; }

  /// Where the row block's part of the next panel begins. Blocks count from the item's first one
  /// where items have all columns, else from the panel's. Later blocks ask for what is there.
  Value* asked_from(Value* columns, Value* block) {
    Value* number = plan_.whole_rows ? builder_.CreateSub(block, first_block_) : block;
    const std::int64_t part = plan_.panel_steps * plan_.asked_bytes;
    Value* offset = builder_.CreateAdd(builder_.CreateMul(number, builder_.getInt64(part)),
                                       builder_.getInt64(context_.packed_panel_bytes()));
    Value* asking = builder_.CreateICmpULT(number, builder_.getInt64(plan_.asking_blocks));
    return bytes_at(columns, builder_.CreateSelect(asking, offset, builder_.getInt64(0)));
  }

  void emit_column_block(Value* column_block) {
    Value* first_column = builder_.CreateMul(column_block, builder_.getInt64(plan_.block_columns));
    Value* left = builder_.CreateSub(builder_.getInt64(plan_.columns), first_column);
    const Values scales = source_scales(first_column);
    Value* columns = emit_columns(first_column, left, scales);
    Value* tile = bytes_at(emitter_.scratch, tile_at_);
    Value* out = context_.register_epilogue() ? emitter_.function->getArg(0) : tile;
    emitter_.loop(first_block_, last_block_, 1, [&](Value* block) {
      Value* row = row_of(block);
      if (first_row_) row = builder_.CreateAdd(first_row_, row);
      Values arguments{a_batch_, columns, batch_, row, out, emitter_.scratch, left};
      if (asks()) arguments.push_back(asked_from(columns, block));
      arguments.insert(arguments.end(), scales.begin(), scales.end());
      emit_block_calls(block, left, arguments);
      if (!epilogue_) return;
      Value* tall = builder_.CreateICmpSGE(block, builder_.getInt64(plan_.short_blocks));
      Value* rows = builder_.CreateSelect(tall, builder_.getInt64(plan_.block_rows + 1),
                                          builder_.getInt64(plan_.block_rows));
      builder_.CreateCall(epilogue_,
                          {emitter_.function->getArg(0), tile, batch_, row, rows, first_column});
    });
  }

  /// What the code of full blocks takes to be left: its plan may have more columns.
  Value* columns_left(Value* left) {
    return builder_.CreateAdd(left, builder_.getInt64(full_.columns - plan_.columns));
  }

  /// Calls the one of up to four row blocks that fits.
  void emit_block_calls(Value* block, Value* left, const Values& arguments) {
    Value* tall = builder_.CreateICmpSGE(block, builder_.getInt64(plan_.short_blocks));
    Value* full = builder_.CreateICmpSGE(left, builder_.getInt64(plan_.block_columns));
    for (int tail = 0; tail < 2; ++tail) {
      for (int height = 0; height < 2; ++height) {
        llvm::Function* function = blocks_[tail][height];
        if (!function) continue;
        Value* condition = nullptr;
        if (blocks_[tail][1 - height]) condition = height ? tall : builder_.CreateNot(tall);
        if (blocks_[1 - tail][height]) {
          Value* width = tail ? builder_.CreateNot(full) : full;
          condition = condition ? builder_.CreateAnd(condition, width) : width;
        }
        Values own = arguments;
        if (tail == 0) own[6] = columns_left(left);
        if (!condition) {
          builder_.CreateCall(function, own);
        } else {
          emitter_.when(condition, [&] { builder_.CreateCall(function, own); });
        }
      }
    }
  }

  const ContractionContext& context_;
  const loop::Contraction& contraction_;
  const ContractionPlan& plan_;
  Emitter& emitter_;
  llvm::IRBuilder<>& builder_;
  ContractionPlan narrow_, full_;  ///< of the last column block and of the others

  std::int64_t zero_line_bytes_ = 0, tile_at_ = 0, panel_source_at_ = 0, panel_at_ = 0;
  std::int64_t row_epilogue_scratch_at_ = 0, scratch_bytes_ = 0;
  std::int64_t lines_at_ = 0, line_bytes_ = 0;
  llvm::Function* copy_lines_ = nullptr;
  Value* first_row_ = nullptr;         ///< of the segment
  llvm::Function* blocks_[2][2] = {};  ///< [tail][tall]
  llvm::Function* copy_ = nullptr;
  llvm::Function* epilogue_ = nullptr;
  llvm::Function* row_epilogue_ = nullptr;
  Value *a_ = nullptr, *b_ = nullptr;
  Value *batch_ = nullptr, *first_block_ = nullptr, *last_block_ = nullptr;
  Value *a_batch_ = nullptr, *b_batch_ = nullptr;
};

bool empty_domain(const loop::Contraction& contraction) {
  const auto zero = [](std::int64_t extent) { return extent <= 0; };
  return contraction.n <= 0 ||
         std::any_of(contraction.m_extents.begin(), contraction.m_extents.end(), zero) ||
         std::any_of(contraction.batch_extents.begin(), contraction.batch_extents.end(), zero);
}

/// B in groups of k wants its runs of k side by side in A, and instructions that multiply them.
Status check_groups(const Emitter& emitter, const loop::Contraction& c) {
  if (c.k_group == 1) return {};
  const DType a = emitter.kernel.buffers[c.a_buffer].dtype,
              b = emitter.kernel.buffers[c.b_buffer].dtype;
  const bool pairs = c.k_group == 2 && a == DType::bf16 && b == DType::bf16 &&
                     c.accumulator == DType::f32 && emitter.machine.bf16_dot;
  const bool word_pairs = c.k_group == 2 && pairs_as_words(a, b) && c.accumulator == DType::i32;
  const bool quads = c.k_group == 4 && a == DType::u8 && b == DType::i8 &&
                     c.accumulator == DType::i32 && emitter.machine.vnni;
  if (!pairs && !quads && !word_pairs) {
    return unsupported("Groups of ({}) k of ({} and {}) cannot be multiplied on this machine.",
                       c.k_group, name_of(a), name_of(b));
  }
  const std::size_t inner = c.batch_extents.size() + c.m_extents.size() + c.k_extents.size() - 1;
  bool open = c.b_packed && !c.k_extents.empty() && c.a_k_strides.back() == 1;
  for (const loop::Guard& guard : c.a_guards) open = open && guard.coefficients[inner] == 0;
  if (!open) return unsupported("Groups of k want a run of k that lies side by side in A.");
  return {};
}

}  // namespace

Status check_contraction(const loop::Kernel& kernel, const loop::Contraction& contraction) {
  const DType a = kernel.buffers[contraction.a_buffer].dtype;
  const DType b = kernel.buffers[contraction.b_buffer].dtype;
  const DType accumulator = contraction.accumulator;
  if (accumulator != DType::f32 && accumulator != DType::f64 && accumulator != DType::i32) {
    return unsupported("A contraction cannot accumulate in ({}).", name_of(accumulator));
  }
  if (is_complex(a) || is_complex(b)) {
    return unsupported("A contraction of ({} and {}) has no generated code.", name_of(a),
                       name_of(b));
  }
  const bool scalable = contraction.b_packed && contraction.k_group == 1 && size_of(b) == 1 &&
                        accumulator == DType::f32 && contraction.a_guards.empty();
  if (contraction.scales_b() && !scalable)
    return unsupported("Scales want packed bytes of one matrix as B, and an A without guards.");
  if (auto reason = cannot_generate(kernel, contraction.nodes)) {
    return unsupported("{}", *reason);
  }
  return {};
}

Result<KernelShape> emit_contraction(Emitter& emitter, const loop::Contraction& contraction) {
  RLX_TRY(check_contraction(emitter.kernel, contraction));
  if (empty_domain(contraction)) return KernelShape{};
  const DType a = emitter.kernel.buffers[contraction.a_buffer].dtype;
  const DType b = emitter.kernel.buffers[contraction.b_buffer].dtype;
  RLX_TRY(check_groups(emitter, contraction));
  const ContractionPlan plan = plan_contraction(contraction, a, b, PlanMachine(emitter.machine));
  const ContractionContext context{emitter, contraction, plan};
  if (suits_dots(context)) return emit_dots(context);
  return ContractionEmitter(context).emit();
}

}  // namespace rlx::codegen
