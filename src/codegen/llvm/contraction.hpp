// The parts of a contraction's code: register blocks, scratch panels, the tile's epilogue. Each is
// a function of its own inside the kernel's module; contraction.cpp holds the loops that call them.
#pragma once

#include <string>

#include "codegen/llvm/contraction_plan.hpp"
#include "codegen/llvm/emitter.hpp"

namespace rlx::codegen {

/// Can code be generated for a contraction of the kernel? Errors: unsupported, with the reason.
Status check_contraction(const loop::Kernel& kernel, const loop::Contraction& contraction);

/// Asks for the lines of so many bytes, into L2. Result: what lies behind them.
llvm::Value* emit_asking(Emitter& emitter, llvm::Value* from, std::int64_t bytes);

/// Makes the pointers wait for a sum, by an instruction of no length. LLVM would load columns of
/// later steps first, and keep elements that neighbouring rows share, in registers that the sums
/// need. Several pointers to rows stay as they are.
void hold_back(Emitter& emitter, llvm::Value* sum, std::vector<llvm::Value*>& rows,
               llvm::Value*& columns);

/// What all parts know.
struct ContractionContext {
  Emitter& emitter;
  const loop::Contraction& contraction;
  const ContractionPlan& plan;

  DType a_dtype() const { return emitter.kernel.buffers[contraction.a_buffer].dtype; }
  DType b_dtype() const { return emitter.kernel.buffers[contraction.b_buffer].dtype; }
  /// Elements of B lie side by side along n.
  bool columns_contiguous() const { return contraction.b_packed || contraction.b_n_stride == 1; }
  /// Bytes of a panel of packed B, and of one of its columns in a step of k.
  std::int64_t packed_panel_bytes() const {
    return packed_bytes(plan.panel_width * plan.packed_depth);
  }
  /// Bytes of whole lines of panels with so many elements.
  std::int64_t packed_bytes(std::int64_t elements) const {
    return elements * static_cast<std::int64_t>(size_of(b_dtype())) /
           (contraction.b_nibbles ? 2 : 1);
  }
  std::int64_t packed_column_bytes() const {
    return contraction.k_group * static_cast<std::int64_t>(size_of(b_dtype()));
  }
  /// Packed pairs of bytes, which the micro-kernel widens to pairs of i16.
  bool packed_byte_pairs() const {
    return plan.products == Products::word_pairs && plan.column_source == ColumnSource::packed &&
           size_of(b_dtype()) == 1;
  }
  /// Element type of the columns that the micro-kernel reads; groups of k are i32, pairs of bytes
  /// i16.
  DType column_dtype() const {
    if (packed_byte_pairs()) return DType::i16;
    if (plan.unit > 1) return DType::i32;
    return plan.column_source == ColumnSource::scratch ? contraction.accumulator : b_dtype();
  }
  /// Of zeros beside B's scales.
  bool has_zeros() const { return contraction.b_zero_buffer >= 0; }
  /// Rows of that local buffer have room for whole blocks of columns.
  bool pads(const loop::Access& access) const;
  /// An operand lies as a result does, so that the result may take its place. Where rows end within
  /// a register, a load then waits for the masked store of the row before it, as if that had
  /// written all of its register's bytes: rows are read before any of them is stored.
  bool may_be_in_place(const loop::Access& access) const;
  /// The epilogue is short enough to be computed on the accumulators in their registers, without
  /// the way through the tile.
  bool register_epilogue() const;
  /// The last column block has code of its own: there is less to read, less to compute, or no mask
  /// for the others to carry.
  bool own_tail() const;
};

/// A function private to the module, for the same machine as the kernel; its emitter's builder
/// stands in its entry. Restores the caller's place when it goes.
class PartFunction {
 public:
  PartFunction(Emitter& parent, const std::string& name,
               const std::vector<llvm::Type*>& parameters);
  ~PartFunction();
  PartFunction(const PartFunction&) = delete;
  PartFunction& operator=(const PartFunction&) = delete;

  Emitter& emitter() { return emitter_; }
  llvm::Function* function() { return emitter_.function; }
  llvm::Value* argument(unsigned i) { return emitter_.function->getArg(i); }
  /// Of a block that ends early: how many rounds of so many k it makes, of `most`.
  llvm::Value* rounds_that_count(std::int64_t k_of_round, std::int64_t most);
  /// Fills emitter().buffers from the argument that holds the kernel's array of buffers.
  void load_buffers(unsigned argument_index);

