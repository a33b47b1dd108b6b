// Who of a team touched each piece of memory last, and what others fetch from its caches.
#include <algorithm>
#include <cmath>

#include "plan/predict.hpp"

namespace rlx::plan {
namespace {

/// Who has a piece in caches of its own: one worker, all of them with nothing written since, or
/// each some lines of it.
struct Owner {
  enum class Kind : std::uint8_t { nobody, one, all, woven } kind = Kind::nobody;
  std::int32_t worker = 0;  ///< one
  bool has_read = false;    ///< one: it fetched what another had written, and wrote nothing since
  double period = 0;        ///< woven: bytes until the same worker comes again; 0: unknown
};

class Owners {
  static constexpr std::int32_t several = -1;
  /// What comes from other workers of a piece.
  struct Touched {
    Crossing bytes;
    std::int32_t worker = several;  ///< who fetches it
  };
  /// Pieces of a turn from which on each of them is one worker's.
  static constexpr double fine_period = 3;

 public:
  using WorkOf = std::function<const cost::KernelWork&(const Step&)>;

  Owners(const Plan& plan, const Pieces& pieces, const Residencies& where, const WorkOf& work_of,
         const cost::Overlap& overlap)
      : plan_(plan),
        pieces_(pieces),
        where_(where),
        work_of_(work_of),
        overlap_(overlap),
        owners_(pieces.bytes().size()),
        crossing_(pieces.bytes().size()) {}

  std::map<const Step*, Crossing> run() {
    // The second run finds what the first one left.
    take(plan_.steps);
    result_.clear();
    take(plan_.steps);
    return std::move(result_);
  }

 private:
  void take(const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      if (step.kind == Step::Kind::kernel) {
        const std::vector<cost::Share>& shares = work_of_(step).shares;
        for (const cost::Share& share : shares) count(step, share);
        sum_up(step);
        for (const cost::Share& share : shares) count_shared_lines(step, share);
        for (const cost::Share& share : shares)
          for_parts(step, share, [&](const Pieces::Range& range, const Owner& by, double) {
            take(range, by, share.written);
            for_beyond(step, share, range, by, [&](std::size_t piece, double part) {
              if (part == 1) take({piece, piece + 1}, by, false);
            });
          });
      } else {
        take_all(step);
      }
      if (step.kind != Step::Kind::loop) continue;
      const LoopPlan& loop = plan_.loops[static_cast<std::size_t>(step.index)];
      for (int iteration = 0; iteration < 2; ++iteration) take(loop.steps);
    }
  }

  /// Of what is not a kernel only the buffers are known: who touched them has them.
  void take_all(const Step& step) {
    for (const std::int32_t buffer : step.buffers) {
      const Pieces::Range range = pieces_.of(buffer);
      std::fill(
          owners_.begin() + static_cast<std::ptrdiff_t>(range.first),
          owners_.begin() + static_cast<std::ptrdiff_t>(range.last),
          step.threads > 1 ? Owner{.kind = Owner::Kind::woven} : Owner{.kind = Owner::Kind::one});
    }
  }

