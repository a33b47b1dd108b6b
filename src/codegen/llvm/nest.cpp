// Code of nests: work items, the loops over parallel dims, and what is computed outside of them.
#include "codegen/llvm/nest.hpp"

#include <algorithm>

#include "codegen/llvm/nest_window.hpp"
#include "codegen/llvm/scalar_values.hpp"

namespace rlx::codegen {

NestEmitter::NestEmitter(Emitter& emitter, NestPlan plan)
    : emitter_(emitter), plan_(std::move(plan)), nest_(plan_.nest) {
  passes_ = make_passes(emitter, plan_);
  find_interior();
  inside_passes_ = passes_, inside_interior_passes_ = interior_passes_;
  for (std::vector<NestPass>* passes : {&inside_passes_, &inside_interior_passes_}) {
    for (NestPass& pass : *passes) {
      std::erase_if(pass.clips, [&](const auto& clip) { return plan_.is_of_border(clip.guard); });
      for (loop::Access& access : pass.accesses)
        std::erase_if(access.guards, [&](const auto& guard) { return plan_.is_of_border(guard); });
    }
  }
  const DimSet reduced = plan_.reduced_dims();
  for (int i = 0; i < static_cast<int>(nest_.stores.size()); ++i) {
    const loop::Store& store = nest_.stores[static_cast<std::size_t>(i)];
    const DimSet dims = plan_.node_dims[static_cast<std::size_t>(store.node)] |
                        dims_of(store.access, plan_.node_dims);
    if (reduced && !(dims & reduced)) stores_once_.push_back(i);
  }
  for (std::size_t i = 0; i < nest_.accesses.size() + nest_.stores.size(); ++i) {
    // What data moves lies no constant distance from anything.
    const auto leads = [&](const loop::Access& first) {
      return first.buffer == access(i).buffer && first.strides == access(i).strides &&
             first.indirect.empty() && access(i).indirect.empty();
    };
    std::size_t first = 0;
    while (first < i && !leads(access(first))) ++first;
    leaders_.push_back(first);
  }
  scratch_at_.assign(nest_.nodes.size(), -1);
  row_is_held_ = plan_.row_block == 1 && plan_.vector_is_reduced() &&
                 plan_.points(nest_.parallel_dims, plan_.rank()) <= plan_.lanes &&
                 std::all_of(passes_.begin(), passes_.end(),
                             [](const NestPass& pass) { return pass.clips.empty(); });
  held_.assign(nest_.nodes.size(), nullptr);
  if (row_is_held_) return;
  totals_at_.assign(nest_.nodes.size(), -1);
  for (std::size_t i = 0; i < nest_.nodes.size() && plan_.row_block > 1; ++i) {
    if (nest_.nodes[i].op != ScalarOp::reduce) continue;
    totals_at_[i] = totals_bytes_;
    const auto bytes = static_cast<std::int64_t>(size_of(nest_.nodes[i].dtype));
    totals_bytes_ += (plan_.row_block * bytes + 63) / 64 * 64;
  }
  const std::int64_t vectors = plan_.vector_is_reduced() ? 1 : plan_.unroll * plan_.lanes;
  for (const NestPass& pass : passes_) {
    for (const ScalarId node : pass.saved) {
      scratch_at_[static_cast<std::size_t>(node)] = scratch_bytes_;
      const auto bytes =
          static_cast<std::int64_t>(size_of(nest_.nodes[static_cast<std::size_t>(node)].dtype));
      const std::int64_t row = plan_.points(nest_.parallel_dims, plan_.rank()) * vectors;
      scratch_bytes_ += ((row + plan_.lanes) * bytes + 63) / 64 * 64;
    }
  }
}

void NestEmitter::emit() {
  // Items that are rows come as many as there are: they are blocks, too.
  const bool rows = plan_.split_dim == plan_.row_dim() && plan_.split_size == 1;
  if (plan_.row_block > 1 && rows) return emit_rows(new_frame(), emitter_.begin, emitter_.end);
  emitter_.loop(emitter_.begin, emitter_.end, 1, [&](llvm::Value* item) { emit_item(item); });
}

NestFrame NestEmitter::new_frame() const {
  NestFrame frame;
  frame.index.assign(static_cast<std::size_t>(plan_.rank()), nullptr);
  frame.known.assign(1, Values(nest_.nodes.size(), nullptr));
  frame.addresses.assign(nest_.accesses.size() + nest_.stores.size(), {});
  frame.low = emitter_.i64(0);
  frame.high = emitter_.i64(nest_.extents[static_cast<std::size_t>(plan_.vector_dim)]);
  return frame;
}

void NestEmitter::emit_item(llvm::Value* item) {
  auto& b = emitter_.builder;
  NestFrame frame = new_frame();
  if (nest_.parallel_dims == 0) return emit_passes(std::move(frame));

  auto extent = [&](int dim) { return nest_.extents[static_cast<std::size_t>(dim)]; };
  const int split = plan_.split_dim;
  const std::int64_t size = plan_.split_size;
  const std::int64_t blocks = (extent(split) + size - 1) / size;
  llvm::Value* rest = item;
  std::int64_t most = plan_.items;
  auto take = [&](std::int64_t count, bool last) -> llvm::Value* {
    if (last) return rest;
    if (count == 1) return emitter_.i64(0);
    llvm::Value* whole = emitter_.quotient(rest, count, most);
    llvm::Value* taken = b.CreateSub(rest, b.CreateMul(whole, emitter_.i64(count)));
    rest = whole;
    most /= count;
    return taken;
  };
  const bool first = plan_.blocks_first;
  const int inner = plan_.inner_dim;
  llvm::Value* block = first ? nullptr : take(blocks, split == 0);
  for (int dim = inner - 1; dim >= 0; --dim) {
    enter(frame, dim, take(extent(dim), dim == 0 && !first), false);
  }
  if (first) block = rest;
  llvm::Value* low = b.CreateMul(block, emitter_.i64(size));
  llvm::Value* high = b.CreateAdd(low, emitter_.i64(size));
  if (extent(split) % size != 0) {
    llvm::Value* end = emitter_.i64(extent(split));
    high = b.CreateSelect(b.CreateICmpSLT(high, end), high, end);
  }
  if (blocks == 1) {
    low = emitter_.i64(0);
    high = emitter_.i64(extent(split));
  }
  if (inner == split) return emit_parallel(split, std::move(frame), low, high);
  frame.low = low, frame.high = high;
  emit_parallel(inner, std::move(frame), emitter_.i64(0), emitter_.i64(extent(inner)));
}

void NestEmitter::emit_parallel(int dim, NestFrame frame, llvm::Value* low, llvm::Value* high) {
  if (dim == plan_.vector_dim) return emit_block(std::move(frame), low, high);
  if (plan_.tile > 1 && dim == plan_.tile_dim()) return emit_tiles(std::move(frame), low, high);
  if (plan_.row_block > 1 && dim == plan_.row_dim()) return emit_rows(frame, low, high);
  auto inside = [&](llvm::Value* index) {
    NestFrame inner = frame;
    enter(inner, dim, index, false);
    if (dim + 1 == nest_.parallel_dims) return emit_passes(std::move(inner));
    if (dim + 1 == plan_.vector_dim) return emit_block(std::move(inner), frame.low, frame.high);
    llvm::Value* end = emitter_.i64(nest_.extents[static_cast<std::size_t>(dim) + 1]);
    emit_parallel(dim + 1, std::move(inner), emitter_.i64(0), end);
  };
  if (dim == plan_.split_dim && plan_.split_size == 1) return inside(low);
  emitter_.loop(low, high, 1, inside);
}

/// The range of the tile dim in which all guards that became bounds hold for whole windows. Without
/// tiles where a guard depends on other parallel dims too.
void NestEmitter::find_interior() {
  if (plan_.tile == 1) return;
  const auto tile_dim = static_cast<std::size_t>(plan_.tile_dim());
  interior_passes_ = passes_;
  interior_end_ = nest_.extents[tile_dim];
  for (NestPass& pass : interior_passes_) {
    std::erase_if(pass.clips, [&](const NestPass::Clip& clip) {
      const std::vector<std::int64_t>& c = clip.guard.coefficients;
      if (c[tile_dim] == 0) return false;
      for (std::size_t dim = 0; dim < static_cast<std::size_t>(nest_.parallel_dims); ++dim) {
        if (c[dim] < 0 || (dim != tile_dim && c[dim] != 0)) plan_.tile = 1;
      }
      const auto window = static_cast<std::size_t>(clip.dim);
      const std::int64_t reach = clip.guard.offset + c[window] * (nest_.extents[window] - 1);
      const std::int64_t step = c[tile_dim];
      const std::int64_t first = std::max<std::int64_t>(-clip.guard.offset, 0);
      const std::int64_t room = std::max<std::int64_t>(clip.guard.extent - reach, 0);
      interior_begin_ = std::max(interior_begin_, (first + step - 1) / step);
      interior_end_ = std::min(interior_end_, (room + step - 1) / step);
      return true;
    });
  }
  if (interior_end_ - interior_begin_ < plan_.tile) plan_.tile = 1;
}

/// Tiles in the interior; one loop for the points before and behind them.
void NestEmitter::emit_tiles(NestFrame frame, llvm::Value* low, llvm::Value* high) {
  auto& b = emitter_.builder;
  const int dim = plan_.tile_dim();
  auto block = [&](llvm::Value* index, unsigned tile) {
    NestFrame inner = frame;
    inner.tile = tile;
    enter(inner, dim, index, false);
    emit_block(std::move(inner), frame.low, frame.high);
  };
  auto clamped = [&](std::int64_t bound, llvm::Value* least) {
    llvm::Value* value = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, emitter_.i64(bound), least);
    return b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, value, high);
  };
  const std::int64_t tile = plan_.tile;
  llvm::Value* first = clamped(interior_begin_, low);
  llvm::Value* inside = b.CreateSub(clamped(interior_end_, first), first);
  llvm::Value* tiled = b.CreateMul(b.CreateUDiv(inside, emitter_.i64(tile)), emitter_.i64(tile));
  if (plan_.may_repeat) {
    // The last tile reaches back into the one before it rather than leave single points.
    llvm::Value* enough = b.CreateICmpSGE(inside, emitter_.i64(tile));
    tiled = b.CreateSelect(enough, inside, emitter_.i64(0));
  }
  llvm::Value* last = b.CreateAdd(first, tiled);
  llvm::Value* latest = b.CreateSub(last, emitter_.i64(tile));
  emitter_.loop(first, last, tile, [&](llvm::Value* index) {
    block(b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, index, latest), plan_.tile);
  });
  llvm::Value* before = b.CreateSub(first, low);
  llvm::Value* singles = b.CreateAdd(before, b.CreateSub(high, last));
  emitter_.loop(emitter_.i64(0), singles, 1, [&](llvm::Value* number) {
    llvm::Value* behind = b.CreateAdd(last, b.CreateSub(number, before));
    block(b.CreateSelect(b.CreateICmpSLT(number, before), b.CreateAdd(low, number), behind), 1);
  });
}

