// The walk over a model: inputs, weights, nodes, functions, subgraphs.
#include "import/onnx/importer.hpp"

#include <algorithm>

#include "rlx/mapped.hpp"

namespace rlx::onnx {
namespace {

// Functions that call functions can grow exponentially; no real model comes near these.
constexpr std::int64_t max_nodes = 1'000'000;
constexpr int max_depth = 64;

std::string describe(const NodeProto& node) {
  const std::string op = name_in_domain(node);
  return node.name.empty() ? "onnx node " + op : "onnx node " + node.name + " (" + op + ")";
}

// Symbols are joined to texts like "(a*2)": their names must not look like that.
std::string symbol_name(std::string name) {
  for (char& c : name) {
    if (std::string_view("()+-*/|?, \t\n").find(c) != std::string_view::npos) c = '_';
  }
  return name;
}

bool is_named(const DimProto& dim) { return !dim.symbol.empty() && dim.symbol != "?"; }

const TypeProto& tensor_type_of(const ValueInfo& input) {
  if (!input.type || input.type->elem_type == 0) fail("The input ({}) has no type.", input.name);
  return *input.type;
}

std::set<std::string> initializer_names(const GraphProto& graph) {
  std::set<std::string> names;
  for (const TensorProto& tensor : graph.initializers) names.insert(tensor.name);
  return names;
}

// Names used in a graph (or the graphs inside it) that nothing in it defines, in order of first
// use.
class FreeNames {
 public:
  void add(const GraphProto& graph, std::set<std::string> defined) {
    for (const ValueInfo& input : graph.inputs) defined.insert(input.name);
    for (const TensorProto& tensor : graph.initializers) defined.insert(tensor.name);
    for (const NodeProto& node : graph.nodes) {
      for (const std::string& input : node.inputs) use(input, defined);
      for (const AttributeProto& attribute : node.attributes) {
        for (const GraphProto& inner : attribute.graphs) add(inner, defined);
      }
      defined.insert(node.outputs.begin(), node.outputs.end());
    }
    for (const ValueInfo& output : graph.outputs) use(output.name, defined);
  }
  const std::vector<std::string>& names() const { return names_; }

