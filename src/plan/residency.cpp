// Where data and code lie when a step starts: caches keep what was touched last, so the bytes that
// were touched since tell the level.
#include <algorithm>
#include <limits>
#include <utility>

#include "cost/touched.hpp"
#include "plan/predict.hpp"

namespace rlx::plan {
namespace {

/// Sums over positions with logarithmic updates.
class PrefixSums {
 public:
  explicit PrefixSums(std::size_t size) : sums_(size + 1, 0.0) {}
  void add(std::size_t at, double value) {
    for (++at; at < sums_.size(); at += at & (~at + 1)) sums_[at] += value;
  }
  double before(std::size_t at) const {
    double sum = 0;
    for (; at > 0; at -= at & (~at + 1)) sum += sums_[at];
    return sum;
  }

 private:
  std::vector<double> sums_;
};

/// Touches pieces, or a share of each, in the order of the run; knows how much else was touched
/// since.
class TouchOrder {
 public:
  /// `kept`, by piece: nothing but the plan touches it, so that what is done elsewhere comes
  /// between two runs.
  TouchOrder(std::vector<double> bytes, std::size_t touches, std::vector<bool> kept,
             const cost::Elsewhere& elsewhere)
      : bytes_(std::move(bytes)),
        kept_(std::move(kept)),
        elsewhere_(elsewhere),
        sums_(touches),
        last_(bytes_.size(), never),
        when_(bytes_.size(), 0.0),
        weights_(bytes_.size(), 0.0) {}

  /// Bytes of other pieces touched since this one; negative: it was never touched.
  double distance(std::size_t piece) const {
    if (last_[piece] == never) return -1;
    return total_ - sums_.before(last_[piece]) + (is_of_last_run(piece) ? elsewhere_.bytes : 0);
  }
  /// ns since this piece was touched.
  double age(std::size_t piece) const {
    return clock_ - when_[piece] + (is_of_last_run(piece) ? elsewhere_.ns : 0);
  }
  void begin_run() { began_ = now_; }
  void pass(double ns) { clock_ += ns; }
  void touch(std::size_t piece, double share = 1) {
    when_[piece] = clock_;
    if (last_[piece] != never) sums_.add(last_[piece], -weights_[piece]);
    total_ += bytes_[piece] * share - weights_[piece];
    weights_[piece] = bytes_[piece] * share;
    last_[piece] = now_;
    sums_.add(now_++, weights_[piece]);
  }
  double bytes(std::size_t piece) const { return bytes_[piece]; }

 private:
  static constexpr std::size_t never = ~std::size_t{0};
  bool is_of_last_run(std::size_t piece) const { return kept_[piece] && last_[piece] < began_; }

