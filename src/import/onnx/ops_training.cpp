// Derivatives, and steps of optimisers: Adagrad, Adam, Momentum.
#include "import/onnx/build.hpp"
#include "import/onnx/families.hpp"
#include "import/onnx/gradient.hpp"

namespace rlx::onnx {
namespace {

// Inputs: learning rate, step, then n weights, n gradients and n of each state.
struct Optimised {
  Value rate, step;
  std::vector<Values> groups;
};

Optimised operands(NodeContext& c, int groups) {
  Optimised o{c.in(0), c.in(1), {}};
  const int count = (c.input_count() - 2) / groups;
  if (count < 1 || 2 + groups * count != c.input_count()) {
    fail("({}) inputs are no whole number of groups.", c.input_count());
  }
  for (int g = 0; g < groups; ++g) {
    Values group;
    for (int i = 0; i < count; ++i) group.push_back(c.in(2 + g * count + i));
    o.groups.push_back(std::move(group));
  }
  return o;
}

Value number(NodeContext& c, const Value& like, double value) {
  return scalar_like(c, like, value);
}

// Results: the new weights, then the new states, group by group.
void give(NodeContext& c, const std::vector<Values>& results) {
  int next = 0;
  for (const Values& group : results) {
    for (const Value& value : group) c.set(next++, value);
  }
}

Value regular_gradient(NodeContext& c, const Value& x, const Value& g) {
  return number(c, x, c.real("norm_coefficient", 0)) * x + g;
}

void adagrad(NodeContext& c) {
  const Optimised o = operands(c, 3);
  const double epsilon = c.real("epsilon", 1e-6), decay = c.real("decay_factor", 0);
  std::vector<Values> results(2);
  for (std::size_t i = 0; i < o.groups[0].size(); ++i) {
    const Value& x = o.groups[0][i];
    const Value g = regular_gradient(c, x, o.groups[1][i]);
    const Value slow = number(c, x, 1) + cast(o.step, x.dtype()) * number(c, x, decay);
    const Value squares = o.groups[2][i] + g * g;
    const Value root = sqrt(squares) + number(c, x, epsilon);
    results[0].push_back(x - cast(o.rate, x.dtype()) / slow * g / root);
    results[1].push_back(squares);
  }
  give(c, results);
}

void adam(NodeContext& c) {
  const Optimised o = operands(c, 4);
  const double alpha = c.real("alpha", 0.9), beta = c.real("beta", 0.999);
  const double epsilon = c.real("epsilon", 1e-6), post = c.real("norm_coefficient_post", 0);
  std::vector<Values> results(3);
  for (std::size_t i = 0; i < o.groups[0].size(); ++i) {
    const Value& x = o.groups[0][i];
    const auto k = [&](double value) { return number(c, x, value); };
    const Value g = regular_gradient(c, x, o.groups[1][i]);
    const Value first = k(alpha) * o.groups[2][i] + k(1 - alpha) * g;
    const Value second = k(beta) * o.groups[3][i] + k(1 - beta) * g * g;
    // The first steps make up for states that began at zero.
    const Value step = cast(o.step, x.dtype()), rate = cast(o.rate, x.dtype());
    const Value begun = greater(step, k(0)), safe = select(begun, step, k(1));
    const Value adjusted = rate * sqrt(k(1) - pow(k(beta), safe)) / (k(1) - pow(k(alpha), safe));
    const Value moved = x - select(begun, adjusted, rate) * first / (sqrt(second) + k(epsilon));
    results[0].push_back(k(1 - post) * moved);
    results[1].push_back(first);
    results[2].push_back(second);
  }
  give(c, results);
}

void momentum(NodeContext& c) {
  const Optimised o = operands(c, 3);
  const double alpha = c.real("alpha", 0), beta = c.real("beta", 0);
  const std::string mode = c.text("mode", "standard");
  if (mode != "standard" && mode != "nesterov") fail("The mode ({}) is unknown.", mode);
  std::vector<Values> results(2);
  for (std::size_t i = 0; i < o.groups[0].size(); ++i) {
    const Value& x = o.groups[0][i];
    const auto k = [&](double value) { return number(c, x, value); };
    const Value g = regular_gradient(c, x, o.groups[1][i]);
    const Value begun = greater(o.step, scalar_like(c, o.step, 0));
    const Value speed = k(alpha) * o.groups[2][i] + select(begun, k(beta), k(1)) * g;
    const Value way = mode == "nesterov" ? g + k(alpha) * speed : speed;
    results[0].push_back(x - cast(o.rate, x.dtype()) * way);
    results[1].push_back(speed);
  }
  give(c, results);
}

// The values named by xs, then by zs, as they are fed; results: y's derivatives by each of xs.
void gradient(NodeContext& c) {
  std::vector<std::string> names = c.texts("xs");
  const std::size_t count = names.size();
  const std::vector<std::string> constants = c.texts("zs");
  names.insert(names.end(), constants.begin(), constants.end());
  const Values given = c.inputs();
  if (count == 0 || names.size() != given.size()) {
    fail("It names ({}) values and is fed ({}).", names.size(), given.size());
  }
  const auto value_named = [&](const std::string& name) {
    if (!c.importer().knows(c.frame(), name)) fail("The value ({}) is unknown.", name);
    return c.importer().find_value(c.frame(), name);
  };
  Values named;
  for (const std::string& name : names) named.push_back(value_named(name));
  const Value y = with_values(value_named(c.text("y", "")), named, given);
  const Values results =
      gradients(y, {given.begin(), given.begin() + static_cast<std::ptrdiff_t>(count)});
  for (std::size_t i = 0; i < count; ++i) c.set(static_cast<int>(i), results[i]);
}

constexpr const char* domain = "ai.onnx.preview.training";
constexpr OpEntry entries[] = {{"Adagrad", 1, adagrad, domain},
                               {"Adam", 1, adam, domain},
                               {"Gradient", 1, gradient, domain},
                               {"Momentum", 1, momentum, domain}};

}  // namespace

OpEntries training_entries() { return entries; }

}  // namespace rlx::onnx
