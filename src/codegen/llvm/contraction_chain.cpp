// Chains: two contractions on one block of rows after the other. A work item makes the rows of the
// first in its worker's scratch, finishes them with the row epilogue, and multiplies them. A first
// one without k has no products: its row epilogue makes the rows out of other buffers.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "codegen/llvm/attention_softmax.hpp"
#include "codegen/llvm/chain_plan.hpp"
#include "codegen/llvm/hidden_columns.hpp"

namespace rlx::codegen {
namespace {

using llvm::Value;
using Values = std::vector<Value*>;
using Integers = std::vector<std::int64_t>;

std::int64_t product(const Integers& extents) {
  std::int64_t result = 1;
  for (const std::int64_t extent : extents) result *= extent;
  return result;
}

/// One of the two contractions.
struct Stage {
  Stage(Emitter& emitter, const loop::Contraction& body)
      : contraction(body),
        plan(plan_stage(body, emitter.kernel.buffers, PlanMachine(emitter.machine))),
        narrow(narrow_plan(plan)),
        full(plan),
        context{emitter, contraction, plan},
        full_context{emitter, contraction, full},
        narrow_context{emitter, contraction, narrow} {
    // What goes through the tile needs no masks here, and its code must agree on that.
    if (has_tail() && context.register_epilogue()) full = full_plan(plan);
  }
  Stage(const Stage&) = delete;

  const loop::Contraction& contraction;
  ContractionPlan plan, narrow, full;
  const ContractionContext context, full_context, narrow_context;
  std::map<std::int64_t, RowCut> cuts;                             ///< by rows of an item
  std::map<std::pair<int, std::int64_t>, llvm::Function*> blocks;  ///< by tail and height
  llvm::Function* copy = nullptr;      ///< of a column block of B into a panel
  llvm::Function* epilogue = nullptr;  ///< null where it runs in registers
  /// Scratch: which B the panels hold, and the panels of all column blocks, or the one in work.
  std::int64_t source_at = 0, panels_at = 0;
  bool all_panels = false;
  Value *a = nullptr, *b = nullptr;

  bool has_tail() const {
    return context.own_tail() || (plan.tail() && narrow.vectors < plan.vectors);
  }
  bool asks() const { return plan.asking_blocks > 0; }
  std::int64_t height() const {
    std::int64_t most = 1;
    for (const auto& [rows, cut] : cuts) most = std::max(most, cut.height);
    return most;
  }
  std::int64_t panel_bytes() const { return codegen::panel_bytes(plan, contraction.accumulator); }
};

bool has_products(const loop::Contraction& c) { return product(c.k_extents) > 0; }

class ChainEmitter {
 public:
  ChainEmitter(Emitter& emitter, const loop::Chain& chain)
      : emitter_(emitter),
        builder_(emitter.builder),
        second_(emitter, chain.second),
        before_(chain.first.row_epilogue),
        rows_(second_.plan.rows) {
    if (has_products(chain.first)) stages_.push_back(&first_.emplace(emitter, chain.first));
    stages_.push_back(&second_);
    constexpr std::int64_t least_depth = 2 * columns_together;
    if (first_ && chain.first.n >= least_depth)
      hidden_ = find_hidden_scores(chain.first, emitter.kernel.buffers);
    if (hides_columns(chain) && second_.plan.may_end_early() && second_.plan.depth >= least_depth)
      for (ContractionPlan* plan : {&second_.plan, &second_.narrow, &second_.full})
        plan->ends_early = true;
  }

  Result<KernelShape> emit() {
    choose_group();
    lay_out_scratch();
    for (Stage* stage : stages_) emit_parts(*stage);
    if (!before_.nodes.empty()) RLX_TRY(add_row_epilogue());
    emit_preamble();
    emitter_.loop(emitter_.begin, emitter_.end, 1, [&](Value* item) { emit_item(item); });
    const auto has_tiles = [](const Stage* stage) { return stage->plan.tile_steps > 0; };
    if (std::ranges::any_of(stages_, has_tiles)) emit_tile_release(emitter_);
    return KernelShape{second_.plan.batches * groups_, scratch_bytes_};
  }

