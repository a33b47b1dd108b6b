// Results whose dims the data tells: positions of what is not zero, compressed and unique elements,
// boxes that survive.
#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "base/element.hpp"
#include "graph/rules.hpp"
#include "ops/families.hpp"
#include "ops/order.hpp"
#include "ops/strided.hpp"

namespace rlx {
namespace {

using Types = Result<std::vector<Type>>;
using Tensors = Result<std::vector<Tensor>>;
constexpr OpTraits told_by_data{.data_dependent = true, .host_only = true};

Tensor positions_tensor(const std::vector<std::int64_t>& values) {
  return Tensor::of<std::int64_t>({static_cast<std::int64_t>(values.size())},
                                  std::span<const std::int64_t>(values));
}

/// Positions of what is not zero: `found` columns, one row for each axis.
template <class T>
Tensor positions_of(const TensorView& x) {
  const auto* const elements = x.as<T>();
  const auto stands = [elements](std::int64_t i) { return widen(elements[i]) != Wide<T>(0); };
  const std::int64_t size = x.elements();
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < size; ++i) found += stands(i) ? 1 : 0;
  Tensor result(i64, {x.rank(), found});
  if (found == 0 || x.rank() == 0) return result;
  auto* const to = reinterpret_cast<std::int64_t*>(result.mutable_data());
  const auto last = static_cast<std::size_t>(x.rank() - 1);
  const std::int64_t line = x.dims[last];
  // A line's places are written without a condition, which random data would mislead.
  std::vector<std::int64_t> places(static_cast<std::size_t>(line) + 1);
  Dims at(x.dims.size(), 0);
  std::int64_t column = 0;
  for (std::int64_t start = 0; start < size; start += line) {
    std::size_t held = 0;
    for (std::int64_t p = 0; p < line; ++p) {
      places[held] = p;
      held += stands(start + p) ? 1 : 0;
    }
    for (std::size_t d = 0; d < last; ++d)
      std::fill_n(to + static_cast<std::int64_t>(d) * found + column, held, at[d]);
    std::copy_n(places.begin(), held, to + static_cast<std::int64_t>(last) * found + column);
    column += static_cast<std::int64_t>(held);
    for (std::size_t d = last; d-- > 0;) {
      if (++at[d] < x.dims[d]) break;
      at[d] = 0;
    }
  }
  return result;
}

}  // namespace

template <>
struct Rules<op::NonZero> {
  static constexpr std::string_view name = "non_zero";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits = told_by_data;
  static constexpr auto fields = std::tuple{};
  static Types infer(const op::NonZero&, const InferArgs& args) {
    return std::vector<Type>{{i64, {args[0].rank(), Dim::unknown()}}};
  }
  static Tensors eval_dynamic(const op::NonZero&, std::span<const TensorView> inputs) {
    const TensorView& x = inputs[0];
    Tensor result = with_element_type(
        x.dtype, [&](auto element) { return positions_of<decltype(element)>(x); });
    return std::vector<Tensor>{std::move(result)};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::NonZero{}, .inputs = {Type{boolean, {3, 4}}}},
            {.op = op::NonZero{}, .inputs = {Type{i32, {2, 2, 3}}}, .low = -1, .high = 1}};
  }
};
RLX_OP(op::NonZero, "selection")

