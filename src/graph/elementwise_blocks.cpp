// Elementwise expressions on f32 and small integers, a block of elements at a time: weights are
// prepared by them, millions of elements each. One loop for each op, which the compiler vectorises.
#include "graph/elementwise_blocks.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "base/element.hpp"

namespace rlx {
namespace {

constexpr std::int64_t block_size = 512;

/// The values of one node: floats (halves that are loaded, too), or integers in 32 bits.
struct Lanes {
  alignas(64) std::array<float, block_size> numbers;
  alignas(64) std::array<std::int32_t, block_size> integers;
};

bool is_known(DType dtype) {
  return dtype == DType::f32 || dtype == DType::i8 || dtype == DType::u8 || dtype == DType::i16 ||
         dtype == DType::i32;
}

bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

bool is_known(std::span<const ScalarNode> nodes, const ScalarNode& node) {
  if (node.op == ScalarOp::load && is_half(node.dtype)) return true;
  if (!is_known(node.dtype)) return false;
  switch (node.op) {
    case ScalarOp::constant:
    case ScalarOp::load:
    case ScalarOp::cast: return true;
    case ScalarOp::add:
    case ScalarOp::sub:
    case ScalarOp::mul: return true;
    case ScalarOp::neg:
    case ScalarOp::abs:
    case ScalarOp::round:
    case ScalarOp::div:
    case ScalarOp::min:
    case ScalarOp::max: return nodes[static_cast<std::size_t>(node.a)].dtype == DType::f32;
    default: return false;
  }
}

/// The points of the result as lines along its last dim, neighbouring dims merged where all
/// operands allow it.
class Lines {
 public:
  Lines(std::span<const TensorView> operands, std::span<const std::int64_t> dims) {
    for (const TensorView& operand : operands) {
      if (operand.data) strides_.push_back(strides_of(operand.dims, dims));
    }
    merged_.resize(strides_.size());
    for (std::size_t i = dims.size(); i-- > 0;) {
      if (dims[i] != 1) add_axis(i, dims[i]);
    }
    if (extents_.empty()) extents_ = {1};
    for (auto& merged : merged_) merged.resize(extents_.size(), 0);
  }

  std::int64_t length() const { return extents_[0]; }
  std::int64_t stride(std::size_t operand) const { return merged_[operand][0]; }

  /// Calls visit(offsets) for every line, with an offset for each operand.
  template <class Visit>
  void for_each(const Visit& visit) const {
    std::vector<std::int64_t> index(extents_.size(), 0), offsets(merged_.size(), 0);
    for (bool more = true; more;) {
      visit(offsets);
      more = false;
      for (std::size_t axis = 1; axis < extents_.size() && !more; ++axis) {
        more = ++index[axis] < extents_[axis];
        for (std::size_t k = 0; k < offsets.size(); ++k)
          offsets[k] += merged_[k][axis] * (more ? 1 : 1 - extents_[axis]);
        if (!more) index[axis] = 0;
      }
    }
  }

 private:
  using Numbers = std::vector<std::int64_t>;

  static Numbers strides_of(std::span<const std::int64_t> operand,
                            std::span<const std::int64_t> result) {
    Numbers strides(result.size(), 0);
    std::int64_t stride = 1;
    for (std::size_t i = operand.size(); i-- > 0;) {
      strides[i + result.size() - operand.size()] = operand[i] == 1 ? 0 : stride;
      stride *= operand[i];
    }
    return strides;
  }

  void add_axis(std::size_t axis, std::int64_t extent) {
    bool merges = !extents_.empty();
    for (std::size_t k = 0; merges && k < strides_.size(); ++k)
      merges = strides_[k][axis] == merged_[k].back() * extents_.back();
    if (merges) {
      extents_.back() *= extent;
      return;
    }
    extents_.push_back(extent);
    for (std::size_t k = 0; k < strides_.size(); ++k) merged_[k].push_back(strides_[k][axis]);
  }

