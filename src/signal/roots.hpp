// Roots of unity and small number theory behind plans of Fourier transforms.
#pragma once

#include <complex>
#include <cstdint>
#include <vector>

namespace rlx::signal {

/// exp(-2 pi i k / n), its angle reduced to an eighth of a turn by exact integer arithmetic and
/// computed in extended precision, so that the parts are right to the last bit.
std::complex<double> root_of_unity(std::int64_t k, std::int64_t n);
/// The same before it is rounded.
std::complex<long double> extended_root_of_unity(std::int64_t k, std::int64_t n);

/// Prime factors, rising, with their multiplicity.
std::vector<std::int64_t> prime_factors(std::int64_t n);

/// base^exponent mod modulus, for moduli below 2^62.
std::int64_t power_modulo(std::int64_t base, std::int64_t exponent, std::int64_t modulus);

/// A number whose powers are all of 1 to p - 1 modulo the prime p.
std::int64_t primitive_root(std::int64_t p);

}  // namespace rlx::signal
