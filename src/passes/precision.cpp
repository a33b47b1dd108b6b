// Products with operands of bf16, or with weights stored as f16 or bf16: casts to it and back in
// front of the operands. The planner makes the first part of the kernel that writes the operand, or
// of packing the weight; products read through the second (Regions, see reads_through_cast).
#include "passes/precision.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>

#include "graph/byte_weight.hpp"
#include "graph/line_points.hpp"
#include "graph/weight_only.hpp"
#include "graph/winograd.hpp"
#include "passes/byte_products.hpp"
#include "passes/pattern.hpp"
#include "passes/rewriter.hpp"
#include "rlx/ops.hpp"

namespace rlx::passes {
namespace {

/// What a product computes in: the dtypes of its operands.
struct Form {
  DType a = f32, b = f32;
  std::string name = "f32";
};

class Narrowing {
 public:
  Narrowing(const Graph& graph, const PrecisionPolicy& policy,
            std::vector<Explanation::Claim>& claims)
      : graph_(graph),
        policy_(policy),
        claims_(claims),
        weight_only_(weight_only_nodes(graph)),
        readers_(readers_of(graph)) {}

  Result<bool> visit(Rewriter& rewriter, std::int32_t index, const Node& node) {
    if (weight_only_[static_cast<std::size_t>(index)]) return false;
    if (node.op.is<op::Lstm>() || node.op.is<op::Gru>() || node.op.is<op::Rnn>())
      claims_.push_back({std::string(node.op.name()), node.origin, false,
                         "f32: a recurrent layer with a kernel of its own"});
    const auto shape = product_shape(graph_, node);
    if (!shape) return false;
    if (graph_.type(node.inputs[0]).dtype != f32 || graph_.type(node.inputs[1]).dtype != f32)
      return false;
    // Points of tiles: the transform behind them would enlarge what rounding takes.
    const Op& reads = graph_.node(node.inputs[0]).op;
    if (reads.is<op::WinogradImage>() || reads.is<op::LinePoints>()) return false;
    if (byte_weight(graph_, node, weight_only_)) {
      claims_.push_back({std::string(node.op.name()), node.origin, true,
                         "f32: its weights are read as the numbers that are stored"});
      return false;
    }
    shape_ = *shape;
    const bool weight = weight_only_[static_cast<std::size_t>(node.inputs[1].node)];
    std::string reason;
    const Form form = choose(node, weight, reason);
    claims_.push_back({std::string(node.op.name()), node.origin, form.b != f32,
                       fmt::format("{}: {}", form.name, reason)});
    if (form.b == f32) return false;
    if (form.b == i8) {
      rewriter.replace(index, Values{byte_product_of(rewriter, node)});
      return true;
    }
    const ValueId a = node.op.is<op::Conv>() ? widened_image(rewriter, node.inputs[0], form.a)
                                             : widened(rewriter, node.inputs[0], form.a);
    if (form.b == f16 && !fits_halves(node.inputs[1])) {
      rewriter.replace(index, Values{halves_product_of(rewriter, node)});
      return true;
    }
    const ValueId b = weight ? cast(cast(at(rewriter, node.inputs[1]), form.b), f32).id()
                             : widened(rewriter, node.inputs[1], form.b);
    RLX_TRY(rewriter.add(index, node.op, {a, b}));
    return true;
  }

 private:
  /// The form that the policy wants, if it pays.
  Form choose(const Node& node, bool weight, std::string& reason) const {
    const bool narrow = policy_.asked == Precision::bf16 || policy_.asked == Precision::int8;
    if (policy_.asked == Precision::int8 && policy_.vnni && weight && rows_quantise(node))
      return allowed(node, {u8, i8, "int8"}, weight, reason);
    if (policy_.asked == Precision::int8 && !policy_.bf16_dot) {
      reason = policy_.vnni ? "int8 takes matmuls with weights"
                            : "int8 wants AVX512-VNNI, which this machine does not have";
      return {};
    }
    if (narrow && policy_.bf16_dot) return allowed(node, {bf16, bf16, "bf16"}, weight, reason);
    const DType storage = policy_.asked == Precision::f16 ? f16 : bf16;
    return allowed(node, {f32, storage, fmt::format("{} weights", name_of(storage))}, weight,
                   reason);
  }

  /// A matmul whose rows are the last axis of A, and whose sums of bytes fit into i32.
  bool rows_quantise(const Node& node) const {
    constexpr std::int64_t most_products = (std::int64_t{1} << 31) / (255 * 127) - 1;
    const auto* dot = node.op.as<op::DotGeneral>();
    return dot && shape_.depth <= most_products && shape_.run_in_a && dot->a_batch.empty() &&
           dot->a_contract.size() == 1 && graph_.type(node.inputs[1]).rank() == 2;
  }

