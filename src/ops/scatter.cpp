// Scatters: a copy of x with elements or blocks replaced by, or combined with, updates. Later
// updates of the same element come after earlier ones.
#include <algorithm>
#include <cstring>

#include "base/element.hpp"
#include "graph/rules.hpp"
#include "ops/families.hpp"
#include "ops/index.hpp"
#include "ops/strided.hpp"

namespace rlx {
namespace {

using Types = Result<std::vector<Type>>;

/// Integers wrap.
template <class W>
W combine(ScatterMode mode, const W& old, const W& update) {
  if constexpr (std::is_integral_v<W>) {
    const auto a = static_cast<std::uint64_t>(old), b = static_cast<std::uint64_t>(update);
    if (mode == ScatterMode::add) return static_cast<W>(a + b);
    if (mode == ScatterMode::mul) return static_cast<W>(a * b);
  }
  switch (mode) {
    case ScatterMode::add: return old + update;
    case ScatterMode::mul: return old * update;
    case ScatterMode::min:
      if constexpr (!is_complex_type<W>) return is_nan_value(old) || update > old ? old : update;
      break;
    case ScatterMode::max:
      if constexpr (!is_complex_type<W>) return is_nan_value(old) || update < old ? old : update;
      break;
    case ScatterMode::assign: break;
  }
  return update;
}

// Updates blocks of `block` elements at their offsets.
template <class T>
void combine_blocks(ScatterMode mode, std::span<const std::int64_t> offsets, std::int64_t block,
                    const T* updates, T* out) {
  for (const std::int64_t offset : offsets) {
    for (std::int64_t i = 0; i < block; ++i, ++updates) {
      out[offset + i] = narrow<T>(combine(mode, widen(out[offset + i]), widen(*updates)));
    }
  }
}

void scatter_blocks(ScatterMode mode, const EvalArgs& args, std::span<const std::int64_t> offsets,
                    std::int64_t block) {
  const TensorView &x = args.in(0), &updates = args.in(2);
  std::byte* out = args.out(0).data;
  if (mode != ScatterMode::assign) {
    with_element_type(x.dtype, [&](auto element) {
      using T = decltype(element);
      combine_blocks<T>(mode, offsets, block, updates.as<T>(), args.out(0).as<T>());
    });
    return;
  }
  const std::size_t size = size_of(x.dtype), bytes = static_cast<std::size_t>(block) * size;
  const std::byte* from = updates.data;
  for (const std::int64_t offset : offsets) {
    std::memcpy(out + static_cast<std::size_t>(offset) * size, from, bytes);
    from += bytes;
  }
}

Status require_combinable(ScatterMode mode, std::string_view op, const Type& x,
                          const Type& updates) {
  if (updates.dtype != x.dtype)
    return bad_input("The op {} wants updates of the dtype of {} and was given {}.", op, x.text(),
                     updates.text());
  if (mode == ScatterMode::add || mode == ScatterMode::mul)
    return require(x.dtype != boolean, op, "numbers to add or multiply", x);
  if (mode == ScatterMode::min || mode == ScatterMode::max)
    return require(!is_complex(x.dtype), op, "what has an order for min and max", x);
  return {};
}

Status require_update_shape(std::string_view op, const Type& updates, const Shape& wanted) {
  bool fits = updates.shape.size() == wanted.size();
  for (std::size_t i = 0; fits && i < wanted.size(); ++i)
    fits = compatible(updates.shape[i], wanted[i]);
  if (fits) return {};
  return bad_input("The op {} wants updates of {} and was given {}.", op,
                   Type{updates.dtype, wanted}.text(), updates.text());
}

std::optional<Tensor> indices(Dims dims, std::initializer_list<std::int64_t> values) {
  return Tensor::of<std::int64_t>(std::move(dims), values);
}

constexpr ScatterMode modes[] = {ScatterMode::assign, ScatterMode::add, ScatterMode::mul,
                                 ScatterMode::min, ScatterMode::max};

}  // namespace

/// out[indices[i, j], j] = updates[i, j] for axis 0, and so on.
template <>
struct Rules<op::ScatterElements> {
  static constexpr std::string_view name = "scatter_elements";
  static constexpr Arity arity{3, 3};
  static constexpr OpTraits traits{};
  static constexpr auto fields = std::tuple{field("axis", &op::ScatterElements::axis),
                                            field("mode", &op::ScatterElements::mode)};
  static Types infer(const op::ScatterElements& a, const InferArgs& args) {
    RLX_ASSIGN(const std::int64_t axis, normalize_axis(a.axis, args[0].rank(), args[0]));
    RLX_TRY(require_element_indices(name, args[0], args[1], axis));
    RLX_TRY(require_combinable(a.mode, name, args[0], args[2]));
    RLX_TRY(require_update_shape(name, args[2], args[1].shape));
    return std::vector<Type>{args[0]};
  }
  static Status eval(const op::ScatterElements& a, const EvalArgs& args) {
    const TensorView& x = args.in(0);
    RLX_ASSIGN(const std::vector<std::int64_t> offsets,
               element_offsets(x, args.in(1), a.axis < 0 ? a.axis + x.rank() : a.axis));
    std::copy(x.data, x.data + x.bytes(), args.out(0).data);
    scatter_blocks(a.mode, args, offsets, 1);
    return {};
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> list;
    for (const ScatterMode mode : modes) {
      list.push_back({.op = op::ScatterElements{1, mode},
                      .inputs = {Type{f32, {3, 5}}, Type{i64, {2, 3}}, Type{f32, {2, 3}}},
                      .values = {std::nullopt, indices({2, 3}, {0, 4, 0, -1, 2, -1})}});
    }
    list.push_back({.op = op::ScatterElements{0, ScatterMode::add},
                    .inputs = {Type{f16, {3}}, Type{i64, {2}}, Type{f16, {2}}},
                    .values = {std::nullopt, indices({2}, {1, 1})}});
    list.push_back({.op = op::ScatterElements{0, ScatterMode::assign},
                    .inputs = {Type{boolean, {3}}, Type{i64, {2}}, Type{boolean, {2}}},
                    .values = {std::nullopt, indices({2}, {1, -1})}});
    return list;
  }
};
RLX_OP(op::ScatterElements, "index")

/// Each row of indices names a block of x that its update replaces.
template <>
struct Rules<op::ScatterNd> {
  static constexpr std::string_view name = "scatter_nd";
  static constexpr Arity arity{3, 3};
  static constexpr OpTraits traits{};
  static constexpr auto fields = std::tuple{field("mode", &op::ScatterNd::mode)};
  static Types infer(const op::ScatterNd& a, const InferArgs& args) {
    RLX_ASSIGN(const std::int64_t depth, index_depth(name, args[0], args[1], 0));
    RLX_TRY(require_combinable(a.mode, name, args[0], args[2]));
    Shape wanted(args[1].shape.begin(), args[1].shape.end() - 1);
    wanted.insert(wanted.end(), args[0].shape.begin() + depth, args[0].shape.end());
    RLX_TRY(require_update_shape(name, args[2], wanted));
    return std::vector<Type>{args[0]};
  }
  static Status eval(const op::ScatterNd& a, const EvalArgs& args) {
    const TensorView &x = args.in(0), &picked = args.in(1);
    std::copy(x.data, x.data + x.bytes(), args.out(0).data);
    if (args.in(2).elements() == 0) return {};
    RLX_ASSIGN(const std::vector<std::int64_t> offsets, block_offsets(x, picked, 0));
    scatter_blocks(a.mode, args, offsets, count_from(x.dims, picked.dims.back()));
    return {};
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> list;
    for (const ScatterMode mode : modes) {
      list.push_back({.op = op::ScatterNd{mode},
                      .inputs = {Type{f32, {4, 3}}, Type{i64, {3, 1}}, Type{f32, {3, 3}}},
                      .values = {std::nullopt, indices({3, 1}, {2, -4, 2})}});
    }
    list.push_back({.op = op::ScatterNd{},
                    .inputs = {Type{i32, {2, 3}}, Type{i64, {2, 2}}, Type{i32, {2}}},
                    .values = {std::nullopt, indices({2, 2}, {0, 1, 1, -1})}});
    return list;
  }
};
RLX_OP(op::ScatterNd, "index")

OpList scatter_ops() {
  static const OpInfo* const list[] = {&info_of<op::ScatterElements>(), &info_of<op::ScatterNd>()};
  return list;
}

}  // namespace rlx
