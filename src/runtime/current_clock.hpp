// Predictions for the clock that the processor runs at now. What is decided stays: a program is the
// same one whatever its neighbours did when it was made.
#pragma once

#include <vector>

#include "cost/clock.hpp"
#include "plan/predict.hpp"
#include "runtime/compile.hpp"

namespace rlx {

class CurrentClock {
 public:
  /// Measures it where the model's figures are of a known clock, for a program of these parts.
  /// `model`: the backend's, null where it has none.
  CurrentClock(const cost::MachineModel* model, const std::vector<const StaticProgram*>& parts) {
    if (!model || model->ghz <= 0) return;
    double products = 0, all = 0;
    for (const StaticProgram* part : parts) {
      const plan::Plan& plan = part->executable->plan();
      products += plan::product_ns(plan, *model);
      all += plan.predicted_ns;
    }
    const cost::Clocks clocks = cost::clocks_now(model->machine.isa);
    model_ = cost::at_clock(*model, clocks.of(all > 0 ? products / all : 0));
    known_ = true;
  }

  /// 0: unknown.
  double ghz() const { return known_ ? model_.ghz : 0; }

  /// That plan with the times that it is predicted to take now; what bounds its steps stays.
  plan::Plan timed(const plan::Plan& plan) const {
    plan::Plan now = plan;
    if (!known_) return now;
    plan::predict_times(now, model_);
    for (std::size_t i = 0; i < now.steps.size(); ++i) now.steps[i].bound = plan.steps[i].bound;
    return now;
  }

 private:
  cost::MachineModel model_;
  bool known_ = false;
};

}  // namespace rlx