/// The parallel vector dim: everything that does not depend on it is computed before its loop.
void NestEmitter::emit_block(NestFrame frame, llvm::Value* low, llvm::Value* high) {
  for (int dim = 0; dim < plan_.vector_dim; ++dim) {
    enter(frame, dim, frame.index[static_cast<std::size_t>(dim)], true);
  }
  if (!plan_.borders.empty() && !frame.inside) {
    llvm::Value* inside = is_inside(frame);
    emitter_.when(inside, [&] {
      NestFrame inner = frame;
      inner.inside = true;
      emit_vectors(std::move(inner), low, high);
    });
    return emitter_.when(emitter_.builder.CreateNot(inside),
                         [&] { emit_vectors(std::move(frame), low, high); });
  }
  emit_vectors(std::move(frame), low, high);
}

llvm::Value* NestEmitter::is_inside(const NestFrame& frame) {
  auto& b = emitter_.builder;
  llvm::Value* inside = b.getTrue();
  for (const Border& border : plan_.borders) {
    llvm::Value* place = emitter_.i64(0);
    for (std::size_t dim = 0; dim < border.coefficients.size(); ++dim) {
      const std::int64_t c = border.coefficients[dim];
      if (c != 0) place = b.CreateAdd(place, b.CreateMul(frame.index[dim], emitter_.i64(c)));
    }
    inside = b.CreateAnd(inside, b.CreateICmpSGE(place, emitter_.i64(-border.first)));
    inside = b.CreateAnd(inside, b.CreateICmpSLT(place, emitter_.i64(border.extent - border.last)));
  }
  return inside;
}

