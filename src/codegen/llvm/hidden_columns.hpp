// Columns at the end of rows that nothing needs: finding where they begin, and filling them.
#pragma once

#include <functional>

#include "codegen/llvm/contraction.hpp"

namespace rlx::codegen {

/// Columns that are looked at together for the last one that counts; rows have at least so many.
inline constexpr std::int64_t columns_together = 64;

/// Rows whose columns lie side by side.
struct ColumnRows {
  std::int64_t columns = 0, bytes = 1;               ///< of a column
  std::function<llvm::Value*(llvm::Value* row)> at;  ///< where that row begins
};

/// The rows of an access of the contraction, from `first_row` of that batch on; its last stride is
/// 1. `base`: of the buffer.
ColumnRows column_rows(Emitter& emitter, const loop::Contraction& contraction,
                       const loop::Access& access, llvm::Value* base, llvm::Value* batch,
                       llvm::Value* first_row);

/// The same of its A, whose k lie side by side.
ColumnRows rows_of_a(Emitter& emitter, const loop::Contraction& contraction, llvm::Value* base,
                     llvm::Value* batch, llvm::Value* first_row);

/// How many columns there are up to the last one that is not zero in all of `count` rows, and at
/// least columns_together.
llvm::Value* emit_last_columns(Emitter& emitter, const ColumnRows& rows, llvm::Value* count);

/// Stores the number in the columns of f32 from `first` on, which is a multiple of `lanes`.
void emit_fill(Emitter& emitter, const ColumnRows& rows, llvm::Value* count, llvm::Value* first,
               std::int64_t lanes, double number);

}  // namespace rlx::codegen
