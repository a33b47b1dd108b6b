// Forms of convolutions are predicted once for each different layer, side by side.
#include "runtime/form_choice.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/error.hpp"
#include "base/temporary_folder.hpp"
#include "cost/presets.hpp"
#include "rlx/ops.hpp"

namespace rlx {
namespace {

/// Predicts by the number of nodes, on two threads of its own.
class CountingBackend final : public Backend {
 public:
  Device device() const override { return Device::cpu; }
  DeviceInfo info() const override { return {}; }
  Claim claim(const Graph&, const Node&) const override { return {}; }
  Result<std::unique_ptr<Executable>> compile(const CompileRequest&) override {
    return Error{ErrorKind::not_available, "It compiles nothing."};
  }
  Result<Prospect> prospect(const Graph& graph, int threads,
                            const cost::Elsewhere&) const override {
    ++predictions;
    if (graph.nodes().size() == fails_at) return failure;
    const bool multiplies = std::ranges::any_of(
        graph.nodes(), [](const Node& node) { return node.op.is<op::DotGeneral>(); });
    const double ns = multiplies ? products_ns : 1000.0 * static_cast<double>(graph.nodes().size());
    return Prospect{threads == 2 && graph.nodes().size() >= shared_from ? ns / 2 : ns,
                    profile_graph_io(graph), graph.nodes().size() < large_below ? large_arena : 0};
  }
  std::string prospects_identity() const override { return identity; }
  const cost::MachineModel* model() const override { return machine; }
  int lanes() const override { return 2; }
  void run_lanes(int, const std::function<void(int)>& body) override {
    std::thread other([&] { body(1); });
    body(0);
    other.join();
  }

