// LSTM, GRU and RNN.
#include <algorithm>
#include <cctype>

#include "import/onnx/build.hpp"
#include "import/onnx/families.hpp"

namespace rlx::onnx {
namespace {

// Attributes that the three share.
template <class Attributes>
void read_common(NodeContext& c, Attributes& a) {
  const std::string direction = c.text("direction", "forward");
  if (direction == "reverse") {
    a.direction = Direction::reverse;
  } else if (direction == "bidirectional") {
    a.direction = Direction::bidirectional;
  } else if (direction != "forward") {
    fail("The direction ({}) is unknown.", direction);
  }
  a.activations = c.texts("activations");
  for (std::string& name : a.activations) {
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  }
  a.alphas = c.reals("activation_alpha");
  a.betas = c.reals("activation_beta");
  a.clip = c.real("clip", 0);
  c.ignore({"hidden_size", "output_sequence"});
}

// With layout 1 the batch comes first in x, the states and the results.
struct Layout {
  bool batch_first = false;
  Value sequence(const Value& x) const { return batch_first ? transpose(x, {1, 0, 2}) : x; }
  Value state(const Value& h) const { return h && batch_first ? transpose(h, {1, 0, 2}) : h; }
  Value steps(const Value& y) const { return batch_first ? transpose(y, {2, 0, 1, 3}) : y; }
};

void give(NodeContext& c, const Layout& layout, const Values& results) {
  c.set(0, layout.steps(results[0]));
  for (std::size_t i = 1; i < results.size(); ++i) {
    c.set(static_cast<int>(i), layout.state(results[i]));
  }
}

void lstm_of(NodeContext& c, const Value& w, const Value& r) {
  op::Lstm attributes;
  read_common(c, attributes);
  attributes.input_forget = c.flag("input_forget");
  const Layout layout{c.integer("layout", 0) == 1};
  give(c, layout,
       c.add_all(attributes,
                 {layout.sequence(c.in(0)), w, r, c.optional(3), c.optional(4),
                  layout.state(c.optional(5)), layout.state(c.optional(6)), c.optional(7)}));
}

void lstm(NodeContext& c) { lstm_of(c, c.in(1), c.in(2)); }

/// Weights [directions, inputs, 4 units] of bytes, with a scale and a zero point for each direction
/// or for each column of one, as real ones [directions, 4 units, inputs].
Value real_weights(NodeContext& c, const Value& bytes, int scale) {
  const auto beside = [](const Value& of_direction) {
    Shape shape = of_direction.shape();
    shape.insert(shape.begin() + 1, Dim(1));
    if (shape.size() == 2) shape.emplace_back(1);
    return reshape(of_direction, shape);
  };
  Value w = cast(bytes, f32);
  if (c.has(scale + 1)) w = w - beside(cast(c.in(scale + 1), f32));
  return transpose(w * beside(c.in(scale)), {0, 2, 1});
}

// What ONNX Runtime's quantiser makes of an LSTM. It rounds x and the states to bytes as well, each
// run anew; here they stay as they are.
void dynamic_quantize_lstm(NodeContext& c) {
  lstm_of(c, real_weights(c, c.in(1), 8), real_weights(c, c.in(2), 10));
}

template <class Attributes>
void simple(NodeContext& c) {
  Attributes attributes;
  read_common(c, attributes);
  if constexpr (requires { attributes.linear_before_reset; }) {
    attributes.linear_before_reset = c.flag("linear_before_reset");
  }
  const Layout layout{c.integer("layout", 0) == 1};
  give(c, layout,
       c.add_all(attributes, {layout.sequence(c.in(0)), c.in(1), c.in(2), c.optional(3),
                              c.optional(4), layout.state(c.optional(5))}));
}

constexpr OpEntry entries[] = {{"LSTM", 7, lstm},
                               {"GRU", 7, simple<op::Gru>},
                               {"RNN", 7, simple<op::Rnn>},
                               {"DynamicQuantizeLSTM", 1, dynamic_quantize_lstm, onnx_runtime}};

}  // namespace

OpEntries recurrent_entries() { return entries; }

}  // namespace rlx::onnx
