// Winograd's convolutions: their filters, and the transforms of images and results.
#include "graph/winograd.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <vector>

#include "base/element.hpp"
#include "graph/rules.hpp"
#include "ops/counted.hpp"
#include "ops/families.hpp"
#include "ops/reference.hpp"
#include "rlx/ops.hpp"

namespace rlx {
namespace {

using winograd::taps;

/// The matrix G; with stride 2 the sums of taps that the points of a line meet.
std::vector<std::array<double, taps>> filter_rows(std::int64_t outputs, std::int64_t stride) {
  if (stride == 2) return {{1, 0, 0}, {1, 0, 1}, {0, 0, 1}, {0, 1, 0}, {0, 1, 0}};
  std::vector<std::array<double, taps>> rows;
  for (const auto& row : winograd::filter_rows(winograd::magnitudes(outputs), true, taps))
    rows.push_back({row[0], row[1], row[2]});
  return rows;
}

/// 2 outputs; of floats also 4, or 2 with stride 2.
Status check_tile(std::string_view name, std::int64_t outputs, std::int64_t stride, bool floats) {
  if (outputs == 2 && stride == 1) return {};
  if (floats && ((outputs == 4 && stride == 1) || (outputs == 2 && stride == 2))) return {};
  return bad_input(
      "The outputs and the stride ({}, {}) of {} are 2 and 1, or of floats 4 and 1 or 2 and 2.",
      outputs, stride, name);
}

/// So many filters at once, for the compiler's vectors.
struct Lanes {
  static constexpr std::size_t count = 8;
  std::array<double, count> value;
};

/// A row of G by a column of three.
Lanes product(const std::array<double, taps>& row, const Lanes& a, const Lanes& b, const Lanes& c) {
  Lanes sum;
  for (std::size_t i = 0; i < Lanes::count; ++i)
    sum.value[i] = row[0] * a.value[i] + row[1] * b.value[i] + row[2] * c.value[i];
  return sum;
}

Value product(const std::array<double, taps>& row, Value a, Value b, Value c) {
  const auto times = [](double factor, Value x) {
    return x * x.graph().constant(DType::f64, factor);
  };
  return times(row[0], a) + times(row[1], b) + times(row[2], c);
}

/// G g G^T, row by row.
template <class T>
void filter_square(const std::vector<std::array<double, taps>>& rows,
                   const std::array<T, taps * taps>& g, std::vector<T>& square) {
  square.clear();
  for (const auto& row : rows) {
    const T first = product(row, g[0], g[3], g[6]), second = product(row, g[1], g[4], g[7]),
            third = product(row, g[2], g[5], g[8]);
    for (const auto& column : rows) square.push_back(product(column, first, second, third));
  }
}

}  // namespace

template <>
struct Rules<op::WinogradFilters> {
  using A = op::WinogradFilters;
  static constexpr std::string_view name = "winograd_filters";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{.composite = true, .rows_to_columns = true};
  static constexpr auto fields =
      std::tuple{field("outputs", &A::outputs), field("stride", &A::stride)};

  static Result<std::vector<Type>> infer(const A& a, const InferArgs& args) {
    const Type& w = args[0];
    const bool integers = w.dtype == DType::u8 || w.dtype == DType::i8 || w.dtype == DType::i16;
    const bool floats = w.dtype == DType::f32 || w.dtype == DType::f16 || w.dtype == DType::bf16;
    if ((!floats && !integers) || w.rank() != 4 || w.shape[2] != Dim(taps) ||
        w.shape[3] != Dim(taps))
      return bad_input(
          "The filters of winograd_filters are [K, C, 3, 3] of f32, f16, bf16, u8, i8 or i16, not "
          "{}.",
          w.text());
    RLX_TRY(check_tile(name, a.outputs, a.stride, !integers));
    const std::int64_t side = winograd::side(a.outputs, a.stride);
    return std::vector<Type>{
        Type{integers ? DType::i16 : DType::f32, {Dim(side * side), w.shape[1], w.shape[0]}}};
  }

