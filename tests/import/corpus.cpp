// Running and judging corpus cases.
#include "corpus.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "graph/op_info.hpp"
#include "graph/scalar_value.hpp"

namespace rlx::test {
namespace {

namespace fs = std::filesystem;

Tensor widened(const Tensor& tensor) {
  if (tensor.dtype() == c64 || tensor.dtype() == c128) {
    Tensor parts = tensor;
    Dims dims = tensor.dims();
    dims.push_back(2);
    Tensor pairs(tensor.dtype() == c64 ? f32 : f64, dims);
    std::copy(tensor.data(), tensor.data() + tensor.bytes(), pairs.mutable_data());
    return widened(pairs);
  }
  return evaluate(op::Cast{f64}, std::vector<Tensor>{tensor}).value()[0];
}

struct DataSet {
  std::vector<Tensor> inputs, outputs;
};

std::vector<Tensor> read_tensors(const fs::path& folder, const std::string& prefix) {
  std::vector<Tensor> tensors;
  for (int i = 0;; ++i) {
    const fs::path file = folder / (prefix + std::to_string(i) + ".pb");
    if (!fs::exists(file)) return tensors;
    // A left-out optional input is an empty file.
    tensors.push_back(fs::file_size(file) == 0 ? Tensor() : read_tensor_proto(file).value());
  }
}

std::vector<DataSet> read_data_sets(const fs::path& folder) {
  std::vector<DataSet> sets;
  for (int k = 0;; ++k) {
    const fs::path set = folder / ("test_data_set_" + std::to_string(k));
    if (!fs::exists(set)) return sets;
    sets.push_back({read_tensors(set, "input_"), read_tensors(set, "output_")});
  }
}

CaseResult failed(const Error& error) {
  return {error.kind == ErrorKind::unsupported ? Verdict::unsupported : Verdict::error,
          error.message};
}

CaseResult run_data_set(const fs::path& model, const DataSet& set) {
  ImportOptions options;
  // Names come in the order of the graph's inputs, which an import without dims tells.
  auto inputs = onnx_declared_inputs(model);
  if (!inputs.ok()) return failed(inputs.error());
  for (std::size_t i = 0; i < std::min(inputs->size(), set.inputs.size()); ++i) {
    if (set.inputs[i].empty()) continue;
    options.input_dims[(*inputs)[i].name] = set.inputs[i].dims();
    options.input_values[(*inputs)[i].name] = set.inputs[i];
  }
  auto graph = import_onnx(model, options);
  if (!graph.ok()) return failed(graph.error());
  const Status verified = verify(*graph);
  if (!verified.ok()) return failed(verified.error());
  auto outputs = evaluate_graph(*graph, set.inputs);
  if (!outputs.ok()) return failed(outputs.error());
  if (outputs->size() != set.outputs.size()) {
    return {Verdict::wrong,
            fmt::format("{} outputs, {} expected", outputs->size(), set.outputs.size())};
  }
  for (std::size_t i = 0; i < outputs->size(); ++i) {
    const std::string text = difference((*outputs)[i], set.outputs[i]);
    if (!text.empty()) return {Verdict::wrong, fmt::format("output {}: {}", i, text)};
  }
  return {};
}

}  // namespace

fs::path corpus() {
  const char* folder = std::getenv("RLX_CORPUS");
  return folder ? folder : "";
}

std::vector<fs::path> cases_of(const fs::path& suite) {
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(suite)) {
    if (fs::exists(entry.path() / "model.onnx")) {
      folders.push_back(entry.path());
    } else if (entry.is_directory()) {
      for (const auto& inner : fs::directory_iterator(entry.path())) {
        if (fs::exists(inner.path() / "model.onnx")) folders.push_back(inner.path());
      }
    }
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

std::string difference(const Tensor& actual, const Tensor& expected) {
  if (actual.dtype() != expected.dtype() || actual.dims() != expected.dims()) {
    const auto text = [](const Tensor& t) { return Type{t.dtype(), to_shape(t.dims())}.text(); };
    return fmt::format("{} instead of {}", text(actual), text(expected));
  }
  const bool narrow = actual.dtype() == f16 || actual.dtype() == bf16;
  const double rtol = narrow ? 1e-2 : 1e-3, atol = narrow ? 1e-2 : 1e-5;
  const Tensor a = widened(actual), e = widened(expected);
  const auto x = a.as<double>(), y = e.as<double>();
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool same = x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]));
    if (same || std::abs(x[i] - y[i]) <= atol + rtol * std::abs(y[i])) continue;
    return fmt::format("{} instead of {} at element {}", x[i], y[i], i);
  }
  return {};
}

CaseResult run_case(const fs::path& folder) {
  try {
    // Inputs of models with types that rlx lacks are no tensors: they are not read.
    const auto probe = import_onnx(folder / "model.onnx");
    if (!probe.ok() && probe.error().kind == ErrorKind::unsupported &&
        probe.error().message.starts_with("The model needs what rlx does not have")) {
      return failed(probe.error());
    }
    for (const DataSet& set : read_data_sets(folder)) {
      CaseResult result = run_data_set(folder / "model.onnx", set);
      if (result.verdict != Verdict::pass) return result;
    }
    return {};
  } catch (const Exception& exception) {
    return failed(exception.error());
  }
}

}  // namespace rlx::test