 private:
  void use(const std::string& name, const std::set<std::string>& defined) {
    if (name.empty() || defined.contains(name)) return;
    if (seen_.insert(name).second) names_.push_back(name);
  }
  std::set<std::string> seen_;
  std::vector<std::string> names_;
};

// Inputs with symbols, which an error may come from.
std::string open_inputs(const Graph& graph) {
  std::string list;
  for (const Node& node : graph.nodes()) {
    const auto* input = node.op.as<op::Input>();
    if (!input || node.results[0].is_static()) continue;
    list += (list.empty() ? "" : ", ") + input->name + " " + node.results[0].text();
  }
  return list;
}

bool is_repeated_inside(const Frame& frame, const Value& value) {
  return frame.graph->node(value.id()).op.is<op::Constant>();
}

}  // namespace

const FunctionProto* find_function(const ModelProto& model, const NodeProto& node) {
  const auto found = model.function_index.find({node.domain, node.op_type, node.overload});
  return found == model.function_index.end() ? nullptr : &model.functions[found->second];
}

Value Importer::with_names(const Frame& frame, const Value& value) {
  Shape shape = value.shape();
  if (frame.graph != main_ || is_told(shape)) return value;
  for (Dim& dim : shape) {
    if (!dim.is_unknown()) continue;
    std::string name;
    do name = fmt::format("data_{}", ++named_dims_);
    while (symbols_.contains(name));
    dim = Dim(std::move(name));
  }
  return frame.graph->add(op::NameDims{std::move(shape)}, Values{value}).front();
}

bool Importer::knows(const Frame& frame, const std::string& name) const {
  for (const Frame* place = &frame; place; place = place->outer) {
    if (place->names.contains(name) || place->sequences.contains(name)) return true;
  }
  return false;
}

Value Importer::find_value(const Frame& frame, const std::string& name) const {
  for (const Frame* place = &frame; place; place = place->outer) {
    const auto found = place->names.find(name);
    if (found != place->names.end()) return found->second;
  }
  if (find_sequence(frame, name)) fail_unsupported("A sequence ({}) cannot stand here.", name);
  fail("The name ({}) is used before anything defines it.", name);
}

const Values* Importer::find_sequence(const Frame& frame, const std::string& name) const {
  for (const Frame* place = &frame; place; place = place->outer) {
    const auto found = place->sequences.find(name);
    if (found != place->sequences.end()) return &found->second;
  }
  return nullptr;
}

void Importer::define_sequence(Frame& frame, const std::string& name, Values values) {
  if (name.empty()) fail("A sequence has an empty name.");
  if (frame.names.contains(name) || !frame.sequences.emplace(name, std::move(values)).second) {
    fail("The name ({}) is defined twice.", name);
  }
}

void Importer::define(Frame& frame, const std::string& name, Value value) {
  if (name.empty()) fail("A value has an empty name.");
  if (!frame.names.emplace(name, value).second) fail("The name ({}) is defined twice.", name);
}

Value Importer::weight(Frame& frame, const std::string& name, Tensor tensor) {
  // Passes look for zero points that are zeros: one for each channel.
  constexpr std::int64_t small_floats = 8, small_integers = 1024, channels = 65536;
  const bool narrow =
      tensor.dtype() == i8 || tensor.dtype() == u8 || tensor.dtype() == i4 || tensor.dtype() == u4;
  const bool large =
      (is_float(tensor.dtype()) && tensor.elements() > small_floats) ||
      (narrow && tensor.elements() > (tensor.dims().size() == 1 ? channels : small_integers));
  if (!frame.top || !large) return frame.graph->constant(aligned(tensor));
  const DType dtype = tensor.dtype();
  Dims dims = tensor.dims();
  return frame.graph->param(name, dtype, std::move(dims), std::move(tensor));
}

Graph Importer::import() {
  onnx::check_support(model_, custom_);
  Graph graph;
  ShapeValues shapes;
  Frame frame;
  main_ = &graph;
  frame.graph = &graph;
  frame.shapes = &shapes;
  frame.opsets = &model_.opsets;
  frame.top = true;
  import_inputs(frame);
  import_initializers(frame, model_.graph);
  try {
    import_nodes(frame, model_.graph.nodes);
  } catch (const Exception& exception) {
    Error error = exception.error();
    const std::string open = open_inputs(graph);
    if (!open.empty()) error.message += " (Dims of its inputs are not bound: " + open + ".)";
    throw Exception(error);
  }
  if (model_.graph.outputs.empty()) fail("The model has no outputs.");
  for (const ValueInfo& output : model_.graph.outputs) {
    const Value value = find_value(frame, output.name);
    if (!value) fail("The output ({}) is left out.", output.name);
    graph.output(output.name, value);
  }
  graph.set_origin("");
  return graph;
}

Importer::InputDims Importer::bound_symbols(const std::set<std::string>& initializers) const {
  std::map<std::string, std::int64_t> symbols;
  std::set<std::string> names;
  for (const ValueInfo& input : model_.graph.inputs) {
    if (initializers.contains(input.name)) continue;
    names.insert(input.name);
    const auto given = options_.input_dims.find(input.name);
    const TypeProto& type = tensor_type_of(input);
    if (given == options_.input_dims.end() || !type.shape) continue;
    const Dims& dims = given->second;
    if (dims.size() != type.shape->size()) {
      fail("The input ({}) has rank ({}) and the given dims have ({}).", input.name,
           type.shape->size(), dims.size());
    }
    for (std::size_t i = 0; i < dims.size(); ++i) {
      const DimProto& dim = (*type.shape)[i];
      if (dim.value && *dim.value >= 0 && *dim.value != dims[i]) {
        fail("Dim ({}) of the input ({}) is {} and cannot be {}.", i, input.name, *dim.value,
             dims[i]);
      }
      if (!is_named(dim)) continue;
      const auto [found, added] = symbols.emplace(dim.symbol, dims[i]);
      if (!added && found->second != dims[i]) {
        fail("The symbol ({}) cannot be {} and {}.", dim.symbol, found->second, dims[i]);
      }
    }
  }
  for (const auto& [name, dims] : options_.input_dims) {
    if (!names.contains(name)) fail("There is no input ({}) to give dims to.", name);
    checked_elements(dims, "The input (" + name + ")");
  }
  return symbols;
}

void Importer::import_inputs(Frame& frame) {
  // Inputs that have an initializer are defaults that nobody feeds.
  const std::set<std::string> initializers = initializer_names(model_.graph);
  const InputDims symbols = bound_symbols(initializers);
  for (const ValueInfo& input : model_.graph.inputs) {
    if (initializers.contains(input.name)) continue;
    const TypeProto& type = tensor_type_of(input);
    const auto given = options_.input_dims.find(input.name);
    const bool has_dims = given != options_.input_dims.end();
    if (!type.shape && !has_dims) {
      fail_unsupported("The input ({}) has no shape: give its dims.", input.name);
    }
    Shape shape;
    const std::size_t rank = type.shape ? type.shape->size() : given->second.size();
    for (std::size_t i = 0; i < rank; ++i) {
      const DimProto dim = type.shape ? (*type.shape)[i] : DimProto{};
      const auto bound = symbols.find(dim.symbol);
      if (dim.value && *dim.value >= 0) {
        shape.emplace_back(*dim.value);
      } else if (has_dims) {
        shape.emplace_back(given->second[i]);
      } else if (is_named(dim)) {
        shape.push_back(bound != symbols.end() ? Dim(bound->second) : Dim(symbol_name(dim.symbol)));
      } else {
        shape.emplace_back(symbol_name(input.name) + ":" + std::to_string(i));
      }
    }
    for (const Dim& dim : shape) {
      if (!dim.is_static()) symbols_.insert(dim.text());
    }
    const auto dtype = dtype_of_element(type.elem_type);
    const Value value = frame.graph->input(input.name, dtype.value_or(f32), shape);
    if (value.type().is_static()) checked_elements(value.type().dims(), "The input");
    const auto fixed = options_.input_values.find(input.name);
    const bool is_fixed = fixed_.contains(input.name) && fixed != options_.input_values.end();
    define(frame, input.name, is_fixed ? frame.graph->constant(fixed->second) : value);
  }
}

void Importer::want(const Frame& frame, ValueId id) {
  constexpr std::int64_t few = 64;
  std::set<std::string> inputs;
  std::set<std::int32_t> seen;
  std::vector<std::int32_t> open{id.node};
  while (!open.empty()) {
    const std::int32_t index = open.back();
    open.pop_back();
    if (index < 0 || !seen.insert(index).second) continue;
    const Node& node = frame.graph->nodes()[static_cast<std::size_t>(index)];
    for (const ValueId input : node.inputs) open.push_back(input.node);
    if (node.op.is<op::State>()) return;
    const auto* input = node.op.as<op::Input>();
    if (!input) continue;
    const auto value = options_.input_values.find(input->name);
    if (frame.graph != main_ || value == options_.input_values.end() ||
        value->second.dims().size() > 1 || value->second.elements() > few ||
        value->second.dtype() != input->dtype) {
      return;
    }
    inputs.insert(input->name);
  }
  wanted_.insert(inputs.begin(), inputs.end());
}

void Importer::import_initializers(Frame& frame, const GraphProto& graph) {
  for (const TensorProto& tensor : graph.initializers) {
    define(frame, tensor.name, weight(frame, tensor.name, source_.load(tensor, true)));
  }
}

void Importer::import_nodes(Frame& frame, const std::vector<NodeProto>& nodes) {
  if (frame.depth > max_depth) fail("Graphs and functions are nested too deeply.");
  const std::string outer_origin = frame.graph->origin();
  for (const NodeProto& node : nodes) import_node(frame, node);
  frame.graph->set_origin(outer_origin);
}

void Importer::import_node(Frame& frame, const NodeProto& node) {
  if (++imported_nodes_ > max_nodes) fail("The model has more than {} nodes.", max_nodes);
  const std::string place = describe(node);
  frame.graph->set_origin(place);
  try {
    if (const FunctionProto* function = find_function(model_, node)) {
      call_function(frame, node, *function);
      return;
    }
    const auto opset = frame.opsets->find(node.domain);
    const std::int64_t version = opset == frame.opsets->end() ? 1 : opset->second;
    const Handler handler = find_handler(node.domain, node.op_type, version);
    NodeContext context(*this, frame, node, version);
    if (handler) {
      handler(context);
    } else {
      import_custom(context, custom_);
    }
    context.check_attributes();
    for (const std::string& output : node.outputs) {
      if (!output.empty() && !knows(frame, output)) {
        fail_unsupported("Its output ({}) is not supported.", output);
      }
    }
    track_shape_values(context, frame);
  } catch (const Exception& exception) {
    if (exception.error().message.find(place) != std::string::npos) throw;
    throw Exception(Error(exception.error()).while_("importing " + place));
  }
}

void Importer::call_function(Frame& frame, const NodeProto& node, const FunctionProto& function) {
  Frame inner;
  inner.graph = frame.graph;
  inner.shapes = frame.shapes;
  inner.opsets = &function.opsets;
  inner.depth = frame.depth + 1;
  if (node.inputs.size() > function.inputs.size()) {
    fail("The function takes ({}) inputs and gets ({}).", function.inputs.size(),
         node.inputs.size());
  }
  for (std::size_t i = 0; i < function.inputs.size(); ++i) {
    const bool given = i < node.inputs.size() && !node.inputs[i].empty();
    if (const Values* sequence = given ? find_sequence(frame, node.inputs[i]) : nullptr) {
      define_sequence(inner, function.inputs[i], *sequence);
      continue;
    }
    define(inner, function.inputs[i], given ? find_value(frame, node.inputs[i]) : Value());
  }
  for (const AttributeProto& attribute : function.defaults) {
    inner.attributes[attribute.name] = &attribute;
  }
  for (const AttributeProto& attribute : node.attributes) {
    const auto passed = frame.attributes.find(attribute.reference);
    if (attribute.reference.empty()) {
      inner.attributes[attribute.name] = &attribute;
    } else if (passed != frame.attributes.end()) {
      inner.attributes[attribute.name] = passed->second;
    }
  }
  import_nodes(inner, function.nodes);
  if (node.outputs.size() > function.outputs.size()) {
    fail("The function gives ({}) outputs, not ({}).", function.outputs.size(),
         node.outputs.size());
  }
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i].empty()) continue;
    if (const Values* sequence = find_sequence(inner, function.outputs[i])) {
      define_sequence(frame, node.outputs[i], *sequence);
    } else {
      define(frame, node.outputs[i], find_value(inner, function.outputs[i]));
    }
  }
}

