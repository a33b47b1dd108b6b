// Activation functions: elementwise composites, each stated once under its equation.
#include "ops/elementwise.hpp"

namespace rlx {
namespace {

/// One float operand and the op's own fields.
template <class A>
using Activation = UnaryRules<A, DTypes::floats>;

using Operands = std::span<const ScalarValue>;
ScalarValue sigmoid_of(ScalarValue x) { return 1.0 / (1.0 + scalar::exp(-x)); }

}  // namespace

// max(x, 0)
template <>
struct Rules<op::Relu> : UnaryRules<op::Relu, DTypes::numbers> {
  static constexpr std::string_view name = "relu";
  static ScalarValue scalar(const op::Relu&, ScalarBuilder&, Operands x) {
    return scalar::max(x[0], 0.0);
  }
};
RLX_OP(op::Relu, "activation")

// 1 / (1 + exp(-x))
template <>
struct Rules<op::Sigmoid> : Activation<op::Sigmoid> {
  static constexpr std::string_view name = "sigmoid";
  static ScalarValue scalar(const op::Sigmoid&, ScalarBuilder&, Operands x) {
    return sigmoid_of(x[0]);
  }
};
RLX_OP(op::Sigmoid, "activation")

// x / (1 + |x|)
template <>
struct Rules<op::Softsign> : Activation<op::Softsign> {
  static constexpr std::string_view name = "softsign";
  static ScalarValue scalar(const op::Softsign&, ScalarBuilder&, Operands x) {
    return x[0] / (1.0 + scalar::abs(x[0]));
  }
};
RLX_OP(op::Softsign, "activation")

// log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|))
template <>
struct Rules<op::Softplus> : Activation<op::Softplus> {
  static constexpr std::string_view name = "softplus";
  static ScalarValue scalar(const op::Softplus&, ScalarBuilder&, Operands x) {
    return scalar::max(x[0], 0.0) + scalar::log1p(scalar::exp(-scalar::abs(x[0])));
  }
};
RLX_OP(op::Softplus, "activation")

// x * tanh(softplus(x)) = x * w / (w + 2) for w = e^x (e^x + 2): tanh(log(a)) = (a^2 - 1) /
// (a^2 + 1). From 20 on the factor is 1 in every type.
template <>
struct Rules<op::Mish> : Activation<op::Mish> {
  static constexpr std::string_view name = "mish";
  static ScalarValue scalar(const op::Mish&, ScalarBuilder&, Operands x) {
    const ScalarValue power = scalar::exp(scalar::min(x[0], 20.0));
    const ScalarValue w = power * (power + 2.0);
    return x[0] * (w / (w + 2.0));
  }
};
RLX_OP(op::Mish, "activation")

// x * max(0, min(1, x/6 + 1/2))
template <>
struct Rules<op::HardSwish> : Activation<op::HardSwish> {
  static constexpr std::string_view name = "hard_swish";
  static ScalarValue scalar(const op::HardSwish&, ScalarBuilder&, Operands x) {
    return x[0] * scalar::max(scalar::min(x[0] * (1.0 / 6) + 0.5, 1.0), 0.0);
  }
};
RLX_OP(op::HardSwish, "activation")

// x < 0 ? alpha x : x
template <>
struct Rules<op::LeakyRelu> : Activation<op::LeakyRelu> {
  static constexpr std::string_view name = "leaky_relu";
  static constexpr auto fields = std::tuple{field("alpha", &op::LeakyRelu::alpha)};
  static ScalarValue scalar(const op::LeakyRelu& a, ScalarBuilder& builder, Operands x) {
    return builder.select(x[0] < 0.0, x[0] * a.alpha, x[0]);
  }
};
RLX_OP(op::LeakyRelu, "activation")

// x < 0 ? alpha (exp(x) - 1) : x
template <>
struct Rules<op::Elu> : Activation<op::Elu> {
  static constexpr std::string_view name = "elu";
  static constexpr auto fields = std::tuple{field("alpha", &op::Elu::alpha)};
  static ScalarValue scalar(const op::Elu& a, ScalarBuilder& builder, Operands x) {
    return builder.select(x[0] < 0.0, scalar::expm1(x[0]) * a.alpha, x[0]);
  }
};
RLX_OP(op::Elu, "activation")

// max(0, x) + min(0, alpha (exp(x/alpha) - 1))
template <>
struct Rules<op::Celu> : Activation<op::Celu> {
  static constexpr std::string_view name = "celu";
  static constexpr auto fields = std::tuple{field("alpha", &op::Celu::alpha)};
  static ScalarValue scalar(const op::Celu& a, ScalarBuilder&, Operands x) {
    return scalar::max(x[0], 0.0) + scalar::min(scalar::expm1(x[0] / a.alpha) * a.alpha, 0.0);
  }
};
RLX_OP(op::Celu, "activation")

// gamma (x <= 0 ? alpha (exp(x) - 1) : x)
template <>
struct Rules<op::Selu> : Activation<op::Selu> {
  static constexpr std::string_view name = "selu";
  static constexpr auto fields =
      std::tuple{field("alpha", &op::Selu::alpha), field("gamma", &op::Selu::gamma)};
  static ScalarValue scalar(const op::Selu& a, ScalarBuilder& builder, Operands x) {
    return builder.select(x[0] > 0.0, x[0], scalar::expm1(x[0]) * a.alpha) * a.gamma;
  }
};
RLX_OP(op::Selu, "activation")

// x/2 (1 + erf(x / sqrt 2)), or x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
template <>
struct Rules<op::Gelu> : Activation<op::Gelu> {
  static constexpr std::string_view name = "gelu";
  static constexpr auto fields = std::tuple{field("tanh", &op::Gelu::tanh)};
  static ScalarValue scalar(const op::Gelu& a, ScalarBuilder&, Operands x) {
    const ScalarValue half = x[0] * 0.5;
    if (!a.tanh) return half * (1.0 + scalar::erf(x[0] * 0.70710678118654752440));
    const ScalarValue cube = x[0] * x[0] * x[0];
    return half * (1.0 + scalar::tanh((x[0] + cube * 0.044715) * 0.79788456080286535588));
  }
};
RLX_OP(op::Gelu, "activation")

// x sigmoid(beta x)
template <>
struct Rules<op::Swish> : Activation<op::Swish> {
  static constexpr std::string_view name = "swish";
  static constexpr auto fields = std::tuple{field("beta", &op::Swish::beta)};
  static ScalarValue scalar(const op::Swish& a, ScalarBuilder&, Operands x) {
    return x[0] * sigmoid_of(a.beta == 1 ? x[0] : x[0] * a.beta);
  }
};
RLX_OP(op::Swish, "activation")

// max(0, min(1, alpha x + beta))
template <>
struct Rules<op::HardSigmoid> : Activation<op::HardSigmoid> {
  static constexpr std::string_view name = "hard_sigmoid";
  static constexpr auto fields =
      std::tuple{field("alpha", &op::HardSigmoid::alpha), field("beta", &op::HardSigmoid::beta)};
  static ScalarValue scalar(const op::HardSigmoid& a, ScalarBuilder&, Operands x) {
    return scalar::max(scalar::min(x[0] * a.alpha + a.beta, 1.0), 0.0);
  }
};
RLX_OP(op::HardSigmoid, "activation")

// x > alpha ? x : 0
template <>
struct Rules<op::ThresholdedRelu> : Activation<op::ThresholdedRelu> {
  static constexpr std::string_view name = "thresholded_relu";
  static constexpr auto fields = std::tuple{field("alpha", &op::ThresholdedRelu::alpha)};
  static ScalarValue scalar(const op::ThresholdedRelu& a, ScalarBuilder& builder, Operands x) {
    return builder.select(x[0] > a.alpha, x[0], 0.0);
  }
};
RLX_OP(op::ThresholdedRelu, "activation")

// x < -lambd ? x + bias : x > lambd ? x - bias : 0
template <>
struct Rules<op::Shrink> : UnaryRules<op::Shrink, DTypes::numbers> {
  static constexpr std::string_view name = "shrink";
  static constexpr auto fields =
      std::tuple{field("lambd", &op::Shrink::lambd), field("bias", &op::Shrink::bias)};
  static ScalarValue scalar(const op::Shrink& a, ScalarBuilder& builder, Operands x) {
    return builder.select(x[0] < -a.lambd, x[0] + a.bias,
                          builder.select(x[0] > a.lambd, x[0] - a.bias, 0.0));
  }
};
RLX_OP(op::Shrink, "activation")

// x < 0 ? slope x : x
template <>
struct Rules<op::Prelu> : BinaryRules<op::Prelu, DTypes::numbers> {
  static constexpr std::string_view name = "prelu";
  static ScalarValue scalar(const op::Prelu&, ScalarBuilder& builder, Operands x) {
    return builder.select(x[0] < 0.0, x[0] * x[1], x[0]);
  }
};
RLX_OP(op::Prelu, "activation")

OpList activation_ops() {
  static const OpInfo* const list[] = {&info_of<op::Relu>(),        &info_of<op::Sigmoid>(),
                                       &info_of<op::Softsign>(),    &info_of<op::Softplus>(),
                                       &info_of<op::Mish>(),        &info_of<op::HardSwish>(),
                                       &info_of<op::LeakyRelu>(),   &info_of<op::Elu>(),
                                       &info_of<op::Celu>(),        &info_of<op::Selu>(),
                                       &info_of<op::Gelu>(),        &info_of<op::Swish>(),
                                       &info_of<op::HardSigmoid>(), &info_of<op::ThresholdedRelu>(),
                                       &info_of<op::Shrink>(),      &info_of<op::Prelu>()};
  return list;
}

}  // namespace rlx
