// Kernels over frames of signals whose spectra are never stored.
#pragma once

#include <memory>
#include <span>

#include "rlx/signal.hpp"
#include "signal/transform.hpp"

namespace rlx::signal {

/// The kernels of band_levels and mean_power for dense operands of those types.
std::unique_ptr<LineKernel> band_kernel(const op::BandLevels& a, std::span<const Type> inputs,
                                        codegen::Isa isa);
std::unique_ptr<LineKernel> mean_kernel(const op::MeanPower& a, const Type& signal,
                                        codegen::Isa isa);

}  // namespace rlx::signal
