// Channels-last convolutions of noise by constant noise.
#pragma once

#include "rlx/rlx.hpp"
#include "same_values.hpp"

namespace rlx::testing {

struct ConvolutionCase {
  Dims image, filter;  ///< [N, .., C], [.., C, K]
  op::Conv conv;
};

inline Graph convolution(const ConvolutionCase& c) {
  Graph graph;
  std::mt19937 generator(3);
  const Type w{f32, Shape(c.filter.begin(), c.filter.end())};
  const Value x = graph.input("x", f32, Shape(c.image.begin(), c.image.end()));
  op::Conv conv = c.conv;
  conv.channels_last = true;
  graph.output("y", graph.add_one(conv, {x, graph.constant(noise(w, -1, 1, generator))}));
  return graph;
}

}  // namespace rlx::testing