  Numbers extents_;                        ///< from the innermost
  std::vector<Numbers> strides_, merged_;  ///< by operand
};

template <class From, class To>
void load(const std::byte* data, std::int64_t offset, std::int64_t stride, std::int64_t count,
          To* to) {
  const From* from = reinterpret_cast<const From*>(data) + offset;
  if (stride == 1) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(widen(from[i]));
  } else {
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(widen(from[i * stride]));
  }
}

void load(DType dtype, const std::byte* data, std::int64_t offset, std::int64_t stride,
          std::int64_t count, Lanes& to) {
  switch (dtype) {
    case DType::f32: return load<float>(data, offset, stride, count, to.numbers.data());
    case DType::f16: return load<Half>(data, offset, stride, count, to.numbers.data());
    case DType::bf16: return load<BFloat16>(data, offset, stride, count, to.numbers.data());
    case DType::i8: return load<std::int8_t>(data, offset, stride, count, to.integers.data());
    case DType::u8: return load<std::uint8_t>(data, offset, stride, count, to.integers.data());
    case DType::i16: return load<std::int16_t>(data, offset, stride, count, to.integers.data());
    default: return load<std::int32_t>(data, offset, stride, count, to.integers.data());
  }
}

template <class To, class From>
void store(const From* from, std::int64_t offset, std::int64_t count, std::byte* data) {
  To* to = reinterpret_cast<To*>(data) + offset;
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(widen(from[i]));
}

void store(DType dtype, const Lanes& from, std::int64_t offset, std::int64_t count,
           std::byte* data) {
  switch (dtype) {
    case DType::f32: return store<float>(from.numbers.data(), offset, count, data);
    case DType::i8: return store<std::int8_t>(from.integers.data(), offset, count, data);
    case DType::u8: return store<std::uint8_t>(from.integers.data(), offset, count, data);
    case DType::i16: return store<std::int16_t>(from.integers.data(), offset, count, data);
    default: return store<std::int32_t>(from.integers.data(), offset, count, data);
  }
}

/// Half to even: adding 2^23 leaves no bits behind the point.
float rounded(float x) {
  constexpr float whole = 8388608;
  const float magnitude = std::fabs(x);
  const float near = std::copysign((magnitude + whole) - whole, x);
  return magnitude < whole ? near : x;
}

template <class Function>
void map(const float* a, float* to, std::int64_t count, const Function& function) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = function(a[i]);
}

template <class Function>
void map(const float* a, const float* b, float* to, std::int64_t count, const Function& function) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = function(a[i], b[i]);
}

/// Truncates and saturates; NaN gives 0.
template <class To>
void to_integers(const float* from, std::int64_t count, std::int32_t* to) {
  constexpr auto low = static_cast<float>(std::numeric_limits<To>::min());
  constexpr auto high = static_cast<float>(std::numeric_limits<To>::max());  // of i32: one more
  for (std::int64_t i = 0; i < count; ++i) {
    const float x = from[i];
    const float above = x > low ? x : low;  // of NaN, too, which becomes 0 below
    const auto inside = static_cast<std::int32_t>(above < high ? above : 0);
    const std::int32_t value = above < high ? inside : std::numeric_limits<To>::max();
    to[i] = x == x ? value : 0;
  }
}

template <class To>
void wrap(const std::int32_t* from, std::int64_t count, std::int32_t* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(widen(from[i]));
}

/// What the dtype holds of the integers, modulo its range.
void wrap(DType dtype, const std::int32_t* from, std::int64_t count, std::int32_t* to) {
  switch (dtype) {
    case DType::i8: return wrap<std::int8_t>(from, count, to);
    case DType::u8: return wrap<std::uint8_t>(from, count, to);
    case DType::i16: return wrap<std::int16_t>(from, count, to);
    default: return wrap<std::int32_t>(from, count, to);
  }
}

void to_integers(DType dtype, const float* from, std::int64_t count, std::int32_t* to) {
  switch (dtype) {
    case DType::i8: return to_integers<std::int8_t>(from, count, to);
    case DType::u8: return to_integers<std::uint8_t>(from, count, to);
    case DType::i16: return to_integers<std::int16_t>(from, count, to);
    default: return to_integers<std::int32_t>(from, count, to);
  }
}

void cast(DType from, DType to, const Lanes& a, std::int64_t count, Lanes& result) {
  const float* numbers = a.numbers.data();
  const std::int32_t* integers = a.integers.data();
  if (to != DType::f32) {
    if (is_float(from)) return to_integers(to, numbers, count, result.integers.data());
    return wrap(to, integers, count, result.integers.data());
  }
  if (is_float(from)) return map(numbers, result.numbers.data(), count, [](float x) { return x; });
  for (std::int64_t i = 0; i < count; ++i)
    result.numbers[static_cast<std::size_t>(i)] = static_cast<float>(integers[i]);
}

