// Tables of complex transforms: stages, twiddles, permutations, made when a program is compiled.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "signal/lane_job.hpp"

namespace rlx::signal {

/// Owns what Tables points to. Lengths go by stages of their prime factors. Larger primes than 61
/// have tables of their own: of Rader's convolution where p - 1 has small factors, else
/// Bluestein's.
template <class T>
class FftTables {
 public:
  /// n of 1 to 2^30. The inverse has the opposite sign in the exponent; neither scales.
  FftTables(std::int64_t n, bool inverse);
  FftTables(const FftTables&) = delete;
  FftTables& operator=(const FftTables&) = delete;

  const Tables<T>& view() const { return view_; }

 private:
  void add_stages(std::int64_t size);
  void plan_stages(bool inverse);
  void plan_rader(bool inverse);
  void plan_bluestein(bool inverse);

  Tables<T> view_{};
  std::vector<std::vector<T>> numbers_;  ///< twiddles and roots of the stages
  std::vector<Stage<T>> stages_;
  std::vector<std::unique_ptr<FftTables>> inner_;  ///< of the stages of large primes
  std::vector<std::int32_t> position_, source_, inner_position_;
  std::vector<T> kernel_, chirp_;
};

extern template class FftTables<float>;
extern template class FftTables<double>;

}  // namespace rlx::signal
