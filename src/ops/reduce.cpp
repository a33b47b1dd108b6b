// Reductions over axes, positions of extremes, and running reductions.
#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <type_traits>

#include "base/element.hpp"
#include "graph/rules.hpp"
#include "ops/families.hpp"
#include "ops/strided.hpp"

namespace rlx {
namespace {

using Types = Result<std::vector<Type>>;

// Which dtypes a kind of reduction takes: truths, what has an order, or what can be added.
Status require_reducible(Reduction kind, std::string_view op, const Type& x) {
  switch (kind) {
    case Reduction::any:
    case Reduction::all: return require(x.dtype == boolean, op, "bool for any and all", x);
    case Reduction::min:
    case Reduction::max:
      return require(!is_complex(x.dtype), op, "what has an order for min and max", x);
    default: return require(x.dtype != boolean, op, "numbers for sum, mean and prod", x);
  }
}

template <class W>
W lowest() {
  if constexpr (std::is_same_v<W, double>) return -std::numeric_limits<double>::infinity();
  return std::numeric_limits<W>::lowest();
}

template <class W>
W highest() {
  if constexpr (std::is_same_v<W, double>) return std::numeric_limits<double>::infinity();
  return std::numeric_limits<W>::max();
}

// What an element type reduces from: the neutral element, for min and max the far end of that type.
template <class T>
Wide<T> neutral(Reduction kind) {
  using W = Wide<T>;
  if (kind == Reduction::prod || kind == Reduction::all) return W(1);
  if constexpr (!is_complex_type<T>) {
    if constexpr (std::is_integral_v<T>) {
      if (kind == Reduction::min) return std::numeric_limits<T>::max();
      if (kind == Reduction::max) return std::numeric_limits<T>::lowest();
    }
    if (kind == Reduction::min) return highest<W>();
    if (kind == Reduction::max) return lowest<W>();
  }
  return W(0);
}

template <class W>
W combine(Reduction kind, const W& a, const W& b) {
  switch (kind) {
    case Reduction::prod: return a * b;
    case Reduction::any: return W(a != W(0) || b != W(0));
    case Reduction::all: return W(a != W(0) && b != W(0));
    case Reduction::min:
      if constexpr (!is_complex_type<W>) return is_nan_value(a) || b > a ? a : b;
      break;
    case Reduction::max:
      if constexpr (!is_complex_type<W>) return is_nan_value(a) || b < a ? a : b;
      break;
    default: break;
  }
  return a + b;
}

// bool is stored as 0 or 1, and integers of 2 and 4 bits have narrower ends than the byte that
// holds them.
template <class T>
Wide<T> start_value(Reduction kind, DType dtype) {
  if constexpr (std::is_integral_v<T>) {
    if (dtype == boolean && kind == Reduction::min) return 1;
    if (is_integer(dtype) && integer_bits(dtype) < 8) {
      const bool has_sign = is_signed_integer(dtype);
      const Wide<T> end = Wide<T>{1} << (integer_bits(dtype) - has_sign);
      if (kind == Reduction::min) return end - 1;
      if (kind == Reduction::max) return has_sign ? static_cast<Wide<T>>(0 - end) : 0;
    }
  }
  return neutral<T>(kind);
}

// The positions of the elements that go into one result, and of the first element of each result.
struct ReductionWalk {
  Dims kept, kept_strides, reduced, reduced_strides;
};

ReductionWalk walk_of(std::span<const std::int64_t> dims, const Axes& axes) {
  ReductionWalk walk;
  const Dims strides = row_major_strides(dims);
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const bool reduced = std::binary_search(axes.begin(), axes.end(), static_cast<std::int64_t>(i));
    (reduced ? walk.reduced : walk.kept).push_back(dims[i]);
    (reduced ? walk.reduced_strides : walk.kept_strides).push_back(strides[i]);
  }
  return walk;
}

// Calls visit(offset) for every point of the dims in row-major order.
template <class Visit>
void for_each_offset(const Dims& dims, const Dims& strides, std::size_t axis, std::int64_t offset,
                     const Visit& visit) {
  if (axis == dims.size()) return visit(offset);
  for (std::int64_t i = 0; i < dims[axis]; ++i)
    for_each_offset(dims, strides, axis + 1, offset + i * strides[axis], visit);
}

// A mean of integers truncates; one over nothing is NaN, of integers 0.
template <class T>
T finished(Reduction kind, Wide<T> value, std::int64_t count) {
  if (kind != Reduction::mean) return narrow<T>(value);
  if constexpr (std::is_integral_v<T>) {
    return count == 0 ? T(0) : narrow<T>(value / static_cast<Wide<T>>(count));
  } else {
    return narrow<T>(value / static_cast<double>(count));
  }
}

template <class Visit>
void with_kind(Reduction kind, const Visit& visit) {
  const auto as = [&]<Reduction constant> { visit(std::integral_constant<Reduction, constant>{}); };
  switch (kind) {
    case Reduction::prod: return as.template operator()<Reduction::prod>();
    case Reduction::any: return as.template operator()<Reduction::any>();
    case Reduction::all: return as.template operator()<Reduction::all>();
    case Reduction::min: return as.template operator()<Reduction::min>();
    case Reduction::max: return as.template operator()<Reduction::max>();
    default: return as.template operator()<Reduction::sum>();  // mean too
  }
}

// x as [outer, count, inner], reduced over the middle: `count` rows into one, a stretch at a time
// that stays in the cache. Columns of weights are reduced like this.
template <class T>
void reduce_rows(Reduction kind, const TensorView& x, std::int64_t count, std::int64_t inner,
                 T* results) {
  constexpr std::int64_t stretch = 256;
  std::array<Wide<T>, stretch> sums;
  const std::int64_t outer = x.elements() / (count * inner);
  with_kind(kind, [&](auto constant) {
    for (std::int64_t o = 0; o < outer; ++o) {
      for (std::int64_t first = 0; first < inner; first += stretch) {
        const std::int64_t width = std::min(stretch, inner - first);
        sums.fill(start_value<T>(kind, x.dtype));
        const T* row = x.as<T>() + o * count * inner + first;
        for (std::int64_t r = 0; r < count; ++r, row += inner) {
          for (std::int64_t i = 0; i < width; ++i) {
            Wide<T>& sum = sums[static_cast<std::size_t>(i)];
            sum = combine(constant, sum, widen(row[i]));
          }
        }
        for (std::int64_t i = 0; i < width; ++i)
          results[o * inner + first + i] =
              finished<T>(kind, sums[static_cast<std::size_t>(i)], count);
      }
    }
  });
}

template <class T>
void reduce_elements(Reduction kind, const TensorView& x, const Axes& axes,
                     const MutableTensorView& out) {
  const bool neighbours = !axes.empty() && axes.back() - axes.front() + 1 == std::ssize(axes);
  if (neighbours && x.elements() > 0) {
    const std::int64_t inner = count_from(x.dims, axes.back() + 1);
    const std::int64_t count = count_from(x.dims, axes.front()) / inner;
    return reduce_rows(kind, x, count, inner, out.as<T>());
  }
  const ReductionWalk walk = walk_of(x.dims, axes);
  const std::int64_t count = element_count(walk.reduced);
  const T* elements = x.as<T>();
  T* results = out.as<T>();
  for_each_offset(walk.kept, walk.kept_strides, 0, 0, [&](std::int64_t base) {
    Wide<T> value = start_value<T>(kind, x.dtype);
    for_each_offset(walk.reduced, walk.reduced_strides, 0, base, [&](std::int64_t offset) {
      value = combine(kind, value, widen(elements[offset]));
    });
    *results++ = finished<T>(kind, value, count);
  });
}

Shape reduced_shape(const Shape& x, const Axes& axes, bool keep_dims) {
  Shape shape;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!std::binary_search(axes.begin(), axes.end(), static_cast<std::int64_t>(i))) {
      shape.push_back(x[i]);
    } else if (keep_dims) {
      shape.push_back(1);
    }
  }
  return shape;
}

}  // namespace