void NestEmitter::emit_vectors(NestFrame frame, llvm::Value* low, llvm::Value* high) {
  frame.lanes = 1;
  frame.low = low, frame.high = high;
  if (plan_.levels == 0 && frame.tile == 1) {
    hoist(frame, passes(frame).back());
    hoist_guards(frame, passes(frame).back());
  }
  // Single points of a nest with tiles need chains of additions to overlap, too.
  const bool single = plan_.tile > 1 && plan_.levels > 0 && frame.tile == 1;
  const auto take = [&](const Run& run, Values) {
    NestFrame inner = frame;
    inner.vectors = run.vectors * frame.tile;
    inner.known.assign(inner.vectors, frame.known.front());
    inner.lanes = run.lanes;
    inner.mask = run.mask;
    enter(inner, plan_.vector_dim, run.index, plan_.levels > 0);
    emit_passes(std::move(inner));
    return Values{};
  };
  if (plan_.has_inside()) {
    auto& b = emitter_.builder;
    const auto [begin, end] = plan_.inside;
    const std::int64_t beside =
        nest_.extents[static_cast<std::size_t>(plan_.vector_dim)] - (end - begin);
    const auto point = [&](llvm::Value* number) {
      llvm::Value* behind = b.CreateAdd(number, emitter_.i64(end - begin));
      llvm::Value* is_before = b.CreateICmpSLT(number, emitter_.i64(begin));
      take({b.CreateSelect(is_before, number, behind)}, {});
    };
    // Of few points code knows which taps they miss.
    constexpr std::int64_t few = 4;
    for (std::int64_t i = 0; i < beside && beside <= few; ++i) point(emitter_.i64(i));
    if (beside > few) emitter_.loop(emitter_.i64(0), emitter_.i64(beside), 1, point);
    frame.inside = true;
    low = emitter_.i64(begin), high = emitter_.i64(end);
  }
  const unsigned unroll = single ? plan_.single_unroll : plan_.unroll;
  vector_loop(low, high, unroll, plan_.may_repeat, {}, take);
}

