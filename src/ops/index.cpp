// Gathers: elements picked by indices. Negative indices count from the end; others that lie outside
// are errors.
#include "ops/index.hpp"

#include <cstring>
#include <numeric>

#include "graph/rules.hpp"
#include "ops/families.hpp"
#include "ops/strided.hpp"

namespace rlx {

using Types = Result<std::vector<Type>>;

Result<std::vector<std::int64_t>> block_offsets(const TensorView& x, const TensorView& indices,
                                                std::int64_t batch_dims) {
  const std::int64_t depth = indices.dims.back();
  const std::int64_t batches = count_before(x.dims, batch_dims);
  const Dims strides = row_major_strides(x.dims);
  const std::int64_t blocks = element_count(indices.dims.first(indices.dims.size() - 1));
  const std::int64_t blocks_of_batch = batches == 0 ? 0 : blocks / batches;
  const std::int64_t batch_stride = count_from(x.dims, batch_dims);
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(blocks));
  for (std::int64_t block = 0; block < blocks; ++block) {
    std::int64_t offset = block / blocks_of_batch * batch_stride;
    for (std::int64_t k = 0; k < depth; ++k) {
      const auto axis = static_cast<std::size_t>(batch_dims + k);
      const std::int64_t wanted = read_index(indices, block * depth + k),
                         index = index_inside(wanted, x.dims[axis]);
      if (index < 0) return index_outside(wanted, batch_dims + k, x);
      offset += index * strides[axis];
    }
    offsets[static_cast<std::size_t>(block)] = offset;
  }
  return offsets;
}

Result<std::vector<std::int64_t>> element_offsets(const TensorView& x, const TensorView& indices,
                                                  std::int64_t axis) {
  const std::size_t rank = x.dims.size(), along = static_cast<std::size_t>(axis);
  Dims strides = row_major_strides(x.dims), position(rank, 0);
  const std::int64_t stride = strides[along], size = x.dims[along];
  strides[along] = 0;
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(indices.elements()));
  std::int64_t base = 0;
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    const std::int64_t wanted = read_index(indices, static_cast<std::int64_t>(i)),
                       index = index_inside(wanted, size);
    if (index < 0) return index_outside(wanted, axis, x);
    offsets[i] = base + index * stride;
    for (std::size_t d = rank; d-- > 0;) {
      base += strides[d];
      if (++position[d] < indices.dims[d]) break;
      base -= strides[d] * indices.dims[d];
      position[d] = 0;
    }
  }
  return offsets;
}

Status require_element_indices(std::string_view op, const Type& x, const Type& indices,
                               std::int64_t axis) {
  RLX_TRY(require(is_integer(indices.dtype), op, "integer indices", indices));
  if (indices.rank() != x.rank()) {
    return bad_input("The op {} wants indices of the rank of {} and was given {}.", op, x.text(),
                     indices.text());
  }
  for (std::size_t i = 0; i < x.shape.size(); ++i) {
    if (static_cast<std::int64_t>(i) == axis || !x.shape[i].is_static() ||
        !indices.shape[i].is_static())
      continue;
    if (indices.shape[i].value() > x.shape[i].value()) {
      return bad_input("The indices {} of {} are larger than {} along axis ({}).", indices.text(),
                       op, x.text(), i);
    }
  }
  return {};
}

Result<std::int64_t> index_depth(std::string_view op, const Type& x, const Type& indices,
                                 std::int64_t batch_dims) {
  RLX_TRY(require(is_integer(indices.dtype), op, "integer indices", indices));
  if (indices.rank() == 0 || batch_dims < 0 || batch_dims >= indices.rank() ||
      batch_dims > x.rank()) {
    return bad_input("The op {} cannot read indices {} into {} after ({}) batch dims.", op,
                     indices.text(), x.text(), batch_dims);
  }
  const Dim& depth = indices.shape.back();
  if (!depth.is_static())
    return unsupported("The op {} wants indices whose last dim is known, not {}.", op,
                       indices.text());
  if (batch_dims + depth.value() > x.rank()) {
    return bad_input("The indices {} name more axes than {} has after ({}) batch dims.",
                     indices.text(), x.text(), batch_dims);
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(batch_dims); ++i) {
    if (compatible(x.shape[i], indices.shape[i])) continue;
    return bad_input("The batch dims of indices {} and {} differ in axis ({}).", indices.text(),
                     x.text(), i);
  }
  return depth.value();
}