/// The lines along `axis` (elements of the flattened x without one) where the condition holds; it
/// may be shorter.
template <>
struct Rules<op::Compress> {
  static constexpr std::string_view name = "compress";
  static constexpr Arity arity{2, 2};
  static constexpr OpTraits traits = told_by_data;
  static constexpr auto fields = std::tuple{field("axis", &op::Compress::axis)};
  static Types infer(const op::Compress& a, const InferArgs& args) {
    const Type &x = args[0], &condition = args[1];
    if (condition.dtype != boolean || condition.rank() != 1)
      return bad_input("The op compress wants a list of bool as condition, not {}.",
                       condition.text());
    Shape shape{Dim::unknown()};
    Dim longest(1);
    if (a.axis) {
      RLX_ASSIGN(const std::int64_t axis, normalize_axis(*a.axis, x.rank(), x));
      shape = x.shape;
      longest = std::exchange(shape[static_cast<std::size_t>(axis)], Dim::unknown());
    } else {
      for (const Dim& dim : x.shape) longest = longest * dim;
    }
    if (longest.is_static() && condition.shape[0].is_static() &&
        condition.shape[0].value() > longest.value()) {
      return bad_input("The condition {} of compress is longer than what it chooses from ({}).",
                       condition.text(), longest.text());
    }
    return std::vector<Type>{{x.dtype, std::move(shape)}};
  }
  static Tensors eval_dynamic(const op::Compress& a, std::span<const TensorView> inputs) {
    const TensorView &x = inputs[0], &condition = inputs[1];
    std::vector<std::int64_t> kept;
    for (std::int64_t i = 0; i < condition.elements(); ++i) {
      if (condition.as<std::uint8_t>()[i]) kept.push_back(i);
    }
    const std::int64_t axis = a.axis.value_or(0) < 0 ? *a.axis + x.rank() : a.axis.value_or(0);
    Dims dims = a.axis ? Dims(x.dims.begin(), x.dims.end()) : Dims{x.elements()};
    const std::int64_t size =
        std::exchange(dims[static_cast<std::size_t>(axis)], static_cast<std::int64_t>(kept.size()));
    const std::int64_t rows = count_before(dims, axis);
    const std::size_t block =
        static_cast<std::size_t>(count_from(dims, axis + 1)) * size_of(x.dtype);
    Tensor result(x.dtype, std::move(dims));
    std::byte* to = result.mutable_data();
    for (std::int64_t row = 0; row < rows; ++row) {
      for (const std::int64_t i : kept) {
        std::memcpy(to, x.data + static_cast<std::size_t>(row * size + i) * block, block);
        to += block;
      }
    }
    return std::vector<Tensor>{std::move(result)};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::Compress{0}, .inputs = {Type{f32, {4, 3}}, Type{boolean, {4}}}},
            {.op = op::Compress{-1}, .inputs = {Type{i64, {2, 5}}, Type{boolean, {3}}}},
            {.op = op::Compress{}, .inputs = {Type{f16, {2, 3}}, Type{boolean, {6}}}}};
  }
};
RLX_OP(op::Compress, "selection")

namespace {

// Lines of x along an axis as comparable rows.
template <class T>
class Lines {
 public:
  Lines(const TensorView& x, std::int64_t axis)
      : elements_(x.as<T>()),
        size_(x.dims[static_cast<std::size_t>(axis)]),
        outer_(count_before(x.dims, axis)),
        inner_(count_from(x.dims, axis + 1)) {}

  std::int64_t count() const { return size_; }

  /// -1, 0, 1: lexicographic, NaN equal to NaN and above all.
  int compare(std::int64_t a, std::int64_t b) const {
    for (std::int64_t o = 0; o < outer_; ++o) {
      for (std::int64_t i = 0; i < inner_; ++i) {
        const Wide<T> x = widen(elements_[(o * size_ + a) * inner_ + i]),
                      y = widen(elements_[(o * size_ + b) * inner_ + i]);
        if constexpr (!is_complex_type<T>) {
          if (ordered_less(x, y)) return -1;
          if (ordered_less(y, x)) return 1;
        }
      }
    }
    return 0;
  }

