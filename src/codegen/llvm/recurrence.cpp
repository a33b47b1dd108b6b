// The emitter of recurrent layers: one loop over the steps for a few batch rows of one direction,
// the states in scratch; or one step for one panel of units, the states in memory. The products of
// a panel stay in registers.
#include <llvm/IR/Intrinsics.h>

#include <algorithm>

#include "codegen/cancel_buffer.hpp"
#include "codegen/llvm/recurrence_plan.hpp"
#include "codegen/llvm/scalar_emitter.hpp"

namespace rlx::codegen {
namespace {

using llvm::Value;
using Values = std::vector<Value*>;

class RecurrenceEmitter {
 public:
  RecurrenceEmitter(Emitter& emitter, const loop::Recurrence& recurrence)
      : emitter_(emitter),
        b_(emitter.builder),
        r_(recurrence),
        cancel_(cancel_buffer_of(emitter.kernel)),
        lanes_(static_cast<unsigned>(recurrence.panel_width)),
        early_(r_.late_input < 0 ? r_.gates : r_.early_gates),
        plan_(recurrence, emitter.machine),
        panels_(plan_.panels),
        rows_(plan_.rows),
        sides_(plan_.sides) {}

  KernelShape emit() {
    if (plan_.is_step) {
      emit_one_step();
      return {plan_.items, 0};
    }
    emit_walks();
    return {plan_.items, scratch_rows() * sides_ * rows_ * row_bytes()};
  }

 private:
  void emit_walks() {
    const std::int64_t blocks = plan_.blocks, rest = r_.batch % rows_;
    emitter_.loop(emitter_.begin, emitter_.end, 1, [&](Value* item) {
      directions_ = {emitter_.i64(0), emitter_.i64(1)};
      if (sides_ == 1) directions_ = {b_.CreateUDiv(item, emitter_.i64(blocks))};
      Value* block = b_.CreateURem(item, emitter_.i64(blocks));
      Value* first = b_.CreateMul(block, emitter_.i64(rows_));
      if (rest == 0) return emit_rows(first, rows_);
      Value* whole = b_.CreateICmpSLT(block, emitter_.i64(blocks - 1));
      emitter_.when(whole, [&] { emit_rows(first, rows_); });
      emitter_.when(b_.CreateNot(whole), [&] { emit_rows(first, rest); });
    });
  }

  // ---- scratch: rows of all units, padded to whole panels --------------------------------------

  /// From a row of state 0 to the next: of scratch, or of the memory that a step finds it in.
  std::int64_t row_bytes() const {
    return plan_.is_step ? r_.stores[0].access.strides[1] * 4 : panels_ * r_.panel_width * 4;
  }
  std::int64_t states() const { return static_cast<std::int64_t>(r_.next.size()); }
  /// State 0 twice (old and new), the other states, the late input, the early products.
  std::int64_t scratch_rows() const { return 1 + states() + (r_.late_input < 0 ? 0 : 1 + early_); }
  Value* scratch_block(std::int64_t number) {
    return b_.CreateConstGEP1_64(b_.getInt8Ty(), emitter_.scratch,
                                 static_cast<std::uint64_t>(number * sides_ * rows_ * row_bytes()));
  }
  Value* other_state(std::int64_t state) { return scratch_block(1 + state); }
  Value* late_input() { return scratch_block(1 + states()); }
  Value* early_product(std::int64_t gate) { return scratch_block(2 + states() + gate); }

  /// The panel's place in one row of a block.
  Value* place(Value* block, std::int64_t row, Value* panel) {
    Value* offset = b_.CreateMul(panel, emitter_.i64(r_.panel_width * 4));
    return b_.CreateGEP(b_.getInt8Ty(), block,
                        b_.CreateAdd(offset, emitter_.i64(row * row_bytes())));
  }
  Value* load_panel(Value* block, std::int64_t row, Value* panel) {
    return emit_load(emitter_, f32, place(block, row, panel), 1, lanes_);
  }
  void store_panel(Value* value, Value* block, std::int64_t row, Value* panel) {
    emit_store(emitter_, f32, splat(emitter_, value, lanes_), place(block, row, panel), 1, lanes_);
  }

