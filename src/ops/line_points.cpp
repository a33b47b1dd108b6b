// Minimal filtering of lines: the transforms of lines and results.
#include "graph/line_points.hpp"

#include <algorithm>
#include <memory>

#include "graph/rules.hpp"
#include "ops/counted.hpp"
#include "ops/families.hpp"
#include "ops/reference.hpp"
#include "rlx/ops.hpp"

namespace rlx {
namespace {

Status check_tile(std::string_view name, const lines::Tile& tile) {
  if (std::ranges::find(lines::tiles, tile) != lines::tiles.end()) return {};
  return bad_input("Tiles of {} have 4 outputs and 2 to 5 taps, or 3 of both, not ({}) and ({}).",
                   name, tile.outputs, tile.taps);
}

/// x: [N, .., C] with the axis between these and so many more behind it.
Status check(std::string_view name, const lines::Tile& tile, std::int64_t axis, std::int64_t more,
             const Type& x) {
  RLX_TRY(check_tile(name, tile));
  if (x.dtype == DType::f32 && x.is_static() && axis >= 1 && axis + more + 1 < x.rank()) return {};
  return bad_input(
      "The operand of {} is [N, .., C] of f32, of known dims, with an axis ({}) between these, "
      "not {}.",
      name, axis, x.text());
}

/// The tiles of lines: what their points [outer, tiles, dilation, inner, points, channels] are made
/// of or become, places [outer, along, inner, channels].
struct Lines {
  lines::Tile tile;
  std::int64_t outer, along, inner, channels, tiles, dilation;
  std::int64_t before;  ///< zeros before the first place

  Lines(const lines::Tile& tile, std::int64_t axis, std::span<const std::int64_t> places,
        std::span<const std::int64_t> points, std::int64_t before)
      : tile(tile),
        outer(element_count(Dims(places.begin(), places.begin() + axis))),
        along(places[static_cast<std::size_t>(axis)]),
        inner(element_count(Dims(places.begin() + axis + 1, places.end() - 1))),
        channels(places.back()),
        tiles(points[static_cast<std::size_t>(axis)]),
        dilation(points[static_cast<std::size_t>(axis) + 1]),
        before(before) {}

  /// A tile's first place and point, channel by channel.
  struct At {
    std::int64_t o, t, q, n, c;
  };
  std::int64_t count() const { return outer * tiles * dilation * inner * channels; }
  At at(std::int64_t i) const {
    const auto next = [&](std::int64_t extent) {
      const std::int64_t index = i % extent;
      i /= extent;
      return index;
    };
    At at{};
    at.c = next(channels);
    at.n = next(inner);
    at.q = next(dilation);
    at.t = next(tiles);
    at.o = i;
    return at;
  }
  /// The element of place `i` of a tile; -1: outside.
  std::int64_t place(const At& at, std::int64_t i) const {
    const std::int64_t along_line = dilation * (tile.outputs * at.t + i) + at.q - before;
    if (along_line < 0 || along_line >= along) return -1;
    return ((at.o * along + along_line) * inner + at.n) * channels + at.c;
  }
  /// The element of point `p` of a tile.
  std::int64_t point(const At& at, std::int64_t p) const {
    const std::int64_t of_all = ((at.o * tiles + at.t) * dilation + at.q) * inner + at.n;
    return (of_all * tile.points() + p) * channels + at.c;
  }
};

double operations_of_tile(const lines::Tile& tile, bool of_image) {
  const Counted none{std::make_shared<int>(0)};
  const std::vector<Counted> line(static_cast<std::size_t>(tile.points()), none);
  const auto transforms = lines::transforms<Counted>(tile);
  of_image ? transforms.image(line) : transforms.outputs(line);
  return *none.count;
}

/// Tiles of all channels that these points are of.
double tiles_of(const Type& points, const lines::Tile& tile) {
  return static_cast<double>(points.elements()) / static_cast<double>(tile.points());
}

}  // namespace

template <>
struct Rules<op::LinePoints> {
  using A = op::LinePoints;
  static constexpr std::string_view name = "line_points";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{};
  static constexpr auto fields = std::tuple{
      field("axis", &A::axis),         field("outputs", &A::outputs), field("taps", &A::taps),
      field("dilation", &A::dilation), field("low", &A::low),         field("high", &A::high)};

