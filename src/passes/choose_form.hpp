// Convolutions that can be written in several ways: the forms, and who chooses among them.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "rlx/graph.hpp"
#include "rlx/ops.hpp"

namespace rlx::passes {

/// One way to write a convolution with its bias and activation.
struct ConvolutionForm {
  std::string what;  ///< "with 2 columns side by side"
  /// Makes it, as a graph by itself. May be called on any thread while the asking pass waits.
  std::function<Result<Graph>()> graph;
  double weights = 1;       ///< how many times as large the weights are
  double worth_ns = 0;      ///< what a run must win at least, since the form takes long to prepare
  std::string price;        ///< what else it costs, for people; empty: nothing
  bool asks_again = false;  ///< its convolutions may take other forms still (`winograd` asks)
};

/// Multiply-adds of a convolution that are worth a question.
inline constexpr double least_work_to_ask = 50'000;

/// What a run must win, so that some three hundred of them give back what planning and preparing a
/// form took: a millisecond, and a nanosecond for each byte of its weights, of which fresh memory
/// takes as much as the transform or more.
constexpr double worth_of_start(double weight_bytes) { return (1e6 + weight_bytes) / 300; }

/// A convolution and its forms. The first one is the convolution as it is.
struct FormQuestion {
  std::int32_t node = -1;
  std::vector<ConvolutionForm> forms;
};

/// Which forms are the fastest, by question: all of a graph at once, so that they can be predicted
/// side by side.
using ChooseForms =
    std::function<std::vector<std::size_t>(const Graph&, std::span<const FormQuestion>)>;

/// The input "x" of a form, which stands for `read` of `graph`: kept in the order in which the
/// whole program keeps it, where a transposition shows it in another.
inline Value input_as_read(Graph& form, const Graph& graph, ValueId read) {
  const Node& shown = graph.node(read);
  const auto* order = shown.op.as<op::Transpose>();
  const Type& kept = graph.type(order ? shown.inputs[0] : read);
  const Value x = form.input("x", kept.dtype, kept.shape);
  return order ? transpose(x, order->perm) : x;
}

}  // namespace rlx::passes