  std::vector<double> bytes_;
  std::vector<bool> kept_;
  cost::Elsewhere elsewhere_;
  PrefixSums sums_;
  std::vector<std::size_t> last_;
  std::vector<double> when_;
  std::vector<double> weights_;  ///< bytes that were touched
  double clock_ = 0;
  std::size_t now_ = 0, began_ = 0;
  double total_ = 0;  ///< of all weights
};

/// The elements of a buffer that a nest reaches, first to last.
Pieces::Range elements_of(const loop::Nest& nest, std::size_t buffer) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  std::int64_t low = most, high = -1;
  const auto add = [&](const loop::Access& access) {
    if (access.buffer != static_cast<std::int32_t>(buffer)) return;
    std::int64_t from = access.offset, to = access.offset;
    for (std::size_t dim = 0; dim < nest.extents.size(); ++dim)
      (access.strides[dim] < 0 ? from : to) += access.strides[dim] * (nest.extents[dim] - 1);
    // Only data tells which rows: as many as the nest has points, and the same ones every run.
    if (!access.indirect.empty()) {
      std::int64_t points = 1;
      for (const std::int64_t extent : nest.extents) points *= extent;
      from = 0, to = std::max<std::int64_t>(points, 1) - 1;
    }
    low = std::min(low, from), high = std::max(high, to);
  };
  for (const loop::Access& access : nest.accesses) add(access);
  for (const loop::Store& store : nest.stores) add(store.access);
  if (high < low) return {1, 0};
  return {static_cast<std::size_t>(std::max<std::int64_t>(low, 0)), static_cast<std::size_t>(high)};
}

/// The same of all nests among the stages.
Pieces::Range elements_of(const loop::Strips& strips, std::size_t buffer) {
  Pieces::Range reached{1, 0};
  for (const auto& stage : strips.stages) {
    const auto* nest = std::get_if<loop::Nest>(&stage);
    const Pieces::Range own = nest ? elements_of(*nest, buffer) : Pieces::Range{1, 0};
    if (own.last < own.first) continue;
    const bool is_first = reached.last < reached.first;
    reached.first = is_first ? own.first : std::min(reached.first, own.first);
    reached.last = std::max(reached.last, own.last);
  }
  return reached;
}

/// As many as a recurrence touches: of a loop's steps each touches other ones, but all as many.
Pieces::Range first_elements(const loop::Kernel& kernel, std::size_t buffer) {
  const double size = size_of(kernel.buffers[buffer].dtype);
  const auto count = static_cast<std::size_t>(cost::touched_bytes(kernel, buffer) / size);
  return {0, std::max<std::size_t>(count, 1) - 1};
}

/// What a step touches of each of its buffers.
std::vector<Pieces::Range> ranges_of(const Plan& plan, const Step& step, const Pieces& pieces) {
  const loop::Kernel* kernel = nullptr;
  if (step.kind == Step::Kind::kernel) kernel = &plan.kernels[static_cast<std::size_t>(step.index)];
  const auto* nest = kernel ? std::get_if<loop::Nest>(&kernel->body) : nullptr;
  const auto* strips = kernel ? std::get_if<loop::Strips>(&kernel->body) : nullptr;
  const bool walks = kernel && std::holds_alternative<loop::Recurrence>(kernel->body);
  std::vector<Pieces::Range> ranges;
  for (std::size_t k = 0; k < step.buffers.size(); ++k) {
    const std::int32_t buffer = step.buffers[k];
    const DType dtype = plan.buffers[static_cast<std::size_t>(buffer)].dtype;
    ranges.push_back(nest     ? pieces.part_of(buffer, elements_of(*nest, k), dtype)
                     : strips ? pieces.part_of(buffer, elements_of(*strips, k), dtype)
                     : walks  ? pieces.part_of(buffer, first_elements(*kernel, k), dtype)
                              : pieces.of(buffer));
  }
  return ranges;
}

/// The code of all kernels: equal kernels run the same.
class Codes {
 public:
  explicit Codes(const Plan& plan) {
    std::map<std::pair<double, std::size_t>, std::vector<std::size_t>> alike;
    for (std::size_t i = 0; i < plan.kernels.size(); ++i) {
      const loop::Kernel& kernel = plan.kernels[i];
      const double lines = cost::code_lines_of(kernel);
      std::vector<std::size_t>& others = alike[{lines, kernel.buffers.size()}];
      const auto same = std::find_if(others.begin(), others.end(), [&](std::size_t other) {
        return plan.kernels[other] == kernel;
      });
      of_.push_back(same == others.end() ? bytes_.size() : of_[*same]);
      if (same != others.end()) continue;
      others.push_back(i);
      bytes_.push_back(lines * line_bytes);
    }
  }

  std::size_t of(const Step& step) const { return of_[static_cast<std::size_t>(step.index)]; }
  const std::vector<double>& bytes() const { return bytes_; }

 private:
  static constexpr double line_bytes = 64;
  std::vector<std::size_t> of_;
  std::vector<double> bytes_;
};

template <class T>
std::vector<T> joined(std::vector<T> a, const std::vector<T>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// By piece: does it hold weights, which nothing else touches?
std::vector<bool> weights_of(const Plan& plan, const Pieces& pieces) {
  std::vector<bool> weights(pieces.bytes().size(), false);
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    if (plan.buffers[i].storage != Storage::weight) continue;
    const Pieces::Range range = pieces.of(static_cast<std::int32_t>(i));
    for (std::size_t piece = range.first; piece < range.last; ++piece) weights[piece] = true;
  }
  return weights;
}

/// Follows a plan's steps through the caches.
class Walk {
 public:
  /// `workers`: of a team, each of which has its part of all steps; 0: of the first worker alone,
  /// of steps on their numbers of threads.
  Walk(const Plan& plan, const Pieces& pieces, const cost::MachineModel& model, int workers,
       const cost::Elsewhere& elsewhere)
      : plan_(plan),
        model_(model),
        team_(cost::with_caches_of_team(model, std::max(workers, 1))),
        workers_(workers),
        has_team_(workers > 1),
        pieces_(pieces),
        codes_(plan),
        first_code_(pieces_.bytes().size()),
        order_(joined(pieces_.bytes(), codes_.bytes()), 2 * touches_of(plan.steps),
               joined(weights_of(plan, pieces), all_of_code()), elsewhere),
        code_order_(codes_.bytes(), 2 * calls_of(plan.steps), all_of_code(), elsewhere) {}

  Whereabouts run() {
    // The second run finds what the first one left.
    take(plan_.steps);
    notes_ = true;
    order_.begin_run();
    code_order_.begin_run();
    take(plan_.steps);
    return std::move(result_);
  }

