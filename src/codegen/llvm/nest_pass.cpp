// Passes of a nest over its reduced dims: reductions level by level, then the stores.
#include <algorithm>

#include "codegen/llvm/nest.hpp"
#include "codegen/llvm/scalar_values.hpp"

namespace rlx::codegen {
namespace {

/// Additions one after the other in a sum; longer ones are sums of parts.
constexpr std::int64_t longest_sum = 64;

std::size_t at(ScalarId id) { return static_cast<std::size_t>(id); }

}  // namespace

/// Where guards of the pass became bounds of this dim: ceil(-base / c) <= d < ceil((extent - base)
/// / c).
std::pair<llvm::Value*, llvm::Value*> emit_bounds(Emitter& emitter, const loop::Nest& nest,
                                                  const NestPass& pass, int dim,
                                                  const std::vector<llvm::Value*>& index) {
  auto& b = emitter.builder;
  llvm::Value* low = emitter.i64(0);
  llvm::Value* high = emitter.i64(nest.extents[static_cast<std::size_t>(dim)]);
  for (const NestPass::Clip& clip : pass.clips) {
    if (clip.dim != dim) continue;
    llvm::Value* base = emitter.i64(clip.guard.offset);
    for (int i = 0; i < nest.parallel_dims; ++i) {
      const std::int64_t c = clip.guard.coefficients[static_cast<std::size_t>(i)];
      if (c == 0) continue;
      base = b.CreateAdd(base, b.CreateMul(index[static_cast<std::size_t>(i)], emitter.i64(c)));
    }
    const std::int64_t step = clip.guard.coefficients[static_cast<std::size_t>(dim)];
    auto steps_to = [&](llvm::Value* distance) {
      distance = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, distance, emitter.i64(0));
      if (step == 1) return distance;
      return b.CreateUDiv(b.CreateAdd(distance, emitter.i64(step - 1)), emitter.i64(step));
    };
    low = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, low, steps_to(b.CreateNeg(base)));
    high = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, high,
                                   steps_to(b.CreateSub(emitter.i64(clip.guard.extent), base)));
  }
  // An empty range must not look like a huge unsigned count.
  if (!llvm::isa<llvm::Constant>(high)) {
    high = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, high, low);
  }
  return {low, high};
}

void NestEmitter::emit_passes(NestFrame frame) {
  // Rows may be made without reductions.
  const bool loops = plan_.levels > 0 || nest_.parallel_dims < plan_.rank();
  const bool across = loops && plan_.vector_is_reduced();
  if (across) {
    frame.vectors = frame.lanes = 1;
    for (int dim = 0; dim < nest_.parallel_dims; ++dim) {
      enter(frame, dim, frame.index[static_cast<std::size_t>(dim)], true);
    }
  }
  for (const NestPass& pass : passes(frame)) {
    if (pass.reductions.empty()) continue;
    across ? run_row_reductions(frame, pass) : run_reductions(frame, pass);
  }
  const NestPass& last = passes(frame).back();
  if (!last.stores.empty()) {
    if (loops) {
      NestFrame inside = frame;
      hoist(inside, last);
      reduced_loops(nest_.parallel_dims, inside, last, {});
    } else {
      emit_points(frame, last, {}, 0);
    }
  }
  emit_stores_once(frame);
}

void NestEmitter::emit_stores_once(const NestFrame& frame) {
  if (stores_once_.empty()) return;
  std::vector<PointExpression> points;
  for (unsigned vector = 0; vector < frame.vectors; ++vector) {
    points.push_back(expression_at(frame, passes(frame).back(), vector));
  }
  emit_stores(frame, stores_once_, points);
}

/// Whether the last vector of a row may take lanes again that the one before it took.
bool NestEmitter::repeats_tail(const NestPass& pass) const {
  const bool clipped = std::any_of(pass.clips.begin(), pass.clips.end(),
                                   [&](const auto& clip) { return clip.dim == plan_.vector_dim; });
  return !clipped && (pass.stores.empty() || plan_.may_repeat);
}

