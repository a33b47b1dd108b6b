// Models with nodes of ops that the user registered.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "import/model_builder.hpp"
#include "rlx/custom.hpp"
#include "rlx/rlx.hpp"

namespace rlx {
namespace {

using testing::HasSubstr;

/// y = factor x + the first of `offsets`.
CustomOps with_affine() {
  CustomOp op;
  op.name = "my.domain:Affine";
  op.infer = [](const CustomAttributes&, std::span<const Type> in) -> Result<std::vector<Type>> {
    return std::vector<Type>{in[0]};
  };
  op.eval = [](const CustomAttributes& a, std::span<const TensorView> in,
               std::span<const MutableTensorView> out) -> Status {
    const double offset = a.find("offsets") == "3,4" ? 3 : 0;
    for (std::int64_t i = 0; i < in[0].elements(); ++i) {
      out[0].as<float>()[i] = static_cast<float>(
          reinterpret_cast<const float*>(in[0].data)[i] * a.number("factor", 1) + offset);
    }
    return {};
  };
  CustomOps ops;
  EXPECT_TRUE(ops.add(std::move(op)).ok());
  return ops;
}

std::string affine_model() {
  using namespace test;
  const Message factor = Message().text(1, "factor").real(2, 2.5f).integer(20, 1),
                offsets = Message().text(1, "offsets").integer(8, 3).integer(8, 4).integer(20, 7);
  const Message graph =
      Message()
          .message(1, node("Affine", {"x"}, {"h"}, {factor, offsets}, "my.domain"))
          .message(1, node("Neg", {"h"}, {"y"}))
          .text(2, "g")
          .message(11, value_info("x", onnx_float, {{2, ""}}))
          .message(12, value_info("y", onnx_float, {{2, ""}}));
  return Message()
      .integer(1, 8)
      .message(7, graph)
      .message(8, Message().text(1, "").integer(2, 17))
      .message(8, Message().text(1, "my.domain").integer(2, 1))
      .bytes();
}

TEST(CustomNodes, RunWhereTheyAreRegistered) {
  const std::string bytes = affine_model();
  const auto model = std::as_bytes(std::span(bytes.data(), bytes.size()));
  const Graph graph = import_onnx(model, {}, with_affine()).value();
  CompiledGraph program = Session(Device::cpu).compile(graph).value();
  const Outputs outputs = program.run({{"x", {1, -2}}}).value();
  const auto y = outputs["y"].as<float>();
  EXPECT_EQ((std::vector<float>(y.begin(), y.end())), (std::vector<float>{-5.5f, 2}));
}

TEST(CustomNodes, AreMissingWhereTheyAreNot) {
  const std::string bytes = affine_model();
  const auto model = std::as_bytes(std::span(bytes.data(), bytes.size()));
  EXPECT_THAT(import_onnx(model).error().message,
              HasSubstr("The model needs what rlx does not have: op my.domain:Affine."));
}

}  // namespace
}  // namespace rlx
