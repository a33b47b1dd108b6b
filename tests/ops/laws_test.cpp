// Laws over the op table: every op keeps them for each of its samples, so a new op is covered
// without editing this file. That the text form reads back is a law of tests/graph. Laws of
// derivative rules go behind body_equals_evaluation, over the same samples.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "ops/sample_inputs.hpp"

namespace rlx {
namespace {

using testing::sample_inputs;

class OpLaws : public ::testing::TestWithParam<const OpInfo*> {
 protected:
  const OpInfo& info() const { return *GetParam(); }
  std::vector<Sample> samples() const { return info().samples(); }
};

// Of the ops that have two definitions: a body of other ops, and an evaluation of their own.
class CompositeLaws : public OpLaws {};

std::string describe(const Sample& sample) {
  std::string text(sample.op.name());
  for (const Type& type : sample.inputs) text += " " + type.text();
  return text;
}

std::vector<const Type*> pointers_to(const Sample& sample, const std::vector<Type>& types) {
  std::vector<const Type*> pointers;
  for (std::size_t i = 0; i < types.size(); ++i) {
    const bool absent =
        std::count(sample.absent.begin(), sample.absent.end(), static_cast<int>(i)) > 0;
    pointers.push_back(absent ? nullptr : &types[i]);
  }
  return pointers;
}

Result<std::vector<Type>> infer(const Sample& sample, const std::vector<Type>& types) {
  return sample.op.info().infer(sample.op.attributes(), InferArgs{pointers_to(sample, types)});
}

bool matches(const Type& type, const Tensor& tensor) {
  if (type.dtype != tensor.dtype() || type.shape.size() != tensor.dims().size()) return false;
  for (std::size_t i = 0; i < type.shape.size(); ++i) {
    if (!compatible(type.shape[i], Dim(tensor.dims()[i]))) return false;
  }
  return true;
}

TEST_P(OpLaws, is_found_by_its_name) { EXPECT_EQ(find_op(info().name), &info()); }

TEST_P(OpLaws, evaluates_every_sample_to_the_inferred_types) {
  for (const Sample& sample : samples()) {
    SCOPED_TRACE(describe(sample));
    const auto types = infer(sample, sample.inputs);
    ASSERT_TRUE(types.ok()) << types.error().message;
    if (info().traits.shape_operands && !info().eval && !info().body && !info().eval_dynamic)
      continue;
    const auto results = evaluate(sample.op, sample_inputs(sample));
    ASSERT_TRUE(results.ok()) << results.error().message;
    ASSERT_EQ(results->size(), types->size());
    for (std::size_t i = 0; i < types->size(); ++i) {
      EXPECT_TRUE(matches((*types)[i], (*results)[i]))
          << "result " << i << " is inferred as " << (*types)[i].text() << " and evaluated to "
          << Type{(*results)[i].dtype(), to_shape((*results)[i].dims())}.text();
    }
  }
}

TEST_P(OpLaws, evaluates_the_same_twice) {
  for (const Sample& sample : samples()) {
    SCOPED_TRACE(describe(sample));
    const auto first = evaluate(sample.op, sample_inputs(sample)),
               second = evaluate(sample.op, sample_inputs(sample));
    if (!first.ok()) continue;
    for (std::size_t i = 0; i < first->size(); ++i) {
      const Tensor &a = (*first)[i], &b = (*second)[i];
      EXPECT_TRUE(std::equal(a.data(), a.data() + a.bytes(), b.data(), b.data() + b.bytes()))
          << "result " << i;
    }
  }
}

// The largest difference of two results, relative to the size of the numbers compared; NaN equals
// NaN.
double difference(const Tensor& a, const Tensor& b) {
  double worst = 0;
  for (std::int64_t i = 0; i < a.elements(); ++i) {
    const ScalarDatum x = load_datum(a.dtype(), a.data(), i),
                      y = load_datum(b.dtype(), b.data(), i);
    if (x.integer != y.integer)
      worst = std::max(worst,
                       std::abs(static_cast<double>(x.integer) - static_cast<double>(y.integer)));
    if (x.number == y.number || (std::isnan(x.number.real()) && std::isnan(y.number.real())))
      continue;
    const double gap = std::abs(x.number - y.number) / std::max(1.0, std::abs(x.number));
    worst = std::isnan(gap) ? INFINITY : std::max(worst, gap);
  }
  return worst;
}

double rounding_of(DType dtype) {
  switch (dtype) {
    case DType::f16: return 5e-3;
    case DType::bf16: return 4e-2;
    case DType::f8e4m3fn: return 0.2;
    case DType::f8e5m2: return 0.4;
    case DType::f64:
    case DType::c128: return 1e-9;
    // A quantised value may fall on the other side of a half.
    default: return is_integer(dtype) ? 1 : 2e-5;
  }
}

Result<std::vector<Tensor>> evaluate_body_of(const Sample& sample,
                                             const std::vector<Tensor>& inputs) {
  Graph graph;
  std::vector<Value> values;
  std::vector<Tensor> present;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].empty()) {
      values.emplace_back();
      continue;
    }
    values.push_back(graph.input(std::to_string(i), inputs[i].dtype(), to_shape(inputs[i].dims())));
    present.push_back(inputs[i]);
  }
  const Values results = sample.op.info().body(sample.op.attributes(), graph, values);
  for (std::size_t i = 0; i < results.size(); ++i) graph.output(std::to_string(i), results[i]);
  return evaluate_graph(graph, present);
}

