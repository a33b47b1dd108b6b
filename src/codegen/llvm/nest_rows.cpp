// Rows that lanes run along, in blocks: each pass is made for all rows of a block before the next
// one, so that what one row waits for (its series, its sum over the lanes) overlaps with the
// others.
#include "codegen/llvm/nest.hpp"
#include "codegen/llvm/scalar_values.hpp"

namespace rlx::codegen {

void NestEmitter::emit_rows(const NestFrame& frame, llvm::Value* low, llvm::Value* high) {
  const bool is_block = plan_.split_dim == plan_.row_dim() && plan_.split_size == plan_.row_block;
  if (is_block) return emit_row_block(frame, low, high);
  emitter_.loop(low, high, plan_.row_block, [&](llvm::Value* first) {
    llvm::Value* end = emitter_.builder.CreateAdd(first, emitter_.i64(plan_.row_block));
    end = emitter_.builder.CreateBinaryIntrinsic(llvm::Intrinsic::smin, end, high);
    emit_row_block(frame, first, end);
  });
}

/// All passes for the rows from low to high. What a pass leaves for later ones lies in scratch.
void NestEmitter::emit_row_block(NestFrame frame, llvm::Value* low, llvm::Value* high) {
  auto& b = emitter_.builder;
  const int dim = plan_.row_dim();
  frame.vectors = frame.lanes = 1;
  for (int outer = 0; outer < dim; ++outer) {
    enter(frame, outer, frame.index[static_cast<std::size_t>(outer)], true);
  }
  const NestPass& last = passes_.back();
  for (const NestPass& pass : passes_) {
    if (pass.reductions.empty() && pass.stores.empty()) continue;
    const bool ends = &pass == &last || (last.stores.empty() && pass.level == plan_.levels);
    row_groups(low, high, !ends || plan_.may_repeat, [&](llvm::Value* index, unsigned rows) {
      NestFrame group = frame;
      group.rows = rows;
      group.known.resize(rows, frame.known.front());
      group.place = b.CreateSub(index, low);
      enter(group, dim, index, true);
      emit_row_pass(group, pass, ends);
    });
  }
}

/// Calls body for groups of rows. A group at the end that is too short reaches back into the one
/// before it, or its rows are taken one by one where none may be computed twice.
void NestEmitter::row_groups(llvm::Value* low, llvm::Value* high, bool may_repeat,
                             const std::function<void(llvm::Value*, unsigned)>& body) {
  auto& b = emitter_.builder;
  const std::int64_t group = plan_.rows;
  const std::int64_t rest =
      nest_.extents[static_cast<std::size_t>(plan_.row_dim())] % plan_.row_block;
  llvm::Value* end = high;
  if (group == 1 || (!plan_.any_rows && plan_.row_block % group == 0 && rest % group == 0)) {
    emitter_.loop(low, high, group, [&](llvm::Value* index) { body(index, plan_.rows); });
  } else if (!plan_.any_rows && may_repeat && (rest == 0 || rest >= group)) {
    llvm::Value* latest = b.CreateSub(high, emitter_.i64(group));
    emitter_.loop(low, high, group, [&](llvm::Value* index) {
      body(b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, index, latest), plan_.rows);
    });
  } else {
    llvm::Value* groups = b.CreateUDiv(b.CreateSub(high, low), emitter_.i64(group));
    end = b.CreateAdd(low, b.CreateMul(groups, emitter_.i64(group)));
    emitter_.loop(low, end, group, [&](llvm::Value* index) { body(index, plan_.rows); });
    emitter_.loop(end, high, 1, [&](llvm::Value* index) { body(index, 1); });
  }
}

/// One pass of a group of rows; `ends`: what is stored once for each row, too.
void NestEmitter::emit_row_pass(NestFrame& group, const NestPass& pass, bool ends) {
  load_totals(group, pass);
  if (!pass.reductions.empty()) {
    run_row_reductions(group, pass);
    if (!ends) keep_totals(group, pass);
  }
  for (unsigned row = 0; row < group.rows && !pass.stores.empty(); ++row) {
    NestFrame own = row_of(group, row);
    hoist(own, pass);
    reduced_loops(nest_.parallel_dims, own, pass, {});
  }
  for (unsigned row = 0; row < group.rows && ends; ++row) emit_stores_once(row_of(group, row));
}

