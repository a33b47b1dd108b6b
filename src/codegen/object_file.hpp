// A checked view of an ELF64 little-endian relocatable object: sections, symbols and relocations,
// never outside its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "rlx/result.hpp"

namespace rlx::codegen {

/// A section; `bytes` is empty where the section has no content in the file (zero-initialised or
/// not loaded).
struct ObjectSection {
  std::string_view name;
  std::uint32_t type = 0;
  std::uint64_t flags = 0;
  std::uint64_t size = 0;
  std::uint64_t alignment = 1;  ///< a power of two
  std::uint32_t link = 0, info = 0;
  std::span<const std::byte> bytes;
};

struct ObjectSymbol {
  std::string_view name;
  std::uint8_t type = 0, binding = 0;
  std::uint32_t section = 0;  ///< 0: undefined
  std::uint64_t value = 0;    ///< offset in the section, at most its size
};

struct ObjectRelocation {
  std::uint64_t offset = 0;  ///< in the section it changes
  std::uint32_t type = 0;
  std::uint32_t symbol = 0;  ///< valid index
  std::int64_t addend = 0;
};

/// Keeps views of the bytes it was made from.
class ObjectFile {
 public:
  /// Errors (bad_input) where the bytes are no well-formed relocatable object for `machine` (ELF's
  /// e_machine).
  static Result<ObjectFile> parse(std::span<const std::byte> bytes, std::uint16_t machine);

  const std::vector<ObjectSection>& sections() const { return sections_; }
  const std::vector<ObjectSymbol>& symbols() const { return symbols_; }

  /// The relocations of one section of type SHT_RELA.
  Result<std::vector<ObjectRelocation>> relocations(const ObjectSection& section) const;

 private:
  Status read_sections();
  Status read_symbols(std::uint32_t table_index);

  std::span<const std::byte> bytes_;
  std::vector<ObjectSection> sections_;
  std::vector<ObjectSymbol> symbols_;
  std::uint32_t symbol_table_ = 0;
};

}  // namespace rlx::codegen
