// What a calibration holds, and the parts of making one.
#pragma once

#include "base/hash.hpp"
#include "cost/machine_model.hpp"
#include "rlx/calibration.hpp"

namespace rlx {

struct Calibration::Impl {
  std::string date;
  std::string generator;  ///< of code, with its version
  cost::MachineModel model;
  std::vector<MeasuredGemm> gemms;
  int threads = 1;
  /// What a run of a graph took in a race of devices.
  struct Race {
    std::string graph;  ///< a digest, in hexadecimal digits
    double ns = 0;
  };
  std::vector<Race> races;  ///< the latest at the end
};

namespace cost {

/// Counted up where figures change their meaning: older files are measured anew.
inline constexpr int calibration_schema = 4;

/// Who the figures are of: the processor, its caches, the instruction set, the threads.
struct DeviceIdentity {
  std::string processor;
  std::uint32_t family = 0, model = 0;
  std::string isa, features;
  int threads = 1;
  bool operator==(const DeviceIdentity&) const = default;
};
Result<DeviceIdentity> cpu_identity();
/// The name of its file in the cache folder: one for each instruction set and number of threads.
std::string calibration_file(const DeviceIdentity& identity);

/// The model that this machine's programs are predicted with: the calibration where there is one
/// that fits `target`, else the preset of the processor's family. Measures nothing.
struct HostModel {
  MachineModel model;
  /// Why a calibration that is there is not used; empty: it is, or there is none.
  std::string note;
};
HostModel model_for(const codegen::Target& target);

/// Names all figures of a model that calibrations and machines of its family differ in.
Digest digest_of(const MachineModel& model);

/// What a run of the graph with this digest took on the device in an earlier race, where the
/// calibration that serves has it.
std::optional<double> kept_race(Device device, const std::string& graph);
/// Keeps it as a part of the device's calibration, of which the oldest races give way beyond 256.
/// False: there is none, or its file cannot be written.
bool keep_race(Device device, const std::string& graph, double ns);

/// Measures the figures with generated kernels; `preset`: those that are not measured, and how long
/// an op about takes. The machine may be slower or faster than that. Errors: not_available where
/// code cannot be made.
Result<Calibration::Impl> measure_cpu(const MachineModel& preset,
                                      const CalibrationProgress& progress);

/// Figures that no machine could have, as a busy one may give them, become the preset's: a file
/// with one of them would be refused.
void replace_untrue(MachineModel& measured, const MachineModel& preset);

/// Figures of the cores themselves that lie near the preset's, at the same clock, become the
/// preset's: they belong to the family, and were fitted to whole programs together with what no
/// calibration measures (`overlap`), where kernels that repeat one op show a tenth more. Nothing
/// changes for presets that hold whatever the clock is, as theirs is not known.
void keep_fitted(MachineModel& measured, const MachineModel& preset);

}  // namespace cost
}  // namespace rlx