namespace {

std::size_t block_bytes(const TensorView& x, std::int64_t first_inner_axis) {
  return static_cast<std::size_t>(count_from(x.dims, first_inner_axis)) * size_of(x.dtype);
}

// The samples' indices: they must lie inside, so noise will not do.
std::optional<Tensor> indices(Dims dims, std::initializer_list<std::int64_t> values) {
  return Tensor::of<std::int64_t>(std::move(dims), values);
}

}  // namespace

template <>
struct Rules<op::Gather> {
  static constexpr std::string_view name = "gather";
  static constexpr Arity arity{2, 2};
  static constexpr OpTraits traits{};
  static constexpr auto fields = std::tuple{field("axis", &op::Gather::axis)};
  static Types infer(const op::Gather& a, const InferArgs& args) {
    const Type &x = args[0], &picked = args[1];
    RLX_TRY(require(is_integer(picked.dtype), name, "integer indices", picked));
    RLX_ASSIGN(const std::int64_t axis, normalize_axis(a.axis, x.rank(), x));
    Shape shape(x.shape.begin(), x.shape.begin() + axis);
    shape.insert(shape.end(), picked.shape.begin(), picked.shape.end());
    shape.insert(shape.end(), x.shape.begin() + axis + 1, x.shape.end());
    return std::vector<Type>{{x.dtype, std::move(shape)}};
  }
  static Status eval(const op::Gather& a, const EvalArgs& args) {
    const TensorView &x = args.in(0), &picked = args.in(1);
    const std::int64_t axis = a.axis < 0 ? a.axis + x.rank() : a.axis;
    const std::int64_t size = x.dims[static_cast<std::size_t>(axis)], count = picked.elements(),
                       rows = count_before(x.dims, axis);
    const std::size_t block = block_bytes(x, axis + 1);
    std::byte* to = args.out(0).data;
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::byte* from = x.data + static_cast<std::size_t>(row * size) * block;
      for (std::int64_t i = 0; i < count; ++i, to += block) {
        const std::int64_t wanted = read_index(picked, i), index = index_inside(wanted, size);
        if (index < 0) return index_outside(wanted, axis, x);
        if (block > 0) std::memcpy(to, from + static_cast<std::size_t>(index) * block, block);
      }
    }
    return {};
  }
  static OpCost cost(const op::Gather&, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    // Only the rows that are picked are read.
    return {0, static_cast<double>(2 * results[0].bytes() + inputs[1]->bytes())};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::Gather{0},
             .inputs = {Type{f32, {5, 7}}, Type{i64, {2, 2}}},
             .values = {std::nullopt, indices({2, 2}, {4, 0, -1, 2})}},
            {.op = op::Gather{1},
             .inputs = {Type{f16, {3, 4, 2}}, Type{i64, {3}}},
             .values = {std::nullopt, indices({3}, {3, 3, -4})}},
            {.op = op::Gather{-1},
             .inputs = {Type{i64, {3, 4}}, Type{i64, {}}},
             .values = {std::nullopt, indices({}, {2})}},
            {.op = op::Gather{0},
             .inputs = {Type{boolean, {6}}, Type{i32, {2}}},
             .values = {std::nullopt, Tensor::of<std::int32_t>({2}, {5, 1})}}};
  }
};
RLX_OP(op::Gather, "index")