  /// body(panel, mask of the units that exist or null).
  void for_panels(const std::function<void(Value*, Value*)>& body) {
    const std::int64_t whole = r_.units / r_.panel_width, rest = r_.units % r_.panel_width;
    emitter_.loop(emitter_.i64(0), emitter_.i64(whole), 1,
                  [&](Value* panel) { body(panel, nullptr); });
    if (rest > 0) body(emitter_.i64(whole), tail_mask(emitter_, emitter_.i64(rest), lanes_));
  }

  // ---- addresses of accesses: per row, then per step -----

  Value* move(Value* pointer, Value* index, std::int64_t stride) {
    if (stride == 0) return pointer;
    return b_.CreateGEP(b_.getFloatTy(), pointer, b_.CreateMul(index, emitter_.i64(stride)));
  }
  Value* row_address(const loop::Access& access, std::int64_t row) {
    Value* pointer = b_.CreateConstGEP1_64(
        b_.getFloatTy(), emitter_.buffers[static_cast<std::size_t>(access.buffer)],
        static_cast<std::uint64_t>(access.offset));
    const auto at = static_cast<std::size_t>(row);
    pointer = move(pointer, direction_of(row), access.strides[0]);
    return move(pointer, row_numbers_[at], access.strides[1]);
  }

  // ---- the walk -----

  void emit_rows(Value* first, std::int64_t rows) {
    set_rows(first, rows);
    start_states();
    const Values last =
        emitter_.loop(emitter_.i64(0), emitter_.i64(r_.steps), 1,
                      {scratch_block(0), scratch_block(1)}, [&](Value* count, Values blocks) {
                        const auto step = [&] { emit_step(count, blocks[0], blocks[1]); };
                        cancel_ < 0 ? step() : emitter_.when(goes_on(), step);
                        return Values{blocks[1], blocks[0]};
                      });
    store_states(last[0]);
  }

  void set_rows(Value* first, std::int64_t rows) {
    rows_of_side_ = rows;
    rows_here_ = rows * sides_;
    row_numbers_.clear();
    row_addresses_.clear();
    for (std::int64_t row = 0; row < rows_here_; ++row) {
      row_numbers_.push_back(b_.CreateAdd(first, emitter_.i64(row % rows)));
      Values addresses;
      for (const loop::Access& access : r_.accesses) {
        addresses.push_back(row_address(access, row));
      }
      for (const loop::Store& store : r_.stores) {
        addresses.push_back(row_address(store.access, row));
      }
      row_addresses_.push_back(std::move(addresses));
    }
  }

  /// Asked before each step, so that another thread can end a long walk: the load is atomic.
  Value* goes_on() {
    llvm::LoadInst* flag = b_.CreateAlignedLoad(
        b_.getInt8Ty(), emitter_.buffers[static_cast<std::size_t>(cancel_)], llvm::Align(1));
    flag->setAtomic(llvm::AtomicOrdering::Monotonic);
    return b_.CreateICmpEQ(flag, b_.getInt8(0));
  }

  Value* direction_of(std::int64_t row) const {
    return directions_[static_cast<std::size_t>(row / rows_of_side_)];
  }

  Value* data_step(Value* count, Value* direction) {
    Value* backward = b_.CreateSub(emitter_.i64(r_.steps - 1), count);
    if (r_.first_reversed <= 0) return backward;
    if (r_.first_reversed >= r_.directions) return count;
    return b_.CreateSelect(b_.CreateICmpSGE(direction, emitter_.i64(r_.first_reversed)), backward,
                           count);
  }