 private:
  Value* bytes_at(Value* pointer, Value* offset) {
    return builder_.CreateGEP(builder_.getInt8Ty(), pointer, offset);
  }
  Value* bytes_at(Value* pointer, std::int64_t offset) {
    return offset == 0 ? pointer : bytes_at(pointer, builder_.getInt64(offset));
  }
  Value* scaled(Value* index, std::int64_t step) {
    return builder_.CreateMul(index, builder_.getInt64(step));
  }
  Value* smaller(Value* a, Value* b) {
    return builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, a, b);
  }
  std::int64_t buffer_bytes(std::int32_t buffer) const {
    return static_cast<std::int64_t>(size_of(emitter_.kernel.buffers[buffer].dtype));
  }
  std::int64_t row_bytes(std::int32_t buffer) const {
    return emitter_.kernel.buffers[buffer].elements / (second_.plan.batches * rows_) *
           buffer_bytes(buffer);
  }
  std::vector<std::int32_t> local_buffers() const {
    std::vector<std::int32_t> list;
    for (std::size_t i = 0; i < emitter_.kernel.buffers.size(); ++i) {
      if (emitter_.kernel.buffers[i].local) list.push_back(static_cast<std::int32_t>(i));
    }
    return list;
  }

  void choose_group() {
    const ChainPlan cut =
        plan_chain(emitter_.kernel.buffers, first_ ? &first_->plan : nullptr, second_.plan);
    group_rows_ = cut.group_rows;
    groups_ = cut.groups;
    for (Stage* stage : stages_) {
      const std::int64_t most = stage->plan.tallest_rows();
      for (const std::int64_t rows : {group_rows_, cut.last_rows()})
        stage->cuts[rows] = cut_rows(rows, most);
      share_asking(stage->plan, group_rows_);
      share_asking(stage->narrow, group_rows_);
      share_asking(stage->full, group_rows_);
    }
  }

  /// [buffers' addresses][tile][panels of each stage][row epilogue's own][rows]
  void lay_out_scratch() {
    scratch_bytes_ = align_up(static_cast<std::int64_t>(emitter_.kernel.buffers.size()) * 8);
    tile_at_ = scratch_bytes_;
    std::int64_t tile_bytes = 0;
    for (const Stage* stage : stages_) {
      const auto bytes = static_cast<std::int64_t>(size_of(stage->contraction.accumulator));
      tile_bytes = std::max(tile_bytes, stage->height() * stage->plan.block_columns * bytes);
    }
    scratch_bytes_ += align_up(tile_bytes);
    for (Stage* stage : stages_) {
      if (stage->plan.column_source != ColumnSource::scratch) continue;
      stage->all_panels = keeps_panels(stage->plan, stage->contraction.accumulator);
      stage->source_at = scratch_bytes_;
      stage->panels_at = scratch_bytes_ + 64;
      scratch_bytes_ = stage->panels_at +
                       stage->panel_bytes() * (stage->all_panels ? stage->plan.column_blocks : 1);
    }
    for (const std::int32_t buffer : local_buffers()) {
      rows_at_[buffer] = scratch_bytes_;
      scratch_bytes_ += align_up(group_rows_ * row_bytes(buffer));
    }
  }

  void emit_parts(Stage& stage) {
    const ContractionPlan& plan = stage.plan;
    std::set<std::int64_t> heights;
    for (const auto& [rows, cut] : stage.cuts) {
      if (cut.tall_blocks > 0) heights.insert(cut.height);
      if (cut.short_blocks > 0) heights.insert(cut.height - 1);
    }
    const bool in_place = plan.column_source == ColumnSource::in_place;
    for (const std::int64_t height : heights) {
      if (!stage.has_tail() || plan.column_blocks > 1)
        stage.blocks[{0, height}] = emit_row_block(stage.full_context, height, false, stage.asks());
      if (stage.has_tail()) {
        stage.blocks[{1, height}] =
            emit_row_block(stage.narrow_context, height, in_place, stage.asks());
      }
    }
    if (plan.column_source == ColumnSource::scratch) stage.copy = emit_panel_copy(stage.context);
    if (!stage.context.register_epilogue()) stage.epilogue = emit_tile_epilogue(stage.context);
  }

