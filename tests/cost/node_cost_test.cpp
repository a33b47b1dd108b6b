// What single operations take in the expressions that they stand in.
#include <gtest/gtest.h>

#include <vector>

#include "cost/kernel_work.hpp"
#include "cost/presets.hpp"
#include "cost/row_maps.hpp"

namespace rlx::cost {
namespace {

TEST(NodeCost, SigmoidsDivideOnlyWhereThereAreNoMasks) {
  const std::vector<ScalarNode> nodes{{.op = ScalarOp::load, .dtype = f32, .index = 0},
                                      {.op = ScalarOp::exp, .dtype = f32, .a = 0},
                                      {.op = ScalarOp::constant, .dtype = f32, .value = 1},
                                      {.op = ScalarOp::add, .dtype = f32, .a = 2, .b = 1},
                                      {.op = ScalarOp::div, .dtype = f32, .a = 2, .b = 3},
                                      {.op = ScalarOp::div, .dtype = f32, .a = 2, .b = 0}};
  const MachineModel rapids = model_of_rapids(true), zen2 = model_of_zen2();
  EXPECT_LT(node_ns(nodes[4], nodes, rapids), 0.6 * node_ns(nodes[5], nodes, rapids));
  EXPECT_EQ(node_ns(nodes[4], nodes, zen2), node_ns(nodes[5], nodes, zen2));
  const MachineModel zen4 = model_of_zen4();
  EXPECT_EQ(node_ns(nodes[4], nodes, zen4), zen4.overlap.logistic * zen4.op(ScalarOp::add));
}

// Their figures are what a vector of a map takes, its waits for the one before it included.
TEST(NodeCost, LongSeriesTakeWhatTheyWereMeasuredToTake) {
  for (const MachineModel& model : {model_of_zen3(), model_of_zen4(), model_of_zen5()}) {
    for (const ScalarOp op : {ScalarOp::log1p, ScalarOp::tan, ScalarOp::asin, ScalarOp::asinh}) {
      const loop::Kernel kernel = curve_kernel(op, 512);
      const double vectors = 64.0 * 512 / model.machine.lanes(4);
      const double vector_ns = work_of(kernel, {}, model).compute / vectors;
      EXPECT_GE(vector_ns, model.op(op)) << model.family << name_of(op);
      EXPECT_LT(vector_ns, 1.2 * model.op(op)) << model.family << name_of(op);
    }
  }
}

TEST(NodeCost, ExtremesBesideANumberAreOneInstruction) {
  const std::vector<ScalarNode> nodes{{.op = ScalarOp::load, .dtype = f32, .index = 0},
                                      {.op = ScalarOp::load, .dtype = f32, .index = 1},
                                      {.op = ScalarOp::constant, .dtype = f32, .value = 0},
                                      {.op = ScalarOp::max, .dtype = f32, .a = 0, .b = 2},
                                      {.op = ScalarOp::min, .dtype = f32, .a = 2, .b = 0},
                                      {.op = ScalarOp::max, .dtype = f32, .a = 0, .b = 1}};
  const MachineModel model = model_of_rapids(false);
  EXPECT_EQ(node_ns(nodes[3], nodes, model), model.op(ScalarOp::add));
  EXPECT_EQ(node_ns(nodes[4], nodes, model), model.op(ScalarOp::add));
  EXPECT_GT(node_ns(nodes[5], nodes, model), 2 * model.op(ScalarOp::add));
}

TEST(NodeCost, KnownPowersOfQuartersAreRootsAndProducts) {
  for (const MachineModel& model : {model_of_zen5(), model_of_zen3(), model_of_rapids(true)}) {
    const auto ns_of = [&](double exponent) {
      const std::vector<ScalarNode> nodes{
          {.op = ScalarOp::load, .dtype = f32, .index = 0},
          {.op = ScalarOp::constant, .dtype = f32, .value = exponent},
          {.op = ScalarOp::pow, .dtype = f32, .a = 0, .b = 1}};
      return node_ns(nodes[2], nodes, model);
    };
    const double root = model.op(ScalarOp::sqrt), product = model.op(ScalarOp::mul);
    EXPECT_GE(ns_of(0.5), root);
    EXPECT_LT(ns_of(0.5), root + 4 * product);
    EXPECT_GE(ns_of(0.75), 2 * root);
    EXPECT_LT(ns_of(0.75), 2 * root + 6 * product) << model.family;
    EXPECT_EQ(ns_of(-0.75), ns_of(0.75) + model.op(ScalarOp::reciprocal));
    EXPECT_LT(ns_of(3), 4 * product) << "no root";
    EXPECT_NEAR(ns_of(0.7) / model.op(ScalarOp::pow), model.machine.masks ? 0.72 : 0.95, 1e-9)
        << "no product of roots";
    EXPECT_EQ(ns_of(4.25), ns_of(0.7)) << "too many products";
  }
}

TEST(NodeCost, CurvesBesideOneTakeLessThanAlone) {
  for (const MachineModel& model : {model_of_zen2(), model_of_zen4(), model_of_zen5()}) {
    for (const ScalarOp op : {ScalarOp::erf, ScalarOp::tanh}) {
      const double alone = work_of(curve_kernel(op, 512), {}, model).compute;
      const double beside = work_of(curve_kernel(op, 512, true), {}, model).compute;
      // tanh alone takes one formula as well, and little more.
      const auto [least, most] = op == ScalarOp::erf ? std::pair{0.2, 0.8} : std::pair{0.8, 1.1};
      EXPECT_LT(beside, most * alone) << model.family << name_of(op);
      EXPECT_GT(beside, least * alone) << model.family << name_of(op);
    }
  }
  // AVX-512 has an instruction that scales: there is less to leave out.
  const auto of_exp = [](const MachineModel& model) {
    return work_of(curve_kernel(ScalarOp::exp, 512, true), {}, model).compute /
           work_of(curve_kernel(ScalarOp::exp, 512), {}, model).compute;
  };
  EXPECT_LT(of_exp(model_of_narrow_zen4()), 0.8);
  EXPECT_GT(of_exp(model_of_zen4()), 0.9);
}

TEST(NodeCost, SeriesThatHaveNoOtherBesideThemTakeLonger) {
  const auto series = [](std::int64_t columns, const MachineModel& model) {
    const auto compute = [&](ScalarOp op) {
      return work_of(curve_kernel(op, columns), {}, model).compute;
    };
    return (compute(ScalarOp::tanh) - compute(ScalarOp::abs)) / static_cast<double>(columns);
  };
  // Rows of one register, and of two.
  EXPECT_NEAR(series(8, model_of_zen3()) / series(16, model_of_zen3()), 1.25, 0.05);
  EXPECT_NEAR(series(16, model_of_zen4()) / series(32, model_of_zen4()), 1, 0.05);
}

}  // namespace
}  // namespace rlx::cost
