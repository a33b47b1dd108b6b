// What a Session holds, for the programs that it made.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "backends/backend.hpp"
#include "rlx/cost.hpp"

namespace rlx {

struct Session::Impl {
  Device asked = Device::automatic;
  Device last = Device::automatic;  ///< of the program made last
  SessionOptions options;
  std::mutex mutex;
  std::vector<std::unique_ptr<Backend>> opened;  ///< by the programs made so far

  /// What a program runs on, and how that came to be chosen: nothing where there was no choice.
  struct Place {
    Backend* backend = nullptr;
    std::optional<DeviceChoice> choice;
  };
  /// A device for this program; opens it where no program was made for it before. Errors:
  /// not_available with the reason; what the options say of dims and does not fit.
  Result<Place> place_for(const Graph& graph, const CompileOptions& compile);
  /// The policy of a call.
  DevicePolicy policy(std::optional<DevicePolicy::Missing> missing = std::nullopt) const;

 private:
  Result<Backend*> open(const BackendEntry& entry);
};

/// The one device that is built in, where neither the policy nor the environment nor the graph has
/// a say against it: what the others would take is then asked by `explain` alone.
std::optional<Device> only_device_for(const Graph& graph, const DevicePolicy& policy);

}  // namespace rlx
