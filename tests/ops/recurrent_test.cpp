// Recurrent layers against ONNX Runtime, and what they refuse.
#include "ops/numeric.hpp"
#include "ops/numpy_answers.hpp"

namespace rlx {
namespace {

using namespace testing;

constexpr std::int64_t steps = 4, batch = 3, inputs = 5, hidden = 2;

// x, w, r and, if full, b, lengths, h0 as the generator makes them.
std::vector<Tensor> operands(std::int64_t gates, std::int64_t directions, bool full) {
  std::vector<Tensor> result{pattern({steps, batch, inputs}, 1),
                             pattern({directions, gates * hidden, inputs}, 2),
                             pattern({directions, gates * hidden, hidden}, 3)};
  if (!full) return result;
  result.push_back(pattern({directions, 2 * gates * hidden}, 4));
  result.push_back(Tensor::of<std::int32_t>({batch}, {4, 2, 3}));
  result.push_back(pattern({directions, batch, hidden}, 5));
  return result;
}

std::vector<Tensor> lstm_operands(std::int64_t directions) {
  std::vector<Tensor> result = operands(4, directions, true);
  result.push_back(pattern({directions, batch, hidden}, 6));
  result.push_back(pattern({directions, 3 * hidden}, 7));
  return result;
}

void expect_all(const std::vector<Tensor>& results, const std::vector<Answer>& answers) {
  ASSERT_EQ(results.size(), answers.size());
  for (std::size_t i = 0; i < answers.size(); ++i) expect_answer(results[i], answers[i]);
}

TEST(Lstm, agrees_with_onnx_runtime) {
  expect_all(results_of(op::Lstm{}, operands(4, 1, false)),
             {numpy::lstm_0, numpy::lstm_1, numpy::lstm_2});
}

TEST(Lstm, takes_lengths_states_and_peepholes_both_ways) {
  expect_all(results_of(op::Lstm{.direction = Direction::bidirectional}, lstm_operands(2)),
             {numpy::lstm_both_0, numpy::lstm_both_1, numpy::lstm_both_2});
}

TEST(Lstm, clips_and_couples_input_and_forget_gates) {
  expect_all(
      results_of(op::Lstm{.direction = Direction::reverse, .clip = 0.5, .input_forget = true},
                 lstm_operands(1)),
      {numpy::lstm_clipped_0, numpy::lstm_clipped_1, numpy::lstm_clipped_2});
}

TEST(Lstm, takes_activations_with_parameters) {
  const op::Lstm lstm{.activations = {"HardSigmoid", "Affine", "LeakyRelu"},
                      .alphas = {0.3, 0.8, 0.05},
                      .betas = {0.4, 0.1}};
  expect_all(results_of(lstm, operands(4, 1, false)),
             {numpy::lstm_named_0, numpy::lstm_named_1, numpy::lstm_named_2});
}

TEST(Gru, agrees_with_onnx_runtime) {
  expect_all(results_of(op::Gru{.direction = Direction::bidirectional}, operands(3, 2, true)),
             {numpy::gru_0, numpy::gru_1});
  expect_all(
      results_of(
          op::Gru{.direction = Direction::reverse, .clip = 0.75, .linear_before_reset = true},
          operands(3, 1, true)),
      {numpy::gru_linear_0, numpy::gru_linear_1});
}

TEST(Rnn, agrees_with_onnx_runtime) {
  const op::Rnn rnn{
      .direction = Direction::bidirectional, .activations = {"relu", "softsign"}, .clip = 0.75};
  expect_all(results_of(rnn, operands(1, 2, true)), {numpy::rnn_0, numpy::rnn_1});
}

TEST(Recurrent, refuses_with_sentences) {
  EXPECT_EQ(refusal_of(op::Lstm{}, operands(3, 1, false)),
            "The recurrent weights of lstm is f32[1,6,2] and should be f32[1,8,2].");
  EXPECT_EQ(refusal_of(op::Gru{.activations = {"tanh"}}, operands(3, 1, false)),
            "The op gru has (1) activations and wants (2) for each of (1) directions.");
  EXPECT_EQ(refusal_of(op::Rnn{.activations = {"gelu"}}, operands(1, 1, false)),
            "The op rnn knows no activation (gelu).");
  std::vector<Tensor> wrong = operands(1, 1, true);
  wrong[4] = Tensor(i64, {batch});
  EXPECT_EQ(refusal_of(op::Rnn{}, wrong), "The lengths i64[3] of rnn are not i32[3].");
}

}  // namespace
}  // namespace rlx
