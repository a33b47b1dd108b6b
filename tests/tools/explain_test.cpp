// rlx explain: the JSON contract, the text, the trace and the page.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>

#include "rlx/ops.hpp"
#include "tools/command.hpp"

namespace rlx {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class Explain : public testing::Test {
 protected:
  const TestFolder folder;
  const std::string model = folder.write("block.rlx", R"(rlx 1
graph {
  %0 = input() {name = "x", shape = [32, 64]}
  %1 = input() {name = "w", shape = [64, 64]}
  %2 = dot_general(%0, %1) {a_contract = [1], b_contract = [0]}
  %3 = relu(%2)
  %4 = add(%3, %0)
  %5 = exp(%4)
  %6 = transpose(%5) {perm = [1, 0]}
  output "y" = %4
  output "z" = %6
})");

  json explained(std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {"explain", model, "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Called called = call_rlx(arguments);
    EXPECT_EQ(called.exit_code, 0) << called.err;
    return json::parse(called.out, nullptr, false);
  }
};

TEST_F(Explain, json_has_kernels_questions_and_devices) {
  const json document = explained();
  ASSERT_TRUE(document["kernels"].is_array());
  ASSERT_FALSE(document["kernels"].empty());
  double sum = 0;
  for (const json& kernel : document["kernels"]) {
    EXPECT_GT(kernel["predicted_us"], 0);
    EXPECT_FALSE(kernel["reason"].get<std::string>().empty());
    EXPECT_FALSE(kernel.contains("measured_us"));
    sum += kernel["predicted_us"].get<double>();
  }
  EXPECT_GE(document["beside_kernels_us"].get<double>(), 0);
  EXPECT_NEAR(document["predicted_ms"].get<double>() * 1e3,
              sum + document["beside_kernels_us"].get<double>(), 1e-6 * sum);
  EXPECT_EQ(document["device"], "cpu");
  EXPECT_FALSE(document["device_reason"].get<std::string>().empty());
  ASSERT_FALSE(document["questions"].empty());
  for (const json& question : document["questions"]) {
    EXPECT_GE(question["before"]["kernel_launches"], question["after"]["kernel_launches"]);
    EXPECT_TRUE(question["fused"].is_boolean());
    EXPECT_TRUE(question["score_ns"].is_number());
  }
  ASSERT_EQ(document["devices"].size(), 7u);
  int chosen = 0;
  for (const json& device : document["devices"]) {
    chosen += device["chosen"] ? 1 : 0;
    EXPECT_FALSE(device["reason"].get<std::string>().empty()) << device;
  }
  EXPECT_EQ(chosen, 1);
}

TEST_F(Explain, every_read_of_the_arena_was_written_before) {
  const json document = explained();
  std::set<int> written;
  for (const json& kernel : document["kernels"]) {
    for (const int buffer : kernel["reads"]) {
      const bool in_arena =
          document["buffers"][static_cast<std::size_t>(buffer)]["storage"] == "arena";
      EXPECT_TRUE(!in_arena || written.contains(buffer)) << kernel;
    }
    for (const int buffer : kernel["writes"]) written.insert(buffer);
  }
}

/// Without planning's own time, and what the clock of the moment moves.
json without_clock(json document) {
  for (const char* time : {"planning_ms", "clock_ghz", "predicted_ms", "beside_kernels_us"})
    document.erase(time);
  for (json& kernel : document["kernels"]) kernel.erase("predicted_us");
  for (json& device : document["devices"]) device.erase("predicted_ms");
  return document;
}

TEST_F(Explain, the_same_model_is_explained_alike) {
  const json first = explained(), second = explained();
  EXPECT_EQ(without_clock(first), without_clock(second));
  // Times differ by what the clock did, at most.
  const double before = first["clock_ghz"], after = second["clock_ghz"];
  const double ratio = before > 0 ? before / after : 1;
  constexpr double rounding = 1e-9;
  const auto expect_alike = [&](const json& a, const json& b) {
    const double moved = b.get<double>() / a.get<double>();
    EXPECT_GE(moved, std::min(1.0, ratio) - rounding);
    EXPECT_LE(moved, std::max(1.0, ratio) + rounding);
  };
  expect_alike(first["predicted_ms"], second["predicted_ms"]);
  for (std::size_t i = 0; i < first["kernels"].size(); ++i)
    expect_alike(first["kernels"][i]["predicted_us"], second["kernels"][i]["predicted_us"]);
}

TEST_F(Explain, without_fusion_nothing_is_asked) {
  const json fused = explained();
  setenv("RLX_DISABLE_FUSION", "1", 1);
  const json apart = explained();
  unsetenv("RLX_DISABLE_FUSION");
  EXPECT_TRUE(apart["questions"].empty());
  EXPECT_GT(apart["kernels"].size(), fused["kernels"].size());
  EXPECT_GT(apart["plan_io"]["device_traffic_bytes"], fused["plan_io"]["device_traffic_bytes"]);
}

TEST_F(Explain, answers_can_be_given) {
  const json before = explained();
  const json& last = before["questions"].back();
  const std::string question = last["what"];
  ASSERT_TRUE(last["fused"]);
  const json after = explained({"--answer", question + "=no"});
  for (const json& asked : after["questions"])
    EXPECT_TRUE(asked["what"] != question || !asked["fused"]) << asked;
  EXPECT_NE(after["kernels"], before["kernels"]);
  const Called unknown = call_rlx({"explain", model, "--answer", "what=no"});
  EXPECT_EQ(unknown.exit_code, 3);
  EXPECT_THAT(unknown.err, HasSubstr("The plan asks no question (what)"));
  const Called neither = call_rlx({"explain", model, "--answer", question + "=maybe"});
  EXPECT_EQ(neither.exit_code, 2);
}

TEST_F(Explain, measured_times_stand_beside_predicted_ones) {
  const json document = explained({"--measure"});
  EXPECT_GT(document["measured_ms"], 0);
  for (const json& kernel : document["kernels"]) EXPECT_GE(kernel["measured_us"], 0);
}

TEST_F(Explain, text_names_kernels_questions_and_devices) {
  const Called called = call_rlx({"explain", model});
  ASSERT_EQ(called.exit_code, 0) << called.err;
  EXPECT_THAT(called.out, HasSubstr("block.rlx: "));
  EXPECT_THAT(called.out, HasSubstr("dot_general+relu+add"));
  EXPECT_THAT(called.out, HasSubstr("fusion questions: "));
  EXPECT_THAT(called.out, HasSubstr("before: 2 launches"));
  EXPECT_THAT(called.out, HasSubstr("device: CPU"));
  EXPECT_THAT(called.out, HasSubstr("not available: not built in"));
}

TEST_F(Explain, the_trace_is_a_list_of_events) {
  const std::string path = folder.path("trace.json");
  const json document = explained({"--trace", path, "--measure"});
  const json trace = json::parse(read_file(path), nullptr, false);
  ASSERT_TRUE(trace["traceEvents"].is_array());
  std::size_t predicted = 0, measured = 0, counters = 0;
  for (const json& event : trace["traceEvents"]) {
    predicted += event.value("cat", "") == "predicted" ? 1 : 0;
    measured += event.value("cat", "") == "measured" ? 1 : 0;
    counters += event["ph"] == "C" ? 1 : 0;
    EXPECT_GE(event.value("dur", 0.0), 0);
  }
  EXPECT_EQ(predicted, document["kernels"].size());
  EXPECT_EQ(measured, document["kernels"].size());
  EXPECT_EQ(counters, document["kernels"].size());
}

TEST_F(Explain, the_trace_shows_an_iteration_below_its_loop) {
  const auto body = std::make_shared<Graph>();
  body->input("step", DType::i64, {});
  const Value carry = body->input("carry", DType::f32, {32, 32});
  body->output("next", tanh(matmul(carry, softmax(carry, {.axis = 0}))));
  Graph graph;
  const Value start = graph.input("start", DType::f32, {32, 32});
  graph.output("y", graph.add_one(op::Scan{.body = body, .length = 6, .carries = 1}, {start}));
  const std::string looped = folder.write("looped.rlx", print(graph));
  const std::string path = folder.path("trace.json");
  const Called called = call_rlx({"explain", looped, "--json", "--trace", path});
  ASSERT_EQ(called.exit_code, 0) << called.err;
  const json trace = json::parse(read_file(path), nullptr, false)["traceEvents"];
  const auto loop = std::ranges::find_if(
      trace, [](const json& event) { return event.value("name", "") == "loop"; });
  ASSERT_NE(loop, trace.end());
  EXPECT_EQ((*loop)["args"]["iterations"], 6);
  double next = (*loop)["ts"];
  std::size_t inside = 0;
  for (const json& event : trace) {
    if (event.value("cat", "") != "iteration") continue;
    EXPECT_EQ(event["args"]["kernel"],
              fmt::format("{}.{}", (*loop)["args"]["kernel"].get<std::string>(), inside++));
    EXPECT_EQ(event["tid"], (*loop)["tid"]);
    EXPECT_DOUBLE_EQ(event["ts"].get<double>(), next);
    next += event["dur"].get<double>();
  }
  EXPECT_GE(inside, 2u);
  EXPECT_LE(next, (*loop)["ts"].get<double>() + (*loop)["dur"].get<double>());
}

TEST_F(Explain, the_page_holds_everything_itself) {
  const std::string path = folder.path("page.html");
  explained({"--html", path});
  const std::string page = read_file(path);
  EXPECT_THAT(page, HasSubstr("<!doctype html>"));
  for (const char* part : {"The plan as a graph", "The arena over time", "Where the time goes",
                           "What the planner asked", "Devices", "<svg"})
    EXPECT_THAT(page, HasSubstr(part));
  for (const char* outside : {"http:", "https:", "<script", "<link", "@import"})
    EXPECT_THAT(page, Not(HasSubstr(outside)));
}

/// A concatenation of so many inputs, whose names are longer than boxes.
std::string many_inputs(int count) {
  std::string text = "rlx 1\ngraph {\n", names;
  for (int i = 0; i < count; ++i) {
    text += fmt::format("  %{} = input() {{name = \"{}{}\", shape = [4, 8]}}\n", i,
                        "\xe3\x81\x82\xe3\x81\x84\xe3\x81\x86\xe3\x81\x88\xe3\x81\x8a"
                        "\xe3\x81\x8b\xe3\x81\x8d\xe3\x81\x8f\xe3\x81\x91\xe3\x81\x93"
                        "\xe3\x81\x95\xe3\x81\x97\xe3\x81\x99",
                        i);
    names += fmt::format("{}%{}", i == 0 ? "" : ", ", i);
  }
  return text + fmt::format("  %{} = concat({}) {{axis = 0}}\n  output \"all of it\" = %{}\n}}",
                            count, names, count);
}

TEST_F(Explain, boxes_of_the_page_stand_side_by_side) {
  const std::string file = folder.write("many.rlx", many_inputs(50)),
                    page = folder.path("page.html");
  ASSERT_EQ(call_rlx({"explain", file, "--html", page}).exit_code, 0);
  const std::string html = read_file(page);
  EXPECT_THAT(html, HasSubstr("output all of it"));
  // A replacement is made where a document is no UTF-8.
  EXPECT_NO_THROW((void)json(html).dump());
  const std::regex box(
      R"re(<rect x="(-?[\d.]+)" y="([\d.]+)" width="236" height="40"[^>]*class="box")re");
  std::vector<std::pair<double, double>> places;
  for (auto at = std::sregex_iterator(html.begin(), html.end(), box); at != std::sregex_iterator();
       ++at)
    places.emplace_back(std::stod((*at)[1]), std::stod((*at)[2]));
  ASSERT_GE(places.size(), 51u);
  for (std::size_t i = 0; i < places.size(); ++i) {
    EXPECT_GE(places[i].first, 0);
    for (std::size_t k = 0; k < i; ++k)
      EXPECT_TRUE(std::abs(places[i].first - places[k].first) >= 236 ||
                  std::abs(places[i].second - places[k].second) >= 40)
          << i << " and " << k;
  }
}

TEST_F(Explain, what_cannot_be_written_is_an_error) {
  const Called called = call_rlx({"explain", model, "--html", folder.path("absent/page.html")});
  EXPECT_EQ(called.exit_code, 3);
  EXPECT_THAT(called.err, HasSubstr("cannot be written"));
}

TEST_F(Explain, a_device_that_is_not_there_is_exit_code_four) {
  const Called called = call_rlx({"explain", model, "--device", "cuda"});
  EXPECT_EQ(called.exit_code, 4);
  EXPECT_THAT(called.err, HasSubstr("The device (cuda) is not available: not built in."));
}

}  // namespace
}  // namespace rlx
