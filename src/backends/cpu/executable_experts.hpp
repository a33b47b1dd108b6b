// Grouped matmuls on the CPU: rows put together by expert, matrices in memory or in a file.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "backends/backend.hpp"
#include "backends/cpu/program.hpp"

namespace rlx::cpu {

/// Room for the grouped matmuls in each worker's scratch. Errors: internal where kernels were cut
/// otherwise than the plan says.
Status add_grouped_scratch(Program& program);

/// The experts of one executable. Its matrices are placed before the first run, or when masks are
/// set; runs allocate nothing.
class ExpertSteps final : public ExpertControl {
 public:
  ExpertSteps() = default;
  ExpertSteps(std::shared_ptr<const Program> program, std::shared_ptr<const plan::Weights> weights);

  bool empty() const { return layers_.empty(); }
  std::int64_t resident_bytes() const;
  /// Other weights; masks stay.
  void set_weights(std::shared_ptr<const plan::Weights> weights);
  /// The same masks and places as another instance of the program.
  void share(const ExpertSteps& other);

  /// Places what has no place yet.
  Status prepare() {
    if (is_placed_) [[likely]]
      return {};
    return place();
  }
  void begin_run();
  /// Step `index` of plan.grouped. pointers: x, w, chosen, result. Ends at the next expert once it
  /// is cancelled. Errors: an expert that is not there; every worker sees it.
  Status run(std::int32_t index, void* const* pointers, int worker, int workers, std::byte* scratch,
             const std::atomic<bool>& cancelled);

  std::vector<std::int64_t> layers() const override;
  Status set_resident(const std::vector<ExpertMask>& masks) override;
  void enable_capture(bool enabled) override;
  std::optional<std::vector<ExpertChoices>> take_choices() override;
  std::vector<ExpertCounts> take_counts() override;

 private:
  struct Layer {
    std::int64_t experts = 0, rows = 0;
    ExpertMask mask;
    ExpertCounts counts;
    std::vector<std::uint32_t> chosen;  ///< empty while nothing is captured
  };
  struct Call;
  Status place();
  Status place_all();
  void note(const Call& call);

  std::shared_ptr<const Program> program_;
  std::shared_ptr<const plan::Weights> weights_;
  std::vector<Layer> layers_;
  std::vector<plan::ExpertPlaces> places_;  ///< by entry of plan.grouped
  bool is_placed_ = true, captures_ = false, has_run_ = false;
};

}  // namespace rlx::cpu
