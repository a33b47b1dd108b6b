// Loops over the rows of a chain's item that look at its last columns.
#include "codegen/llvm/hidden_columns.hpp"

#include "codegen/llvm/scalar_emitter.hpp"

namespace rlx::codegen {
namespace {

using llvm::Value;
using Values = std::vector<Value*>;
using Integers = std::vector<std::int64_t>;

Value* bytes_at(Emitter& emitter, Value* pointer, Value* offset) {
  return emitter.builder.CreateGEP(emitter.builder.getInt8Ty(), pointer, offset);
}

Value* column_at(Emitter& emitter, const ColumnRows& rows, Value* begin, Value* column) {
  return bytes_at(emitter, begin, emitter.builder.CreateMul(column, emitter.i64(rows.bytes)));
}

}  // namespace

ColumnRows column_rows(Emitter& emitter, const loop::Contraction& contraction,
                       const loop::Access& access, Value* base, Value* batch, Value* first_row) {
  const DType dtype = emitter.kernel.buffers[static_cast<std::size_t>(access.buffer)].dtype;
  const auto bytes = static_cast<std::int64_t>(size_of(dtype));
  const auto m_begin = access.strides.begin() + std::ssize(contraction.batch_extents);
  Integers batch_steps(access.strides.begin(), m_begin),
      row_steps(m_begin, access.strides.end() - 1);
  for (Integers* steps : {&batch_steps, &row_steps})
    for (std::int64_t& step : *steps) step *= bytes;
  Value* offset = emit_linear_sums(emitter, batch, contraction.batch_extents, {batch_steps},
                                   {access.offset * bytes})[0];
  Value* begin = bytes_at(emitter, base, offset);
  return {contraction.n, bytes, [=, &emitter, &contraction](Value* row) {
            Value* number = emitter.builder.CreateAdd(first_row, row);
            return bytes_at(
                emitter, begin,
                emit_linear_sums(emitter, number, contraction.m_extents, {row_steps}, {0})[0]);
          }};
}

ColumnRows rows_of_a(Emitter& emitter, const loop::Contraction& contraction, Value* base,
                     Value* batch, Value* first_row) {
  loop::Access access{.buffer = contraction.a_buffer,
                      .offset = contraction.a_offset,
                      .strides = contraction.a_batch_strides};
  access.strides.insert(access.strides.end(), contraction.a_m_strides.begin(),
                        contraction.a_m_strides.end());
  access.strides.push_back(1);
  ColumnRows rows = column_rows(emitter, contraction, access, base, batch, first_row);
  rows.columns = 1;
  for (const std::int64_t extent : contraction.k_extents) rows.columns *= extent;
  return rows;
}

Value* emit_last_columns(Emitter& emitter, const ColumnRows& rows, Value* count) {
  llvm::IRBuilder<>& builder = emitter.builder;
  auto* type = llvm::FixedVectorType::get(builder.getInt8Ty(),
                                          static_cast<unsigned>(columns_together * rows.bytes));
  llvm::BasicBlock* before = builder.GetInsertBlock();
  llvm::BasicBlock* look = emitter.new_block("look");
  llvm::BasicBlock* next = emitter.new_block("nearer");
  llvm::BasicBlock* found = emitter.new_block("found");
  builder.CreateBr(look);
  builder.SetInsertPoint(look);
  llvm::PHINode* columns = builder.CreatePHI(builder.getInt64Ty(), 2);
  columns->addIncoming(builder.getInt64(rows.columns), before);
  Value* nearer = builder.CreateSub(columns, builder.getInt64(columns_together));
  const Values any = emitter.loop(
      emitter.i64(0), count, 1, {llvm::Constant::getNullValue(type)}, [&](Value* row, Values seen) {
        Value* at = column_at(emitter, rows, rows.at(row), nearer);
        return Values{
            builder.CreateOr(seen[0], builder.CreateAlignedLoad(type, at, llvm::Align(1)))};
      });
  Value* is_zero = builder.CreateIsNull(builder.CreateOrReduce(any[0]));
  Value* has_more = builder.CreateICmpSGE(nearer, builder.getInt64(columns_together));
  builder.CreateCondBr(builder.CreateAnd(is_zero, has_more), next, found);
  builder.SetInsertPoint(next);
  columns->addIncoming(nearer, next);
  builder.CreateBr(look);
  builder.SetInsertPoint(found);
  return columns;
}

void emit_fill(Emitter& emitter, const ColumnRows& rows, Value* count, Value* first,
               std::int64_t lanes, double number) {
  llvm::IRBuilder<>& builder = emitter.builder;
  Value* one = llvm::ConstantFP::get(builder.getFloatTy(), number);
  Value* whole = builder.getInt64(rows.columns / lanes * lanes);
  Value* rest = builder.CreateBinaryIntrinsic(llvm::Intrinsic::smax, first, whole);
  emitter.loop(emitter.i64(0), count, 1, [&](Value* row) {
    Value* begin = rows.at(row);
    const auto store = [&](Value* column, std::int64_t elements) {
      const auto wide = static_cast<unsigned>(elements);
      emit_store(emitter, DType::f32, splat(emitter, one, wide),
                 column_at(emitter, rows, begin, column), 1, wide);
    };
    emitter.loop(first, whole, lanes, [&](Value* column) { store(column, lanes); });
    emitter.loop(rest, emitter.i64(rows.columns), 1, [&](Value* column) { store(column, 1); });
  });
}

}  // namespace rlx::codegen
