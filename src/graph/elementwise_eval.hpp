// Reference evaluation of scalar expressions and of elementwise ops, block by block.
#pragma once

#include <complex>
#include <span>

#include "graph/scalar.hpp"
#include "rlx/result.hpp"
#include "rlx/tensor.hpp"

namespace rlx {

struct OpInfo;
struct EvalArgs;

/// One value of any dtype: floats and complex numbers in `number`, integers and bool in `integer`.
struct ScalarDatum {
  std::complex<double> number = 0;
  std::int64_t integer = 0;  ///< u64 as its bits
};

/// Element `index` of an array of that dtype.
ScalarDatum load_datum(DType dtype, const std::byte* data, std::int64_t index);
/// Stores with rounding to nearest even.
void store_datum(DType dtype, std::byte* data, std::int64_t index, const ScalarDatum& datum);

/// The value of one node from its operands' values; `operand` is the dtype of operand a (of b for
/// select). f32 results are rounded to f32, and so on: each node is rounded to its dtype. Not for
/// leaves and reduce.
ScalarDatum apply_scalar(const ScalarNode& node, DType operand, const ScalarDatum& a,
                         const ScalarDatum& b, const ScalarDatum& c);

/// The value of a constant node.
ScalarDatum constant_datum(const ScalarNode& node);

/// Evaluates an elementwise op through its scalar rule, operands broadcast.
Status evaluate_elementwise(const OpInfo& info, const void* attributes, const EvalArgs& args);

}  // namespace rlx
