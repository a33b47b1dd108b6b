// Recurrent layers: generated code beside the oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "codegen/code.hpp"
#include "codegen/contraction_fixture.hpp"
#include "codegen/object_loader.hpp"
#include "graph/scalar_value.hpp"
#include "rlx/tensor.hpp"

namespace rlx::codegen::testing {
namespace {

struct Layer {
  std::int64_t directions = 1, batch = 1, steps = 1, units = 8;
  std::int64_t first_reversed = 1;
  std::int32_t panel_width = 16;
};

enum LayerBuffer : std::int32_t { from_input, weights, y, last_h, last_c, first_c, extra };

/// A kernel whose inputs are [D,S,B,G*H], weights packed, y [S,D,B,H], states [D,B,H].
class LayerBuilder {
 public:
  LayerBuilder(const Layer& layer, std::int32_t gates) : layer_(layer), builder_(r_.nodes) {
    const auto& [directions, batch, steps, units, first_reversed, width] = layer;
    r_.directions = directions;
    r_.batch = batch;
    r_.steps = steps;
    r_.units = units;
    r_.first_reversed = first_reversed;
    r_.r_buffer = weights;
    r_.panel_width = width;
    r_.gates = r_.early_gates = gates;
    const std::int64_t panels = (units + width - 1) / width;
    kernel_.buffers = {{f32, directions * steps * batch * gates * units, false},
                       {f32, directions * gates * panels * units * width, false},
                       {f32, directions * steps * batch * units, true},
                       {f32, directions * batch * units, true},
                       {f32, directions * batch * units, true},
                       {f32, directions * batch * units, false},
                       {f32, units, false}};
  }

  loop::Recurrence& recurrence() { return r_; }
  ScalarValue leaf(std::int32_t index) {
    return builder_.add({.op = ScalarOp::accumulator, .dtype = f32, .index = index});
  }
  ScalarValue load(loop::Access access) {
    r_.accesses.push_back(std::move(access));
    const auto index = static_cast<std::int32_t>(r_.accesses.size()) - 1;
    return builder_.add({.op = ScalarOp::load, .dtype = f32, .index = index});
  }
  ScalarValue input(std::int64_t gate) {
    const std::int64_t row = r_.gates * r_.units;
    return load({.buffer = from_input,
                 .offset = gate * r_.units,
                 .strides = {r_.steps * r_.batch * row, row, r_.batch * row, 1}});
  }
  loop::Access state(std::int32_t buffer) const {
    return {.buffer = buffer, .offset = 0, .strides = {r_.batch * r_.units, r_.units, 0, 1}};
  }
  void add_state(ScalarValue next, std::int32_t first, std::int32_t last) {
    r_.next.push_back(next.id());
    r_.initial.push_back(state(first));
    r_.last.push_back(state(last));
  }
  loop::Kernel finish(ScalarValue h) {
    const std::int64_t row = r_.batch * r_.units;
    r_.stores.push_back(
        {{.buffer = y, .offset = 0, .strides = {row, r_.units, r_.directions * row, 1}}, h.id()});
    kernel_.body = r_;
    return kernel_;
  }

