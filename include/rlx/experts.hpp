// Mixture of experts: the ops that choose and apply experts, who was chosen in a run, and which
// experts should live in memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rlx/ops.hpp"

namespace rlx {
namespace op {

/// logits [..., E] -> (experts i32 [..., k], weights [..., k]): the k largest logits of each token
/// in falling order, the lower expert first on ties; NaN counts as the largest. Weights are the
/// softmax over all experts at the chosen ones; `renormalize` divides them by their sum.
/// `choose_first`: softmax over the chosen logits alone.
struct MoeRouter {
  std::int64_t k = 1;
  bool choose_first = false;
  bool renormalize = false;
};
/// (x [rows..., K], w [E, K, N], experts i32 or i64 [rows...]) -> [rows..., N]: every row times the
/// matrix of its expert; f16 and bf16 accumulate in f32. x may lack the last axis of `experts`:
/// then all choices of a token read its one row. An expert outside [0, E) is an error of the run.
struct GroupedMatmul {};

}  // namespace op

struct Routing {
  Value experts, weights;  ///< [..., k]
};
Routing moe_router(Value logits, op::MoeRouter attributes);
Value grouped_matmul(Value x, Value w, Value experts);
/// x [T, D], logits [T, E], gate and up [E, D, F], down [E, F, D] -> [T, D]: the sum over the
/// chosen experts e of weight * down_e(silu(gate_e(x)) * up_e(x)).
Value moe_feed_forward(Value x, Value logits, Value gate, Value up, Value down,
                       op::MoeRouter attributes);

/// By expert: does it live in memory?
using ExpertMask = std::vector<bool>;

/// The experts that one layer of the last run chose. A layer is the grouped matmuls that read the
/// same choice; layers count in the order in which they run.
struct ExpertChoices {
  std::int64_t experts = 0;           ///< that the layer has
  std::vector<std::uint32_t> chosen;  ///< row-major, as `experts` of the grouped matmul
};

/// Rows (tokens times choices) of the last run.
struct ExpertCounts {
  std::int64_t resident = 0;  ///< served by experts in memory
  std::int64_t other = 0;     ///< served from the file
};

/// Keeps the experts in memory that were chosen most, of late above all (LFU with decay): counts
/// are multiplied by `decay` before each observation is added.
class ExpertResidencyPolicy {
 public:
  struct Options {
    std::int64_t experts = 1;
    std::int64_t resident = 1;  ///< experts in memory
    double decay = 0.9;         ///< in [0, 1]: 1 never forgets, 0 knows the last run alone
    /// An expert in memory gives way only to one counted so many times as often: what changes the
    /// mask costs a copy of a matrix.
    double reluctance = 1.1;
  };
  /// Throws Exception where an option lies outside its range.
  explicit ExpertResidencyPolicy(Options options);

  /// Counts the choices of a run (experts beyond the layer's are ignored) and gives the mask for
  /// the next.
  const ExpertMask& observe(std::span<const std::uint32_t> chosen);
  /// The first `resident` experts until something was observed.
  const ExpertMask& mask() const { return mask_; }

 private:
  Options options_;
  std::vector<double> counts_;
  ExpertMask mask_;
};

}  // namespace rlx
