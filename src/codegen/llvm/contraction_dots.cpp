// Contractions to a single column: lanes run along k and a block's rows are summed across their
// lanes together, so that the epilogue finds them in one register.
#include <algorithm>

#include "codegen/llvm/contraction.hpp"
#include "codegen/llvm/scalar_emitter.hpp"

namespace rlx::codegen {
namespace {

using llvm::Value;
using Values = std::vector<Value*>;
using Integers = std::vector<std::int64_t>;

class DotEmitter {
 public:
  explicit DotEmitter(const ContractionContext& context)
      : contraction_(context.contraction),
        plan_(context.plan),
        emitter_(context.emitter),
        builder_(emitter_.builder),
        lanes_(plan_.lanes),
        blocks_((plan_.rows + lanes_ - 1) / lanes_) {
    if (plan_.line.segments > 0) copy_lines_ = emit_line_copy(context);
  }

  KernelShape emit() {
    a_ = bytes_at(emitter_.buffers[contraction_.a_buffer], contraction_.a_offset * bytes);
    b_ = bytes_at(emitter_.buffers[contraction_.b_buffer], contraction_.b_offset * bytes);
    if (copy_lines_) return emit_segments();
    const std::int64_t group = dot_blocks_per_item(plan_);
    emitter_.loop(emitter_.begin, emitter_.end, 1, [&](Value* item) {
      Value* first = builder_.CreateMul(item, emitter_.i64(group));
      Value* last = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smin,
                                                   builder_.CreateAdd(first, emitter_.i64(group)),
                                                   emitter_.i64(blocks_));
      emit_blocks(a_, emitter_.i64(0), first, last);
    });
    return {(blocks_ + group - 1) / group, 0};
  }

 private:
  static constexpr std::int64_t bytes = sizeof(float), page = 4096;

  Value* bytes_at(Value* pointer, Value* offset) {
    return builder_.CreateGEP(builder_.getInt8Ty(), pointer, offset);
  }
  Value* bytes_at(Value* pointer, std::int64_t offset) {
    return offset == 0 ? pointer : bytes_at(pointer, emitter_.i64(offset));
  }

  KernelShape emit_segments() {
    const std::int64_t line_bytes = plan_.line.count() * plan_.line.pitch * bytes;
    const std::int64_t step = emitter_.machine.vector_bytes;
    auto* zeros = llvm::Constant::getNullValue(value_type(emitter_, DType::f32, lanes_));
    emitter_.loop(emitter_.i64(0), emitter_.i64(line_bytes), step, [&](Value* at) {
      builder_.CreateAlignedStore(zeros, bytes_at(emitter_.scratch, at), llvm::Align(16));
    });
    emitter_.loop(emitter_.begin, emitter_.end, 1, [&](Value* item) {
      Value* first = builder_.CreateMul(item, emitter_.i64(plan_.group_blocks));
      Value* last = builder_.CreateBinaryIntrinsic(
          llvm::Intrinsic::smin, builder_.CreateAdd(first, emitter_.i64(plan_.group_blocks)),
          emitter_.i64(plan_.line.segments));
      emitter_.loop(first, last, 1, [&](Value* segment) {
        builder_.CreateCall(copy_lines_, {a_, emitter_.scratch, segment});
        emit_blocks(emitter_.scratch, builder_.CreateMul(segment, emitter_.i64(plan_.rows)),
                    emitter_.i64(0), emitter_.i64(blocks_));
      });
    });
    return {plan_.row_groups, (line_bytes + 63) / 64 * 64};
  }

  /// Blocks of the rows behind `a`; the last one reaches back into the one before it.
  void emit_blocks(Value* a, Value* first_row, Value* first, Value* last) {
    const std::int64_t distance = plan_.m.empty() ? 0 : plan_.m.front().a * bytes;
    emitter_.loop(first, last, 1, [&](Value* block) {
      Value* row = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smin,
                                                  builder_.CreateMul(block, emitter_.i64(lanes_)),
                                                  emitter_.i64(plan_.rows - lanes_));
      Value* rows = bytes_at(a, builder_.CreateMul(row, emitter_.i64(distance)));
      Value* sums = across_lanes(emit_rows(rows, distance));
      emit_epilogue(builder_.CreateAdd(first_row, row), sums);
    });
  }

  /// The sums of a block's rows, of so many rows at a time as are read side by side.
  Values emit_rows(Value* rows, std::int64_t distance) {
    const std::int64_t together = dot_rows_together(plan_);
    Values sums;
    for (std::int64_t first = 0; first < lanes_; first += together) {
      const Values some = emit_taps(bytes_at(rows, first * distance), distance, together);
      sums.insert(sums.end(), some.begin(), some.end());
    }
    return sums;
  }

  /// All k dims but the last are taps.
  Values emit_taps(Value* rows, std::int64_t distance, std::int64_t count) {
    Integers extents;
    std::vector<Integers> steps(2);
    std::int64_t taps = 1;
    for (std::size_t i = 0; i + 1 < plan_.k.size(); ++i) {
      extents.push_back(plan_.k[i].extent);
      taps *= plan_.k[i].extent;
      steps[0].push_back(plan_.k[i].a * bytes);
      steps[1].push_back(plan_.k[i].b * bytes);
    }
    Values sums(static_cast<std::size_t>(count),
                llvm::Constant::getNullValue(value_type(emitter_, DType::f32, lanes_)));
    return emitter_.loop(
        emitter_.i64(0), emitter_.i64(taps), 1, std::move(sums), [&](Value* tap, Values inside) {
          const Values at = emit_linear_sums(emitter_, tap, extents, steps, {0, 0});
          return emit_run(bytes_at(rows, at[0]), bytes_at(b_, at[1]), distance, std::move(inside));
        });
  }

