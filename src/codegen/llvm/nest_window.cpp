// Code of reductions over windows: a tile of running values in registers, each element of the image
// read once for all points of the tile that it belongs to, borders cut when the code is made.
#include "codegen/llvm/nest_window.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "codegen/llvm/contraction.hpp"
#include "codegen/llvm/scalar_values.hpp"

namespace rlx::codegen {
namespace {

using llvm::Value;
using Values = std::vector<Value*>;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

class WindowEmitter {
 public:
  WindowEmitter(Emitter& emitter, const NestPlan& plan, const std::vector<NestPass>& passes,
                const WindowPlan& window)
      : emitter_(emitter),
        builder_(emitter.builder),
        plan_(plan),
        nest_(plan.nest),
        pass_(passes.front()),
        window_(window),
        columns_(nest_.extents[at(window.column_dim)]),
        channels_(nest_.extents[at(plan.vector_dim)]),
        index_(nest_.extents.size(), nullptr) {
    find_needed();
  }

  void emit() {
    emitter_.loop(emitter_.begin, emitter_.end, 1, [&](Value* item) { emit_item(item); });
  }

 private:
  /// How the value of a node is shared between the points and taps of a tile.
  struct Sharing {
    bool by_place = true;  ///< the same at all (column, tap) with one `along` steps
    std::int64_t column_step = 0, tap_step = 0;
  };
  struct Step {
    std::int64_t place, column, tap;
    bool operator<(const Step& other) const {
      return std::tie(place, column) < std::tie(other.place, other.column);
    }
  };
  /// Registers of channels that are computed together.
  struct Channels {
    Value* first;
    unsigned lanes, vectors;
    Value* last_mask;  ///< of the last register; null: all lanes
  };
  using Cache = std::map<std::tuple<ScalarId, std::int64_t, unsigned>, Value*>;

  const loop::Access& access(std::size_t number) const { return access_of(nest_, number); }
  std::size_t accesses() const { return nest_.accesses.size() + nest_.stores.size(); }

  void find_needed() {
    needed_.assign(nest_.nodes.size(), false);
    for (const ReductionEmitter& reduction : pass_.reductions) {
      needed_[at(nest_.nodes[at(reduction.node())].a)] = true;
    }
    for (std::size_t id = nest_.nodes.size(); id-- > 0;) {
      if (!needed_[id]) continue;
      for (const ScalarId operand : {nest_.nodes[id].a, nest_.nodes[id].b, nest_.nodes[id].c}) {
        if (operand >= 0) needed_[at(operand)] = true;
      }
    }
    for (std::size_t id = 0; id < nest_.nodes.size(); ++id) sharing_.push_back(sharing_of(id));
  }

  Sharing sharing_of(std::size_t id) const {
    const ScalarNode& node = nest_.nodes[id];
    Sharing result;
    if (node.op == ScalarOp::load) {
      const loop::Access& access = nest_.accesses[at(node.index)];
      result.column_step = access.strides[at(window_.column_dim)];
      if (window_.tap_dim >= 0) result.tap_step = access.strides[at(window_.tap_dim)];
      return result;
    }
    if (node.op == ScalarOp::domain_index) {
      result.by_place = node.index != window_.column_dim;
      return result;
    }
    bool first = true;
    for (const ScalarId operand : {node.a, node.b, node.c}) {
      if (operand < 0 || nest_.nodes[at(operand)].op == ScalarOp::constant) continue;
      const Sharing below = sharing_[at(operand)];
      if (first) result = below;
      first = false;
      result.by_place = result.by_place && below.by_place &&
                        below.column_step == result.column_step &&
                        below.tap_step == result.tap_step;
    }
    return result;
  }

  // ---- items, tiles, channels -----------------------------------------------------------------