/// Rounds of `unroll` vectors, then of one vector, then the tail: masked, or, where masks are slow,
/// a vector that reaches back (with `repeat`; no dim has fewer points than lanes) or lane by lane.
NestEmitter::Values NestEmitter::vector_loop(llvm::Value* low, llvm::Value* high, unsigned unroll,
                                             bool repeat, Values state, const Body& body) {
  auto& b = emitter_.builder;
  const unsigned lanes = plan_.lanes;
  auto whole = [&](llvm::Value* first, unsigned step) {
    llvm::Value* steps = emitter_.i64(step);
    llvm::Value* count = b.CreateSub(high, first);
    return b.CreateAdd(first, b.CreateMul(b.CreateUDiv(count, steps), steps));
  };
  auto rounds = [&](llvm::Value* first, llvm::Value* last, unsigned vectors, unsigned width) {
    state =
        emitter_.loop(first, last, vectors * width, state, [&](llvm::Value* index, Values inside) {
          return body({index, vectors, width}, std::move(inside));
        });
  };
  if (lanes == 1) {
    rounds(low, high, 1, 1);
    return state;
  }
  if (unroll > 1) {
    llvm::Value* end = whole(low, unroll * lanes);
    rounds(low, end, unroll, lanes);
    low = end;
  }
  llvm::Value* end = whole(low, lanes);
  rounds(low, end, 1, lanes);
  if (!emitter_.machine.masks && !repeat) {
    rounds(end, high, 1, 1);
    return state;
  }
  return emitter_.loop(end, high, lanes, state, [&](llvm::Value* index, Values inside) {
    if (emitter_.machine.masks) {
      llvm::Value* mask = tail_mask(emitter_, b.CreateSub(high, index), lanes);
      return body({index, 1, lanes, mask, mask}, std::move(inside));
    }
    llvm::Value* back = b.CreateSub(high, emitter_.i64(lanes));
    llvm::Value* taken = tail_mask(emitter_, b.CreateSub(index, back), lanes);
    return body({back, 1, lanes, nullptr, b.CreateNot(taken)}, std::move(inside));
  });
}

/// The element that the access reads or writes where all indices are 0.
llvm::Value* NestEmitter::start_of(const loop::Access& access) {
  const auto buffer = static_cast<std::size_t>(access.buffer);
  llvm::Type* element = memory_type(emitter_, emitter_.kernel.buffers[buffer].dtype);
  return emitter_.builder.CreateConstGEP1_64(element, emitter_.buffers[buffer],
                                             static_cast<std::uint64_t>(access.offset));
}

