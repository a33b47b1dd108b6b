// Fourier transforms as ops, complex to complex, real to complex and back, and in block layout;
// parts of complex numbers.
#include <cmath>

#include "ops/fft.hpp"
#include "ops/norm.hpp"

namespace rlx {
namespace {

using Complex = std::complex<double>;

DType complex_of(DType dtype) { return dtype == f64 ? c128 : c64; }
DType real_of(DType dtype) { return dtype == c128 ? f64 : f32; }
bool has_complex(DType dtype) { return dtype == f32 || dtype == f64; }

// Calls map(line) -> line for every line along the axis; the result's axis has `size` places.
template <class Map>
std::vector<Complex> map_lines(const RowShape& shape, const std::vector<Complex>& x,
                               std::int64_t size, Map map) {
  std::vector<Complex> result(shape.outer * size * shape.inner);
  std::vector<Complex> line(shape.size);
  for (std::int64_t o = 0; o < shape.outer; ++o) {
    for (std::int64_t i = 0; i < shape.inner; ++i) {
      for (std::int64_t k = 0; k < shape.size; ++k)
        line[k] = x[(o * shape.size + k) * shape.inner + i];
      const std::vector<Complex> mapped = map(line);
      for (std::int64_t k = 0; k < size; ++k) result[(o * size + k) * shape.inner + i] = mapped[k];
    }
  }
  return result;
}

std::vector<Complex> transformed(const FourierTransform& fft, std::vector<Complex> line,
                                 bool inverse, double scale) {
  std::vector<Complex> result = fft.run(std::move(line), inverse);
  for (Complex& value : result) value *= scale;
  return result;
}

Status check_length(std::string_view name, const Dim& n, const Type& x) {
  if (!n.is_static() || n.value() > 0) return {};
  return bad_input("The op {} has no points along its axis of {}.", name, x.text());
}

// Five n log2 n FLOPs a transform, the customary count.
OpCost fft_cost(double points_total, double n, std::span<const Type* const> inputs,
                std::span<const Type> results) {
  return {5 * points_total * std::log2(std::max(n, 2.0)), bytes_of(inputs, results)};
}

RowShape rows_along(std::span<const std::int64_t> dims, std::int64_t axis) {
  const std::size_t at = axis_at(axis, static_cast<int>(dims.size()));
  return row_shape(dims, at, at + 1);
}

}  // namespace

// X[k] = sum over j of x[j] exp(-2 pi i j k / n); the inverse has the opposite sign
template <>
struct Rules<op::Fft> {
  static constexpr std::string_view name = "fft";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{};
  static constexpr auto fields =
      std::tuple{field("axis", &op::Fft::axis), field("inverse", &op::Fft::inverse),
                 field("norm", &op::Fft::norm)};
  static Result<std::vector<Type>> infer(const op::Fft& a, const InferArgs& args) {
    RLX_TRY(require(is_complex(args[0].dtype), name, "complex numbers", args[0]));
    RLX_ASSIGN(const std::int64_t axis, normalize_axis(a.axis, args[0].rank(), args[0]));
    RLX_TRY(check_length(name, args[0].shape[axis], args[0]));
    return std::vector<Type>{args[0]};
  }
  static Status eval(const op::Fft& a, const EvalArgs& args) {
    const RowShape shape = rows_along(args.in(0).dims, a.axis);
    const FourierTransform fft(shape.size);
    const double scale = fft_scale(a.norm, a.inverse, shape.size);
    store_all<Complex>(args.out(0), map_lines(shape, load_all<Complex>(args.in(0)), shape.size,
                                              [&](const auto& line) {
                                                return transformed(fft, line, a.inverse, scale);
                                              }));
    return {};
  }
  static OpCost cost(const op::Fft& a, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    const Dims dims = results[0].dims();
    const auto n = static_cast<double>(dims[axis_at(a.axis, results[0].rank())]);
    return fft_cost(static_cast<double>(results[0].elements()), n, inputs, results);
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> list;
    for (const std::int64_t n : {1, 2, 8, 30, 37, 49, 64})
      list.push_back({.op = op::Fft{}, .inputs = {Type{c64, {3, n}}}, .tolerance = 1e-4});
    for (const FftNorm norm :
         {FftNorm::backward, FftNorm::ortho, FftNorm::forward, FftNorm::none}) {
      list.push_back({.op = op::Fft{.axis = 1, .inverse = true, .norm = norm},
                      .inputs = {Type{c64, {2, 12, 3}}},
                      .tolerance = 1e-4});
      list.push_back({.op = op::Fft{.axis = 0, .norm = norm}, .inputs = {Type{c128, {20}}}});
    }
    return list;
  }
};
RLX_OP(op::Fft, "signal")

// the first n/2 + 1 bins of the transform of real numbers
template <>
struct Rules<op::Rfft> {
  static constexpr std::string_view name = "rfft";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{};
  static constexpr auto fields =
      std::tuple{field("axis", &op::Rfft::axis), field("norm", &op::Rfft::norm)};
  static Result<std::vector<Type>> infer(const op::Rfft& a, const InferArgs& args) {
    RLX_TRY(require(has_complex(args[0].dtype), name, "f32 or f64", args[0]));
    RLX_ASSIGN(const std::int64_t axis, normalize_axis(a.axis, args[0].rank(), args[0]));
    RLX_TRY(check_length(name, args[0].shape[axis], args[0]));
    Type result{complex_of(args[0].dtype), args[0].shape};
    result.shape[axis] = floor_div(result.shape[axis], Dim(2)) + Dim(1);
    return std::vector<Type>{std::move(result)};
  }
  static Status eval(const op::Rfft& a, const EvalArgs& args) {
    const RowShape shape = rows_along(args.in(0).dims, a.axis);
    const FourierTransform fft(shape.size);
    const double scale = fft_scale(a.norm, false, shape.size);
    store_all<Complex>(args.out(0), map_lines(shape, load_all<Complex>(args.in(0)),
                                              shape.size / 2 + 1, [&](const auto& line) {
                                                return transformed(fft, line, false, scale);
                                              }));
    return {};
  }
  static OpCost cost(const op::Rfft& a, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    const Dims dims = inputs[0]->dims();
    const auto n = static_cast<double>(dims[axis_at(a.axis, inputs[0]->rank())]);
    return fft_cost(static_cast<double>(inputs[0]->elements()) / 2, n, inputs, results);
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> list;
    for (const std::int64_t n : {1, 2, 7, 16, 30, 400})
      list.push_back({.op = op::Rfft{}, .inputs = {Type{f32, {3, n}}}, .tolerance = 1e-4});
    list.push_back(
        {.op = op::Rfft{.axis = 0, .norm = FftNorm::ortho}, .inputs = {Type{f64, {12, 3}}}});
    return list;
  }
};
RLX_OP(op::Rfft, "signal")

// n real numbers whose transform has those bins; bins beyond n/2 + 1 are dropped, missing ones are
// 0, as in NumPy
template <>
struct Rules<op::Irfft> {
  static constexpr std::string_view name = "irfft";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{};
  static constexpr auto fields =
      std::tuple{field("axis", &op::Irfft::axis), field("length", &op::Irfft::length),
                 field("norm", &op::Irfft::norm)};
  static Result<std::vector<Type>> infer(const op::Irfft& a, const InferArgs& args) {
    RLX_TRY(require(is_complex(args[0].dtype), name, "complex numbers", args[0]));
    RLX_ASSIGN(const std::int64_t axis, normalize_axis(a.axis, args[0].rank(), args[0]));
    RLX_TRY(check_length(name, args[0].shape[axis], args[0]));
    Type result{real_of(args[0].dtype), args[0].shape};
    const Dim& bins = args[0].shape[axis];
    if (a.length < 0 || (a.length == 0 && bins == Dim(1)))
      return bad_input("The length ({}) of irfft must be at least 1.", a.length);
    result.shape[axis] = a.length ? Dim(a.length) : (bins - Dim(1)) * Dim(2);
    return std::vector<Type>{std::move(result)};
  }
  static Status eval(const op::Irfft& a, const EvalArgs& args) {
    const RowShape shape = rows_along(args.in(0).dims, a.axis);
    const std::int64_t n = rows_along(args.out(0).dims, a.axis).size;
    const FourierTransform fft(n);
    const double scale = fft_scale(a.norm, true, n);
    const auto values =
        map_lines(shape, load_all<Complex>(args.in(0)), n, [&](const std::vector<Complex>& bins) {
          // The second half mirrors the first; DC and the middle bin of an even length count as
          // real.
          std::vector<Complex> line(n, 0);
          for (std::int64_t k = 0; k <= n / 2 && k < shape.size; ++k) {
            const bool is_own_mirror = (n - k) % n == k;
            line[k] = is_own_mirror ? bins[k].real() : bins[k];
            if (!is_own_mirror) line[n - k] = std::conj(bins[k]);
          }
          return transformed(fft, std::move(line), true, scale);
        });
    store_all<Complex>(args.out(0), values);
    return {};
  }
  static OpCost cost(const op::Irfft& a, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    const Dims dims = results[0].dims();
    const auto n = static_cast<double>(dims[axis_at(a.axis, results[0].rank())]);
    return fft_cost(static_cast<double>(results[0].elements()) / 2, n, inputs, results);
  }
  static std::vector<Sample> samples() {
    return {{.op = op::Irfft{}, .inputs = {Type{c64, {3, 9}}}},
            {.op = op::Irfft{.length = 15}, .inputs = {Type{c64, {3, 8}}}},
            {.op = op::Irfft{.length = 20}, .inputs = {Type{c64, {3, 5}}}},
            {.op = op::Irfft{.axis = 0, .length = 6, .norm = FftNorm::forward},
             .inputs = {Type{c128, {7, 2}}}}};
  }
};
RLX_OP(op::Irfft, "signal")

// the transform of [..., 2N]: N real parts, then N imaginary parts
template <>
struct Rules<op::BlockFft> {
  static constexpr std::string_view name = "block_fft";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{.composite = true};
  static constexpr auto fields =
      std::tuple{field("inverse", &op::BlockFft::inverse), field("norm", &op::BlockFft::norm)};
  static Result<std::vector<Type>> infer(const op::BlockFft&, const InferArgs& args) {
    const Type& x = args[0];
    RLX_TRY(require(has_complex(x.dtype) && x.rank() > 0, name, "f32 or f64 with an axis", x));
    const Dim& last = x.shape.back();
    if (last.is_static() && (last.value() == 0 || last.value() % 2)) {
      return bad_input("The last dim ({}) of {} is not twice a number of points.", last.value(),
                       x.text());
    }
    return std::vector<Type>{x};
  }
  static Status eval(const op::BlockFft& a, const EvalArgs& args) {
    const std::int64_t n = args.in(0).dims.back() / 2;
    std::vector<double> values = load_all<double>(args.in(0));
    const FourierTransform fft(n);
    const double scale = fft_scale(a.norm, a.inverse, n);
    for (std::size_t row = 0; row < values.size(); row += 2 * n) {
      std::vector<Complex> line(n);
      for (std::int64_t k = 0; k < n; ++k) line[k] = {values[row + k], values[row + n + k]};
      line = transformed(fft, std::move(line), a.inverse, scale);
      for (std::int64_t k = 0; k < n; ++k) {
        values[row + k] = line[k].real();
        values[row + n + k] = line[k].imag();
      }
    }
    store_all<double>(args.out(0), values);
    return {};
  }
  static Values body(const op::BlockFft& a, Graph& graph, std::span<const Value> inputs) {
    const Value x = inputs[0];
    const std::int64_t last = x.rank() - 1;
    if (!x.shape()[last].is_static())
      throw Exception(unsupported("A block_fft of an unbound length ({}) has no body.",
                                  x.shape()[last].text()));
    const std::int64_t n = x.shape()[last].value() / 2;
    const auto half = [&](std::int64_t start) {
      Axes starts(x.rank(), 0), limits(x.rank(), op::slice_end);
      starts[last] = start;
      limits[last] = start + n;
      return slice(x, std::move(starts), std::move(limits));
    };
    const Value z = graph.add_one(op::MakeComplex{}, {half(0), half(n)});
    const Value spectrum =
        graph.add_one(op::Fft{.axis = last, .inverse = a.inverse, .norm = a.norm}, {z});
    return {concat({graph.add_one(op::Real{}, {spectrum}), graph.add_one(op::Imag{}, {spectrum})},
                   last)};
  }
  static OpCost cost(const op::BlockFft&, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    const double n = static_cast<double>(results[0].dims().back()) / 2;
    return fft_cost(static_cast<double>(results[0].elements()) / 2, n, inputs, results);
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> list;
    for (const std::int64_t n : {1, 6, 16, 37})
      list.push_back({.op = op::BlockFft{}, .inputs = {Type{f32, {3, 2 * n}}}, .tolerance = 1e-4});
    for (const FftNorm norm :
         {FftNorm::backward, FftNorm::ortho, FftNorm::forward, FftNorm::none}) {
      list.push_back(
          {.op = op::BlockFft{.inverse = true, .norm = norm}, .inputs = {Type{f64, {2, 2, 20}}}});
    }
    return list;
  }
};
RLX_OP(op::BlockFft, "signal")

namespace {

// One complex operand, a real result.
template <class A>
struct PartRules {
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{};
  static constexpr auto fields = std::tuple{};
  static Result<std::vector<Type>> infer(const A&, const InferArgs& args) {
    RLX_TRY(require(is_complex(args[0].dtype), Rules<A>::name, "complex numbers", args[0]));
    return std::vector<Type>{{real_of(args[0].dtype), args[0].shape}};
  }
  static Status eval(const A&, const EvalArgs& args) {
    std::vector<double> parts;
    for (const Complex& value : load_all<Complex>(args.in(0)))
      parts.push_back(Rules<A>::part(value));
    store_all<double>(args.out(0), parts);
    return {};
  }
  static std::vector<Sample> samples() {
    return {{.op = A{}, .inputs = {Type{c64, {3, 17}}}}, {.op = A{}, .inputs = {Type{c128, {5}}}}};
  }
};

}  // namespace

template <>
struct Rules<op::Real> : PartRules<op::Real> {
  static constexpr std::string_view name = "real";
  static double part(const Complex& value) { return value.real(); }
};
RLX_OP(op::Real, "signal")

template <>
struct Rules<op::Imag> : PartRules<op::Imag> {
  static constexpr std::string_view name = "imag";
  static double part(const Complex& value) { return value.imag(); }
};
RLX_OP(op::Imag, "signal")

template <>
struct Rules<op::Conj> {
  static constexpr std::string_view name = "conj";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{};
  static constexpr auto fields = std::tuple{};
  static Result<std::vector<Type>> infer(const op::Conj&, const InferArgs& args) {
    RLX_TRY(require(is_complex(args[0].dtype), name, "complex numbers", args[0]));
    return std::vector<Type>{args[0]};
  }
  static Status eval(const op::Conj&, const EvalArgs& args) {
    std::vector<Complex> values = load_all<Complex>(args.in(0));
    for (Complex& value : values) value = std::conj(value);
    store_all<Complex>(args.out(0), values);
    return {};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::Conj{}, .inputs = {Type{c64, {3, 17}}}},
            {.op = op::Conj{}, .inputs = {Type{c128, {5}}}}};
  }
};
RLX_OP(op::Conj, "signal")