  /// visit(pieces, who touches them, times that the share touches each of them) for the part of
  /// every worker.
  void for_parts(const Step& step, const cost::Share& share, const auto& visit) const {
    const std::int32_t buffer = step.buffers[static_cast<std::size_t>(share.buffer)];
    const BufferPlan& planned = plan_.buffers[static_cast<std::size_t>(buffer)];
    const Pieces::Range range = pieces_.part_of(
        buffer, {static_cast<std::size_t>(share.first), static_cast<std::size_t>(share.last)},
        planned.dtype);
    if (range.first >= range.last) return;
    const auto size = static_cast<double>(size_of(planned.dtype));
    const Team team = team_of(step, share);
    const bool is_parted = team.members > 1 && (share.kind == cost::Share::Kind::in_order ||
                                                share.kind == cost::Share::Kind::reversed);
    const std::size_t parts = is_parted ? static_cast<std::size_t>(team.members) : 1;
    const double whole = pieces_.bytes_of(range);
    const double touched = static_cast<double>(share.elements) * size / whole;
    const bool takes_turns = share.kind == cost::Share::Kind::woven && share.period > 0;
    const double period = takes_turns ? static_cast<double>(share.period) * size : 0;
    const double run = period * share_of_period(share);
    const double piece_bytes = whole / static_cast<double>(range.last - range.first);
    if (team.members > 1 && run >= fine_period * piece_bytes) {
      const double turn = run / team.members;
      const double from = static_cast<double>(share.first) * size;
      std::size_t first = range.first;
      for (std::int64_t turns = 0; first < range.last; ++turns) {
        const std::int64_t periods = turns / team.members, turn_of = turns % team.members;
        const double begin =
            from + static_cast<double>(periods) * period + turn * static_cast<double>(turn_of);
        first = std::max(first, pieces_.at(buffer, begin));
        const std::size_t last =
            std::min(range.last, std::max(pieces_.at(buffer, begin + turn), first + 1));
        if (first >= last) break;
        visit(Pieces::Range{first, last},
              Owner{.kind = Owner::Kind::one,
                    .worker = team.first + static_cast<std::int32_t>(turn_of)},
              touched / share_of_period(share));
        first = last;
      }
      return;
    }
    const cost::Items& items = work_of_(step).items;
    std::size_t begin = range.first;
    for (std::size_t part = 0; part < parts; ++part) {
      const double behind =
          part + 1 == parts ? 0 : bytes_before(items, share, part + 1, parts, size);
      const std::size_t end = part + 1 == parts
                                  ? range.last
                                  : std::clamp(pieces_.at(buffer, behind), begin, range.last);
      visit(Pieces::Range{begin, end}, toucher(team, share, part, parts, size), touched);
      begin = end;
    }
  }

  /// In front of a worker's part of a share that workers have in order, in bytes of the buffer: who
  /// has more of the items has more of them.
  static double bytes_before(const cost::Items& items, const cost::Share& share, std::size_t part,
                             std::size_t parts, double size) {
    const auto workers = static_cast<int>(parts), worker = static_cast<int>(part);
    const bool reversed = share.kind == cost::Share::Kind::reversed;
    const double before = share.parts > 1 ? static_cast<double>(part) / static_cast<double>(parts)
                          : reversed      ? 1 - items.share_before(workers - worker, workers)
                                          : items.share_before(worker, workers);
    const double reached = static_cast<double>(std::max<std::int64_t>(share.reach(), 0)) / 2;
    const double place =
        static_cast<double>(share.begin) + reached + before * static_cast<double>(share.shared_out);
    return std::clamp(place, static_cast<double>(share.first),
                      static_cast<double>(share.last + 1)) *
           size;
  }

  /// The part of a period that workers share out.
  static double share_of_period(const cost::Share& share) {
    return share.run > 0 ? static_cast<double>(share.run) / static_cast<double>(share.period) : 1;
  }

  /// Notes what comes from other workers, as it lies before the step. Accesses to the same lines
  /// fetch them once.
  void count(const Step& step, const cost::Share& share) {
    const std::array<double, 2> near = near_shares(step, static_cast<std::size_t>(share.buffer));
    if (near[0] + near[1] == 0) return;
    const auto touch = [&](std::size_t piece, const Owner& by, double touches, bool beyond) {
      const double times = share_from_others(by, owners_[piece], step.threads, share.written);
      const double whole = pieces_.bytes()[piece], bytes = touches * whole;
      if (times == 0) return;
      Touched& touched = crossing_[piece];
      Crossing& sum = touched.bytes;
      const std::int32_t worker = by.kind == Owner::Kind::one ? by.worker : several;
      if (sum.all_read() + sum.all_written() == 0) {
        touched_.push_back(piece);
        touched.worker = worker;
      }
      if (touched.worker != worker) touched.worker = several;
      const auto add = [&](std::array<double, 2>& parts) {
        for (std::size_t level = 0; level < parts.size(); ++level) {
          double& part = parts[level];
          part = std::min(part + times * near[level] * bytes,
                          std::max(part, times * near[level] * whole));
        }
      };
      add(share.written ? sum.written : sum.read);
      if (beyond) add(sum.beyond);
    };
    for_parts(step, share, [&](const Pieces::Range& range, const Owner& by, double touches) {
      for (std::size_t piece = range.first; piece < range.last; ++piece)
        touch(piece, by, touches, false);
      for_beyond(step, share, range, by,
                 [&](std::size_t piece, double part) { touch(piece, by, touches * part, true); });
    });
  }

