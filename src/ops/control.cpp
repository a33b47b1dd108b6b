// Branches, and loops that run while a condition holds. Their reference is the evaluation of the
// graphs they hold.
#include <algorithm>

#include "graph/rules.hpp"
#include "ops/families.hpp"
#include "ops/subgraph.hpp"
#include "rlx/custom.hpp"

namespace rlx {
namespace {

using Types = Result<std::vector<Type>>;
using Tensors = Result<std::vector<Tensor>>;

// What both branches may give: dims in which they differ are known when the condition is.
Types common_types(const std::vector<Type>& a, const std::vector<Type>& b) {
  if (a.size() != b.size())
    return bad_input("The branches of an if give ({}) and ({}) results.", a.size(), b.size());
  std::vector<Type> types = a;
  for (std::size_t r = 0; r < types.size(); ++r) {
    if (a[r].dtype != b[r].dtype)
      return bad_input("Result ({}) of an if is {} in one branch and {} in the other.", r,
                       a[r].text(), b[r].text());
    if (a[r].rank() != b[r].rank())
      return unsupported("Result ({}) of an if is {} in one branch and {} in the other.", r,
                         a[r].text(), b[r].text());
    for (std::size_t i = 0; i < a[r].shape.size(); ++i) {
      if (!(a[r].shape[i] == b[r].shape[i])) types[r].shape[i] = Dim::unknown();
    }
  }
  return types;
}

Tensors run_branch(const op::If& a, std::span<const TensorView> inputs) {
  std::vector<Tensor> operands;
  for (const TensorView& input : inputs.subspan(1)) operands.push_back(borrowed(input));
  const bool condition = *inputs[0].as<std::uint8_t>() != 0;
  return evaluate_graph(condition ? *a.then_branch : *a.else_branch, operands);
}

using Build = Values (*)(Graph&, const Values&);

// A graph for samples: inputs of those types, outputs as `build` says.
GraphPointer sample_graph(const std::vector<Type>& inputs, Build build) {
  Graph graph;
  Values values;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    values.push_back(graph.input("in" + std::to_string(i), inputs[i].dtype, inputs[i].shape));
  const Values results = build(graph, values);
  for (std::size_t i = 0; i < results.size(); ++i)
    graph.output("out" + std::to_string(i), results[i]);
  return std::make_shared<const Graph>(std::move(graph));
}

}  // namespace

template <>
struct Rules<op::If> {
  static constexpr std::string_view name = "if";
  static constexpr Arity arity{1, -1};
  static constexpr OpTraits traits{.control_flow = true};
  static constexpr auto fields = std::tuple{field("then_branch", &op::If::then_branch),
                                            field("else_branch", &op::If::else_branch)};
  static Types infer(const op::If& a, const InferArgs& args) {
    RLX_TRY(require_condition(name, "condition", args[0]));
    RLX_ASSIGN(const std::vector<Type> operands, operand_types(name, args, 1));
    RLX_ASSIGN(const std::vector<Type> then_types,
               infer_part(name, "then_branch", a.then_branch, operands));
    RLX_ASSIGN(const std::vector<Type> else_types,
               infer_part(name, "else_branch", a.else_branch, operands));
    return common_types(then_types, else_types);
  }
  static Status eval(const op::If& a, const EvalArgs& args) {
    RLX_ASSIGN(const std::vector<Tensor> results, run_branch(a, args.inputs));
    for (std::size_t i = 0; i < results.size(); ++i)
      RLX_TRY(store_result(name, results[i], args.outputs[i]));
    return {};
  }
  // Where the branches give different dims.
  static Tensors eval_dynamic(const op::If& a, std::span<const TensorView> inputs) {
    RLX_ASSIGN(std::vector<Tensor> results, run_branch(a, inputs));
    own_results(results, inputs);
    return results;
  }
  static std::vector<Sample> samples() {
    const Type x{f32, {2, 3}};
    const GraphPointer twice =
        sample_graph({x}, [](Graph&, const Values& in) { return Values{in[0] + in[0]}; });
    const GraphPointer same =
        sample_graph({x}, [](Graph&, const Values& in) { return Values{in[0]}; });
    const GraphPointer first_row = sample_graph(
        {x}, [](Graph&, const Values& in) { return Values{slice(in[0], {0, 0}, {1, 3})}; });
    return {{.op = op::If{twice, same},
             .inputs = {Type{boolean, {}}, x},
             .values = {Tensor::scalar(true)}},
            {.op = op::If{twice, same},
             .inputs = {Type{boolean, {}}, x},
             .values = {Tensor::scalar(false)}},
            {.op = op::If{twice, first_row},
             .inputs = {Type{boolean, {}}, x},
             .values = {Tensor::scalar(false)}}};
  }
};
RLX_OP(op::If, "control")

template <>
struct Rules<op::While> {
  static constexpr std::string_view name = "while";
  static constexpr Arity arity{1, -1};
  static constexpr OpTraits traits{.control_flow = true};
  static constexpr auto fields =
      std::tuple{field("condition", &op::While::condition), field("body", &op::While::body)};
  static Types infer(const op::While& a, const InferArgs& args) {
    RLX_ASSIGN(std::vector<Type> carries, operand_types(name, args));
    RLX_ASSIGN(const std::vector<Type> condition,
               infer_part(name, "condition", a.condition, carries));
    if (condition.size() != 1)
      return bad_input("The condition of while gives ({}) results; it must give one.",
                       condition.size());
    RLX_TRY(require_condition(name, "condition", condition[0]));
    RLX_ASSIGN(const std::vector<Type> next, infer_part(name, "body", a.body, carries));
    if (next.size() != carries.size())
      return bad_input("The body of while takes ({}) carries and gives ({}).", carries.size(),
                       next.size());
    for (std::size_t i = 0; i < carries.size(); ++i)
      RLX_TRY(require_kept(name, i, carries[i], next[i]));
    return carries;
  }
  static Status eval(const op::While& a, const EvalArgs& args) {
    std::vector<Tensor> carries;
    for (const TensorView& input : args.inputs) carries.push_back(borrowed(input));
    while (true) {
      RLX_ASSIGN(const std::vector<Tensor> condition, evaluate_graph(*a.condition, carries));
      if (!truth_of(condition[0])) break;
      RLX_ASSIGN(carries, evaluate_graph(*a.body, carries));
    }
    for (std::size_t i = 0; i < carries.size(); ++i)
      RLX_TRY(store_result(name, carries[i], args.outputs[i]));
    return {};
  }
  static std::vector<Sample> samples() {
    const Type count{i64, {}}, x{f32, {3}};
    const GraphPointer fewer = sample_graph({count, x}, [](Graph& graph, const Values& in) {
      return Values{less(in[0], graph.constant(i64, 5))};
    });
    const GraphPointer step = sample_graph({count, x}, [](Graph& graph, const Values& in) {
      return Values{in[0] + graph.constant(i64, 1), in[1] * graph.constant(f32, 0.5)};
    });
    return {{.op = op::While{fewer, step},
             .inputs = {count, x},
             .values = {Tensor::scalar<std::int64_t>(2)}},
            {.op = op::While{fewer, step},
             .inputs = {count, x},
             .values = {Tensor::scalar<std::int64_t>(9)}}};
  }
};
RLX_OP(op::While, "control")

OpList control_ops() {
  static const OpInfo* const list[] = {&info_of<op::If>(), &info_of<op::While>(),
                                       &info_of<op::Custom>()};
  return list;
}

}  // namespace rlx
