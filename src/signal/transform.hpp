// Fourier transforms of many lines as kernels that workers share: what a program holds of an FFT.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "codegen/code.hpp"
#include "codegen/step_kernel.hpp"
#include "signal/fft_tables.hpp"

namespace rlx::signal {

using LineKernel = codegen::StepKernel;

/// The part of LineKernel that is the same for all jobs on lanes.
template <class T>
class LaneJobKernel : public LineKernel {
 public:
  /// `out_buffer`: the position of the output behind the inputs. `split`: lanes that share a line,
  /// a divisor of the points and at most lanes_of. `lines`: how many there are, where they are few.
  LaneJobKernel(std::int64_t points, bool inverse, codegen::Isa isa, int out_buffer, int split = 1,
                std::int64_t lines = 64);
  /// Lines, or parts of lines, that the kernels of an instruction set work on side by side.
  static int lanes_of(codegen::Isa isa);

  std::int64_t work_items() const override;
  std::int64_t scratch_bytes() const override;
  void run(void* const* buffers, std::int64_t begin, std::int64_t end,
           void* scratch) const override;

  Job<T>& job() { return job_; }
  const Job<T>& job() const { return job_; }
  /// `job` is this kernel's with addresses that a run tells.
  void run_job(const Job<T>& job, void* const* buffers, std::int64_t begin, std::int64_t end,
               void* scratch) const;
  /// Makes the roots of real transforms of 2 * points numbers.
  void use_half_roots();

 private:
  void make_split(std::int64_t points, bool inverse, int split);

  FftTables<T> tables_;
  LaneKernel<T> kernel_;
  Job<T> job_;
  std::vector<T> half_roots_, split_twiddles_, split_roots_;
  int out_buffer_;
};

extern template class LaneJobKernel<float>;
extern template class LaneJobKernel<double>;

}  // namespace rlx::signal
