// The conformance suite: on every backend every sample of every op gives what its reference
// evaluation gives.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "backends/backend.hpp"
#include "ops/sample_inputs.hpp"
#include "runtime/compile.hpp"

namespace rlx {
namespace {

using testing::sample_inputs;

/// Backends that compute, each opened once.
struct Opened {
  std::string name;
  std::unique_ptr<Backend> backend;
};

std::vector<Opened>& opened_backends() {
  static std::vector<Opened> list = [] {
    std::vector<Opened> result;
    for (const auto entries : {backends(), checking_backends()}) {
      for (const BackendEntry& entry : entries) {
        auto backend = entry.open({});
        if (entry.name != "null" && backend.ok())
          result.push_back({std::string(entry.name), *std::move(backend)});
      }
    }
    return result;
  }();
  return list;
}

/// An op on its sample's inputs: operands that tell dims are constants, the others are fed.
struct SampleProgram {
  Graph graph;
  std::vector<Tensor> fed;
};

SampleProgram program_of(const Sample& sample, const std::vector<Tensor>& inputs) {
  SampleProgram program;
  const bool fixed = sample.op.info().traits.shape_operands;
  std::vector<Value> values;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].empty()) {
      values.emplace_back();
    } else if (fixed && i < sample.values.size() && sample.values[i]) {
      values.push_back(program.graph.constant(inputs[i]));
    } else {
      values.push_back(program.graph.input(fmt::format("x{}", i), inputs[i].dtype(),
                                           to_shape(inputs[i].dims())));
      program.fed.push_back(inputs[i]);
    }
  }
  const std::vector<Value> results = program.graph.add(sample.op, values, "");
  for (std::size_t k = 0; k < results.size(); ++k)
    program.graph.output(fmt::format("y{}", k), results[k]);
  return program;
}

std::string describe(const Sample& sample) {
  std::string text(sample.op.name());
  for (const Type& type : sample.inputs) text += " " + type.text();
  return text;
}

double rounding_of(DType dtype) {
  switch (dtype) {
    case DType::f16: return 5e-3;
    case DType::bf16: return 4e-2;
    case DType::f64:
    case DType::c128: return 1e-9;
    case DType::f32:
    case DType::c64: return 3e-5;
    case DType::boolean: return 0;
    // A quantised value may fall on the other side of a half.
    default: return is_integer(dtype) ? 1 : 0.4;
  }
}

/// Empty where the tensors agree; numbers relative to their size, at least 1.
std::string difference(const Tensor& a, const Tensor& b, double tolerance) {
  if (a.dtype() != b.dtype() || a.dims() != b.dims()) return "another type";
  for (std::int64_t i = 0; i < a.elements(); ++i) {
    const ScalarDatum x = load_datum(a.dtype(), a.data(), i),
                      y = load_datum(b.dtype(), b.data(), i);
    const bool same = x.number == y.number && x.integer == y.integer;
    if (same || (std::isnan(x.number.real()) && std::isnan(y.number.real()))) continue;
    const double gap = std::max(std::abs(x.number - y.number) / std::max(1.0, std::abs(y.number)),
                                std::abs(static_cast<double>(x.integer - y.integer)));
    if (gap <= tolerance) continue;
    return fmt::format("element {}: {} or {} instead of {} or {}", i, x.number.real(), x.integer,
                       y.number.real(), y.integer);
  }
  return {};
}

class Conformance : public ::testing::TestWithParam<const OpInfo*> {};

void check_sample(Opened& opened, const Sample& sample) {
  SCOPED_TRACE(opened.name + ": " + describe(sample));
  const std::vector<Tensor> inputs = sample_inputs(sample);
  const auto expected = evaluate(sample.op, inputs);
  if (!expected.ok()) return;  // the laws of tests/ops say why
  const SampleProgram program = program_of(sample, inputs);
  const auto hir = specialised(program.graph, {}, {});
  ASSERT_TRUE(hir.ok()) << hir.error().message;
  if (!is_static(*hir)) return;  // data decides its dims: programs split around it
  auto compiled = compile_static(*opened.backend, *hir, {});
  ASSERT_TRUE(compiled.ok()) << compiled.error().message;
  Executable& executable = *compiled->executable;
  std::vector<const void*> slots;
  for (const Tensor& tensor : program.fed) slots.push_back(tensor.data());
  const Status status = executable.run(slots);
  ASSERT_TRUE(status.ok()) << status.error().message;
  const plan::Plan& plan = executable.plan();
  ASSERT_EQ(plan.outputs.size(), expected->size());
  for (std::size_t k = 0; k < expected->size(); ++k) {
    const Type& type = plan.output_types[k];
    Tensor actual(type.dtype, type.dims());
    const auto buffer = static_cast<std::size_t>(plan.outputs[k]);
    std::copy_n(executable.arena() + plan.buffers[buffer].offset, actual.bytes(),
                actual.mutable_data());
    const bool exact = opened.name == "reference" && is_integer(type.dtype);
    const double tolerance = exact ? 0 : std::max(sample.tolerance, rounding_of(type.dtype));
    EXPECT_EQ(difference(actual, (*expected)[k], tolerance), "") << "result " << k;
  }
}