void calculate(ScalarOp op, const float* a, const float* b, std::int64_t count, float* to) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  switch (op) {
    case ScalarOp::neg: return map(a, to, count, [](float x) { return -x; });
    case ScalarOp::abs: return map(a, to, count, [](float x) { return std::fabs(x); });
    case ScalarOp::round: return map(a, to, count, rounded);
    case ScalarOp::add: return map(a, b, to, count, [](float x, float y) { return x + y; });
    case ScalarOp::sub: return map(a, b, to, count, [](float x, float y) { return x - y; });
    case ScalarOp::mul: return map(a, b, to, count, [](float x, float y) { return x * y; });
    case ScalarOp::div: return map(a, b, to, count, [](float x, float y) { return x / y; });
    case ScalarOp::min:
      return map(a, b, to, count, [](float x, float y) {
        const float least = y < x ? y : x;
        return x == x && y == y ? least : nan;
      });
    default:  // max
      return map(a, b, to, count, [](float x, float y) {
        const float most = x < y ? y : x;
        return x == x && y == y ? most : nan;
      });
  }
}

/// Sums, differences and products modulo the range of the dtype.
void calculate(ScalarOp op, DType dtype, const std::int32_t* a, const std::int32_t* b,
               std::int64_t count, std::int32_t* to) {
  const auto each = [&](const auto& function) {
    for (std::int64_t i = 0; i < count; ++i)
      to[i] = static_cast<std::int32_t>(
          function(static_cast<std::uint32_t>(a[i]), static_cast<std::uint32_t>(b[i])));
  };
  switch (op) {
    case ScalarOp::add: each([](std::uint32_t x, std::uint32_t y) { return x + y; }); break;
    case ScalarOp::sub: each([](std::uint32_t x, std::uint32_t y) { return x - y; }); break;
    default: each([](std::uint32_t x, std::uint32_t y) { return x * y; }); break;
  }
  wrap(dtype, to, count, to);
}

void fill(const ScalarNode& node, Lanes& lanes) {
  const ScalarDatum datum = constant_datum(node);
  lanes.numbers.fill(static_cast<float>(datum.number.real()));
  lanes.integers.fill(static_cast<std::int32_t>(datum.integer));
}

}  // namespace

bool evaluate_in_blocks(std::span<const ScalarNode> nodes, ScalarId result, const EvalArgs& args) {
  if (!is_known(nodes[static_cast<std::size_t>(result)].dtype) ||
      !std::ranges::all_of(nodes, [&](const ScalarNode& node) { return is_known(nodes, node); }))
    return false;
  const MutableTensorView& out = args.out(0);
  if (out.elements() == 0) return true;
  const Lines lines(args.inputs, out.dims);
  std::vector<const std::byte*> data;
  for (const TensorView& input : args.inputs) {
    if (input.data) data.push_back(input.data);
  }
  std::vector<Lanes> lanes(nodes.size());
  const auto of = [&](ScalarId id) -> Lanes& { return lanes[static_cast<std::size_t>(id)]; };
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    if (nodes[n].op == ScalarOp::constant) fill(nodes[n], lanes[n]);
  }
  std::int64_t done = 0;
  lines.for_each([&](const std::vector<std::int64_t>& offsets) {
    for (std::int64_t first = 0; first < lines.length(); first += block_size) {
      const std::int64_t count = std::min(block_size, lines.length() - first);
      for (std::size_t n = 0; n < nodes.size(); ++n) {
        const ScalarNode& node = nodes[n];
        if (node.op == ScalarOp::constant) continue;
        if (node.op == ScalarOp::load) {
          const auto k = static_cast<std::size_t>(node.index);
          const std::int64_t stride = lines.stride(k);
          load(node.dtype, data[k], offsets[k] + first * stride, stride, count, lanes[n]);
        } else if (node.op == ScalarOp::cast) {
          cast(nodes[static_cast<std::size_t>(node.a)].dtype, node.dtype, of(node.a), count,
               lanes[n]);
        } else if (node.dtype != DType::f32) {
          calculate(node.op, node.dtype, of(node.a).integers.data(), of(node.b).integers.data(),
                    count, lanes[n].integers.data());
        } else {
          calculate(node.op, of(node.a).numbers.data(),
                    node.b < 0 ? nullptr : of(node.b).numbers.data(), count,
                    lanes[n].numbers.data());
        }
      }
      store(out.dtype, of(result), done, count, out.data);
      done += count;
    }
  });
  return true;
}

}  // namespace rlx
