// Pools: reductions over sliding windows, and the positions of their maxima.
#include <cmath>
#include <limits>

#include "graph/rules.hpp"
#include "ops/families.hpp"
#include "ops/window.hpp"

namespace rlx {
namespace {

/// A pool on concrete dims: planes of one channel of one image.
struct Pool {
  WindowGrid grid;
  std::int64_t planes = 1;
  std::int64_t in_plane() const { return grid[0].in * grid[1].in * grid[2].in; }
  std::int64_t window() const { return grid[0].window * grid[1].window * grid[2].window; }
};

template <class A>
Result<WindowAxes> axes_of(std::string_view name, const A& a, int rank) {
  RLX_ASSIGN(WindowAxes axes,
             window_axes(name, a.window.size(), a.strides, a.pad_low, a.pad_high, a.dilations));
  if (rank != static_cast<int>(axes.rank()) + 2) {
    return bad_input(
        "The op {} has windows of ({}) axes for an operand of rank ({}), which is two more than "
        "its spatial axes.",
        name, axes.rank(), rank);
  }
  return axes;
}

template <class A>
Result<Shape> pooled_shape(std::string_view name, const A& a, const Type& x,
                           std::size_t first_spatial) {
  RLX_ASSIGN(const WindowAxes axes, axes_of(name, a, x.rank()));
  Shape shape = x.shape;
  for (std::size_t i = 0; i < axes.rank(); ++i) {
    Dim& dim = shape[first_spatial + i];
    RLX_ASSIGN(dim, window_count(name, dim, a.window[i], axes, i));
  }
  return shape;
}

Pool pool_of(const WindowAxes& axes, const Axes& window, std::span<const std::int64_t> in,
             std::span<const std::int64_t> out) {
  return {.grid = window_grid(axes, in.subspan(2), out.subspan(2), window),
          .planes = in[0] * in[1]};
}

// Calls visit(offset) for the elements of one window inside a plane, in row-major order.
template <class Visit>
void visit_window(const Pool& pool, const std::array<std::int64_t, 3>& at, Visit visit) {
  const WindowGrid& g = pool.grid;
  std::array<std::int64_t, 3> k{}, p{};
  const auto inside = [&](int i) { return p[i] >= 0 && p[i] < g[i].in; };
  for (k[0] = 0; k[0] < g[0].window; ++k[0]) {
    p[0] = g[0].position(at[0], k[0]);
    for (k[1] = 0; k[1] < g[1].window; ++k[1]) {
      p[1] = g[1].position(at[1], k[1]);
      for (k[2] = 0; k[2] < g[2].window; ++k[2]) {
        p[2] = g[2].position(at[2], k[2]);
        if (inside(0) && inside(1) && inside(2)) visit((p[0] * g[1].in + p[1]) * g[2].in + p[2]);
      }
    }
  }
}

// Calls visit(plane, window) for all windows in row-major order.
template <class Visit>
void for_each_window(const Pool& pool, Visit visit) {
  const WindowGrid& g = pool.grid;
  for (std::int64_t plane = 0; plane < pool.planes; ++plane) {
    for (std::int64_t i = 0; i < g[0].out; ++i) {
      for (std::int64_t j = 0; j < g[1].out; ++j) {
        for (std::int64_t l = 0; l < g[2].out; ++l)
          visit(plane, std::array<std::int64_t, 3>{i, j, l});
      }
    }
  }
}

template <class T>
T combine(Reduction kind, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (kind == Reduction::min || kind == Reduction::max) {
      if (std::isnan(a)) return a;
      if (std::isnan(b)) return b;
    }
  }
  switch (kind) {
    case Reduction::prod: return a * b;
    case Reduction::min: return b < a ? b : a;
    case Reduction::max: return b > a ? b : a;
    case Reduction::any: return a || b;
    case Reduction::all: return a && b;
    default: return a + b;
  }
}

// What a window without elements gives. Of u64, whose order as signed bits differs, see
// comparable().
template <class T>
T start_of(Reduction kind, DType dtype) {
  switch (kind) {
    case Reduction::prod:
    case Reduction::all: return 1;
    case Reduction::min:
    case Reduction::max: break;
    default: return 0;
  }
  const bool max = kind == Reduction::max;
  if constexpr (std::is_floating_point_v<T>) {
    return max ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::infinity();
  } else {
    const int bits = integer_bits(dtype);
    if (dtype == u64 || dtype == i64)
      return max ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max();
    if (is_unsigned_integer(dtype)) return max ? 0 : (std::int64_t{1} << bits) - 1;
    return max ? -(std::int64_t{1} << (bits - 1)) : (std::int64_t{1} << (bits - 1)) - 1;
  }
}

// u64 bits flipped at the top compare as signed numbers.
void make_comparable(DType dtype, Reduction kind, std::vector<std::int64_t>& values) {
  if (dtype != u64 || (kind != Reduction::min && kind != Reduction::max)) return;
  for (std::int64_t& value : values) value ^= std::numeric_limits<std::int64_t>::min();
}

template <class T>
void evaluate_pool(const op::WindowReduce& a, const Pool& pool, std::vector<T> x,
                   const Dims& result_dims, const MutableTensorView& out) {
  if constexpr (!std::is_floating_point_v<T>) make_comparable(out.dtype, a.kind, x);
  std::vector<T> result;
  for_each_window(pool, [&](std::int64_t plane, const std::array<std::int64_t, 3>& at) {
    T value = start_of<T>(a.kind, out.dtype);
    std::int64_t count = 0;
    visit_window(pool, at, [&](std::int64_t offset) {
      value = combine(a.kind, value, x[plane * pool.in_plane() + offset]);
      ++count;
    });
    const std::int64_t divisor = a.count_include_pad ? pool.window() : count;
    if (a.kind == Reduction::mean && (std::is_floating_point_v<T> || divisor))
      value /= static_cast<T>(divisor);
    result.push_back(value);
  });
  if constexpr (!std::is_floating_point_v<T>) make_comparable(out.dtype, a.kind, result);
  if (a.channels_last) result = permuted<T>(result, result_dims, channels_last(out.rank()));
  store_all<T>(out, result);
}

double window_flops(const Axes& window, const Type& result) {
  double flops = static_cast<double>(result.elements());
  for (const std::int64_t size : window) flops *= static_cast<double>(size);
  return flops;
}

Dims channels_first_dims(std::span<const std::int64_t> dims, bool is_channels_last) {
  Dims result(dims.begin(), dims.end());
  if (!is_channels_last) return result;
  const Axes perm = channels_first(static_cast<int>(dims.size()));
  for (std::size_t i = 0; i < perm.size(); ++i) result[i] = dims[perm[i]];
  return result;
}

}  // namespace

