// Rows that lie so far apart that their lines share the sets of a core's first cache.
#pragma once

#include <cstdint>
#include <numeric>

#include "rlx/dtype.hpp"

namespace rlx::plan {

inline constexpr std::int64_t ways = 8, line_bytes = 64;  ///< of the smallest one of 32 KB

/// Do lines of so many rows throw each other out, as there are few sets between them?
constexpr bool crowd_sets(std::int64_t rows, std::int64_t bytes_between) {
  constexpr std::int64_t page = 4096;  // places so far apart share a set
  return rows > ways && bytes_between > 0 && bytes_between % line_bytes == 0 &&
         rows > ways * (page / std::gcd(bytes_between, page));
}

/// A gap between rows that puts them into other sets.
constexpr std::int64_t line_elements(DType dtype) {
  return line_bytes / static_cast<std::int64_t>(size_of(dtype));
}

}  // namespace rlx::plan
