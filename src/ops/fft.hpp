// A plain fast Fourier transform of any length in double: the reference of every FFT.
#pragma once

#include <complex>
#include <cstdint>
#include <vector>

#include "rlx/ops.hpp"

namespace rlx {

/// exp(-2 pi i k / n), its angle reduced to an eighth of a turn by exact integer arithmetic.
std::complex<double> root_of_unity(std::int64_t k, std::int64_t n);

/// sum over j of x[j] exp(-2 pi i j k / n), unscaled; the inverse has the opposite sign. Mixed
/// radix for small prime factors, Bluestein's convolution where a factor is large: O(n log n) for
/// every n of at least 1.
class FourierTransform {
 public:
  explicit FourierTransform(std::int64_t n);
  std::int64_t length() const { return n_; }
  std::vector<std::complex<double>> run(std::vector<std::complex<double>> x, bool inverse) const;

 private:
  using Complex = std::complex<double>;
  void split(const Complex* in, std::int64_t stride, Complex* out, std::int64_t n) const;
  std::vector<Complex> by_convolution(const std::vector<Complex>& x) const;

  std::int64_t n_;
  std::vector<Complex> roots_;            ///< roots_[k] = exp(-2 pi i k / n)
  std::vector<Complex> chirp_;            ///< exp(-pi i k^2 / n), of Bluestein's form only
  std::vector<Complex> chirp_transform_;  ///< transform of the conjugate chirp, periodic
  std::vector<FourierTransform> inner_;   ///< the power of two behind Bluestein's form, or none
};

/// The factor of NumPy's norm for a transform of n points.
double fft_scale(FftNorm norm, bool inverse, std::int64_t n);

}  // namespace rlx
