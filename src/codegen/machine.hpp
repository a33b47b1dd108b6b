// What the instruction set of a target offers, for the emitters and for those who ask what they
// will do.
#pragma once

#include "codegen/code.hpp"

namespace rlx::codegen {

struct Machine {
  Isa isa = Isa::portable;
  unsigned vector_bytes = 16;  ///< 16, 32 or 64
  unsigned registers = 16;     ///< vector registers
  bool fma = false;            ///< fused multiply-add in hardware
  bool f16c = false;           ///< f16 <-> f32 conversions in hardware
  bool masks = false;  ///< masked loads and stores of every element size are cheap (AVX-512)
  bool pair_products = false;  ///< pmaddwd: sums of two products of i16 in one instruction
  bool vnni = false;           ///< AVX512-VNNI may be used
  bool bf16_dot = false;       ///< AVX512-BF16 dot products may be used
  bool bf16_tiles = false;     ///< products of tiles of bf16 may be used (AMX-BF16)
  bool byte_tiles = false;     ///< and of bytes (AMX-INT8)
  /// A core's L2 has 2 MB, others' 1 MB or less. Told by arithmetic of f16, which Intel's server
  /// cores have since Sapphire Rapids, tiles or not: some hosts hide these.
  bool large_l2 = false;

  /// Lanes of one register for elements of so many bytes.
  unsigned lanes(unsigned element_bytes) const { return vector_bytes / element_bytes; }
};

/// Products of so many columns for each row share out their rows among workers; more share out
/// their columns, and windows behind them the channels. To walk over all of B costs the others'
/// part of it from L3 once; a large L2 has it from then on.
constexpr std::int64_t most_columns_for_a_row(bool large_l2) { return large_l2 ? 3 : 1; }

/// Are lanes that lie so many elements apart read by whole loads and put together by shuffles?
constexpr bool is_shuffled(std::int64_t stride, unsigned lanes) {
  return stride > 1 && stride <= 4 && lanes >= 4;
}

/// Are products of these integers made of pairs of i16, whatever instructions there are for them?
constexpr bool pairs_as_words(DType a, DType b) {
  const auto word = [](DType dtype) {
    return dtype == DType::u8 || dtype == DType::i8 || dtype == DType::i16;
  };
  return word(a) && word(b);
}

/// The facts of a target; false where its features name something that its ISA class lacks is no
/// error.
Machine machine_of(const Target& target);

}  // namespace rlx::codegen
