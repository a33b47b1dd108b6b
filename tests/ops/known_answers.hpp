// Short ways to evaluate an op and to look at what came out.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "graph/op_info.hpp"

namespace rlx::testing {

inline std::vector<Tensor> run(const Op& op, const std::vector<Tensor>& inputs) {
  return evaluate(op, inputs).value();
}

template <class T>
void expect_tensor(const Tensor& actual, const Dims& dims, const std::vector<T>& values) {
  EXPECT_EQ(actual.dims(), dims);
  const auto elements = actual.as<T>();
  EXPECT_EQ(std::vector<T>(elements.begin(), elements.end()), values);
}

template <class T>
void expect_near(const Tensor& actual, const Dims& dims, const std::vector<T>& values,
                 double tolerance) {
  EXPECT_EQ(actual.dims(), dims);
  const auto elements = actual.as<T>();
  ASSERT_EQ(elements.size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(elements[i], values[i], tolerance) << "element " << i;
}

/// 0, 1, 2, ... of those dims.
template <class T>
Tensor counting(Dims dims) {
  std::vector<T> values(static_cast<std::size_t>(element_count(dims)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(i);
  return Tensor::of<T>(std::move(dims), std::span<const T>(values));
}

/// The message with which the op refuses inputs of those types.
inline std::string refusal(const Op& op, const std::vector<Type>& types) {
  std::vector<const Type*> pointers;
  for (const Type& type : types) pointers.push_back(&type);
  const auto result = op.info().infer(op.attributes(), InferArgs{pointers});
  return result.ok() ? "accepted" : result.error().message;
}

/// The types that the op infers, as texts.
inline std::vector<std::string> inferred(const Op& op, const std::vector<Type>& types) {
  std::vector<const Type*> pointers;
  for (const Type& type : types) pointers.push_back(&type);
  std::vector<std::string> texts;
  const std::vector<Type> results = op.info().infer(op.attributes(), InferArgs{pointers}).value();
  for (const Type& type : results) texts.push_back(type.text());
  return texts;
}

}  // namespace rlx::testing