template <>
struct Rules<op::Reduce> {
  static constexpr std::string_view name = "reduce";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{};
  static constexpr auto fields =
      std::tuple{field("kind", &op::Reduce::kind), field("axes", &op::Reduce::axes),
                 field("keep_dims", &op::Reduce::keep_dims)};
  static Types infer(const op::Reduce& a, const InferArgs& args) {
    const Type& x = args[0];
    RLX_TRY(require_reducible(a.kind, name, x));
    RLX_ASSIGN(const Axes axes, normalize_axes(a.axes, x.rank(), x));
    return std::vector<Type>{{x.dtype, reduced_shape(x.shape, axes, a.keep_dims)}};
  }
  static Status eval(const op::Reduce& a, const EvalArgs& args) {
    const TensorView& x = args.in(0);
    RLX_ASSIGN(const Axes axes, normalize_axes(a.axes, x.rank(), Type{x.dtype, to_shape(x.dims)}));
    with_element_type(x.dtype, [&](auto element) {
      reduce_elements<decltype(element)>(a.kind, x, axes, args.out(0));
    });
    return {};
  }
  static OpCost cost(const op::Reduce&, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    return {static_cast<double>(inputs[0]->elements()),
            static_cast<double>(inputs[0]->bytes() + results[0].bytes())};
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> list;
    for (const Reduction kind :
         {Reduction::sum, Reduction::mean, Reduction::prod, Reduction::min, Reduction::max}) {
      for (const DType dtype : {f32, f64, f16, bf16, i32, i64, u8}) {
        list.push_back({.op = op::Reduce{kind, {1}, false},
                        .inputs = {Type{dtype, {3, 7, 5}}},
                        .low = -1.5,
                        .high = 1.5});
      }
      list.push_back({.op = op::Reduce{kind, {0, -1}, true},
                      .inputs = {Type{f32, {3, 7, 5}}},
                      .low = -1.5,
                      .high = 1.5});
      list.push_back({.op = op::Reduce{kind, {}, false},
                      .inputs = {Type{f32, {3, 17}}},
                      .low = -1.5,
                      .high = 1.5});
    }
    for (const Reduction kind : {Reduction::any, Reduction::all}) {
      list.push_back({.op = op::Reduce{kind, {1}, false}, .inputs = {Type{boolean, {9, 3}}}});
    }
    list.push_back({.op = op::Reduce{Reduction::sum, {0}, false}, .inputs = {Type{f32, {0, 3}}}});
    list.push_back({.op = op::Reduce{Reduction::sum, {}, true}, .inputs = {Type{f32, {}}}});
    return list;
  }
};
RLX_OP(op::Reduce, "reduce")

