// Where data lies when a step starts: caches keep what was touched last, so the bytes that were
// touched since tell the level.
#include <algorithm>

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

/// Memory as the caches see it: pieces of the arena and of every other buffer.
class Pieces {
 public:
  struct Range {
    std::size_t first = 0, last = 0;
  };

  explicit Pieces(const Plan& plan) : ranges_(plan.buffers.size()) {
    const std::size_t arena = pieces_of(plan.arena_bytes);
    bytes_.assign(arena, static_cast<double>(piece_bytes));
    for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
      const BufferPlan& buffer = plan.buffers[i];
      if (buffer.bytes() <= 0 || buffer.storage == Storage::worker) continue;
      if (buffer.storage == Storage::arena) {
        const auto first = static_cast<std::size_t>(buffer.offset / piece_bytes);
        ranges_[i] = {first, std::max(pieces_of(buffer.offset + buffer.bytes()), first + 1)};
        continue;
      }
      const std::size_t count = std::min<std::size_t>(pieces_of(buffer.bytes()), 4096);
      ranges_[i] = {bytes_.size(), bytes_.size() + count};
      bytes_.insert(bytes_.end(), count,
                    static_cast<double>(buffer.bytes()) / static_cast<double>(count));
    }
    for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
      if (plan.buffers[i].storage == Storage::arena)
        ranges_[i].last = std::min(ranges_[i].last, std::max(arena, ranges_[i].first));
    }
  }

  std::size_t count() const { return bytes_.size(); }
  Range of(std::int32_t buffer) const { return ranges_[static_cast<std::size_t>(buffer)]; }
  double bytes(std::size_t piece) const { return bytes_[piece]; }

 private:
  static constexpr std::int64_t piece_bytes = 4096;
  static std::size_t pieces_of(std::int64_t bytes) {
    return static_cast<std::size_t>((std::max<std::int64_t>(bytes, 0) + piece_bytes - 1) /
                                    piece_bytes);
  }

  std::vector<Range> ranges_;
  std::vector<double> bytes_;
};

/// Touches pieces in the order of the run; knows how much else was touched since.
class TouchOrder {
 public:
  TouchOrder(const Pieces& pieces, std::size_t touches)
      : pieces_(pieces), sums_(touches), last_(pieces.count(), never) {}

  /// Bytes of other pieces touched since this one; negative: it was never touched.
  double distance(std::size_t piece) const {
    if (last_[piece] == never) return -1;
    return sums_.before(now_) - sums_.before(last_[piece]);
  }
  void touch(std::size_t piece) {
    if (last_[piece] != never) sums_.add(last_[piece], -pieces_.bytes(piece));
    last_[piece] = now_;
    sums_.add(now_++, pieces_.bytes(piece));
  }

 private:
  static constexpr std::size_t never = ~std::size_t{0};
  const Pieces& pieces_;
  PrefixSums sums_;
  std::vector<std::size_t> last_;
  std::size_t now_ = 0;
};

cost::Level level_at(double distance, const cost::MachineModel& model) {
  if (distance < 0) return cost::Level::memory;
  // Sets fill unevenly: the last part of a cache keeps little.
  for (std::size_t level = 0; level < 3; ++level) {
    if (distance < 0.9 * static_cast<double>(model.cache_bytes[level]))
      return static_cast<cost::Level>(level);
  }
  return cost::Level::memory;
}

/// Touches of all steps; those of loops are made twice.
std::size_t touches_of(const Plan& plan, const std::vector<Step>& steps, const Pieces& pieces) {
  std::size_t touches = 0;
  for (const Step& step : steps) {
    for (const std::int32_t buffer : step.buffers)
      touches += pieces.of(buffer).last - pieces.of(buffer).first;
    if (step.kind == Step::Kind::loop)
      touches +=
          2 * touches_of(plan, plan.loops[static_cast<std::size_t>(step.index)].steps, pieces);
  }
  return touches;
}

void walk(const Plan& plan, const std::vector<Step>& steps, const Pieces& pieces,
          const cost::MachineModel& model, TouchOrder& order, Residencies& result) {
  for (const Step& step : steps) {
    std::vector<cost::Residency>& list = result[&step];
    list.assign(step.buffers.size(), {});
    for (std::size_t k = 0; k < step.buffers.size(); ++k) {
      const Pieces::Range range = pieces.of(step.buffers[k]);
      for (std::size_t piece = range.first; piece < range.last; ++piece)
        list[k].bytes[static_cast<std::size_t>(level_at(order.distance(piece), model))] +=
            pieces.bytes(piece);
    }
    for (const std::int32_t buffer : step.buffers) {
      const Pieces::Range range = pieces.of(buffer);
      for (std::size_t piece = range.first; piece < range.last; ++piece) order.touch(piece);
    }
    if (step.kind != Step::Kind::loop) continue;
    const LoopPlan& loop = plan.loops[static_cast<std::size_t>(step.index)];
    for (int iteration = 0; iteration < 2; ++iteration)
      walk(plan, loop.steps, pieces, model, order, result);
  }
}

}  // namespace

Residencies residencies(const Plan& plan, const cost::MachineModel& model) {
  const Pieces pieces(plan);
  TouchOrder order(pieces, 2 * touches_of(plan, plan.steps, pieces));
  Residencies result;
  // The second run finds what the first one left.
  for (int run = 0; run < 2; ++run) walk(plan, plan.steps, pieces, model, order, result);
  return result;
}

}  // namespace rlx::plan
