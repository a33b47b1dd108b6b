// The loops, each plain enough for the compiler's vectors.
#include "graph/elementwise_plain.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace rlx {
namespace {

/// Element i of the result meets element i / repeat % count of the operand.
struct Repetition {
  std::int64_t repeat = 1, count = 1;
};

/// Dims that are 1, then those of the result, then dims that are 1.
std::optional<Repetition> repetition(std::span<const std::int64_t> operand,
                                     std::span<const std::int64_t> result) {
  if (operand.size() > result.size()) return std::nullopt;
  const std::size_t missing = result.size() - operand.size();
  const auto at = [&](std::size_t i) { return i < missing ? 1 : operand[i - missing]; };
  Repetition found;
  std::size_t end = result.size();
  for (; end > 0 && at(end - 1) == 1; --end) found.repeat *= result[end - 1];
  for (; end > 0 && at(end - 1) == result[end - 1]; --end) found.count *= result[end - 1];
  for (; end > 0; --end)
    if (at(end - 1) != 1) return std::nullopt;
  return found;
}

void multiply(const float* a, const float* b, const Repetition& r, std::int64_t count,
              float* result) {
  if (r.repeat == 1) {
    for (std::int64_t first = 0; first < count; first += r.count)
      for (std::int64_t i = 0; i < r.count; ++i) result[first + i] = a[first + i] * b[i];
    return;
  }
  for (std::int64_t first = 0; first < count; first += r.repeat) {
    const float factor = b[first / r.repeat % r.count];
    for (std::int64_t i = 0; i < r.repeat; ++i) result[first + i] = a[first + i] * factor;
  }
}

std::int8_t saturated(float value) {
  if (std::isnan(value)) return 0;
  return static_cast<std::int8_t>(std::clamp(value, -128.0F, 127.0F));
}

}  // namespace

bool evaluate_plain(const ScalarNode& node, const EvalArgs& args) {
  const MutableTensorView& out = args.out(0);
  const TensorView& a = args.in(0);
  const std::int64_t count = out.elements();
  if (!a.data || !std::ranges::equal(a.dims, out.dims) || count == 0) return false;
  const auto aligned = [](const std::byte* data) {
    return reinterpret_cast<std::uintptr_t>(data) % alignof(float) == 0;
  };
  if (!aligned(a.data) || !aligned(out.data)) return false;
  const bool floats = a.dtype == DType::f32 && out.dtype == DType::f32;
  const auto* from = reinterpret_cast<const float*>(a.data);
  auto* to = reinterpret_cast<float*>(out.data);
  if (node.op == ScalarOp::abs && floats) {
    std::transform(from, from + count, to, [](float x) { return std::abs(x); });
  } else if (node.op == ScalarOp::round && floats) {
    std::transform(from, from + count, to, [](float x) { return std::nearbyint(x); });
  } else if (node.op == ScalarOp::cast && a.dtype == DType::f32 && out.dtype == DType::i8) {
    std::transform(from, from + count, reinterpret_cast<std::int8_t*>(out.data), saturated);
  } else if (node.op == ScalarOp::cast && a.dtype == DType::i8 && out.dtype == DType::f32) {
    const auto* bytes = reinterpret_cast<const std::int8_t*>(a.data);
    std::transform(bytes, bytes + count, to, [](std::int8_t x) { return static_cast<float>(x); });
  } else if (node.op == ScalarOp::mul && floats && args.has(1)) {
    const TensorView& b = args.in(1);
    const auto found = repetition(b.dims, out.dims);
    if (!found || b.dtype != DType::f32 || !aligned(b.data)) return false;
    multiply(from, reinterpret_cast<const float*>(b.data), *found, count, to);
  } else {
    return false;
  }
  return true;
}

}  // namespace rlx
