// Linear algebra: determinants.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/element.hpp"
#include "graph/rules.hpp"
#include "ops/families.hpp"

namespace rlx {
namespace {

// By elimination with partial pivoting; the matrix is used up.
double determinant(std::span<double> matrix, std::size_t n) {
  double result = 1;
  const auto row = [&](std::size_t i) { return matrix.subspan(i * n, n); };
  for (std::size_t k = 0; k < n; ++k) {
    std::size_t pivot = k;
    for (std::size_t i = k + 1; i < n; ++i) {
      if (std::abs(row(i)[k]) > std::abs(row(pivot)[k])) pivot = i;
    }
    if (row(pivot)[k] == 0) return 0;
    if (pivot != k) {
      std::swap_ranges(row(k).begin(), row(k).end(), row(pivot).begin());
      result = -result;
    }
    result *= row(k)[k];
    for (std::size_t i = k + 1; i < n; ++i) {
      const double factor = row(i)[k] / row(k)[k];
      for (std::size_t j = k + 1; j < n; ++j) row(i)[j] -= factor * row(k)[j];
    }
  }
  return result;
}

}  // namespace

template <>
struct Rules<op::Determinant> {
  static constexpr std::string_view name = "determinant";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{};
  static constexpr auto fields = std::tuple{};
  static Result<std::vector<Type>> infer(const op::Determinant&, const InferArgs& args) {
    const Type& x = args[0];
    RLX_TRY(require(is_float(x.dtype), name, "floats", x));
    if (x.rank() < 2 || !compatible(x.shape.back(), x.shape[x.shape.size() - 2]))
      return bad_input("The op determinant wants square matrices, not {}.", x.text());
    return std::vector<Type>{{x.dtype, {x.shape.begin(), x.shape.end() - 2}}};
  }
  static Status eval(const op::Determinant&, const EvalArgs& args) {
    const TensorView& x = args.in(0);
    const auto n = static_cast<std::size_t>(x.dims.back());
    std::vector<double> matrix(n * n);
    for (std::int64_t m = 0; m < args.out(0).elements(); ++m) {
      for (std::size_t i = 0; i < matrix.size(); ++i) {
        matrix[i] =
            load_datum(x.dtype, x.data,
                       m * static_cast<std::int64_t>(matrix.size()) + static_cast<std::int64_t>(i))
                .number.real();
      }
      store_datum(x.dtype, args.out(0).data, m, {determinant(matrix, n), 0});
    }
    return {};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::Determinant{}, .inputs = {Type{f32, {3, 4, 4}}}},
            {.op = op::Determinant{}, .inputs = {Type{f64, {2, 2}}}}};
  }
};
RLX_OP(op::Determinant, "linear_algebra")

OpList linear_algebra_ops() {
  static const OpInfo* const list[] = {&info_of<op::Determinant>()};
  return list;
}

}  // namespace rlx