  static Status eval(const A& a, const EvalArgs& args) {
    switch (args.in(0).dtype) {
      case DType::u8: return points_of<std::uint8_t, std::int16_t>(a, args);
      case DType::i8: return points_of<std::int8_t, std::int16_t>(a, args);
      case DType::i16: return points_of<std::int16_t, std::int16_t>(a, args);
      case DType::f16: return points_of<Half, float>(a, args);
      case DType::bf16: return points_of<BFloat16, float>(a, args);
      default: return points_of<float, float>(a, args);
    }
  }

  template <class From, class To>
  static Status points_of(const A& a, const EvalArgs& args) {
    const TensorView& w = args.in(0);
    const std::int64_t out = w.dims[0], in = w.dims[1];
    const auto* from = reinterpret_cast<const From*>(w.data);
    auto* to = reinterpret_cast<To*>(args.out(0).data);
    const auto rows = filter_rows(a.outputs, a.stride);
    std::vector<Lanes> square;
    constexpr auto lanes = static_cast<std::int64_t>(Lanes::count);
    for (std::int64_t c = 0; c < in; ++c) {
      for (std::int64_t k = 0; k < out; k += lanes) {
        const auto here = static_cast<std::size_t>(std::min(lanes, out - k));
        std::array<Lanes, taps * taps> g{};
        for (std::size_t lane = 0; lane < here; ++lane) {
          const From* filter =
              from + ((k + static_cast<std::int64_t>(lane)) * in + c) * taps * taps;
          for (std::size_t tap = 0; tap < g.size(); ++tap)
            g[tap].value[lane] = static_cast<double>(widen(filter[tap]));
        }
        filter_square(rows, g, square);
        for (std::size_t point = 0; point < square.size(); ++point) {
          To* line = to + (static_cast<std::int64_t>(point) * in + c) * out + k;
          for (std::size_t lane = 0; lane < here; ++lane)
            line[lane] = stored<To>(square[point].value[lane]);
        }
      }
    }
    return {};
  }

  template <class To>
  static To stored(double point) {
    if constexpr (std::is_same_v<To, float>) return static_cast<float>(point);
    // Modulo 2^16, as sums of i16 are.
    else return static_cast<To>(static_cast<std::int32_t>(point * (1 << winograd::integer_shift)));
  }

  static Values body(const A& a, Graph& graph, std::span<const Value> inputs) {
    const Value w = cast(transpose(inputs[0], {2, 3, 1, 0}), DType::f64);
    const Shape shape{Dim(1), w.shape()[2], w.shape()[3]};
    std::array<Value, taps * taps> g;
    for (std::int64_t tap = 0; tap < taps * taps; ++tap) {
      const Axes starts{tap / taps, tap % taps, 0, 0};
      const Axes limits{tap / taps + 1, tap % taps + 1, w.shape()[2].value(), w.shape()[3].value()};
      g[static_cast<std::size_t>(tap)] = reshape(slice(w, starts, limits), shape);
    }
    Values square;
    filter_square(filter_rows(a.outputs, a.stride), g, square);
    const Value points = concat(square, 0);
    if (is_float(inputs[0].dtype())) return {cast(points, DType::f32)};
    const Value scale = graph.constant(DType::f64, 1 << winograd::integer_shift);
    return {cast(cast(points * scale, DType::i32), DType::i16)};
  }

  static OpCost cost(const A& a, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    // 3 multiply-adds for each entry of G g, and of that with G^T.
    const auto side = static_cast<double>(winograd::side(a.outputs, a.stride));
    return {6 * static_cast<double>(results[0].elements()) * (1 + taps / side),
            bytes_of(inputs, results)};
  }

