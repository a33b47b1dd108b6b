// What a Session holds, for the programs that it made.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "backends/backend.hpp"
#include "rlx/cost.hpp"

namespace rlx {

struct Session::Impl {
  Device asked = Device::automatic;
  Device chosen = Device::automatic;
  SessionOptions options;
  std::mutex mutex;
  std::unique_ptr<Backend> backend;  ///< opened by the first compile

  std::optional<DeviceChoice> choice;  ///< of the first compile, where there was one to make

  /// The device's backend; the first graph decides where no device was asked for. Errors:
  /// not_available with the reason.
  Result<Backend*> open(const Graph& graph);
};

/// The one device that is built in, where neither the policy nor the environment nor the graph has
/// a say against it: what the others would take is then asked by `explain` alone.
std::optional<Device> only_device_for(const Graph& graph, const DevicePolicy& policy);

}  // namespace rlx
