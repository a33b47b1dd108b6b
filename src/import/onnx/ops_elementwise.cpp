// Elementwise ops: unary, binary, variadic, comparisons, activations, casts.
#include <limits>

#include "import/onnx/families.hpp"

namespace rlx::onnx {
namespace {

template <class Attributes>
void unary(NodeContext& c) {
  c.set(c.add(Attributes{}, {c.in(0)}));
}

// Before opset 7 the second operand was broadcast only if asked, from `axis` on.
Value legacy_second(NodeContext& c, Value a, Value b) {
  const bool broadcast = c.flag("broadcast");
  const auto axis = c.integer("axis", a.rank() - b.rank());
  if (!broadcast || b.rank() == 0) return b;
  Shape shape = b.shape();
  const auto trailing = a.rank() - normal_axis(axis, a.rank() + 1) - b.rank();
  for (std::int64_t i = 0; i < trailing; ++i) shape.emplace_back(1);
  return trailing > 0 ? reshape(b, shape) : b;
}

template <class Attributes>
void binary(NodeContext& c) {
  const Value a = c.in(0);
  Value b = c.in(1);
  if (c.version() < 7) b = legacy_second(c, a, b);
  c.set(c.add(Attributes{}, {a, b}));
}

template <class Attributes>
void variadic(NodeContext& c) {
  const Values inputs = c.inputs();
  if (inputs.empty()) fail("It has no inputs.");
  Value result = inputs[0];
  for (std::size_t i = 1; i < inputs.size(); ++i) result = c.add(Attributes{}, {result, inputs[i]});
  c.set(result);
}

void mean_of_inputs(NodeContext& c) {
  const Values inputs = c.inputs();
  if (inputs.empty()) fail("It has no inputs.");
  Value total = inputs[0];
  for (std::size_t i = 1; i < inputs.size(); ++i) total = total + inputs[i];
  c.set(total / c.scalar(total.dtype(), static_cast<double>(inputs.size())));
}

void identity(NodeContext& c) {
  if (c.is_sequence(0)) {
    c.set_sequence(0, c.sequence(0));
  } else {
    c.set(c.in(0));
  }
}

// The base's dtype wins, which op::Pow keeps too.
void power(NodeContext& c) {
  const Value a = c.in(0);
  Value b = c.in(1);
  if (c.version() < 7) b = legacy_second(c, a, b);
  c.set(c.add(op::Pow{}, {a, b}));
}

void modulo(NodeContext& c) {
  const Values operands = {c.in(0), c.in(1)};
  c.set(c.flag("fmod") ? c.add(op::Rem{}, operands) : c.add(op::Mod{}, operands));
}

void bit_shift(NodeContext& c) {
  const std::string direction = c.text("direction", "");
  const Values operands = {c.in(0), c.in(1)};
  if (direction != "LEFT" && direction != "RIGHT") fail("The direction ({}) is wrong.", direction);
  c.set(direction == "LEFT" ? c.add(op::ShiftLeft{}, operands) : c.add(op::ShiftRight{}, operands));
}

void is_infinite(NodeContext& c) {
  const bool positive = c.flag("detect_positive", true);
  const bool negative = c.flag("detect_negative", true);
  c.set(c.add(op::IsInf{positive, negative}, {c.in(0)}));
}

// Floats to 4-bit integers go through a wider integer, whose high bits are dropped.
Value cast_to(NodeContext& c, Value x, DType dtype) {
  const bool halves = is_integer(dtype) && integer_bits(dtype) < 8;
  if (halves && is_float(x.dtype())) x = cast(x, i32);
  return c.add(op::Cast{dtype, c.flag("saturate", true)}, {x});
}

void cast_node(NodeContext& c) {
  const DType dtype = c.element_type("to", f32);
  if (!c.has_attribute("to")) fail("The attribute (to) is missing.");
  c.ignore({"round_mode"});
  c.set(cast_to(c, c.in(0), dtype));
}

// Until opset 6 the type was a text ("FLOAT").
void cast_by_name(NodeContext& c) {
  const std::string name = c.text("to", "");
  for (std::int32_t type = 1; type <= 16; ++type) {
    std::string upper = element_name(type);
    for (char& letter : upper) letter = static_cast<char>(std::toupper(letter));
    if (upper != name) continue;
    const auto dtype = dtype_of_element(type);
    if (!dtype) fail_unsupported("The type ({}) is not supported.", name);
    c.set(cast(c.in(0), *dtype));
    return;
  }
  fail("The type ({}) is unknown.", name);
}

void cast_like(NodeContext& c) {
  c.ignore({"round_mode"});
  c.set(cast_to(c, c.in(0), c.in(1).dtype()));
}

void bit_cast(NodeContext& c) {
  if (!c.has_attribute("to")) fail("The attribute (to) is missing.");
  c.set(c.add(op::Bitcast{c.element_type("to", f32)}, {c.in(0)}));
}

Value clip_between(NodeContext& c, Value x, Value low, Value high) {
  return low || high ? c.add(op::Clamp{}, {x, low, high}) : x;
}

void clip(NodeContext& c) { c.set(clip_between(c, c.in(0), c.optional(1), c.optional(2))); }

void clip_by_attributes(NodeContext& c) {
  const Value x = c.in(0);
  const auto low = c.optional_real("min"), high = c.optional_real("max");
  c.set(clip_between(c, x, low ? c.scalar(x.dtype(), *low) : Value(),
                     high ? c.scalar(x.dtype(), *high) : Value()));
}

void where(NodeContext& c) { c.set(select(c.in(0), c.in(1), c.in(2))); }

// ---- activations --------------------------------------------------------------------------------

template <class Attributes>
void with_alpha(NodeContext& c) {
  Attributes attributes;
  attributes.alpha = c.real("alpha", attributes.alpha);
  c.set(c.add(attributes, {c.in(0)}));
}

void selu(NodeContext& c) {
  op::Selu attributes;
  // The first version had coefficients of fewer digits.
  attributes.alpha = c.real("alpha", c.version() < 6 ? 1.6732 : attributes.alpha);
  attributes.gamma = c.real("gamma", c.version() < 6 ? 1.0507 : attributes.gamma);
  c.set(c.add(attributes, {c.in(0)}));
}

void hard_sigmoid(NodeContext& c) {
  c.set(c.add(op::HardSigmoid{c.real("alpha", 0.2), c.real("beta", 0.5)}, {c.in(0)}));
}

void shrink(NodeContext& c) {
  op::Shrink attributes;
  attributes.lambd = c.real("lambd", attributes.lambd);
  attributes.bias = c.real("bias", attributes.bias);
  c.set(c.add(attributes, {c.in(0)}));
}

void gelu_node(NodeContext& c) {
  const std::string form = c.text("approximate", "none");
  if (form != "none" && form != "tanh") fail("The approximation ({}) is unknown.", form);
  c.set(gelu(c.in(0), {.tanh = form == "tanh"}));
}

// ONNX Runtime's: a bias may come first.
template <bool tanh>
void biased_gelu(NodeContext& c) {
  const Value x = c.in(0);
  c.set(gelu(c.has(1) ? x + c.in(1) : x, {.tanh = tanh}));
}

void quick_gelu(NodeContext& c) { c.set(c.add(op::Swish{c.real("alpha", 1.702)}, {c.in(0)})); }

void swish(NodeContext& c) { c.set(c.add(op::Swish{c.real("alpha", 1)}, {c.in(0)})); }

// The slope aligns with the last axes; in the first versions, and where exporters kept that form, a
// slope [C] belongs to axis 1.
void prelu(NodeContext& c) {
  const Value x = c.in(0);
  Value slope = c.in(1);
  if (c.version() < 7 && slope.rank() == 1 && x.rank() > 2 && slope.shape()[0] != Dim(1)) {
    Shape shape(static_cast<std::size_t>(x.rank() - 1), Dim(1));
    shape[0] = slope.shape()[0];
    slope = reshape(slope, shape);
  }
  c.set(c.add(op::Prelu{}, {x, slope}));
}

constexpr OpEntry entries[] = {
    {"Neg", 1, unary<op::Neg>},
    {"Abs", 1, unary<op::Abs>},
    {"Sign", 9, unary<op::Sign>},
    {"Exp", 1, unary<op::Exp>},
    {"Log", 1, unary<op::Log>},
    {"Sqrt", 1, unary<op::Sqrt>},
    {"Reciprocal", 1, unary<op::Reciprocal>},
    {"Sin", 7, unary<op::Sin>},
    {"Cos", 7, unary<op::Cos>},
    {"Tan", 7, unary<op::Tan>},
    {"Asin", 7, unary<op::Asin>},
    {"Acos", 7, unary<op::Acos>},
    {"Atan", 7, unary<op::Atan>},
    {"Sinh", 9, unary<op::Sinh>},
    {"Cosh", 9, unary<op::Cosh>},
    {"Tanh", 1, unary<op::Tanh>},
    {"Asinh", 9, unary<op::Asinh>},
    {"Acosh", 9, unary<op::Acosh>},
    {"Atanh", 9, unary<op::Atanh>},
    {"Erf", 9, unary<op::Erf>},
    {"Floor", 1, unary<op::Floor>},
    {"Ceil", 1, unary<op::Ceil>},
    {"Round", 11, unary<op::Round>},
    {"Not", 1, unary<op::Not>},
    {"BitwiseNot", 18, unary<op::Not>},
    {"IsNaN", 9, unary<op::IsNan>},
    {"IsInf", 10, is_infinite},
    {"Identity", 1, identity},
    {"Cast", 6, cast_node},
    {"Cast", 1, cast_by_name},
    {"CastLike", 15, cast_like},
    {"BitCast", 1, bit_cast},
    {"Add", 1, binary<op::Add>},
    {"Sub", 1, binary<op::Sub>},
    {"Mul", 1, binary<op::Mul>},
    {"Div", 1, binary<op::Div>},
    {"Pow", 1, power},
    {"Mod", 10, modulo},
    {"And", 1, binary<op::And>},
    {"Or", 1, binary<op::Or>},
    {"Xor", 1, binary<op::Xor>},
    {"BitwiseAnd", 18, binary<op::And>},
    {"BitwiseOr", 18, binary<op::Or>},
    {"BitwiseXor", 18, binary<op::Xor>},
    {"BitShift", 11, bit_shift},
    {"Equal", 1, binary<op::Equal>},
    {"Less", 1, binary<op::Less>},
    {"Greater", 1, binary<op::Greater>},
    {"LessOrEqual", 12, binary<op::LessEqual>},
    {"GreaterOrEqual", 12, binary<op::GreaterEqual>},
    {"Where", 9, where},
    {"Max", 1, variadic<op::Max>},
    {"Min", 1, variadic<op::Min>},
    {"Sum", 1, variadic<op::Add>},
    {"Mean", 1, mean_of_inputs},
    {"Clip", 11, clip},
    {"Clip", 1, clip_by_attributes},
    {"Relu", 1, unary<op::Relu>},
    {"Sigmoid", 1, unary<op::Sigmoid>},
    {"Softsign", 1, unary<op::Softsign>},
    {"Softplus", 1, unary<op::Softplus>},
    {"HardSwish", 14, unary<op::HardSwish>},
    {"Mish", 18, unary<op::Mish>},
    {"LeakyRelu", 1, with_alpha<op::LeakyRelu>},
    {"Elu", 1, with_alpha<op::Elu>},
    {"Celu", 12, with_alpha<op::Celu>},
    {"ThresholdedRelu", 10, with_alpha<op::ThresholdedRelu>},
    {"Selu", 1, selu},
    {"HardSigmoid", 1, hard_sigmoid},
    {"Shrink", 9, shrink},
    {"Gelu", 20, gelu_node},
    {"Gelu", 1, biased_gelu<false>, onnx_runtime},
    {"BiasGelu", 1, biased_gelu<false>, onnx_runtime},
    {"FastGelu", 1, biased_gelu<true>, onnx_runtime},
    {"QuickGelu", 1, quick_gelu, onnx_runtime},
    {"Swish", 24, swish},
    {"PRelu", 1, prelu},
};

}  // namespace

OpEntries elementwise_entries() { return entries; }

}  // namespace rlx::onnx
