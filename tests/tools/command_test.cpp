// The contract of the command line: exit codes, words, files, JSON keys. Calls the built program.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cost/calibration.hpp"
#include "tools/command.hpp"

namespace rlx {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

void expect_error(int code, const std::vector<std::string>& arguments, const std::string& words) {
  const Called called = call_rlx(arguments);
  EXPECT_EQ(called.exit_code, code) << called.err;
  EXPECT_THAT(called.err, StartsWith("rlx: "));
  EXPECT_THAT(called.err, HasSubstr(words));
  EXPECT_EQ(called.out, "");
}

class Command : public testing::Test {
 protected:
  const TestFolder folder;
  const std::string model = folder.write("neg.onnx", wire::model("Neg", {{"2", "n"}}));
};

TEST_F(Command, UsageErrorsNameWhatIsWrong) {
  expect_error(2, {}, "");
  expect_error(2, {"no-such-verb"}, "There is no verb (no-such-verb).");
  expect_error(2, {"run"}, "MODEL");
  expect_error(2, {"run", model, "--no-such-option"}, "--no-such-option");
  expect_error(2, {"run", model, "--threads", "many"}, "(many)");
  expect_error(2, {"run", model, "--threads", "0"}, "(0)");
  expect_error(2, {"run", model, "--precision", "f7"}, "(f7)");
  expect_error(2, {"run", model, "--device", "abacus"}, "abacus");
  expect_error(2, {"run", model, "--dim", "n"}, "(n)");
  expect_error(2, {"run", model, "--input", "x0"}, "(x0)");
  expect_error(2, {"inspect", model, "--stage", "xir"}, "(xir)");
  expect_error(2, {"bench", model, "--runs", "0"}, "--runs");
}

TEST_F(Command, HelpIsAResult) {
  const Called called = call_rlx({"--help"});
  EXPECT_EQ(called.exit_code, 0);
  for (const char* verb :
       {"run", "check", "bench", "inspect", "devices", "ops", "opt", "explain"}) {
    EXPECT_THAT(called.out, HasSubstr(verb));
  }
}

TEST_F(Command, BadInputNamesTheFile) {
  expect_error(3, {"run", folder.path("absent.onnx")}, "absent.onnx");
  expect_error(3, {"run", folder.write("text.onnx", "this is no model\n")}, "text.onnx");
  expect_error(3, {"run", folder.write("empty.onnx", "")}, "empty.onnx");
  expect_error(3, {"run", folder.path("")}, "");
  expect_error(3, {"run", folder.path("absent.rlx")}, "absent.rlx");
  expect_error(3, {"run", folder.write("bad.rlx", "rlx 1\ngraph {\n%0 = what()\n}")},
               "Line 3, column 6: There is no op (what). - while reading");
  expect_error(3, {"run", model, "--case", folder.path("absent")}, "absent");
  expect_error(3, {"run", model, "--input", "x0=" + folder.path("absent.npy")}, "absent.npy");
  expect_error(3, {"run", model, "--input", "x0=" + model}, "neither .npy nor .pb");
}

TEST_F(Command, UnknownInputsAndDimsAreNamedWithTheKnownOnes) {
  expect_error(3, {"run", model, "--input", "no_such=" + model},
               "no input (no_such); its inputs are x0.");
  expect_error(3, {"run", model, "--dim", "m=3"}, "no dim (m); it has n.");
  expect_error(3, {"run", model, "--dim", "x0:0=3"}, "The dim (x0:0) is 2 in the model, not (3).");
  const std::string value = folder.write("x.pb", wire::tensor({3, 1}, {1, 2, 3}));
  expect_error(3, {"run", model, "--input", "x0=" + value},
               "The value of input (x0) has the dims [3,1]; the model wants [2,n].");
}

TEST_F(Command, UnsupportedOpsAreNamed) {
  const std::string foreign = folder.write("foreign.onnx", wire::model("Blur", {{"2"}}, "acme"));
  expect_error(3, {"run", foreign}, "acme:Blur");
}

/// Names are whatever bytes a file holds; terminals and logs see text alone.
TEST_F(Command, ErrorsAreTextWhateverBytesNamesHold) {
  const std::string op =
      folder.write("op.onnx", wire::model("Bl\xc3\xa4h\xff\xc3(\x1b[1m", {{"2"}}));
  expect_error(3, {"run", op}, "Bl\xc3\xa4h\\xff\\xc3(\\x1b[1m");
  expect_error(2, {"no\x80verb"}, "There is no verb (no\\x80verb).");
  // Overlong, a surrogate, beyond the last, cut off: no byte of them is text.
  for (const std::string bytes : {"\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"}) {
    std::string shown;
    for (const unsigned char byte : bytes) shown += fmt::format("\\x{:02x}", byte);
    expect_error(2, {bytes}, "There is no verb (" + shown + ").");
  }
  expect_error(2, {"\xe2\x82\xac \xf0\x9f\x90\x81"}, "(\xe2\x82\xac \xf0\x9f\x90\x81)");
}

TEST_F(Command, WhatIsNotAvailableIsExitCodeFour) {
  expect_error(4, {"run", model, "--device", "tpu"}, "tpu");
  expect_error(3, {"run", model, "--input", "x0=" + folder.write("a.wav", "")}, "a.wav");
}

TEST_F(Command, WhatTheProcessIsGivenIsSaidToBeWrong) {
  expect_error(3, {"run", model, "--threads", "300"}, "at most (128) threads");
  setenv("RLX_ISA", "foo", 1);
  expect_error(2, {"run", model}, "RLX_ISA (foo)");
  unsetenv("RLX_ISA");
}

TEST_F(Command, ACalibrationThatIsNotUsedIsSaid) {
  setenv("RLX_CACHE_DIR", folder.path("cache").c_str(), 1);
  const Called first = call_rlx({"run", model});
  EXPECT_EQ(first.err, "");
  const std::string name = cost::calibration_file(cost::cpu_identity().value());
  const std::string file = folder.write("cache/" + name, "{");
  std::filesystem::permissions(
      file, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  const Called called = call_rlx({"run", model});
  unsetenv("RLX_CACHE_DIR");
  EXPECT_EQ(called.exit_code, 0);
  EXPECT_EQ(called.out, first.out);
  EXPECT_THAT(called.err, HasSubstr(name + ") is not used: it is no JSON"));
}

TEST_F(Command, RunTakesSound) {
  // Four stereo samples of 16 bits at 8 kHz.
  std::string wav = "RIFF" + std::string("\x34\0\0\0", 4) + "WAVEfmt " +
                    std::string("\x10\0\0\0\1\0\2\0\x40\x1f\0\0\0\x7d\0\0\4\0\x10\0", 20) + "data" +
                    std::string("\x10\0\0\0", 4);
  for (int i = 0; i < 4; ++i) wav += std::string("\0\x40\0\x20", 4);
  const std::string sound = folder.write("a.wav", wav);
  const Called stereo = call_rlx({"run", model, "--input", "x0=" + sound});
  EXPECT_EQ(stereo.exit_code, 0) << stereo.err;
  EXPECT_THAT(stereo.out, HasSubstr("[2,4]"));
  const std::string mono = folder.write("mono.onnx", wire::model("Neg", {{"1", "n"}}));
  const Called mixed = call_rlx({"run", mono, "--input", "x0=" + sound + "@16000"});
  EXPECT_EQ(mixed.exit_code, 0) << mixed.err;
  EXPECT_THAT(mixed.out, HasSubstr("[1,8]"));
  expect_error(3, {"run", mono, "--input", "x0=" + sound + "@0"}, "The sample rate (0)");
}

TEST_F(Command, RunTellsWhatItAssumed) {
  const Called called = call_rlx({"run", model});
  EXPECT_EQ(called.exit_code, 0) << called.err;
  EXPECT_EQ(called.err, "");
  EXPECT_THAT(called.out, HasSubstr("note: Dims that nothing gives are assumed: n = 1."));
  EXPECT_THAT(called.out,
              HasSubstr("note: Inputs that nothing gives are seeded normal noise: x0."));
  EXPECT_THAT(called.out, HasSubstr("device: cpu"));
  EXPECT_THAT(called.out, HasSubstr("y  f32[2,1]"));
  EXPECT_EQ(call_rlx({"run", model}).out, called.out) << "noise is seeded";
  EXPECT_THAT(call_rlx({"run", model, "--dim", "n=5"}).out, HasSubstr("y  f32[2,5]"));
  EXPECT_THAT(call_rlx({"run", model, "--dim", "x0:1=7"}).out, HasSubstr("y  f32[2,7]"));
}

TEST_F(Command, RunWritesOutputs) {
  folder.write("set/input_0.pb", wire::tensor({2, 3}, {1, 2, 3, 4, 5, 6.5}));
  const std::string out = folder.path("results/deep");
  const Called called = call_rlx({"run", model, "--case", folder.path("set"), "--out", out});
  ASSERT_EQ(called.exit_code, 0) << called.err;
  EXPECT_THAT(called.out, Not(HasSubstr("note:")));
  EXPECT_THAT(called.out, HasSubstr("min -6.5 mean -3.58333 max -1, first -1 -2 -3 -4"));
  const json list = json::parse(read_file(out + "/outputs.json"));
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0]["name"], "y");
  EXPECT_EQ(list[0]["dtype"], "f32");
  EXPECT_EQ(list[0]["shape"].dump(), "[2,3]");
  EXPECT_EQ(list[0]["file"], "output_0.npy");
  const std::string array = read_file(out + "/output_0.npy");
  ASSERT_GT(array.size(), 24u);
  float last;
  std::memcpy(&last, array.data() + array.size() - sizeof last, sizeof last);
  EXPECT_EQ(last, -6.5f);
  // What was written can be read as an input.
  const Called again = call_rlx({"run", model, "--input", "x0=" + out + "/output_0.npy", "--json"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  const json result = json::parse(again.out);
  EXPECT_EQ(result["outputs"][0]["shape"].dump(), "[2,3]");
  EXPECT_THAT(result["outputs"][0]["summary"].get<std::string>(), HasSubstr("max 6.5"));
}

class TextGraph : public Command {
 protected:
  const std::string graph = folder.write("g.rlx", R"(rlx 1
graph {
  %x = input() {name = "x", shape = [n, 2]}
  %w = param() {name = "w", dims = [2]}
  %y = mul(%x, %w)
  output "y" = %y
})");
  const std::string x = folder.write("x.pb", wire::tensor({1, 2}, {3, 5}));
};

TEST_F(TextGraph, RunsWithWeightsAsInputs) {
  const std::string w = folder.write("w.pb", wire::tensor({2}, {10, 100}));
  const Called called = call_rlx({"run", graph, "--input", "x=" + x, "--input", "w=" + w});
  ASSERT_EQ(called.exit_code, 0) << called.err;
  EXPECT_THAT(called.out, HasSubstr("y  f32[1,2]  min 30 mean 265 max 500, first 30 500"));
  EXPECT_THAT(call_rlx({"run", graph}).out,
              HasSubstr("Params that nothing gives are seeded normal noise: w."));
}

// A zip archive of one stored file, as numpy.savez writes it.
std::string archive(const std::string& name, const std::string& content) {
  const auto little = [](std::uint64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
    return text;
  };
  const std::string sizes =
      little(0, 4) + little(content.size(), 4) + little(content.size(), 4) + little(name.size(), 2);
  const std::string common = little(20, 2) + little(0, 2) + little(0, 2) + little(0, 4) + sizes;
  const std::string local = "PK\x03\x04" + common + little(0, 2) + name + content;
  const std::string entry = "PK\x01\x02" + little(20, 2) + common + little(0, 2) + little(0, 2) +
                            little(0, 2) + little(0, 2) + little(0, 4) + little(0, 4) + name;
  return local + entry + "PK\x05\x06" + little(0, 4) + little(1, 2) + little(1, 2) +
         little(entry.size(), 4) + little(local.size(), 4) + little(0, 2);
}

TEST_F(TextGraph, TakesWeightsFromTheArchiveBesideIt) {
  const std::string out = folder.path("out");
  const std::string neg = folder.write("one.onnx", wire::model("Neg", {{"2"}}));
  const std::string w = folder.write("w.pb", wire::tensor({2}, {-10, -100}));
  ASSERT_EQ(call_rlx({"run", neg, "--input", "x0=" + w, "--out", out}).exit_code, 0);
  folder.write("g.npz", archive("w.npy", read_file(out + "/output_0.npy")));
  const Called called = call_rlx({"run", graph, "--input", "x=" + x});
  ASSERT_EQ(called.exit_code, 0) << called.err;
  EXPECT_THAT(called.out, HasSubstr("first 30 500"));
  folder.write("g.npz", "no archive");
  expect_error(3, {"run", graph}, "The file is no .npz archive. - while reading");
  const std::string whole = archive("w.npy", read_file(out + "/output_0.npy"));
  folder.write("g.npz", whole.substr(whole.size() / 2));
  EXPECT_EQ(call_rlx({"run", graph}).exit_code, 3);
}

TEST_F(Command, BenchTellsItsFigures) {
  const Called called = call_rlx({"bench", model, "--runs", "7", "--json", "--threads", "1"});
  ASSERT_EQ(called.exit_code, 0) << called.err;
  const json figures = json::parse(called.out);
  for (const char* key : {"model", "device", "threads", "precision", "kernels", "load_ms",
                          "compile_ms", "first_run_ms", "min_ms", "median_ms", "p90_ms", "runs",
                          "allocations_per_run", "weights_bytes", "arena_bytes",
                          "arena_lower_bound_bytes", "peak_rss_bytes", "predicted_ms", "others"}) {
    EXPECT_TRUE(figures.contains(key)) << key;
  }
  EXPECT_EQ(figures["runs"], 7);
  EXPECT_EQ(figures["threads"], 1);
  EXPECT_EQ(figures["device"], "cpu");
  EXPECT_TRUE(figures["allocations_per_run"].is_null() || figures["allocations_per_run"] == 0);
  EXPECT_GT(figures["min_ms"], 0);
  EXPECT_GE(figures["median_ms"], figures["min_ms"]);
  EXPECT_GE(figures["p90_ms"], figures["median_ms"]);
  const Called profile = call_rlx({"bench", model, "--seconds", "0.01", "--profile"});
  EXPECT_EQ(profile.exit_code, 0) << profile.err;
  EXPECT_THAT(profile.out, HasSubstr("GFLOP/s"));
  EXPECT_THAT(profile.out, HasSubstr("us in all; at the limit"));
  const json profiled =
      json::parse(call_rlx({"bench", model, "--runs", "3", "--profile", "--json"}).out);
  ASSERT_FALSE(profiled["profile"].empty());
  for (const json& row : profiled["profile"]) {
    EXPECT_GT(row["limit_us"], 0);
    EXPECT_FALSE(row["shape"].get<std::string>().empty());
  }
}

TEST_F(Command, BenchDrawsRooflines) {
  const std::string page = folder.path("roof.html"), picture = folder.path("roof.png");
  for (const std::string& file : {page, picture}) {
    const Called called = call_rlx({"bench", model, "--runs", "3", "--roofline", file});
    ASSERT_EQ(called.exit_code, 0) << called.err;
  }
  for (const char* part : {"<!doctype html>", "<svg", "GFLOP/s (f32)", "memory ", "FLOPs for each"})
    EXPECT_THAT(read_file(page), HasSubstr(part));
  EXPECT_THAT(read_file(picture), testing::StartsWith("\x89PNG"));
  expect_error(3, {"bench", model, "--roofline", "roof.pdf"}, "roof.pdf");
  expect_error(3, {"bench", model, "--runs", "1", "--roofline", folder.path("no/such/roof.png")},
               "cannot be written");
}

TEST_F(Command, InspectShowsContentsAndStages) {
  const Called called = call_rlx({"inspect", model});
  ASSERT_EQ(called.exit_code, 0) << called.err;
  EXPECT_THAT(called.out, HasSubstr("  x0  f32[2,1]"));
  EXPECT_THAT(called.out, HasSubstr("1 neg"));
  EXPECT_THAT(called.out, HasSubstr("memory: weights"));
  const json document = json::parse(call_rlx({"inspect", model, "--json"}).out);
  EXPECT_EQ(document["ops"]["neg"], 1);
  EXPECT_THAT(call_rlx({"inspect", model, "--stage", "hir"}).out, HasSubstr("neg("));
  const Called plan = call_rlx({"inspect", model, "--stage", "lir"});
  EXPECT_NE(plan.out, "");
  EXPECT_EQ(call_rlx({"inspect", model, "--stage", "lir"}).out, plan.out);
}

TEST_F(Command, DevicesAndOpsAreListed) {
  EXPECT_THAT(call_rlx({"devices"}).out, HasSubstr("cpu    CPU"));
  EXPECT_THAT(call_rlx({"devices"}).out, HasSubstr("tpu    not available: "));
  EXPECT_EQ(json::parse(call_rlx({"devices", "--json"}).out)[0]["device"], "cpu");
  const Called ops = call_rlx({"ops"});
  EXPECT_EQ(ops.exit_code, 0);
  EXPECT_THAT(ops.out, HasSubstr("matmul"));
  EXPECT_THAT(ops.out, HasSubstr("softmax"));
  EXPECT_GT(json::parse(call_rlx({"ops", "--json"}).out).size(), 100u);
}

TEST_F(Command, OptRunsPassesOnTextGraphs) {
  const std::string graph = folder.write("g.rlx", R"(rlx 1
graph {
  %0 = input() {name = "x", shape = [2]}
  %1 = neg(%0)
  %2 = exp(%0)
  output "y" = %2
})");
  const Called called = call_rlx({"opt", graph, "--passes", "drop_dead"});
  ASSERT_EQ(called.exit_code, 0) << called.err;
  EXPECT_THAT(called.out, StartsWith("rlx 1\ngraph {\n"));
  EXPECT_THAT(called.out, Not(HasSubstr("neg")));
  EXPECT_THAT(called.out, HasSubstr("exp(%0)"));
  expect_error(2, {"opt", graph, "--passes", "drop_dead,beautify"}, "no pass (beautify)");
}

}  // namespace
}  // namespace rlx