  void emit_item(Value* item) {
    std::vector<std::int64_t> extents;
    for (const int dim : window_.row_dims) extents.push_back(nest_.extents[at(dim)]);
    if (window_.bands > 0) extents.back() = window_.bands;
    extents.push_back(window_.column_items);
    extents.push_back(window_.block_items);
    if (window_.pieces_outermost) std::rotate(extents.begin(), extents.end() - 1, extents.end());
    Values coordinates = emit_coordinates(emitter_, item, extents);
    if (window_.pieces_outermost)
      std::rotate(coordinates.begin(), coordinates.begin() + 1, coordinates.end());
    Values pointers = bases();
    const std::size_t single = window_.row_dims.size() - (window_.bands > 0 ? 1 : 0);
    for (std::size_t i = 0; i < single; ++i) {
      index_[at(window_.row_dims[i])] = coordinates[i];
      move(pointers, window_.row_dims[i], coordinates[i]);
    }
    const auto [first_tile, last_tile] =
        piece(coordinates[extents.size() - 2], window_.tiles_per_item, window_.column_items,
              window_.tiles);
    const std::int64_t block_channels = window_.vectors * plan_.lanes;
    const auto [first, last] = piece(coordinates.back(), window_.blocks_per_item * block_channels,
                                     window_.block_items, channels_);
    const auto emit_tiles = [&](const Values& row) {
      bounds_.clear();
      for (const int dim : window_.loop_dims)
        bounds_.push_back(emit_bounds(emitter_, nest_, pass_, dim, index_));
      emitter_.loop(first_tile, last_tile, 1, [&](Value* tile) {
        Values here = row;
        Value* column = builder_.CreateMul(tile, emitter_.i64(window_.tile));
        index_[at(window_.column_dim)] = column;
        move(here, window_.column_dim, column);
        emit_channels(tile, here, first, last);
      });
    };
    if (window_.bands == 0) return emit_tiles(pointers);
    const int dim = window_.row_dims.back();
    const auto begin_of = [&](Value* band) {
      const std::int64_t extent = nest_.extents[at(dim)];
      Value* rows = builder_.CreateMul(band, emitter_.i64(extent));
      return emitter_.quotient(rows, window_.bands, window_.bands * extent);
    };
    Value* band = coordinates[single];
    Value* next = builder_.CreateAdd(band, emitter_.i64(1));
    emitter_.loop(begin_of(band), begin_of(next), 1, [&](Value* row) {
      Values here = pointers;
      index_[at(dim)] = row;
      move(here, dim, row);
      emit_tiles(here);
    });
  }

  /// Units [number * size, the next one's) of `total`; the last of `count` pieces holds the rest.
  std::pair<Value*, Value*> piece(Value* number, std::int64_t size, std::int64_t count,
                                  std::int64_t total) {
    if (count == 1) return {emitter_.i64(0), emitter_.i64(total)};
    Value* first = builder_.CreateMul(number, emitter_.i64(size));
    Value* is_last = builder_.CreateICmpEQ(number, emitter_.i64(count - 1));
    Value* next = builder_.CreateAdd(first, emitter_.i64(size));
    return {first, builder_.CreateSelect(is_last, emitter_.i64(total), next)};
  }

  void emit_channels(Value* tile, const Values& pointers, Value* first, Value* last) {
    const std::int64_t step = window_.vectors * plan_.lanes;
    const std::int64_t partial = channels_ % plan_.lanes;
    const bool masked = partial != 0 && emitter_.machine.masks;
    Value* whole = last;
    if (partial != 0 && !masked) {
      whole = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, last,
                                             emitter_.i64(channels_ - partial));
    }
    emitter_.loop(first, whole, step, [&](Value* channel) {
      Value* mask = nullptr;
      if (masked) {
        Value* left = builder_.CreateSub(
            emitter_.i64(channels_ - (window_.vectors - 1) * plan_.lanes), channel);
        mask = tail_mask(emitter_, left, plan_.lanes);
      }
      emit_tile(tile, pointers, {channel, plan_.lanes, window_.vectors, mask});
    });
    if (partial == 0 || masked) return;
    if (plan_.may_repeat) {
      // The rest is one more register, which reaches back to channels that are done.
      Value* rest = emitter_.i64(channels_ - plan_.lanes);
      emitter_.when(builder_.CreateICmpEQ(last, emitter_.i64(channels_)),
                    [&] { emit_tile(tile, pointers, {rest, plan_.lanes, 1, nullptr}); });
      return;
    }
    emitter_.loop(builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, whole, first), last, 1,
                  [&](Value* channel) { emit_tile(tile, pointers, {channel, 1, 1, nullptr}); });
  }

  // ---- one tile -------------------------------------------------------------------------------

