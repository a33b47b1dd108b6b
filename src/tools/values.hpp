// Looking at values: elements as numbers, one-line summaries, and the comparison of `rlx check`.
#pragma once

#include <complex>
#include <optional>
#include <string>

#include "rlx/tensor.hpp"

namespace rlx::tools {

/// Element `index` as a number; exact for all dtypes but 64-bit integers beyond 2^53.
std::complex<double> element(const TensorView& view, std::int64_t index);

/// "f32[1,10]".
std::string type_text(const TensorView& view);

/// "min -1.2 mean 0.03 max 4.1, first 0.5 0.25 1", with the number of NaNs where there are any.
std::string summary(const TensorView& view);

/// How far values may differ: |a - b| <= atol + rtol * |b|. Floats of 16 bits or fewer: at least
/// 1e-2 for both.
struct Tolerance {
  double rtol = 1e-3;
  double atol = 1e-5;
};

/// Nothing where `got` is what was wanted, else a sentence: shapes and dtypes exact, NaN and
/// infinities in the same places, integers and bools equal.
std::optional<std::string> difference(const TensorView& got, const TensorView& wanted,
                                      Tolerance tolerance);

}  // namespace rlx::tools