  Result<BodyFunction> make_row_epilogue() {
    const std::int64_t rows = second_.plan.batches * rows_;
    if (const auto softmax =
            find_softmax_rows(before_, emitter_.kernel.buffers, emitter_.machine, rows))
      return emit_softmax_rows(emitter_, *softmax);
    return emit_row_epilogue(emitter_, before_, rows);
  }

  Status add_row_epilogue() {
    RLX_ASSIGN(const BodyFunction made, make_row_epilogue());
    row_epilogue_ = made.function;
    row_epilogue_scratch_at_ = scratch_bytes_;
    scratch_bytes_ += align_up(made.shape.scratch_bytes);
    return {};
  }

  /// The addresses of the buffers, to which each item adds where its rows lie; no panels yet.
  void emit_preamble() {
    buffers_ = emitter_.scratch;
    for (std::size_t i = 0; i < emitter_.buffers.size(); ++i) {
      builder_.CreateStore(emitter_.buffers[i],
                           bytes_at(buffers_, static_cast<std::int64_t>(i) * 8));
    }
    for (Stage* stage : stages_) {
      const loop::Contraction& c = stage->contraction;
      stage->b = bytes_at(emitter_.buffers[c.b_buffer], c.b_offset * buffer_bytes(c.b_buffer));
      if (!stage->copy) continue;
      builder_.CreateStore(llvm::ConstantPointerNull::get(builder_.getPtrTy()),
                           bytes_at(emitter_.scratch, stage->source_at));
    }
    if (!first_) return;
    const loop::Contraction& c = first_->contraction;
    first_->a = bytes_at(emitter_.buffers[c.a_buffer], c.a_offset * buffer_bytes(c.a_buffer));
  }

  void emit_item(Value* item) {
    const Values at = emit_coordinates(emitter_, item, {second_.plan.batches, groups_}, true);
    Value* batch = at[0];
    Value* first_row = scaled(at[1], group_rows_);
    Value* left = builder_.CreateSub(builder_.getInt64(rows_), first_row);
    Value* count = smaller(left, builder_.getInt64(group_rows_));
    Value* before = builder_.CreateAdd(scaled(batch, rows_), first_row);
    for (const auto& [buffer, place] : rows_at_) {
      // As if all rows were there: the item's own lie in scratch.
      Value* skipped = builder_.CreateNeg(scaled(before, row_bytes(buffer)));
      Value* base = bytes_at(bytes_at(emitter_.scratch, place), skipped);
      builder_.CreateStore(base, bytes_at(buffers_, std::int64_t{buffer} * 8));
      const loop::Contraction& c = second_.contraction;
      if (buffer == c.a_buffer) second_.a = bytes_at(base, c.a_offset * buffer_bytes(buffer));
    }
    if (first_ && hidden_) {
      emit_shown_scores(batch, first_row, count);
    } else if (first_) {
      emit_stage(*first_, batch, first_row, count, all_blocks(*first_));
    }
    if (row_epilogue_) {
      builder_.CreateCall(row_epilogue_, {buffers_, before, builder_.CreateAdd(before, count),
                                          bytes_at(emitter_.scratch, row_epilogue_scratch_at_)});
    }
    if (second_.plan.ends_early) {
      const loop::Contraction& c = second_.contraction;
      columns_that_count_ = emit_last_columns(
          emitter_, rows_of_a(emitter_, c, local_base(c.a_buffer), batch, first_row), count);
    }
    emit_stage(second_, batch, first_row, count, all_blocks(second_));
  }

  Value* all_blocks(const Stage& stage) { return emitter_.i64(stage.plan.column_blocks); }

  /// Where the item's rows of a local buffer lie, as if all rows were there.
  Value* local_base(std::int32_t buffer) {
    return builder_.CreateLoad(builder_.getPtrTy(), bytes_at(buffers_, std::int64_t{buffer} * 8));
  }

