// numpy.fft's names, by the definition of the transform.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <functional>
#include <numbers>

#include "rlx/rlx.hpp"
#include "rlx/signal.hpp"

namespace rlx {
namespace {

using Complex = std::complex<double>;
using Numbers = std::vector<Complex>;

constexpr std::int64_t rows = 4, columns = 7;

double real_part(std::int64_t i, std::int64_t j) {
  return std::sin(static_cast<double>(3 * i * i + 5 * j + 1));
}
double imaginary_part(std::int64_t i, std::int64_t j) {
  return std::cos(static_cast<double>(2 * i + 7 * j * j));
}

/// Sum over j of x[j] exp(-sign 2 pi i j k / n), of the first n points.
Numbers line_bins(Numbers x, std::int64_t n, int sign = 1) {
  x.resize(static_cast<std::size_t>(n));
  Numbers bins(static_cast<std::size_t>(n));
  for (std::int64_t k = 0; k < n; ++k) {
    for (std::int64_t j = 0; j < n; ++j) {
      const double turns = static_cast<double>(j * k % n) / static_cast<double>(n);
      bins[static_cast<std::size_t>(k)] +=
          x[static_cast<std::size_t>(j)] * std::polar(1.0, -sign * 2 * std::numbers::pi * turns);
    }
  }
  return bins;
}

/// [rows][columns], real or complex.
std::vector<Numbers> matrix(bool is_complex) {
  std::vector<Numbers> result(rows, Numbers(columns));
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      result[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)] = {
          real_part(i, j), is_complex ? imaginary_part(i, j) : 0.0};
    }
  }
  return result;
}

std::vector<Numbers> turned(const std::vector<Numbers>& x) {
  std::vector<Numbers> result(x[0].size(), Numbers(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (std::size_t j = 0; j < x[i].size(); ++j) result[j][i] = x[i][j];
  }
  return result;
}

/// The lines along columns, then those along rows.
std::vector<Numbers> both_axes(std::vector<Numbers> x, int sign = 1) {
  for (Numbers& line : x) line = line_bins(line, columns, sign);
  x = turned(x);
  for (Numbers& line : x) line = line_bins(line, rows, sign);
  return turned(x);
}

/// What a builder makes of the matrix.
template <class Build>
std::vector<Numbers> built(bool is_complex, Build build) {
  std::vector<double> re, im;
  for (const Numbers& line : matrix(is_complex)) {
    for (const Complex& number : line) {
      re.push_back(number.real());
      im.push_back(number.imag());
    }
  }
  Graph graph;
  Value x = graph.input("re", f64, {rows, columns});
  const Value imaginary = graph.input("im", f64, {rows, columns});
  if (is_complex) x = graph.add_one(op::MakeComplex{}, {x, imaginary});
  const Value y = build(x);
  const bool real = y.dtype() == f64;
  graph.output("re", real ? y : graph.add_one(op::Real{}, {y}));
  graph.output("im", real ? y - y : graph.add_one(op::Imag{}, {y}));
  CompiledGraph program = Session(Device::cpu, {.threads = 1}).compile(graph).value();
  const Tensor a = Tensor::of<double>({rows, columns}, std::span<const double>(re)),
               b = Tensor::of<double>({rows, columns}, std::span<const double>(im));
  const std::vector<NamedInput> inputs{{"re", a}, {"im", b}};
  const Outputs outputs = program.run_typed(inputs).value();
  const auto real_parts = outputs["re"].as<double>(), imaginary_parts = outputs["im"].as<double>();
  const std::size_t width = static_cast<std::size_t>(outputs["re"].dims()[1]);
  std::vector<Numbers> result;
  for (std::size_t i = 0; i < real_parts.size(); ++i) {
    if (i % width == 0) result.emplace_back();
    result.back().emplace_back(real_parts[i], imaginary_parts[i]);
  }
  return result;
}

void expect_equal(const std::vector<Numbers>& got, const std::vector<Numbers>& expected,
                  double scale = 1) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].size(), expected[i].size());
    for (std::size_t j = 0; j < got[i].size(); ++j)
      EXPECT_LT(std::abs(got[i][j] - expected[i][j] * scale), 1e-12) << i << ", " << j;
  }
}

std::vector<Numbers> of_lines(const std::vector<Numbers>& lines, std::int64_t points, int sign,
                              std::int64_t kept) {
  std::vector<Numbers> result;
  for (const Numbers& line : lines) {
    result.push_back(line_bins(line, points, sign));
    result.back().resize(static_cast<std::size_t>(kept));
  }
  return result;
}

TEST(FourierBuilders, CutAnAxisOrPutZerosBehindIt) {
  for (const std::int64_t points : {5, 7, 12}) {
    expect_equal(built(true, [=](Value x) { return fft(x, points); }),
                 of_lines(matrix(true), points, 1, points));
    expect_equal(built(false, [=](Value x) { return fft(x, points); }),
                 of_lines(matrix(false), points, 1, points));
    expect_equal(built(false, [=](Value x) { return rfft(x, points); }),
                 of_lines(matrix(false), points, 1, points / 2 + 1));
    expect_equal(built(true, [=](Value x) { return ifft(x, points); }),
                 of_lines(matrix(true), points, -1, points), 1 / static_cast<double>(points));
    // What comes back of the bins of so many points are those points.
    std::vector<Numbers> line = matrix(false);
    for (Numbers& each : line) each.resize(static_cast<std::size_t>(points));
    expect_equal(built(false, [=](Value x) { return irfft(rfft(x, points), points); }), line);
  }
  expect_equal(turned(built(true, [](Value x) { return fft(x, 3, 0, FftNorm::forward); })),
               of_lines(turned(matrix(true)), 3, 1, 3), 1.0 / 3);
}

TEST(FourierBuilders, TransformSeveralAxes) {
  for (const Axes& axes : {Axes{}, Axes{-2, -1}, Axes{1, 0}}) {
    expect_equal(built(true, [&](Value x) { return fftn(x, axes); }), both_axes(matrix(true)));
    expect_equal(built(true, [&](Value x) { return ifftn(x, axes, FftNorm::ortho); }),
                 both_axes(matrix(true), -1), 1 / std::sqrt(double{rows * columns}));
  }
  std::vector<Numbers> half = both_axes(matrix(false));
  for (Numbers& line : half) line.resize(columns / 2 + 1);
  expect_equal(built(false, [](Value x) { return rfftn(x); }), half);
  expect_equal(built(false, [](Value x) { return irfftn(rfftn(x), columns); }), matrix(false));
  expect_equal(turned(built(true, [](Value x) { return fftn(x, {0}); })),
               of_lines(turned(matrix(true)), rows, 1, rows));
}

TEST(FourierBuilders, RefuseWhatCannotBe) {
  Graph graph;
  const Value x = graph.input("x", f32, {3, "n"}), i = graph.input("i", i32, {4});
  const Value z = graph.input("z", c64, {4});
  for (const std::function<void()>& wrong : std::vector<std::function<void()>>{
           [&] { fft(i); },
           [&] { fft(x, 8); },
           [&] { fft(z, -1); },
           [&] { fft(z, 0, 1); },
           [&] { rfft(z); },
           [&] { fftn(x, {0, -2}); },
           [&] { rfftn(z); },
           [&] { ifft(Value{}); },
       }) {
    EXPECT_THROW(wrong(), Exception);
  }
  EXPECT_EQ(fft(x).type(), (Type{c64, {3, "n"}}));
}

}  // namespace
}  // namespace rlx
