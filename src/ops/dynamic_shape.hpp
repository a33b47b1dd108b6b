// What ops whose operands tell dims share: reading the operands, with errors in words.
#pragma once

#include "base/error.hpp"
#include "ops/families.hpp"
#include "ops/index.hpp"

namespace rlx::dynamic_shape {

using Types = Result<std::vector<Type>>;
inline constexpr OpTraits told_by_operands{.shape_operands = true};

inline Types one(DType dtype, Shape shape) {
  return std::vector<Type>{Type{dtype, std::move(shape)}};
}

inline Shape unknown_shape(std::int64_t rank) {
  return Shape(static_cast<std::size_t>(rank), Dim::unknown());
}

/// The number of entries of an operand that holds a list of integers.
inline Result<std::int64_t> list_length(std::string_view op, std::string_view what,
                                        const Type& type) {
  if (!is_integer(type.dtype) || type.rank() != 1)
    return bad_input("The op {} wants {} as a list of integers, not {}.", op, what, type.text());
  if (!type.shape[0].is_static())
    return unsupported("The op {} wants {} of a known length, not {}.", op, what, type.text());
  // More axes than any tensor has would only come from a broken file.
  constexpr std::int64_t most_axes = 64;
  if (type.shape[0].value() > most_axes)
    return unsupported("The op {} was given {} of ({}) entries; at most ({}) are supported.", op,
                       what, type.shape[0].value(), most_axes);
  return type.shape[0].value();
}

/// An operand of one integer, as a scalar or a list of one.
inline Status require_single(std::string_view op, std::string_view what, const Type& type) {
  const bool single = type.rank() == 0 || (type.rank() == 1 && compatible(type.shape[0], Dim(1)));
  if (single && is_integer(type.dtype)) return {};
  return bad_input("The op {} wants {} as one integer, not {}.", op, what, type.text());
}

inline Axes integers_of(const Tensor& tensor) {
  Axes values;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) values.push_back(read_index(tensor, i));
  return values;
}

/// The integers of operand i, or nothing while they are not known.
inline std::optional<Axes> known_integers(KnownValues known, std::size_t i) {
  if (i >= known.size() || !known[i]) return std::nullopt;
  return integers_of(*known[i]);
}

inline bool given(std::span<const Value> inputs, std::size_t i) {
  return i < inputs.size() && inputs[i];
}

/// Raises the error of a rule that has no Result to return it in.
template <class T>
T value_or_throw(Result<T> result, std::string_view op) {
  if (!result.ok())
    throw Exception(std::move(result.error()).while_("resolving " + std::string(op)));
  return *std::move(result);
}

inline Status require_no_negative(const Axes& dims, std::string_view op) {
  for (const std::int64_t dim : dims) {
    if (dim < 0) return bad_input("A dim ({}) of the shape given to {} is negative.", dim, op);
  }
  return {};
}

/// Lists whose lengths were not known when types were inferred.
inline void require_length(const Axes& list, std::size_t length, std::string_view what,
                           std::string_view op) {
  if (list.size() == length) return;
  throw Exception(
      bad_input("The op {} wants ({}) {} and was given ({}).", op, length, what, list.size()));
}

/// The axes that an optional operand names, or 0, 1, 2, ... `count`.
inline Axes named_axes(const std::optional<Axes>& axes, std::size_t count) {
  if (axes) return *axes;
  Axes all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(static_cast<std::int64_t>(i));
  return all;
}

}  // namespace rlx::dynamic_shape