/// The running values of a pass at their start: by reduction, then group, then value and position.
/// Groups are the vectors of a round, so that their chains of additions overlap, and one of scalars
/// for a tail lane by lane.
NestEmitter::Values NestEmitter::start_reductions(const NestPass& pass, unsigned vectors,
                                                  unsigned lanes, bool scalar_tail) {
  groups_ = vectors + scalar_tail;
  Values state;
  for (const ReductionEmitter& reduction : pass.reductions) {
    for (unsigned group = 0; group < groups_; ++group) {
      const Partial partial = reduction.start(group < vectors ? lanes : 1);
      state.push_back(partial.value);
      if (partial.position) state.push_back(partial.position);
    }
  }
  return state;
}

void NestEmitter::run_reductions(NestFrame& frame, const NestPass& pass) {
  hoist(frame, pass);
  Values state = start_reductions(pass, frame.vectors, frame.lanes, false);
  state = reduced_loops(nest_.parallel_dims, frame, pass, std::move(state));
  std::size_t next = 0;
  for (const ReductionEmitter& reduction : pass.reductions) {
    for (unsigned v = 0; v < frame.vectors; ++v) {
      Partial partial{state[next++], nullptr};
      if (reduction.has_position()) partial.position = state[next++];
      frame.known[v][at(reduction.node())] = reduction.result(partial);
    }
  }
}

/// One number after the other, rounding errors of a sum grow with how many there are: long sums are
/// made of sums of parts.
NestEmitter::SumParts NestEmitter::parts_of_sum(const NestPass& pass, int dim) const {
  constexpr std::int64_t least = 8;
  const auto is_sum = [&](const ReductionEmitter& reduction) {
    const ScalarNode& node = nest_.nodes[at(reduction.node())];
    return node.reduce_kind == ReduceKind::sum && is_float(node.dtype);
  };
  const bool has_position = std::ranges::any_of(pass.reductions, &ReductionEmitter::has_position);
  if (has_position || !std::ranges::any_of(pass.reductions, is_sum)) return {};
  const auto additions = [&](int of) {
    const std::int64_t extent = nest_.extents[static_cast<std::size_t>(of)];
    const std::int64_t round = of == plan_.vector_dim ? plan_.lanes * plan_.unroll : 1;
    return (extent + round - 1) / round;
  };
  std::int64_t below = 1, all = 1;
  for (int other = nest_.parallel_dims; other < plan_.rank(); ++other) {
    all *= additions(other);
    if (other > dim) below *= additions(other);
  }
  if (all <= longest_sum) return {};
  SumParts parts{.each_index = below >= least};
  if (additions(dim) * (parts.each_index ? 1 : below) <= longest_sum) return parts;
  parts.indices = dim == plan_.vector_dim ? plan_.lanes * plan_.unroll : 1;
  while (parts.indices * longest_sum < nest_.extents[static_cast<std::size_t>(dim)])
    parts.indices *= longest_sum;
  return parts;
}

/// Running values that have taken in nothing yet, as many as those.
NestEmitter::Values NestEmitter::starts_like(const NestPass& pass, const Values& state) const {
  Values starts;
  for (const ReductionEmitter& reduction : pass.reductions) {
    for (unsigned group = 0; group < groups_; ++group)
      starts.push_back(reduction.start(lanes_of(state[starts.size()])).value);
  }
  return starts;
}

/// Of reductions without positions.
NestEmitter::Values NestEmitter::joined(const NestPass& pass, const Values& a,
                                        const Values& b) const {
  Values both;
  for (const ReductionEmitter& reduction : pass.reductions) {
    for (unsigned group = 0; group < groups_; ++group) {
      const std::size_t at = both.size();
      both.push_back(reduction.join({a[at], nullptr}, {b[at], nullptr}).value);
    }
  }
  return both;
}

NestEmitter::Values NestEmitter::reduced_loops(int dim, const NestFrame& frame,
                                               const NestPass& pass, Values state) {
  if (dim == plan_.rank()) return emit_points(frame, pass, std::move(state), 0);
  const auto [low, high] = emit_bounds(emitter_, nest_, pass, dim, frame.index);
  const std::int64_t part = parts_of_sum(pass, dim).indices;
  return reduced_parts(dim, low, high, part, frame, pass, std::move(state));
}

