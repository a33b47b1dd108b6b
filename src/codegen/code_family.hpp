// Kernels whose code differs in numbers alone: compiled once, with symbols for the numbers, which
// are then written into a copy of the code for each kernel.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/hash.hpp"
#include "codegen/code.hpp"

namespace rlx::codegen {

/// An outline, whose structure is named by its digest.
struct OpenCode {
  explicit OpenCode(KernelOutline outline);

  Digest structure;
  std::vector<std::int64_t> numbers;
  std::int64_t work_items, scratch_bytes;
};

/// Kernels that one code serves.
struct CodeFamily {
  std::vector<std::size_t> members;
  std::vector<std::int32_t> names;  ///< by number of the outline; -1: the same in all members
  std::vector<std::vector<std::int64_t>> values;  ///< by member and name
};

/// Every kernel is in one family, alone where nothing is known of it. Families come in the order of
/// their first members.
std::vector<CodeFamily> families_of(std::span<const std::optional<OpenCode>> kernels);

/// The code of one member. Nothing where the object holds a number in a way that is not known here.
std::optional<KernelCode> with_numbers(const KernelCode& shared, const OpenCode& member,
                                       std::span<const std::int64_t> values);

}  // namespace rlx::codegen
