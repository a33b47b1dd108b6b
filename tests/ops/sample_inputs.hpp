// Inputs of an op's samples: what the sample fixes, and seeded noise for the rest.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "graph/elementwise_eval.hpp"
#include "graph/op_info.hpp"

namespace rlx::testing {

inline Tensor noise(const Type& type, double low, double high, std::mt19937& generator) {
  Tensor tensor(type.dtype, type.dims());
  const bool is_unsigned = is_unsigned_integer(type.dtype);
  std::uniform_real_distribution<double> real(low, high);
  std::uniform_int_distribution<std::int64_t> whole(
      static_cast<std::int64_t>(is_unsigned ? std::max(low, 0.0) : low),
      static_cast<std::int64_t>(high));
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    ScalarDatum datum;
    datum.number = {real(generator), is_complex(type.dtype) ? real(generator) : 0.0};
    datum.integer =
        type.dtype == boolean ? static_cast<std::int64_t>(generator() % 2) : whole(generator);
    store_datum(type.dtype, tensor.mutable_data(), i, datum);
  }
  return tensor;
}

/// Noise of f32 in [-1, 1).
inline Tensor noise(Shape shape, std::uint32_t seed) {
  std::mt19937 generator(seed);
  return noise({f32, std::move(shape)}, -1, 1, generator);
}

/// One tensor for each input of the sample; empty where it is left out.
inline std::vector<Tensor> sample_inputs(const Sample& sample, std::uint32_t seed = 1) {
  std::mt19937 generator(seed);
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
    if (std::count(sample.absent.begin(), sample.absent.end(), static_cast<int>(i))) {
      inputs.emplace_back();
    } else if (i < sample.values.size() && sample.values[i]) {
      inputs.push_back(*sample.values[i]);
    } else {
      inputs.push_back(noise(sample.inputs[i], sample.low, sample.high, generator));
    }
  }
  return inputs;
}

}  // namespace rlx::testing
