// Contractions: the general dot product, and the integer matmul with zero points.
#include <algorithm>
#include <numeric>

#include "graph/rules.hpp"
#include "ops/families.hpp"
#include "ops/reference.hpp"

namespace rlx {
namespace {

/// The axes of a dot_general, normalised, and the free axes of both operands.
struct DotAxes {
  Axes a_batch, b_batch, a_contract, b_contract, a_free, b_free;
};

Result<Axes> normalized_in_order(const Axes& axes, const Type& type) {
  Axes result;
  for (const std::int64_t axis : axes) {
    RLX_ASSIGN(const std::int64_t normal, normalize_axis(axis, type.rank(), type));
    result.push_back(normal);
  }
  return result;
}

// The axes that are neither batch nor contracted; every axis may have one role alone.
Result<Axes> free_axes(const Axes& batch, const Axes& contract, const Type& type) {
  std::vector<int> uses(type.rank(), 0);
  for (const Axes* axes : {&batch, &contract}) {
    for (const std::int64_t axis : *axes) {
      if (++uses[axis] == 2)
        return bad_input("Axis ({}) of {} is named twice in dot_general.", axis, type.text());
    }
  }
  Axes result;
  for (int i = 0; i < type.rank(); ++i) {
    if (!uses[i]) result.push_back(i);
  }
  return result;
}

Status check_pairs(std::string_view role, const Axes& a_axes, const Axes& b_axes, const Type& a,
                   const Type& b) {
  if (a_axes.size() != b_axes.size()) {
    return bad_input("The op dot_general has ({}) {} axes of {} and ({}) of {}.", a_axes.size(),
                     role, a.text(), b_axes.size(), b.text());
  }
  for (std::size_t i = 0; i < a_axes.size(); ++i) {
    const Dim &x = a.shape[a_axes[i]], &y = b.shape[b_axes[i]];
    if (!compatible(x, y)) {
      return bad_input(
          "The {} dims of dot_general differ: axis ({}) of {} against axis ({}) of {}.", role,
          a_axes[i], a.text(), b_axes[i], b.text());
    }
  }
  return {};
}

Result<DotAxes> dot_axes(const op::DotGeneral& d, const Type& a, const Type& b) {
  DotAxes axes;
  RLX_ASSIGN(axes.a_batch, normalized_in_order(d.a_batch, a));
  RLX_ASSIGN(axes.b_batch, normalized_in_order(d.b_batch, b));
  RLX_ASSIGN(axes.a_contract, normalized_in_order(d.a_contract, a));
  RLX_ASSIGN(axes.b_contract, normalized_in_order(d.b_contract, b));
  RLX_TRY(check_pairs("batch", axes.a_batch, axes.b_batch, a, b));
  RLX_TRY(check_pairs("contracting", axes.a_contract, axes.b_contract, a, b));
  RLX_ASSIGN(axes.a_free, free_axes(axes.a_batch, axes.a_contract, a));
  RLX_ASSIGN(axes.b_free, free_axes(axes.b_batch, axes.b_contract, b));
  return axes;
}

Axes joined(const Axes& a, const Axes& b, const Axes& c) {
  Axes result = a;
  result.insert(result.end(), b.begin(), b.end());
  result.insert(result.end(), c.begin(), c.end());
  return result;
}

std::int64_t product_of(const Axes& axes, std::span<const std::int64_t> dims) {
  std::int64_t result = 1;
  for (const std::int64_t axis : axes) result *= dims[axis];
  return result;
}

struct MatmulDims {
  std::int64_t batch = 1, rows = 1, columns = 1, depth = 1;
};

// a [batch, rows, depth] times b [batch, depth, columns]; the inner loop runs along rows of b and
// of the sum.
template <class Element, class Sum>
std::vector<Sum> multiply(const MatmulDims& d, std::span<const Element> a,
                          std::span<const Element> b) {
  std::vector<Sum> result(d.batch * d.rows * d.columns, Sum(0));
  for (std::int64_t row = 0; row < d.batch * d.rows; ++row) {
    Sum* sum = result.data() + row * d.columns;
    const Element* b_matrix = b.data() + row / d.rows * d.depth * d.columns;
    for (std::int64_t k = 0; k < d.depth; ++k) {
      const Sum factor(a[row * d.depth + k]);
      const Element* b_row = b_matrix + k * d.columns;
      for (std::int64_t column = 0; column < d.columns; ++column)
        sum[column] += factor * Sum(b_row[column]);
    }
  }
  return result;
}

template <class Element, class Sum, class Stored>
void evaluate_dot(const DotAxes& axes, const EvalArgs& args) {
  const TensorView &a = args.in(0), &b = args.in(1);
  const MatmulDims dims{.batch = product_of(axes.a_batch, a.dims),
                        .rows = product_of(axes.a_free, a.dims),
                        .columns = product_of(axes.b_free, b.dims),
                        .depth = product_of(axes.a_contract, a.dims)};
  const std::vector<Element> a_values = load_all<Element>(a), b_values = load_all<Element>(b);
  const auto a_ordered =
      permuted<Element>(a_values, a.dims, joined(axes.a_batch, axes.a_free, axes.a_contract));
  const auto b_ordered =
      permuted<Element>(b_values, b.dims, joined(axes.b_batch, axes.b_contract, axes.b_free));
  const auto sums = multiply<Element, Sum>(dims, a_ordered, b_ordered);
  store_all<Stored>(args.out(0), std::vector<Stored>(sums.begin(), sums.end()));
}

Type type_of(const TensorView& view) { return {view.dtype, to_shape(view.dims)}; }

}  // namespace

// result[batch, a's free, b's free] = sum over the contracted of a * b
template <>
struct Rules<op::DotGeneral> {
  static constexpr std::string_view name = "dot_general";
  static constexpr Arity arity{2, 2};
  static constexpr OpTraits traits{};
  static constexpr auto fields = std::tuple{field("a_batch", &op::DotGeneral::a_batch),
                                            field("b_batch", &op::DotGeneral::b_batch),
                                            field("a_contract", &op::DotGeneral::a_contract),
                                            field("b_contract", &op::DotGeneral::b_contract)};
  static Result<std::vector<Type>> infer(const op::DotGeneral& d, const InferArgs& args) {
    RLX_TRY(require(args[0].dtype != boolean, name, "numbers or complex numbers", args[0]));
    RLX_TRY(require_same_dtype(name, args[0], args[1]));
    RLX_ASSIGN(const DotAxes axes, dot_axes(d, args[0], args[1]));
    Type result{args[0].dtype, {}};
    for (std::size_t i = 0; i < axes.a_batch.size(); ++i) {
      const Dim& dim = args[0].shape[axes.a_batch[i]];
      result.shape.push_back(dim.is_static() ? dim : args[1].shape[axes.b_batch[i]]);
    }
    for (const std::int64_t axis : axes.a_free) result.shape.push_back(args[0].shape[axis]);
    for (const std::int64_t axis : axes.b_free) result.shape.push_back(args[1].shape[axis]);
    return std::vector<Type>{std::move(result)};
  }
  static Status eval(const op::DotGeneral& d, const EvalArgs& args) {
    RLX_ASSIGN(const DotAxes axes, dot_axes(d, type_of(args.in(0)), type_of(args.in(1))));
    const DType dtype = args.in(0).dtype;
    if (is_complex(dtype)) {
      evaluate_dot<std::complex<double>, std::complex<double>, std::complex<double>>(axes, args);
    } else if (is_integer(dtype)) {
      // Unsigned sums wrap; their low bits are those of the signed ones.
      evaluate_dot<std::int64_t, std::uint64_t, std::int64_t>(axes, args);
    } else if (dtype == f64) {
      evaluate_dot<double, double, double>(axes, args);
    } else {
      evaluate_dot<float, double, double>(axes, args);
    }
    return {};
  }
  static OpCost cost(const op::DotGeneral& d, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    double flops =
        (is_complex(results[0].dtype) ? 8.0 : 2.0) * static_cast<double>(results[0].elements());
    const Dims dims = inputs[0]->dims();
    for (const std::int64_t axis : d.a_contract)
      flops *= static_cast<double>(dims[axis < 0 ? axis + inputs[0]->rank() : axis]);
    return {flops, bytes_of(inputs, results)};
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> list;
    for (const DType dtype : {f32, f64, f16, bf16, i8, u8, i32, i64, c64, c128}) {
      list.push_back({.op = op::DotGeneral{.a_contract = {1}, .b_contract = {0}},
                      .inputs = {Type{dtype, {5, 9}}, Type{dtype, {9, 7}}}});
    }
    const op::DotGeneral batched{
        .a_batch = {0, 1}, .b_batch = {0, 1}, .a_contract = {3}, .b_contract = {3}};
    list.push_back({.op = batched, .inputs = {Type{f32, {2, 3, 4, 8}}, Type{f32, {2, 3, 5, 8}}}});
    const op::DotGeneral odd{
        .a_batch = {2}, .b_batch = {0}, .a_contract = {0, -1}, .b_contract = {3, 1}};
    list.push_back({.op = odd, .inputs = {Type{f32, {3, 4, 2, 5}}, Type{f32, {2, 5, 6, 3}}}});
    list.push_back({.op = op::DotGeneral{}, .inputs = {Type{f32, {3}}, Type{f32, {4}}}});
    list.push_back({.op = op::DotGeneral{.a_contract = {0}, .b_contract = {0}},
                    .inputs = {Type{f32, {33}}, Type{f32, {33}}}});
    list.push_back({.op = op::DotGeneral{.a_contract = {1}, .b_contract = {0}},
                    .inputs = {Type{f32, {65, 130}}, Type{f32, {130, 67}}},
                    .tolerance = 1e-4});
    return list;
  }
};
RLX_OP(op::DotGeneral, "matmul")

namespace {

// A vector is a matrix of one row (a) or one column (b), whose axis the result does not have.
Shape matrix_shape(const Shape& shape, bool is_b) {
  if (shape.size() != 1) return shape;
  return is_b ? Shape{shape[0], Dim(1)} : Shape{Dim(1), shape[0]};
}

Status check_zero_point(const Type& zero, const Type& operand, bool is_b) {
  RLX_TRY(require_same_dtype("integer_matmul", operand, zero));
  const auto at =
      is_b ? operand.shape.end() - 1 : operand.shape.end() - (operand.rank() > 1 ? 2 : 1);
  const bool vector_fits =
      zero.rank() == 1 &&
      (zero.shape[0] == Dim(1) || (operand.rank() > 1 && compatible(zero.shape[0], *at)));
  if (zero.rank() == 0 || vector_fits) return {};
  if (zero.rank() == operand.rank() && zero.rank() > 1) {
    auto broadcast = broadcast_shapes(zero.shape, operand.shape);
    if (broadcast.ok() && *broadcast == operand.shape) return {};
  }
  return bad_input(
      "A zero point {} of integer_matmul is neither a scalar nor one for each {} of {}.",
      zero.text(), is_b ? "column" : "row", operand.text());
}

// The shape under which a zero point broadcasts against its matrix: one a row of a, one a column of
// b.
Shape zero_point_shape(const Shape& zero, bool is_b) {
  return zero.size() == 1 && !is_b ? Shape{zero[0], Dim(1)} : zero;
}

// The operand as i64 with its zero point subtracted.
std::vector<std::int64_t> centred(const EvalArgs& args, int operand, const Dims& dims) {
  std::vector<std::int64_t> values = load_all<std::int64_t>(args.in(operand));
  if (!args.has(operand + 2)) return values;
  const TensorView& zero = args.in(operand + 2);
  const std::vector<std::int64_t> zeros = load_all<std::int64_t>(zero);
  const Dims zero_dims =
      Type{zero.dtype, zero_point_shape(to_shape(zero.dims), operand == 1)}.dims();
  const Dims strides = broadcast_strides(zero_dims, dims);
  std::size_t at = 0;
  for_each_index(dims,
                 [&](const Dims& index) { values[at++] -= zeros[offset_of(index, strides)]; });
  return values;
}

}  // namespace

// (a - a zero) times (b - b zero), in i32; batch dims broadcast as NumPy's matmul does
template <>
struct Rules<op::IntegerMatmul> {
  static constexpr std::string_view name = "integer_matmul";
  static constexpr Arity arity{2, 4};
  static constexpr OpTraits traits{.composite = true};
  static constexpr auto fields = std::tuple{};
  static Result<std::vector<Type>> infer(const op::IntegerMatmul&, const InferArgs& args) {
    for (int i = 0; i < 2; ++i) {
      RLX_TRY(require(args[i].dtype == i8 || args[i].dtype == u8, name, "i8 or u8", args[i]));
      RLX_TRY(require(args[i].rank() > 0, name, "vectors, matrices and stacks of them", args[i]));
      if (args.has(i + 2)) RLX_TRY(check_zero_point(args[i + 2], args[i], i == 1));
    }
    const Shape a = matrix_shape(args[0].shape, false), b = matrix_shape(args[1].shape, true);
    if (!compatible(a[a.size() - 1], b[b.size() - 2])) {
      return bad_input("The inner dims of integer_matmul differ: {} against {}.", args[0].text(),
                       args[1].text());
    }
    RLX_ASSIGN(Shape shape,
               broadcast_shapes(Shape(a.begin(), a.end() - 2), Shape(b.begin(), b.end() - 2)));
    if (args[0].rank() > 1) shape.push_back(a[a.size() - 2]);
    if (args[1].rank() > 1) shape.push_back(b.back());
    return std::vector<Type>{{i32, std::move(shape)}};
  }
  static Status eval(const op::IntegerMatmul&, const EvalArgs& args) {
    const Dims a_dims = Type{i8, matrix_shape(to_shape(args.in(0).dims), false)}.dims();
    const Dims b_dims = Type{i8, matrix_shape(to_shape(args.in(1).dims), true)}.dims();
    const std::vector<std::int64_t> a = centred(args, 0, a_dims), b = centred(args, 1, b_dims);
    const Dims a_batch(a_dims.begin(), a_dims.end() - 2), b_batch(b_dims.begin(), b_dims.end() - 2);
    const MatmulDims matrix{
        .rows = a_dims.end()[-2], .columns = b_dims.back(), .depth = a_dims.back()};
    RLX_ASSIGN(const Shape batch, broadcast_shapes(to_shape(a_batch), to_shape(b_batch)));
    const Dims batch_dims = Type{i8, batch}.dims();
    const Dims a_strides = broadcast_strides(a_batch, batch_dims),
               b_strides = broadcast_strides(b_batch, batch_dims);
    std::vector<std::int64_t> result;
    for_each_index(batch_dims, [&](const Dims& index) {
      const std::int64_t a_size = matrix.rows * matrix.depth,
                         b_size = matrix.depth * matrix.columns;
      const std::span<const std::int64_t> a_matrix(a.data() + offset_of(index, a_strides) * a_size,
                                                   a_size);
      const std::span<const std::int64_t> b_matrix(b.data() + offset_of(index, b_strides) * b_size,
                                                   b_size);
      const auto sums = multiply<std::int64_t, std::int64_t>(matrix, a_matrix, b_matrix);
      result.insert(result.end(), sums.begin(), sums.end());
    });
    store_all<std::int64_t>(args.out(0), result);
    return {};
  }
  static Values body(const op::IntegerMatmul&, Graph&, std::span<const Value> inputs) {
    const ExactProducts exact(inputs[0].shape().back());
    const auto centred_operand = [&](std::size_t i) {
      const Value x = cast(inputs[i], exact.dtype);
      if (i + 2 >= inputs.size() || !inputs[i + 2]) return x;
      const Value zero = cast(inputs[i + 2], exact.dtype);
      const bool vector = x.rank() == 1 && zero.rank() == 1;
      return x - reshape(zero, vector ? zero.shape() : zero_point_shape(zero.shape(), i == 1));
    };
    return {exact.rounded(matmul(centred_operand(0), centred_operand(1)))};
  }
  static OpCost cost(const op::IntegerMatmul&, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    const auto depth = static_cast<double>(inputs[0]->dims().back());
    return {2 * depth * static_cast<double>(results[0].elements()), bytes_of(inputs, results)};
  }
  static std::vector<Sample> samples() {
    const op::IntegerMatmul op;
    return {{.op = op, .inputs = {Type{u8, {4, 6}}, Type{i8, {6, 5}}}},
            {.op = op,
             .inputs = {Type{u8, {4, 6}}, Type{i8, {6, 5}}, Type{u8, {}}, Type{i8, {}}},
             .low = 0,
             .high = 100},
            {.op = op,
             .inputs = {Type{i8, {4, 6}}, Type{u8, {6, 5}}, Type{i8, {4}}, Type{u8, {5}}},
             .low = 0,
             .high = 100},
            {.op = op,
             .inputs = {Type{u8, {2, 1, 4, 6}}, Type{u8, {3, 6, 5}}, Type{}, Type{u8, {1}}},
             .absent = {2},
             .low = 0,
             .high = 100},
            {.op = op,
             .inputs = {Type{u8, {2, 4, 6}}, Type{i8, {2, 6, 5}}, Type{u8, {2, 4, 1}},
                        Type{i8, {2, 1, 5}}},
             .low = 0,
             .high = 100},
            {.op = op, .inputs = {Type{u8, {6}}, Type{i8, {6}}}, .low = 0, .high = 100}};
  }
};
RLX_OP(op::IntegerMatmul, "matmul")

OpList matmul_ops() {
  static const OpInfo* const list[] = {&info_of<op::DotGeneral>(), &info_of<op::IntegerMatmul>()};
  return list;
}

}  // namespace rlx