// (real parts, imaginary parts)
template <>
struct Rules<op::MakeComplex> {
  static constexpr std::string_view name = "make_complex";
  static constexpr Arity arity{2, 2};
  static constexpr OpTraits traits{};
  static constexpr auto fields = std::tuple{};
  static Result<std::vector<Type>> infer(const op::MakeComplex&, const InferArgs& args) {
    RLX_TRY(require(has_complex(args[0].dtype), name, "f32 or f64", args[0]));
    RLX_TRY(require_same_dtype(name, args[0], args[1]));
    const Shape &a = args[0].shape, &b = args[1].shape;
    if (a.size() != b.size() || !std::equal(a.begin(), a.end(), b.begin(), compatible)) {
      return bad_input("The parts of make_complex differ in shape: {} and {}.", args[0].text(),
                       args[1].text());
    }
    return std::vector<Type>{{complex_of(args[0].dtype), a}};
  }
  static Status eval(const op::MakeComplex&, const EvalArgs& args) {
    const std::vector<double> real = load_all<double>(args.in(0)),
                              imaginary = load_all<double>(args.in(1));
    std::vector<Complex> values;
    for (std::size_t i = 0; i < real.size(); ++i) values.emplace_back(real[i], imaginary[i]);
    store_all<Complex>(args.out(0), values);
    return {};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::MakeComplex{}, .inputs = {Type{f32, {3, 17}}, Type{f32, {3, 17}}}},
            {.op = op::MakeComplex{}, .inputs = {Type{f64, {5}}, Type{f64, {5}}}}};
  }
};
RLX_OP(op::MakeComplex, "signal")

}  // namespace rlx