  static Result<std::vector<Type>> infer(const A& a, const InferArgs& args) {
    const lines::Tile tile{a.outputs, a.taps};
    RLX_TRY(check(name, tile, a.axis, 0, args[0]));
    Dims dims = args[0].dims();
    const auto axis = static_cast<std::ptrdiff_t>(a.axis);
    std::int64_t& along = dims[static_cast<std::size_t>(a.axis)];
    constexpr std::int64_t most = std::int64_t{1} << 30;  // no sum is too large
    const auto fits = [](std::int64_t value, std::int64_t least) {
      return value >= least && value <= most;
    };
    const bool known = fits(a.low, 0) && fits(a.high, 0) && fits(a.dilation, 1);
    const std::int64_t rest = known ? along + a.low + a.high - a.dilation * (a.taps - 1) : 0;
    if (rest <= 0 || rest % (a.dilation * a.outputs) != 0)
      return bad_input(
          "The lines of {} of {}, with ({}) and ({}) zeros, are no whole tiles of ({}) and ({}) "
          "more, ({}) apart.",
          args[0].text(), name, a.low, a.high, a.outputs, a.taps - 1, a.dilation);
    along = rest / (a.dilation * a.outputs);
    dims.insert(dims.begin() + axis + 1, a.dilation);
    dims.back() *= tile.points();
    return std::vector<Type>{Type{DType::f32, Shape(dims.begin(), dims.end())}};
  }

  static Status eval(const A& a, const EvalArgs& args) {
    const Lines lines({a.outputs, a.taps}, a.axis, args.in(0).dims, args.out(0).dims, a.low);
    const auto* from = reinterpret_cast<const float*>(args.in(0).data);
    auto* to = reinterpret_cast<float*>(args.out(0).data);
    const auto transforms = lines::transforms<float>(lines.tile);
    for (std::int64_t i = 0; i < lines.count(); ++i) {
      const Lines::At at = lines.at(i);
      std::vector<float> line;
      for (std::int64_t p = 0; p < lines.tile.points(); ++p) {
        const std::int64_t place = lines.place(at, p);
        line.push_back(place < 0 ? 0.f : from[place]);
      }
      line = transforms.image(line);
      for (std::size_t p = 0; p < line.size(); ++p)
        to[lines.point(at, static_cast<std::int64_t>(p))] = line[p];
    }
    return {};
  }

  static OpCost cost(const A& a, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    const lines::Tile tile{a.outputs, a.taps};
    return {operations_of_tile(tile, true) * tiles_of(results[0], tile), bytes_of(inputs, results)};
  }

  static std::vector<Sample> samples() {
    return {
        {.op = A{1, 4, 3}, .inputs = {Type{DType::f32, {2, 10, 19}}}, .tolerance = 1e-4},
        {.op = A{2, 4, 4, 1, 1, 2}, .inputs = {Type{DType::f32, {1, 3, 8, 5}}}, .tolerance = 1e-4},
        {.op = A{1, 4, 3, 3, 5, 2}, .inputs = {Type{DType::f32, {2, 23, 19}}}, .tolerance = 1e-4},
        {.op = A{1, 3, 3, 1, 0, 2}, .inputs = {Type{DType::f32, {2, 6, 3, 4}}}, .tolerance = 1e-4}};
  }
};
RLX_OP(op::LinePoints, "conv")

template <>
struct Rules<op::LineOutputs> {
  using A = op::LineOutputs;
  static constexpr std::string_view name = "line_outputs";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{};
  static constexpr auto fields = std::tuple{field("axis", &A::axis), field("outputs", &A::outputs),
                                            field("taps", &A::taps), field("cut", &A::cut)};

  static Result<std::vector<Type>> infer(const A& a, const InferArgs& args) {
    const lines::Tile tile{a.outputs, a.taps};
    RLX_TRY(check(name, tile, a.axis, 1, args[0]));
    Dims dims = args[0].dims();
    const auto axis = static_cast<std::size_t>(a.axis);
    if (dims.back() % tile.points() != 0)
      return bad_input("The channels of {} of {} are not those of ({}) points.", args[0].text(),
                       name, tile.points());
    const std::int64_t apart = dims[axis + 1] * a.outputs;
    if (a.cut < 0 || a.cut >= apart || dims[axis] < 1)
      return bad_input("What {} cuts off is less than its tiles of ({}).", name, apart);
    dims[axis] = dims[axis] * apart - a.cut;
    dims.erase(dims.begin() + a.axis + 1);
    dims.back() /= tile.points();
    return std::vector<Type>{Type{DType::f32, Shape(dims.begin(), dims.end())}};
  }

  static Status eval(const A& a, const EvalArgs& args) {
    const Lines lines({a.outputs, a.taps}, a.axis, args.out(0).dims, args.in(0).dims, 0);
    const auto* from = reinterpret_cast<const float*>(args.in(0).data);
    auto* to = reinterpret_cast<float*>(args.out(0).data);
    const auto transforms = lines::transforms<float>(lines.tile);
    for (std::int64_t i = 0; i < lines.count(); ++i) {
      const Lines::At at = lines.at(i);
      std::vector<float> line;
      for (std::int64_t p = 0; p < lines.tile.points(); ++p)
        line.push_back(from[lines.point(at, p)]);
      line = transforms.outputs(line);
      for (std::size_t k = 0; k < line.size(); ++k) {
        const std::int64_t place = lines.place(at, static_cast<std::int64_t>(k));
        if (place >= 0) to[place] = line[k];
      }
    }
    return {};
  }

