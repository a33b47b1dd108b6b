// Scalar expressions as LLVM values: nodes evaluated at a point of the domain (or a run of lanes
// along one dim), loads and stores through accesses. Used by nests and by the epilogues of
// contractions.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "codegen/llvm/vector_math.hpp"

namespace rlx::codegen {

/// In registers f16, bf16 and 8-bit floats are f32 values that their type can hold, bool is i1, i4
/// and u4 are i8. One lane is a scalar type, more are <lanes x T>.
llvm::Type* value_type(Emitter& emitter, DType dtype, unsigned lanes);

/// Lanes of a value: 1 for scalars.
unsigned lanes_of(const llvm::Value* value);

/// The value on every lane; a value that already has so many lanes as it is.
llvm::Value* splat(Emitter& emitter, llvm::Value* value, unsigned lanes);

/// A constant of that type; `value` for floats, `integer` for the others.
llvm::Constant* constant_of(Emitter& emitter, DType dtype, unsigned lanes, double value,
                            std::int64_t integer);

/// One operation. `operand` is the type of node.a (of node.b for select). Operands may mix scalars
/// and vectors: scalars are splatted; where all are scalars so is the result. Not for leaves and
/// reduce.
llvm::Value* emit_scalar(Emitter& emitter, const ScalarNode& node, DType operand, llvm::Value* a,
                         llvm::Value* b = nullptr, llvm::Value* c = nullptr);

/// acc (op) value for sum, prod, min, max, any, all. Types as of the node; f16 and bf16 round at
/// each step.
llvm::Value* emit_combine(Emitter& emitter, ReduceKind kind, DType dtype, llvm::Value* accumulator,
                          llvm::Value* value);

/// The same over the lanes of a vector, in a fixed tree order. Scalars pass through.
llvm::Value* emit_reduce_lanes(Emitter& emitter, ReduceKind kind, DType dtype, llvm::Value* value);

/// Reads `lanes` elements at pointer, pointer + stride elements, ... as register values. mask: null
/// (all), i1, or <lanes x i1>; masked lanes read nothing and give `fill` (null: 0). Stride 0 gives
/// a scalar where mask is null or i1.
llvm::Value* emit_load(Emitter& emitter, DType dtype, llvm::Value* pointer, std::int64_t stride,
                       unsigned lanes, llvm::Value* mask = nullptr, llvm::Value* fill = nullptr);

/// Writes register values; the counterpart of emit_load. A stride of 0 writes the last active lane.
/// in_pieces: where it is known how many first lanes are active, by short stores instead of a mask,
/// for which whoever loads what lies behind them would wait.
void emit_store(Emitter& emitter, DType dtype, llvm::Value* value, llvm::Value* pointer,
                std::int64_t stride, unsigned lanes, llvm::Value* mask = nullptr,
                bool in_pieces = false);

/// Asks for a line, to write it or to read it; into L1 (locality 3) or L2 (2).
void emit_prefetch(Emitter& emitter, llvm::Value* pointer, bool write, int locality);

/// <lanes x i1>: lane < count. Count is i64, at least 0.
llvm::Value* tail_mask(Emitter& emitter, llvm::Value* count, unsigned lanes);

/// Where an expression is evaluated: one point, or `lanes` points along `vector_dim`.
struct Point {
  std::vector<llvm::Value*> index;  ///< i64 for each domain dim; of lane 0 for vector_dim
  int vector_dim = -1;
  unsigned lanes = 1;
  llvm::Value* mask = nullptr;  ///< <lanes x i1> of the lanes that exist; null: all of them
  bool alone = false;           ///< shares no loads with its neighbours, as the taps of tiles do
};

/// A part of an access's address that was computed outside of the loop: pointer covers the offset
/// and the dims in `dims`.
struct PartialAddress {
  llvm::Value* pointer = nullptr;
  std::uint64_t dims = 0;   ///< bit i: dim i is covered
  bool with_index = false;  ///< what data says is covered, too, and checked
  /// i1: whether all guards of the access hold; null: they are asked at each point.
  llvm::Value* guard = nullptr;
};

/// Evaluates the nodes of one expression at one point, each at most once. Nodes that do not depend
/// on vector_dim are computed as scalars. Make a new one for each point; code must not branch
/// between uses (values must dominate their uses).
class PointExpression {
 public:
  /// error_buffer: of the kernel, -1 where nothing is indirect.
  PointExpression(Emitter& emitter, std::span<const ScalarNode> nodes,
                  std::span<const loop::Access> accesses, Point point, int error_buffer);

