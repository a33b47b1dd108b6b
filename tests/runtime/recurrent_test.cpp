// Recurrent layers as generated kernels, beside the ops' reference evaluation.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "graph/op_info.hpp"
#include "rlx/rlx.hpp"

namespace rlx {
namespace {

struct Sizes {
  std::int64_t steps = 1, batch = 1, inputs = 1, units = 1;
  Direction direction = Direction::forward;
  bool bias = true, states = true, peephole = false;
};

class RecurrentCase {
 public:
  RecurrentCase(Op op, std::int64_t gates, const Sizes& sizes, std::uint32_t seed)
      : op_(std::move(op)), random_(seed), outputs_(op_.is<op::Lstm>() ? 3 : 2) {
    const auto& [steps, batch, in, units, direction, bias, states, peephole] = sizes;
    const std::int64_t d = direction == Direction::bidirectional ? 2 : 1;
    add({steps, batch, in}, false);
    add({d, gates * units, in}, true);
    add({d, gates * units, units}, true);
    bias ? add({d, 2 * gates * units}, true) : leave_out();
    leave_out();
    states ? add({d, batch, units}, false) : leave_out();
    if (outputs_ == 3) states ? add({d, batch, units}, false) : leave_out();
    if (outputs_ == 3) peephole ? add({d, 3 * units}, true) : leave_out();
  }

  /// Compiles the layer; expects that no host call is left and that the results are the
  /// reference's.
  void expect_generated(int threads = 0) {
    build();
    CompiledGraph program = Session(Device::cpu, {.threads = threads}).compile(graph_).value();
    EXPECT_EQ(program.stage_text("lir").value().find("host"), std::string::npos);
    compare(program);
  }

  /// Through its body, or as kernels that make one step each: a loop of generated kernels.
  void expect_loop(int threads = 0) {
    build();
    CompiledGraph program = Session(Device::cpu, {.threads = threads}).compile(graph_).value();
    const std::string plan = program.stage_text("lir").value();
    EXPECT_EQ(plan.find("host"), std::string::npos);
    EXPECT_NE(plan.find(" loop "), std::string::npos);
    compare(program);
    compare(program);  // the states start anew
  }

  /// The weights are fed in each run.
  void feed_weights() {
    is_weight_.assign(is_weight_.size(), false);
    for (std::size_t i = 0; i < operands_.size(); ++i) is_weight_[i] = operands_[i].empty();
  }

  /// Everything in another float dtype.
  void convert(DType dtype) {
    for (Tensor& operand : operands_) {
      if (!operand.empty() && operand.dtype() == f32)
        operand = evaluate(op::Cast{dtype}, std::vector<Tensor>{operand}).value()[0];
    }
  }

  void set_lengths(std::vector<std::int32_t> lengths) {
    const auto count = static_cast<std::int64_t>(lengths.size());
    operands_[4] = Tensor::of<std::int32_t>({count}, lengths);
    is_weight_[4] = true;
  }

 private:
  void add(const Dims& dims, bool weight) {
    Tensor tensor(f32, dims);
    const double range = weight ? 1.5 / std::sqrt(static_cast<double>(dims.back())) : 1;
    std::uniform_real_distribution<float> noise(static_cast<float>(-range),
                                                static_cast<float>(range));
    auto* data = reinterpret_cast<float*>(tensor.mutable_data());
    for (std::int64_t i = 0; i < tensor.elements(); ++i) data[i] = noise(random_);
    operands_.push_back(std::move(tensor));
    is_weight_.push_back(weight);
  }
  void leave_out() {
    operands_.emplace_back();
    is_weight_.push_back(true);
  }

  static Tensor widened(const Tensor& tensor) {
    return evaluate(op::Cast{f64}, std::vector<Tensor>{tensor}).value()[0];
  }

  static Shape shape_of(const Tensor& tensor) {
    return {tensor.dims().begin(), tensor.dims().end()};
  }

  void build() {
    std::vector<Value> inputs;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const std::string name = "x" + std::to_string(i);
      if (operands_[i].empty()) {
        inputs.emplace_back();
      } else if (is_weight_[i]) {
        inputs.push_back(graph_.constant(operands_[i]));
      } else {
        inputs.push_back(graph_.input(name, operands_[i].dtype(), shape_of(operands_[i])));
        given_.emplace_back(name, operands_[i]);
      }
    }
    const std::vector<Value> results = graph_.add(op_, inputs);
    for (std::size_t i = 0; i < results.size(); ++i) {
      graph_.output("y" + std::to_string(i), results[i]);
    }
  }

  void compare(CompiledGraph& program) {
    const std::vector<Tensor> wanted = evaluate(op_, operands_).value();
    const Outputs made = program.run_typed(given_).value();
    for (std::size_t k = 0; k < outputs_; ++k) {
      ASSERT_EQ(made[k].dtype(), wanted[k].dtype());
      const double tolerance = made[k].dtype() == f16   ? 2e-3
                               : made[k].dtype() == f64 ? 1e-12
                                                        : 1e-5;
      const Tensor x = widened(made[k]), y = widened(wanted[k]);
      const std::span<const double> a = x.as<double>(), b = y.as<double>();
      ASSERT_EQ(a.size(), b.size());
      for (std::size_t i = 0; i < a.size(); ++i) {
        ASSERT_NEAR(a[i], b[i], tolerance * (1 + std::abs(b[i]))) << "result " << k << " at " << i;
      }
    }
  }

