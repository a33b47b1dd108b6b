// Programs of models stored in f16 and bf16: computed in f32, rounded where they are stored.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <sstream>

#include "../ops/sample_inputs.hpp"
#include "graph/elementwise_eval.hpp"
#include "rlx/rlx.hpp"

namespace rlx {
namespace {

using Inputs = std::map<std::string, Tensor>;

Tensor as(DType dtype, const Tensor& tensor) {
  return evaluate(Op(op::Cast{dtype}), {&tensor, 1}).value()[0];
}

/// The same graph twice: with its inputs and weights in a dtype, or in f32 with the same values.
struct Model {
  DType stored = f16;
  bool wide = false;
  Graph graph{};
  Inputs inputs{};
  std::uint32_t seed = 0;

  Tensor values(Shape shape) {
    std::mt19937 generator(++seed);
    const Tensor narrow = as(stored, testing::noise({f32, std::move(shape)}, -1, 1, generator));
    return wide ? as(f32, narrow) : narrow;
  }
  Value input(const std::string& name, Shape shape) {
    const Tensor tensor = values(shape);
    inputs.emplace(name, tensor);
    return graph.input(name, tensor.dtype(), std::move(shape));
  }
  Value weight(Shape shape) { return graph.constant(values(std::move(shape))); }
};

/// Two layers of so many rows.
void layers(Model& m, std::int64_t rows) {
  const Value x = m.input("x", {rows, 64});
  const Value hidden = relu(matmul(x, m.weight({64, 80})) + m.weight({80}));
  m.graph.output("y", matmul(hidden, m.weight({80, 48})));
}

/// Convolutions that Winograd's forms take, among others.
void images(Model& m) {
  const op::Conv same{.pad_low = {1, 1}, .pad_high = {1, 1}};
  const auto conv = [&](Value x, Shape w) {
    return m.graph.add(Op(same), Values{x, m.weight(std::move(w))})[0];
  };
  const Value first = relu(conv(m.input("x", {1, 3, 28, 28}), {32, 3, 3, 3}));
  m.graph.output("y", conv(first, {32, 32, 3, 3}));
}

/// One step of attention over keys and values that are kept.
void step(Model& m) {
  const auto extended = [&](const char* name) {
    const Value fresh = matmul(m.input(std::string(name) + "x", {1, 4, 1, 16}), m.weight({16, 16}));
    const Value all = concat({m.input(name, {1, 4, 49, 16}), fresh}, 2);
    m.graph.output(std::string("all_") + name, all);
    return all;
  };
  const Value keys = extended("k"), values = extended("v");
  const Value q = m.input("q", {1, 4, 1, 16});
  const Value scores = softmax(matmul(q, transpose(keys, {0, 1, 3, 2})), {3});
  m.graph.output("y", matmul(scores, values));
}

std::vector<double> numbers(const TensorView& tensor) {
  std::vector<double> result;
  for (std::int64_t i = 0; i < tensor.elements(); ++i)
    result.push_back(load_datum(tensor.dtype, tensor.data, i).number.real());
  return result;
}

using Numbers = std::map<std::string, std::vector<double>>;

Numbers run(const Model& model, const CompileOptions& options) {
  static Session session(Device::cpu);
  CompiledGraph program = session.compile(model.graph, options).value();
  std::vector<NamedInput> given;
  for (const auto& [name, tensor] : model.inputs) given.push_back({name, tensor});
  const auto results = program.run(given).value();
  Numbers outputs;
  for (const GraphOutput& output : model.graph.outputs()) {
    EXPECT_EQ(results[output.name].dtype(), model.graph.type(output.value).dtype);
    outputs[output.name] = numbers(results[output.name]);
  }
  return outputs;
}

struct Allowed {
  double steps = 1.01;     ///< of f16 roundings of the result
  double absolute = 1e-5;  ///< beside those
  double absolute_bf16 = 0x1p-4;
};

/// Outputs are those of the same model in f32 but for what is allowed; machines that multiply bf16
/// round operands to it, too.
void expect_near_f32(const std::function<void(Model&)>& describe, const Allowed& allowed = {}) {
  for (const DType stored : {f16, bf16}) {
    Model narrow{.stored = stored}, wide{.stored = stored, .wide = true};
    describe(narrow), describe(wide);
    const Numbers wanted = run(wide, {});
    const double relative = stored == f16 ? allowed.steps * 0x1p-11 : 0x1p-5;
    const double absolute = stored == f16 ? allowed.absolute : allowed.absolute_bf16;
    for (const int threads : {1, 2}) {
      for (const bool fusion : {true, false}) {
        const Numbers found = run(narrow, {.disable_fusion = !fusion, .threads = threads});
        for (const auto& [name, values] : wanted) {
          for (std::size_t i = 0; i < values.size(); ++i)
            ASSERT_NEAR(found.at(name)[i], values[i], relative * std::abs(values[i]) + absolute)
                << name_of(stored) << " " << name << " at " << i << ", fusion " << fusion;
        }
      }
    }
  }
}

TEST(Halves, layers_round_their_results_alone) {
  // Where bf16 is multiplied, hidden values of up to 16 are rounded two or three times, to 2^-9 of
  // them, and sums of 80 add that up.
  for (const std::int64_t rows : {1, 5, 8, 40})
    expect_near_f32([&](Model& m) { layers(m, rows); }, {.absolute_bf16 = 0x1p-3});
}

TEST(Halves, convolutions_round_their_results_alone) {
  // Winograd's larger tiles lose digits of f32.
  expect_near_f32(images, {.absolute = 2e-4});
}

TEST(Halves, what_is_kept_for_the_next_step_is_rounded_before_it_is_read) {
  expect_near_f32(step, {.steps = 8, .absolute = 2e-3});
}

/// dtypes of the buffers that hold the program's weights.
std::string weights_of(const Model& model) {
  static Session session(Device::cpu);
  const std::string text = session.compile(model.graph, {}).value().stage_text("lir").value();
  std::string found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(" weight ") == std::string::npos) continue;
    const std::size_t dtype = line.find(' ', line.find(' ') + 1) + 1;
    found += line.substr(dtype, line.find('[') - dtype) + " ";
  }
  return found;
}

TEST(Halves, weights_stay_narrow_where_few_rows_wait_for_them) {
  for (const std::int64_t rows : {1, 7, 8}) {
    Model model;
    layers(model, rows);
    EXPECT_EQ(weights_of(model).find("f16") != std::string::npos, rows < 8) << rows;
  }
}

}  // namespace
}  // namespace rlx