/// Notes the index of a dim; with_addresses: moves the addresses of all accesses along it.
void NestEmitter::enter(NestFrame& frame, int dim, llvm::Value* index, bool with_addresses) {
  auto& b = emitter_.builder;
  frame.index[static_cast<std::size_t>(dim)] = index;
  frame.fixed |= DimSet{1} << dim;
  if (!with_addresses) return;
  for (std::size_t i = 0; i < frame.addresses.size(); ++i) {
    const loop::Access& a = access(i);
    PartialAddress& address = frame.addresses[i];
    llvm::Type* element =
        memory_type(emitter_, emitter_.kernel.buffers[static_cast<std::size_t>(a.buffer)].dtype);
    address.dims |= DimSet{1} << dim;
    if (leaders_[i] != i) {
      // A constant distance from it: one register holds the addresses of them all.
      const loop::Access& leader = access(leaders_[i]);
      address.pointer = b.CreateConstGEP1_64(element, frame.addresses[leaders_[i]].pointer,
                                             static_cast<std::uint64_t>(a.offset - leader.offset));
      continue;
    }
    if (!address.pointer) address.pointer = start_of(a);
    const std::int64_t stride = a.strides[static_cast<std::size_t>(dim)];
    if (stride == 0) continue;
    address.pointer =
        b.CreateGEP(element, address.pointer, b.CreateMul(index, emitter_.i64(stride)));
  }
}

std::vector<ScalarId> NestEmitter::roots_of(const NestPass& pass) const {
  std::vector<ScalarId> roots = pass.saved;
  for (const ReductionEmitter& reduction : pass.reductions) {
    roots.push_back(nest_.nodes[static_cast<std::size_t>(reduction.node())].a);
  }
  for (const int store : pass.stores) {
    roots.push_back(nest_.stores[static_cast<std::size_t>(store)].node);
    for (const loop::Indirect& part :
         nest_.stores[static_cast<std::size_t>(store)].access.indirect) {
      roots.push_back(part.node);
    }
  }
  return roots;
}

/// Computes what the pass needs and what depends on the dims entered so far only.
void NestEmitter::hoist(NestFrame& frame, const NestPass& pass) {
  std::vector<bool> needed(nest_.nodes.size(), false);
  for (const ScalarId root : roots_of(pass)) needed[static_cast<std::size_t>(root)] = true;
  const Values before = frame.known.front();
  auto is_known = [&](std::size_t id) {
    return before[id] || std::find(pass.loaded.begin(), pass.loaded.end(),
                                   static_cast<ScalarId>(id)) != pass.loaded.end();
  };
  for (std::size_t id = nest_.nodes.size(); id-- > 0;) {
    if (!needed[id] || is_known(id)) continue;
    const ScalarNode& node = nest_.nodes[id];
    for (const ScalarId source : sources_of(node, nest_.nodes, emitter_.machine)) {
      if (source >= 0) needed[static_cast<std::size_t>(source)] = true;
    }
    if (node.op != ScalarOp::load) continue;
    for (const loop::Indirect& part :
         nest_.accesses[static_cast<std::size_t>(node.index)].indirect) {
      needed[static_cast<std::size_t>(part.node)] = true;
    }
  }
  for (unsigned vector = 0; vector < frame.vectors; ++vector) {
    PointExpression at = expression_at(frame, pass, vector);
    for (std::size_t id = 0; id < nest_.nodes.size(); ++id) {
      const ScalarNode& node = nest_.nodes[id];
      if (!needed[id] || is_known(id) || node.op == ScalarOp::constant) continue;
      if ((plan_.node_dims[id] & ~frame.fixed) || plan_.node_level[id] >= pass.level) continue;
      frame.known[vector][id] = at.value(static_cast<ScalarId>(id));
    }
  }
  for (std::size_t id = 0; id < nest_.nodes.size(); ++id) {
    const ScalarNode& node = nest_.nodes[id];
    if (needed[id] && !is_known(id) && node.op == ScalarOp::load && !frame.known.front()[id])
      hoist_index(frame, pass, static_cast<std::size_t>(node.index));
  }
  for (const int store : pass.stores)
    hoist_index(frame, pass, nest_.accesses.size() + static_cast<std::size_t>(store));
}