namespace {

// NaN counts as the extreme, as in NumPy.
template <class T>
bool beats(bool max, T challenger, T champion, bool on_tie) {
  if (is_nan_value(champion)) return on_tie && is_nan_value(challenger);
  if (is_nan_value(challenger)) return true;
  if (challenger == champion) return on_tie;
  return max ? challenger > champion : challenger < champion;
}

template <class T>
void find_extremes(const op::ArgReduce& a, std::int64_t axis, const TensorView& x,
                   std::int64_t* results) {
  if constexpr (!is_complex_type<T>) {
    const std::int64_t size = x.dims[static_cast<std::size_t>(axis)];
    const std::int64_t outer = count_before(x.dims, axis), inner = count_from(x.dims, axis + 1);
    for (std::int64_t o = 0; o < outer; ++o) {
      for (std::int64_t i = 0; i < inner; ++i) {
        const T* line = x.as<T>() + o * size * inner + i;
        std::int64_t best = 0;
        for (std::int64_t p = 1; p < size; ++p) {
          if (beats(a.max, widen(line[p * inner]), widen(line[best * inner]), a.select_last))
            best = p;
        }
        *results++ = best;
      }
    }
  }
}

}  // namespace

template <>
struct Rules<op::ArgReduce> {
  static constexpr std::string_view name = "arg_reduce";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{};
  static constexpr auto fields =
      std::tuple{field("max", &op::ArgReduce::max), field("axis", &op::ArgReduce::axis),
                 field("keep_dims", &op::ArgReduce::keep_dims),
                 field("select_last", &op::ArgReduce::select_last)};
  static Types infer(const op::ArgReduce& a, const InferArgs& args) {
    const Type& x = args[0];
    RLX_TRY(require(!is_complex(x.dtype), name, "what has an order", x));
    RLX_ASSIGN(const std::int64_t axis, normalize_axis(a.axis, x.rank(), x));
    if (x.shape[static_cast<std::size_t>(axis)] == Dim(0)) {
      return bad_input("Axis ({}) of {} has no element whose position arg_reduce could give.", axis,
                       x.text());
    }
    return std::vector<Type>{{i64, reduced_shape(x.shape, {axis}, a.keep_dims)}};
  }
  static Status eval(const op::ArgReduce& a, const EvalArgs& args) {
    const TensorView& x = args.in(0);
    const std::int64_t axis = a.axis < 0 ? a.axis + x.rank() : a.axis;
    with_element_type(x.dtype, [&](auto element) {
      find_extremes<decltype(element)>(a, axis, x, args.out(0).as<std::int64_t>());
    });
    return {};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::ArgReduce{.max = true, .axis = 1}, .inputs = {Type{f32, {3, 9}}}},
            {.op = op::ArgReduce{.max = false, .axis = 0, .keep_dims = true},
             .inputs = {Type{f16, {7, 2}}}},
            {.op = op::ArgReduce{.max = true, .axis = -1, .select_last = true},
             .inputs = {Type{i32, {3, 9}}}},
            {.op = op::ArgReduce{.max = true, .axis = 1}, .inputs = {Type{u8, {2, 5, 3}}}}};
  }
};
RLX_OP(op::ArgReduce, "reduce")

