// Where lanes run in a nest, and what a work item is.
#include "codegen/llvm/nest_plan.hpp"

#include <gtest/gtest.h>

#include "codegen/host_target.hpp"

namespace rlx::codegen {
namespace {

Machine machine_with(Isa isa) { return machine_of({isa, "", ""}); }

/// Images of `size` x `size` points with so many channels side by side, less their mean by channel,
/// in place.
loop::Nest centred(std::int64_t channels, std::int64_t size) {
  const std::vector<std::int64_t> strides{1, size * channels, channels};
  loop::Nest nest;
  nest.extents = {channels, size, size};
  nest.parallel_dims = 1;
  nest.accesses = {{.buffer = 0, .offset = 0, .strides = strides}};
  nest.nodes = {{.op = ScalarOp::load, .dtype = f32, .index = 0},
                {.op = ScalarOp::reduce, .dtype = f32, .a = 0, .reduce_kind = ReduceKind::sum},
                {.op = ScalarOp::sub, .dtype = f32, .a = 0, .b = 1}};
  nest.stores = {{{.buffer = 0, .offset = 0, .strides = strides}, 2}};
  return nest;
}

std::int64_t step_of_lanes(const NestPlan& plan) {
  return plan.nest.accesses[0].strides[static_cast<std::size_t>(plan.vector_dim)];
}

TEST(NestPlan, LanesRunAlongWhatLiesSideBySideWhereNoneIsLeft) {
  for (const Isa isa : {Isa::avx2, Isa::avx512})
    for (const std::int64_t channels : {8, 16, 48, 64})
      EXPECT_EQ(step_of_lanes(plan_nest(centred(channels, 128), machine_with(isa), false)), 1)
          << channels;
}

TEST(NestPlan, WorkersThatWriteToEveryPointShareNoLines) {
  for (const Isa isa : {Isa::avx2, Isa::avx512}) {
    for (const std::int64_t channels : {8, 16, 24, 32, 48, 64, 128}) {
      const NestPlan plan = plan_nest(centred(channels, 128), machine_with(isa), false);
      const std::int64_t two_lines = 32;
      EXPECT_LE(plan.items * two_lines, std::max(channels + two_lines - 1, two_lines)) << channels;
    }
    EXPECT_GT(plan_nest(centred(128, 128), machine_with(isa), false).items, 1);
  }
}

}  // namespace
}  // namespace rlx::codegen