 private:
  llvm::IRBuilderBase::InsertPoint caller_;
  Emitter emitter_;
};

/// The row-major coordinates of `linear` (i64 or a vector of i64, below the product) in extents.
/// `rarely`: once an item, where one code serves extents of 1, too.
std::vector<llvm::Value*> emit_coordinates(Emitter& emitter, llvm::Value* linear,
                                           const std::vector<std::int64_t>& extents,
                                           bool rarely = false);

/// sum(coordinate i * step i) for the row-major coordinates of `linear` in extents, one
/// sum for each of `steps` (lists of one step a dim), plus that list's start.
std::vector<llvm::Value*> emit_linear_sums(Emitter& emitter, llvm::Value* linear,
                                           const std::vector<std::int64_t>& extents,
                                           const std::vector<std::vector<std::int64_t>>& steps,
                                           const std::vector<std::int64_t>& starts);

/// `lanes` elements at `pointer`, widened to the accumulator type.
llvm::Value* emit_widening_load(Emitter& emitter, DType from, DType accumulator,
                                llvm::Value* pointer, unsigned lanes, llvm::Value* mask = nullptr);

/// What registers of B's columns stand for: scale * (b - zero), as b * scale + (-zero * scale).
class ScaledColumns {
 public:
  /// The scales and zeros of `vectors` registers from the two pointers on; `at` (null: 0): elements
  /// behind them.
  ScaledColumns(const ContractionContext& context, Emitter& emitter, llvm::Value* scales,
                llvm::Value* zeros, llvm::Value* at, unsigned vectors);
  /// `b` is a register of f32, the one of number `vector`.
  llvm::Value* scaled(llvm::Value* b, unsigned vector) const;

 private:
  Emitter* emitter_;
  std::vector<llvm::Value*> scales_;
  std::vector<llvm::Value*> added_;  ///< -zero * scale; empty: nothing
};

/// `lanes` numbers of four bits as f32, of an even or an odd k.
llvm::Value* emit_nibbles(const ContractionContext& context, Emitter& emitter, llvm::Value* at,
                          bool odd);

/// void(ptr a, ptr columns, i64 batch, i64 row, ptr out, ptr zero_line, i64 columns_left): a block
/// of `rows` rows from `row` on. `a` is the batch's A. `out` is the tile, or with
/// register_epilogue() the kernel's array of buffers. `tail`: the last column block of an in-place
/// B, whose columns beyond columns_left must not be read. `asks`: the function has one more
/// parameter, ptr ahead, from where on it asks for the plan's asked_bytes in each step. Where the
/// plan ends early there is i64 k instead: how many of them count, at least one. Last, where the
/// columns are of a B that is scaled: ptr scales, ptr zeros, of the first block of k.
llvm::Function* emit_row_block(const ContractionContext& context, std::int64_t rows, bool tail,
                               bool asks = false);

/// The same in tiles; those of the tallest block must be configured.
void emit_tile_block(const ContractionContext& context, PartFunction& part, std::int64_t rows,
                     bool asks);

/// Configures the tiles of blocks of so many rows, for this thread, until emit_tile_release.
void emit_tile_config(const ContractionContext& context, std::int64_t rows);
void emit_tile_release(Emitter& emitter);

/// In a part as emit_row_block makes it: the epilogue's nodes and stores over `rows` rows of
/// accumulators, `sums` by row and vector of columns. `masks` by vector; null: all columns count.
void emit_register_epilogue(const ContractionContext& context, PartFunction& part,
                            std::int64_t rows, const std::vector<llvm::Value*>& sums,
                            const std::vector<llvm::Value*>& masks);

/// Asks for what it will read and write by row and column.
void emit_register_epilogue_asking(const ContractionContext& context, PartFunction& part,
                                   std::int64_t rows);

/// void(ptr buffers, i64 begin, i64 end, ptr scratch): a body within another one.
struct BodyFunction {
  llvm::Function* function = nullptr;
  KernelShape shape;
};
/// `emit` gets the emitter of the function, as for a kernel's only body.
Result<BodyFunction> emit_body(Emitter& emitter, const std::string& name,
                               const std::function<Result<KernelShape>(Emitter&)>& emit);

/// A nest over whole rows of results. Errors: the nest's, and one of rlx where its work items are
/// not `rows`.
Result<BodyFunction> emit_row_epilogue(Emitter& emitter, const loop::Nest& nest, std::int64_t rows);

/// void(ptr b, ptr panel, i64 columns_left): copies one column block of B into a scratch panel,
/// widened to the accumulator type. Columns beyond columns_left hold anything. Where B is scaled
/// there are ptr scales and ptr zeros, too, and the panel holds what its elements stand for.
llvm::Function* emit_panel_copy(const ContractionContext& context);

/// void(ptr a, ptr lines, i64 segment): copies the lines that a segment reads. Their margins stay
/// as they are.
llvm::Function* emit_line_copy(const ContractionContext& context);

/// Whether emit_dots serves: one column, of which B lies side by side along the run of k.
bool suits_dots(const ContractionContext& context);

/// The whole body, with lanes along k.
KernelShape emit_dots(const ContractionContext& context);

/// void(ptr buffers, ptr tile, i64 batch, i64 row, i64 rows, i64 column): the epilogue's nodes and
/// stores over a tile of `rows` rows of block_columns accumulators.
llvm::Function* emit_tile_epilogue(const ContractionContext& context);

}  // namespace rlx::codegen