  /// Gives a node a value from outside: the accumulator of a contraction, the result of a
  /// reduction.
  void set(ScalarId node, llvm::Value* value) { values_[node] = value; }
  /// Gives every `accumulator` node this value, converted from the contraction's accumulator type
  /// to the node's.
  void set_accumulator(llvm::Value* value, DType dtype);
  /// Uses addresses computed outside: one for each access; null pointers are ignored.
  void set_addresses(std::span<const PartialAddress> addresses) {
    addresses_.assign(addresses.begin(), addresses.end());
  }

  /// Scalar or vector.
  llvm::Value* value(ScalarId node);
  /// The node's value where it was computed or set already, else null.
  llvm::Value* known(ScalarId node) const { return values_[node]; }
  /// The node that a series of floats makes this one from, -1 where none does.
  ScalarId operand_of_series(ScalarId node) const;
  /// Gives the node its value at both points, with the lanes of both in one value where a series
  /// of floats makes it: instructions of two chains lie side by side.
  static void value_of_both(PointExpression& first, PointExpression& second, ScalarId node);
  /// i64 or a vector: how far data moves the access, in elements; its indices are checked here.
  /// Null where the access has none.
  llvm::Value* index_offset(const loop::Access& access);
  /// i1 or <lanes x i1>; null where there are none.
  llvm::Value* all_hold(std::span<const loop::Guard> guards);
  void store(const loop::Store& store, const PartialAddress& address = {});

  const Point& point() const { return point_; }

 private:
  struct Place {
    llvm::Value* pointer;  ///< of lane 0, or <lanes x ptr>
    std::int64_t stride;   ///< along vector_dim, in elements; unused with a vector of pointers
    llvm::Value* guard = nullptr;  ///< null, i1 or <lanes x i1>: whether the guards hold
  };
  bool runs_along_lanes(int dim) const { return point_.lanes > 1 && dim == point_.vector_dim; }
  Place place(const loop::Access& access, const PartialAddress& address);
  llvm::Value* safe_pointer(const Place& place, const loop::Access& access);
  llvm::Value* guard_holds(const loop::Guard& guard);
  /// A node that code of its own makes from one other.
  struct Series {
    ScalarId operand;
    llvm::Value* (*emit)(Emitter&, llvm::Value*);
  };
  /// That of a node 1 + erf(x), 1 + tanh(x) or 1 + e^x where the curve is not known yet, of a
  /// logistic function and of a softmax's power.
  std::optional<Series> in_one_go(const ScalarNode& node) const;
  llvm::Value* indirect_offset(const loop::Indirect& indirect);
  llvm::Value* sum_of_offsets(llvm::Value* a, llvm::Value* b);
  llvm::Value* load(const ScalarNode& node);
  /// Guard and the point's mask together, for an access that touches every lane.
  llvm::Value* lane_mask(llvm::Value* guard);

  Emitter& emitter_;
  std::span<const ScalarNode> nodes_;
  std::span<const loop::Access> accesses_;
  Point point_;
  int error_buffer_;
  std::vector<PartialAddress> addresses_;
  std::vector<llvm::Value*> values_;
};

/// A sentence where the nodes, accesses and stores hold something that cannot be generated (complex
/// numbers).
std::optional<std::string> cannot_generate(const loop::Kernel& kernel,
                                           std::span<const ScalarNode> nodes);

}  // namespace rlx::codegen
