// Loops whose iterations constants count become scans; others stay as they are.
#include <fmt/format.h>

#include <functional>
#include <memory>
#include <optional>

#include "same_values.hpp"

namespace rlx {
namespace {

using Values = std::vector<Value>;
using Condition = std::function<Value(Graph&, const Values&)>;

/// A loop whose carries are a counter and x f32[3], which captures a limit: it adds 2 to the
/// counter, makes sin(x) of x, and emits x. `goes_on` sees the body's inputs (step, condition,
/// counter, x, limit) and the next counter.
struct CountedLoop {
  std::optional<std::int64_t> trips;
  std::optional<std::int64_t> limit = 7;  ///< nothing: an input
  Condition goes_on = [](Graph&, const Values& in) { return less(in[5], in[4]); };
  bool grows = false;  ///< x by an element in each iteration

  Graph graph() const {
    Graph body;
    Values in{body.input("step", i64, {}), body.input("condition", boolean, {}),
              body.input("counter", i64, {}), body.input("x", f32, {grows ? Dim("n") : Dim(3)}),
              body.input("limit", i64, {})};
    in.push_back(in[2] + body.constant(i64, 2));
    body.output("goes_on", goes_on(body, in));
    body.output("counter", in[5]);
    body.output(
        "x", grows ? concat({in[3], body.constant(Tensor::of<float>({1}, {1}))}, 0) : sin(in[3]));
    body.output("emitted", grows ? cast(in[2], f32) : in[3]);
    Graph result;
    const Value x = result.input("x", f32, {3});
    const Value limits =
        limit ? result.constant(Tensor::scalar(*limit)) : result.input("limit", i64, {});
    const op::HostLoop loop{std::make_shared<const Graph>(std::move(body)), 2};
    const ValueId none{-1, 0};
    std::vector<ValueId> operands{trips ? result.constant(Tensor::scalar(*trips)).id() : none, none,
                                  result.constant(Tensor::scalar<std::int64_t>(0)).id(), x.id(),
                                  limits.id()};
    const auto results = result.try_add(loop, operands, "", "").value();
    result.output("counter", cast(result.handle(results[0]), f32));
    result.output("x", result.handle(results[1]));
    result.output("emitted", result.handle(results[2]));
    return result;
  }
};

/// How often the loop runs, as a scan; nothing where it stays as it is.
std::optional<std::int64_t> counted(const CountedLoop& loop) {
  const Graph before = loop.graph(), made = passes::specialise(before, {}).value();
  for (const Node& node : made.nodes()) {
    const auto* scan = node.op.as<op::Scan>();
    if (!scan) continue;
    EXPECT_EQ(testing::count<op::HostLoop>(made), 0);
    EXPECT_EQ(made.type(made.outputs()[2].value).text(), fmt::format("f32[{},3]", scan->length));
    testing::expect_same_values(before, made, 0);
    return scan->length;
  }
  EXPECT_EQ(testing::count<op::HostLoop>(made), 1);
  return std::nullopt;
}

TEST(TripCount, is_that_of_a_counter) {
  EXPECT_EQ(counted({}), 4);  // 2, 4, 6, 8
  EXPECT_EQ(counted({.limit = 8}), 4);
  EXPECT_EQ(counted({.limit = -1}), 1);  // the condition of the body comes after it
  EXPECT_EQ(counted({.trips = 3}), 3);
  EXPECT_EQ(counted({.trips = 0}), 0);
  EXPECT_EQ(counted({.trips = 9}), 4);
}

TEST(TripCount, is_that_of_steps_and_of_conditions_that_stay) {
  const Condition steps = [](Graph& g, const Values& in) {
    return logical_and(less(in[0], g.constant(i64, 5)), in[1]);
  };
  EXPECT_EQ(counted({.goes_on = steps}), 6);  // of steps 0 to 5
  const Condition kept = [](Graph&, const Values& in) { return in[1]; };
  EXPECT_EQ(counted({.trips = 20'000, .goes_on = kept}), 20'000);
  EXPECT_EQ(counted({.goes_on = kept}), std::nullopt);
  const Condition ends = [](Graph& g, const Values&) { return g.constant(Tensor::scalar(false)); };
  EXPECT_EQ(counted({.trips = 5, .goes_on = ends}), 1);
}

TEST(TripCount, is_not_known_where_data_tell) {
  EXPECT_EQ(counted({.limit = std::nullopt}), std::nullopt);
  const Condition data = [](Graph& g, const Values& in) {
    return less(reduce(in[3], Reduction::sum, {0}), g.constant(f32, 1));
  };
  EXPECT_EQ(counted({.trips = 3, .goes_on = data}), std::nullopt);
}

TEST(TripCount, waits_for_no_long_count_and_for_no_dims_that_change) {
  EXPECT_EQ(counted({.limit = 40'000}), std::nullopt);
  EXPECT_EQ(counted({.limit = 30'000}), 15'000);
  EXPECT_EQ(counted({.grows = true}), std::nullopt);
}

}  // namespace
}  // namespace rlx
