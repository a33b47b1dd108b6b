// Ops of a user's own: C++ functions that run inside plans, beside the ops of rlx.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rlx/graph.hpp"
#include "rlx/import.hpp"
#include "rlx/tensor.hpp"

namespace rlx {

/// What a custom op is given beside its inputs: texts of the form "name=value". Reading allocates
/// nothing.
class CustomAttributes {
 public:
  explicit CustomAttributes(std::span<const std::string> texts) : texts_(texts) {}
  /// The text behind "name=".
  std::optional<std::string_view> find(std::string_view name) const;
  /// The number of that name, or `otherwise` where there is none. Throws where it is no number.
  double number(std::string_view name, double otherwise) const;
  std::int64_t integer(std::string_view name, std::int64_t otherwise) const;

 private:
  std::span<const std::string> texts_;
};

/// What one application costs, for the cost model; bytes count inputs and results once.
struct CustomCost {
  double flops = 0, bytes = 0;
};

/// An op that a user defines. The functions must be pure (equal nodes are merged, nodes of
/// constants are computed once) and are called from several threads where programs are cloned.
struct CustomOp {
  using Infer = Result<std::vector<Type>>(const CustomAttributes&, std::span<const Type> inputs);
  using Eval = Status(const CustomAttributes&, std::span<const TensorView> inputs,
                      std::span<const MutableTensorView> outputs);
  using Cost = CustomCost(const CustomAttributes&, std::span<const Type> inputs,
                          std::span<const Type> results);

  std::string name;  ///< as texts and models call it; an ONNX node's is "domain:OpType"
  int min_inputs = 1, max_inputs = 1;  ///< at most -1: any number
  /// The types of the results; dims of inputs may still be symbols. Called while graphs are built.
  std::function<Infer> infer;
  /// Fills the outputs, which lie where infer's types say, dense. Called in every run: an error
  /// ends the run; rlx allocates nothing around it.
  std::function<Eval> eval;
  /// May be left out: then inputs and results are read and written once, with one FLOP an element.
  std::function<Cost> cost;
  /// Other devices than the CPU stop for it: one sync point in IO profiles. False where the
  /// function reads a device's own memory without a round trip.
  bool host_only = true;
};

/// The custom ops that graphs, texts and models may name.
class CustomOps {
 public:
  /// Errors: no name, infer or eval; a name that is taken.
  Status add(CustomOp op);
  /// Null where there is none.
  std::shared_ptr<const CustomOp> find(std::string_view name) const;
  /// All names, in order.
  std::vector<std::string> names() const;

 private:
  std::map<std::string, std::shared_ptr<const CustomOp>, std::less<>> ops_;
};

namespace op {

/// (any number of tensors) -> what the definition infers. Two are equal where name, attributes and
/// definition are.
struct Custom {
  std::string name;
  std::vector<std::string> attributes;         ///< "name=value"
  std::shared_ptr<const CustomOp> definition;  ///< null: not registered, which infer refuses
};

}  // namespace op

template <>
const OpInfo& info_of<op::Custom>();

/// Applies a registered op. Throws Exception where there is none of that name, or where its infer
/// refuses.
std::vector<Value> custom(const CustomOps& ops, std::string_view name,
                          std::span<const Value> inputs, std::vector<std::string> attributes = {});
/// The same for one result.
Value custom(const CustomOps& ops, std::string_view name, std::initializer_list<Value> inputs,
             std::vector<std::string> attributes = {});

/// rlx::parse of a text whose nodes may be custom ops.
Result<Graph> parse(std::string_view text, const CustomOps& ops);

/// rlx::import_onnx of a model whose nodes may be custom ops: one of `domain` and `OpType` that rlx
/// does not know is looked up as "domain:OpType" ("OpType" without a domain); its numbers and texts
/// become attributes, lists with commas between.
Result<Graph> import_onnx(const std::filesystem::path& file, const ImportOptions& options,
                          const CustomOps& ops);
Result<Graph> import_onnx(std::span<const std::byte> model, const ImportOptions& options,
                          const CustomOps& ops);

}  // namespace rlx
