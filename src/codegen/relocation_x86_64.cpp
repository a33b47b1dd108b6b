// Relocations of x86-64 objects (System V ABI, AMD64 supplement, table 4.9).
#include <elf.h>

#include <cstring>
#include <limits>

#include "codegen/relocation.hpp"

namespace rlx::codegen {

#if defined(__x86_64__)
namespace {

std::optional<RelocationRule> rule(std::uint32_t type) {
  switch (type) {
    case R_X86_64_NONE: return RelocationRule{};
    case R_X86_64_64: return RelocationRule{RelocationForm::absolute, 8};
    case R_X86_64_32:
    case R_X86_64_32S: return RelocationRule{RelocationForm::absolute, 4, true};
    case R_X86_64_PC32:
    case R_X86_64_PLT32: return RelocationRule{RelocationForm::relative, 4};
    case R_X86_64_PC64: return RelocationRule{RelocationForm::relative, 8};
    case R_X86_64_GOTPCREL:
    case R_X86_64_GOTPCRELX:
    case R_X86_64_REX_GOTPCRELX: return RelocationRule{RelocationForm::relative, 4, false, true};
    default: return std::nullopt;
  }
}

bool write(std::uint32_t type, std::int64_t value, std::byte* place) {
  if (type == R_X86_64_64 || type == R_X86_64_PC64) {
    std::memcpy(place, &value, 8);
    return true;
  }
  const bool fits = type == R_X86_64_32
                        ? value >= 0 && value <= std::numeric_limits<std::uint32_t>::max()
                        : value >= std::numeric_limits<std::int32_t>::min() &&
                              value <= std::numeric_limits<std::int32_t>::max();
  if (!fits) return false;
  std::memcpy(place, &value, 4);
  return true;
}

/// jmp [rip + 0], then the address.
void write_stub(std::uint64_t target, std::byte* place) {
  const unsigned char jump[8] = {0xff, 0x25, 0x02, 0x00, 0x00, 0x00, 0xcc, 0xcc};
  std::memcpy(place, jump, sizeof(jump));
  std::memcpy(place + sizeof(jump), &target, sizeof(target));
}

}  // namespace

const RelocationMachine& host_relocations() {
  static constexpr RelocationMachine machine{EM_X86_64, rule, write, 16, write_stub};
  return machine;
}
#elif !defined(__aarch64__)
const RelocationMachine& host_relocations() {
  static constexpr RelocationMachine machine{};
  return machine;
}
#endif

}  // namespace rlx::codegen