  static std::vector<Sample> samples() {
    return {{.op = A{}, .inputs = {Type{DType::f32, {5, 3, 3, 3}}}},
            {.op = A{4}, .inputs = {Type{DType::f32, {33, 2, 3, 3}}}},
            {.op = A{}, .inputs = {Type{DType::i8, {19, 4, 3, 3}}}},
            {.op = A{}, .inputs = {Type{DType::i16, {2, 3, 3, 3}}}},
            {.op = A{4}, .inputs = {Type{DType::f16, {9, 2, 3, 3}}}},
            {.op = A{2, 2}, .inputs = {Type{DType::f32, {11, 3, 3, 3}}}}};
  }
};
RLX_OP(op::WinogradFilters, "conv")

namespace {

/// Operations of the transform of one tile, in both directions.
double operations_of_tile(std::int64_t outputs, std::int64_t stride, bool of_image) {
  const auto side = static_cast<std::size_t>(winograd::side(outputs, stride));
  const Counted none{std::make_shared<int>(0)};
  const winograd::Transforms<Counted>::Square tile(side, {side, none});
  const winograd::Transforms<Counted> transforms(outputs, stride);
  of_image ? transforms.image(tile) : transforms.outputs(tile);
  return *none.count;
}

Status check_operand(std::string_view name, std::int64_t outputs, std::int64_t stride, DType dtype,
                     DType integers) {
  if (dtype != DType::f32 && dtype != integers)
    return bad_input("The operand of {} is of f32 or {}, not {}.", name, name_of(integers),
                     name_of(dtype));
  return check_tile(name, outputs, stride, dtype == DType::f32);
}

/// Distances in memory: from an image, row and column of tiles to the next, and from a place of a
/// tile to the one below and the one beside it. Channels lie side by side.
struct TileLayout {
  std::int64_t image, row, column, below, beside;
  /// Of images: from tile to tile in pixels, pixels before the first one, and what there is.
  std::int64_t apart = 0, above = 0, left = 0, height = 0, width = 0;

  /// Where place (i, j) of a tile lies behind the first one of the image; -1: nowhere.
  std::int64_t place(std::int64_t tile_row, std::int64_t tile_column, std::int64_t i,
                     std::int64_t j) const {
    if (apart > 0) {
      const std::int64_t y = tile_row * apart + i - above, x = tile_column * apart + j - left;
      if (y < 0 || y >= height || x < 0 || x >= width) return -1;
    }
    return tile_row * row + tile_column * column + (i - above) * below + (j - left) * beside;
  }
};

/// Of images [N, H, W, C] whose tiles begin `apart` pixels apart, the first one so many before.
TileLayout layout_of_image(std::span<const std::int64_t> dims, std::int64_t apart,
                           const Axes& before = {0, 0}) {
  const std::int64_t line = dims[2] * dims[3];
  return {dims[1] * line, apart * line, apart * dims[3], line,    dims[3],
          apart,          before[0],    before[1],       dims[1], dims[2]};
}

/// Of points [side * side, tiles, C].
TileLayout layout_of_points(std::span<const std::int64_t> dims, std::int64_t side,
                            std::int64_t rows, std::int64_t columns) {
  const std::int64_t point = dims[1] * dims[2];
  return {rows * columns * dims[2], columns * dims[2], dims[2], side * point, point};
}

/// to = transform(from) for tiles of `side` x `side` values in every image and channel.
template <class T, class Transform>
void transform_tiles(const EvalArgs& args, std::int64_t images, std::int64_t rows,
                     std::int64_t columns, std::int64_t side, const TileLayout& read,
                     const TileLayout& written, const Transform& transform) {
  const std::int64_t channels = args.out(0).dims.back();
  for (std::int64_t at = 0; at < images * rows * columns * channels; ++at) {
    const std::int64_t c = at % channels, tile = at / channels;
    const std::int64_t image = tile / columns / rows, row = tile / columns % rows,
                       column = tile % columns;
    const T* from = reinterpret_cast<const T*>(args.in(0).data) + image * read.image + c;
    T* to = reinterpret_cast<T*>(args.out(0).data) + image * written.image + c;
    typename winograd::Transforms<T>::Square square;
    for (std::int64_t i = 0; i < side; ++i) {
      square.emplace_back();
      for (std::int64_t j = 0; j < side; ++j) {
        const std::int64_t place = read.place(row, column, i, j);
        square.back().push_back(place < 0 ? T{} : from[place]);
      }
    }
    square = transform(square);
    for (std::size_t i = 0; i < square.size(); ++i) {
      for (std::size_t j = 0; j < square[i].size(); ++j) {
        const std::int64_t place =
            written.place(row, column, static_cast<std::int64_t>(i), static_cast<std::int64_t>(j));
        if (place >= 0) to[place] = square[i][j];
      }
    }
  }
}

}  // namespace

template <>
struct Rules<op::WinogradImage> {
  using A = op::WinogradImage;
  static constexpr std::string_view name = "winograd_image";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{};
  static constexpr auto fields =
      std::tuple{field("outputs", &A::outputs), field("stride", &A::stride), field("low", &A::low),
                 field("high", &A::high)};

