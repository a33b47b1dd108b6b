// The emitter of nests: its state, shared by the files that emit loops (nest.cpp) and passes
// (nest_pass.cpp).
#pragma once

#include "codegen/llvm/nest_plan.hpp"
#include "codegen/llvm/nest_reduce.hpp"

namespace rlx::codegen {

/// One run over the reduced dims: the reductions of one level, or the stores.
struct NestPass {
  int level = 0;  ///< reductions of lower levels are known
  std::vector<ReductionEmitter> reductions;
  std::vector<int> stores;       ///< numbers of stores
  std::vector<ScalarId> saved;   ///< nodes that this pass keeps in scratch for later ones
  std::vector<ScalarId> loaded;  ///< nodes that it finds there
  /// Series that are computed for all vectors of a round before what follows from them, in order.
  std::vector<ScalarId> series;
  /// The nest's accesses without the guards that became bounds of loops.
  std::vector<loop::Access> accesses;
  struct Clip {
    int dim;
    loop::Guard guard;
  };
  std::vector<Clip> clips;
};

/// The passes in order; the last one holds the stores that depend on reduced dims.
std::vector<NestPass> make_passes(Emitter& emitter, const NestPlan& plan);

/// The range of a reduced dim in which the pass's clips of that dim hold; `index`: of all dims that
/// they depend on.
std::pair<llvm::Value*, llvm::Value*> emit_bounds(Emitter& emitter, const loop::Nest& nest,
                                                  const NestPass& pass, int dim,
                                                  const std::vector<llvm::Value*>& index);

/// Where the code stands: indices of the loops around it, and what is known there.
struct NestFrame {
  std::vector<llvm::Value*> index;  ///< by dim; null where no loop has been entered
  /// By vector of the unrolled vector dim (one where that dim is reduced): values of nodes.
  std::vector<std::vector<llvm::Value*>> known;
  std::vector<PartialAddress> addresses;  ///< of the accesses, then of the stores
  DimSet fixed = 0;                       ///< dims with an index
  unsigned vectors = 1;  ///< vectors that each point of the loops takes, those of a tile included
  unsigned tile = 1;     ///< points of the tile dim; vector = point * (vectors / tile) + run
  unsigned rows = 1;     ///< rows whose lanes are joined together; `known` has one entry for each
  llvm::Value* place = nullptr;    ///< i64: of the first of them in the block of rows
  llvm::Value* scratch = nullptr;  ///< of the row
  /// The part of a parallel vector dim that the item takes.
  llvm::Value *low = nullptr, *high = nullptr;
  bool inside = false;  ///< of all borders of the plan
  unsigned lanes = 1;
  llvm::Value* mask = nullptr;
  /// Lanes of a reduced dim that no earlier vector has taken; null: all.
  llvm::Value* fresh = nullptr;
};

class NestEmitter {
 public:
  NestEmitter(Emitter& emitter, NestPlan plan);
  void emit();
  KernelShape shape() const {
    return {plan_.items, totals_bytes_ + scratch_bytes_ * plan_.row_block};
  }

 private:
  using Values = std::vector<llvm::Value*>;
  /// Vectors that one round of a vector loop takes.
  struct Run {
    llvm::Value* index;  ///< of their first lane
    unsigned vectors = 1, lanes = 1;
    llvm::Value* mask = nullptr;   ///< lanes that are there; null: all
    llvm::Value* fresh = nullptr;  ///< those of them that no earlier vector has taken; null: all
  };
  using Body = std::function<Values(const Run& run, Values state)>;

  // nest.cpp: loops over parallel dims.
  void emit_item(llvm::Value* item);
  NestFrame new_frame() const;
  void emit_parallel(int dim, NestFrame frame, llvm::Value* low, llvm::Value* high);
  void emit_tiles(NestFrame frame, llvm::Value* low, llvm::Value* high);
  void emit_block(NestFrame frame, llvm::Value* low, llvm::Value* high);
  void emit_vectors(NestFrame frame, llvm::Value* low, llvm::Value* high);
  Values vector_loop(llvm::Value* low, llvm::Value* high, unsigned unroll, bool repeat,
                     Values state, const Body& body);
  llvm::Value* is_inside(const NestFrame& frame);
  void enter(NestFrame& frame, int dim, llvm::Value* index, bool with_addresses);
  llvm::Value* start_of(const loop::Access& access);
  void hoist(NestFrame& frame, const NestPass& pass);
  void hoist_index(NestFrame& frame, const NestPass& pass, std::size_t number);
  void hoist_guards(NestFrame& frame, const NestPass& pass);
  void find_interior();
  std::vector<ScalarId> roots_of(const NestPass& pass) const;

  /// Steps of a vector of the frame from its first point, along the tile dim and the vector dim.
  struct VectorOffset {
    std::int64_t tile, along;
  };
  VectorOffset offset_of(const NestFrame& frame, unsigned vector) const {
    const unsigned runs = frame.vectors / frame.tile;
    return {vector / runs, std::int64_t{vector % runs} * frame.lanes};
  }
  const std::vector<NestPass>& passes(const NestFrame& frame) const {
    if (frame.inside) return frame.tile > 1 ? inside_interior_passes_ : inside_passes_;
    return frame.tile > 1 ? interior_passes_ : passes_;
  }