/// The frame of one row of a group. Its addresses lie a constant distance from those of the first.
NestFrame NestEmitter::row_of(const NestFrame& frame, unsigned row) {
  if (!frame.place) return frame;
  auto& b = emitter_.builder;
  NestFrame own = frame;
  own.rows = 1;
  own.known = {frame.known[row]};
  llvm::Value* kept = b.CreateAdd(b.CreateMul(frame.place, emitter_.i64(scratch_bytes_)),
                                  emitter_.i64(totals_bytes_ + row * scratch_bytes_));
  own.scratch = b.CreateGEP(b.getInt8Ty(), emitter_.scratch, kept);
  llvm::Value*& index = own.index[static_cast<std::size_t>(plan_.row_dim())];
  index = b.CreateAdd(index, emitter_.i64(row));
  for (std::size_t i = 0; i < own.addresses.size(); ++i) {
    const loop::Access& a = access(i);
    const std::int64_t distance = a.strides[static_cast<std::size_t>(plan_.row_dim())] * row;
    const DType dtype = emitter_.kernel.buffers[static_cast<std::size_t>(a.buffer)].dtype;
    llvm::Value*& pointer = own.addresses[i].pointer;
    if (distance == 0 || !pointer) continue;
    pointer = b.CreateConstGEP1_64(memory_type(emitter_, dtype), pointer,
                                   static_cast<std::uint64_t>(distance));
  }
  return own;
}

/// Where the result of a reduction lies for a row of the group.
llvm::Value* NestEmitter::total_place(const NestFrame& frame, std::size_t node, unsigned row) {
  auto& b = emitter_.builder;
  llvm::Type* element = memory_type(emitter_, nest_.nodes[node].dtype);
  llvm::Value* first = b.CreateConstGEP1_64(b.getInt8Ty(), emitter_.scratch,
                                            static_cast<std::uint64_t>(totals_at_[node]));
  return b.CreateGEP(element, first, b.CreateAdd(frame.place, emitter_.i64(row)));
}

void NestEmitter::keep_totals(const NestFrame& frame, const NestPass& pass) {
  auto& b = emitter_.builder;
  for (const ReductionEmitter& reduction : pass.reductions) {
    const auto node = static_cast<std::size_t>(reduction.node());
    llvm::Value* totals = frame.known.front()[node];
    if (frame.rows > 1) {
      llvm::Value* all = llvm::PoisonValue::get(with_lanes(totals->getType(), frame.rows));
      for (unsigned row = 0; row < frame.rows; ++row) {
        all = b.CreateInsertElement(all, frame.known[row][node], row);
      }
      totals = all;
    }
    emit_store(emitter_, nest_.nodes[node].dtype, totals, total_place(frame, node, 0), 1,
               frame.rows);
  }
}

void NestEmitter::load_totals(NestFrame& frame, const NestPass& pass) {
  for (std::size_t node = 0; node < nest_.nodes.size(); ++node) {
    if (nest_.nodes[node].op != ScalarOp::reduce || plan_.node_level[node] >= pass.level) continue;
    for (unsigned row = 0; row < frame.rows; ++row) {
      frame.known[row][node] =
          emit_load(emitter_, nest_.nodes[node].dtype, total_place(frame, node, row), 0, 1);
    }
  }
}

/// The reductions of a pass for each row; the lanes of all rows are joined together.
void NestEmitter::run_row_reductions(NestFrame& frame, const NestPass& pass) {
  const bool scalar_tail = !emitter_.machine.masks && plan_.lanes > 1 && !repeats_tail(pass);
  const unsigned vectors = plan_.unroll;
  std::vector<std::vector<Partial>> sums(pass.reductions.size()), tails = sums;
  for (unsigned row = 0; row < frame.rows; ++row) {
    NestFrame own = row_of(frame, row);
    hoist(own, pass);
    frame.known[row] = own.known.front();
    Values state = start_reductions(pass, vectors, plan_.lanes, scalar_tail);
    state = reduced_loops(nest_.parallel_dims, own, pass, std::move(state));
    std::size_t next = 0;
    for (std::size_t i = 0; i < pass.reductions.size(); ++i) {
      const ReductionEmitter& reduction = pass.reductions[i];
      std::vector<Partial> partials;
      for (unsigned group = 0; group < groups_; ++group) {
        Partial partial{state[next++], nullptr};
        if (reduction.has_position()) partial.position = state[next++];
        partials.push_back(partial);
      }
      for (unsigned width = vectors; width > 1; width /= 2) {
        for (unsigned v = 0; v < width / 2; ++v) {
          partials[v] = reduction.join(partials[v], partials[v + width / 2]);
        }
      }
      sums[i].push_back(partials.front());
      if (scalar_tail) tails[i].push_back(partials.back());
    }
  }
  for (std::size_t i = 0; i < pass.reductions.size(); ++i) {
    const ReductionEmitter& reduction = pass.reductions[i];
    std::vector<Partial> totals = reduction.join_lanes(sums[i]);
    for (unsigned row = 0; row < frame.rows; ++row) {
      if (scalar_tail) totals[row] = reduction.join(totals[row], tails[i][row]);
      frame.known[row][static_cast<std::size_t>(reduction.node())] = reduction.result(totals[row]);
    }
  }
}

}  // namespace rlx::codegen