  void emit_tile(Value* tile, Values pointers, const Channels& channels) {
    index_[at(plan_.vector_dim)] = channels.first;
    move(pointers, plan_.vector_dim, channels.first);
    for (std::size_t i = 0; i < accesses() && channels.lanes > 1; ++i)
      ask_for_next_row(emitter_, plan_, window_, i, pointers[i], channels.first);
    const Values sums = emit_sums(tile, pointers, channels);
    emit_stores(tile, pointers, channels, sums);
  }

  /// By reduction, column, vector. Tiles at the borders have code of their own.
  Values emit_sums(Value* tile, const Values& pointers, const Channels& channels) {
    std::vector<std::int64_t> special;
    for (std::int64_t i = 0; i < window_.first_tiles; ++i) special.push_back(i);
    for (std::int64_t i = window_.tiles - window_.last_tiles; i < window_.tiles; ++i) {
      special.push_back(i);
    }
    const bool interior = static_cast<std::int64_t>(special.size()) < window_.tiles;
    llvm::BasicBlock* join = emitter_.new_block("window");
    std::vector<std::pair<Values, llvm::BasicBlock*>> ways;
    const auto finish = [&](Values sums) {
      ways.emplace_back(std::move(sums), builder_.GetInsertBlock());
      builder_.CreateBr(join);
    };
    for (std::size_t i = 0; i < special.size(); ++i) {
      const bool last = i + 1 == special.size() && !interior;
      llvm::BasicBlock* next = last ? nullptr : emitter_.new_block("next_tile");
      if (!last) {
        llvm::BasicBlock* own = emitter_.new_block("border");
        builder_.CreateCondBr(builder_.CreateICmpEQ(tile, emitter_.i64(special[i])), own, next);
        builder_.SetInsertPoint(own);
      }
      finish(emit_loops(0, pointers, channels, start(channels), special[i] * window_.tile));
      if (next) builder_.SetInsertPoint(next);
    }
    if (interior) finish(emit_loops(0, pointers, channels, start(channels), -1));
    builder_.SetInsertPoint(join);
    Values merged;
    for (std::size_t i = 0; i < ways.front().first.size(); ++i) {
      llvm::PHINode* phi =
          builder_.CreatePHI(ways.front().first[i]->getType(), static_cast<unsigned>(ways.size()));
      for (const auto& [sums, from] : ways) phi->addIncoming(sums[i], from);
      merged.push_back(phi);
    }
    return merged;
  }

  Values start(const Channels& channels) const {
    Values sums;
    for (const ReductionEmitter& reduction : pass_.reductions) {
      const Partial partial = reduction.start(channels.lanes);
      sums.insert(sums.end(), at(window_.tile * channels.vectors), partial.value);
    }
    return sums;
  }

  /// first_column: of a tile at a border, -1 where all taps count.
  Values emit_loops(std::size_t depth, const Values& pointers, const Channels& channels,
                    Values sums, std::int64_t first_column) {
    if (depth == window_.loop_dims.size()) {
      return emit_taps(pointers, channels, std::move(sums), first_column);
    }
    const int dim = window_.loop_dims[depth];
    const auto [low, high] = bounds_[depth];
    return emitter_.loop(low, high, 1, std::move(sums), [&](Value* tap, Values inside) {
      Values here = pointers;
      index_[at(dim)] = tap;
      move(here, dim, tap);
      return emit_loops(depth + 1, here, channels, std::move(inside), first_column);
    });
  }

  bool counts(std::int64_t first_column, std::int64_t column, std::int64_t tap) const {
    if (first_column < 0) return true;
    if (first_column + column >= columns_) return false;
    return std::all_of(pass_.clips.begin(), pass_.clips.end(), [&](const NestPass::Clip& clip) {
      if (clip.dim != window_.tap_dim) return true;
      const std::vector<std::int64_t>& c = clip.guard.coefficients;
      const std::int64_t position = clip.guard.offset +
                                    c[at(window_.column_dim)] * (first_column + column) +
                                    c[at(clip.dim)] * tap;
      return position >= 0 && position < clip.guard.extent;
    });
  }

