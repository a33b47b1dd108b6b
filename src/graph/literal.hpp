// Literals of the text form: strings, numbers and tensors, written so that they read back exactly.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rlx/tensor.hpp"

namespace rlx::literal {

/// The text in double quotes; quotes, backslashes and bytes outside printable ASCII are escaped.
std::string quoted(std::string_view text);

/// Digits that read back to the same bits; "inf", "-inf", "nan".
std::string number(double value);

/// Numbers that one element is written as: two for complex dtypes.
int components(DType dtype);

/// The numbers of a tensor, or nothing where one of them would not read back to the same bytes (a
/// NaN with a payload, a bool that is neither 0 nor 1).
std::optional<std::vector<std::string>> element_texts(const Tensor& tensor);

/// Writes component `index` of a buffer of `dtype`; false where the text is no such number.
bool store_element(DType dtype, std::string_view text, std::byte* data, std::int64_t index);

std::string base64(const std::byte* data, std::size_t bytes);
/// Nothing where the text is no base64.
std::optional<std::vector<std::byte>> bytes_of_base64(std::string_view text);

}  // namespace rlx::literal
