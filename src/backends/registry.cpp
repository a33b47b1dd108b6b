// The backends that are built in.
#include "backends/backend.hpp"
#include "backends/cpu/backend.hpp"

namespace rlx {

std::span<const BackendEntry> backends() {
  static const BackendEntry entries[] = {{Device::cpu, cpu::open, cpu::info}};
  return entries;
}

}  // namespace rlx
