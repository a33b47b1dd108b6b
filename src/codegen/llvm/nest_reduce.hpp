// Running values of reductions: their start, one step, and how partial results join.
#pragma once

#include "codegen/llvm/scalar_emitter.hpp"

namespace rlx::codegen {

/// A running value; for argmin and argmax with the position of its element, the largest of its type
/// where none differs from the identity.
struct Partial {
  llvm::Value* value = nullptr;
  llvm::Value* position = nullptr;
};

/// One reduce node of a nest.
class ReductionEmitter {
 public:
  ReductionEmitter(Emitter& emitter, const loop::Nest& nest, ScalarId node);

  ScalarId node() const { return node_; }
  bool has_position() const;
  Partial start(unsigned lanes) const;
  /// Takes in the operand at the expression's point. position: i64 of lane 0 along which it grows
  /// by `position_step`.
  Partial step(const Partial& before, PointExpression& at, llvm::Value* position,
               std::int64_t position_step, llvm::Value* mask) const;
  Partial join(const Partial& a, const Partial& b) const;
  /// Over the lanes, in a fixed tree order.
  Partial join_lanes(Partial partial) const;
  /// The same for several rows, a power of two, with the same result for each: they share vectors
  /// as soon as half of the lanes are left of each.
  std::vector<Partial> join_lanes(const std::vector<Partial>& rows) const;
  llvm::Value* result(const Partial& partial) const;

 private:
  llvm::Value* wins(llvm::Value* challenger, llvm::Value* holder) const;
  /// What stands for no position.
  llvm::Constant* no_position(unsigned lanes) const;
  /// Rows that share a vector: each has so many lanes beside each other.
  struct Shared {
    llvm::Value* value;
    std::vector<std::size_t> rows;  ///< in the order of their lanes
    unsigned width;                 ///< lanes of one row
  };
  Shared join_pair(const Shared& x, const Shared& y) const;

  Emitter* emitter_;
  const std::vector<ScalarNode>* nodes_;
  ScalarId node_;
  ReduceKind kind_;
  DType dtype_;           ///< of the running value
  DType position_dtype_;  ///< i32 where all positions fit, else i64
};

/// The value that changes nothing, as a number of that type.
double identity_of(ReduceKind kind, DType dtype);

}  // namespace rlx::codegen