  Values emit_run(Value* rows, Value* column, std::int64_t distance, Values sums) {
    const std::int64_t extent = plan_.k.back().extent;
    const std::int64_t rest = extent % lanes_;
    const auto whole = [&](Value* offset, Value* mask, Values values) {
      Value* b = emit_load(emitter_, DType::f32, bytes_at(column, offset), 1, lanes_, mask);
      for (std::size_t r = 0; r < values.size(); ++r) {
        Value* place = bytes_at(bytes_at(rows, offset), static_cast<std::int64_t>(r) * distance);
        Value*& sum = values[r];
        Value* a = emit_load(emitter_, DType::f32, place, 1, lanes_, mask);
        sum = multiply_add(emitter_, a, b, sum);
      }
      return values;
    };
    const auto steps = [&](Value* first, Value* last, Values values) {
      return emitter_.loop(
          first, last, lanes_ * bytes, std::move(values),
          [&](Value* offset, Values inside) { return whole(offset, nullptr, std::move(inside)); });
    };
    Value* end = emitter_.i64((extent - rest) * bytes);
    if (static_cast<std::int64_t>(sums.size()) == lanes_) {
      sums = steps(emitter_.i64(0), end, std::move(sums));
    } else {
      sums = emitter_.loop(
          emitter_.i64(0), end, page, std::move(sums), [&](Value* first, Values inside) {
            ask_ahead(bytes_at(rows, first), inside.size(), distance);
            Value* last = builder_.CreateAdd(first, emitter_.i64(page));
            last = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, last, end);
            return steps(first, last, std::move(inside));
          });
    }
    if (rest == 0) return sums;
    Value* done = emitter_.i64((extent - rest) * bytes);
    if (emitter_.machine.masks) {
      return whole(done, tail_mask(emitter_, emitter_.i64(rest), lanes_), std::move(sums));
    }
    const auto alone = [&](Value* place) {
      Value* zeros = llvm::Constant::getNullValue(value_type(emitter_, DType::f32, lanes_));
      return builder_.CreateInsertElement(zeros, emit_load(emitter_, DType::f32, place, 1, 1),
                                          std::uint64_t{0});
    };
    return emitter_.loop(done, emitter_.i64(extent * bytes), bytes, std::move(sums),
                         [&](Value* offset, Values inside) {
                           Value* b = alone(bytes_at(column, offset));
                           for (std::size_t r = 0; r < inside.size(); ++r) {
                             Value*& sum = inside[r];
                             const auto from = static_cast<std::int64_t>(r) * distance;
                             Value* a = alone(bytes_at(bytes_at(rows, offset), from));
                             sum = multiply_add(emitter_, a, b, sum);
                           }
                           return inside;
                         });
  }

  /// One line of the page after the next one, of each row: files are mapped by small pages, whose
  /// addresses are then translated before the rows get there.
  void ask_ahead(Value* rows, std::size_t count, std::int64_t distance) {
    for (std::size_t r = 0; r < count; ++r) {
      Value* from = bytes_at(rows, static_cast<std::int64_t>(r) * distance + 2 * page);
      builder_.CreateIntrinsic(
          llvm::Intrinsic::prefetch, {from->getType()},
          {from, builder_.getInt32(0), builder_.getInt32(2), builder_.getInt32(1)});
    }
  }

  /// Lane r of the result is the sum over the lanes of the r-th register: ever wider blocks of
  /// lanes change places between pairs of registers, which are then added.
  Value* across_lanes(Values sums) {
    const int lanes = static_cast<int>(lanes_);
    for (int width = 1; width < lanes; width *= 2) {
      std::vector<int> low, high;
      for (int lane = 0; lane < lanes; ++lane) {
        low.push_back(lane & width ? lanes + lane - width : lane);
        high.push_back(lane & width ? lanes + lane : lane + width);
      }
      for (int r = 0; r < lanes; r += 2 * width) {
        Value*& first = sums[static_cast<std::size_t>(r)];
        Value* second = sums[static_cast<std::size_t>(r + width)];
        first = builder_.CreateFAdd(builder_.CreateShuffleVector(first, second, low),
                                    builder_.CreateShuffleVector(first, second, high));
      }
    }
    return sums[0];
  }

  void emit_epilogue(Value* row, Value* sums) {
    Point point;
    point.index = emit_coordinates(emitter_, row, contraction_.m_extents);
    point.index.push_back(emitter_.i64(0));
    point.lanes = static_cast<unsigned>(lanes_);
    for (std::size_t i = 0; i < contraction_.m_extents.size(); ++i) {
      if (contraction_.m_extents[i] > 1) point.vector_dim = static_cast<int>(i);
    }
    PointExpression expression(emitter_, contraction_.nodes, contraction_.accesses,
                               std::move(point), -1);
    expression.set_accumulator(sums, DType::f32);
    for (const loop::Store& store : contraction_.stores) expression.value(store.node);
    for (const loop::Store& store : contraction_.stores) expression.store(store);
  }

  const loop::Contraction& contraction_;
  const ContractionPlan& plan_;
  Emitter& emitter_;
  llvm::IRBuilder<>& builder_;
  const std::int64_t lanes_, blocks_;  ///< a block has as many rows as a register has lanes
  llvm::Function* copy_lines_ = nullptr;
  Value *a_ = nullptr, *b_ = nullptr;
};

}  // namespace

bool suits_dots(const ContractionContext& context) {
  return is_dots(context.contraction, context.plan, context.a_dtype(), context.b_dtype());
}

KernelShape emit_dots(const ContractionContext& context) { return DotEmitter(context).emit(); }

}  // namespace rlx::codegen
