// Tables of complex transforms.
#include "signal/fft_tables.hpp"

#include <algorithm>
#include <complex>
#include <type_traits>

#include "signal/roots.hpp"

namespace rlx::signal {
namespace {

constexpr std::int64_t largest_radix = 61;

/// Whether Rader's convolution of a prime p pays: its p - 1 points go by small factors, but for one
/// prime whose own convolution does. The kernel's transform takes p times that prime when planned.
bool suits_rader(std::int64_t p, bool inner = false) {
  const std::vector<std::int64_t> factors = prime_factors(p - 1);
  const auto large = std::count_if(factors.begin(), factors.end(),
                                   [](std::int64_t factor) { return factor > largest_radix; });
  constexpr std::int64_t most_work = 1 << 24;
  return large == 0 || (large == 1 && !inner && p * factors.back() <= most_work &&
                        suits_rader(factors.back(), true));
}

/// The radices of the stages, first one first. Eights and fours where they fit: fewer passes.
std::vector<std::int64_t> radices_of(std::int64_t n) {
  std::vector<std::int64_t> radices;
  int twos = 0;
  for (const std::int64_t p : prime_factors(n)) {
    if (p == 2) {
      ++twos;
    } else {
      radices.push_back(p);
    }
  }
  // Powers of two as eights and at most two fours: 16 is 4 * 4, not 8 * 2.
  while (twos > 0) {
    const int bits = twos == 4 || twos == 2 ? 2 : twos == 1 ? 1 : 3;
    radices.push_back(std::int64_t{1} << bits);
    twos -= bits;
  }
  std::sort(radices.rbegin(), radices.rend());
  return radices;
}

template <class T, class Complex>
void add_number(std::vector<T>& list, Complex number) {
  list.push_back(static_cast<T>(number.real()));
  list.push_back(static_cast<T>(number.imag()));
}

/// What kernels of convolutions are computed in: more digits than T has, so that their errors do
/// not add to those of the transform.
template <class T>
using Wider = std::conditional_t<std::is_same_v<T, float>, double, long double>;
template <class T>
using Numbers = std::vector<std::complex<T>>;

/// A plain transform, in place; roots: all of a multiple of its size.
template <class T>
void transform(Numbers<T>& x, const Numbers<T>& roots) {
  const std::size_t n = x.size(), step = roots.size() / n;
  if (n == 1) return;
  const auto p = static_cast<std::size_t>(prime_factors(static_cast<std::int64_t>(n)).front());
  const std::size_t m = n / p;
  std::vector<Numbers<T>> parts(p);
  for (std::size_t r = 0; r < p; ++r) {
    parts[r].reserve(m);
    for (std::size_t k = 0; k < m; ++k) parts[r].push_back(x[r + k * p]);
    transform(parts[r], roots);
    for (std::size_t k = 0; k < m; ++k) parts[r][k] *= roots[r * k * step];
  }
  for (std::size_t q = 0; q < p; ++q) {
    for (std::size_t k = 0; k < m; ++k) {
      std::complex<T> sum = 0;
      for (std::size_t r = 0; r < p; ++r) sum += parts[r][k] * roots[r * q % p * m * step];
      x[q * m + k] = sum;
    }
  }
}

template <class T>
void transform(Numbers<T>& x) {
  Numbers<T> roots;
  roots.reserve(x.size());
  const auto n = static_cast<std::int64_t>(x.size());
  for (std::int64_t k = 0; k < n; ++k)
    roots.push_back(std::complex<T>(extended_root_of_unity(k, n)));
  transform(x, roots);
}

}  // namespace

template <class T>
FftTables<T>::FftTables(std::int64_t n, bool inverse) {
  view_.n = n;
  const std::vector<std::int64_t> factors = prime_factors(n);
  if (n == 1 || factors.size() > 1 || n <= largest_radix) {
    plan_stages(inverse);
  } else if (suits_rader(n)) {
    plan_rader(inverse);
  } else {
    plan_bluestein(inverse);
  }
  view_.stage_count = static_cast<std::int32_t>(stages_.size());
  view_.stages = stages_.data();
  view_.position = position_.data();
  view_.source = source_.data();
  view_.inner_position = inner_position_.data();
  view_.kernel = kernel_.data();
  view_.chirp = chirp_.data();
}

template <class T>
void FftTables<T>::add_stages(std::int64_t size) {
  view_.size = size;
  std::int64_t length = 1;
  const std::vector<std::int64_t> radices = radices_of(size);
  for (const std::int64_t radix : radices) {
    std::vector<T> roots, twiddles;
    const Tables<T>* inner = nullptr;
    if (radix > largest_radix) {
      inner_.push_back(std::make_unique<FftTables>(radix, false));
      inner = &inner_.back()->view();
      view_.inner_slots =
          std::max(view_.inner_slots, scratch_buffers * inner->slots + inner->inner_slots);
    }
    for (std::int64_t k = 0; !inner && k < radix; ++k)
      add_number(roots, std::conj(root_of_unity(k, radix)));
    for (std::int64_t k = 0; k < length; ++k) {
      for (std::int64_t q = 1; q < radix; ++q)
        add_number(twiddles, root_of_unity(k * q, radix * length));
    }
    numbers_.push_back(std::move(twiddles));
    numbers_.push_back(std::move(roots));
    stages_.push_back(
        {radix, length, numbers_[numbers_.size() - 2].data(), numbers_.back().data(), inner});
    length *= radix;
  }
  // The last stage's parts are its residues, laid one after the other, and so on inwards.
  for (std::int64_t j = 0; j < size; ++j) {
    std::int64_t rest = j, part = size, position = 0;
    for (std::size_t i = radices.size(); i-- > 0;) {
      part /= radices[i];
      position += rest % radices[i] * part;
      rest /= radices[i];
    }
    inner_position_.push_back(static_cast<std::int32_t>(position));
  }
}

template <class T>
void FftTables<T>::plan_stages(bool inverse) {
  view_.kind = Tables<T>::Kind::stages;
  const std::int64_t n = view_.n;
  add_stages(n);
  for (std::int64_t j = 0; j < n; ++j) {
    // The inverse is the transform of the points in reverse.
    position_.push_back(inner_position_[static_cast<std::size_t>(inverse ? (n - j) % n : j)]);
    source_.push_back(static_cast<std::int32_t>(j));
  }
  view_.slots = n + 1;
}

// X[g^-k] - x[0] = sum over q of x[g^q] w^(g^-(k - q)): a convolution of n - 1 points.
template <class T>
void FftTables<T>::plan_rader(bool inverse) {
  view_.kind = Tables<T>::Kind::rader;
  const std::int64_t n = view_.n, size = n - 1;
  add_stages(size);
  view_.slots = size + 2;
  const std::int64_t g = primitive_root(n), back = power_modulo(g, n - 2, n);
  position_.resize(static_cast<std::size_t>(n));
  source_.resize(static_cast<std::size_t>(n));
  position_[0] = source_[0] = static_cast<std::int32_t>(size);
  Numbers<Wider<T>> kernel;
  std::int64_t up = 1, down = 1;
  for (std::int64_t q = 0; q < size; ++q) {
    position_[static_cast<std::size_t>(inverse ? n - up : up)] =
        inner_position_[static_cast<std::size_t>(q)];
    source_[static_cast<std::size_t>(down)] = static_cast<std::int32_t>((size - q) % size);
    kernel.push_back(std::complex<Wider<T>>(extended_root_of_unity(down, n)) /
                     static_cast<Wider<T>>(size));
    up = up * g % n;
    down = down * back % n;
  }
  transform(kernel);
  for (const auto& number : kernel) add_number(kernel_, number);
}

// j k = (j^2 + k^2 - (k - j)^2) / 2: a convolution with a chirp, of any size of at least 2n - 1.
template <class T>
void FftTables<T>::plan_bluestein(bool inverse) {
  view_.kind = Tables<T>::Kind::bluestein;
  const std::int64_t n = view_.n;
  std::int64_t size = 2 * n - 1;
  while (size % 4 != 0 || prime_factors(size).back() > 7) ++size;
  add_stages(size);
  view_.slots = size + 2;
  Numbers<Wider<T>> kernel(static_cast<std::size_t>(size));
  for (std::int64_t j = 0; j < n; ++j) {
    const std::complex<Wider<T>> chirp(
        extended_root_of_unity((inverse ? -j : j) * j % (2 * n), 2 * n));
    add_number(chirp_, chirp);
    kernel[static_cast<std::size_t>(j)] = kernel[static_cast<std::size_t>((size - j) % size)] =
        std::conj(chirp) / static_cast<Wider<T>>(size);
    position_.push_back(inner_position_[static_cast<std::size_t>(j)]);
    source_.push_back(static_cast<std::int32_t>((size - j) % size));
  }
  transform(kernel);
  for (const auto& number : kernel) add_number(kernel_, number);
}

template class FftTables<float>;
template class FftTables<double>;

}  // namespace rlx::signal