template <>
struct Rules<op::WindowReduce> {
  static constexpr std::string_view name = "window_reduce";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{};
  static constexpr auto fields =
      std::tuple{field("kind", &op::WindowReduce::kind),
                 field("window", &op::WindowReduce::window),
                 field("strides", &op::WindowReduce::strides),
                 field("pad_low", &op::WindowReduce::pad_low),
                 field("pad_high", &op::WindowReduce::pad_high),
                 field("dilations", &op::WindowReduce::dilations),
                 field("count_include_pad", &op::WindowReduce::count_include_pad),
                 field("channels_last", &op::WindowReduce::channels_last)};
  static Result<std::vector<Type>> infer(const op::WindowReduce& a, const InferArgs& args) {
    const bool logical = a.kind == Reduction::any || a.kind == Reduction::all;
    RLX_TRY(require(!is_complex(args[0].dtype) && logical == (args[0].dtype == boolean), name,
                    logical ? "bools for any and all" : "numbers for this kind of reduction",
                    args[0]));
    RLX_ASSIGN(Shape shape, pooled_shape(name, a, args[0], a.channels_last ? 1 : 2));
    return std::vector<Type>{{args[0].dtype, std::move(shape)}};
  }
  static Status eval(const op::WindowReduce& a, const EvalArgs& args) {
    const TensorView& x = args.in(0);
    RLX_ASSIGN(const WindowAxes axes, axes_of(name, a, x.rank()));
    const Dims in = channels_first_dims(x.dims, a.channels_last),
               out = channels_first_dims(args.out(0).dims, a.channels_last);
    const Pool pool = pool_of(axes, a.window, in, out);
    const auto run = [&]<class T>(std::vector<T> values) {
      if (a.channels_last) values = permuted<T>(values, x.dims, channels_first(x.rank()));
      evaluate_pool<T>(a, pool, std::move(values), out, args.out(0));
    };
    if (is_float(x.dtype)) {
      run(load_all<double>(x));
    } else {
      run(load_all<std::int64_t>(x));
    }
    return {};
  }
  static OpCost cost(const op::WindowReduce& a, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    return {window_flops(a.window, results[0]), bytes_of(inputs, results)};
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> list;
    const op::WindowReduce pool{.kind = Reduction::max,
                                .window = {3, 2},
                                .strides = {2, 1},
                                .pad_low = {1, 0},
                                .pad_high = {1, 1}};
    for (const DType dtype : {f32, f64, f16, i8, u8, i32})
      list.push_back({.op = pool, .inputs = {Type{dtype, {2, 3, 7, 6}}}});
    for (const Reduction kind :
         {Reduction::sum, Reduction::mean, Reduction::prod, Reduction::min}) {
      op::WindowReduce other = pool;
      other.kind = kind;
      list.push_back({.op = other, .inputs = {Type{f32, {2, 3, 7, 6}}}});
    }
    op::WindowReduce last{.kind = Reduction::mean,
                          .window = {2, 2},
                          .pad_low = {1, 1},
                          .pad_high = {1, 1},
                          .count_include_pad = true,
                          .channels_last = true};
    list.push_back({.op = last, .inputs = {Type{f32, {2, 6, 5, 3}}}});
    list.push_back({.op = op::WindowReduce{.window = {2, 2, 2}, .dilations = {1, 2, 2}},
                    .inputs = {Type{f32, {1, 2, 4, 5, 6}}}});
    list.push_back({.op = op::WindowReduce{.kind = Reduction::any, .window = {3}},
                    .inputs = {Type{boolean, {1, 2, 8}}}});
    list.push_back({.op = op::WindowReduce{.kind = Reduction::all, .window = {3}},
                    .inputs = {Type{boolean, {1, 2, 8}}}});
    return list;
  }
};
RLX_OP(op::WindowReduce, "conv")

