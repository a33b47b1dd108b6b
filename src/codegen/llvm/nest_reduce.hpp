// Running values of reductions: their start, one step, and how partial results join.
#pragma once

#include "codegen/llvm/scalar_emitter.hpp"

namespace rlx::codegen {

/// A running value; for argmin and argmax with the i64 position of its element, -1 before the
/// first.
struct Partial {
  llvm::Value* value = nullptr;
  llvm::Value* position = nullptr;
};

/// One reduce node of a nest.
class ReductionEmitter {
 public:
  ReductionEmitter(Emitter& emitter, const std::vector<ScalarNode>& nodes, ScalarId node);

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
  llvm::Value* result(const Partial& partial) const;

 private:
  llvm::Value* wins(llvm::Value* challenger, llvm::Value* holder) const;

  Emitter* emitter_;
  const std::vector<ScalarNode>* nodes_;
  ScalarId node_;
  ReduceKind kind_;
  DType dtype_;  ///< of the running value
};

/// The value that changes nothing, as a number of that type.
double identity_of(ReduceKind kind, DType dtype);

}  // namespace rlx::codegen
