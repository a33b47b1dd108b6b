// A router on dense logits, f32 or f64.
#include <algorithm>
#include <cmath>

#include "library/kernels.hpp"
#include "rlx/experts.hpp"

namespace rlx::library {
namespace {

/// Falling order of numbers, NaN above all.
template <class T>
bool comes_before(T a, T b) {
  if (std::isnan(b)) return false;
  return std::isnan(a) || a > b;
}

template <class T>
class RouterKernel final : public Kernel {
 public:
  RouterKernel(const op::MoeRouter& router, std::int64_t tokens, std::int64_t experts)
      : router_(router), tokens_(tokens), experts_(experts) {}

  codegen::StepWork work() const override {
    return {.items = tokens_,
            .cycles = static_cast<double>(tokens_ * (experts_ * 4 + router_.k * 30))};
  }
  std::int64_t scratch_bytes() const override { return 0; }
  void run(void* const* buffers, std::int64_t begin, std::int64_t end, void*) const override {
    for (std::int64_t token = begin; token < end; ++token) {
      choose(static_cast<const T*>(buffers[0]) + token * experts_,
             static_cast<std::int32_t*>(buffers[1]) + token * router_.k,
             static_cast<T*>(buffers[2]) + token * router_.k);
    }
  }

 private:
  // The k largest by insertion into a short sorted list; an equal one stays behind the earlier.
  void choose(const T* logits, std::int32_t* chosen, T* weights) const {
    std::int64_t count = 0;
    for (std::int64_t expert = 0; expert < experts_; ++expert) {
      const T logit = logits[expert];
      if (count == router_.k && !comes_before(logit, weights[count - 1])) continue;
      std::int64_t at = count < router_.k ? count++ : count - 1;
      for (; at > 0 && comes_before(logit, weights[at - 1]); --at) {
        weights[at] = weights[at - 1];
        chosen[at] = chosen[at - 1];
      }
      weights[at] = logit;
      chosen[at] = static_cast<std::int32_t>(expert);
    }
    weigh(logits, weights);
  }

  void weigh(const T* logits, T* weights) const {
    const T largest = weights[0];
    const bool of_chosen = router_.choose_first || router_.renormalize;
    T sum = 0;
    if (!of_chosen) {
      for (std::int64_t expert = 0; expert < experts_; ++expert)
        sum += std::exp(logits[expert] - largest);
    }
    for (std::int64_t i = 0; i < router_.k; ++i) {
      weights[i] = std::exp(weights[i] - largest);
      if (of_chosen) sum += weights[i];
    }
    for (std::int64_t i = 0; i < router_.k; ++i) weights[i] /= sum;
  }

  const op::MoeRouter router_;
  const std::int64_t tokens_, experts_;
};

}  // namespace

KernelPtr router_kernel(const Call& call) {
  const auto* router = call.op.as<op::MoeRouter>();
  if (!router) return nullptr;
  const std::int64_t experts = call.in(0).dims().back(), tokens = call.in(0).elements() / experts;
  if (call.in(0).dtype == f64)
    return std::make_unique<RouterKernel<double>>(*router, tokens, experts);
  if (call.in(0).dtype == f32)
    return std::make_unique<RouterKernel<float>>(*router, tokens, experts);
  return nullptr;
}

}  // namespace rlx::library
