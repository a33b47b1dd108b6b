// Stateful models over many steps through the public calls: states that a step gives are fed to the
// next, and what the model says is compared with the streams of the corpus.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "rlx/import.hpp"
#include "rlx/rlx.hpp"

namespace rlx {
namespace {

namespace fs = std::filesystem;

/// Within the tolerances of `rlx check`: rtol 1e-3, atol 1e-5.
void expect_near(std::span<const float> actual, std::span<const float> expected,
                 const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i)
    ASSERT_NEAR(actual[i], expected[i], 1e-5 + 1e-3 * std::abs(expected[i])) << what << ' ' << i;
}

/// Row `row` along the first axis of an f32 tensor.
std::span<const float> row_of(const Tensor& tensor, std::int64_t row) {
  const auto elements = static_cast<std::size_t>(tensor.elements() / tensor.dims()[0]);
  return tensor.as<float>().subspan(static_cast<std::size_t>(row) * elements, elements);
}

/// A model that gives the next value of each of its states.
struct Stream {
  std::string folder;                         ///< below models/
  std::string tracked;                        ///< the output that the stream holds
  std::map<std::string, std::string> states;  ///< input -> output that feeds it
};

class Streams : public testing::Test {
 protected:
  void SetUp() override {
    const char* corpus = std::getenv("RLX_CORPUS");
    if (!corpus) GTEST_SKIP() << "RLX_CORPUS names no folder: the corpus is not there.";
    models_ = fs::path(corpus) / "models";
  }

  fs::path folder_of(const Stream& stream) const { return models_ / stream.folder; }

  /// Input k of a data set.
  Tensor given(const Stream& stream, int set, int input) const {
    return read_tensor_proto(folder_of(stream) / fmt::format("test_data_set_{}", set) /
                             fmt::format("input_{}.pb", input))
        .value();
  }

  /// Compiled for the dims of the first data set, whose inputs come in the model's order.
  CompiledGraph compiled(const Stream& stream, std::map<std::string, Tensor>& inputs) {
    const fs::path model = folder_of(stream) / "model.onnx";
    ImportOptions options;
    const auto declared = onnx_declared_inputs(model).value();
    for (std::size_t i = 0; i < declared.size(); ++i) {
      names_.push_back(declared[i].name);
      const Tensor tensor = given(stream, 0, static_cast<int>(i));
      inputs[declared[i].name] = tensor;
      options.input_dims[declared[i].name] = tensor.dims();
      options.input_values[declared[i].name] = tensor;
    }
    CompileOptions compile;
    for (const auto& [input, output] : stream.states) {
      if (fed_inside_) compile.feed(output, input);
    }
    return session_.compile(import_onnx(model, options).value(), compile).value();
  }

  static Outputs run(CompiledGraph& program, const std::map<std::string, Tensor>& inputs) {
    std::vector<NamedInput> named;
    for (const IoInfo& input : program.inputs())
      named.emplace_back(input.name, inputs.at(input.name));
    return program.run_typed(named).value();
  }

  /// What follows a step: the program feeds its states itself, or the test does.
  void feed(const Stream& stream, const Outputs& outputs, std::map<std::string, Tensor>& inputs) {
    if (fed_inside_) return;
    for (const auto& [input, output] : stream.states) inputs[input] = outputs[output];
  }

  /// Starts from the states among the inputs.
  void start(const Stream& stream, CompiledGraph& program,
             const std::map<std::string, Tensor>& inputs) {
    if (!fed_inside_) return;
    for (const auto& [input, output] : stream.states)
      ASSERT_TRUE(program.bind_handle(input, inputs.at(input)).ok());
  }

  /// The voice detector: one row of chunks a step, states from zeros.
  void follow_voice(const Stream& stream) {
    std::map<std::string, Tensor> inputs;
    CompiledGraph program = compiled(stream, inputs);
    const Tensor chunks = read_npy(models_ / "silero-vad/inputs/chunks576.npy").value();
    const Tensor expected = read_npy(folder_of(stream) / "stream_output.npy").value();
    inputs["state"] = Tensor(f32, inputs["state"].dims());
    ASSERT_EQ(expected.dims()[0], 400);
    for (std::int64_t step = 0; step < expected.dims()[0]; ++step) {
      inputs["input"] = Tensor::of<float>({1, 576}, row_of(chunks, step));
      const Outputs outputs = run(program, inputs);
      expect_near(outputs[stream.tracked].as<float>(), row_of(expected, step),
                  fmt::format("{} step {}", stream.folder, step));
      if (HasFatalFailure()) return;
      feed(stream, outputs, inputs);
    }
  }

  /// Models of which the corpus holds the frames of steps 0 to 2 and of the last alone: the first
  /// three feed each other, the last starts from the states that its data set gives.
  void follow_frames(const Stream& stream, const std::string& file) {
    std::map<std::string, Tensor> inputs;
    CompiledGraph program = compiled(stream, inputs);
    const Tensor expected = read_npy(folder_of(stream) / file).value();
    const auto compare = [&](const Outputs& outputs, std::int64_t step) {
      expect_near(outputs[stream.tracked].as<float>(), row_of(expected, step),
                  fmt::format("{} step {}", stream.folder, step));
    };
    for (int step = 0; step < 3; ++step) {
      for (std::size_t i = 0; i < names_.size(); ++i) {
        if (step == 0 || !stream.states.contains(names_[i]))
          inputs[names_[i]] = given(stream, step, static_cast<int>(i));
      }
      if (step == 0) start(stream, program, inputs);
      const Outputs outputs = run(program, inputs);
      compare(outputs, step);
      feed(stream, outputs, inputs);
    }
    for (std::size_t i = 0; i < names_.size(); ++i)
      inputs[names_[i]] = given(stream, 3, static_cast<int>(i));
    start(stream, program, inputs);
    compare(run(program, inputs), expected.dims()[0] - 1);
  }

  bool fed_inside_ = false;  ///< by CompileOptions::feed
  Session session_{Device::cpu};
  fs::path models_;
  std::vector<std::string> names_;  ///< inputs of the model in its order
};

const Stream silero{"silero-vad/silero_vad", "output", {{"state", "stateN"}}};
const Stream silero_15{"silero-vad/silero_vad_16k_op15", "output", {{"state", "stateN"}}};
const Stream gtcrn{"gtcrn/gtcrn_simple",
                   "enh",
                   {{"conv_cache", "conv_cache_out"},
                    {"tra_cache", "tra_cache_out"},
                    {"inter_cache", "inter_cache_out"}}};
const Stream dtln{"dtln/model_1", "activation_2", {{"input_3", "tf_op_layer_stack_2"}}};

TEST_F(Streams, silero_vad) { follow_voice(silero); }
TEST_F(Streams, silero_vad_of_opset_15) { follow_voice(silero_15); }
TEST_F(Streams, gtcrn) { follow_frames(gtcrn, "stream_enh.npy"); }
TEST_F(Streams, dtln) { follow_frames(dtln, "stream_activation_2.npy"); }

TEST_F(Streams, silero_vad_fed_inside) {
  fed_inside_ = true;
  follow_voice(silero);
}
TEST_F(Streams, silero_vad_of_opset_15_fed_inside) {
  fed_inside_ = true;
  follow_voice(silero_15);
}
TEST_F(Streams, gtcrn_fed_inside) {
  fed_inside_ = true;
  follow_frames(gtcrn, "stream_enh.npy");
}
TEST_F(Streams, dtln_fed_inside) {
  fed_inside_ = true;
  follow_frames(dtln, "stream_activation_2.npy");
}

}  // namespace
}  // namespace rlx
