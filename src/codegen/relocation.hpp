// What relocations of one machine mean: the only part of the object loader that knows an
// instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace rlx::codegen {

/// How a relocation's value is formed from S (the symbol's address), A (the addend), P (the address
/// of the place).
enum class RelocationForm : std::uint8_t {
  none,      ///< nothing to do
  absolute,  ///< S + A
  relative,  ///< S + A - P; a function outside the image is reached through a stub
  page,      ///< Page(S + A) - Page(P), pages of 4096 bytes
};

struct RelocationRule {
  RelocationForm form = RelocationForm::none;
  std::uint8_t bytes = 0;   ///< of the field that is written
  bool low_memory = false;  ///< the field holds absolute addresses of less than 64 bits
  bool slot = false;        ///< S is the address of an 8-byte slot that holds the symbol's
};

/// The machine this process runs on, as the loader needs to know it.
struct RelocationMachine {
  std::uint16_t elf_machine = 0;
  /// The meaning of a relocation type; nothing: not supported.
  std::optional<RelocationRule> (*rule)(std::uint32_t type) = nullptr;
  /// Writes `value` (formed as the rule says) to the place; false where it does not fit.
  bool (*write)(std::uint32_t type, std::int64_t value, std::byte* place) = nullptr;
  /// A stub that jumps to any address.
  std::size_t stub_bytes = 0;
  void (*write_stub)(std::uint64_t target, std::byte* place) = nullptr;
};

/// The rules of the host; elf_machine 0 where this build has none.
const RelocationMachine& host_relocations();

}  // namespace rlx::codegen
