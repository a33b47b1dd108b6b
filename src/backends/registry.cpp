// The backends that are built in, in order. Each defines its entry in its own folder.
#include "backends/backend.hpp"

namespace rlx {

namespace cpu {
Result<std::unique_ptr<Backend>> open(const BackendOptions& options);
DeviceInfo info();
}  // namespace cpu

std::span<const BackendEntry> backends() {
  static const BackendEntry entries[] = {{Device::cpu, cpu::open, cpu::info}};
  return entries;
}

}  // namespace rlx