  /// Makes the scores that a mask may show, and stores what the others are.
  void emit_shown_scores(Value* batch, Value* first_row, Value* count) {
    const loop::Contraction& c = first_->contraction;
    const auto rows_of = [&](const loop::Access& access, Value* base) {
      return column_rows(emitter_, c, access, base, batch, first_row);
    };
    const loop::Access& mask = c.accesses[static_cast<std::size_t>(hidden_->mask)];
    const loop::Access& scores = c.stores[0].access;
    const std::int64_t width = first_->plan.block_columns;
    Value* shown = emit_last_columns(emitter_, rows_of(mask, emitter_.buffers[mask.buffer]), count);
    Value* blocks = builder_.CreateUDiv(builder_.CreateAdd(shown, builder_.getInt64(width - 1)),
                                        builder_.getInt64(width));
    emit_stage(*first_, batch, first_row, count, blocks);
    emit_fill(emitter_, rows_of(scores, local_base(scores.buffer)), count,
              smaller(scaled(blocks, width), builder_.getInt64(c.n)), first_->plan.lanes,
              hidden_->value);
  }

  /// The first `column_blocks` of `count` rows from first_row on.
  void emit_stage(const Stage& stage, Value* batch, Value* first_row, Value* count,
                  Value* column_blocks) {
    const std::int64_t a_bytes = buffer_bytes(stage.contraction.a_buffer),
                       b_bytes = buffer_bytes(stage.contraction.b_buffer);
    Integers extents, a_steps, b_steps;
    for (const AddressDim& dim : stage.plan.batch) {
      extents.push_back(dim.extent);
      a_steps.push_back(dim.a * a_bytes);
      b_steps.push_back(dim.b * b_bytes);
    }
    const Values sums = emit_linear_sums(emitter_, batch, extents, {a_steps, b_steps}, {0, 0});
    Value* a = bytes_at(stage.a, sums[0]);
    Value* b = bytes_at(stage.b, sums[1]);
    if (stage.all_panels) emit_all_panels(stage, b);
    const std::vector<NextRows> next = next_rows(stage, batch, first_row);
    emitter_.loop(emitter_.i64(0), column_blocks, 1, [&](Value* column_block) {
      for (const NextRows& rows : next) ask_for(rows, column_block);
      Value* column = scaled(column_block, stage.plan.block_columns);
      Value* left = builder_.CreateSub(builder_.getInt64(stage.plan.columns), column);
      Value* columns = emit_columns(stage, b, column_block, left);
      for (const auto& [rows, cut] : stage.cuts) {
        const auto blocks = [&] {
          emit_row_blocks(stage, cut, {a, columns, batch, first_row}, column, left);
        };
        if (stage.cuts.size() == 1) {
          blocks();
        } else {
          emitter_.when(builder_.CreateICmpEQ(count, builder_.getInt64(rows)), blocks);
        }
      }
    });
  }

  /// What the epilogue will add to the next item's scores, in memory.
  struct NextRows {
    Value* first;
    std::int64_t lines;  ///< of the cache, asked for beside each column block
  };

  /// A large matrix that scores are added to is read a line of each row at a time, which nothing
  /// fetches ahead.
  std::vector<NextRows> next_rows(const Stage& stage, Value* batch, Value* first_row) {
    constexpr std::int64_t least_bytes = 256 * 1024, most_item_bytes = 128 * 1024, line = 64;
    const loop::Contraction& c = stage.contraction;
    const auto m_begin = static_cast<std::ptrdiff_t>(c.batch_extents.size());
    std::vector<NextRows> next;
    for (const loop::Access& access : c.accesses) {
      const loop::Buffer& buffer = emitter_.kernel.buffers[access.buffer];
      const std::int64_t bytes = buffer_bytes(access.buffer);
      const Integers m_strides(access.strides.begin() + m_begin, access.strides.end() - 1);
      const std::vector<AddressDim> m = merge_dims(c.m_extents, {m_strides});
      if (buffer.local || !access.guards.empty() || !access.indirect.empty() ||
          access.strides.back() != 1 || m.size() != 1 || buffer.elements * bytes < least_bytes)
        continue;
      const std::int64_t row = m[0].guards[0] * bytes, item = row * group_rows_;
      if (row <= 0 || row > 2 * c.n * bytes || item > most_item_bytes) continue;
      Integers steps(access.strides.begin(), access.strides.begin() + m_begin);
      for (std::int64_t& step : steps) step *= bytes;
      Value* offset = emit_linear_sums(emitter_, batch, c.batch_extents, {steps},
                                       {access.offset * bytes + item})[0];
      offset = builder_.CreateAdd(offset, scaled(first_row, row));
      const std::int64_t blocks = stage.plan.column_blocks * line;
      next.push_back(
          {bytes_at(emitter_.buffers[access.buffer], offset), (item + blocks - 1) / blocks});
    }
    return next;
  }

