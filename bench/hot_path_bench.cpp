// What a call costs beside its kernels: a tiny graph (add and GELU on f32[8]) through every way to
// run, with one and with two threads configured, a program with fewer live rows beside those
// compiled for them, and the step of a model whose state is fed inside; medians of many short
// rounds.
//
// usage: hot_path_bench [--serve] [MODEL.onnx [OUTPUT=INPUT ...]]
//        hot_path_bench --count [--profiled]
// --count: 100,000 calls of run_slots on one thread and nothing else, to count their instructions;
// --profiled: the program has been profiled before. Named inputs f32[1,576], a scalar sr and state
// f32[2,1,128] are silero-vad's; OUTPUT=INPUT feeds it back. --serve: one round for each line that
// comes in, told as a line of JSON (bench/ hot_path.py measures ONNX Runtime between the rounds).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rlx/rlx.hpp"

namespace {

using Clock = std::chrono::steady_clock;

/// Something to call, and what its rounds took.
struct Measured {
  std::string name;
  int calls = 0;  ///< of a round
  std::function<void()> call;
  std::vector<double> us;

  double round() {
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count() / calls);
    return us.back();
  }
  double median() {
    std::ranges::nth_element(us, us.begin() + static_cast<std::ptrdiff_t>(us.size() / 2));
    return us[us.size() / 2];
  }
};

/// The tiny graph with so many threads configured, and its operands.
struct Tiny {
  rlx::Session session;
  rlx::CompiledGraph program;
  std::vector<float> a = std::vector<float>(8, 0.5f), b = std::vector<float>(8, 0.25f);
  std::vector<float> z = std::vector<float>(8);
  const void* slots[2] = {a.data(), b.data()};
  void* results[1] = {z.data()};
  std::vector<rlx::NamedInput> named{{"x", a}, {"y", b}};

  static rlx::Graph graph() {
    rlx::Graph graph;
    const rlx::Value x = graph.input("x", rlx::f32, {8}), y = graph.input("y", rlx::f32, {8});
    graph.output("z", rlx::gelu(x + y));
    return graph;
  }
  static rlx::SessionOptions options(int threads) {
    rlx::SessionOptions options;
    options.threads = threads;
    return options;
  }
  explicit Tiny(int threads)
      : session(rlx::Device::cpu, options(threads)), program(session.compile(graph()).value()) {}
};

/// Two products and a softmax of each row, all rows live or the first ones alone.
struct Rows {
  rlx::Session session{rlx::Device::cpu, Tiny::options(1)};
  rlx::CompiledGraph program;
  rlx::Tensor x{rlx::f32, {256, 256}};
  const void* slots[1] = {x.data()};

  static rlx::Graph graph() {
    rlx::Graph graph;
    const rlx::Value x = graph.input("x", rlx::f32, {"rows", 256});
    const rlx::Value w = graph.constant(rlx::Tensor(rlx::f32, {256, 512}));
    const rlx::Value v = graph.constant(rlx::Tensor(rlx::f32, {512, 256}));
    graph.output("y", rlx::softmax(rlx::matmul(rlx::gelu(rlx::matmul(x, w)), v)));
    return graph;
  }
  Rows(std::int64_t live, std::int64_t rows)
      : program(session.compile(graph(), {.dims = {{"rows", rows}}}).value()) {
    if (live < rows) program.set_active_extent({{live, rows}}).value();
  }
};

/// A model's step by position, its state fed inside.
struct Step {
  rlx::Session session{rlx::Device::cpu, Tiny::options(1)};
  rlx::CompiledGraph program;
  std::vector<rlx::Tensor> values;
  std::vector<const void*> slots;

  static rlx::CompiledGraph compiled(rlx::Session& session, const std::string& file,
                                     const std::vector<std::string>& feeds) {
    rlx::ImportOptions import;
    import.input_dims["input"] = {1, 576};
    import.input_dims["state"] = {2, 1, 128};
    // Which rate it is decides a branch of the model at import.
    const std::vector<rlx::DeclaredInput> declared = rlx::onnx_declared_inputs(file).value();
    for (const rlx::DeclaredInput& input : declared) {
      if (input.name == "sr") import.input_values["sr"] = rlx::Tensor::scalar(std::int64_t{16000});
    }
    rlx::CompileOptions options;
    for (const std::string& feed : feeds) {
      const auto equals = feed.find('=');
      options.feed(feed.substr(0, equals), feed.substr(equals + 1));
    }
    return session.compile(rlx::import_onnx(file, import).value(), options).value();
  }
  Step(const std::string& file, const std::vector<std::string>& feeds)
      : program(compiled(session, file, feeds)) {
    for (const rlx::IoInfo& input : program.inputs()) {
      values.emplace_back(input.dtype, input.dims);
      if (input.dtype == rlx::i64)
        *reinterpret_cast<std::int64_t*>(values.back().mutable_data()) = 16000;
      slots.push_back(values.back().data());
    }
  }
};

void count_calls(bool is_profiled) {
  Tiny tiny(1);
  (void)tiny.program.run(tiny.named);
  if (is_profiled) (void)tiny.program.profile(tiny.named, 100);
  for (int i = 0; i < 100'000; ++i) (void)tiny.program.run_slots(tiny.slots);
}

void print_round(std::vector<Measured>& all) {
  std::string line = "{";
  for (Measured& one : all) {
    char text[160];
    std::snprintf(text, sizeof text, "%s\"%s\": %.4f", line.size() > 1 ? ", " : "",
                  one.name.c_str(), one.round());
    line += text;
  }
  std::printf("%s}\n", line.c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** arguments) {
  std::vector<std::string> words(arguments + 1, arguments + count);
  const bool serves = std::erase(words, "--serve") > 0;
  const bool is_profiled = std::erase(words, "--profiled") > 0;
  if (std::erase(words, "--count") > 0) {
    count_calls(is_profiled);
    return 0;
  }
  std::vector<Measured> all;
  std::vector<std::unique_ptr<Tiny>> tiny;
  for (const int threads : {1, 2}) {
    Tiny& one = *tiny.emplace_back(std::make_unique<Tiny>(threads));
    const std::string of = " " + std::to_string(threads);
    all.push_back({"run_slots" + of, 500, [&] { (void)one.program.run_slots(one.slots); }, {}});
    all.push_back(
        {"run_into" + of, 500, [&] { (void)one.program.run_into(one.slots, one.results); }, {}});
    all.push_back({"run_raw" + of, 500, [&] { (void)one.program.run_raw(one.named); }, {}});
    all.push_back({"run" + of, 500, [&] { (void)one.program.run(one.named); }, {}});
  }
  std::vector<std::unique_ptr<Rows>> rows;
  for (const auto& [live, of] : {std::pair{256, 256}, {64, 64}, {64, 256}, {16, 16}, {16, 256}}) {
    Rows& one = *rows.emplace_back(std::make_unique<Rows>(live, of));
    const std::string name = std::to_string(live) + " of " + std::to_string(of);
    all.push_back({name, 10, [&] { (void)one.program.run_slots(one.slots); }, {}});
  }
  std::unique_ptr<Step> step;
  if (!words.empty()) {
    step =
        std::make_unique<Step>(words[0], std::vector<std::string>(words.begin() + 1, words.end()));
    all.push_back({"step", 50, [&] { (void)step->program.run_slots(step->slots); }, {}});
  }
  if (serves) {
    for (std::string line; std::getline(std::cin, line);) print_round(all);
    return 0;
  }
  for (Measured& one : all) {
    for (int round = 0; round < 201; ++round) one.round();
    std::printf("%-12s %.3f us\n", one.name.c_str(), one.median());
  }
}