/// Asks guards of a map that do not run along its lanes once, not for each register.
void NestEmitter::hoist_guards(NestFrame& frame, const NestPass& pass) {
  const auto is_known = [&](const loop::Guard& guard) {
    for (std::size_t dim = 0; dim < guard.coefficients.size(); ++dim)
      if (guard.coefficients[dim] != 0 && !(frame.fixed >> dim & 1)) return false;
    return true;
  };
  PointExpression at = expression_at(frame, pass, 0);
  for (std::size_t i = 0; i < frame.addresses.size(); ++i) {
    const bool is_load = i < pass.accesses.size();
    const std::vector<loop::Guard>& guards = (is_load ? pass.accesses[i] : access(i)).guards;
    if (std::ranges::all_of(guards, is_known)) frame.addresses[i].guard = at.all_hold(guards);
  }
}

/// Moves an access to where data says, if that is known by now and the same for all vectors: the
/// index is read, checked and multiplied once, not for each of them.
void NestEmitter::hoist_index(NestFrame& frame, const NestPass& pass, std::size_t number) {
  const loop::Access& moved = access(number);
  PartialAddress& address = frame.addresses[number];
  if (moved.indirect.empty() || address.with_index) return;
  DimSet shared = frame.fixed & ~(DimSet{1} << plan_.vector_dim);
  if (frame.tile > 1) shared &= ~(DimSet{1} << plan_.tile_dim());
  for (const loop::Indirect& part : moved.indirect) {
    const auto node = static_cast<std::size_t>(part.node);
    if ((plan_.node_dims[node] & ~shared) || plan_.node_level[node] >= pass.level) return;
  }
  auto& b = emitter_.builder;
  llvm::Type* element =
      memory_type(emitter_, emitter_.kernel.buffers[static_cast<std::size_t>(moved.buffer)].dtype);
  if (!address.pointer) address.pointer = start_of(moved);
  llvm::Value* offset = expression_at(frame, pass, 0).index_offset(moved);
  address.pointer = b.CreateGEP(element, address.pointer, offset);
  address.with_index = true;
}

const loop::Access& NestEmitter::access(std::size_t number) const {
  if (number < nest_.accesses.size()) return nest_.accesses[number];
  return nest_.stores[number - nest_.accesses.size()].access;
}

namespace {

/// Part after part, each for those of the items that are its own.
Result<KernelShape> emit_parts(Emitter& emitter, const loop::Nest& nest) {
  KernelShape all;
  auto& b = emitter.builder;
  llvm::Value *const begin = emitter.begin, *const end = emitter.end;
  for (std::int32_t part = 0; part < nest.parts; ++part) {
    const loop::Nest own = loop::part_of(nest, part);
    const std::int64_t items = plan_nest(own, emitter.machine).items;
    const auto within = [&](llvm::Value* item) {
      llvm::Value* at = b.CreateSub(item, emitter.i64(all.work_items));
      at = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, at, emitter.i64(0));
      return b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, at, emitter.i64(items));
    };
    emitter.begin = within(begin), emitter.end = within(end);
    const Result<KernelShape> shape = emit_nest(emitter, own);
    if (!shape.ok()) return shape;
    if (shape->work_items != items)
      return Error{ErrorKind::internal, "A part of a nest has other work items than its plan."};
    all.work_items += items;
    all.scratch_bytes = std::max(all.scratch_bytes, shape->scratch_bytes);
  }
  emitter.begin = begin, emitter.end = end;
  return all;
}

}  // namespace

Result<KernelShape> emit_nest(Emitter& emitter, const loop::Nest& nest, bool rows) {
  if (nest.parts > 1) return emit_parts(emitter, nest);
  if (const auto reason = cannot_generate(emitter.kernel, nest.nodes)) {
    return Error{ErrorKind::unsupported, *reason};
  }
  NestPlan plan = plan_nest(nest, emitter.machine, rows);
  if (!rows && plan.nest.lead == 0) {
    const std::vector<NestPass> passes = make_passes(emitter, plan);
    if (const auto window = plan_window(plan, passes, emitter.kernel.buffers, emitter.machine)) {
      return emit_window(emitter, plan, passes, *window);
    }
  }
  NestEmitter nest_emitter(emitter, std::move(plan));
  nest_emitter.emit();
  return nest_emitter.shape();
}

}  // namespace rlx::codegen