  void ask_for(const NextRows& rows, Value* column_block) {
    constexpr std::int64_t line = 64;
    Value* first = bytes_at(rows.first, scaled(column_block, rows.lines * line));
    emitter_.loop(emitter_.i64(0), emitter_.i64(rows.lines * line), line, [&](Value* at) {
      constexpr unsigned read = 0, second_level = 2, data = 1;
      builder_.CreateIntrinsic(llvm::Intrinsic::prefetch, {first->getType()},
                               {bytes_at(first, at), builder_.getInt32(read),
                                builder_.getInt32(second_level), builder_.getInt32(data)});
    });
  }

  /// All rows of an item, `place` as of its first one.
  void emit_row_blocks(const Stage& stage, const RowCut& cut, const Values& place, Value* column,
                       Value* left) {
    const auto blocks = [&](std::int64_t first, std::int64_t count, std::int64_t skipped,
                            std::int64_t height) {
      if (count == 0) return;
      if (stage.plan.tile_steps > 0) emit_tile_config(stage.context, height);
      emitter_.loop(emitter_.i64(first), emitter_.i64(first + count), 1, [&](Value* block) {
        Values at = place;
        Value* row = builder_.CreateSub(scaled(block, height), builder_.getInt64(skipped));
        at[3] = builder_.CreateAdd(place[3], row);
        emit_block(stage, height, at, block, column, left);
      });
    };
    blocks(0, cut.tall_blocks, 0, cut.height);
    // Short ones have less than that many rows before them.
    blocks(cut.tall_blocks, cut.short_blocks, -cut.tall_blocks, cut.height - 1);
  }

  /// Where a row block's part of the next panel begins. Later blocks ask for what is there.
  Value* asked_from(const Stage& stage, Value* columns, Value* block) {
    const std::int64_t part = stage.plan.panel_steps * stage.plan.asked_bytes;
    Value* offset = builder_.CreateAdd(scaled(block, part),
                                       builder_.getInt64(stage.context.packed_panel_bytes()));
    Value* asking = builder_.CreateICmpULT(block, builder_.getInt64(stage.plan.asking_blocks));
    return bytes_at(columns, builder_.CreateSelect(asking, offset, builder_.getInt64(0)));
  }

  /// `place`: a, columns, batch, row.
  void emit_block(const Stage& stage, std::int64_t rows, const Values& place, Value* block,
                  Value* column, Value* left) {
    Value* tile = bytes_at(emitter_.scratch, tile_at_);
    Values arguments = place;
    arguments.insert(arguments.end(), {stage.epilogue ? tile : buffers_, emitter_.scratch, left});
    if (stage.asks()) arguments.push_back(asked_from(stage, place[1], block));
    if (stage.plan.ends_early) arguments.push_back(columns_that_count_);
    const auto call = [&](int tail) {
      // Code of full blocks counts columns that do not exist.
      Values own = arguments;
      if (tail == 0) {
        const std::int64_t more = stage.full.columns - stage.plan.columns;
        own[6] = builder_.CreateAdd(left, builder_.getInt64(more));
      }
      builder_.CreateCall(stage.blocks.at({tail, rows}), own);
    };
    const bool has_tail = stage.blocks.contains({1, rows});
    if (!has_tail || !stage.blocks.contains({0, rows})) {
      call(has_tail ? 1 : 0);
    } else {
      Value* full = builder_.CreateICmpSGE(left, builder_.getInt64(stage.plan.block_columns));
      emitter_.when(full, [&] { call(0); });
      emitter_.when(builder_.CreateNot(full), [&] { call(1); });
    }
    if (!stage.epilogue) return;
    builder_.CreateCall(stage.epilogue,
                        {buffers_, tile, place[2], place[3], builder_.getInt64(rows), column});
  }