/// The part from low to high of the loop over a dim, in parts of so many indices, these in parts of
/// a 64th of them, and so on; 0: in one.
NestEmitter::Values NestEmitter::reduced_parts(int dim, llvm::Value* low, llvm::Value* high,
                                               std::int64_t part, const NestFrame& frame,
                                               const NestPass& pass, Values state) {
  const std::int64_t least = dim == plan_.vector_dim ? plan_.lanes * plan_.unroll : 1;
  if (part <= least) return reduced_loop(dim, low, high, frame, pass, std::move(state));
  return emitter_.loop(low, high, part, std::move(state), [&](llvm::Value* first, Values inside) {
    auto& b = emitter_.builder;
    llvm::Value* end = b.CreateAdd(first, emitter_.i64(part));
    end = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, end, high);
    Values own =
        reduced_parts(dim, first, end, part / longest_sum, frame, pass, starts_like(pass, inside));
    return joined(pass, inside, own);
  });
}

/// The same in one loop.
NestEmitter::Values NestEmitter::reduced_loop(int dim, llvm::Value* low, llvm::Value* high,
                                              const NestFrame& frame, const NestPass& pass,
                                              Values state) {
  if (dim == plan_.vector_dim) {
    return vector_loop(low, high, plan_.unroll, repeats_tail(pass), std::move(state),
                       [&](const Run& run, Values inside) {
                         NestFrame inner = frame;
                         enter(inner, dim, run.index, false);
                         inner.known.assign(run.vectors, frame.known.front());
                         inner.vectors = run.vectors;
                         inner.lanes = run.lanes;
                         inner.mask = run.mask;
                         inner.fresh = run.fresh;
                         const bool tail_lane = run.lanes == 1 && plan_.lanes > 1;
                         return emit_points(inner, pass, std::move(inside),
                                            tail_lane ? plan_.unroll : 0);
                       });
  }
  const bool in_parts = parts_of_sum(pass, dim).each_index;
  auto step = [&](llvm::Value* index, Values inside) {
    NestFrame inner = frame;
    enter(inner, dim, index, dim + 1 < plan_.rank());
    if (!in_parts) return reduced_loops(dim + 1, inner, pass, std::move(inside));
    Values own = reduced_loops(dim + 1, inner, pass, starts_like(pass, inside));
    return joined(pass, inside, own);
  };
  const std::int64_t extent = nest_.extents[static_cast<std::size_t>(dim)];
  const auto* first = llvm::dyn_cast<llvm::ConstantInt>(low);
  const auto* end = llvm::dyn_cast<llvm::ConstantInt>(high);
  if (frame.tile > 1 && first && end && dim + 1 == plan_.rank() && extent <= longest_unrolled) {
    // Neighbouring points read the same elements at neighbouring taps: in one block they are read
    // once.
    for (std::int64_t i = first->getSExtValue(); i < end->getSExtValue(); ++i)
      state = step(emitter_.i64(i), std::move(state));
    return state;
  }
  return emitter_.loop(low, high, 1, std::move(state), step);
}

PartialAddress NestEmitter::address_of(const NestFrame& frame, std::size_t number,
                                       unsigned vector) const {
  PartialAddress address = frame.addresses[number];
  const loop::Access& a = access(number);
  const VectorOffset offset = offset_of(frame, vector);
  std::int64_t distance = 0;
  auto add = [&](int dim, std::int64_t steps) {
    if (steps == 0 || !(address.dims >> dim & 1)) return;
    distance += steps * a.strides[static_cast<std::size_t>(dim)];
  };
  add(plan_.vector_dim, offset.along);
  if (frame.tile > 1) add(plan_.tile_dim(), offset.tile);
  if (!address.pointer || distance == 0) return address;
  const DType dtype = emitter_.kernel.buffers[static_cast<std::size_t>(a.buffer)].dtype;
  address.pointer = emitter_.builder.CreateConstGEP1_64(
      memory_type(emitter_, dtype), address.pointer, static_cast<std::uint64_t>(distance));
  return address;
}