  Op op_;
  std::mt19937 random_;
  std::size_t outputs_;
  Graph graph_;
  std::vector<Tensor> operands_;
  std::vector<bool> is_weight_;
  std::vector<NamedInput> given_;
};

constexpr Direction directions[] = {Direction::forward, Direction::reverse,
                                    Direction::bidirectional};

Sizes random_sizes(std::mt19937& random, int index) {
  const auto between = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  Sizes sizes{.steps = index % 3 == 0 ? 1 : between(2, 40),
              .batch = index % 2 == 0 ? 1 : between(2, 33),
              .inputs = between(1, 40),
              .units = index % 4 == 0 ? between(65, 130) : between(1, 40),
              .direction = directions[index % 3],
              .bias = between(0, 3) > 0,
              .states = between(0, 2) > 0,
              .peephole = between(0, 2) == 0};
  if (sizes.units > 64) sizes.steps = std::min<std::int64_t>(sizes.steps, 5);
  return sizes;
}

TEST(RecurrentLayer, lstm_is_generated) {
  std::mt19937 random(1);
  for (int i = 0; i < 12; ++i) {
    SCOPED_TRACE(i);
    const Sizes sizes = random_sizes(random, i);
    const op::Lstm lstm{
        .direction = sizes.direction, .clip = i % 5 == 4 ? 0.5 : 0, .input_forget = i % 4 == 3};
    RecurrentCase(lstm, 4, sizes, 10 + i).expect_generated();
  }
}

TEST(RecurrentLayer, gru_is_generated) {
  std::mt19937 random(2);
  for (int i = 0; i < 12; ++i) {
    SCOPED_TRACE(i);
    const Sizes sizes = random_sizes(random, i);
    const op::Gru gru{.direction = sizes.direction,
                      .clip = i % 5 == 4 ? 0.5 : 0,
                      .linear_before_reset = i % 2 == 0};
    RecurrentCase(gru, 3, sizes, 30 + i).expect_generated();
    RecurrentCase(op::Gru{.direction = sizes.direction, .linear_before_reset = i % 2 == 1}, 3,
                  sizes, 50 + i)
        .expect_generated();
  }
}

TEST(RecurrentLayer, rnn_is_generated) {
  std::mt19937 random(3);
  for (int i = 0; i < 8; ++i) {
    SCOPED_TRACE(i);
    const Sizes sizes = random_sizes(random, i);
    RecurrentCase(op::Rnn{.direction = sizes.direction}, 1, sizes, 70 + i).expect_generated();
  }
}

// Their weights fill more than a core's own caches: each of two workers reads half of them.
TEST(RecurrentLayer, large_layers_on_two_threads_are_loops_of_single_steps) {
  std::mt19937 random(4);
  for (int i = 0; i < 6; ++i) {
    SCOPED_TRACE(i);
    Sizes sizes = random_sizes(random, i);
    sizes.steps = 2 + i % 3;
    sizes.units = i % 2 == 0 ? 512 : 530;
    sizes.direction = i % 2 == 0 ? Direction::forward : Direction::reverse;
    sizes.batch = 1 + i % 2;
    RecurrentCase(op::Lstm{.direction = sizes.direction}, 4, sizes, 90 + i).expect_loop(2);
    RecurrentCase(op::Gru{.direction = sizes.direction, .linear_before_reset = true}, 3, sizes,
                  100 + i)
        .expect_loop(2);
  }
}

TEST(RecurrentLayer, large_layers_in_both_directions_are_a_loop_for_each) {
  const Sizes sizes{.steps = 3, .inputs = 7, .units = 530, .direction = Direction::bidirectional};
  RecurrentCase(op::Lstm{.direction = sizes.direction}, 4, sizes, 7).expect_loop(2);
  RecurrentCase(op::Gru{.direction = sizes.direction}, 3, sizes, 8).expect_loop(2);
}

TEST(RecurrentLayer, single_steps_of_large_layers_keep_their_values) {
  for (const Direction direction : directions) {
    const Sizes sizes{
        .steps = 1, .batch = 2, .inputs = 9, .units = 530, .direction = direction, .states = true};
    RecurrentCase(op::Lstm{.direction = direction}, 4, sizes, 11).expect_generated(2);
    RecurrentCase(op::Gru{.direction = direction, .linear_before_reset = true}, 3, sizes, 12)
        .expect_generated(2);
  }
}

TEST(RecurrentLayer, every_activation_is_generated) {
  const Sizes sizes{.steps = 3, .batch = 2, .inputs = 5, .units = 9};
  for (const char* name : {"Sigmoid", "Tanh", "Relu", "Softsign", "Softplus", "Affine", "LeakyRelu",
                           "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu"}) {
    SCOPED_TRACE(name);
    const op::Rnn rnn{.activations = {name}, .alphas = {0.3}, .betas = {0.4}};
    RecurrentCase(rnn, 1, sizes, 5).expect_generated();
  }
}

TEST(RecurrentLayer, whole_lengths_are_one_kernel_and_others_a_loop) {
  const Sizes sizes{.steps = 4, .batch = 3, .inputs = 5, .units = 9};
  RecurrentCase whole(op::Gru{}, 3, sizes, 1), parts(op::Gru{}, 3, sizes, 1);
  whole.set_lengths({4, 4, 4});
  whole.expect_generated();
  parts.set_lengths({4, 2, 0});
  parts.expect_loop();
}

TEST(RecurrentLayer, lengths_end_sequences_in_every_direction) {
  for (const Direction direction : directions) {
    const Sizes sizes{
        .steps = 6, .batch = 4, .inputs = 7, .units = 18, .direction = direction, .peephole = true};
    RecurrentCase lstm(op::Lstm{.direction = direction}, 4, sizes, 3);
    RecurrentCase rnn(op::Rnn{.direction = direction, .clip = 0.3}, 1, sizes, 4);
    lstm.set_lengths({6, 1, 0, 4});
    lstm.expect_loop();
    rnn.set_lengths({2, 1, 9, 4});
    rnn.expect_loop();
    for (const bool linear : {false, true}) {
      RecurrentCase gru(op::Gru{.direction = direction, .linear_before_reset = linear}, 3, sizes,
                        5);
      gru.set_lengths({3, 6, 5, 1});
      gru.feed_weights();
      gru.expect_loop();
    }
  }
}

TEST(RecurrentLayer, weights_may_be_fed_and_floats_be_wide_or_narrow) {
  for (const DType dtype : {f32, f64, f16}) {
    SCOPED_TRACE(name_of(dtype));
    const Sizes sizes{.steps = 5,
                      .batch = 2,
                      .inputs = 12,
                      .units = 20,
                      .direction = Direction::bidirectional,
                      .peephole = true};
    RecurrentCase lstm(op::Lstm{.direction = sizes.direction, .input_forget = true}, 4, sizes, 3);
    RecurrentCase gru(op::Gru{.direction = sizes.direction}, 3, sizes, 4);
    for (RecurrentCase* layer : {&lstm, &gru}) {
      layer->convert(dtype);
      layer->feed_weights();
      layer->expect_loop();
    }
  }
}

TEST(RecurrentLayer, different_functions_both_ways_are_a_loop) {
  const Sizes sizes{
      .steps = 4, .batch = 3, .inputs = 5, .units = 9, .direction = Direction::bidirectional};
  const op::Rnn rnn{.direction = Direction::bidirectional, .activations = {"Tanh", "Relu"}};
  RecurrentCase(rnn, 1, sizes, 1).expect_loop();
}

// A layer whose input is a transposed view, whose state is part of a larger one, and whose result
// is read with its directions side by side: as exporters write it.
TEST(RecurrentLayer, reads_views_and_is_read_through_them) {
  const std::int64_t steps = 6, batch = 3, in = 10, units = 20;
  std::mt19937 random(9);
  std::uniform_real_distribution<float> noise(-0.5f, 0.5f);
  const auto filled = [&](const Dims& dims) {
    Tensor tensor(f32, dims);
    auto* data = reinterpret_cast<float*>(tensor.mutable_data());
    for (std::int64_t i = 0; i < tensor.elements(); ++i) data[i] = noise(random);
    return tensor;
  };
  const Tensor x = filled({batch, steps, in}), h0 = filled({4, batch, units});
  Graph graph;
  const Value w = graph.constant(filled({2, 3 * units, in}));
  const Value r = graph.constant(filled({2, 3 * units, units}));
  const Value b = graph.constant(filled({2, 6 * units}));
  const Value turned = transpose(graph.input("x", f32, {batch, steps, in}), {1, 0, 2});
  const Value state =
      slice(graph.input("h0", f32, {4, batch, units}), {2, 0, 0}, {4, batch, units});
  const op::Gru gru{.direction = Direction::bidirectional, .linear_before_reset = true};
  const std::vector<Value> results =
      graph.add(gru, std::vector<Value>{turned, w, r, b, Value(), state});
  const Value joined = reshape(transpose(results[0], {2, 0, 1, 3}), {batch, steps, 2 * units});
  graph.output("y", relu(joined));
  graph.output("h", results[1]);
  const std::vector<Tensor> wanted = evaluate_graph(graph, std::vector<Tensor>{x, h0}).value();
  CompiledGraph program = Session(Device::cpu).compile(graph).value();
  const Outputs made = program.run({{"x", x}, {"h0", h0}}).value();
  for (std::size_t k = 0; k < 2; ++k) {
    const std::span<const float> a = made[k].as<float>(), expected = wanted[k].as<float>();
    ASSERT_EQ(a.size(), expected.size());
    for (std::size_t i = 0; i < a.size(); ++i)
      ASSERT_NEAR(a[i], expected[i], 1e-5) << k << " " << i;
  }
}

}  // namespace
}  // namespace rlx
