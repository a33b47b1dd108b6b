// The CPU backend's way in.
#pragma once

#include "backends/backend.hpp"

namespace rlx::cpu {

Result<std::unique_ptr<Backend>> open(const BackendOptions& options);
DeviceInfo info();

}  // namespace rlx::cpu
