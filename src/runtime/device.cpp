// Devices by name, and which of them are there.
#include <array>

#include "backends/backend.hpp"
#include "rlx/runtime.hpp"

namespace rlx {
namespace {

constexpr std::array<std::string_view, 8> device_names = {"auto",  "cpu", "cuda", "rocm",
                                                          "metal", "mlx", "gpu",  "tpu"};
constexpr std::array<std::string_view, 8> display_names = {"Automatic", "CPU", "CUDA", "ROCm",
                                                           "Metal",     "MLX", "GPU",  "TPU"};
constexpr std::array<std::string_view, 4> precision_names = {"f32", "bf16", "f16", "int8"};

}  // namespace

std::string_view name_of(Device device) { return device_names[static_cast<std::size_t>(device)]; }

std::optional<Device> device_named(std::string_view name) {
  for (std::size_t i = 0; i < device_names.size(); ++i) {
    if (device_names[i] == name) return static_cast<Device>(i);
  }
  return std::nullopt;
}

std::string_view name_of(Precision precision) {
  return precision_names[static_cast<std::size_t>(precision)];
}

std::optional<Precision> precision_named(std::string_view name) {
  for (std::size_t i = 0; i < precision_names.size(); ++i) {
    if (precision_names[i] == name) return static_cast<Precision>(i);
  }
  return std::nullopt;
}

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> list;
  for (std::size_t i = 1; i < device_names.size(); ++i) {
    const auto device = static_cast<Device>(i);
    DeviceInfo info{
        .device = device, .display_name = std::string(display_names[i]), .reason = "not built in"};
    for (const BackendEntry& entry : backends()) {
      if (entry.device == device) info = entry.info();
    }
    list.push_back(std::move(info));
  }
  return list;
}

bool is_available(Device device) {
  for (const DeviceInfo& info : devices()) {
    if (info.device == device) return info.available;
  }
  return device == Device::automatic;
}

}  // namespace rlx