  static Result<std::vector<Type>> infer(const A& a, const InferArgs& args) {
    const Type& x = args[0];
    RLX_TRY(check_operand(name, a.outputs, a.stride, x.dtype, DType::i16));
    if (x.rank() != 4 || !x.is_static())
      return bad_input("The operand of {} is of images [N, H, W, C] of known dims, not {}.", name,
                       x.text());
    const Dims dims = x.dims();
    const std::int64_t apart = a.outputs * a.stride, side = winograd::side(a.outputs, a.stride);
    if (a.low.size() != 2 || a.high.size() != 2)
      return bad_input("The zeros around the images of {} are of rows and of columns.", name);
    for (const std::size_t axis : {1u, 2u}) {
      constexpr std::int64_t most = std::int64_t{1} << 30;  // no sum is too large
      const std::int64_t low = a.low[axis - 1], high = a.high[axis - 1];
      const bool fits = low >= 0 && low <= most && high >= 0 && high <= most;
      const std::int64_t pixels = fits ? dims[axis] + low + high : 0;
      if (pixels < side ||
          winograd::tiles_along(pixels, a.outputs, a.stride) * apart + taps - a.stride != pixels)
        return bad_input(
            "The images {} of {}, with ({}) and ({}) zeros, are no whole tiles of ({}) pixels and "
            "({}).",
            x.text(), name, low, high, apart, taps - a.stride);
    }
    const auto [rows, columns] = winograd::tiles_of(a, dims);
    const std::int64_t count = dims[0] * rows * columns;
    return std::vector<Type>{Type{x.dtype, {Dim(side * side), Dim(count), Dim(dims[3])}}};
  }

  static Status eval(const A& a, const EvalArgs& args) {
    if (args.in(0).dtype == DType::i16) return points_of<std::int16_t>(a, args);
    return points_of<float>(a, args);
  }

  template <class T>
  static Status points_of(const A& a, const EvalArgs& args) {
    const Dims dims(args.in(0).dims.begin(), args.in(0).dims.end());
    const std::int64_t side = winograd::side(a.outputs, a.stride);
    const auto [rows, columns] = winograd::tiles_of(a, dims);
    const winograd::Transforms<T> transforms(a.outputs, a.stride);
    transform_tiles<T>(args, dims[0], rows, columns, side,
                       layout_of_image(dims, a.outputs * a.stride, a.low),
                       layout_of_points(args.out(0).dims, side, rows, columns),
                       [&](const auto& tile) { return transforms.image(tile); });
    return {};
  }

  static OpCost cost(const A& a, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    const Dims points = results[0].dims();
    const auto tiles = static_cast<double>(points[1] * points[2]);
    return {operations_of_tile(a.outputs, a.stride, true) * tiles, bytes_of(inputs, results)};
  }

  static std::vector<Sample> samples() {
    return {{.op = A{}, .inputs = {Type{DType::f32, {1, 6, 4, 19}}}},
            {.op = A{4}, .inputs = {Type{DType::f32, {2, 6, 10, 3}}}, .tolerance = 1e-4},
            {.op = A{}, .inputs = {Type{DType::i16, {2, 4, 8, 5}}}},
            {.op = A{2, 2}, .inputs = {Type{DType::f32, {2, 5, 13, 19}}}},
            {.op = A{4, 1, {1, 0}, {2, 1}},
             .inputs = {Type{DType::f32, {2, 7, 5, 3}}},
             .tolerance = 1e-4},
            {.op = A{2, 1, {1, 1}, {2, 1}}, .inputs = {Type{DType::i16, {1, 1, 4, 5}}}}};
  }
};
RLX_OP(op::WinogradImage, "conv")

template <>
struct Rules<op::WinogradOutputs> {
  using A = op::WinogradOutputs;
  static constexpr std::string_view name = "winograd_outputs";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{};
  static constexpr auto fields = std::tuple{
      field("outputs", &A::outputs), field("rows", &A::rows), field("columns", &A::columns),
      field("stride", &A::stride),   field("cut", &A::cut),   field("by_rows", &A::by_rows)};