PointExpression NestEmitter::expression_at(const NestFrame& frame, const NestPass& pass,
                                           unsigned vector) {
  Point point;
  point.index = frame.index;
  point.alone = plan_.levels == 0;
  llvm::Value*& along = point.index[static_cast<std::size_t>(plan_.vector_dim)];
  if (along) {
    point.vector_dim = plan_.vector_dim;
    point.lanes = frame.lanes;
    point.mask = frame.mask;
    const VectorOffset offset = offset_of(frame, vector);
    along = emitter_.builder.CreateAdd(along, emitter_.i64(offset.along));
    if (frame.tile > 1) {
      llvm::Value*& row = point.index[static_cast<std::size_t>(plan_.tile_dim())];
      row = emitter_.builder.CreateAdd(row, emitter_.i64(offset.tile));
    }
  }
  PointExpression expression(emitter_, nest_.nodes, pass.accesses, std::move(point),
                             nest_.error_buffer);
  std::vector<PartialAddress> addresses;
  for (std::size_t i = 0; i < nest_.accesses.size(); ++i) {
    addresses.push_back(address_of(frame, i, vector));
  }
  expression.set_addresses(addresses);
  for (std::size_t id = 0; id < nest_.nodes.size(); ++id) {
    if (frame.known[vector][id]) expression.set(static_cast<ScalarId>(id), frame.known[vector][id]);
  }
  return expression;
}

llvm::Value* NestEmitter::reduced_position(const NestFrame& frame) {
  auto& b = emitter_.builder;
  llvm::Value* position = emitter_.i64(0);
  for (int dim = nest_.parallel_dims; dim < plan_.rank(); ++dim) {
    llvm::Value* extent = emitter_.i64(nest_.extents[static_cast<std::size_t>(dim)]);
    position =
        b.CreateAdd(b.CreateMul(position, extent), frame.index[static_cast<std::size_t>(dim)]);
  }
  return position;
}

llvm::Value* NestEmitter::scratch_place(const NestFrame& frame, ScalarId node, unsigned vector) {
  auto& b = emitter_.builder;
  llvm::Type* element = memory_type(emitter_, nest_.nodes[at(node)].dtype);
  llvm::Value* row =
      b.CreateConstGEP1_64(b.getInt8Ty(), frame.scratch ? frame.scratch : emitter_.scratch,
                           static_cast<std::uint64_t>(scratch_at_[at(node)]));
  llvm::Value* slot = reduced_position(frame);
  if (!plan_.vector_is_reduced())
    slot = b.CreateMul(slot, emitter_.i64(plan_.unroll * plan_.lanes));
  return b.CreateGEP(element, row, b.CreateAdd(slot, emitter_.i64(offset_of(frame, vector).along)));
}

/// Keeps a value for later passes: a row of one vector as it is, others in scratch. Scratch has
/// room for whole vectors: lanes behind a row's end hold nothing, and a masked store would be
/// waited for.
void NestEmitter::keep(const NestFrame& frame, ScalarId node, unsigned vector, llvm::Value* value) {
  if (row_is_held_) {
    held_[at(node)] = value;
    return;
  }
  emit_store(emitter_, nest_.nodes[at(node)].dtype, value, scratch_place(frame, node, vector), 1,
             frame.lanes);
}

llvm::Value* NestEmitter::load_kept(const NestFrame& frame, ScalarId node, unsigned vector) {
  if (row_is_held_) return held_[at(node)];
  return emit_load(emitter_, nest_.nodes[at(node)].dtype, scratch_place(frame, node, vector), 1,
                   frame.lanes);
}

/// Gives a point what an earlier one has computed: what is the same on all lanes, or along the
/// tile.
void NestEmitter::share(const NestFrame& frame, std::vector<PointExpression>& points,
                        std::size_t vector, const NestPass& pass) const {
  PointExpression& here = points[vector];
  const unsigned runs = frame.vectors / frame.tile;
  for (std::size_t i = 0; vector > 0 && i < nest_.nodes.size(); ++i) {
    const auto id = static_cast<ScalarId>(i);
    if (plan_.node_level[i] >= pass.level || here.known(id)) continue;
    const bool along_tile = frame.tile > 1 && (plan_.node_dims[i] >> plan_.tile_dim() & 1);
    llvm::Value* before = points[vector % runs].known(id);
    if (vector >= runs && !along_tile && plan_.node_level[i] == 0 && before) {
      here.set(id, before);
      continue;
    }
    const bool along_lanes = plan_.node_dims[i] >> plan_.vector_dim & 1;
    llvm::Value* first = points.front().known(id);
    if (frame.tile == 1 && !along_lanes && first && nest_.nodes[i].op != ScalarOp::reduce &&
        lanes_of(first) == 1) {
      here.set(id, first);
    }
  }
}