TEST_P(CompositeLaws, body_equals_evaluation) {
  for (const Sample& sample : samples()) {
    SCOPED_TRACE(describe(sample));
    const std::vector<Tensor> inputs = sample_inputs(sample);
    const auto direct = evaluate(sample.op, inputs), composed = evaluate_body_of(sample, inputs);
    ASSERT_TRUE(direct.ok()) << direct.error().message;
    ASSERT_TRUE(composed.ok()) << composed.error().message;
    ASSERT_EQ(direct->size(), composed->size());
    for (std::size_t i = 0; i < direct->size(); ++i) {
      ASSERT_EQ((*direct)[i].dtype(), (*composed)[i].dtype()) << "result " << i;
      ASSERT_EQ((*direct)[i].dims(), (*composed)[i].dims()) << "result " << i;
      EXPECT_LE(difference((*direct)[i], (*composed)[i]),
                std::max(sample.tolerance, rounding_of((*direct)[i].dtype())))
          << "result " << i;
    }
  }
}

// A refusal must be a sentence; what is accepted must have as many results as before.
void expect_sentence_or_types(const Sample& sample, const std::vector<Type>& types,
                              std::size_t results) {
  std::string inputs;
  for (const Type& type : types) inputs += " " + type.text();
  SCOPED_TRACE("with" + inputs);
  try {
    const auto inferred = infer(sample, types);
    if (inferred.ok()) {
      EXPECT_EQ(inferred->size(), results);
      return;
    }
    EXPECT_THAT(inferred.error().message, ::testing::EndsWith("."));
    EXPECT_THAT(inferred.error().kind,
                ::testing::AnyOf(ErrorKind::bad_input, ErrorKind::unsupported));
  } catch (const std::exception& exception) {
    ADD_FAILURE() << "infer threw: " << exception.what();
  }
}

TEST_P(OpLaws, answers_wrong_ranks_dtypes_and_symbols_without_throwing) {
  for (const Sample& sample : samples()) {
    SCOPED_TRACE(describe(sample));
    const std::size_t results = infer(sample, sample.inputs).value().size();
    for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
      std::vector<Type> types = sample.inputs;
      const auto attempt = [&](const Type& type) {
        types[i] = type;
        expect_sentence_or_types(sample, types, results);
      };
      const Type original = types[i];
      for (int dtype = 0; dtype < dtype_count; ++dtype)
        attempt({static_cast<DType>(dtype), original.shape});
      attempt({original.dtype, {}});
      Type longer = original, shorter = original, other = original, empty = original;
      longer.shape.insert(longer.shape.begin(), Dim(3));
      attempt(longer);
      if (!shorter.shape.empty()) shorter.shape.pop_back();
      attempt(shorter);
      for (std::size_t d = 0; d < original.shape.size(); ++d) {
        other = original;
        for (const Dim& dim : {Dim("n"), Dim::unknown(), Dim("(n*2)"), Dim(1), Dim(0), Dim(7)}) {
          other.shape[d] = dim;
          attempt(other);
        }
      }
      for (Dim& dim : empty.shape) dim = Dim::unknown();
      attempt(empty);
    }
  }
}