 private:
  const T* elements_;
  std::int64_t size_, outer_, inner_;
};

// Groups of equal lines: where each first occurs, how often, and which group each line belongs to.
struct Groups {
  std::vector<std::int64_t> first, counts, of_line;
};

template <class T>
Groups group_lines(const Lines<T>& lines, bool sorted) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(lines.count()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return lines.compare(a, b) < 0; });
  Groups groups;
  groups.of_line.resize(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || lines.compare(order[i - 1], order[i]) != 0) {
      groups.first.push_back(order[i]);
      groups.counts.push_back(0);
    }
    ++groups.counts.back();
    groups.of_line[static_cast<std::size_t>(order[i])] =
        static_cast<std::int64_t>(groups.first.size()) - 1;
  }
  if (sorted) return groups;
  std::vector<std::int64_t> ranks(groups.first.size()), place(groups.first.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto at = [](std::vector<std::int64_t>& values, std::int64_t i) -> std::int64_t& {
    return values[static_cast<std::size_t>(i)];
  };
  std::sort(ranks.begin(), ranks.end(), [&](std::int64_t a, std::int64_t b) {
    return at(groups.first, a) < at(groups.first, b);
  });
  Groups by_occurrence;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    by_occurrence.first.push_back(at(groups.first, ranks[i]));
    by_occurrence.counts.push_back(at(groups.counts, ranks[i]));
    at(place, ranks[i]) = static_cast<std::int64_t>(i);
  }
  for (const std::int64_t group : groups.of_line) by_occurrence.of_line.push_back(at(place, group));
  return by_occurrence;
}

}  // namespace

template <>
struct Rules<op::Unique> {
  static constexpr std::string_view name = "unique";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits = told_by_data;
  static constexpr auto fields =
      std::tuple{field("axis", &op::Unique::axis), field("sorted", &op::Unique::sorted)};
  static Types infer(const op::Unique& a, const InferArgs& args) {
    const Type& x = args[0];
    RLX_TRY(require(!is_complex(x.dtype), name, "what has an order", x));
    Shape values{Dim::unknown()};
    Dim lines(1);
    if (a.axis) {
      RLX_ASSIGN(const std::int64_t axis, normalize_axis(*a.axis, x.rank(), x));
      values = x.shape;
      lines = std::exchange(values[static_cast<std::size_t>(axis)], Dim::unknown());
    } else {
      for (const Dim& dim : x.shape) lines = lines * dim;
    }
    const Type list{i64, {Dim::unknown()}};
    return std::vector<Type>{{x.dtype, std::move(values)}, list, {i64, {lines}}, list};
  }
  static Tensors eval_dynamic(const op::Unique& a, std::span<const TensorView> inputs) {
    const Dims flat{inputs[0].elements()};
    const TensorView x = a.axis ? inputs[0] : TensorView(inputs[0].dtype, flat, inputs[0].data);
    const std::int64_t axis = a.axis.value_or(0) < 0 ? *a.axis + x.rank() : a.axis.value_or(0);
    const Groups groups = with_element_type(x.dtype, [&](auto element) {
      return group_lines(Lines<decltype(element)>(x, axis), a.sorted);
    });
    Dims dims(x.dims.begin(), x.dims.end());
    const std::int64_t size = std::exchange(dims[static_cast<std::size_t>(axis)],
                                            static_cast<std::int64_t>(groups.first.size()));
    const std::int64_t rows = count_before(dims, axis);
    const std::size_t block =
        static_cast<std::size_t>(count_from(dims, axis + 1)) * size_of(x.dtype);
    Tensor values(x.dtype, std::move(dims));
    std::byte* to = values.mutable_data();
    for (std::int64_t row = 0; row < rows; ++row) {
      for (const std::int64_t line : groups.first) {
        std::memcpy(to, x.data + static_cast<std::size_t>(row * size + line) * block, block);
        to += block;
      }
    }
    return std::vector<Tensor>{std::move(values), positions_tensor(groups.first),
                               positions_tensor(groups.of_line), positions_tensor(groups.counts)};
  }
  static std::vector<Sample> samples() {
    return {
        {.op = op::Unique{}, .inputs = {Type{i64, {3, 5}}}, .low = 0, .high = 4},
        {.op = op::Unique{0, true}, .inputs = {Type{i32, {6, 2}}}, .low = 0, .high = 1},
        {.op = op::Unique{std::nullopt, false}, .inputs = {Type{u8, {9}}}, .low = 0, .high = 3}};
  }
};
RLX_OP(op::Unique, "selection")