  Form allowed(const Node& node, Form form, bool weight, std::string& reason) const {
    constexpr std::int64_t least_run = 16;  // shorter ones leave many of the pairs half empty
    const bool dots = form.a != f32;
    if (node.results[0].elements() == 0 || shape_.depth == 0) {
      reason = "nothing to compute";
    } else if (!dots && !weight) {
      reason = "no weights that could be stored narrower";
    } else if (shape_.columns == 1) {
      reason = "a single column is summed along k";
    } else if (dots && !shape_.run_in_a) {
      reason = "k does not lie side by side in the left operand";
    } else if (dots && shape_.run < least_run) {
      reason = fmt::format("only ({}) channels, as in first layers", shape_.run);
    } else if (form.b == i8 && is_last(node)) {
      reason = "nothing but an output reads it: a last layer";
    } else {
      const double wide = policy_.predicted_ns(shape_, f32, f32, weight),
                   narrow = policy_.predicted_ns(shape_, form.a, form.b, weight);
      reason = fmt::format("predicted {:.1f} us, {:.1f} us in f32", narrow / 1e3, wide / 1e3);
      if (narrow < wide) return form;
    }
    return {};
  }

  /// Is the value an output after at most a bias and views?
  bool is_last(const Node& node) const {
    auto index = static_cast<std::int32_t>(&node - graph_.nodes().data());
    for (int step = 0; step < 3; ++step) {
      const auto& readers = readers_[static_cast<std::size_t>(index)];
      if (!readers.empty() && readers.back() < 0) return true;
      if (readers.size() != 1) return false;
      const Op& op = graph_.nodes()[static_cast<std::size_t>(readers[0])].op;
      if (!op.is<op::Add>() && !op.is<op::Reshape>() && !op.is<op::Transpose>()) return false;
      index = readers[0];
    }
    return false;
  }

  /// The product of quantised rows and columns; the rows are shared by all products that read them.
  Value byte_product_of(Rewriter& rewriter, const Node& node) {
    const auto& dot = *node.op.as<op::DotGeneral>();
    const ValueId a = node.inputs[0];
    if (!rows_.contains(a)) rows_[a] = quantised_rows(at(rewriter, a));
    const std::int64_t axis = dot.b_contract[0];
    return byte_product(rewriter.target(), dot, rows_[a], at(rewriter, node.inputs[1]),
                        axis < 0 ? axis + 2 : axis);
  }

  /// Whether the weight is known to keep its digits as f16: it was f16 before, or it is stored, and
  /// its largest magnitude lies well inside of what f16 has.
  bool fits_halves(ValueId id) const {
    constexpr float least = 0x1p-8F, most = 0x1p15F;
    const Node* node = &graph_.node(id);
    while (is_view(node->op)) node = &graph_.node(node->inputs[0]);
    if (node->op.is<op::Cast>()) return graph_.type(node->inputs[0]).dtype == f16;
    const auto* param = node->op.as<op::Param>();
    const auto* constant = node->op.as<op::Constant>();
    const Tensor* stored = param ? &param->data : constant ? &constant->value : nullptr;
    if (!stored || stored->empty() || stored->dtype() != f32) return false;
    const auto* bytes = static_cast<const std::byte*>(stored->data());
    float largest = 0;
    for (std::int64_t i = 0; i < stored->elements(); ++i) {
      float value = 0;  // mapped weights begin anywhere
      std::memcpy(&value, bytes + static_cast<std::size_t>(i) * sizeof(value), sizeof(value));
      largest = std::max(largest, std::abs(value));
    }
    return largest >= least && largest <= most;
  }

  static bool is_view(const Op& op) {
    return op.is<op::Reshape>() || op.is<op::Transpose>() || op.is<op::Slice>() ||
           op.is<op::Broadcast>();
  }

  /// The product with columns of f16, each divided by its largest magnitude: f16 has no larger
  /// numbers than 65504, and few digits below 2^-14.
  Value halves_product_of(Rewriter& rewriter, const Node& node) {
    constexpr double least = 1e-30;  // columns without any range divide by it
    const Value w = at(rewriter, node.inputs[1]);
    const Columns columns = columns_of(node);
    const Value largest = max_over(abs(w), columns.contracted, true);
    const Value scale = max(largest, w.graph().constant(f32, least));
    const Value halves = cast(cast(w / scale, f16), f32);
    const std::vector<ValueId> operands{rewriter(node.inputs[0]), halves.id()};
    auto made = rewriter.target().try_add(node.op, operands, {}, node.origin);
    if (!made.ok()) throw Exception(made.error());
    const Value scales = reshape(transpose(scale, columns.in_order), columns.in_result);
    return rewriter.target().handle((*made)[0]) * scales;
  }