  static Result<std::vector<Type>> infer(const A& a, const InferArgs& args) {
    const Type& m = args[0];
    RLX_TRY(check_operand(name, a.outputs, a.stride, m.dtype, DType::i32));
    const std::int64_t side = winograd::side(a.outputs, a.stride);
    if (m.rank() != 3 || !m.is_static() || m.dims()[0] != side * side)
      return bad_input("The operand of {} is [{}, tiles, K] of known dims, not {}.", name,
                       side * side, m.text());
    const std::int64_t tiles = m.dims()[1];
    // Compared without their product, which any attributes could make too large.
    if (a.rows < 1 || a.columns < 1 || a.rows > tiles || a.columns > tiles / a.rows ||
        tiles % (a.rows * a.columns) != 0)
      return bad_input("The ({}) tiles of {} are no whole images of ({}) x ({}) tiles.", tiles,
                       name, a.rows, a.columns);
    const bool cuts = a.cut.size() == 2 && std::ranges::all_of(a.cut, [&](std::int64_t cut) {
                        return cut >= 0 && cut < a.outputs;
                      });
    if (!cuts) return bad_input("What {} cuts off is less than a tile of ({}).", name, a.outputs);
    return std::vector<Type>{
        Type{m.dtype,
             {Dim(tiles / (a.rows * a.columns)), Dim(a.rows * a.outputs - a.cut[0]),
              Dim(a.columns * a.outputs - a.cut[1]), m.shape[2]}}};
  }

  static Status eval(const A& a, const EvalArgs& args) {
    if (args.in(0).dtype == DType::i32) return images_of<std::int32_t>(a, args);
    return images_of<float>(a, args);
  }

  template <class T>
  static Status images_of(const A& a, const EvalArgs& args) {
    const auto& dims = args.out(0).dims;
    const std::int64_t side = winograd::side(a.outputs, a.stride);
    const winograd::Transforms<T> transforms(a.outputs, a.stride);
    transform_tiles<T>(args, dims[0], a.rows, a.columns, side,
                       layout_of_points(args.in(0).dims, side, a.rows, a.columns),
                       layout_of_image(dims, a.outputs),
                       [&](const auto& tile) { return transforms.outputs(tile); });
    return {};
  }

  static OpCost cost(const A& a, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    const Dims products = inputs[0]->dims();
    const auto tiles = static_cast<double>(products[1] * products[2]);
    return {operations_of_tile(a.outputs, a.stride, false) * tiles, bytes_of(inputs, results)};
  }

  static std::vector<Sample> samples() {
    return {{.op = A{2, 2, 1}, .inputs = {Type{DType::f32, {16, 4, 19}}}},
            {.op = A{4, 1, 3}, .inputs = {Type{DType::f32, {36, 3, 3}}}, .tolerance = 1e-4},
            {.op = A{2, 2, 3}, .inputs = {Type{DType::i32, {16, 12, 5}}}},
            {.op = A{2, 2, 3, 2}, .inputs = {Type{DType::f32, {25, 12, 19}}}},
            {.op = A{4, 2, 1, 1, {3, 2}, true},
             .inputs = {Type{DType::f32, {36, 4, 5}}},
             .tolerance = 1e-4}};
  }
};
RLX_OP(op::WinogradOutputs, "conv")

OpList winograd_ops() {
  static const OpInfo* const list[] = {&info_of<op::WinogradFilters>(),
                                       &info_of<op::WinogradImage>(),
                                       &info_of<op::WinogradOutputs>()};
  return list;
}

}  // namespace rlx
