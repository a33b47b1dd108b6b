// Loading in three steps: lay all sections out, copy and relocate them in writable memory, then
// make it executable.
#include "codegen/object_loader.hpp"

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "codegen/object_file.hpp"
#include "codegen/relocation.hpp"

namespace rlx::codegen {
namespace {

constexpr std::uint64_t bytes_limit = std::uint64_t{256} << 20;
constexpr std::uint64_t alignment_limit = 4096;
constexpr std::uint64_t not_placed = ~std::uint64_t{0};

struct External {
  std::string_view name;
  std::uint64_t address;
};

/// What code of ours may call: LLVM makes calls of these three from loops and from its own
/// lowering.
std::uint64_t external_address(std::string_view name) {
  const std::array<External, 3> externals{{
      {"memcpy", reinterpret_cast<std::uint64_t>(
                     static_cast<void* (*)(void*, const void*, std::size_t)>(&std::memcpy))},
      {"memmove", reinterpret_cast<std::uint64_t>(
                      static_cast<void* (*)(void*, const void*, std::size_t)>(&std::memmove))},
      {"memset", reinterpret_cast<std::uint64_t>(
                     static_cast<void* (*)(void*, int, std::size_t)>(&std::memset))},
  }};
  for (const External& external : externals) {
    if (external.name == name) return external.address;
  }
  return 0;
}

/// Sections that code needs; notes and unwind tables are left out.
bool is_loaded(const ObjectSection& section) {
  return (section.flags & SHF_ALLOC) != 0 && section.size != 0 && section.type != SHT_NOTE &&
         section.name != ".eh_frame" &&
         (section.type == SHT_PROGBITS || section.type == SHT_NOBITS);
}

/// Constant after relocation, though its flags say writable.
bool is_relocated_constant(const ObjectSection& section) {
  return section.name.starts_with(".data.rel.ro");
}

std::uint64_t round_up(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

/// Of the addresses that pages of instructions count in, whatever the system's pages are.
std::uint64_t page_of(std::uint64_t address) { return address & ~std::uint64_t{4095}; }

/// Where the parts of one object go, as offsets in the mapping.
struct Placement {
  ObjectFile file;
  std::vector<std::uint64_t> sections;
  std::vector<std::uint64_t> slots;  ///< of each symbol: an 8-byte cell with its address
  std::vector<std::uint64_t> stubs;  ///< of each symbol: a jump to it
  struct Patch {
    std::uint64_t place;  ///< offset in the mapping
    ObjectRelocation relocation;
    RelocationRule rule;
  };
  std::vector<Patch> patches;
};

}  // namespace

/// Builds one image; used once.
class ObjectLoader {
 public:
  Result<ObjectImage> load(std::span<const std::span<const std::byte>> objects) {
    if (machine_.elf_machine == 0) {
      return not_available("Native code cannot be loaded on this kind of machine.");
    }
    placements_.reserve(objects.size());
    for (const auto object : objects) {
      RLX_ASSIGN(ObjectFile file, ObjectFile::parse(object, machine_.elf_machine));
      placements_.emplace_back().file = std::move(file);
      RLX_TRY(place_sections(placements_.back()));
      RLX_TRY(place_relocations(placements_.back()));
    }
    RLX_TRY(map());
    for (const Placement& placement : placements_) {
      copy_sections(placement);
      RLX_TRY(relocate(placement));
    }
    RLX_TRY(seal());
    for (std::size_t i = 0; i < placements_.size(); ++i) add_symbols(i);
    return std::move(image_);
  }

 private:
  Status reserve(std::uint64_t size, std::uint64_t alignment, std::uint64_t& offset) {
    offset = round_up(size_, alignment);
    if (size > bytes_limit || offset + size > bytes_limit) {
      return bad_input("The object code is too large ({} bytes).", size);
    }
    size_ = offset + size;
    return {};
  }

  Status place_sections(Placement& placement) {
    for (const ObjectSection& section : placement.file.sections()) {
      placement.sections.push_back(not_placed);
      if (!is_loaded(section)) continue;
      if ((section.flags & SHF_TLS) != 0 ||
          ((section.flags & SHF_WRITE) != 0 && !is_relocated_constant(section))) {
        return unsupported("The object code has writable data ({}).", section.name);
      }
      if (section.alignment > alignment_limit) {
        return bad_input("The alignment ({}) of section {} is too large.", section.alignment,
                         section.name);
      }
      RLX_TRY(reserve(section.size, section.alignment, placement.sections.back()));
    }
    placement.slots.assign(placement.file.symbols().size(), not_placed);
    placement.stubs.assign(placement.file.symbols().size(), not_placed);
    return {};
  }

  Status place_relocations(Placement& placement) {
    const auto& sections = placement.file.sections();
    for (const ObjectSection& section : sections) {
      if (section.type == SHT_REL) return unsupported("The object code has REL relocations.");
      if (section.type != SHT_RELA) continue;
      RLX_ASSIGN(const auto relocations, placement.file.relocations(section));
      if (placement.sections[section.info] == not_placed) continue;
      for (const ObjectRelocation& relocation : relocations) {
        RLX_TRY(place_relocation(placement, section.info, relocation));
      }
    }
    return {};
  }

