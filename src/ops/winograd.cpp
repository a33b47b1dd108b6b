// The filters of Winograd's convolutions.
#include "graph/winograd.hpp"

#include <algorithm>
#include <array>

#include "graph/rules.hpp"
#include "ops/families.hpp"
#include "ops/reference.hpp"
#include "rlx/ops.hpp"

namespace rlx {
namespace {

constexpr std::int64_t taps = 3, points = 4;

/// G g for three taps of any kind.
template <class T>
std::array<T, points> filter_points(const T& a, const T& b, const T& c, const T& half) {
  const T ends = half * (a + c), middle = half * b;
  return {a, ends + middle, ends - middle, c};
}

/// G g G^T.
template <class T>
std::array<T, points * points> filter_square(const std::array<T, taps * taps>& g, const T& half) {
  std::array<std::array<T, points>, taps> columns;
  for (std::size_t j = 0; j < taps; ++j)
    columns[j] = filter_points(g[j], g[taps + j], g[2 * taps + j], half);
  std::array<T, points * points> square;
  for (std::size_t i = 0; i < points; ++i) {
    const auto row = filter_points(columns[0][i], columns[1][i], columns[2][i], half);
    for (std::size_t j = 0; j < points; ++j) square[points * i + j] = row[j];
  }
  return square;
}

/// So many filters at once, for the compiler's vectors.
struct Lanes {
  static constexpr std::size_t count = 16;
  std::array<float, count> value;
  friend Lanes operator+(const Lanes& a, const Lanes& b) {
    Lanes sum;
    for (std::size_t i = 0; i < count; ++i) sum.value[i] = a.value[i] + b.value[i];
    return sum;
  }
  friend Lanes operator-(const Lanes& a, const Lanes& b) {
    Lanes difference;
    for (std::size_t i = 0; i < count; ++i) difference.value[i] = a.value[i] - b.value[i];
    return difference;
  }
  friend Lanes operator*(const Lanes& a, const Lanes& b) {
    Lanes product;
    for (std::size_t i = 0; i < count; ++i) product.value[i] = a.value[i] * b.value[i];
    return product;
  }
};

}  // namespace

template <>
struct Rules<op::WinogradFilters> {
  using A = op::WinogradFilters;
  static constexpr std::string_view name = "winograd_filters";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{.composite = true};
  static constexpr auto fields = std::tuple{};

  static Result<std::vector<Type>> infer(const A&, const InferArgs& args) {
    const Type& w = args[0];
    if (w.dtype != DType::f32 || w.rank() != 4 || w.shape[2] != Dim(taps) ||
        w.shape[3] != Dim(taps))
      return bad_input("The filters of winograd_filters are f32[K, C, 3, 3], not {}.", w.text());
    return std::vector<Type>{Type{DType::f32, {Dim(points * points), w.shape[1], w.shape[0]}}};
  }

  static Status eval(const A&, const EvalArgs& args) {
    const TensorView& w = args.in(0);
    const std::int64_t out = w.dims[0], in = w.dims[1];
    const auto* from = reinterpret_cast<const float*>(w.data);
    auto* to = reinterpret_cast<float*>(args.out(0).data);
    Lanes half;
    half.value.fill(0.5f);
    constexpr auto lanes = static_cast<std::int64_t>(Lanes::count);
    for (std::int64_t c = 0; c < in; ++c) {
      for (std::int64_t k = 0; k < out; k += lanes) {
        const auto here = static_cast<std::size_t>(std::min(lanes, out - k));
        std::array<Lanes, taps * taps> g{};
        for (std::size_t lane = 0; lane < here; ++lane) {
          const float* filter =
              from + ((k + static_cast<std::int64_t>(lane)) * in + c) * taps * taps;
          for (std::size_t tap = 0; tap < g.size(); ++tap) g[tap].value[lane] = filter[tap];
        }
        const auto square = filter_square(g, half);
        for (std::size_t point = 0; point < square.size(); ++point)
          std::copy_n(square[point].value.data(), here,
                      to + (static_cast<std::int64_t>(point) * in + c) * out + k);
      }
    }
    return {};
  }

  static Values body(const A&, Graph& graph, std::span<const Value> inputs) {
    const Value w = transpose(inputs[0], {2, 3, 1, 0});
    const Shape shape{Dim(1), w.shape()[2], w.shape()[3]};
    std::array<Value, taps * taps> g;
    for (std::int64_t tap = 0; tap < taps * taps; ++tap) {
      const Axes starts{tap / taps, tap % taps, 0, 0};
      const Axes limits{tap / taps + 1, tap % taps + 1, w.shape()[2].value(), w.shape()[3].value()};
      g[static_cast<std::size_t>(tap)] = reshape(slice(w, starts, limits), shape);
    }
    const auto square = filter_square(g, graph.constant(DType::f32, 0.5));
    return {concat(Values(square.begin(), square.end()), 0)};
  }

  static OpCost cost(const A&, std::span<const Type* const> inputs, std::span<const Type> results) {
    return {42 * static_cast<double>(results[0].elements() / (points * points)),
            bytes_of(inputs, results)};
  }

  static std::vector<Sample> samples() {
    return {{.op = A{}, .inputs = {Type{DType::f32, {5, 3, 3, 3}}}},
            {.op = A{}, .inputs = {Type{DType::f32, {33, 2, 3, 3}}}}};
  }
};
RLX_OP(op::WinogradFilters, "conv")

OpList winograd_ops() {
  static const OpInfo* const list[] = {&info_of<op::WinogradFilters>()};
  return list;
}

}  // namespace rlx
