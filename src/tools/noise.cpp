// Seeded normal noise in every dtype.
#include "tools/noise.hpp"

#include <cmath>
#include <cstring>
#include <numbers>
#include <random>

#include "base/error.hpp"
#include "base/half.hpp"

namespace rlx::tools {
namespace {

constexpr std::int64_t max_bytes = std::int64_t{1} << 30;

// Box and Muller's: sqrt(-2 ln u) cos(2 pi v); the standard library's distributions differ between
// libraries.
class NormalNoise {
 public:
  explicit NormalNoise(std::uint64_t seed) : random_(seed) {}
  double next() {
    if (std::exchange(has_spare_, !has_spare_)) return spare_;
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    const double angle = 2 * std::numbers::pi * uniform();
    spare_ = radius * std::sin(angle);
    return radius * std::cos(angle);
  }

 private:
  double uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
  std::mt19937_64 random_;
  double spare_ = 0;
  bool has_spare_ = false;
};

template <class T, class Convert>
void fill(Tensor& tensor, Convert convert) {
  for (std::size_t i = 0; i < tensor.bytes(); i += sizeof(T)) {
    const T value = convert();
    std::memcpy(tensor.mutable_data() + i, &value, sizeof(T));
  }
}

void fill_floats(Tensor& tensor, NormalNoise& random) {
  const auto real = [&] { return static_cast<float>(random.next()); };
  switch (tensor.dtype()) {
    case DType::f16: return fill<Half>(tensor, [&] { return Half(real()); });
    case DType::bf16: return fill<BFloat16>(tensor, [&] { return BFloat16(real()); });
    case DType::f8e4m3fn: return fill<Float8E4M3FN>(tensor, [&] { return Float8E4M3FN(real()); });
    case DType::f8e5m2: return fill<Float8E5M2>(tensor, [&] { return Float8E5M2(real()); });
    case DType::f8e4m3fnuz:
      return fill<Float8E4M3FNUZ>(tensor, [&] { return Float8E4M3FNUZ(real()); });
    case DType::f8e5m2fnuz:
      return fill<Float8E5M2FNUZ>(tensor, [&] { return Float8E5M2FNUZ(real()); });
    case DType::f4e2m1: return fill<Float4E2M1>(tensor, [&] { return Float4E2M1(real()); });
    case DType::f64:
    case DType::c128: return fill<double>(tensor, [&] { return random.next(); });
    default: return fill<float>(tensor, real);
  }
}

void fill_ones(Tensor& tensor) {
  switch (size_of(tensor.dtype())) {
    case 8: return fill<std::uint64_t>(tensor, [] { return 1; });
    case 4: return fill<std::uint32_t>(tensor, [] { return 1; });
    case 2: return fill<std::uint16_t>(tensor, [] { return std::uint16_t{1}; });
    default: return fill<std::uint8_t>(tensor, [] { return std::uint8_t{1}; });
  }
}

}  // namespace

Result<Tensor> noise(DType dtype, const Dims& dims, std::uint64_t seed) {
  std::int64_t bytes = static_cast<std::int64_t>(size_of(dtype));
  for (const std::int64_t dim : dims) {
    if (dim < 0 || __builtin_mul_overflow(bytes, dim, &bytes) || bytes > max_bytes) {
      return bad_input("A value of {}[{}] is too large to be made up; it must be given.",
                       name_of(dtype), fmt::join(dims, ","));
    }
  }
  Tensor tensor(dtype, dims);
  NormalNoise random(seed);
  if (is_float(dtype) || is_complex(dtype)) fill_floats(tensor, random);
  else fill_ones(tensor);
  return tensor;
}

}  // namespace rlx::tools