  /// visit(piece, the part of it that is read) for what windows read beyond a worker's part, half
  /// of it on each side.
  void for_beyond(const Step& step, const cost::Share& share, const Pieces::Range& range,
                  const Owner& by, const auto& visit) const {
    if (share.written || share.reach() <= 0 || by.kind != Owner::Kind::one) return;
    const std::int32_t buffer = step.buffers[static_cast<std::size_t>(share.buffer)];
    const Pieces::Range all = pieces_.of(buffer);
    const auto size =
        static_cast<double>(size_of(plan_.buffers[static_cast<std::size_t>(buffer)].dtype));
    const double beyond = static_cast<double>(share.reach()) * size / 2;
    const auto reach_over = [&](std::size_t piece, double left) {
      const double whole = pieces_.bytes()[piece], part = std::min(left, whole);
      visit(piece, part / whole);
      return left - part;
    };
    double left = beyond;
    for (std::size_t piece = range.first; piece-- > all.first && left > 0;)
      left = reach_over(piece, left);
    left = beyond;
    for (std::size_t piece = range.last; piece < all.last && left > 0; ++piece)
      left = reach_over(piece, left);
  }

  void sum_up(const Step& step) {
    std::vector<Crossing> workers(static_cast<std::size_t>(step.threads));
    for (const std::size_t piece : touched_) {
      Touched& touched = crossing_[piece];
      if (touched.worker == several) {
        for (Crossing& worker : workers) worker.add(touched.bytes, 1.0 / step.threads);
      } else {
        workers[static_cast<std::size_t>(touched.worker)].add(touched.bytes, 1);
      }
      touched = {};
    }
    touched_.clear();
    result_[&step] = *std::max_element(workers.begin(), workers.end(), [](auto& a, auto& b) {
      return a.all_read() + a.all_written() < b.all_read() + b.all_written();
    });
  }

  /// Where a worker's part of a row begins or ends inside of a line, another one writes the rest of
  /// it: each takes the line from the other. Rows of whole lines are torn only where what workers
  /// take at once is none.
  void count_shared_lines(const Step& step, const cost::Share& share) {
    constexpr double line_bytes = 64;
    const int members = team_of(step, share).members;
    if (members < 2 || !share.written || share.period <= 0) return;
    const std::int32_t buffer = step.buffers[static_cast<std::size_t>(share.buffer)];
    const auto size =
        static_cast<double>(size_of(plan_.buffers[static_cast<std::size_t>(buffer)].dtype));
    const double row = static_cast<double>(share.period) * size;
    const auto ends_inside = [](double bytes) { return std::fmod(bytes, line_bytes) != 0; };
    const bool is_torn_inside = ends_inside(static_cast<double>(share.unit) * size) &&
                                ends_inside(row * share_of_period(share) / members);
    if (!ends_inside(row) && !is_torn_inside) return;
    // Behind the last one's part of a row the first one's part of the next row comes.
    const double ends = share.run == share.period && ends_inside(row) ? 2 : 1;
    const double rows =
        static_cast<double>(share.last - share.first + 1) / static_cast<double>(share.period);
    result_[&step].written[0] += line_bytes * ends * rows;
    result_[&step].torn_lines += ends * rows;
  }

