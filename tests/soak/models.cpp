// Graphs that together use every part of the runtime.
#include "soak/models.hpp"

#include <cstring>
#include <memory>

namespace rlx::soak {

Tensor values(const Dims& dims, std::uint64_t seed) {
  std::vector<float> numbers(static_cast<std::size_t>(element_count(dims)));
  for (float& number : numbers) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    number = static_cast<float>(static_cast<std::int64_t>(seed >> 40) - (1 << 23)) * 0x1p-23f;
  }
  return Tensor::of<float>(dims, std::span<const float>(numbers));
}

bool equal(const Outputs& a, const Outputs& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].dtype() != b[i].dtype() || a[i].dims() != b[i].dims()) return false;
    if (std::memcmp(a[i].data(), b[i].data(), a[i].bytes()) != 0) return false;
  }
  return true;
}

Graph perceptron() {
  Graph graph;
  const Value x = graph.input("x", f32, {rows_limit, width});
  const Value w = graph.param("w", f32, {width, 128}, values({width, 128}, 1));
  const Value v = graph.constant(values({128, width}, 2));
  graph.output("y", softmax(matmul(gelu(matmul(x, w)), v) + x));
  return graph;
}

Graph rows_model() {
  Graph graph;
  const Value x = graph.input("x", f32, {Dim("rows"), width});
  graph.output("y", tanh(matmul(x, graph.constant(values({width, width}, 3)))));
  return graph;
}

Graph picker() {
  Graph graph;
  const Value x = graph.input("x", f32, {12});
  const Value places = reshape(graph.add_one(op::NonZero{}, {x}), {-1});
  graph.output("picked", gather(x, places) * graph.constant(f32, 10));
  return graph;
}

Graph adder() {
  Graph graph;
  const Value x = graph.input("x", f32, {width}), state = graph.input("state", f32, {width});
  graph.output("next", x + state);
  return graph;
}

Graph long_loop() {
  Graph condition, body, graph;
  const Dims dims{width};
  const Shape shape = to_shape(dims);
  {
    const Value count = condition.input("count", i64, {});
    condition.input("x", f32, shape);
    condition.output("goes_on", less(count, condition.input("limit", i64, {})));
  }
  {
    const Value count = body.input("count", i64, {}), x = body.input("x", f32, shape);
    const Value limit = body.input("limit", i64, {});
    body.output("count", count + body.constant(i64, 1));
    body.output("x", tanh(x));
    body.output("limit", limit);
  }
  const Value x = graph.input("x", f32, shape), limit = graph.input("limit", i64, {});
  const std::vector<ValueId> results =
      graph
          .try_add(op::While{std::make_shared<const Graph>(std::move(condition)),
                             std::make_shared<const Graph>(std::move(body))},
                   std::vector<ValueId>{graph.constant(i64, 0).id(), x.id(), limit.id()}, "", "")
          .value();
  graph.output("y", graph.handle(results[1]));
  return graph;
}

Result<FileModel> from_file(Session& session, const std::string& file) {
  auto graph = import_onnx(std::filesystem::path(file));
  if (!graph.ok()) return graph.error();
  auto program = session.compile(*graph);
  if (!program.ok()) return program.error();
  FileModel model{file, *std::move(program), {}, {}, {}};
  model.tensors.reserve(model.program.inputs().size());
  for (const IoInfo& input : model.program.inputs()) {
    for (const std::int64_t dim : input.dims) {
      if (dim < 0) return Error{ErrorKind::bad_input, "The model (" + file + ") has unbound dims."};
    }
    model.tensors.push_back(input.dtype == f32 ? values(input.dims, model.tensors.size())
                                               : Tensor(input.dtype, input.dims));
    model.inputs.emplace_back(input.name, model.tensors.back());
  }
  auto expected = model.program.run(model.inputs);
  if (!expected.ok()) return expected.error();
  model.expected = *std::move(expected);
  return model;
}

}  // namespace rlx::soak
