// The parts of predicting a kernel: by kind of kernel, and what all kinds share.
#pragma once

#include "cost/kernel_cost.hpp"

namespace rlx::cost {

/// Time of reading bytes that lie in one piece (panels) beside that of the streams of nests.
inline constexpr double sequential_share = 0.6;

/// ns of one node on one register of `lanes` elements; 0 for leaves.
double node_ns(const ScalarNode& node, std::span<const ScalarNode> nodes,
               const MachineModel& model);

/// Adds what loading or storing a buffer moves: `bytes` of it, as its residency says.
void add_read(KernelWork& work, const loop::Buffer& buffer, const Residency* residency,
              double bytes, const MachineModel& model);
void add_write(KernelWork& work, const loop::Buffer& buffer, const Residency* residency,
               double bytes, const MachineModel& model);

/// The same for every buffer of the kernel, each touched once; `points`: an upper limit of the
/// elements that accesses of the body reach in one buffer.
void add_traffic(KernelWork& work, const loop::Kernel& kernel,
                 std::span<const Residency> residencies, double points, const MachineModel& model);

/// Work of a nest without its traffic; `rows`: as the row epilogue of a contraction.
void add_nest(KernelWork& work, const loop::Nest& nest, std::span<const loop::Buffer> buffers,
              const MachineModel& model, bool rows);
void add_contraction(KernelWork& work, const loop::Contraction& contraction,
                     std::span<const loop::Buffer> buffers, const MachineModel& model,
                     bool chained = false);
void add_recurrence(KernelWork& work, const loop::Recurrence& recurrence,
                    const MachineModel& model);

}  // namespace rlx::cost