/// result[i, j] = x[indices[i, j], j] for axis 0, and so on.
template <>
struct Rules<op::GatherElements> {
  static constexpr std::string_view name = "gather_elements";
  static constexpr Arity arity{2, 2};
  static constexpr OpTraits traits{};
  static constexpr auto fields = std::tuple{field("axis", &op::GatherElements::axis)};
  static Types infer(const op::GatherElements& a, const InferArgs& args) {
    RLX_ASSIGN(const std::int64_t axis, normalize_axis(a.axis, args[0].rank(), args[0]));
    RLX_TRY(require_element_indices(name, args[0], args[1], axis));
    return std::vector<Type>{{args[0].dtype, args[1].shape}};
  }
  static Status eval(const op::GatherElements& a, const EvalArgs& args) {
    const TensorView& x = args.in(0);
    RLX_ASSIGN(const std::vector<std::int64_t> offsets,
               element_offsets(x, args.in(1), a.axis < 0 ? a.axis + x.rank() : a.axis));
    const std::size_t size = size_of(x.dtype);
    std::byte* to = args.out(0).data;
    for (const std::int64_t offset : offsets) {
      std::memcpy(to, x.data + static_cast<std::size_t>(offset) * size, size);
      to += size;
    }
    return {};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::GatherElements{1},
             .inputs = {Type{f32, {3, 4}}, Type{i64, {2, 3}}},
             .values = {std::nullopt, indices({2, 3}, {0, 3, -1, 2, 2, -4})}},
            {.op = op::GatherElements{0},
             .inputs = {Type{u8, {3, 2}}, Type{i64, {5, 1}}},
             .values = {std::nullopt, indices({5, 1}, {0, 1, 2, 1, 0})}}};
  }
};
RLX_OP(op::GatherElements, "index")

/// Each row of indices names a block of x: result[b..., i...] = x[b..., indices[b..., i..., :]].
template <>
struct Rules<op::GatherNd> {
  static constexpr std::string_view name = "gather_nd";
  static constexpr Arity arity{2, 2};
  static constexpr OpTraits traits{};
  static constexpr auto fields = std::tuple{field("batch_dims", &op::GatherNd::batch_dims)};
  static Types infer(const op::GatherNd& a, const InferArgs& args) {
    RLX_ASSIGN(const std::int64_t depth, index_depth(name, args[0], args[1], a.batch_dims));
    Shape shape(args[1].shape.begin(), args[1].shape.end() - 1);
    shape.insert(shape.end(), args[0].shape.begin() + a.batch_dims + depth, args[0].shape.end());
    return std::vector<Type>{{args[0].dtype, std::move(shape)}};
  }
  static Status eval(const op::GatherNd& a, const EvalArgs& args) {
    const TensorView &x = args.in(0), &picked = args.in(1);
    if (args.out(0).elements() == 0) return {};
    RLX_ASSIGN(const std::vector<std::int64_t> offsets, block_offsets(x, picked, a.batch_dims));
    const std::size_t block = block_bytes(x, a.batch_dims + picked.dims.back());
    std::byte* to = args.out(0).data;
    for (const std::int64_t offset : offsets) {
      std::memcpy(to, x.data + static_cast<std::size_t>(offset) * size_of(x.dtype), block);
      to += block;
    }
    return {};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::GatherNd{},
             .inputs = {Type{f32, {3, 4, 5}}, Type{i64, {2, 2}}},
             .values = {std::nullopt, indices({2, 2}, {0, 3, -1, 1})}},
            {.op = op::GatherNd{1},
             .inputs = {Type{i32, {2, 3, 2}}, Type{i64, {2, 1}}},
             .values = {std::nullopt, indices({2, 1}, {2, 0})}},
            {.op = op::GatherNd{},
             .inputs = {Type{f64, {3, 2}}, Type{i64, {1, 2, 2}}},
             .values = {std::nullopt, indices({1, 2, 2}, {0, 1, 2, 0})}}};
  }
};
RLX_OP(op::GatherNd, "index")

