// Composites found again: what becomes one, what must be left alone, and that values stay.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "passes/passes.hpp"
#include "rlx/rlx.hpp"
#include "same_values.hpp"

namespace rlx {
namespace {

using testing::count;

/// The recognised graph; its values on noise must be those of `graph`.
Graph recognised(const Graph& graph, double tolerance = 2e-6) {
  Graph found = passes::recognise(graph).value();
  testing::expect_same_values(graph, found, tolerance, tolerance, {-2, 2, 5});
  return found;
}

/// A graph of one input x [3, 4, 6] and one output.
Graph of_x(const std::function<Value(Graph&, Value)>& build) {
  Graph graph;
  const Value x = graph.input("x", f32, {3, 4, 6});
  graph.output("y", build(graph, x));
  return graph;
}

Value number(Graph& graph, double value) { return graph.constant(f32, value); }

TEST(Recognise, gelu_in_every_order) {
  const std::function<Value(Graph&, Value)> forms[] = {
      [](Graph& g, Value x) {  // PyTorch
        return x * (erf(x / number(g, 1.4142135)) + number(g, 1)) * number(g, 0.5);
      },
      [](Graph& g, Value x) {  // TensorFlow
        return number(g, 0.5) * x * (number(g, 1) + erf(x * number(g, 0.70710677)));
      },
      [](Graph& g, Value x) {
        return x * (number(g, 0.5) * (erf(number(g, 0.70710678) * x) + number(g, 1)));
      },
      [](Graph& g, Value x) {
        return x * (number(g, 0.5) + number(g, 0.5) * erf(x / number(g, 1.41421354)));
      },
      [](Graph& g, Value x) {
        return x * (erf(x / number(g, 1.4142135)) + number(g, 1)) / number(g, 2);
      },
  };
  for (const auto& form : forms) {
    const Graph found = recognised(of_x(form));
    EXPECT_EQ(count<op::Gelu>(found), 1);
    EXPECT_EQ(count<op::Erf>(found), 0);
  }
}

/// tanh(log(1 + e^x))
Value curve_of_mish(Graph& graph, Value x) { return tanh(graph.add_one(op::Softplus{}, {x})); }

TEST(Recognise, MishInEitherOrder) {
  const std::function<Value(Graph&, Value)> forms[] = {
      [](Graph& g, Value x) { return x * curve_of_mish(g, x); },
      [](Graph& g, Value x) { return curve_of_mish(g, x) * x; },
  };
  for (const auto& form : forms) {
    const Graph found = recognised(of_x(form));
    EXPECT_EQ(count<op::Mish>(found), 1);
    EXPECT_EQ(count<op::Tanh>(found) + count<op::Softplus>(found), 0);
  }
}

TEST(Recognise, MishOfAnotherValueOrWithAReadCurveStays) {
  const Graph other =
      of_x([](Graph& g, Value x) { return x * curve_of_mish(g, x + number(g, 1)); });
  EXPECT_EQ(count<op::Mish>(recognised(other)), 0);
  const Graph shared = of_x([](Graph& g, Value x) {
    const Value curve = curve_of_mish(g, x);
    return x * curve + curve;
  });
  EXPECT_EQ(count<op::Mish>(recognised(shared)), 0);
}

TEST(Recognise, gelu_by_tanh_in_every_order) {
  const std::function<Value(Graph&, Value)> forms[] = {
      [](Graph& g, Value x) {  // GPT-2
        const Value inside = x + number(g, 0.044715) * pow(x, number(g, 3));
        return number(g, 0.5) * x * (number(g, 1) + tanh(number(g, 0.7978845608) * inside));
      },
      [](Graph& g, Value x) {  // Gemma
        const Value inside =
            x * number(g, 0.79788456) * (number(g, 1) + x * x * number(g, 0.044715));
        return x * ((tanh(inside) + number(g, 1)) * number(g, 0.5));
      },
  };
  for (const auto& form : forms) {
    const Graph found = recognised(of_x(form));
    EXPECT_EQ(count<op::Gelu>(found), 1);
    EXPECT_EQ(count<op::Tanh>(found), 0);
  }
}

TEST(Recognise, what_is_nearly_gelu_stays) {
  const std::function<Value(Graph&, Value)> forms[] = {
      [](Graph& g, Value x) {  // another constant
        return x * (erf(x / number(g, 1.5)) + number(g, 1)) * number(g, 0.5);
      },
      [](Graph& g, Value x) {  // twice as much
        return x * (erf(x / number(g, 1.4142135)) + number(g, 1));
      },
      [](Graph& g, Value x) {  // the curve of something else
        return x * (erf(exp(x) / number(g, 1.4142135)) + number(g, 1)) * number(g, 0.5);
      },
      [](Graph& g, Value x) {  // not one plus
        return x * (erf(x / number(g, 1.4142135)) + number(g, 2)) * number(g, 0.5);
      },
      [](Graph& g, Value x) {  // a square where the cube should be
        const Value inside = x + number(g, 0.044715) * x * x;
        return number(g, 0.5) * x * (number(g, 1) + tanh(number(g, 0.7978845608) * inside));
      },
      [](Graph& g, Value x) {  // the curve is read elsewhere, too
        const Value curve = erf(x / number(g, 1.4142135));
        g.output("curve", curve);
        return x * (curve + number(g, 1)) * number(g, 0.5);
      },
  };
  for (const auto& form : forms) EXPECT_EQ(count<op::Gelu>(recognised(of_x(form))), 0);
}

TEST(Recognise, layer_norm_in_every_order) {
  const std::function<Value(Graph&, Value)> forms[] = {
      [](Graph& g, Value x) {  // PyTorch
        const Value d = x - mean(x, {-1}, true);
        return d / sqrt(mean(pow(d, number(g, 2)), {-1}, true) + number(g, 1e-5));
      },
      [](Graph& g, Value x) {
        const Value d = x - mean(x, {2}, true), again = x - mean(x, {2}, true);
        return d * rsqrt(number(g, 1e-5) + mean(again * again, {2}, true));
      },
      [](Graph& g, Value x) {
        const Value d = x - mean(x, {1, 2}, true);
        const Value root = sqrt(mean(d * d, {1, 2}, true) + number(g, 1e-3));
        return number(g, 1) / root * d;
      },
  };
  for (const auto& form : forms) {
    const Graph found = recognised(of_x(form), 2e-5);
    EXPECT_EQ(count<op::LayerNorm>(found), 1);
    EXPECT_EQ(count<op::Sqrt>(found), 0);
  }
}

TEST(Recognise, rms_norm_in_every_order) {
  const std::function<Value(Graph&, Value)> forms[] = {
      [](Graph& g, Value x) { return x / sqrt(mean(x * x, {-1}, true) + number(g, 1e-6)); },
      [](Graph& g, Value x) {
        return x * reciprocal(sqrt(mean(pow(x, number(g, 2)), {-1}, true) + number(g, 1e-6)));
      },
      [](Graph& g, Value x) { return rsqrt(mean(x * x, {-1}, true) + number(g, 1e-6)) * x; },
  };
  for (const auto& form : forms) EXPECT_EQ(count<op::RmsNorm>(recognised(of_x(form), 2e-5)), 1);
}

TEST(Recognise, what_is_nearly_a_norm_stays) {
  const std::function<Value(Graph&, Value)> forms[] = {
      [](Graph& g, Value x) {  // a leading axis
        return x / sqrt(mean(x * x, {1}, true) + number(g, 1e-6));
      },
      [](Graph& g, Value x) {  // a sum
        return x / sqrt(sum(x * x, {-1}, true) + number(g, 1e-6));
      },
      [](Graph& g, Value x) {  // the deviation of other axes
        const Value d = x - mean(x, {1}, true);
        return d / sqrt(mean(d * d, {-1}, true) + number(g, 1e-6)) + number(g, 0);
      },
      [](Graph& g, Value x) {  // of something else
        return exp(x) / sqrt(mean(x * x, {-1}, true) + number(g, 1e-6));
      },
  };
  for (std::size_t i = 0; i < std::size(forms); ++i) {
    const Graph found = recognised(of_x(forms[i]), 2e-5);
    EXPECT_EQ(count<op::LayerNorm>(found), 0) << i;
    // Case 2 is a root mean square of the differences, which have their own name.
    EXPECT_EQ(count<op::RmsNorm>(found), i == 2 ? 1 : 0) << i;
  }
}

TEST(Recognise, scales_of_views_move_behind_the_product) {
  Graph graph;
  const Value q = transpose(graph.input("q", f32, {2, 5, 3, 4}), {0, 2, 1, 3}),
              k = transpose(graph.input("k", f32, {2, 6, 3, 4}), {0, 2, 3, 1});
  graph.output("y", matmul(q * number(graph, 0.7), k * number(graph, 0.6)));
  EXPECT_EQ(count<op::Mul>(recognised(graph)), 1);

  // What a kernel makes anyway is scaled there.
  Graph made;
  const Value x = exp(made.input("x", f32, {4, 5}));
  made.output("y", matmul(x * number(made, 0.5), made.input("w", f32, {5, 30})));
  const Graph same = recognised(made);
  EXPECT_TRUE(same.nodes().back().op.is<op::DotGeneral>());
}

TEST(Recognise, division_by_a_number_is_a_product) {
  EXPECT_EQ(count<op::Div>(recognised(of_x([](Graph& g, Value x) { return x / number(g, 3); }))),
            0);
  const std::function<Value(Graph&, Value)> others[] = {
      [](Graph& g, Value x) { return number(g, 3) / (x * x + number(g, 1)); },
      [](Graph& g, Value x) { return x / (x * x + number(g, 1)); },
      [](Graph& g, Value x) { return x / number(g, 1e-35); },
  };
  for (const auto& other : others) EXPECT_EQ(count<op::Div>(recognised(of_x(other))), 1);
}

}  // namespace
}  // namespace rlx