/// Computes each series for all vectors before what follows from it, and of two vectors at once
/// where they are paired. Vector after vector, a long chain of series would fill what the processor
/// looks ahead to, and few vectors would overlap.
void NestEmitter::series_abreast(const NestFrame& frame, std::vector<PointExpression>& points,
                                 const NestPass& pass) const {
  for (const ScalarId node : pass.series) {
    const std::size_t paired = plan_.pairs_series ? points.size() / 2 * 2 : 0;
    for (std::size_t vector = 0; vector < paired; vector += 2) {
      share(frame, points, vector, pass);
      const ScalarId operand = points[vector].operand_of_series(node);
      if (operand >= 0) points[vector].value(operand);
      share(frame, points, vector + 1, pass);
      PointExpression::value_of_both(points[vector], points[vector + 1], node);
    }
    for (std::size_t vector = paired; vector < points.size(); ++vector) {
      share(frame, points, vector, pass);
      points[vector].value(node);
    }
  }
}

/// All vectors of one point: running values take in their operands, nodes go to scratch, stores are
/// made.
NestEmitter::Values NestEmitter::emit_points(const NestFrame& frame, const NestPass& pass,
                                             Values state, unsigned group) {
  std::vector<PointExpression> points;
  const bool square = frame.tile == frame.lanes && frame.vectors == frame.tile && !frame.mask;
  if (square && !plan_.turned.empty()) return emit_turned(frame, pass, std::move(state));
  for (unsigned vector = 0; vector < frame.vectors; ++vector) {
    points.push_back(expression_at(frame, pass, vector));
    for (const ScalarId node : pass.loaded) {
      points.back().set(node, load_kept(frame, node, vector));
    }
  }
  series_abreast(frame, points, pass);
  for (unsigned vector = 0; vector < frame.vectors; ++vector) {
    share(frame, points, vector, pass);
    PointExpression& here = points[vector];
    for (const ScalarId node : pass.saved) keep(frame, node, vector, here.value(node));
    std::size_t slot = 0;
    for (const ReductionEmitter& reduction : pass.reductions) {
      const std::size_t width = reduction.has_position() ? 2 : 1;
      const std::size_t place = slot + (group + vector) * width;
      Partial partial{state[place], width == 2 ? state[place + 1] : nullptr};
      llvm::Value* position = nullptr;
      const bool across = plan_.vector_is_reduced();
      if (width == 2) {
        position = reduced_position(frame);
        if (across)
          position = emitter_.builder.CreateAdd(position, emitter_.i64(vector * frame.lanes));
      }
      partial = reduction.step(partial, here, position, across, across ? frame.fresh : nullptr);
      state[place] = partial.value;
      if (width == 2) state[place + 1] = partial.position;
      slot += width * groups_;
    }
    for (const int store : pass.stores) {
      if (!stores_at_once(frame)) here.value(nest_.stores[static_cast<std::size_t>(store)].node);
    }
  }
  emit_stores(frame, pass.stores, points);
  return state;
}

/// Every value of the point is there before the first store, which may be in place; but see
/// stores_at_once.
void NestEmitter::emit_stores(const NestFrame& frame, const std::vector<int>& stores,
                              std::vector<PointExpression>& points) {
  const auto make = [&](int number) {
    const ScalarId node = nest_.stores[static_cast<std::size_t>(number)].node;
    for (PointExpression& point : points) point.value(node);
  };
  if (!stores_at_once(frame)) std::ranges::for_each(stores, make);
  for (const int number : stores) {
    make(number);
    if (plan_.woven && frame.tile > 1 && frame.lanes > 1) {
      store_woven(frame, number, points);
      continue;
    }
    const loop::Store& store = nest_.stores[static_cast<std::size_t>(number)];
    for (unsigned vector = 0; vector < points.size(); ++vector) {
      const std::size_t place = nest_.accesses.size() + static_cast<std::size_t>(number);
      points[vector].store(store, address_of(frame, place, vector));
    }
  }
}

}  // namespace rlx::codegen
