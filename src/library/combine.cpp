// Combining elements with updates: what scatters write.
#include "library/combine.hpp"

#include <cstring>

#include "base/element.hpp"

namespace rlx::library {
namespace {

/// Integers wrap; narrow floats are computed in f32, whose sums and products of two round once.
template <class T>
struct Arithmetic {
  using Type = std::conditional_t<std::is_arithmetic_v<T> || is_complex_type<T>, T, float>;
};

template <ScatterMode mode, class T>
T combined(T old, T update) {
  using A = typename Arithmetic<T>::Type;
  if constexpr (std::is_integral_v<T> && (mode == ScatterMode::add || mode == ScatterMode::mul)) {
    const auto a = static_cast<std::uint64_t>(old), b = static_cast<std::uint64_t>(update);
    return static_cast<T>(mode == ScatterMode::add ? a + b : a * b);
  } else if constexpr (std::is_same_v<A, T>) {
    if constexpr (mode == ScatterMode::add) return old + update;
    if constexpr (mode == ScatterMode::mul) return old * update;
    if constexpr (mode == ScatterMode::min) return is_nan_value(old) || update > old ? old : update;
    if constexpr (mode == ScatterMode::max) return is_nan_value(old) || update < old ? old : update;
    return update;
  } else {
    return T(combined<mode>(to_float(old), to_float(update)));
  }
}

template <ScatterMode mode, class T>
void combine(std::byte* to, const std::byte* from, std::int64_t count) {
  T* const out = reinterpret_cast<T*>(to);
  const T* const in = reinterpret_cast<const T*>(from);
  for (std::int64_t i = 0; i < count; ++i) out[i] = combined<mode>(out[i], in[i]);
}

template <std::size_t size>
void replace(std::byte* to, const std::byte* from, std::int64_t count) {
  if (count == 1) std::memcpy(to, from, size);
  else std::memcpy(to, from, size * static_cast<std::size_t>(count));
}

CombineFunction replacing(std::size_t size) {
  switch (size) {
    case 1: return replace<1>;
    case 2: return replace<2>;
    case 4: return replace<4>;
    case 8: return replace<8>;
    case 16: return replace<16>;
    default: return nullptr;
  }
}

template <ScatterMode mode>
CombineFunction of(DType dtype) {
  return with_element_type(dtype, [](auto element) -> CombineFunction {
    using T = decltype(element);
    constexpr bool has_order = mode == ScatterMode::min || mode == ScatterMode::max;
    if constexpr (is_complex_type<T> && has_order) return nullptr;
    else return combine<mode, T>;
  });
}

}  // namespace

CombineFunction combine_function(ScatterMode mode, DType dtype) {
  // Integers below 8 bits wrap at their own width.
  const bool is_narrow = is_integer(dtype) && integer_bits(dtype) < 8;
  if (is_narrow && mode != ScatterMode::assign) return nullptr;
  switch (mode) {
    case ScatterMode::assign: return replacing(size_of(dtype));
    case ScatterMode::add: return of<ScatterMode::add>(dtype);
    case ScatterMode::mul: return of<ScatterMode::mul>(dtype);
    case ScatterMode::min: return of<ScatterMode::min>(dtype);
    case ScatterMode::max: return of<ScatterMode::max>(dtype);
  }
  return nullptr;
}

}  // namespace rlx::library
