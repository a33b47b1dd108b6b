// Walks over the nodes of a model, of its functions and subgraphs, and builds one rlx graph.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "import/onnx/model.hpp"
#include "import/onnx/node_context.hpp"
#include "import/onnx/tensor_data.hpp"
#include "rlx/custom.hpp"
#include "rlx/import.hpp"

namespace rlx::onnx {

/// Dims that values hold, of the values of one rlx graph.
using ShapeValues = std::map<ValueId, Shape>;

/// Where nodes are being imported to: a graph, the names in sight, the opsets that count.
struct Frame {
  Graph* graph = nullptr;
  ShapeValues* shapes = nullptr;
  const OpsetImports* opsets = nullptr;
  const Frame* outer = nullptr;  ///< whose names are in sight too
  bool top = false;              ///< the model's own graph: weights become params
  int depth = 0;
  std::map<std::string, Value> names;
  std::map<std::string, Values> sequences;  ///< lists of values, known by their number alone
  std::map<std::string, const AttributeProto*> attributes;  ///< of the function being inlined
};

class Importer {
 public:
  /// `fixed`: inputs that take their value from the options.
  Importer(const ModelProto& model, TensorSource& source, const ImportOptions& options,
           const CustomOps& custom, const std::set<std::string>& fixed)
      : model_(model), source_(source), options_(options), custom_(custom), fixed_(fixed) {}

  Graph import();

  /// Inputs not yet fixed whose values, which the options hold, somebody asked for.
  const std::set<std::string>& wanted() const { return wanted_; }

  // ---- for NodeContext and handlers
  /// The value with names for what data decides of its dims, in the model's own graph: what follows
  /// computes with them as with symbols of inputs. Graphs inside are evaluated for dims that may
  /// differ from one time to the next.
  Value with_names(const Frame& frame, const Value& value);
  Value find_value(const Frame& frame, const std::string& name) const;
  bool knows(const Frame& frame, const std::string& name) const;
  void define(Frame& frame, const std::string& name, Value value);
  /// The sequence of that name, or null.
  const Values* find_sequence(const Frame& frame, const std::string& name) const;
  void define_sequence(Frame& frame, const std::string& name, Values values);
  /// Notes the inputs that the value depends on, where it depends on inputs with given values
  /// alone.
  void want(const Frame& frame, ValueId id);
  Tensor load(const TensorProto& proto) { return source_.load(proto); }
  /// A weight: a param where it is large and of the model's own graph, else a constant.
  Value weight(Frame& frame, const std::string& name, Tensor tensor);

  /// Imports a subgraph into the frame's own graph; its inputs are the given values.
  Values inline_graph(Frame& frame, const GraphProto& graph, const Values& inputs);
  /// Names that subgraphs take from outside, in order of first use, without those that are known
  /// values: they are repeated inside.
  std::vector<std::string> captures(const Frame& frame,
                                    const std::vector<const GraphProto*>& graphs) const;
  /// An input of a graph of its own: fed, or a constant that is known at once.
  struct Formal {
    std::string name;
    Type type;
    std::optional<Tensor> value;
  };
  /// Imports a subgraph as a graph of its own, with these inputs, then the captured values.
  Graph build_graph(const Frame& frame, const GraphProto& graph, const std::vector<Formal>& inputs,
                    const std::vector<std::string>& captured);

 private:
  using InputDims = std::map<std::string, std::int64_t>;

  void import_inputs(Frame& frame);
  InputDims bound_symbols(const std::set<std::string>& initializers) const;
  void import_initializers(Frame& frame, const GraphProto& graph);
  void import_nodes(Frame& frame, const std::vector<NodeProto>& nodes);
  void import_node(Frame& frame, const NodeProto& node);
  void call_function(Frame& frame, const NodeProto& node, const FunctionProto& function);
  void repeat_known_values(const Frame& outer, Frame& frame, const GraphProto& graph);

  const ModelProto& model_;
  TensorSource& source_;
  const ImportOptions& options_;
  const CustomOps& custom_;
  const std::set<std::string>& fixed_;
  std::set<std::string> wanted_;
  const Graph* main_ = nullptr;
  std::set<std::string> symbols_;  ///< of the inputs
  int named_dims_ = 0;
  std::int64_t imported_nodes_ = 0;
};

/// The model's function of that name, or null.
const FunctionProto* find_function(const ModelProto& model, const NodeProto& node);

/// Throws one `unsupported` error that names every op and type of the model that is missing.
void check_support(const ModelProto& model, const CustomOps& custom);

/// The handler for that op at that opset version, or null.
Handler find_handler(const std::string& domain, const std::string& op, std::int64_t version);

/// "domain:OpType", without a domain "OpType".
std::string name_in_domain(const NodeProto& node);

/// Imports a node as the registered op of its name; throws `unsupported` where there is none.
void import_custom(NodeContext& context, const CustomOps& ops);

/// Learns what an integer result says about dims, after a node was imported.
void track_shape_values(NodeContext& context, Frame& frame);

}  // namespace rlx::onnx
