// Random graphs: what fuses computes the same as the reference, and no fusion makes a plan dearer.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "graph/op_info.hpp"
#include "rlx/rlx.hpp"

namespace rlx {
namespace {

/// Values of [4,6,8] and what broadcasts to it, through maps, reductions, products and views.
class RandomGraph {
 public:
  explicit RandomGraph(unsigned seed) : random_(seed) {
    for (const Shape& shape :
         {Shape{4, 6, 8}, Shape{4, 6, 8}, Shape{4, 1, 8}, Shape{1, 1, 8}, Shape{4, 6, 1}})
      values_.push_back(graph.input("x" + std::to_string(values_.size()), f32, shape));
    weight_ = graph.constant(filled({8, 8}));
    for (int i = 0; i < 24; ++i) values_.push_back(next());
    for (int i = 0; i < 3; ++i) {
      const std::size_t index = values_.size() - 1 - pick(6);
      graph.output("y" + std::to_string(i), values_[index]);
    }
  }

  Tensor filled(const Dims& dims) {
    std::uniform_real_distribution<float> noise(-1, 1);
    std::vector<float> data(static_cast<std::size_t>(element_count(dims)));
    for (float& value : data) value = noise(random_);
    return Tensor::of<float>(dims, std::span<const float>(data));
  }

  Graph graph;

 private:
  std::size_t pick(std::size_t count) {
    return std::uniform_int_distribution<std::size_t>(0, count - 1)(random_);
  }
  Value any() {
    return values_[values_.size() - 1 - pick(std::min<std::size_t>(values_.size(), 9))];
  }
  Value full() {
    for (int i = 0; i < 20; ++i) {
      const Value value = any();
      if (value.shape() == Shape{4, 6, 8}) return value;
    }
    return values_[0];
  }

  Value next() {
    switch (pick(12)) {
      case 0: return any() + any();
      case 1: return any() * full();
      case 2: return abs(any());
      case 3: return sigmoid(any());
      case 4: return max(full(), any());
      case 5: return mean(full(), {2}, true);
      case 6: return sum(full(), {1}, true) * graph.constant(f32, 0.125);
      case 7: return matmul(full(), weight_) * graph.constant(f32, 0.25);
      case 8: return reverse_rows(full());
      case 11: return matmul(tanh(full() + any()), weight_);
      case 9:
        return concat({slice(full(), {0, 0, 0}, {4, 2, 8}), slice(full(), {0, 2, 0}, {4, 6, 8})},
                      1);
      default: {
        const Value x = full();
        const Value e = exp(x - max_over(x, {2}, true));
        return e / sum(e, {2}, true);
      }
    }
  }
  Value reverse_rows(Value x) {
    return transpose(reshape(transpose(x, {1, 0, 2}), {6, 4, 8}), {1, 0, 2});
  }

  std::mt19937 random_;
  std::vector<Value> values_;
  Value weight_;
};

void expect_near(const Tensor& got, const Tensor& wanted, unsigned seed) {
  const std::span<const float> a = got.as<float>(), b = wanted.as<float>();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(a[i], b[i], 1e-4f * (1 + std::abs(b[i]))) << "seed " << seed << " element " << i;
}

TEST(FusionRandom, fused_plans_compute_what_the_reference_does) {
  Session session(Device::cpu);
  for (unsigned seed = 1; seed <= 40; ++seed) {
    RandomGraph random(seed);
    std::vector<Tensor> inputs;
    std::vector<NamedInput> named;
    for (const Node& node : random.graph.nodes()) {
      if (const auto* input = node.op.as<op::Input>()) {
        inputs.push_back(random.filled(node.results[0].dims()));
        named.emplace_back(input->name, inputs.back());
      }
    }
    const auto wanted = evaluate_graph(random.graph, inputs).value();
    CompiledGraph fused = session.compile(random.graph).value();
    // Inputs that nothing reads are still inputs.
    const Outputs got = fused.run(std::span<const NamedInput>(named)).value();
    for (std::size_t i = 0; i < wanted.size(); ++i) expect_near(got[i], wanted[i], seed);

    const CompiledGraph apart = session.compile(random.graph, {.disable_fusion = true}).value();
    const GraphIoProfile with = profile_plan_io(fused), without = profile_plan_io(apart);
    EXPECT_LE(with.kernel_launches, without.kernel_launches) << seed;
    EXPECT_LE(with.device_traffic_bytes, without.device_traffic_bytes) << seed;
  }
}

}  // namespace
}  // namespace rlx