  /// Which axes of a product's B are summed over; the axes of B as the result has them, those that
  /// are summed over between batch and columns; and the columns over the result, to broadcast.
  struct Columns {
    Axes contracted, in_order;
    Shape in_result;
  };
  Columns columns_of(const Node& node) const {
    const Type& b = graph_.type(node.inputs[1]);
    const auto rank = static_cast<std::int64_t>(b.rank());
    const auto from_front = [&](Axes axes) {
      for (std::int64_t& axis : axes) axis += axis < 0 ? rank : 0;
      return axes;
    };
    const auto* dot = node.op.as<op::DotGeneral>();
    Columns columns;
    const Axes batch = dot ? from_front(dot->b_batch) : Axes{};
    if (dot) {
      columns.contracted = from_front(dot->b_contract);
    } else {
      for (std::int64_t axis = 0; axis + 1 < rank; ++axis) columns.contracted.push_back(axis);
    }
    const auto has = [](const Axes& axes, std::int64_t axis) {
      return std::ranges::find(axes, axis) != axes.end();
    };
    Axes free;
    for (std::int64_t axis = 0; axis < rank; ++axis) {
      if (!has(batch, axis) && !has(columns.contracted, axis)) free.push_back(axis);
    }
    for (const Axes& axes : {batch, columns.contracted, free})
      columns.in_order.insert(columns.in_order.end(), axes.begin(), axes.end());
    columns.in_result.assign(node.results[0].shape.size(), Dim(1));
    for (std::size_t i = 0; i < batch.size(); ++i) columns.in_result[i] = b.shape[batch[i]];
    const std::size_t first_free = columns.in_result.size() - free.size();
    for (std::size_t i = 0; i < free.size(); ++i)
      columns.in_result[first_free + i] = b.shape[free[i]];
    return columns;
  }

  static Value at(Rewriter& rewriter, ValueId id) { return rewriter.target().handle(rewriter(id)); }

  /// The value after rounding, as f32: products read it narrow where it lies.
  ValueId widened(Rewriter& rewriter, ValueId id, DType dtype) {
    if (dtype == f32) return rewriter(id);
    const auto known = widened_.find({id, dtype});
    if (known != widened_.end()) return known->second;
    const ValueId narrow = narrowed(rewriter, id, dtype);
    return widened_[{id, dtype}] = cast(rewriter.target().handle(narrow), f32).id();
  }

  /// The same of an image. Windows want the channels of a position side by side: what turns them to
  /// the end is stored so.
  ValueId widened_image(Rewriter& rewriter, ValueId id, DType dtype) {
    const auto* turn = graph_.node(id).op.as<op::Transpose>();
    if (turn && dtype != f32 && turn->perm.back() != std::ssize(turn->perm) - 1)
      narrowed_.try_emplace({id, dtype}, cast(at(rewriter, id), dtype).id());
    return widened(rewriter, id, dtype);
  }

  /// The value in a narrower dtype: rounded where it is made, under the views through which it is
  /// read, and once for all its readers.
  ValueId narrowed(Rewriter& rewriter, ValueId id, DType dtype) {
    const auto known = narrowed_.find({id, dtype});
    if (known != narrowed_.end()) return known->second;
    const Node& node = graph_.node(id);
    ValueId result;
    if (is_view(node.op)) {
      std::vector<ValueId> inputs = rewriter.inputs_of(node);
      inputs[0] = narrowed(rewriter, node.inputs[0], dtype);
      auto made = rewriter.target().try_add(node.op, inputs, {}, node.origin);
      if (!made.ok()) throw Exception(made.error());
      result = (*made)[0];
    } else {
      result = cast(at(rewriter, id), dtype).id();
    }
    narrowed_[{id, dtype}] = result;
    return result;
  }

  const Graph& graph_;
  const PrecisionPolicy& policy_;
  std::vector<Explanation::Claim>& claims_;
  const std::vector<bool> weight_only_;
  std::map<std::pair<ValueId, DType>, ValueId> narrowed_, widened_;
  std::map<ValueId, ByteRows> rows_;
  std::vector<std::vector<std::int32_t>> readers_;  ///< -1: an output
  ProductShape shape_;
};

}  // namespace

Result<Graph> narrow_products(const Graph& graph, const PrecisionPolicy& policy,
                              std::vector<Explanation::Claim>& claims) {
  Narrowing narrowing(graph, policy, claims);
  return rewrite(graph,
                 [&](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
                   return narrowing.visit(rewriter, index, node);
                 });
}

}  // namespace rlx::passes
