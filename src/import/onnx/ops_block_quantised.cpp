// ONNX Runtime's ops on weights of few bits (com.microsoft): numbers packed into bytes, with a
// scale for each block of them.
#include "import/onnx/build.hpp"
#include "import/onnx/families.hpp"

namespace rlx::onnx {
namespace {

std::int64_t bits_of(NodeContext& c) {
  const std::int64_t bits = c.integer("bits", 4);
  if (bits != 2 && bits != 4 && bits != 8)
    fail_unsupported("Weights of ({}) bits are not supported; of 2, 4 and 8 they are.", bits);
  return bits;
}

/// Bytes as the numbers that they hold, unsigned.
Value numbers_of(NodeContext& c, const Value& bytes, std::int64_t bits) {
  if (bits == 8) return bytes;
  return c.add(op::UnpackBits{bits == 4 ? u4 : u2}, {bytes});
}

/// The first `count` along the last axis.
Value first_columns(const Value& x, std::int64_t count) {
  if (x.shape().back() == Dim(count)) return x;
  Axes limits(static_cast<std::size_t>(x.rank()), op::slice_end);
  limits.back() = count;
  return slice(x, Axes(limits.size(), 0), limits);
}

/// The middle of the range, for all blocks of the scale.
Value middle(NodeContext& c, const Value& scale, DType dtype, std::int64_t bits) {
  return broadcast(c.scalar(dtype, static_cast<double>(std::int64_t{1} << (bits - 1))),
                   scale.shape());
}

void check_integers(const Value& zeros) {
  if (is_float(zeros.dtype())) fail_unsupported("Zero points of floats are not supported.");
}

// (a [..., K], b [N, blocks, bytes], scales [N, blocks], zero points?, group index?, bias?)
void matmul_n_bits(NodeContext& c) {
  const std::int64_t k = c.integer("K"), n = c.integer("N"), block = c.integer("block_size");
  const std::int64_t bits = bits_of(c);
  c.ignore({"accuracy_level"});  // the least that is accurate enough
  constexpr std::int64_t most = std::int64_t{1} << 31;
  for (const std::int64_t size : {k, n, block})
    if (size < 1 || size > most) fail("K, N and block_size must lie in [1, 2^31].");
  if (c.has(4)) fail_unsupported("A group index (g_idx) is not supported.");
  const std::int64_t blocks = (k + block - 1) / block;
  const Value numbers = first_columns(
      numbers_of(c, reshape(c.in(1), {Dim(n), Dim(blocks * block * bits / 8)}), bits), k);
  const Value scale = reshape(c.in(2), {Dim(n), Dim(blocks)});
  Value zero;
  if (c.has(3)) {
    check_integers(c.in(3));
    const std::int64_t bytes = (blocks * bits + 7) / 8;
    zero = first_columns(numbers_of(c, reshape(c.in(3), {Dim(n), Dim(bytes)}), bits), blocks);
  } else {
    zero = middle(c, scale, numbers.dtype(), bits);
  }
  op::Dequantize dequantize{.dtype = scale.dtype(), .axis = 1, .block = block};
  Value y = matmul(c.in(0), transpose(c.add(dequantize, {numbers, scale, zero}), {1, 0}));
  if (c.has(5)) y = y + c.in(5);
  c.set(y);
}

// (data, indices, scales, zero points?): rows of a table
void gather_block_quantised(NodeContext& c) {
  const std::int64_t bits = bits_of(c), block = c.integer("block_size", 128);
  const std::int64_t axis = c.integer("gather_axis", 0);
  const Value data = c.in(0), scale = c.in(2);
  const bool packed = data.dtype() == u8;
  const Value numbers = packed ? numbers_of(c, data, bits) : data;
  Value zero;
  if (c.has(3)) {
    check_integers(c.in(3));
    zero = packed ? numbers_of(c, c.in(3), bits) : c.in(3);
    if (scale.shape().back().is_static()) zero = first_columns(zero, scale.shape().back().value());
  } else if (packed) {
    zero = middle(c, scale, numbers.dtype(), bits);
  }
  op::Dequantize dequantize{
      .dtype = scale.dtype(), .axis = c.integer("quantize_axis", 1), .block = block};
  c.set(c.add(op::Gather{axis}, {c.add(dequantize, {numbers, scale, zero}), c.in(1)}));
}

constexpr OpEntry entries[] = {
    {"MatMulNBits", 1, matmul_n_bits, onnx_runtime},
    {"GatherBlockQuantized", 1, gather_block_quantised, onnx_runtime},
};

}  // namespace

OpEntries block_quantised_entries() { return entries; }

}  // namespace rlx::onnx