Values Importer::inline_graph(Frame& frame, const GraphProto& graph, const Values& inputs) {
  Frame inner;
  inner.graph = frame.graph;
  inner.shapes = frame.shapes;
  inner.opsets = frame.opsets;
  inner.outer = &frame;
  inner.depth = frame.depth + 1;
  inner.attributes = frame.attributes;
  if (inputs.size() != graph.inputs.size()) {
    fail("A subgraph takes ({}) inputs and gets ({}).", graph.inputs.size(), inputs.size());
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) define(inner, graph.inputs[i].name, inputs[i]);
  import_initializers(inner, graph);
  import_nodes(inner, graph.nodes);
  Values outputs;
  for (const ValueInfo& output : graph.outputs) outputs.push_back(find_value(inner, output.name));
  return outputs;
}

std::vector<std::string> Importer::captures(const Frame& frame,
                                            const std::vector<const GraphProto*>& graphs) const {
  FreeNames free;
  for (const GraphProto* graph : graphs) free.add(*graph, {});
  std::vector<std::string> names;
  for (const std::string& name : free.names()) {
    const Value value = find_value(frame, name);
    if (value && !is_repeated_inside(frame, value)) names.push_back(name);
  }
  return names;
}

void Importer::repeat_known_values(const Frame& outer, Frame& frame, const GraphProto& graph) {
  FreeNames free;
  free.add(graph, {});
  for (const std::string& name : free.names()) {
    const Value value = find_value(outer, name);
    if (!value) {
      frame.names.emplace(name, Value());
    } else if (const auto* constant = outer.graph->node(value.id()).op.as<op::Constant>()) {
      frame.names.emplace(name, frame.graph->constant(constant->value));
    }
  }
}