 private:
  Layer layer_;
  loop::Kernel kernel_;
  loop::Recurrence r_;
  ScalarBuilder builder_;
};

ScalarValue sigmoid(ScalarValue x) { return 1.0 / (1.0 + scalar::exp(-x)); }

loop::Kernel lstm(const Layer& layer) {
  LayerBuilder b(layer, 4);
  const ScalarValue in = sigmoid(b.input(0) + b.leaf(0)), out = sigmoid(b.input(1) + b.leaf(1));
  const ScalarValue keep = sigmoid(b.input(2) + b.leaf(2));
  const ScalarValue c = keep * b.leaf(5) + in * scalar::tanh(b.input(3) + b.leaf(3));
  const ScalarValue h = out * scalar::tanh(c);
  b.add_state(h, -1, last_h);
  b.add_state(c, first_c, last_c);
  return b.finish(h);
}

/// The reset gate before or behind the product of the candidate gate.
loop::Kernel gru(const Layer& layer, bool late) {
  LayerBuilder b(layer, 3);
  const ScalarValue z = sigmoid(b.input(0) + b.leaf(0)), r = sigmoid(b.input(1) + b.leaf(1));
  const ScalarValue old = b.leaf(3);
  ScalarValue candidate = b.leaf(2);
  if (late) {
    b.recurrence().early_gates = 2;
    b.recurrence().late_input = (r * old).id();
  } else {
    candidate = r * (candidate + b.load({.buffer = extra, .offset = 0, .strides = {0, 0, 0, 1}}));
  }
  const ScalarValue n = scalar::tanh(b.input(2) + candidate);
  const ScalarValue h = (1.0 - z) * n + z * old;
  b.add_state(h, first_c, last_h);
  return b.finish(h);
}

loop::Kernel rnn(const Layer& layer) {
  LayerBuilder b(layer, 1);
  const ScalarValue h = scalar::tanh(b.input(0) + b.leaf(0));
  b.add_state(h, first_c, last_h);
  return b.finish(h);
}

const Layer layers[] = {
    {.units = 128},
    {.units = 1, .panel_width = 4},
    {.batch = 33, .units = 16},
    {.steps = 33, .units = 8, .panel_width = 8},
    {.directions = 2, .batch = 5, .steps = 7, .units = 19},
    {.directions = 2, .steps = 3, .units = 35, .first_reversed = 0, .panel_width = 8},
    {.directions = 2, .batch = 3, .steps = 2, .units = 6, .panel_width = 8},
    {.batch = 7, .steps = 4, .units = 64, .first_reversed = 0},
    {.directions = 2, .steps = 5, .units = 7, .panel_width = 8},
    {.directions = 2, .batch = 2, .steps = 3, .units = 16, .first_reversed = 0},
};

TEST(Recurrence, lstm_agrees_with_the_oracle) {
  for (const Layer& layer : layers) expect_as_interpreted(lstm(layer));
}

TEST(Recurrence, gru_agrees_with_the_oracle) {
  for (const Layer& layer : layers) expect_as_interpreted(gru(layer, false));
}

TEST(Recurrence, gru_with_a_late_product_agrees_with_the_oracle) {
  for (const Layer& layer : layers) expect_as_interpreted(gru(layer, true));
}

TEST(Recurrence, rnn_agrees_with_the_oracle) {
  for (const Layer& layer : layers) expect_as_interpreted(rnn(layer));
}

/// The flag lies in what step 3 writes, so that this step sets it as another thread might.
TEST(Recurrence, the_steps_behind_a_set_flag_do_nothing) {
  constexpr std::int64_t units = 8, steps = 9, last = 3;
  loop::Kernel kernel = rnn({.steps = steps, .units = units, .panel_width = 8});
  kernel.buffers.push_back({boolean, 1, false});
  for (const Target& target : host_targets()) {
    const auto code = generator()->generate(kernel, target);
    ASSERT_TRUE(code) << code.error().message;
    const auto image = ObjectImage::load(code->object);
    ASSERT_TRUE(image) << image.error().message;
    Buffers made = noise_buffers(kernel, 1);
    std::ranges::fill(made[y], std::byte{0});
    Buffers wanted = made;
    std::vector<void*> places, wanted_places;
    for (std::size_t i = 0; i < made.size(); ++i) {
      places.push_back(made[i].data());
      wanted_places.push_back(wanted[i].data());
    }
    // The highest byte of a number that is not 0 is not 0 either.
    constexpr std::size_t flag = last * units * sizeof(float) + 3;
    places.back() = made[y].data() + flag;
    wanted_places.back() = wanted[y].data() + flag;
    Tensor scratch(u8, {code->scratch_bytes + 64});
    reinterpret_cast<KernelFunction>(image->symbol(code->symbol))(
        places.data(), 0, code->work_items, scratch.mutable_data());
    loop::interpret(kernel, wanted_places.data());
    const auto* values = reinterpret_cast<const float*>(made[y].data());
    const auto* right = reinterpret_cast<const float*>(wanted[y].data());
    for (std::int64_t i = 0; i < steps * units; ++i) {
      EXPECT_EQ(values[i] != 0, i < (last + 1) * units) << "element " << i;
      EXPECT_NEAR(values[i], right[i], 1e-5) << "element " << i;
    }
  }
}

/// The same layer, whose calls make one step each.
loop::Kernel as_steps(loop::Kernel kernel) {
  auto& r = std::get<loop::Recurrence>(kernel.body);
  r.step_buffer = static_cast<std::int32_t>(kernel.buffers.size());
  r.initial.clear();
  kernel.buffers.push_back({i64, 1, false});
  return kernel;
}

/// Runs all steps on states that start where the walk's do; call(places) makes one step.
Buffers steps_of(const loop::Kernel& walk, Buffers made,
                 const std::function<void(void* const*)>& call) {
  const auto& r = std::get<loop::Recurrence>(walk.body);
  for (std::size_t s = 0; s < r.last.size(); ++s) {
    Buffers::value_type& to = made[static_cast<std::size_t>(r.last[s].buffer)];
    const std::int32_t from = r.initial[s].buffer;
    if (from >= 0) to = made[static_cast<std::size_t>(from)];
    else std::ranges::fill(to, std::byte{0});
  }
  std::int64_t step = 0;
  std::vector<void*> places;
  for (auto& buffer : made) places.push_back(buffer.data());
  places.push_back(&step);
  for (; step < r.steps; ++step) call(places.data());
  return made;
}

void expect_written_alike(const loop::Kernel& kernel, const Buffers& made, const Buffers& wanted) {
  for (std::size_t i = 0; i < kernel.buffers.size(); ++i) {
    if (!kernel.buffers[i].written) continue;
    const auto* values = reinterpret_cast<const float*>(made[i].data());
    const auto* right = reinterpret_cast<const float*>(wanted[i].data());
    for (std::int64_t e = 0; e < kernel.buffers[i].elements; ++e)
      ASSERT_NEAR(values[e], right[e], 2e-5) << "buffer " << i << ", element " << e;
  }
}

/// Step by step, by the oracle and by generated code, whose items run last ones first and in parts.
void expect_steps_as_walk(const loop::Kernel& walk) {
  const loop::Kernel kernel = as_steps(walk);
  const Buffers start = noise_buffers(walk, 1);
  Buffers wanted = start;
  std::vector<void*> places;
  for (auto& buffer : wanted) places.push_back(buffer.data());
  loop::interpret(walk, places.data());
  expect_written_alike(
      walk, steps_of(walk, start, [&](void* const* at) { loop::interpret(kernel, at); }), wanted);
  for (const Target& target : host_targets()) {
    const auto code = generator()->generate(kernel, target);
    ASSERT_TRUE(code) << code.error().message;
    const auto image = ObjectImage::load(code->object);
    ASSERT_TRUE(image) << image.error().message;
    const auto run = reinterpret_cast<KernelFunction>(image->symbol(code->symbol));
    const std::int64_t items = code->work_items;
    Tensor scratch(u8, {code->scratch_bytes + 64});
    expect_written_alike(walk,
                         steps_of(walk, start,
                                  [&](void* const* at) {
                                    run(at, items / 2, items, scratch.mutable_data());
                                    run(at, 0, items / 2, scratch.mutable_data());
                                  }),
                         wanted);
  }
}

TEST(Recurrence, steps_one_at_a_time_agree_with_the_walk) {
  for (const Layer& layer : layers) {
    if (layer.steps == 1) continue;
    expect_steps_as_walk(lstm(layer));
    expect_steps_as_walk(gru(layer, false));
    expect_steps_as_walk(rnn(layer));
  }
}

TEST(Recurrence, its_text_tells_kernels_apart) {
  Layer layer;
  const std::string text = loop::to_text(lstm(layer));
  EXPECT_EQ(text, loop::to_text(lstm(layer)));
  layer.first_reversed = 0;
  EXPECT_NE(text, loop::to_text(lstm(layer)));
  EXPECT_NE(loop::to_text(gru({}, true)), loop::to_text(gru({}, false)));
  EXPECT_NE(text, loop::to_text(as_steps(lstm({}))));
}

}  // namespace
}  // namespace rlx::codegen::testing