  /// B's element of the first k and the first column of a block.
  Value* source_columns(const Stage& stage, Value* b, Value* column_block) {
    const std::int64_t b_bytes = buffer_bytes(stage.contraction.b_buffer),
                       columns = stage.plan.block_columns;
    if (!stage.contraction.b_packed) {
      return bytes_at(b, scaled(column_block, columns * stage.contraction.b_n_stride * b_bytes));
    }
    Value* blocks = builder_.getInt64(stage.plan.panel_width / columns);
    Value* panel =
        scaled(builder_.CreateUDiv(column_block, blocks), stage.context.packed_panel_bytes());
    return bytes_at(bytes_at(b, panel), scaled(builder_.CreateURem(column_block, blocks),
                                               columns * stage.context.packed_column_bytes()));
  }

  /// Every column block's panel, where a worker's last item had another B.
  void emit_all_panels(const Stage& stage, Value* b) {
    emit_where_new(stage, b, [&] {
      emitter_.loop(emitter_.i64(0), emitter_.i64(stage.plan.column_blocks), 1, [&](Value* block) {
        Value* left = builder_.CreateSub(builder_.getInt64(stage.plan.columns),
                                         scaled(block, stage.plan.block_columns));
        Value* panels = bytes_at(emitter_.scratch, stage.panels_at);
        builder_.CreateCall(stage.copy,
                            {source_columns(stage, b, block),
                             bytes_at(panels, scaled(block, stage.panel_bytes())), left});
      });
    });
  }

  Value* emit_columns(const Stage& stage, Value* b, Value* column_block, Value* left) {
    if (!stage.copy) return source_columns(stage, b, column_block);
    Value* panels = bytes_at(emitter_.scratch, stage.panels_at);
    if (stage.all_panels) return bytes_at(panels, scaled(column_block, stage.panel_bytes()));
    Value* columns = source_columns(stage, b, column_block);
    emit_where_new(stage, columns,
                   [&] { builder_.CreateCall(stage.copy, {columns, panels, left}); });
    return panels;
  }

  void emit_where_new(const Stage& stage, Value* source, const std::function<void()>& body) {
    Value* slot = bytes_at(emitter_.scratch, stage.source_at);
    Value* held = builder_.CreateLoad(builder_.getPtrTy(), slot);
    emitter_.when(builder_.CreateICmpNE(held, source), [&] {
      body();
      builder_.CreateStore(source, slot);
    });
  }

  Emitter& emitter_;
  llvm::IRBuilder<>& builder_;
  std::optional<Stage> first_;
  Stage second_;
  std::vector<Stage*> stages_;
  const loop::Nest& before_;  ///< the row epilogue of the first
  std::int64_t rows_, group_rows_ = 1, groups_ = 1;
  std::int64_t tile_at_ = 0, row_epilogue_scratch_at_ = 0, scratch_bytes_ = 0;
  std::map<std::int32_t, std::int64_t> rows_at_;  ///< by local buffer: its place in scratch
  llvm::Function* row_epilogue_ = nullptr;
  std::optional<HiddenScores> hidden_;
  Value* columns_that_count_ = nullptr;  ///< of the item's rows, where the second ends early
  Value* buffers_ = nullptr;  ///< addresses of the kernel's buffers, the item's rows among them
};

}  // namespace

Result<KernelShape> emit_chain(Emitter& emitter, const loop::Chain& chain) {
  for (const loop::Contraction* c : {&chain.first, &chain.second}) {
    RLX_TRY(check_contraction(emitter.kernel, *c));
    if (!c->a_guards.empty()) return unsupported("A chain's contractions have no guards.");
    if (c->scales_b()) return unsupported("A chain's contractions have no scales.");
  }
  const loop::Contraction &first = chain.first, &second = chain.second;
  if (product(first.batch_extents) != product(second.batch_extents) ||
      product(first.m_extents) != product(second.m_extents) ||
      !emitter.kernel.buffers[second.a_buffer].local) {
    return internal_error("The contractions of a chain do not share their rows.");
  }
  if (!second.row_epilogue.nodes.empty())
    return unsupported("The last contraction of a chain has no row epilogue.");
  const bool empty = second.n <= 0 || !has_products(second) || first.n <= 0 ||
                     product(first.batch_extents) <= 0 || product(first.m_extents) <= 0;
  if (empty) return unsupported("A chain without points is no chain.");
  return ChainEmitter(emitter, chain).emit();
}

}  // namespace rlx::codegen
