// The support matrix that `rlx ops` shows.
#include "rlx/support.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/op_info.hpp"

namespace rlx {
namespace {

using ::testing::HasSubstr;

class Support : public testing::Test {
 protected:
  OpSupport of(std::string_view op) const {
    for (const OpSupport& entry : list_)
      if (entry.op == op) return entry;
    return {};
  }
  const std::vector<OpSupport> list_ = op_support(Device::cpu).value();
};

TEST_F(Support, has_a_line_for_every_op) {
  ASSERT_EQ(list_.size(), all_ops().size());
  for (std::size_t i = 0; i < list_.size(); ++i) {
    EXPECT_EQ(list_[i].op, all_ops()[i]->name);
    EXPECT_EQ(list_[i].reason.empty(), list_[i].route == OpRoute::kernels) << list_[i].op;
  }
}

TEST_F(Support, tells_who_runs_an_op_and_why) {
  EXPECT_EQ(of("neg").route, OpRoute::kernels);
  EXPECT_EQ(of("scan").route, OpRoute::kernels);
  EXPECT_EQ(of("lstm").route, OpRoute::kernels);
  EXPECT_EQ(of("sort").route, OpRoute::kernels);
  EXPECT_EQ(of("rfft").route, OpRoute::kernels);
  EXPECT_EQ(of("dot_general").route, OpRoute::mixed);
  EXPECT_EQ(of("dot_general").reason,
            "No kernel takes (2) of its (15) samples: evaluated are dot_general.");
  EXPECT_EQ(of("non_zero").route, OpRoute::between);
  EXPECT_EQ(of("input").route, OpRoute::none);
}

TEST(OpSupportOf, devices_that_are_not_there_say_so) {
  const auto support = op_support(Device::tpu);
  ASSERT_FALSE(support.ok());
  EXPECT_THAT(support.error().message, HasSubstr("The device (tpu) is not available"));
}

}  // namespace
}  // namespace rlx
