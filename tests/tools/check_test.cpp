// rlx check: verdicts, tolerances, data sets, many cases; and the page of ops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tools/command.hpp"

namespace rlx {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Floats = std::vector<float>;

class Check : public testing::Test {
 protected:
  // A case of the op with one input of three floats.
  std::string add_case(const std::string& name, const std::string& op, const Floats& input,
                       const Floats& output, const std::string& domain = "") {
    folder.write(name + "/model.onnx", wire::model(op, {{"3"}}, domain));
    add_set(name, 0, input, output);
    return folder.path(name);
  }

  void add_set(const std::string& name, int number, const Floats& input, const Floats& output) {
    const std::string set = name + "/test_data_set_" + std::to_string(number);
    const auto file = [](const Floats& values) {
      return wire::tensor({static_cast<std::int64_t>(values.size())}, values);
    };
    folder.write(set + "/input_0.pb", file(input));
    folder.write(set + "/output_0.pb", file(output));
  }

  const TestFolder folder;
};

TEST_F(Check, GivesOneLineACaseAndTheSum) {
  const std::string good = add_case("good", "Neg", {1, 2, 3}, {-1, -2, -3});
  const std::string wrong = add_case("wrong", "Neg", {1, 2, 3}, {-1, -2.5, -3});
  const std::string foreign = add_case("foreign", "Blur", {1, 2, 3}, {1, 2, 3}, "acme");
  const std::string broken = folder.path("broken");
  folder.write("broken/model.onnx", "no model");
  add_set("broken", 0, {1, 2, 3}, {1, 2, 3});
  const Called called = call_rlx({"check", good, wrong, foreign, broken, "--jobs", "2"});
  EXPECT_EQ(called.exit_code, 1);
  EXPECT_THAT(called.out, StartsWith("PASS " + good + "\nFAIL " + wrong + " test_data_set_0: "));
  EXPECT_THAT(called.out,
              HasSubstr("has 1 of 3 values wrong, the first at [1]: -2 instead of -2.5"));
  EXPECT_THAT(called.out, HasSubstr("UNSUPPORTED " + foreign + " "));
  EXPECT_THAT(called.out, HasSubstr("acme:Blur"));
  EXPECT_THAT(called.out, HasSubstr("ERROR " + broken + " "));
  EXPECT_THAT(called.out, EndsWith("1 passed, 2 failed, 1 skipped\n"));
  EXPECT_EQ(call_rlx({"check", good, foreign}).exit_code, 0);
  const auto document = nlohmann::json::parse(call_rlx({"check", wrong, "--json"}).out);
  EXPECT_EQ(document["cases"][0]["verdict"], "FAIL");
}

TEST_F(Check, TolerancesAreRelativePlusAbsolute) {
  const std::string near = add_case("near", "Neg", {1000, 0, 1}, {-1000.9f, 9e-6f, -1});
  EXPECT_EQ(call_rlx({"check", near}).exit_code, 0);
  EXPECT_EQ(call_rlx({"check", near, "--rtol", "1e-4"}).exit_code, 1);
  EXPECT_EQ(call_rlx({"check", near, "--atol", "1e-6"}).exit_code, 1);
}

TEST_F(Check, ShapesNanAndInfinitiesMustAgree) {
  const auto code = [&](const Floats& input, const Floats& output) {
    return call_rlx({"check", add_case("case", "Neg", input, output)}).exit_code;
  };
  EXPECT_EQ(code({1, NAN, INFINITY}, {-1, NAN, -INFINITY}), 0);
  EXPECT_EQ(code({1, NAN, 1}, {-1, 0, -1}), 1);
  EXPECT_EQ(code({1, 0, 1}, {-1, NAN, -1}), 1);
  EXPECT_EQ(code({1, INFINITY, 1}, {-1, INFINITY, -1}), 1);
  EXPECT_EQ(code({1, 1e38f, 1}, {-1, -INFINITY, -1}), 1);
  EXPECT_EQ(code({1, 2, 3}, {-1, -2}), 1);
}

TEST_F(Check, LooksAtEveryDataSet) {
  const std::string path = add_case("sets", "Neg", {1, 2, 3}, {-1, -2, -3});
  add_set("sets", 1, {4, 5, 6}, {-4, -5, -6});
  EXPECT_EQ(call_rlx({"check", path}).exit_code, 0);
  add_set("sets", 2, {4, 5, 6}, {-4, -5, 6});
  EXPECT_THAT(call_rlx({"check", path}).out, HasSubstr("test_data_set_2: output 0 (y)"));
}

TEST_F(Check, SaysWhereThereIsNothingToCheck) {
  const Called called = call_rlx({"check", folder.path("absent")});
  EXPECT_EQ(called.exit_code, 1);
  EXPECT_THAT(called.out, StartsWith("ERROR " + folder.path("absent")));
  folder.write("bare/model.onnx", wire::model("Neg", {{"3"}}));
  EXPECT_THAT(call_rlx({"check", folder.path("bare")}).out, HasSubstr("has no test_data_set_0"));
}

TEST_F(Check, FreshProcessesTakeOverBatches) {
  const std::string good = add_case("good", "Neg", {1, 2, 3}, {-1, -2, -3});
  std::vector<std::string> arguments{"check", "--jobs", "2"};
  for (int i = 0; i < 230; ++i) arguments.push_back(good);
  EXPECT_THAT(call_rlx(arguments).out, EndsWith("230 passed, 0 failed, 0 skipped\n"));
}

TEST(OpsPage, IsFresh) {
  EXPECT_EQ(call_rlx({"ops", "--markdown"}).out, read_file(RLX_SOURCE_FOLDER "/docs/ops.md"))
      << "to make it: rlx ops --markdown > docs/ops.md";
}

}  // namespace
}  // namespace rlx
