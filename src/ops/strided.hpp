// Moving elements between strided layouts: what the evaluations of shape ops are made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "rlx/tensor.hpp"

namespace rlx {

/// The strides of a dense row-major tensor, in elements.
Dims row_major_strides(std::span<const std::int64_t> dims);

/// Copies an element for every point of `dims`, each side at its pointer plus point * strides (in
/// elements). The destinations must be distinct; a source stride may be 0 or negative.
void copy_strided(std::size_t element_size, std::span<const std::int64_t> dims,
                  const std::byte* source, std::span<const std::int64_t> source_strides,
                  std::byte* destination, std::span<const std::int64_t> destination_strides);

/// The product of the dims before / from `axis` on.
std::int64_t count_before(std::span<const std::int64_t> dims, std::int64_t axis);
std::int64_t count_from(std::span<const std::int64_t> dims, std::int64_t axis);

/// Fills `count` elements with the one at `value`.
void fill_elements(std::size_t element_size, std::byte* data, std::int64_t count,
                   const std::byte* value);

}  // namespace rlx