  mutable std::atomic<int> predictions = 0;
  std::string identity;  ///< empty: predictions are not kept
  const cost::MachineModel* machine = nullptr;
  double products_ns = 1e9;  ///< of graphs with matrix products
  std::size_t fails_at = 0;
  std::size_t shared_from = 1000;          ///< nodes that two threads do in half of the time
  std::size_t large_below = 0;             ///< nodes of forms whose arenas are large
  std::int64_t large_arena = 100'000'000;  ///< more than any small program may give for speed
  Error failure{ErrorKind::unsupported, "It cannot be planned."};
};

const GivenAnswers none_given;
const IoFusionGate gate = IoFusionGate::preset(Device::cpu);

/// relu^maps of x [n].
Result<Graph> maps_of(std::int64_t n, int maps) {
  Graph graph;
  Value y = graph.input("x", f32, {Dim(n)});
  for (int i = 0; i < maps; ++i) y = relu(y);
  graph.output("y", y);
  return graph;
}

/// A layer of n values; each form has so many maps. Whose graph nobody asks for is not made.
passes::FormQuestion question(std::int64_t n, const std::vector<int>& forms,
                              std::atomic<int>& made) {
  passes::FormQuestion asked{0, {}};
  for (const int maps : forms) {
    asked.forms.push_back({.what = "with " + std::to_string(maps), .graph = [n, maps, &made] {
                             ++made;
                             return maps_of(n, maps);
                           }});
  }
  return asked;
}

TEST(FormChoice, QuestionsTellBothPlansAndTheScoreIsTheGates) {
  CountingBackend backend;
  const Graph whole = maps_of(1, 1).value();
  FormChoice choice(backend, 1, gate, none_given, whole);
  std::atomic<int> made = 0;
  const std::vector<passes::FormQuestion> questions{question(8, {9, 3}, made)};
  EXPECT_EQ(choice.fastest(whole, questions), std::vector<std::size_t>{1});
  ASSERT_EQ(choice.questions.size(), 1U);
  const FusionQuestion& asked = choice.questions[0];
  EXPECT_EQ(asked.before.kernel_launches, 9);
  EXPECT_EQ(asked.after.kernel_launches, 3);
  EXPECT_EQ(asked.before_ns, 10'000);  // by nodes: x beside the maps
  EXPECT_EQ(asked.after_ns, 4'000);
  EXPECT_DOUBLE_EQ(asked.score_ns, gate.score_ns(asked.before, asked.after) - asked.work_added_ns);
  EXPECT_DOUBLE_EQ(asked.score_ns, 10'000 - 1.1 * 4'000);
}

TEST(FormChoice, PlansEachDifferentLayerOnce) {
  CountingBackend backend;
  const Graph whole = maps_of(1, 1).value();
  FormChoice choice(backend, 1, gate, none_given, whole);
  std::atomic<int> made = 0;
  std::vector<passes::FormQuestion> questions;
  for (const std::int64_t n : {8, 16, 8, 8, 16}) questions.push_back(question(n, {9, 3, 1}, made));
  questions.push_back(question(8, {2, 4}, made));
  EXPECT_EQ(choice.fastest(whole, questions), (std::vector<std::size_t>{2, 2, 2, 2, 2, 0}));
  EXPECT_EQ(backend.predictions, 2 * 3 + 2);
  EXPECT_EQ(made, 8 + 6);  // and the layer's text once for each question
  // The same layer as it is, whatever another pass calls it.
  questions = {question(8, {9, 5}, made)};
  questions[0].forms[0].what = "as it is";
  EXPECT_EQ(choice.fastest(whole, questions), (std::vector<std::size_t>{1}));
  EXPECT_EQ(backend.predictions, 8 + 1);
  EXPECT_EQ(choice.claims.size(), 7U);
}

TEST(FormChoice, TakesPredictionsOfAnEarlierCompilation) {
  const testing::TemporaryFolder folder;
  const testing::ScopedVariable cache("RLX_CACHE_DIR", folder.path().c_str());
  CountingBackend backend;
  backend.identity = "a machine";
  const Graph whole = maps_of(1, 1).value();
  std::atomic<int> made = 0;
  const auto predicted = [&](const std::vector<passes::FormQuestion>& questions, int threads,
                             const Graph& program, Precision precision = Precision::f32) {
    const int before = backend.predictions;
    FormChoice choice(backend, threads, gate, none_given, program, {.asked = precision});
    EXPECT_EQ(choice.fastest(program, questions), std::vector<std::size_t>{1});
    EXPECT_EQ(choice.questions[0].after.kernel_launches, 3);
    EXPECT_EQ(choice.questions[0].after_ns, 4'000);
    return backend.predictions - before;
  };
  const std::vector<passes::FormQuestion> questions{question(8, {9, 3}, made)};
  EXPECT_EQ(predicted(questions, 1, whole), 2);
  EXPECT_EQ(predicted(questions, 1, whole), 0);
  // Whatever else a prediction depends on is a part of its name.
  EXPECT_EQ(predicted({question(16, {9, 3}, made)}, 1, whole), 2);
  EXPECT_EQ(predicted({question(8, {8, 3}, made)}, 1, whole), 2);
  EXPECT_GT(predicted(questions, 2, whole), 0);
  EXPECT_EQ(predicted(questions, 1, whole, Precision::bf16), 2);
  const cost::MachineModel zen5 = cost::model_of_zen5();
  backend.machine = &zen5;
  EXPECT_EQ(predicted(questions, 1, maps_of(1 << 20, 1).value()), 2);  // it does more elsewhere
  backend.machine = nullptr;
  backend.identity = "another machine";
  EXPECT_EQ(predicted(questions, 1, whole), 2);
  EXPECT_EQ(predicted(questions, 1, whole), 0);
  backend.identity.clear();
  EXPECT_EQ(predicted(questions, 1, whole), 2);
  EXPECT_EQ(predicted(questions, 1, whole), 2);
}

TEST(FormChoice, KeepsNothingWhereAFormCannotBePlanned) {
  const testing::TemporaryFolder folder;
  const testing::ScopedVariable cache("RLX_CACHE_DIR", folder.path().c_str());
  CountingBackend backend;
  backend.identity = "a machine";
  backend.fails_at = 2;
  const Graph whole = maps_of(1, 1).value();
  std::atomic<int> made = 0;
  const std::vector<passes::FormQuestion> questions{question(8, {9, 1}, made)};
  for (int round = 1; round <= 2; ++round) {
    FormChoice choice(backend, 1, gate, none_given, whole);
    EXPECT_EQ(choice.fastest(whole, questions), std::vector<std::size_t>{0});
    EXPECT_EQ(backend.predictions, 2 * round);
  }
}

TEST(FormChoice, LeavesOutWhatCannotBePlanned) {
  CountingBackend backend;
  backend.fails_at = 2;  // input and one map
  const Graph whole = maps_of(1, 1).value();
  std::atomic<int> made = 0;
  const std::vector<passes::FormQuestion> questions{question(8, {9, 3, 1}, made),
                                                    question(16, {1, 3}, made)};
  FormChoice choice(backend, 1, gate, none_given, whole);
  EXPECT_EQ(choice.fastest(whole, questions), (std::vector<std::size_t>{1, 0}));
  // A lack of memory says nothing about a form.
  backend.failure = Error{ErrorKind::out_of_memory, "There is no memory."};
  FormChoice starved(backend, 1, gate, none_given, whole);
  EXPECT_THROW(starved.fastest(whole, questions), Exception);
}

TEST(FormChoice, TakesWhatOneThreadDoesSoonerThanTwo) {
  CountingBackend backend;
  backend.shared_from = 20;
  const Graph whole = maps_of(1, 1).value();
  std::atomic<int> made = 0;
  // 20 nodes take 20 us on one thread and 10 on two, which is enough less than the 12 of 12.
  const std::vector<passes::FormQuestion> questions{question(8, {19, 11}, made)};
  EXPECT_EQ(FormChoice(backend, 1, gate, none_given, whole).fastest(whole, questions),
            (std::vector<std::size_t>{1}));
  EXPECT_EQ(FormChoice(backend, 2, gate, none_given, whole).fastest(whole, questions),
            (std::vector<std::size_t>{0}));
  const std::vector<passes::FormQuestion> closer{question(8, {19, 9}, made)};  // 10 us
  EXPECT_EQ(FormChoice(backend, 2, gate, none_given, whole).fastest(whole, closer),
            (std::vector<std::size_t>{1}));
}

/// A convolution that may still be one by Winograd's points is worth what that takes.
TEST(FormChoice, ConvolutionsOfFormsTakeFormsOfTheirOwn) {
  CountingBackend backend;
  const Graph whole = maps_of(1, 1).value();
  const auto convolution = []() -> Result<Graph> {
    Graph graph;
    const Value x = graph.input("x", f32, {1, 56, 56, 64}),
                w = graph.param("w", f32, {3, 3, 64, 64});
    const op::Conv conv{.pad_low = {1, 1}, .pad_high = {1, 1}, .channels_last = true};
    Value y = graph.add_one(conv, {x, w});
    for (int i = 0; i < 6; ++i) y = relu(y);
    graph.output("y", y);
    return graph;
  };
  const auto chosen = [&](bool asks_again, bool reorders) {
    std::vector<passes::FormQuestion> questions{{0, {}}};
    questions[0].forms.push_back(
        {.what = "a convolution", .graph = convolution, .asks_again = asks_again});
    questions[0].forms.push_back({.what = "maps", .graph = [] { return maps_of(8, 4); }});
    return FormChoice(backend, 1, gate, none_given, whole, {}, reorders)
        .fastest(whole, questions)[0];
  };
  EXPECT_EQ(chosen(true, true), 1U);  // 9 us and 5, products take a second
  backend.products_ns = 3000;
  EXPECT_EQ(chosen(true, true), 0U);
  EXPECT_EQ(chosen(false, true), 1U);
  EXPECT_EQ(chosen(true, false), 1U);
}

/// Of forms that are about as fast by themselves, what the whole program says.
TEST(FormChoice, AsksTheWholeOfShortPrograms) {
  CountingBackend backend;
  const Graph whole = maps_of(1, 1).value();
  std::atomic<int> made = 0;
  using Choice = FormChoice::Choice;
  const auto chosen = [&](const std::vector<int>& forms, int threads) {
    std::vector<Choice> asked;
    const std::vector<passes::FormQuestion> questions{question(8, forms, made)};
    Choice choice = FormChoice(backend, threads, gate, none_given, whole)
                        .fastest(whole, questions, [&](const Choice& of) -> Result<double> {
                          asked.push_back(of);
                          return of[0] == 2 ? 100.0 : of[0] == 3 ? 96.0 : 200.0;
                        });
    return std::pair(choice, asked.size());
  };
  EXPECT_EQ(chosen({20, 10, 11, 11}, 2), std::pair(Choice{2}, std::size_t{3}));
  EXPECT_EQ(chosen({20, 10, 18, 11}, 2), std::pair(Choice{3}, std::size_t{2}));  // 19 us of 11
  EXPECT_EQ(chosen({20, 10, 11, 11}, 1), std::pair(Choice{1}, std::size_t{0}));
  EXPECT_EQ(chosen({400, 310, 311}, 2), std::pair(Choice{1}, std::size_t{0}));  // long
}

/// What talks more has to gain more.
TEST(FormChoice, MoreKernelsGainATenthOfTheWhole) {
  CountingBackend backend;
  const Graph whole = maps_of(1, 1).value();
  std::atomic<int> made = 0;
  using Choice = FormChoice::Choice;
  const auto chosen = [&](const std::vector<int>& forms, double first, double second) {
    const std::vector<passes::FormQuestion> questions{question(8, forms, made)};
    return FormChoice(backend, 2, gate, none_given, whole)
        .fastest(whole, questions, [&](const Choice& of) -> Result<double> {
          return of[0] == 1 ? first : of[0] == 2 ? second : 1000.0;
        })[0];
  };
  EXPECT_EQ(chosen({20, 10, 11}, 108, 100), 1U);
  EXPECT_EQ(chosen({20, 10, 11}, 112, 100), 2U);
  EXPECT_EQ(chosen({20, 11, 10}, 104, 100), 2U);
  // Nor does one with more of them stay that is by less than a tenth better.
  EXPECT_EQ(chosen({20, 11, 10}, 100, 108), 2U);
  EXPECT_EQ(chosen({20, 11, 10}, 100, 112), 1U);
}

/// Forms of several calls share what a program may give for speed: what all may here, 24 MB.
TEST(FormChoice, MemoryOfAllFormsHasALimit) {
  CountingBackend backend;
  const Graph whole = maps_of(1, 1).value();
  std::atomic<int> made = 0;
  const std::vector<passes::FormQuestion> questions{question(8, {9, 5, 3}, made)};
  const auto chosen = [&](FormChoice& choice) { return choice.fastest(whole, questions)[0]; };
  backend.large_below = 5;
  FormChoice large(backend, 1, gate, none_given, whole);
  EXPECT_EQ(chosen(large), 1U);
  EXPECT_NE(large.claims[0].reason.find("with 3 wins too little for its memory"),
            std::string::npos);
  backend.large_arena = 16'000'000;
  FormChoice twice(backend, 1, gate, none_given, whole);
  EXPECT_EQ(chosen(twice), 2U);
  EXPECT_EQ(twice.claims[0].reason.find("memory"), std::string::npos);
  EXPECT_EQ(chosen(twice), 1U);
  // What was asked for is given.
  const GivenAnswers answers{{"write conv (0) with 3", true}};
  backend.large_arena = 100'000'000;
  FormChoice asked(backend, 1, gate, answers, whole);
  EXPECT_EQ(chosen(asked), 2U);
}

/// Half of a large program is more than that.
TEST(FormChoice, LargeProgramsGiveMoreMemory) {
  CountingBackend backend;
  backend.large_below = 5;
  std::atomic<int> made = 0;
  const auto chosen = [&](const Graph& whole) {
    const std::vector<passes::FormQuestion> questions{question(8, {9, 3}, made)};
    return FormChoice(backend, 1, gate, none_given, whole).fastest(whole, questions)[0];
  };
  // Weights that are made count as they are read.
  const auto with_weights = [](std::int64_t n) {
    Graph graph;
    graph.output("y",
                 graph.input("x", f32, {Dim(n)}) + broadcast(graph.constant(f32, 0.5), {Dim(n)}));
    return graph;
  };
  EXPECT_EQ(chosen(with_weights(16'000'000)), 0U);  // 64 MB of weights, twice 64 MB of values
  EXPECT_EQ(chosen(with_weights(17'000'000)), 1U);
}

/// A form that takes long to prepare wins what gives it back, or three hundredths of the
/// convolutions.
TEST(FormChoice, WhatWinsAPartOfTheProgramIsWorthAnyStart) {
  CountingBackend backend;
  const Graph whole = maps_of(1, 1).value();
  std::atomic<int> made = 0;
  const auto chosen = [&](const std::vector<std::vector<int>>& layers) {
    std::vector<passes::FormQuestion> questions;
    for (const std::vector<int>& forms : layers) {
      questions.push_back(question(8, forms, made));
      for (std::size_t i = 1; i < forms.size(); ++i) questions.back().forms[i].worth_ns = 5000;
    }
    return FormChoice(backend, 1, gate, none_given, whole).fastest(whole, questions)[0];
  };
  EXPECT_EQ(chosen({{14, 12}}), 1U);       // 15 us, and 13 with a tenth and 0.45
  EXPECT_EQ(chosen({{29, 26}}), 0U);       // 30 us, and 27 with a tenth and 0.9
  EXPECT_EQ(chosen({{14, 9}, {99}}), 1U);  // 10 with a tenth and 3.45, of 115 us
  EXPECT_EQ(chosen({{14, 10}, {99}}), 0U);
  EXPECT_EQ(chosen({{29, 20}, {999}}), 1U);  // 21 with a tenth and 5, of a millisecond
  EXPECT_EQ(chosen({{29, 22}, {999}}), 0U);
}

}  // namespace
}  // namespace rlx
