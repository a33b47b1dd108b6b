// Times LSTM and GRU layers of several sizes: the inputs' products and the walk over the steps.
#include <cstdio>
#include <string>
#include <vector>

#include "rlx/rlx.hpp"

namespace {

using namespace rlx;

struct Layer {
  const char* name;
  bool lstm;
  std::int64_t steps, batch, inputs, units;
  Direction direction = Direction::forward;
};

constexpr Layer layers[] = {
    {"LSTM of a voice detector", true, 1, 1, 128, 128},
    {"GRU over frequency bands", false, 33, 1, 8, 4, Direction::bidirectional},
    {"GRU over time, bands in the batch", false, 1, 33, 16, 8},
    {"LSTM of a text reader", true, 40, 1, 96, 48, Direction::bidirectional},
    {"LSTM, a batch of sequences", true, 50, 32, 128, 128},
    {"GRU, a batch of sequences", false, 50, 32, 256, 256},
    {"LSTM, one long sequence", true, 500, 1, 256, 256},
};

Tensor filled(const Dims& dims) {
  Tensor tensor(f32, dims);
  auto* data = reinterpret_cast<float*>(tensor.mutable_data());
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    data[i] = 0.01f * static_cast<float>(i * 37 % 23 - 11);
  }
  return tensor;
}

Status time(Session& session, const Layer& layer) {
  const std::int64_t directions = layer.direction == Direction::bidirectional ? 2 : 1;
  const std::int64_t columns = (layer.lstm ? 4 : 3) * layer.units;
  Graph graph;
  const Value x = graph.input("x", f32, {layer.steps, layer.batch, layer.inputs});
  const std::vector<Value> operands{x, graph.constant(filled({directions, columns, layer.inputs})),
                                    graph.constant(filled({directions, columns, layer.units}))};
  const Op op = layer.lstm ? Op(op::Lstm{.direction = layer.direction})
                           : Op(op::Gru{.direction = layer.direction});
  graph.output("y", graph.add(op, operands)[0]);
  auto program = session.compile(graph);
  if (!program.ok()) return program.error();
  const Tensor input = filled({layer.steps, layer.batch, layer.inputs});
  const std::vector<NamedInput> inputs{{"x", input}};
  const auto profile = program->profile(inputs, 100);
  if (!profile.ok()) return profile.error();
  std::printf("%s: %ld steps, batch %ld, %ld inputs, %ld units, %ld directions\n", layer.name,
              layer.steps, layer.batch, layer.inputs, layer.units, directions);
  for (const KernelProfile& kernel : *profile) {
    std::printf("  %-12s %10.2f us %8.1f GFLOP/s\n", kernel.name.c_str(), kernel.median_us,
                kernel.flops / kernel.median_us / 1e3);
  }
  return {};
}

}  // namespace

int main(int count, char** arguments) {
  Session session(Device::cpu, {.threads = count > 1 ? std::stoi(arguments[1]) : 1});
  for (const Layer& layer : layers) {
    const Status status = time(session, layer);
    if (!status.ok()) std::fprintf(stderr, "%s: %s\n", layer.name, status.error().message.c_str());
  }
  return 0;
}
