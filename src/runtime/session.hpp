// What a Session holds, for the programs that it made.
#pragma once

#include <memory>
#include <mutex>

#include "backends/backend.hpp"
#include "rlx/cost.hpp"

namespace rlx {

struct Session::Impl {
  Device asked = Device::automatic;
  Device chosen = Device::automatic;
  SessionOptions options;
  std::mutex mutex;
  std::unique_ptr<Backend> backend;  ///< opened by the first compile

  DeviceChoice choice;  ///< of the first compile

  /// The device's backend; the first graph decides where no device was asked for. Errors:
  /// not_available with the reason.
  Result<Backend*> open(const Graph& graph);
};

}  // namespace rlx