  static OpCost cost(const A& a, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    const lines::Tile tile{a.outputs, a.taps};
    return {operations_of_tile(tile, false) * tiles_of(*inputs[0], tile),
            bytes_of(inputs, results)};
  }

  static std::vector<Sample> samples() {
    return {
        {.op = A{1, 4, 3}, .inputs = {Type{DType::f32, {2, 3, 1, 6 * 19}}}, .tolerance = 1e-4},
        {.op = A{2, 4, 4, 3}, .inputs = {Type{DType::f32, {1, 3, 2, 1, 7 * 5}}}, .tolerance = 1e-4},
        {.op = A{1, 4, 3, 7}, .inputs = {Type{DType::f32, {2, 2, 3, 6 * 19}}}, .tolerance = 1e-4},
        {.op = A{1, 3, 3, 1},
         .inputs = {Type{DType::f32, {2, 2, 1, 3, 5 * 4}}},
         .tolerance = 1e-4}};
  }
};
RLX_OP(op::LineOutputs, "conv")

template <>
struct Rules<op::LineFilters> {
  using A = op::LineFilters;
  static constexpr std::string_view name = "line_filters";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{.composite = true};
  static constexpr auto fields = std::tuple{
      field("axis", &A::axis),     field("outputs", &A::outputs), field("taps", &A::taps),
      field("stride", &A::stride), field("delay", &A::delay),     field("phases", &A::phases)};

  /// [K, C, before.., along, behind..] and what becomes of the taps along.
  struct Filters {
    lines::Tile tile;
    std::int64_t columns, channels, before, along, behind;
    std::int64_t parts;

    Filters(const A& a, const Dims& w) : tile{a.outputs, a.taps}, columns(w[0]), channels(w[1]) {
      const auto axis = w.begin() + 2 + a.axis;
      before = element_count(Dims(w.begin() + 2, axis));
      along = *axis;
      behind = element_count(Dims(axis + 1, w.end()));
      const std::int64_t pixels = (along + a.delay + a.stride - 1) / a.stride;
      parts = (pixels + a.taps - 1) / a.taps;
    }
  };

  static Result<std::vector<Type>> infer(const A& a, const InferArgs& args) {
    const Type& w = args[0];
    RLX_TRY(check_tile(name, {a.outputs, a.taps}));
    if (w.dtype != DType::f32 || !w.is_static() || a.axis < 0 || a.axis + 2 >= w.rank())
      return bad_input(
          "The filters of {} are [K, C, ..] of f32, of known dims, with an axis ({}) behind these, "
          "not {}.",
          name, a.axis, w.text());
    constexpr std::int64_t most = std::int64_t{1} << 30;  // no sum is too large
    if (a.stride < 1 || a.stride > most || a.delay < 0 || a.delay >= a.stride || a.phases < 1 ||
        a.phases > a.stride)
      return bad_input(
          "The stride ({}) of {} is 1 or more, its delay ({}) less, and its phases ({}) as many or "
          "fewer.",
          a.stride, name, a.delay, a.phases);
    const Filters filters(a, w.dims());
    Shape shape(w.shape.begin() + 2, w.shape.end());
    shape[static_cast<std::size_t>(a.axis)] = Dim(filters.parts);
    shape.insert(shape.begin() + a.axis + 1, Dim(1));
    shape.push_back(Dim(a.phases * filters.channels));
    shape.push_back(Dim(filters.tile.points() * filters.columns));
    return std::vector<Type>{Type{DType::f32, shape}};
  }

  /// So many filters at once, for the compiler's vectors.
  static constexpr std::int64_t lanes = 8;
  using Lanes = std::array<double, lanes>;

