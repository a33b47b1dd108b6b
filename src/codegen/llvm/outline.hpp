// What modules that differ in numbers alone have in common, so that one of them is compiled for
// all.
#pragma once

#include <llvm/IR/Module.h>

#include <optional>
#include <span>

#include "codegen/code.hpp"

namespace rlx::codegen {

/// The module's structure, and the numbers in it that can become symbols: operands of additions,
/// products, comparisons and addresses (these in bytes). Nothing where the module has what the
/// outline does not tell.
std::optional<KernelOutline> outline_of(const llvm::Module& module);

/// Makes number i of the outline the absolute symbol `names[i]`; -1 leaves it as it is.
void name_numbers(llvm::Module& module, std::span<const std::int32_t> names);

}  // namespace rlx::codegen
