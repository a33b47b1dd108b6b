// The parts of predicting a kernel: by kind of kernel, and what all kinds share.
#pragma once

#include "codegen/llvm/chain_plan.hpp"
#include "cost/kernel_cost.hpp"

namespace rlx::cost {

/// Time of reading panels once, each register needed at once, beside that of the streams of nests;
/// by level.
inline constexpr std::array<double, level_count> panel_time{1, 1.15, 0.8, 1};

/// ns of one node on one register of `lanes` elements; 0 for leaves.
double node_ns(const ScalarNode& node, std::span<const ScalarNode> nodes,
               const MachineModel& model);

/// Cycles until the result of a node is there; 0 for leaves.
double latency_cycles(const ScalarNode& node, std::span<const ScalarNode> nodes,
                      const MachineModel& model);

/// Adds what loading or storing a buffer moves: `bytes` of it, as its residency says.
void add_read(KernelWork& work, const loop::Buffer& buffer, const Residency* residency,
              double bytes, const MachineModel& model);
void add_write(KernelWork& work, const loop::Buffer& buffer, const Residency* residency,
               double bytes, const MachineModel& model);

/// The same for what the kernel touches of every buffer, each place once.
void add_traffic(KernelWork& work, const loop::Kernel& kernel,
                 std::span<const Residency> residencies, const MachineModel& model);

/// Work of a nest without its traffic; `rows`: as the row epilogue of a contraction.
void add_nest(KernelWork& work, const loop::Nest& nest, std::span<const loop::Buffer> buffers,
              const MachineModel& model, bool rows);
void add_contraction(KernelWork& work, const loop::Contraction& contraction,
                     std::span<const loop::Buffer> buffers, const MachineModel& model,
                     const codegen::ChainPlan* chain = nullptr);
void add_recurrence(KernelWork& work, const loop::Recurrence& recurrence,
                    const MachineModel& model);

}  // namespace rlx::cost