  void start_states() {
    for_panels([&](Value* panel, Value* mask) {
      for (std::int64_t state = 0; state < states(); ++state) {
        const loop::Access& from = r_.initial[static_cast<std::size_t>(state)];
        Value* block = state == 0 ? scratch_block(0) : other_state(state);
        for (std::int64_t row = 0; row < rows_here_; ++row) {
          Value* value = constant_of(emitter_, f32, lanes_, 0, 0);
          if (from.buffer >= 0) {
            value = emit_load(emitter_, f32, end_address(from, row, panel), from.strides[3], lanes_,
                              mask);
          }
          store_panel(value, block, row, panel);
        }
      }
    });
  }

  void store_states(Value* first_state) {
    for_panels([&](Value* panel, Value* mask) {
      for (std::int64_t state = 0; state < states(); ++state) {
        const loop::Access& to = r_.last[static_cast<std::size_t>(state)];
        Value* block = state == 0 ? first_state : other_state(state);
        for (std::int64_t row = 0; row < rows_here_; ++row) {
          emit_store(emitter_, f32, load_panel(block, row, panel), end_address(to, row, panel),
                     to.strides[3], lanes_, mask);
        }
      }
    });
  }

  Value* end_address(const loop::Access& access, std::int64_t row, Value* panel) {
    return move(row_address(access, row), panel, access.strides[3] * r_.panel_width);
  }

  void set_step(Value* count) {
    steps_.clear();
    next_steps_.clear();
    Value* next_count = b_.CreateAdd(count, emitter_.i64(1));
    for (Value* direction : directions_) {
      steps_.push_back(data_step(count, direction));
      next_steps_.push_back(data_step(next_count, direction));
    }
    step_addresses_.clear();
    for (std::int64_t number = 0; number < rows_here_; ++number) {
      const Values& row = row_addresses_[static_cast<std::size_t>(number)];
      Value* step = steps_[static_cast<std::size_t>(number / rows_of_side_)];
      std::vector<PartialAddress> addresses;
      for (std::size_t i = 0; i < row.size(); ++i) {
        const bool loads = i < r_.accesses.size();
        const loop::Access& access =
            loads ? r_.accesses[i] : r_.stores[i - r_.accesses.size()].access;
        addresses.push_back({move(row[i], step, access.strides[2]), 0b111});
      }
      step_addresses_.push_back(std::move(addresses));
    }
  }

  void emit_step(Value* count, Value* old_state, Value* new_state) {
    set_step(count);
    if (r_.late_input < 0) {
      return for_panels([&](Value* panel, Value* mask) {
        finish_panel(products(0, r_.gates, old_state, panel), panel, mask, old_state, new_state);
      });
    }
    for_panels([&](Value* panel, Value* mask) {
      const std::vector<Values> early = products(0, early_, old_state, panel);
      for (std::int64_t row = 0; row < rows_here_; ++row) {
        for (std::int64_t gate = 0; gate < early_; ++gate) {
          store_panel(early[gate][row], early_product(gate), row, panel);
        }
        PointExpression cell = cell_at(early, row, panel, mask, old_state);
        store_panel(cell.value(r_.late_input), late_input(), row, panel);
      }
    });
    for_panels([&](Value* panel, Value* mask) {
      std::vector<Values> all;
      for (std::int64_t gate = 0; gate < early_; ++gate) {
        Values& rows = all.emplace_back();
        for (std::int64_t row = 0; row < rows_here_; ++row) {
          rows.push_back(load_panel(early_product(gate), row, panel));
        }
      }
      for (Values& rows : products(early_, r_.gates, late_input(), panel)) all.push_back(rows);
      finish_panel(all, panel, mask, old_state, new_state);
    });
  }

  // ---- one step -----