namespace {

struct Box {
  float y_low = 0, x_low = 0, y_high = 0, x_high = 0;
  float area = (y_high - y_low) * (x_high - x_low);
};

// Corners in any order, or (x, y) of the centre with width and height.
Box read_box(const float* values, bool center_point) {
  if (center_point) {
    const float half_width = values[2] / 2, half_height = values[3] / 2;
    return {values[1] - half_height, values[0] - half_width, values[1] + half_height,
            values[0] + half_width};
  }
  return {std::min(values[0], values[2]), std::min(values[1], values[3]),
          std::max(values[0], values[2]), std::max(values[1], values[3])};
}

// Boxes by coordinate, four side by side. What is left of the last four has no area.
class BoxBlocks {
 public:
  void push(const Box& box) {
    if (count_ % lanes == 0) blocks_.emplace_back();
    Block& block = blocks_.back();
    const int lane = count_++ % lanes;
    block.y_low[lane] = box.y_low;
    block.x_low[lane] = box.x_low;
    block.y_high[lane] = box.y_high;
    block.x_high[lane] = box.x_high;
    block.area[lane] = box.area;
  }
  // Whether intersection over union with any of them exceeds the threshold.
  bool overlap(const Box& box, float threshold) const {
    return box.area > 0 && std::any_of(blocks_.begin(), blocks_.end(), [&](const Block& block) {
             const Four height = least(box.y_high, block.y_high) - most(box.y_low, block.y_low);
             const Four width = least(box.x_high, block.x_high) - most(box.x_low, block.x_low);
             const auto meets = (height > 0) & (width > 0) & (block.area > 0);
             if (!is_any(meets)) return false;
             const Four intersection = height * width;
             const Four ratio = intersection / (box.area + block.area - intersection);
             return is_any(meets & (ratio > threshold));
           });
  }

 private:
  static constexpr int lanes = 4;
  typedef float Four __attribute__((vector_size(lanes * sizeof(float))));
  typedef std::int32_t Truths __attribute__((vector_size(sizeof(Four))));
  typedef std::int64_t Halves __attribute__((vector_size(sizeof(Four))));
  struct Block {
    Four y_low = {}, x_low = {}, y_high = {}, x_high = {}, area = {};
  };
  static bool is_any(Truths truths) {
    const auto halves = std::bit_cast<Halves>(truths);
    return (halves[0] | halves[1]) != 0;
  }
  static Four least(float a, Four b) {
    const Four all = {a, a, a, a};
    return b < all ? b : all;
  }
  static Four most(float a, Four b) {
    const Four all = {a, a, a, a};
    return all < b ? b : all;
  }
  std::vector<Block> blocks_;
  int count_ = 0;
};

struct NmsLimits {
  std::int64_t boxes_per_class = 0;
  float iou = 0;
  std::optional<float> score;
};

// The boxes of one class that are kept: the best first, each unless it overlaps one kept before.
std::vector<std::int64_t> surviving_boxes(std::span<const Box> boxes, const float* scores,
                                          const NmsLimits& limits) {
  struct Candidate {
    float score;
    std::int64_t at;
  };
  std::vector<Candidate> order;
  std::vector<std::int64_t> kept;
  BoxBlocks taken;
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    if (!limits.score || scores[i] > *limits.score)
      order.push_back({scores[i], static_cast<std::int64_t>(i)});
  }
  std::sort(order.begin(), order.end(), [](const Candidate& a, const Candidate& b) {
    if (ordered_less(b.score, a.score)) return true;
    return !ordered_less(a.score, b.score) && a.at < b.at;
  });
  for (const Candidate& candidate : order) {
    if (static_cast<std::int64_t>(kept.size()) >= limits.boxes_per_class) break;
    const Box& box = boxes[static_cast<std::size_t>(candidate.at)];
    if (taken.overlap(box, limits.iou)) continue;
    kept.push_back(candidate.at);
    taken.push(box);
  }
  return kept;
}

}  // namespace