  static Status eval(const A& a, const EvalArgs& args) {
    if (args.out(0).elements() == 0) return {};
    const Dims dims(args.in(0).dims.begin(), args.in(0).dims.end());
    const Filters f(a, dims);
    const auto* from = reinterpret_cast<const float*>(args.in(0).data);
    auto* to = reinterpret_cast<float*>(args.out(0).data);
    const auto rows = lines::filter_rows(f.tile);
    const std::int64_t filter = f.channels * f.before * f.along * f.behind;
    std::vector<Lanes> g(static_cast<std::size_t>(a.taps));
    for (std::int64_t i = 0; i < args.out(0).elements() / (f.tile.points() * f.columns); ++i) {
      const std::int64_t channel = i % (a.phases * f.channels), place = i / (a.phases * f.channels),
                         c = channel % f.channels, phase = channel / f.channels,
                         behind = place % f.behind, part = place / f.behind % f.parts,
                         before = place / f.behind / f.parts;
      float* line = to + i * f.tile.points() * f.columns;
      for (std::int64_t k = 0; k < f.columns; k += lanes) {
        const std::int64_t here = std::min(lanes, f.columns - k);
        for (std::int64_t tap = 0; tap < a.taps; ++tap) {
          const std::int64_t along = (part * a.taps + tap) * a.stride + phase - a.delay;
          Lanes& values = g[static_cast<std::size_t>(tap)];
          values.fill(0);
          if (along < 0 || along >= f.along) continue;
          const float* first =
              from + k * filter + ((c * f.before + before) * f.along + along) * f.behind + behind;
          for (std::int64_t lane = 0; lane < here; ++lane)
            values[static_cast<std::size_t>(lane)] = static_cast<double>(first[lane * filter]);
        }
        for (std::size_t point = 0; point < rows.size(); ++point) {
          Lanes sum{};
          for (std::size_t tap = 0; tap < g.size(); ++tap)
            for (std::size_t lane = 0; lane < lanes; ++lane)
              sum[lane] += rows[point][tap] * g[tap][lane];
          float* made = line + static_cast<std::int64_t>(point) * f.columns + k;
          for (std::int64_t lane = 0; lane < here; ++lane)
            made[lane] = static_cast<float>(sum[static_cast<std::size_t>(lane)]);
        }
      }
    }
    return {};
  }

  static Values body(const A& a, Graph& graph, std::span<const Value> inputs) {
    Value w = inputs[0];
    const Filters f(a, w.type().dims());
    const auto spatial = static_cast<std::int64_t>(w.type().rank()) - 2;
    // [K, C, ..] -> [.., C, K], whole pixels and parts of these along the axis
    Axes perm;
    for (std::int64_t axis = 0; axis < spatial; ++axis) perm.push_back(axis + 2);
    perm.push_back(1);
    perm.push_back(0);
    w = transpose(w, perm);
    Axes low(perm.size(), 0), high(perm.size(), 0);
    const auto along = static_cast<std::size_t>(a.axis);
    low[along] = a.delay;
    high[along] = f.parts * a.taps * a.stride - a.delay - f.along;
    w = pad(w, low, high);
    // Parts by pixels by taps of these, then the points before the columns.
    const Dims dims{f.before, f.parts, a.taps, a.phases, f.behind, f.channels, f.columns};
    Dims whole = dims;
    whole[3] = a.stride;
    w = slice(reshape(w, Shape(whole.begin(), whole.end())), Axes(dims.size(), 0),
              Axes(dims.begin(), dims.end()));
    std::vector<double> factors;
    for (const auto& row : lines::filter_rows(f.tile))
      factors.insert(factors.end(), row.begin(), row.end());
    const Value g = graph.constant(
        Tensor::of<double>({f.tile.points(), a.taps}, std::span<const double>(factors)));
    const Value points = matmul(g, cast(transpose(w, {0, 1, 4, 3, 5, 2, 6}), DType::f64));
    return {reshape(cast(points, DType::f32), result_shape(a, inputs[0].type()))};
  }

  static Shape result_shape(const A& a, const Type& w) {
    const Type* const operand = &w;
    return infer(a, InferArgs(std::span(&operand, 1))).value()[0].shape;
  }

  static OpCost cost(const A& a, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    return {2 * static_cast<double>(results[0].elements() * a.taps), bytes_of(inputs, results)};
  }

  static std::vector<Sample> samples() {
    return {
        {.op = A{0, 4, 2}, .inputs = {Type{DType::f32, {5, 3, 2}}}},
        {.op = A{0, 4, 4}, .inputs = {Type{DType::f32, {19, 3, 11}}}, .tolerance = 1e-5},
        {.op = A{1, 3, 3}, .inputs = {Type{DType::f32, {9, 2, 3, 6, 2}}}, .tolerance = 1e-5},
        {.op = A{1, 4, 3, 3, 2, 3}, .inputs = {Type{DType::f32, {4, 2, 2, 7}}}, .tolerance = 1e-5},
        {.op = A{0, 4, 2, 2, 0, 1}, .inputs = {Type{DType::f32, {4, 3, 3, 2}}}, .tolerance = 1e-5}};
  }
};
RLX_OP(op::LineFilters, "conv")

OpList line_point_ops() {
  static const OpInfo* const list[] = {&info_of<op::LineFilters>(), &info_of<op::LinePoints>(),
                                       &info_of<op::LineOutputs>()};
  return list;
}

}  // namespace rlx
