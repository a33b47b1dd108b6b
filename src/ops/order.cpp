// Order: sorting and the k largest. NaN counts as the largest number.
#include <algorithm>
#include <numeric>

#include "graph/rules.hpp"
#include "ops/families.hpp"
#include "ops/order.hpp"
#include "ops/strided.hpp"

namespace rlx {
namespace {

using Types = Result<std::vector<Type>>;

// Puts the first `count` elements of each line along `axis`, in order, and their positions into the
// outputs. Equal ones keep their order.
template <class T>
void order_typed(const TensorView& x, std::int64_t axis, std::int64_t count, bool descending,
                 const EvalArgs& args) {
  const std::int64_t size = x.dims[static_cast<std::size_t>(axis)];
  const std::int64_t outer = count_before(x.dims, axis), inner = count_from(x.dims, axis + 1);
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::int64_t i = 0; i < inner; ++i) {
      const T* from = x.as<T>() + o * size * inner + i;
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
        const Wide<T> first = widen(from[a * inner]), second = widen(from[b * inner]);
        return descending ? ordered_less(second, first) : ordered_less(first, second);
      });
      for (std::int64_t p = 0; p < count; ++p) {
        const std::int64_t at = (o * count + p) * inner + i,
                           position = order[static_cast<std::size_t>(p)];
        args.out(0).as<T>()[at] = from[position * inner];
        args.out(1).as<std::int64_t>()[at] = position;
      }
    }
  }
}

void order_all(const EvalArgs& args, std::int64_t axis, std::int64_t count, bool descending) {
  const TensorView& x = args.in(0);
  with_element_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (!is_complex_type<T>)
      order_typed<T>(x, axis < 0 ? axis + x.rank() : axis, count, descending, args);
  });
}

}  // namespace

template <>
struct Rules<op::Sort> {
  static constexpr std::string_view name = "sort";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{};
  static constexpr auto fields =
      std::tuple{field("axis", &op::Sort::axis), field("descending", &op::Sort::descending)};
  static Types infer(const op::Sort& a, const InferArgs& args) {
    RLX_TRY(require(!is_complex(args[0].dtype), name, "what has an order", args[0]));
    RLX_TRY(normalize_axis(a.axis, args[0].rank(), args[0]));
    return std::vector<Type>{args[0], {i64, args[0].shape}};
  }
  static Status eval(const op::Sort& a, const EvalArgs& args) {
    const TensorView& x = args.in(0);
    order_all(args, a.axis,
              x.dims[static_cast<std::size_t>(a.axis < 0 ? a.axis + x.rank() : a.axis)],
              a.descending);
    return {};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::Sort{-1, false}, .inputs = {Type{f32, {3, 9}}}},
            {.op = op::Sort{0, true}, .inputs = {Type{f16, {7, 2}}}},
            {.op = op::Sort{1, false}, .inputs = {Type{i64, {2, 8, 3}}}},
            {.op = op::Sort{0, true}, .inputs = {Type{boolean, {9}}}}};
  }
};
RLX_OP(op::Sort, "order")

template <>
struct Rules<op::TopK> {
  static constexpr std::string_view name = "top_k";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{};
  static constexpr auto fields =
      std::tuple{field("k", &op::TopK::k), field("axis", &op::TopK::axis),
                 field("largest", &op::TopK::largest), field("sorted", &op::TopK::sorted)};
  static Types infer(const op::TopK& a, const InferArgs& args) {
    const Type& x = args[0];
    RLX_TRY(require(!is_complex(x.dtype), name, "what has an order", x));
    RLX_ASSIGN(const std::int64_t axis, normalize_axis(a.axis, x.rank(), x));
    Shape shape = x.shape;
    Dim& dim = shape[static_cast<std::size_t>(axis)];
    if (a.k < 0 || (dim.is_static() && a.k > dim.value()))
      return bad_input("The k ({}) of top_k lies outside axis ({}) of {}.", a.k, axis, x.text());
    dim = Dim(a.k);
    return std::vector<Type>{{x.dtype, shape}, {i64, shape}};
  }
  static Status eval(const op::TopK& a, const EvalArgs& args) {
    order_all(args, a.axis, a.k, a.largest);
    return {};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::TopK{3, -1}, .inputs = {Type{f32, {4, 10}}}},
            {.op = op::TopK{2, 0, false}, .inputs = {Type{bf16, {5, 3}}}},
            {.op = op::TopK{5, 1, true, false}, .inputs = {Type{i32, {2, 5}}}},
            {.op = op::TopK{0, 0}, .inputs = {Type{f32, {4}}}}};
  }
};
RLX_OP(op::TopK, "order")

OpList order_ops() {
  static const OpInfo* const list[] = {&info_of<op::Sort>(), &info_of<op::TopK>()};
  return list;
}

}  // namespace rlx