TEST_P(Conformance, gives_what_the_reference_gives) {
  for (Opened& opened : opened_backends()) {
    for (const Sample& sample : GetParam()->samples()) {
      if (sample.op.info().traits.random) continue;
      check_sample(opened, sample);
    }
  }
}

/// The sample with no elements along every axis of that extent, but of the operands that it fixes.
Sample without_elements(Sample sample, std::int64_t extent) {
  for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
    if (i < sample.values.size() && sample.values[i]) continue;
    for (Dim& dim : sample.inputs[i].shape)
      if (dim == Dim(extent)) dim = Dim(0);
  }
  return sample;
}

// Empty batches, rows and channels: wherever the op has a meaning for them.
TEST_P(Conformance, gives_what_the_reference_gives_without_elements) {
  for (Opened& opened : opened_backends()) {
    for (const Sample& sample : GetParam()->samples()) {
      if (sample.op.info().traits.random) continue;
      std::set<std::int64_t> extents;
      for (const Type& type : sample.inputs)
        for (const std::int64_t extent : type.dims()) extents.insert(extent);
      // Scores of heads without elements are divided by the root of nothing.
      if (sample.op.is<op::Attention>()) extents.erase(sample.inputs[0].dims().back());
      for (const std::int64_t extent : extents)
        check_sample(opened, without_elements(sample, extent));
    }
  }
}

std::vector<const OpInfo*> ops_with_samples() {
  std::vector<const OpInfo*> ops;
  for (const OpInfo* info : all_ops())
    if (!info->samples().empty()) ops.push_back(info);
  return ops;
}

INSTANTIATE_TEST_SUITE_P(table, Conformance, ::testing::ValuesIn(ops_with_samples()),
                         [](const auto& parameter) { return std::string(parameter.param->name); });

TEST(backends, cpu_and_reference_are_opened) {
  std::set<std::string> names;
  for (const Opened& opened : opened_backends()) names.insert(opened.name);
  EXPECT_EQ(names, (std::set<std::string>{"cpu", "reference"}));
}

/// Ops of which some sample runs by reference evaluation on the host, on worker 0. The null backend
/// plans as the CPU does, without making kernels.
std::set<std::string> evaluated_on_the_host() {
  const auto backend = checking_backends()[1].open({}).value();
  std::set<std::string> names;
  for (const OpInfo* info : ops_with_samples()) {
    for (const Sample& sample : info->samples()) {
      const SampleProgram program = program_of(sample, sample_inputs(sample));
      const auto hir = specialised(program.graph, {}, {});
      if (!hir.ok() || !is_static(*hir)) continue;
      const auto compiled = compile_static(*backend, *hir, {});
      if (!compiled.ok()) continue;
      for (const plan::HostCall& call : compiled->executable->plan().host_calls) {
        if (call.work.items == 0) names.insert(std::string(call.op.name()));
      }
    }
  }
  return names;
}

// The list is explicit so that it can only get shorter knowingly.
TEST(backends, the_cpu_evaluates_only_these_on_the_host) {
  EXPECT_EQ(evaluated_on_the_host(),
            (std::set<std::string>{"cast", "conv", "cumulative", "dot_general", "reduce",
                                   "unpack_bits", "window_reduce"}));
}

TEST(backends, null_plans_and_computes_nothing) {
  Graph graph;
  const Value x = graph.input("x", f32, {2, 3});
  graph.output("y", softmax(x + x));
  for (const BackendEntry& entry : checking_backends()) {
    if (entry.name != "null") continue;
    auto backend = entry.open({}).value();
    StaticProgram program = compile_static(*backend, graph, {}).value();
    EXPECT_FALSE(program.executable->plan().steps.empty());
    const std::vector<float> values(6, 1);
    const void* slots[] = {values.data()};
    EXPECT_TRUE(program.executable->run(slots).ok());
    const auto& buffer =
        program.executable->plan()
            .buffers[static_cast<std::size_t>(program.executable->plan().outputs[0])];
    EXPECT_EQ(program.executable->arena()[buffer.offset], std::byte{0});
  }
}

}  // namespace
}  // namespace rlx