  // nest_pass.cpp: what happens at a point of the parallel dims.
  void emit_passes(NestFrame frame);
  Values start_reductions(const NestPass& pass, unsigned vectors, unsigned lanes, bool scalar_tail);
  void run_reductions(NestFrame& frame, const NestPass& pass);
  /// How the sums along a reduced dim and those inside of it are made of parts.
  struct SumParts {
    std::int64_t indices = 0;  ///< of the dim, in the largest parts; 0: it has none
    bool each_index = false;   ///< what lies inside of one index is a part
  };
  SumParts parts_of_sum(const NestPass& pass, int dim) const;
  Values starts_like(const NestPass& pass, const Values& state) const;
  Values joined(const NestPass& pass, const Values& a, const Values& b) const;
  Values reduced_loops(int dim, const NestFrame& frame, const NestPass& pass, Values state);
  Values reduced_parts(int dim, llvm::Value* low, llvm::Value* high, std::int64_t part,
                       const NestFrame& frame, const NestPass& pass, Values state);
  Values reduced_loop(int dim, llvm::Value* low, llvm::Value* high, const NestFrame& frame,
                      const NestPass& pass, Values state);
  Values emit_points(const NestFrame& frame, const NestPass& pass, Values state, unsigned group);
  PointExpression expression_at(const NestFrame& frame, const NestPass& pass, unsigned vector);
  PartialAddress address_of(const NestFrame& frame, std::size_t number, unsigned vector) const;
  bool repeats_tail(const NestPass& pass) const;
  void share(const NestFrame& frame, std::vector<PointExpression>& points, std::size_t vector,
             const NestPass& pass) const;
  void series_abreast(const NestFrame& frame, std::vector<PointExpression>& points,
                      const NestPass& pass) const;
  void emit_stores_once(const NestFrame& frame);
  /// One vector with nothing in place is stored value by value: registers hold few of those of a
  /// large tile.
  bool stores_at_once(const NestFrame& frame) const {
    return plan_.may_repeat && frame.vectors == 1;
  }
  void emit_stores(const NestFrame& frame, const std::vector<int>& stores,
                   std::vector<PointExpression>& points);
  llvm::Value* reduced_position(const NestFrame& frame);
  void keep(const NestFrame& frame, ScalarId node, unsigned vector, llvm::Value* value);
  llvm::Value* load_kept(const NestFrame& frame, ScalarId node, unsigned vector);
  llvm::Value* scratch_place(const NestFrame& frame, ScalarId node, unsigned vector);
  const loop::Access& access(std::size_t number) const;

  // nest_turn.cpp: tiles that are turned in registers, behind loads or before stores.
  Values emit_turned(const NestFrame& frame, const NestPass& pass, Values state);
  llvm::Value* turned_mask(const NestFrame& frame, const loop::Access& a, llvm::Value*& pointer);
  llvm::Value* along_vector_dim(const NestFrame& frame, std::size_t number, llvm::Value* pointer);
  void ask_for_next_tile(const NestFrame& frame, const std::vector<int>& stores);
  void load_turned(const NestFrame& frame, std::vector<PointExpression>& points, ScalarId node);
  void store_woven(const NestFrame& frame, int number, std::vector<PointExpression>& points);

  // nest_rows.cpp: rows that lanes run along.
  void emit_rows(const NestFrame& frame, llvm::Value* low, llvm::Value* high);
  void emit_row_block(NestFrame frame, llvm::Value* low, llvm::Value* high);
  void row_groups(llvm::Value* low, llvm::Value* high, bool may_repeat,
                  const std::function<void(llvm::Value* index, unsigned rows)>& body);
  void emit_row_pass(NestFrame& group, const NestPass& pass, bool ends);
  void run_row_reductions(NestFrame& frame, const NestPass& pass);
  NestFrame row_of(const NestFrame& frame, unsigned row);
  llvm::Value* total_place(const NestFrame& frame, std::size_t node, unsigned row);
  void keep_totals(const NestFrame& frame, const NestPass& pass);
  void load_totals(NestFrame& frame, const NestPass& pass);

  Emitter& emitter_;
  NestPlan plan_;
  const loop::Nest& nest_;
  std::vector<NestPass> passes_;
  /// Of tiles, which lie where no guard along the tile dim fails.
  std::vector<NestPass> interior_passes_;
  std::int64_t interior_begin_ = 0, interior_end_ = 0;
  /// The same two of points inside of the plan's borders.
  std::vector<NestPass> inside_passes_, inside_interior_passes_;
  /// By access: the first of the same buffer with the same strides.
  std::vector<std::size_t> leaders_;
  std::vector<int> stores_once_;  ///< stores at points of the parallel dims only
  std::vector<std::int64_t>
      scratch_at_;                  ///< by node: offset of its row in scratch, -1 where it has none
  std::int64_t scratch_bytes_ = 0;  ///< of one row
  std::vector<std::int64_t> totals_at_;  ///< by node: offset in scratch of a block's results
  std::int64_t totals_bytes_ = 0;
  bool row_is_held_ = false;  ///< a row of one vector: values for later passes stay in registers
  Values held_;               ///< by node
  unsigned groups_ = 1;       ///< running values of each reduction
};

}  // namespace rlx::codegen
