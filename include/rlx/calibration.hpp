// Calibration: what this machine's devices do, measured once and kept in the user's cache folder.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rlx/cost.hpp"

namespace rlx {

/// One measured matmul. Square where not said otherwise.
struct MeasuredGemm {
  DType dtype = DType::f32;
  std::int64_t m = 0, n = 0, k = 0;
  int threads = 1;
  double gflops = 0;
};

/// Told while measuring: what is measured now, and the share of the work that is done, in [0, 1].
using CalibrationProgress = std::function<void(std::string_view what, double done)>;

/// The figures of one device. Compiling uses a calibration that lies in the cache folder and never
/// measures by itself; without one the preset of the device's family serves.
class Calibration {
 public:
  /// Takes the file of this machine, or measures and keeps the result. A file that is missing,
  /// damaged, of another machine or of another version is never used: `note` hears why it is
  /// measured anew. Where the cache folder cannot be written the result is not kept, and `note`
  /// hears that too. Errors: not_available where the device is not there.
  static Result<Calibration> load_or_measure(
      Device device = Device::cpu, const CalibrationProgress& progress = {},
      const std::function<void(std::string_view)>& note = {});

  /// Only the file. Errors: not_available where there is none; bad_input with the reason that the
  /// one that is there is not used.
  static Result<Calibration> load(Device device = Device::cpu);

  /// Only measures: at most 10 s on a CPU. Nothing is kept.
  static Result<Calibration> measure(Device device = Device::cpu,
                                     const CalibrationProgress& progress = {});

  /// The calibration that a file's text holds. Errors: bad_input with the reason it is not usable
  /// here.
  static Result<Calibration> parse(std::string_view text);

  /// Replaces the file in the user's cache folder in one step; gives its path. Errors:
  /// not_available where the folder cannot be trusted or written.
  Result<std::string> save() const;

  /// What is kept: JSON.
  std::string text() const;

  Device device() const;
  const std::string& date() const;  ///< "2026-11-21T14:00:00Z"
  const std::vector<MeasuredGemm>& gemms() const;
  /// The gate and the device model of SPEC sections 6 and 7 with these figures.
  IoFusionGate gate() const;
  BackendCostModel cost_model() const;

  struct Impl;
  /// For the library itself.
  const Impl& impl() const { return *impl_; }
  explicit Calibration(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<const Impl> impl_;
};

}  // namespace rlx