  /// The steps of a tile in the order of the elements that they read.
  std::vector<Step> steps(std::int64_t first_column) const {
    Sharing image;
    for (std::size_t id = 0; id < needed_.size(); ++id) {
      if (needed_[id] && nest_.nodes[id].op == ScalarOp::load && sharing_[id].column_step != 0) {
        image = sharing_[id];
      }
    }
    const std::int64_t taps = window_.tap_dim < 0 ? 1 : nest_.extents[at(window_.tap_dim)];
    std::vector<Step> list;
    for (std::int64_t column = 0; column < window_.tile; ++column) {
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        if (!counts(first_column, column, tap)) continue;
        list.push_back({column * image.column_step + tap * image.tap_step, column, tap});
      }
    }
    std::sort(list.begin(), list.end());
    return list;
  }

  Values emit_taps(const Values& pointers, const Channels& channels, Values sums,
                   std::int64_t first_column) {
    Cache cache;
    for (const Step& step : steps(first_column)) {
      for (unsigned vector = 0; vector < channels.vectors; ++vector) {
        PointExpression point = expression_at(pointers, channels, step.column, step.tap, vector);
        for (std::size_t id = 0; id < needed_.size(); ++id) {
          const auto found = cache.find(key(id, step, vector));
          if (needed_[id] && found != cache.end())
            point.set(static_cast<ScalarId>(id), found->second);
        }
        for (std::size_t i = 0; i < pass_.reductions.size(); ++i) {
          Value*& sum = sums[place(i, step.column, vector, channels)];
          sum = pass_.reductions[i].step({sum, nullptr}, point, nullptr, 0, nullptr).value;
        }
        for (std::size_t id = 0; id < needed_.size(); ++id) {
          Value* known = point.known(static_cast<ScalarId>(id));
          if (needed_[id] && known && sharing_[id].by_place) cache[key(id, step, vector)] = known;
        }
      }
    }
    return sums;
  }

  std::size_t place(std::size_t reduction, std::int64_t column, unsigned vector,
                    const Channels& channels) const {
    const std::size_t tile = at(window_.tile) * channels.vectors;
    return reduction * tile + at(column) * channels.vectors + vector;
  }

  std::tuple<ScalarId, std::int64_t, unsigned> key(std::size_t id, const Step& step,
                                                   unsigned vector) const {
    const Sharing& sharing = sharing_[id];
    return {static_cast<ScalarId>(id),
            step.column * sharing.column_step + step.tap * sharing.tap_step, vector};
  }

  // ---- results --------------------------------------------------------------------------------

  void emit_stores(Value* tile, const Values& pointers, const Channels& channels,
                   const Values& sums) {
    Cache cache;
    const std::int64_t in_last = columns_ - (window_.tiles - 1) * window_.tile;
    for (std::int64_t column = 0; column < window_.tile; ++column) {
      const auto emit_column = [&](Cache& shared) {
        for (unsigned vector = 0; vector < channels.vectors; ++vector) {
          emit_point(pointers, channels, sums, column, vector, shared);
        }
      };
      if (column < in_last) {
        emit_column(cache);
      } else {
        Value* inner = builder_.CreateICmpNE(tile, emitter_.i64(window_.tiles - 1));
        Cache shared = cache;  // what is made inside does not reach the columns behind
        emitter_.when(inner, [&] { emit_column(shared); });
      }
    }
  }

  void emit_point(const Values& pointers, const Channels& channels, const Values& sums,
                  std::int64_t column, unsigned vector, Cache& cache) {
    PointExpression point = expression_at(pointers, channels, column, 0, vector);
    const auto shared = [&](std::size_t id) {
      return plan_.node_level[id] == 0 && !(plan_.node_dims[id] >> window_.column_dim & 1);
    };
    for (std::size_t id = 0; id < nest_.nodes.size(); ++id) {
      const auto found = cache.find({static_cast<ScalarId>(id), 0, vector});
      if (found != cache.end()) point.set(static_cast<ScalarId>(id), found->second);
    }
    for (std::size_t i = 0; i < pass_.reductions.size(); ++i) {
      const ReductionEmitter& reduction = pass_.reductions[i];
      point.set(reduction.node(),
                reduction.result({sums[place(i, column, vector, channels)], nullptr}));
    }
    for (const loop::Store& store : nest_.stores) point.value(store.node);
    for (std::size_t i = 0; i < nest_.stores.size(); ++i) {
      const std::size_t number = nest_.accesses.size() + i;
      const PartialAddress there = address(pointers, number, channels, column, 0, vector);
      ask_for_next_tile(emitter_, plan_, window_, number, there.pointer);
      point.store(nest_.stores[i], there);
    }
    for (std::size_t id = 0; id < nest_.nodes.size(); ++id) {
      Value* known = point.known(static_cast<ScalarId>(id));
      if (known && shared(id)) cache[{static_cast<ScalarId>(id), 0, vector}] = known;
    }
  }

  // ---- addresses ------------------------------------------------------------------------------

  llvm::Type* element_type(std::size_t number) const {
    return memory_type(emitter_, emitter_.kernel.buffers[at(access(number).buffer)].dtype);
  }

  Values bases() {
    Values pointers;
    for (std::size_t i = 0; i < accesses(); ++i) {
      pointers.push_back(builder_.CreateConstGEP1_64(element_type(i),
                                                     emitter_.buffers[at(access(i).buffer)],
                                                     static_cast<std::uint64_t>(access(i).offset)));
    }
    return pointers;
  }

  void move(Values& pointers, int dim, Value* steps) {
    for (std::size_t i = 0; i < pointers.size(); ++i) {
      const std::int64_t stride = access(i).strides[at(dim)];
      if (stride == 0) continue;
      pointers[i] = builder_.CreateGEP(element_type(i), pointers[i],
                                       builder_.CreateMul(steps, emitter_.i64(stride)));
    }
  }

  PartialAddress address(const Values& pointers, std::size_t number, const Channels& channels,
                         std::int64_t column, std::int64_t tap, unsigned vector) {
    const std::vector<std::int64_t>& strides = access(number).strides;
    std::int64_t distance = strides[at(window_.column_dim)] * column +
                            strides[at(plan_.vector_dim)] * (vector * channels.lanes);
    if (window_.tap_dim >= 0) distance += strides[at(window_.tap_dim)] * tap;
    Value* pointer = builder_.CreateConstGEP1_64(element_type(number), pointers[number],
                                                 static_cast<std::uint64_t>(distance));
    return {pointer, ~std::uint64_t{0}};
  }

  PointExpression expression_at(const Values& pointers, const Channels& channels,
                                std::int64_t column, std::int64_t tap, unsigned vector) {
    Point point;
    point.index = index_;
    point.vector_dim = plan_.vector_dim;
    point.lanes = channels.lanes;
    if (vector + 1 == channels.vectors) point.mask = channels.last_mask;
    const auto shift = [&](int dim, std::int64_t steps) {
      Value*& index = point.index[at(dim)];
      if (steps != 0) index = builder_.CreateAdd(index, emitter_.i64(steps));
    };
    shift(window_.column_dim, column);
    shift(plan_.vector_dim, vector * channels.lanes);
    if (window_.tap_dim >= 0) point.index[at(window_.tap_dim)] = emitter_.i64(tap);
    PointExpression expression(emitter_, nest_.nodes, pass_.accesses, std::move(point),
                               nest_.error_buffer);
    std::vector<PartialAddress> addresses;
    for (std::size_t i = 0; i < nest_.accesses.size(); ++i) {
      addresses.push_back(address(pointers, i, channels, column, tap, vector));
    }
    expression.set_addresses(addresses);
    return expression;
  }

  Emitter& emitter_;
  llvm::IRBuilder<>& builder_;
  const NestPlan& plan_;
  const loop::Nest& nest_;
  const NestPass& pass_;
  const WindowPlan& window_;
  const std::int64_t columns_, channels_;
  std::vector<bool> needed_;  ///< nodes of the reductions' operands
  std::vector<Sharing> sharing_;
  Values index_;                                   ///< of the dims entered so far
  std::vector<std::pair<Value*, Value*>> bounds_;  ///< of the loops over taps
};

}  // namespace

KernelShape emit_window(Emitter& emitter, const NestPlan& plan, const std::vector<NestPass>& passes,
                        const WindowPlan& window) {
  WindowEmitter(emitter, plan, passes, window).emit();
  return {window.items(), 0};
}

}  // namespace rlx::codegen