  void take(const Pieces::Range& range, const Owner& by, bool written) {
    for (std::size_t piece = range.first; piece < range.last; ++piece) {
      Owner& owner = owners_[piece];
      if (written || owner.kind == Owner::Kind::nobody) {
        owner = by;
      } else if (!is_same(owner, by)) {
        const bool moves = overlap_.fetched_back > 0 && owner.kind == Owner::Kind::one &&
                           by.kind == Owner::Kind::one && !owner.has_read;
        owner = moves ? Owner{.kind = Owner::Kind::one, .worker = by.worker, .has_read = true}
                      : Owner{.kind = Owner::Kind::all};
      }
    }
  }

  /// The workers of a step that touch a share.
  struct Team {
    std::int32_t first = 0, members = 1;
  };
  static Team team_of(const Step& step, const cost::Share& share) {
    return {share.part * step.threads / share.parts, std::max(step.threads / share.parts, 1)};
  }

  /// Who of a team touches that part, of so many, of elements of `size` bytes.
  static Owner toucher(const Team& team, const cost::Share& share, std::size_t part,
                       std::size_t parts, double size) {
    if (team.members == 1) return {.kind = Owner::Kind::one, .worker = team.first};
    switch (share.kind) {
      case cost::Share::Kind::each:
        // Written by whoever comes there.
        return {.kind = share.written ? Owner::Kind::woven : Owner::Kind::all};
      case cost::Share::Kind::woven:
        return {.kind = Owner::Kind::woven,
                .period = share.run == share.period ? static_cast<double>(share.period) * size : 0};
      case cost::Share::Kind::reversed: part = parts - 1 - part; break;
      case cost::Share::Kind::in_order: break;
    }
    return {.kind = Owner::Kind::one, .worker = team.first + static_cast<std::int32_t>(part)};
  }

  static bool is_same(const Owner& a, const Owner& b) {
    return a.kind == b.kind && a.worker == b.worker && a.period == b.period;
  }

  /// How often a piece is fetched from another worker's caches, or taken from them to be written.
  double share_from_others(const Owner& by, const Owner& owner, int threads, bool written) const {
    if (owner.kind == Owner::Kind::nobody) return 0;
    if (owner.kind == Owner::Kind::all) return written ? 1 : 0;
    if (by.kind == Owner::Kind::all) return threads - 1;
    const bool is_known = by.kind == Owner::Kind::one || by.period > 0;
    if (is_same(by, owner) && is_known) return 0;
    if (by.kind == Owner::Kind::one && owner.kind == Owner::Kind::one)
      return owner.has_read && !written ? overlap_.fetched_back : 1;
    return 1 - 1.0 / std::max(threads, 2);
  }

  /// Of what a step touches of a buffer, the parts that are still in the L1 and L2 of single cores.
  std::array<double, 2> near_shares(const Step& step, std::size_t buffer) const {
    const auto found = where_.find(&step);
    if (found == where_.end()) return {};
    const auto& bytes = found->second[buffer].bytes;
    const double sum = bytes[0] + bytes[1] + bytes[2] + bytes[3];
    if (sum == 0) return {};
    return {bytes[0] / sum, bytes[1] / sum};
  }

  const Plan& plan_;
  const Pieces& pieces_;
  const Residencies& where_;
  const WorkOf& work_of_;
  const cost::Overlap& overlap_;
  std::vector<Owner> owners_;
  std::vector<Touched> crossing_;     ///< by piece, of the step at hand
  std::vector<std::size_t> touched_;  ///< pieces with some
  std::map<const Step*, Crossing> result_;
};

}  // namespace

std::map<const Step*, Crossing> crossings(const Plan& plan, const Pieces& pieces,
                                          const Residencies& where, const Owners::WorkOf& work_of,
                                          const cost::Overlap& overlap) {
  return Owners(plan, pieces, where, work_of, overlap).run();
}

}  // namespace rlx::plan
