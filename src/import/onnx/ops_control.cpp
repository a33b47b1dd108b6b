// If, Loop and Scan.
#include <algorithm>

#include "import/onnx/build.hpp"
#include "import/onnx/families.hpp"

namespace rlx::onnx {
namespace {

using Formal = Importer::Formal;

const GraphProto& body_of(NodeContext& c, const char* name) {
  const GraphProto* graph = c.subgraph(name);
  if (!graph) fail("The graph ({}) is missing.", name);
  return *graph;
}

Values captured_values(NodeContext& c, const std::vector<std::string>& names) {
  Values values;
  for (const std::string& name : names) values.push_back(c.importer().find_value(c.frame(), name));
  return values;
}

std::optional<bool> known_flag(NodeContext& c, const Value& value) {
  const auto tensor = c.known(value);
  if (!tensor || tensor->elements() != 1) return std::nullopt;
  return integers_of(*tensor)[0] != 0;
}

void set_all(NodeContext& c, const Values& values) {
  for (std::size_t i = 0; i < values.size(); ++i) c.set(static_cast<int>(i), values[i]);
}

// A condition that is known picks its branch; the other one leaves no trace.
void if_node(NodeContext& c) {
  const GraphProto& then_graph = body_of(c, "then_branch");
  const GraphProto& else_graph = body_of(c, "else_branch");
  if (then_graph.outputs.size() != else_graph.outputs.size()) {
    fail("The branches give ({}) and ({}) results.", then_graph.outputs.size(),
         else_graph.outputs.size());
  }
  const Value condition = reshape(c.in(0), {});
  if (const auto known = known_flag(c, c.in(0))) {
    set_all(c, c.importer().inline_graph(c.frame(), *known ? then_graph : else_graph, {}));
    return;
  }
  const auto names = c.importer().captures(c.frame(), {&then_graph, &else_graph});
  const auto branch = [&](const GraphProto& graph) {
    return std::make_shared<const Graph>(c.importer().build_graph(c.frame(), graph, {}, names));
  };
  Values operands = captured_values(c, names);
  operands.insert(operands.begin(), condition);
  set_all(c, c.add_all(op::If{branch(then_graph), branch(else_graph)}, operands));
}

// ---- loops --------------------------------------------------------------------------------------

struct LoopParts {
  const GraphProto* body = nullptr;
  Values carries;
  std::vector<std::string> names;  ///< captured
};

// The types of the carries inside the body: as outside, but dims that an iteration changes are
// open.
std::vector<Type> carried_types(NodeContext& c, const LoopParts& loop) {
  std::vector<Type> types;
  for (const Value& carry : loop.carries) types.push_back(carry.type());
  // Opening one dim may open others: at most every dim once.
  while (true) {
    std::vector<Formal> formals{{loop.body->inputs[0].name, {i64, {}}, {}},
                                {loop.body->inputs[1].name, {boolean, {}}, {}}};
    for (std::size_t i = 0; i < types.size(); ++i) {
      formals.push_back({loop.body->inputs[i + 2].name, types[i], {}});
    }
    const Graph body = c.importer().build_graph(c.frame(), *loop.body, formals, loop.names);
    bool changed = false;
    for (std::size_t i = 0; i < types.size(); ++i) {
      const Type& result = body.type(body.outputs()[i + 1].value);
      if (result.dtype != types[i].dtype || result.rank() != types[i].rank()) {
        fail_unsupported("A loop turns {} into {}.", types[i].text(), result.text());
      }
      for (std::size_t axis = 0; axis < types[i].shape.size(); ++axis) {
        Dim& dim = types[i].shape[axis];
        const Dim open("carry" + std::to_string(i) + ":" + std::to_string(axis));
        if (result.shape[axis] == dim || dim == open) continue;
        dim = open;
        changed = true;
      }
    }
    if (!changed) return types;
  }
}

// A body whose condition stays true and whose trip count is known becomes a scan.
std::optional<Values> as_scan(NodeContext& c, const LoopParts& loop, std::int64_t trips) {
  std::vector<Formal> formals{{loop.body->inputs[0].name, {i64, {}}, {}},
                              {loop.body->inputs[1].name, {boolean, {}}, Tensor::scalar(true)}};
  for (std::size_t i = 0; i < loop.carries.size(); ++i) {
    formals.push_back({loop.body->inputs[i + 2].name, loop.carries[i].type(), {}});
  }
  Graph body = c.importer().build_graph(c.frame(), *loop.body, formals, loop.names);
  const auto* going_on = body.node(body.outputs()[0].value).op.as<op::Constant>();
  if (!going_on || going_on->value.elements() != 1 || integers_of(going_on->value)[0] == 0) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < loop.carries.size(); ++i) {
    if (body.type(body.outputs()[i + 1].value) != loop.carries[i].type()) return std::nullopt;
  }
  for (std::size_t i = loop.carries.size() + 1; i < body.outputs().size(); ++i) {
    if (!body.type(body.outputs()[i].value).is_static()) return std::nullopt;
  }
  body.set_outputs({body.outputs().begin() + 1, body.outputs().end()});
  op::Scan scan;
  scan.body = std::make_shared<const Graph>(std::move(body));
  scan.length = trips;
  scan.carries = static_cast<std::int64_t>(loop.carries.size());
  Values operands = loop.carries;
  const Values captured = captured_values(c, loop.names);
  operands.insert(operands.end(), captured.begin(), captured.end());
  return c.add_all(scan, operands);
}

void loop_node(NodeContext& c) {
  LoopParts loop;
  loop.body = &body_of(c, "body");
  for (int i = 2; i < c.input_count(); ++i) loop.carries.push_back(c.in(i));
  if (loop.body->inputs.size() != loop.carries.size() + 2 ||
      loop.body->outputs.size() < loop.carries.size() + 1) {
    fail("The body does not fit ({}) carried values.", loop.carries.size());
  }
  loop.names = c.importer().captures(c.frame(), {loop.body});
  const auto trips = c.has(0) ? c.known_integers(c.in(0)) : std::nullopt;
  const auto starts = c.has(1) ? known_flag(c, c.in(1)) : std::optional(true);
  if (trips && trips->size() == 1 && starts.value_or(false)) {
    if (const auto results = as_scan(c, loop, std::max<std::int64_t>((*trips)[0], 0))) {
      set_all(c, *results);
      return;
    }
  }
  const std::vector<Type> types = carried_types(c, loop);
  std::vector<Formal> formals{{loop.body->inputs[0].name, {i64, {}}, {}},
                              {loop.body->inputs[1].name, {boolean, {}}, {}}};
  for (std::size_t i = 0; i < types.size(); ++i) {
    formals.push_back({loop.body->inputs[i + 2].name, types[i], {}});
  }
  op::HostLoop attributes;
  attributes.body = std::make_shared<const Graph>(
      c.importer().build_graph(c.frame(), *loop.body, formals, loop.names));
  attributes.carries = static_cast<std::int64_t>(loop.carries.size());
  const auto scalar = [](const Value& v) { return v ? reshape(v, {}) : v; };
  Values operands{scalar(c.optional(0)), scalar(c.optional(1))};
  operands.insert(operands.end(), loop.carries.begin(), loop.carries.end());
  const Values captured = captured_values(c, loop.names);
  operands.insert(operands.end(), captured.begin(), captured.end());
  set_all(c, c.add_all(attributes, operands));
}

// ---- scan ---------------------------------------------------------------------------------------

Value move_axis(const Value& x, std::int64_t from, std::int64_t to) {
  if (from == to) return x;
  Axes perm;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != from) perm.push_back(i);
  }
  perm.insert(perm.begin() + to, from);
  return transpose(x, perm);
}