  void emit_one_step() {
    number_ = b_.CreateAlignedLoad(b_.getInt64Ty(),
                                   emitter_.buffers[static_cast<std::size_t>(r_.step_buffer)],
                                   llvm::Align(8));
    const std::int64_t whole = r_.units / r_.panel_width, rest = r_.units % r_.panel_width;
    emitter_.loop(emitter_.begin, emitter_.end, 1, [&](Value* item) {
      directions_ = {b_.CreateUDiv(item, emitter_.i64(panels_))};
      Value* panel = b_.CreateURem(item, emitter_.i64(panels_));
      if (rest == 0) return emit_panel(panel, nullptr);
      Value* is_whole = b_.CreateICmpSLT(panel, emitter_.i64(whole));
      emitter_.when(is_whole, [&] { emit_panel(panel, nullptr); });
      emitter_.when(b_.CreateNot(is_whole),
                    [&] { emit_panel(panel, tail_mask(emitter_, emitter_.i64(rest), lanes_)); });
    });
  }

  /// All rows, so that they read the panel's part of R from a near cache.
  void emit_panel(Value* panel, Value* mask) {
    const std::int64_t blocks = r_.batch / rows_, rest = r_.batch % rows_;
    emitter_.loop(emitter_.i64(0), emitter_.i64(blocks), 1, [&](Value* block) {
      emit_block(b_.CreateMul(block, emitter_.i64(rows_)), rows_, panel, mask);
    });
    if (rest > 0) emit_block(emitter_.i64(blocks * rows_), rest, panel, mask);
  }

  void emit_block(Value* first, std::int64_t rows, Value* panel, Value* mask) {
    set_rows(first, rows);
    set_step(number_);
    const loop::Access& output = r_.stores[0].access;
    Value* before = data_step(b_.CreateSub(number_, emitter_.i64(1)), directions_[0]);
    before = move(row_address(output, 0), before, output.strides[2]);
    Value* is_first = b_.CreateICmpEQ(number_, emitter_.i64(0));
    Value* state = b_.CreateSelect(is_first, row_address(r_.last[0], 0), before);
    finish_panel(products(0, r_.gates, state, panel), panel, mask, state, nullptr);
  }

  // ---- the cell -----

  Value* read_state(std::int64_t state, std::int64_t row, Value* panel, Value* mask,
                    Value* first_state) {
    if (!plan_.is_step)
      return load_panel(state == 0 ? first_state : other_state(state), row, panel);
    if (state == 0)
      return emit_load(emitter_, f32, place(first_state, row, panel), 1, lanes_, mask);
    const loop::Access& from = r_.last[static_cast<std::size_t>(state)];
    return emit_load(emitter_, f32, end_address(from, row, panel), from.strides[3], lanes_, mask);
  }

  void keep_state(Value* value, std::int64_t state, std::int64_t row, Value* panel, Value* mask,
                  Value* first_state) {
    if (!plan_.is_step)
      return store_panel(value, state == 0 ? first_state : other_state(state), row, panel);
    const loop::Access& to = r_.last[static_cast<std::size_t>(state)];
    const auto store = [&] {
      emit_store(emitter_, f32, splat(emitter_, value, lanes_), end_address(to, row, panel),
                 to.strides[3], lanes_, mask);
    };
    if (state > 0) return store();
    emitter_.when(b_.CreateICmpEQ(number_, emitter_.i64(r_.steps - 1)), store);
  }

  /// The nodes at one row and panel; products by gate and row, as far as they are known.
  PointExpression cell_at(const std::vector<Values>& products, std::int64_t row, Value* panel,
                          Value* mask, Value* old_state) {
    const auto at = static_cast<std::size_t>(row);
    Value* unit = b_.CreateMul(panel, emitter_.i64(r_.panel_width));
    Value* step = steps_[at / static_cast<std::size_t>(rows_of_side_)];
    Point point{{direction_of(row), row_numbers_[at], step, unit}, 3, lanes_, mask};
    PointExpression cell(emitter_, r_.nodes, r_.accesses, std::move(point), -1);
    cell.set_addresses({step_addresses_[at].data(), r_.accesses.size()});
    for (std::size_t id = 0; id < r_.nodes.size(); ++id) {
      const ScalarNode& node = r_.nodes[id];
      if (node.op != ScalarOp::accumulator) continue;
      const std::int64_t state = node.index - r_.gates;
      if (state >= 0) {
        cell.set(static_cast<ScalarId>(id), read_state(state, row, panel, mask, old_state));
      } else if (node.index < static_cast<std::int64_t>(products.size())) {
        cell.set(static_cast<ScalarId>(id), products[static_cast<std::size_t>(node.index)][at]);
      }
    }
    return cell;
  }

