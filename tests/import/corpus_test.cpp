// The importer against the corpus: every case passes or says what it lacks; none gives a wrong
// result.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "corpus.hpp"

namespace rlx::test {
namespace {

struct Count {
  int passed = 0, wrong = 0, unsupported = 0, errors = 0;
  int total() const { return passed + wrong + unsupported + errors; }
};

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass: return "PASS";
    case Verdict::wrong: return "FAIL";
    case Verdict::unsupported: return "UNSUPPORTED";
    default: return "ERROR";
  }
}

Count run_suite(const std::string& suite, const std::vector<std::string>& left_out = {}) {
  Count count;
  for (const auto& folder : cases_of(corpus() / suite)) {
    const std::string path = folder.string();
    const bool skipped = std::any_of(left_out.begin(), left_out.end(), [&](const auto& name) {
      return path.find(name) != std::string::npos;
    });
    if (skipped) continue;
    const CaseResult result = run_case(folder);
    switch (result.verdict) {
      case Verdict::pass: ++count.passed; break;
      case Verdict::wrong: ++count.wrong; break;
      case Verdict::unsupported: ++count.unsupported; break;
      default: ++count.errors; break;
    }
    if (result.verdict != Verdict::pass) {
      fmt::print("{} {} {}\n", name_of(result.verdict), folder.filename().string(), result.reason);
    }
    EXPECT_NE(result.verdict, Verdict::wrong) << folder;
  }
  fmt::print("{}: {} passed, {} failed, {} skipped, {} errors\n", suite, count.passed, count.wrong,
             count.unsupported, count.errors);
  return count;
}

class Corpus : public testing::Test {
 protected:
  void SetUp() override {
    if (corpus().empty()) GTEST_SKIP() << "RLX_CORPUS names no folder: the corpus is not there.";
  }
};

TEST_F(Corpus, NodeTests) {
  // The draws of these are another library's.
  const Count count = run_suite("onnx/node", {"test_bernoulli"});
  EXPECT_GE(count.passed, count.total() * 85 / 100);
}

TEST_F(Corpus, SimpleModels) { run_suite("onnx/simple"); }

TEST_F(Corpus, OperatorsOfPyTorch) {
  const Count count = run_suite("onnx/pytorch-operator");
  EXPECT_EQ(count.passed, count.total());
}

TEST_F(Corpus, ModelsOfPyTorch) {
  const Count count = run_suite("onnx/pytorch-converted");
  EXPECT_EQ(count.passed, count.total());
}

// Without dims the models keep their symbols, or say that an open dim stands in the way.
TEST_F(Corpus, RealModelsWithSymbols) {
  for (const auto& folder : cases_of(corpus() / "models")) {
    const auto graph = import_onnx(folder / "model.onnx");
    if (graph.ok()) {
      EXPECT_TRUE(verify(*graph).ok()) << folder;
    } else {
      EXPECT_NE(graph.error().message.find("Dims of its inputs are not bound"), std::string::npos)
          << folder << ": " << graph.error().message;
    }
  }
}

TEST_F(Corpus, RealModels) {
  const Count count = run_suite("models");
  EXPECT_EQ(count.passed, count.total());
}

}  // namespace
}  // namespace rlx::test