// The first maximum of a window in row-major order wins; a NaN is a maximum.
template <>
struct Rules<op::WindowArgMax> {
  static constexpr std::string_view name = "window_arg_max";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{};
  static constexpr auto fields = std::tuple{field("window", &op::WindowArgMax::window),
                                            field("strides", &op::WindowArgMax::strides),
                                            field("pad_low", &op::WindowArgMax::pad_low),
                                            field("pad_high", &op::WindowArgMax::pad_high),
                                            field("dilations", &op::WindowArgMax::dilations),
                                            field("column_major", &op::WindowArgMax::column_major)};
  static Result<std::vector<Type>> infer(const op::WindowArgMax& a, const InferArgs& args) {
    RLX_TRY(
        require(!is_complex(args[0].dtype) && args[0].dtype != boolean, name, "numbers", args[0]));
    RLX_ASSIGN(Shape shape, pooled_shape(name, a, args[0], 2));
    return std::vector<Type>{{i64, std::move(shape)}};
  }
  static Status eval(const op::WindowArgMax& a, const EvalArgs& args) {
    const TensorView& x = args.in(0);
    RLX_ASSIGN(const WindowAxes axes, axes_of(name, a, x.rank()));
    const Pool pool = pool_of(axes, a.window, x.dims, args.out(0).dims);
    const std::vector<double> values = load_all<double>(x);
    const Dims spatial(x.dims.begin() + 2, x.dims.end());
    std::vector<std::int64_t> result;
    for_each_window(pool, [&](std::int64_t plane, const std::array<std::int64_t, 3>& at) {
      const double* elements = values.data() + plane * pool.in_plane();
      std::int64_t best = -1;
      visit_window(pool, at, [&](std::int64_t offset) {
        const bool wins = best < 0 || elements[offset] > elements[best] ||
                          (std::isnan(elements[offset]) && !std::isnan(elements[best]));
        if (wins) best = offset;
      });
      // A window that lies in the padding altogether has no maximum: -1.
      result.push_back(best < 0 ? -1
                                : plane * pool.in_plane() +
                                      (a.column_major ? column_major(best, spatial) : best));
    });
    store_all<std::int64_t>(args.out(0), result);
    return {};
  }
  static OpCost cost(const op::WindowArgMax& a, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    return {window_flops(a.window, results[0]), bytes_of(inputs, results)};
  }
  static std::vector<Sample> samples() {
    const op::WindowArgMax pool{
        .window = {3, 2}, .strides = {2, 1}, .pad_low = {1, 0}, .pad_high = {1, 1}};
    op::WindowArgMax columns = pool;
    columns.column_major = true;
    return {{.op = pool, .inputs = {Type{f32, {2, 3, 7, 6}}}},
            {.op = columns, .inputs = {Type{f32, {2, 3, 7, 6}}}},
            {.op = pool, .inputs = {Type{u8, {2, 3, 8, 6}}}},
            {.op = op::WindowArgMax{.window = {2}, .dilations = {3}},
             .inputs = {Type{i32, {1, 2, 9}}}}};
  }

 private:
  // The position, counted with the first spatial axis running fastest.
  static std::int64_t column_major(std::int64_t offset, const Dims& spatial) {
    std::int64_t result = 0;
    const Dims strides = strides_of(spatial);
    for (std::size_t i = spatial.size(); i-- > 0;)
      result = result * spatial[i] + offset / strides[i] % spatial[i];
    return result;
  }
};
RLX_OP(op::WindowArgMax, "conv")

}  // namespace rlx
