// The header of NumPy's .npy files.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "rlx/tensor.hpp"

namespace rlx::importing {

struct NpyHeader {
  DType dtype = DType::f32;
  Dims dims;
  bool column_major = false;
  std::size_t data_offset = 0;  ///< where the numbers begin
};

/// Reads magic, version and the dictionary; throws where they are broken or the type has no dtype.
NpyHeader read_npy_header(std::span<const std::byte> file);

/// The header of a row-major file, padded so that the numbers begin at a multiple of 64.
std::string npy_header(DType dtype, const Dims& dims);

}  // namespace rlx::importing