  /// Asks for what the next step reads at this panel. Long sequences come from far away, and a step
  /// is too short a run for the processor to see where the next one lies.
  void prefetch_next_step(Value* panel) {
    if (panels_ < 4 || r_.steps == 1) return;
    for (std::int64_t row = 0; row < rows_here_; ++row) {
      const auto at = static_cast<std::size_t>(row);
      Value* step = next_steps_[at / static_cast<std::size_t>(rows_of_side_)];
      for (std::size_t i = 0; i < r_.accesses.size(); ++i) {
        const loop::Access& access = r_.accesses[i];
        if (access.strides[2] == 0) continue;
        Value* pointer = move(row_addresses_[at][i], step, access.strides[2]);
        pointer = move(pointer, panel, access.strides[3] * r_.panel_width);
        b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {pointer->getType()},
                           {pointer, b_.getInt32(0), b_.getInt32(3), b_.getInt32(1)});
      }
    }
  }

  void finish_panel(const std::vector<Values>& products, Value* panel, Value* mask,
                    Value* old_state, Value* new_state) {
    prefetch_next_step(panel);
    for (std::int64_t row = 0; row < rows_here_; ++row) {
      PointExpression cell = cell_at(products, row, panel, mask, old_state);
      Values next;
      for (const ScalarId id : r_.next) next.push_back(cell.value(id));
      const std::vector<PartialAddress>& addresses = step_addresses_[static_cast<std::size_t>(row)];
      for (std::size_t i = 0; i < r_.stores.size(); ++i) {
        cell.store(r_.stores[i], addresses[r_.accesses.size() + i]);
      }
      for (std::size_t state = 0; state < next.size(); ++state) {
        keep_state(next[state], static_cast<std::int64_t>(state), row, panel, mask, new_state);
      }
    }
  }

  // ---- products: input * R -----

  /// Of the gates [first, last) for one panel of units, by gate and row. `input`: a scratch block.
  std::vector<Values> products(std::int64_t first, std::int64_t last, Value* input, Value* panel) {
    std::vector<Values> all(static_cast<std::size_t>(last - first));
    for (std::int64_t side = 0; side < sides_; ++side) {
      Value* rows = bytes_on(input, side * rows_of_side_ * row_bytes());
      const std::vector<Values> part =
          products(first, last, directions_[static_cast<std::size_t>(side)], rows, panel);
      for (std::size_t gate = 0; gate < all.size(); ++gate) {
        all[gate].insert(all[gate].end(), part[gate].begin(), part[gate].end());
      }
    }
    return all;
  }