Axes list_of(NodeContext& c, const char* name, std::size_t count) {
  const Axes list = c.integers(name, Axes(count, 0));
  if (list.size() != count) fail("The attribute ({}) has ({}) entries.", name, list.size());
  return list;
}

void scan_node(NodeContext& c) {
  const GraphProto& graph = body_of(c, "body");
  const auto scanned = c.integer("num_scan_inputs");
  const auto carries = c.input_count() - scanned;
  const auto emitted = static_cast<std::int64_t>(graph.outputs.size()) - carries;
  if (scanned < 1 || carries < 0 || emitted < 0 ||
      static_cast<int>(graph.inputs.size()) != c.input_count()) {
    fail("The body does not fit ({}) scanned and ({}) carried values.", scanned, carries);
  }
  const auto count = static_cast<std::size_t>(scanned), results = static_cast<std::size_t>(emitted);
  const Axes in_axes = list_of(c, "scan_input_axes", count);
  const Axes in_reverse = list_of(c, "scan_input_directions", count);
  const Axes out_axes = list_of(c, "scan_output_axes", results);
  const Axes out_reverse = list_of(c, "scan_output_directions", results);
  std::vector<Formal> formals{{"step of " + graph.name, {i64, {}}, {}}};
  Values operands;
  op::Scan attributes;
  for (int i = 0; i < c.input_count(); ++i) {
    Value x = c.in(i);
    Type type = x.type();
    if (i >= carries) {
      const auto k = static_cast<std::size_t>(i - carries);
      x = move_axis(x, normal_axis(in_axes[k], x.rank()), 0);
      if (in_reverse[k] != 0) x = c.add(op::Reverse{{0}}, {x});
      attributes.length = static_dim(x, 0);
      type = x.type();
      type.shape.erase(type.shape.begin());
    }
    operands.push_back(x);
    formals.push_back({graph.inputs[static_cast<std::size_t>(i)].name, type, {}});
  }
  const auto names = c.importer().captures(c.frame(), {&graph});
  attributes.body =
      std::make_shared<const Graph>(c.importer().build_graph(c.frame(), graph, formals, names));
  attributes.carries = carries;
  attributes.scanned = scanned;
  const Values captured = captured_values(c, names);
  operands.insert(operands.end(), captured.begin(), captured.end());
  const Values values = c.add_all(attributes, operands);
  for (std::size_t i = 0; i < values.size(); ++i) {
    Value value = values[i];
    if (static_cast<std::int64_t>(i) >= carries) {
      const std::size_t k = i - static_cast<std::size_t>(carries);
      if (out_reverse[k] != 0) value = c.add(op::Reverse{{0}}, {value});
      value = move_axis(value, 0, normal_axis(out_axes[k], value.rank()));
    }
    c.set(static_cast<int>(i), value);
  }
}

