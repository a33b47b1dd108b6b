// Random numbers. Draws are Philox; they need not be another library's.
#include <bit>

#include "import/onnx/build.hpp"
#include "import/onnx/families.hpp"

namespace rlx::onnx {
namespace {

// A given seed fixes the draws; without one they are fixed too, by a number of our own.
std::uint64_t seed_of(NodeContext& c) {
  const auto seed = c.optional_real("seed");
  return seed ? std::bit_cast<std::uint64_t>(*seed) : 0x5eed;
}

void uniform(NodeContext& c, DType dtype, Shape shape) {
  const double low = c.real("low", 0), high = c.real("high", 1);
  c.set(c.add(op::RandomUniform{dtype, std::move(shape), low, high, seed_of(c)}, {}));
}

void normal(NodeContext& c, DType dtype, Shape shape) {
  const double mean = c.real("mean", 0), deviation = c.real("scale", 1);
  c.set(c.add(op::RandomNormal{dtype, std::move(shape), mean, deviation, seed_of(c)}, {}));
}

Shape shape_attribute(NodeContext& c) {
  const Axes dims = c.integers("shape");
  checked_elements(dims, "The shape");
  return to_shape(dims);
}

void random_uniform(NodeContext& c) {
  uniform(c, c.element_type("dtype", f32), shape_attribute(c));
}
void random_normal(NodeContext& c) { normal(c, c.element_type("dtype", f32), shape_attribute(c)); }

void random_uniform_like(NodeContext& c) {
  uniform(c, c.element_type("dtype", c.in(0).dtype()), c.in(0).shape());
}

void random_normal_like(NodeContext& c) {
  normal(c, c.element_type("dtype", c.in(0).dtype()), c.in(0).shape());
}

// 1 with the probability that x holds.
void bernoulli(NodeContext& c) {
  const Value x = c.in(0);
  const Value draw = c.add(op::RandomUniform{x.dtype(), x.shape(), 0, 1, seed_of(c)}, {});
  c.set(cast(less(draw, x), c.element_type("dtype", x.dtype())));
}

constexpr OpEntry entries[] = {
    {"RandomUniform", 1, random_uniform}, {"RandomUniformLike", 1, random_uniform_like},
    {"RandomNormal", 1, random_normal},   {"RandomNormalLike", 1, random_normal_like},
    {"Bernoulli", 15, bernoulli},
};

}  // namespace

OpEntries random_entries() { return entries; }

}  // namespace rlx::onnx