  Status place_relocation(Placement& placement, std::uint32_t section_index,
                          const ObjectRelocation& relocation) {
    const ObjectSection& section = placement.file.sections()[section_index];
    const ObjectSymbol& symbol = placement.file.symbols()[relocation.symbol];
    const auto rule = machine_.rule(relocation.type);
    if (!rule) return unsupported("The relocation type ({}) is not supported.", relocation.type);
    if (rule->form == RelocationForm::none) return {};
    if (relocation.offset > section.size || rule->bytes > section.size - relocation.offset) {
      return bad_input("A relocation lies outside its section {} (at {}).", section.name,
                       relocation.offset);
    }
    if (symbol.section == 0) {
      if (external_address(symbol.name) == 0) {
        return bad_input("The object code calls a function that is not provided ({}).",
                         symbol.name);
      }
    } else if (placement.sections[symbol.section] == not_placed) {
      return bad_input("The object code refers to a section that is not loaded ({}).",
                       placement.file.sections()[symbol.section].name);
    }
    if (rule->slot && placement.slots[relocation.symbol] == not_placed) {
      RLX_TRY(reserve(8, 8, placement.slots[relocation.symbol]));
    }
    if (rule->form == RelocationForm::relative && !rule->slot && symbol.section == 0 &&
        placement.stubs[relocation.symbol] == not_placed) {
      RLX_TRY(reserve(machine_.stub_bytes, 16, placement.stubs[relocation.symbol]));
    }
    low_memory_ = low_memory_ || rule->low_memory;
    placement.patches.push_back(
        {placement.sections[section_index] + relocation.offset, relocation, *rule});
    return {};
  }

  Status map() {
    if (size_ == 0) return {};
    const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    const std::size_t bytes = round_up(size_, page);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
#if defined(MAP_32BIT)
    if (low_memory_) flags |= MAP_32BIT;
#endif
    void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (base == MAP_FAILED) {
      return not_available("Memory for native code ({} bytes) was refused: {}.", bytes,
                           std::strerror(errno));
    }
    image_.base_ = base;
    image_.bytes_ = bytes;
    return {};
  }

  std::byte* at(std::uint64_t offset) { return static_cast<std::byte*>(image_.base_) + offset; }

  void copy_sections(const Placement& placement) {
    for (std::size_t i = 0; i < placement.sections.size(); ++i) {
      const auto bytes = placement.file.sections()[i].bytes;
      if (placement.sections[i] == not_placed || bytes.empty()) continue;
      std::memcpy(at(placement.sections[i]), bytes.data(), bytes.size());
    }
  }

  std::uint64_t address(const Placement& placement, const ObjectSymbol& symbol) {
    if (symbol.section == 0) return external_address(symbol.name);
    return reinterpret_cast<std::uint64_t>(at(placement.sections[symbol.section])) + symbol.value;
  }

  Status relocate(const Placement& placement) {
    const auto& symbols = placement.file.symbols();
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      if (placement.slots[i] != not_placed) {
        const std::uint64_t target = address(placement, symbols[i]);
        std::memcpy(at(placement.slots[i]), &target, sizeof(target));
      }
      if (placement.stubs[i] != not_placed) {
        machine_.write_stub(address(placement, symbols[i]), at(placement.stubs[i]));
      }
    }
    for (const Placement::Patch& patch : placement.patches) {
      const std::uint32_t index = patch.relocation.symbol;
      std::byte* place = at(patch.place);
      std::uint64_t value = 0;
      if (patch.rule.slot) {
        value = reinterpret_cast<std::uint64_t>(at(placement.slots[index]));
      } else if (placement.stubs[index] != not_placed &&
                 patch.rule.form == RelocationForm::relative) {
        value = reinterpret_cast<std::uint64_t>(at(placement.stubs[index]));
      } else {
        value = address(placement, symbols[index]);
      }
      value += static_cast<std::uint64_t>(patch.relocation.addend);
      const auto from = reinterpret_cast<std::uint64_t>(place);
      if (patch.rule.form == RelocationForm::relative) value -= from;
      if (patch.rule.form == RelocationForm::page) value = page_of(value) - page_of(from);
      if (!machine_.write(patch.relocation.type, static_cast<std::int64_t>(value), place)) {
        return bad_input("A relocation (type {}) to {} does not reach its target.",
                         patch.relocation.type, symbols[index].name);
      }
    }
    return {};
  }

  Status seal() {
    if (image_.base_ == nullptr) return {};
    if (mprotect(image_.base_, image_.bytes_, PROT_READ | PROT_EXEC) != 0) {
      return not_available("Executable memory was refused: {}.", std::strerror(errno));
    }
    auto* base = static_cast<char*>(image_.base_);
    __builtin___clear_cache(base, base + image_.bytes_);
    return {};
  }

  void add_symbols(std::size_t object) {
    const Placement& placement = placements_[object];
    for (const ObjectSymbol& symbol : placement.file.symbols()) {
      if (symbol.section == 0 || symbol.binding == STB_LOCAL) continue;
      if (placement.sections[symbol.section] == not_placed) continue;
      image_.symbols_.push_back(
          {object, std::string(symbol.name), reinterpret_cast<void*>(address(placement, symbol))});
    }
  }

  const RelocationMachine& machine_ = host_relocations();
  std::vector<Placement> placements_;
  std::uint64_t size_ = 0;
  bool low_memory_ = false;
  ObjectImage image_;
};

Result<ObjectImage> ObjectImage::load(std::span<const std::byte> object) {
  return load(std::span(&object, 1));
}

Result<ObjectImage> ObjectImage::load(std::span<const std::span<const std::byte>> objects) {
  return ObjectLoader().load(objects);
}

ObjectImage::ObjectImage(ObjectImage&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      symbols_(std::move(other.symbols_)) {}

ObjectImage& ObjectImage::operator=(ObjectImage&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  std::swap(symbols_, other.symbols_);
  return *this;
}

ObjectImage::~ObjectImage() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

void* ObjectImage::symbol(std::string_view name, std::size_t object) const {
  const auto first = std::ranges::lower_bound(symbols_, object, {}, &Symbol::object);
  for (auto it = first; it != symbols_.end() && it->object == object; ++it) {
    if (it->name == name) return it->address;
  }
  return nullptr;
}

}  // namespace rlx::codegen
