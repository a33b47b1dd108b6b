// Parsing of relocatable objects. Every offset, size and index of the file is checked before it is
// used.
#include "codegen/object_file.hpp"

#include <elf.h>

#include <bit>
#include <cstring>

#include "base/error.hpp"

namespace rlx::codegen {
namespace {

/// Part of `bytes`, or nothing where it does not lie inside.
bool slice(std::span<const std::byte> bytes, std::uint64_t offset, std::uint64_t size,
           std::span<const std::byte>& part) {
  if (offset > bytes.size() || size > bytes.size() - offset) return false;
  part = bytes.subspan(offset, size);
  return true;
}

template <class T>
bool read(std::span<const std::byte> bytes, std::uint64_t offset, T& value) {
  std::span<const std::byte> part;
  if (!slice(bytes, offset, sizeof(T), part)) return false;
  std::memcpy(&value, part.data(), sizeof(T));
  return true;
}

/// The zero-terminated name at `offset` of a string table.
bool read_name(std::span<const std::byte> table, std::uint64_t offset, std::string_view& name) {
  if (offset >= table.size()) return false;
  const char* start = reinterpret_cast<const char*>(table.data()) + offset;
  const void* end = std::memchr(start, 0, table.size() - offset);
  if (end == nullptr) return false;
  name = {start, static_cast<std::size_t>(static_cast<const char*>(end) - start)};
  return true;
}

}  // namespace

Result<ObjectFile> ObjectFile::parse(std::span<const std::byte> bytes, std::uint16_t machine) {
  Elf64_Ehdr header;
  if (!read(bytes, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    return bad_input("The object code has no ELF header ({} bytes).", bytes.size());
  }
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_ident[EI_VERSION] != EV_CURRENT || header.e_type != ET_REL) {
    return bad_input("The object code is no 64-bit little-endian relocatable object.");
  }
  if (header.e_machine != machine) {
    return bad_input("The object code is for another machine ({}, wanted {}).", header.e_machine,
                     machine);
  }
  ObjectFile file;
  file.bytes_ = bytes;
  RLX_TRY(file.read_sections());
  for (std::uint32_t i = 0; i < file.sections_.size(); ++i) {
    if (file.sections_[i].type != SHT_SYMTAB) continue;
    if (file.symbol_table_ != 0) return bad_input("The object code has two symbol tables.");
    RLX_TRY(file.read_symbols(i));
  }
  return file;
}

Status ObjectFile::read_sections() {
  Elf64_Ehdr header;
  std::memcpy(&header, bytes_.data(), sizeof(header));
  std::span<const std::byte> table;
  const std::uint64_t count = header.e_shnum;
  if (header.e_shentsize != sizeof(Elf64_Shdr) ||
      !slice(bytes_, header.e_shoff, count * sizeof(Elf64_Shdr), table)) {
    return bad_input("The object code's section table ({} entries) lies outside it.", count);
  }
  std::vector<Elf64_Shdr> raw(count);
  if (count != 0) std::memcpy(raw.data(), table.data(), table.size());
  std::span<const std::byte> names;
  if (header.e_shstrndx >= count || raw[header.e_shstrndx].sh_type != SHT_STRTAB ||
      !slice(bytes_, raw[header.e_shstrndx].sh_offset, raw[header.e_shstrndx].sh_size, names)) {
    return bad_input("The object code's section names ({}) are missing.", header.e_shstrndx);
  }
  // Sections do not overlap, which bounds all that is made from them by the size of the file.
  std::uint64_t bytes_of_sections = 0;
  sections_.reserve(count);
  for (const Elf64_Shdr& entry : raw) {
    ObjectSection section;
    section.type = entry.sh_type;
    section.flags = entry.sh_flags;
    section.size = entry.sh_size;
    section.alignment = entry.sh_addralign == 0 ? 1 : entry.sh_addralign;
    section.link = entry.sh_link;
    section.info = entry.sh_info;
    if (!read_name(names, entry.sh_name, section.name)) {
      return bad_input("A section of the object code has no name ({}).", entry.sh_name);
    }
    if (!std::has_single_bit(section.alignment)) {
      return bad_input("The alignment ({}) of section {} is no power of two.", section.alignment,
                       section.name);
    }
    const bool in_file = entry.sh_type != SHT_NOBITS && entry.sh_type != SHT_NULL;
    if (in_file && !slice(bytes_, entry.sh_offset, entry.sh_size, section.bytes)) {
      return bad_input("Section {} of the object code lies outside it ({} bytes).", section.name,
                       entry.sh_size);
    }
    bytes_of_sections += section.bytes.size();
    if (bytes_of_sections > bytes_.size()) {
      return bad_input("The sections of the object code overlap (at {}).", section.name);
    }
    sections_.push_back(section);
  }
  return {};
}

Status ObjectFile::read_symbols(std::uint32_t table_index) {
  const ObjectSection& table = sections_[table_index];
  symbol_table_ = table_index;
  if (table.link >= sections_.size() || sections_[table.link].type != SHT_STRTAB ||
      table.bytes.size() % sizeof(Elf64_Sym) != 0) {
    return bad_input("The object code's symbol table ({} bytes) is broken.", table.bytes.size());
  }
  const std::span<const std::byte> names = sections_[table.link].bytes;
  const std::size_t count = table.bytes.size() / sizeof(Elf64_Sym);
  symbols_.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    Elf64_Sym entry;
    std::memcpy(&entry, table.bytes.data() + i * sizeof(entry), sizeof(entry));
    ObjectSymbol symbol;
    symbol.type = ELF64_ST_TYPE(entry.st_info);
    symbol.binding = ELF64_ST_BIND(entry.st_info);
    symbol.section = entry.st_shndx;
    symbol.value = entry.st_value;
    if (!read_name(names, entry.st_name, symbol.name)) {
      return bad_input("A symbol of the object code has no name ({}).", entry.st_name);
    }
    if (symbol.type == STT_FILE) {
      symbol.section = 0;
    } else if (symbol.section >= sections_.size()) {
      return bad_input("Symbol {} lies in a section that does not exist ({}).", symbol.name,
                       symbol.section);
    } else if (symbol.section != 0 && symbol.value > sections_[symbol.section].size) {
      return bad_input("Symbol {} lies outside its section (at {}).", symbol.name, symbol.value);
    }
    symbols_.push_back(symbol);
  }
  return {};
}

Result<std::vector<ObjectRelocation>> ObjectFile::relocations(const ObjectSection& section) const {
  if (section.type != SHT_RELA || section.link != symbol_table_ || symbol_table_ == 0 ||
      section.info >= sections_.size() || section.bytes.size() % sizeof(Elf64_Rela) != 0) {
    return bad_input("The relocations {} of the object code are broken.", section.name);
  }
  std::vector<ObjectRelocation> relocations;
  const std::size_t count = section.bytes.size() / sizeof(Elf64_Rela);
  relocations.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    Elf64_Rela entry;
    std::memcpy(&entry, section.bytes.data() + i * sizeof(entry), sizeof(entry));
    if (ELF64_R_SYM(entry.r_info) >= symbols_.size()) {
      return bad_input("A relocation in {} names a symbol that does not exist ({}).", section.name,
                       ELF64_R_SYM(entry.r_info));
    }
    relocations.push_back({.offset = entry.r_offset,
                           .type = static_cast<std::uint32_t>(ELF64_R_TYPE(entry.r_info)),
                           .symbol = static_cast<std::uint32_t>(ELF64_R_SYM(entry.r_info)),
                           .addend = entry.r_addend});
  }
  return relocations;
}

}  // namespace rlx::codegen
