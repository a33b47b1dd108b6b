// Looks for small values by their bits; most weights have none.
#include "plan/negligible.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "rlx/mapped.hpp"

namespace rlx::plan {
namespace {

constexpr float negligible = 0x1p-100F, ordinary = 0x1p-36F;

}  // namespace

// Bits without the sign order as magnitudes do; less one, zeros are the largest.
bool has_small(std::span<const float> values) {
  constexpr std::uint32_t most = std::bit_cast<std::uint32_t>(negligible) - 2;
  std::uint32_t found = 0;
  for (const float value : values) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(value) & 0x7fffffffU;
    found |= static_cast<std::uint32_t>(magnitude - 1 <= most);
  }
  return found != 0;
}

bool has_negligible(std::span<const float> values) {
  return has_small(values) && std::ranges::any_of(values, [](float value) {
           return std::abs(value) >= ordinary && std::isfinite(value);
         });
}

void drop_negligible(std::span<float> values) {
  if (!has_negligible(values)) return;
  for (float& value : values)
    if (std::abs(value) < negligible) value = 0;
}

Tensor without_negligible(const Tensor& value) {
  constexpr std::int64_t most_elements = 64 * 1024;
  if (value.elements() > most_elements) return value;
  const Tensor source = aligned(value);
  const std::span<const float> from = source.as<float>();
  if (!has_negligible(from)) return value;
  Tensor result(value.dtype(), value.dims());
  const std::span to(reinterpret_cast<float*>(result.mutable_data()), from.size());
  std::ranges::copy(from, to.begin());
  drop_negligible(to);
  return result;
}

}  // namespace rlx::plan