Graph Importer::build_graph(const Frame& frame, const GraphProto& graph,
                            const std::vector<Formal>& inputs,
                            const std::vector<std::string>& captured) {
  Graph built;
  ShapeValues shapes;
  Frame inner;
  inner.graph = &built;
  inner.shapes = &shapes;
  inner.opsets = frame.opsets;
  inner.depth = frame.depth + 1;
  inner.attributes = frame.attributes;
  for (const Formal& formal : inputs) {
    const Value value = formal.value
                            ? built.constant(*formal.value)
                            : built.input(formal.name, formal.type.dtype, formal.type.shape);
    define(inner, formal.name, value);
  }
  for (const std::string& name : captured) {
    const Value outside = find_value(frame, name);
    const Value inside = built.input(name, outside.dtype(), outside.shape());
    define(inner, name, inside);
    const auto dims = frame.shapes->find(outside.id());
    if (dims != frame.shapes->end()) shapes.insert_or_assign(inside.id(), dims->second);
  }
  repeat_known_values(frame, inner, graph);
  import_initializers(inner, graph);
  import_nodes(inner, graph.nodes);
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    const Value value = find_value(inner, graph.outputs[i].name);
    if (!value) fail("The output ({}) is left out.", graph.outputs[i].name);
    // Results may repeat a name; outputs of a graph have names of their own.
    built.output(std::to_string(i), value);
  }
  return built;
}

}  // namespace rlx::onnx
