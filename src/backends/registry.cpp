// The backends that are built in, in order. Each defines its entry in its own folder.
#include "backends/backend.hpp"

namespace rlx {

namespace cpu {
Result<std::unique_ptr<Backend>> open(const BackendOptions& options);
DeviceInfo info();
}  // namespace cpu

namespace reference {
Result<std::unique_ptr<Backend>> open(const BackendOptions& options);
DeviceInfo info();
}  // namespace reference

namespace null {
Result<std::unique_ptr<Backend>> open(const BackendOptions& options);
DeviceInfo info();
}  // namespace null

std::span<const BackendEntry> backends() {
  static const BackendEntry entries[] = {{Device::cpu, cpu::open, cpu::info, "cpu"}};
  return entries;
}

std::span<const BackendEntry> checking_backends() {
  static const BackendEntry entries[] = {
      {Device::cpu, reference::open, reference::info, "reference"},
      {Device::cpu, null::open, null::info, "null"}};
  return entries;
}

}  // namespace rlx