  /// Those of the rows of one direction.
  std::vector<Values> products(std::int64_t first, std::int64_t last, Value* direction,
                               Value* input, Value* panel) {
    const std::int64_t gates = last - first, sums = gates * rows_of_side_;
    const std::int64_t chains = RecurrencePlan::chains(sums);
    constexpr std::int64_t run = 4, straight = 16;
    const std::int64_t gate_bytes = panels_ * r_.units * r_.panel_width * 4;
    Value* matrix =
        b_.CreateAdd(b_.CreateMul(direction, emitter_.i64(r_.gates)), emitter_.i64(first));
    Value* offset = b_.CreateAdd(b_.CreateMul(matrix, emitter_.i64(gate_bytes)),
                                 b_.CreateMul(panel, emitter_.i64(r_.units * r_.panel_width * 4)));
    Value* weights = b_.CreateGEP(b_.getInt8Ty(),
                                  emitter_.buffers[static_cast<std::size_t>(r_.r_buffer)], offset);
    Values state(static_cast<std::size_t>(sums * chains), constant_of(emitter_, f32, lanes_, 0, 0));
    state.push_back(weights);
    state.push_back(input);
    const auto advance = [&](Values values, std::int64_t count) {
      for (std::int64_t k = 0; k < count; ++k) {
        multiply_one(values, gates, k, k % chains, gate_bytes);
      }
      values[values.size() - 2] = bytes_on(values[values.size() - 2], count * r_.panel_width * 4);
      values.back() = bytes_on(values.back(), count * 4);
      return values;
    };
    const std::int64_t in_loop = r_.units <= straight ? 0 : r_.units / run * run;
    if (in_loop > 0) {
      state = emitter_.loop(emitter_.i64(0), emitter_.i64(in_loop), run, std::move(state),
                            [&](Value*, Values values) { return advance(std::move(values), run); });
    }
    state = advance(std::move(state), r_.units - in_loop);
    std::vector<Values> result(static_cast<std::size_t>(gates));
    for (std::int64_t sum = 0; sum < sums; ++sum) {
      Value* total = state[static_cast<std::size_t>(sum)];
      for (std::int64_t chain = 1; chain < chains; ++chain) {
        total = b_.CreateFAdd(total, state[static_cast<std::size_t>(chain * sums + sum)]);
      }
      result[static_cast<std::size_t>(sum / rows_of_side_)].push_back(total);
    }
    return result;
  }

  /// Adds element k of the input times its rows of R: values are sums by chain, gate and row, then
  /// the addresses of R and the input.
  void multiply_one(Values& values, std::int64_t gates, std::int64_t k, std::int64_t chain,
                    std::int64_t gate_bytes) {
    Value* weights = values[values.size() - 2];
    Value* input = values.back();
    Values factors;
    for (std::int64_t row = 0; row < rows_of_side_; ++row) {
      Value* factor = emit_load(emitter_, f32, bytes_on(input, row * row_bytes() + k * 4), 1, 1);
      factors.push_back(splat(emitter_, factor, lanes_));
    }
    for (std::int64_t gate = 0; gate < gates; ++gate) {
      Value* column = emit_load(
          emitter_, f32, bytes_on(weights, gate * gate_bytes + k * r_.panel_width * 4), 1, lanes_);
      for (std::int64_t row = 0; row < rows_of_side_; ++row) {
        const auto at = static_cast<std::size_t>((chain * gates + gate) * rows_of_side_ + row);
        values[at] =
            multiply_add(emitter_, factors[static_cast<std::size_t>(row)], column, values[at]);
      }
    }
  }

  Value* bytes_on(Value* pointer, std::int64_t bytes) {
    return b_.CreateConstGEP1_64(b_.getInt8Ty(), pointer, static_cast<std::uint64_t>(bytes));
  }

  Emitter& emitter_;
  llvm::IRBuilder<>& b_;
  const loop::Recurrence& r_;
  const std::int32_t cancel_;  ///< its cancel buffer
  const unsigned lanes_;
  const std::int64_t early_;  ///< gates that multiply state 0
  const RecurrencePlan plan_;
  const std::int64_t panels_, rows_, sides_;  ///< of the plan
  Value* number_ = nullptr;                   ///< of the step that a call makes
  std::int64_t rows_of_side_ = 0;             ///< of the item under construction
  std::int64_t rows_here_ = 0;                ///< of all its sides, one side after another
  Values directions_, steps_, next_steps_;    ///< by side
  Values row_numbers_;                        ///< by row: of the batch
  std::vector<Values> row_addresses_;         ///< by row: of the accesses, then of the stores
  std::vector<std::vector<PartialAddress>> step_addresses_;
};

}  // namespace

Result<KernelShape> emit_recurrence(Emitter& emitter, const loop::Recurrence& recurrence) {
  if (const auto reason = cannot_generate(emitter.kernel, recurrence.nodes)) {
    return Error{ErrorKind::unsupported, *reason};
  }
  return RecurrenceEmitter(emitter, recurrence).emit();
}

}  // namespace rlx::codegen