namespace {

// All lines of an outer index advance together: their elements lie side by side.
template <class T, class Combine>
void accumulate_lines(const op::Cumulative& a, std::int64_t axis, const TensorView& x,
                      const MutableTensorView& out, Combine combine_two) {
  const std::int64_t size = x.dims[static_cast<std::size_t>(axis)];
  const std::int64_t outer = count_before(x.dims, axis), inner = count_from(x.dims, axis + 1);
  std::vector<Wide<T>> values(static_cast<std::size_t>(inner));
  for (std::int64_t o = 0; o < outer; ++o) {
    std::fill(values.begin(), values.end(), start_value<T>(a.kind, x.dtype));
    for (std::int64_t p = 0; p < size; ++p) {
      const std::int64_t at = (o * size + (a.reverse ? size - 1 - p : p)) * inner;
      const T* const from = x.as<T>() + at;
      T* const to = out.as<T>() + at;
      for (std::int64_t i = 0; i < inner; ++i) {
        const Wide<T> before = values[static_cast<std::size_t>(i)],
                      next = combine_two(before, widen(from[i]));
        to[i] = narrow<T>(a.exclusive ? before : next);
        values[static_cast<std::size_t>(i)] = next;
      }
    }
  }
}

template <class T>
void accumulate_all(const op::Cumulative& a, std::int64_t axis, const TensorView& x,
                    const MutableTensorView& out) {
  using W = Wide<T>;
  // Sums, which are nearly all, are chosen outside the loop.
  if (a.kind == Reduction::sum)
    return accumulate_lines<T>(a, axis, x, out, [](const W& p, const W& q) { return p + q; });
  accumulate_lines<T>(a, axis, x, out,
                      [kind = a.kind](const W& p, const W& q) { return combine(kind, p, q); });
}

}  // namespace

/// The result at p reduces the elements up to p (before p if exclusive; from p on if reverse).
template <>
struct Rules<op::Cumulative> {
  static constexpr std::string_view name = "cumulative";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{};
  static constexpr auto fields = std::tuple{
      field("kind", &op::Cumulative::kind), field("axis", &op::Cumulative::axis),
      field("exclusive", &op::Cumulative::exclusive), field("reverse", &op::Cumulative::reverse)};
  static Types infer(const op::Cumulative& a, const InferArgs& args) {
    if (a.kind == Reduction::mean) return bad_input("The op cumulative has no kind (mean).");
    RLX_TRY(require_reducible(a.kind, name, args[0]));
    RLX_TRY(normalize_axis(a.axis, args[0].rank(), args[0]));
    return std::vector<Type>{args[0]};
  }
  static Status eval(const op::Cumulative& a, const EvalArgs& args) {
    const TensorView& x = args.in(0);
    const std::int64_t axis = a.axis < 0 ? a.axis + x.rank() : a.axis;
    with_element_type(
        x.dtype, [&](auto element) { accumulate_all<decltype(element)>(a, axis, x, args.out(0)); });
    return {};
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> list;
    for (const Reduction kind : {Reduction::sum, Reduction::prod, Reduction::min, Reduction::max}) {
      list.push_back({.op = op::Cumulative{kind, 1}, .inputs = {Type{f32, {3, 7}}}});
      list.push_back(
          {.op = op::Cumulative{kind, 0, true, false}, .inputs = {Type{f32, {5, 2, 3}}}});
    }
    list.push_back(
        {.op = op::Cumulative{Reduction::sum, -1, false, true}, .inputs = {Type{i32, {3, 7}}}});
    list.push_back(
        {.op = op::Cumulative{Reduction::sum, 1, true, true}, .inputs = {Type{f16, {3, 7}}}});
    list.push_back({.op = op::Cumulative{Reduction::any, 0}, .inputs = {Type{boolean, {6}}}});
    return list;
  }
};
RLX_OP(op::Cumulative, "reduce")

OpList reduce_ops() {
  static const OpInfo* const list[] = {&info_of<op::Reduce>(), &info_of<op::ArgReduce>(),
                                       &info_of<op::Cumulative>()};
  return list;
}

}  // namespace rlx