// Scan-8: axis 0 is the batch, axis 1 the steps; every item is scanned by itself.
void scan_batched(NodeContext& c) {
  const GraphProto& graph = body_of(c, "body");
  const auto scanned = c.integer("num_scan_inputs");
  const auto carries = c.input_count() - 1 - scanned;
  if (c.has(0)) fail_unsupported("Sequences of different lengths are not supported.");
  if (scanned < 1 || carries < 0 || static_cast<int>(graph.inputs.size()) != c.input_count() - 1) {
    fail("The body does not fit ({}) scanned and ({}) carried values.", scanned, carries);
  }
  const Axes reverse = list_of(c, "directions", static_cast<std::size_t>(scanned));
  const auto names = c.importer().captures(c.frame(), {&graph});
  op::Scan attributes;
  attributes.carries = carries;
  attributes.scanned = scanned;
  attributes.length = static_dim(c.in(c.input_count() - 1), 1);
  std::vector<Values> results(graph.outputs.size());
  for (std::int64_t item = 0; item < static_dim(c.in(1), 0); ++item) {
    Values operands;
    std::vector<Formal> formals{{"step of " + graph.name, {i64, {}}, {}}};
    for (int i = 1; i < c.input_count(); ++i) {
      const Value whole = c.in(i);
      Value x = slice_axis(whole, 0, item, item + 1);
      x = reshape(x, Shape(x.shape().begin() + 1, x.shape().end()));
      Type type = x.type();
      if (i > carries) {
        if (type.shape.empty()) fail("Input ({}) has no axis to scan.", i);
        type.shape.erase(type.shape.begin());
        if (reverse[static_cast<std::size_t>(i - 1 - carries)] != 0) {
          x = c.add(op::Reverse{{0}}, {x});
        }
      }
      operands.push_back(x);
      formals.push_back({graph.inputs[static_cast<std::size_t>(i - 1)].name, type, {}});
    }
    if (!attributes.body) {
      attributes.body =
          std::make_shared<const Graph>(c.importer().build_graph(c.frame(), graph, formals, names));
    }
    const Values captured = captured_values(c, names);
    operands.insert(operands.end(), captured.begin(), captured.end());
    const Values values = c.add_all(attributes, operands);
    for (std::size_t k = 0; k < values.size(); ++k) {
      results[k].push_back(unsqueeze_axes(values[k], {0}));
    }
  }
  for (std::size_t k = 0; k < results.size(); ++k) {
    if (results[k].empty()) fail_unsupported("An empty batch is not supported.");
    c.set(static_cast<int>(k), concat(results[k], 0));
  }
}

constexpr OpEntry entries[] = {
    {"If", 1, if_node}, {"Loop", 1, loop_node}, {"Scan", 9, scan_node}, {"Scan", 8, scan_batched}};

}  // namespace

OpEntries control_entries() { return entries; }

}  // namespace rlx::onnx