namespace {

Tensor positions_below(std::int64_t count) {
  std::vector<std::int64_t> positions(static_cast<std::size_t>(count));
  std::iota(positions.begin(), positions.end(), 0);
  return Tensor::of<std::int64_t>({count}, std::span<const std::int64_t>(positions));
}

}  // namespace

/// Indices outside [-depth, depth) give a line of the off value alone.
template <>
struct Rules<op::OneHot> {
  static constexpr std::string_view name = "one_hot";
  static constexpr Arity arity{2, 2};
  static constexpr OpTraits traits{.composite = true};
  static constexpr auto fields =
      std::tuple{field("axis", &op::OneHot::axis), field("depth", &op::OneHot::depth)};
  static Types infer(const op::OneHot& a, const InferArgs& args) {
    const Type &hot = args[0], &values = args[1];
    RLX_TRY(require(is_integer(hot.dtype), name, "integer indices", hot));
    if (values.rank() != 1 || !compatible(values.shape[0], Dim(2)))
      return bad_input("The op one_hot wants an off and an on value, not {}.", values.text());
    if (a.depth < 0) return bad_input("The depth ({}) of one_hot is negative.", a.depth);
    RLX_ASSIGN(const std::int64_t axis, normalize_axis(a.axis, hot.rank() + 1, hot));
    Shape shape = hot.shape;
    shape.insert(shape.begin() + axis, Dim(a.depth));
    return std::vector<Type>{{values.dtype, std::move(shape)}};
  }
  static Status eval(const op::OneHot& a, const EvalArgs& args) {
    const TensorView &hot = args.in(0), &values = args.in(1);
    const MutableTensorView& out = args.out(0);
    const std::size_t size = size_of(out.dtype);
    fill_elements(size, out.data, out.elements(), values.data);
    const std::int64_t inner = count_from(hot.dims, a.axis < 0 ? a.axis + hot.rank() + 1 : a.axis);
    for (std::int64_t i = 0; i < hot.elements(); ++i) {
      const std::int64_t index = index_inside(read_index(hot, i), a.depth);
      if (index < 0) continue;
      const std::int64_t at = (i / inner * a.depth + index) * inner + i % inner;
      std::memcpy(out.data + static_cast<std::size_t>(at) * size, values.data + size, size);
    }
    return {};
  }
  // select(index == position or index + depth == position, on, off)
  static Values body(const op::OneHot& a, Graph& graph, std::span<const Value> inputs) {
    const Value& values = inputs[1];
    const std::int64_t rank = inputs[0].rank() + 1, axis = a.axis < 0 ? a.axis + rank : a.axis;
    const Value hot = cast(unsqueeze(inputs[0], {axis}), i64);
    Shape line(static_cast<std::size_t>(rank), Dim(1));
    line[static_cast<std::size_t>(axis)] = Dim(a.depth);
    const Value positions = reshape(graph.constant(positions_below(a.depth)), std::move(line));
    const Value depth = graph.constant(i64, static_cast<double>(a.depth));
    const Value is_hot = logical_or(equal(hot, positions), equal(hot + depth, positions));
    const auto value = [&](std::int64_t i) { return reshape(slice(values, {i}, {i + 1}), {}); };
    return {select(is_hot, value(1), value(0))};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::OneHot{-1, 4},
             .inputs = {Type{i64, {5}}, Type{f32, {2}}},
             .values = {indices({5}, {0, 3, -1, 4, -5})}},
            {.op = op::OneHot{0, 3},
             .inputs = {Type{i64, {2, 2}}, Type{i32, {2}}},
             .values = {indices({2, 2}, {0, 1, 2, 9})}},
            {.op = op::OneHot{1, 2}, .inputs = {Type{u8, {2, 3}}, Type{boolean, {2}}}}};
  }
};
RLX_OP(op::OneHot, "index")

OpList index_ops() {
  static const OpInfo* const list[] = {&info_of<op::Gather>(), &info_of<op::GatherElements>(),
                                       &info_of<op::GatherNd>(), &info_of<op::OneHot>()};
  return list;
}

}  // namespace rlx
