// Relocations of AArch64 objects (ELF for the Arm 64-bit Architecture, "Static AArch64
// relocations").
#include <elf.h>

#include <cstring>

#include "codegen/relocation.hpp"

#if defined(__aarch64__)
namespace rlx::codegen {
namespace {

constexpr std::int64_t page_bytes = 4096;

std::optional<RelocationRule> rule(std::uint32_t type) {
  switch (type) {
    case R_AARCH64_NONE: return RelocationRule{};
    case R_AARCH64_ABS64: return RelocationRule{RelocationForm::absolute, 8};
    case R_AARCH64_PREL64: return RelocationRule{RelocationForm::relative, 8};
    case R_AARCH64_PREL32:
    case R_AARCH64_ADR_PREL_LO21:
    case R_AARCH64_CALL26:
    case R_AARCH64_JUMP26: return RelocationRule{RelocationForm::relative, 4};
    case R_AARCH64_ADR_PREL_PG_HI21: return RelocationRule{RelocationForm::page, 4};
    case R_AARCH64_ADD_ABS_LO12_NC:
    case R_AARCH64_LDST8_ABS_LO12_NC:
    case R_AARCH64_LDST16_ABS_LO12_NC:
    case R_AARCH64_LDST32_ABS_LO12_NC:
    case R_AARCH64_LDST64_ABS_LO12_NC:
    case R_AARCH64_LDST128_ABS_LO12_NC: return RelocationRule{RelocationForm::absolute, 4};
    case R_AARCH64_ADR_GOT_PAGE: return RelocationRule{RelocationForm::page, 4, false, true};
    case R_AARCH64_LD64_GOT_LO12_NC:
      return RelocationRule{RelocationForm::absolute, 4, false, true};
    default: return std::nullopt;
  }
}

/// Replaces `bits` bits of the instruction from bit `at` on.
void write_field(std::byte* place, std::uint64_t value, int at, int bits) {
  std::uint32_t instruction = 0;
  std::memcpy(&instruction, place, sizeof(instruction));
  const std::uint32_t mask = ((std::uint32_t{1} << bits) - 1) << at;
  instruction = (instruction & ~mask) | (static_cast<std::uint32_t>(value) << at & mask);
  std::memcpy(place, &instruction, sizeof(instruction));
}

bool fits(std::int64_t value, int bits) {
  const std::int64_t limit = std::int64_t{1} << (bits - 1);
  return value >= -limit && value < limit;
}

/// ADR and ADRP hold 21 bits in two fields.
bool write_21(std::int64_t value, std::byte* place) {
  if (!fits(value, 21)) return false;
  write_field(place, static_cast<std::uint64_t>(value), 29, 2);
  write_field(place, static_cast<std::uint64_t>(value >> 2), 5, 19);
  return true;
}

/// The low 12 bits of an address, as a multiple of 2^scale bytes.
bool write_low_12(std::int64_t value, int scale, std::byte* place) {
  const auto low = static_cast<std::uint64_t>(value) % page_bytes;
  if (low % (std::uint64_t{1} << scale) != 0) return false;
  write_field(place, low >> scale, 10, 12);
  return true;
}

bool write(std::uint32_t type, std::int64_t value, std::byte* place) {
  switch (type) {
    case R_AARCH64_ABS64:
    case R_AARCH64_PREL64: std::memcpy(place, &value, 8); return true;
    case R_AARCH64_PREL32: {
      const auto narrow = static_cast<std::int32_t>(value);
      std::memcpy(place, &narrow, 4);
      return narrow == value;
    }
    case R_AARCH64_CALL26:
    case R_AARCH64_JUMP26:
      if (value % 4 != 0 || !fits(value, 28)) return false;
      write_field(place, static_cast<std::uint64_t>(value) >> 2, 0, 26);
      return true;
    case R_AARCH64_ADR_PREL_LO21: return write_21(value, place);
    case R_AARCH64_ADR_PREL_PG_HI21:
    case R_AARCH64_ADR_GOT_PAGE: return write_21(value / page_bytes, place);
    case R_AARCH64_LDST16_ABS_LO12_NC: return write_low_12(value, 1, place);
    case R_AARCH64_LDST32_ABS_LO12_NC: return write_low_12(value, 2, place);
    case R_AARCH64_LDST64_ABS_LO12_NC:
    case R_AARCH64_LD64_GOT_LO12_NC: return write_low_12(value, 3, place);
    case R_AARCH64_LDST128_ABS_LO12_NC: return write_low_12(value, 4, place);
    default: return write_low_12(value, 0, place);
  }
}

/// ldr x16, [pc + 8]; br x16; then the address.
void write_stub(std::uint64_t target, std::byte* place) {
  const std::uint32_t jump[2] = {0x58000050u, 0xd61f0200u};
  std::memcpy(place, jump, sizeof(jump));
  std::memcpy(place + sizeof(jump), &target, sizeof(target));
}

}  // namespace

const RelocationMachine& host_relocations() {
  static constexpr RelocationMachine machine{EM_AARCH64, rule, write, 16, write_stub};
  return machine;
}

}  // namespace rlx::codegen
#endif
