// What control flow ops share: the types and values of the graphs among their attributes.
#pragma once

#include "graph/op_info.hpp"

namespace rlx {

/// The types of the inputs from `first` on; none may be left out.
Result<std::vector<Type>> operand_types(std::string_view op, const InferArgs& args, int first = 0);

/// infer_graph of an attribute, with errors that name it; null is an error.
Result<std::vector<Type>> infer_part(std::string_view op, std::string_view part,
                                     const std::shared_ptr<const Graph>& graph,
                                     std::span<const Type> inputs);

/// An error unless `next` can be `type` again: dtype, rank and known dims.
Status require_kept(std::string_view op, std::size_t carry, const Type& type, const Type& next);

/// An error unless these are the types of one bool scalar.
Status require_condition(std::string_view op, std::string_view what, const Type& type);

/// Borrows the bytes of a view: valid as long as the view is.
Tensor borrowed(const TensorView& view);

/// Copies a value into an output; an error where its dims are not those inferred.
Status store_result(std::string_view op, const Tensor& value, const MutableTensorView& out);

/// Results that share bytes with inputs that were borrowed become copies of their own.
void own_results(std::vector<Tensor>& results, std::span<const TensorView> inputs);

bool truth_of(const Tensor& scalar);

}  // namespace rlx