TEST_P(OpLaws, refuses_a_wrong_number_of_inputs) {
  for (const Sample& sample : samples()) {
    Graph graph;
    std::vector<ValueId> ids;
    for (std::size_t i = 0; i < sample.inputs.size(); ++i)
      ids.push_back(
          graph.input(std::to_string(i), sample.inputs[i].dtype, sample.inputs[i].shape).id());
    if (info().min_inputs > 0) {
      std::vector<ValueId> fewer(ids.begin(), ids.begin() + info().min_inputs - 1);
      EXPECT_FALSE(graph.try_add(sample.op, fewer, "", "").ok()) << describe(sample);
    }
    if (info().max_inputs >= 0) {
      const Value extra = graph.input("extra", f32, {});
      std::vector<ValueId> more(static_cast<std::size_t>(info().max_inputs) + 1, extra.id());
      EXPECT_FALSE(graph.try_add(sample.op, more, "", "").ok()) << describe(sample);
    }
  }
}

// Symbols in place of numbers must infer what the numbers infer, or something that they may become.
TEST_P(OpLaws, infers_with_symbols_what_numbers_may_become) {
  for (const Sample& sample : samples()) {
    SCOPED_TRACE(describe(sample));
    std::vector<Type> types = sample.inputs;
    for (Type& type : types) {
      for (Dim& dim : type.shape) {
        if (dim.value() > 1) dim = Dim("s" + dim.text());
      }
    }
    const auto symbolic = infer(sample, types);
    const auto numeric = infer(sample, sample.inputs);
    if (!symbolic.ok()) continue;
    for (std::size_t i = 0; i < numeric->size(); ++i) {
      ASSERT_EQ((*symbolic)[i].dtype, (*numeric)[i].dtype);
      ASSERT_EQ((*symbolic)[i].rank(), (*numeric)[i].rank());
      for (int d = 0; d < (*numeric)[i].rank(); ++d) {
        const auto axis = static_cast<std::size_t>(d);
        EXPECT_TRUE(compatible((*symbolic)[i].shape[axis], (*numeric)[i].shape[axis]))
            << (*symbolic)[i].text() << " against " << (*numeric)[i].text();
      }
    }
  }
}

std::vector<const OpInfo*> ops_where(bool (*holds)(const OpInfo&)) {
  std::vector<const OpInfo*> ops;
  for (const OpInfo* info : all_ops()) {
    if (holds(*info)) ops.push_back(info);
  }
  return ops;
}

std::string name_of_op(const ::testing::TestParamInfo<const OpInfo*>& parameter) {
  return std::string(parameter.param->name);
}

INSTANTIATE_TEST_SUITE_P(table, OpLaws,
                         ::testing::ValuesIn(ops_where([](const OpInfo&) { return true; })),
                         name_of_op);
INSTANTIATE_TEST_SUITE_P(table, CompositeLaws, ::testing::ValuesIn(ops_where([](const OpInfo& op) {
                           return op.body && op.eval;
                         })),
                         name_of_op);

TEST(op_table, names_every_op_once) {
  std::set<std::string_view> names;
  for (const OpInfo* info : all_ops()) {
    EXPECT_TRUE(names.insert(info->name).second) << info->name;
    EXPECT_FALSE(info->family.empty()) << info->name;
  }
  EXPECT_EQ(find_op("no_such_op"), nullptr);
}

}  // namespace
}  // namespace rlx