/// ONNX's: a left-out limit of boxes keeps none, a left-out IoU threshold is 0, a left-out score
/// threshold takes all.
template <>
struct Rules<op::NonMaxSuppression> {
  static constexpr std::string_view name = "non_max_suppression";
  static constexpr Arity arity{2, 5};
  static constexpr OpTraits traits = told_by_data;
  static constexpr auto fields =
      std::tuple{field("center_point_box", &op::NonMaxSuppression::center_point_box)};
  static Types infer(const op::NonMaxSuppression&, const InferArgs& args) {
    const Type &boxes = args[0], &scores = args[1];
    const bool fit = boxes.dtype == f32 && scores.dtype == f32 && boxes.rank() == 3 &&
                     scores.rank() == 3 && compatible(boxes.shape[2], Dim(4)) &&
                     compatible(boxes.shape[0], scores.shape[0]) &&
                     compatible(boxes.shape[1], scores.shape[2]);
    if (!fit)
      return bad_input(
          "The op {} wants boxes f32[b,n,4] and scores f32[b,c,n] and was given {} and {}.", name,
          boxes.text(), scores.text());
    for (int i = 2; i < args.count(); ++i) {
      if (!args.has(i)) continue;
      const bool single =
          args[i].rank() == 0 || (args[i].rank() == 1 && compatible(args[i].shape[0], Dim(1)));
      if (!single || args[i].dtype != (i == 2 ? i64 : f32))
        return bad_input("The op {} wants its limits as one i64 and two f32 and was given {}.",
                         name, args[i].text());
    }
    return std::vector<Type>{{i64, {Dim::unknown(), 3}}};
  }
  static Tensors eval_dynamic(const op::NonMaxSuppression& a, std::span<const TensorView> inputs) {
    const TensorView &boxes = inputs[0], &scores = inputs[1];
    const auto has = [&](std::size_t i) { return i < inputs.size() && inputs[i].data; };
    NmsLimits limits;
    if (has(2)) limits.boxes_per_class = *inputs[2].as<std::int64_t>();
    if (has(3)) limits.iou = *inputs[3].as<float>();
    if (has(4)) limits.score = *inputs[4].as<float>();
    const std::int64_t batches = boxes.dims[0], count = boxes.dims[1], classes = scores.dims[1];
    std::vector<std::int64_t> rows;
    std::vector<Box> batch(static_cast<std::size_t>(count));
    for (std::int64_t b = 0; b < batches; ++b) {
      for (std::int64_t i = 0; i < count; ++i)
        batch[static_cast<std::size_t>(i)] =
            read_box(boxes.as<float>() + (b * count + i) * 4, a.center_point_box);
      for (std::int64_t c = 0; c < classes; ++c) {
        for (const std::int64_t box :
             surviving_boxes(batch, scores.as<float>() + (b * classes + c) * count, limits)) {
          rows.insert(rows.end(), {b, c, box});
        }
      }
    }
    const auto total = static_cast<std::int64_t>(rows.size() / 3);
    return std::vector<Tensor>{
        Tensor::of<std::int64_t>({total, 3}, std::span<const std::int64_t>(rows))};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::NonMaxSuppression{},
             .inputs = {Type{f32, {2, 6, 4}}, Type{f32, {2, 3, 6}}, Type{i64, {}}, Type{f32, {}}},
             .values = {std::nullopt, std::nullopt, Tensor::scalar<std::int64_t>(3),
                        Tensor::scalar(0.3f)}},
            {.op = op::NonMaxSuppression{true},
             .inputs = {Type{f32, {1, 5, 4}}, Type{f32, {1, 1, 5}}, Type{i64, {1}}, Type{},
                        Type{f32, {1}}},
             .values = {std::nullopt, std::nullopt, Tensor::of<std::int64_t>({1}, {9}),
                        std::nullopt, Tensor::of<float>({1}, {0.1f})},
             .absent = {3}}};
  }
};
RLX_OP(op::NonMaxSuppression, "selection")

OpList selection_ops() {
  static const OpInfo* const list[] = {&info_of<op::NonZero>(), &info_of<op::Compress>(),
                                       &info_of<op::Unique>(), &info_of<op::NonMaxSuppression>()};
  return list;
}

}  // namespace rlx