 private:
  std::vector<bool> all_of_code() const { return std::vector<bool>(codes_.bytes().size(), true); }
  /// Touches of all steps; those of loops are made twice.
  std::size_t touches_of(const std::vector<Step>& steps) const {
    std::size_t touches = steps.size();
    for (const Step& step : steps) {
      for (const std::int32_t buffer : step.buffers)
        touches += pieces_.of(buffer).last - pieces_.of(buffer).first;
      if (step.kind == Step::Kind::loop) touches += 2 * touches_of(loop_of(step).steps);
    }
    return touches;
  }
  std::size_t calls_of(const std::vector<Step>& steps) const {
    std::size_t calls = steps.size();
    for (const Step& step : steps) {
      if (step.kind == Step::Kind::loop) calls += 2 * calls_of(loop_of(step).steps);
    }
    return calls;
  }
  const LoopPlan& loop_of(const Step& step) const {
    return plan_.loops[static_cast<std::size_t>(step.index)];
  }
  /// Of what a step touches, what passes through the caches that are looked at.
  double share_of(const Step& step) const { return workers_ == 0 ? 1.0 / step.threads : 1; }

  void take(const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      if (step.kind == Step::Kind::kernel) take_code(step);
      take_data(step);
      order_.pass(cost::about_ns(step.flops, step.bytes, model_) * share_of(step));
      if (step.kind != Step::Kind::loop) continue;
      for (int iteration = 0; iteration < 2; ++iteration) take(loop_of(step).steps);
    }
  }

  /// The first level holds instructions alone; the others share them with the data.
  void take_code(const Step& step) {
    constexpr double l1_bytes = 16 << 10;  // half: a kernel has more lines than run at least once
    constexpr double longer = 2;           // than data, code stays: it is read again while it runs
    const std::size_t code = codes_.of(step);
    if (notes_) {
      cost::Residency& residency = result_.code[&step] = {};
      const double near = code_order_.distance(code);
      if (near >= 0 && near + code_order_.bytes(code) <= l1_bytes) {
        residency.bytes[0] = code_order_.bytes(code);
      } else {
        const double away = order_.distance(first_code_ + code);
        cost::add_found(residency, away / longer, code_order_.bytes(code), model_, 1,
                        order_.age(first_code_ + code));
      }
    }
    code_order_.touch(code);
    order_.touch(first_code_ + code);
  }

  /// Kernels walk through all of their buffers at once: what is touched first makes room for what
  /// comes later.
  void take_data(const Step& step) {
    std::vector<cost::Residency> found(step.buffers.size()), of_team(found.size());
    std::size_t longest = 0;
    const std::vector<Pieces::Range> ranges = ranges_of(plan_, step, pieces_);
    for (const Pieces::Range& range : ranges) longest = std::max(longest, range.last - range.first);
    for (std::size_t at = 0; at < longest; ++at) {
      for (std::size_t k = 0; k < step.buffers.size(); ++k) {
        const Pieces::Range range = ranges[k];
        const std::size_t count = range.last - range.first;
        const std::size_t end = range.first + (at + 1) * count / longest;
        for (std::size_t piece = range.first + at * count / longest; piece < end; ++piece) {
          if (notes_) {
            const double distance = order_.distance(piece), bytes = order_.bytes(piece);
            const double age = order_.age(piece);
            cost::add_found(found[k], distance, bytes, model_, 0, age);
            if (has_team_) cost::add_found(of_team[k], distance, bytes, team_, 0, age / workers_);
          }
          order_.touch(piece, share_of(step));
        }
      }
    }
    if (notes_) result_.data[&step] = std::move(found);
    if (notes_ && has_team_) result_.data_of_team[&step] = std::move(of_team);
  }

  const Plan& plan_;
  const cost::MachineModel& model_;
  const cost::MachineModel team_;
  const int workers_;
  const bool has_team_;
  const Pieces& pieces_;
  const Codes codes_;
  const std::size_t first_code_;  ///< of the pieces
  TouchOrder order_, code_order_;
  bool notes_ = false;  ///< what is found where: not in the first run
  Whereabouts result_;
};

}  // namespace

Whereabouts whereabouts(const Plan& plan, const Pieces& pieces, const cost::MachineModel& model,
                        int workers, const cost::Elsewhere& elsewhere) {
  return Walk(plan, pieces, model, std::max(workers, 1), elsewhere).run();
}

Whereabouts whereabouts_of_first(const Plan& plan, const Pieces& pieces,
                                 const cost::MachineModel& model,
                                 const cost::Elsewhere& elsewhere) {
  return Walk(plan, pieces, model, 0, elsewhere).run();
}

}  // namespace rlx::plan
