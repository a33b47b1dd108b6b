// Clocks of cores: what they move, and that they are measured.
#include "cost/clock.hpp"

#include <gtest/gtest.h>

#include "cost/kernel_work.hpp"
#include "cost/measure_kernels.hpp"
#include "cost/presets.hpp"

namespace rlx::cost {
namespace {

TEST(Clock, MoveWhatCoresDoAlone) {
  const MachineModel model = model_of_rapids(true);
  ASSERT_GT(model.ghz, 0);
  const MachineModel half = at_clock(model, model.ghz / 2);
  EXPECT_DOUBLE_EQ(half.ghz, model.ghz / 2);
  const loop::Kernel series = op_kernel(ScalarOp::exp, 8, 2048);
  const double slower = predict(series, {}, half, 1).ns / predict(series, {}, model, 1).ns;
  EXPECT_NEAR(slower, 2, 0.1);
  // Memory keeps its pace.
  const loop::Kernel stream = read_kernel(1 << 14, 2048);
  const double as_slow = predict(stream, {}, half, 1).ns / predict(stream, {}, model, 1).ns;
  EXPECT_NEAR(as_slow, 1, 0.1);
  // An unknown clock moves nothing.
  EXPECT_EQ(predict(series, {}, at_clock(model, 0), 1).ns, predict(series, {}, model, 1).ns);
  const MachineModel zen = model_of_zen2();
  ASSERT_EQ(zen.ghz, 0);
  EXPECT_EQ(predict(series, {}, at_clock(zen, 1), 1).ns, predict(series, {}, zen, 1).ns);
}

TEST(Clock, OfPresetsIsThatOfTheirCycles) {
  for (const MachineModel& model : {model_of_zen3(), model_of_zen4(), model_of_narrow_zen4(),
                                    model_of_zen5(), model_of_rapids(true)}) {
    SCOPED_TRACE(model.family);
    EXPECT_NEAR(model.ghz * model.cycle, 1, 0.1);
  }
}

TEST(Clock, AreMeasuredWhereThereAreRegistersForIt) {
  const Clocks none = clocks_now(codegen::Isa::portable);
  EXPECT_EQ(none.light, 0);
  EXPECT_EQ(none.heavy, 0);
  EXPECT_EQ(clock_left(codegen::Isa::portable), 0);
  const codegen::Isa isa = codegen::host_target().value().isa;
  if (isa == codegen::Isa::avx512 || isa == codegen::Isa::avx2) {
    const Clocks clocks = clocks_now(isa);
    EXPECT_GT(clocks.light, 0);
    EXPECT_GT(clocks.heavy, 0);
    EXPECT_GT(clock_left(isa), 0);
  }
}

TEST(Clock, ProgramsThatKeepUnitsBusyHaveTheHeavyClock) {
  const Clocks clocks{.light = 3.6, .heavy = 3};
  EXPECT_EQ(clocks.of(0), 3.6);
  EXPECT_EQ(clocks.of(1), 3);
  EXPECT_GT(clocks.of(0.1), clocks.of(0.2));
  EXPECT_GT(clocks.of(0.2), 3);
  EXPECT_EQ(Clocks().of(0.5), 0);
}

}  // namespace
}  // namespace rlx::cost
