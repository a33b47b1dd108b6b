// Orders the work on weights and shares it between threads.
#include "plan/weight_jobs.hpp"

#include <algorithm>
#include <atomic>
#include <map>

#include "base/error.hpp"
#include "plan/negligible.hpp"
#include "rlx/mapped.hpp"

namespace rlx::plan {

void WeightJobs::add(const WeightPlan& weight, const Tensor& source, std::byte* target) {
  add_pieces(weight, source, target, pieces_);
}

// Weights of one base share an entry.
WeightJobs::Derived& WeightJobs::derived_of(const WeightPlan& weight, const Graph& graph,
                                            const WeightValues& common,
                                            std::span<const Tensor> sources) {
  const ValueId base = weight.view.base;
  const auto known = std::ranges::find_if(
      derived_, [&](const Derived& each) { return each.graph == &graph && each.base == base; });
  Derived& from =
      known != derived_.end()
          ? *known
          : derived_.emplace_back(Derived{
                &graph, &common, base, {sources.begin(), sources.end()}, 0, {}, {}, true, {}});
  from.bytes += weight.bytes;
  return from;
}

void WeightJobs::derive(const WeightPlan& weight, const Graph& graph, const WeightValues& common,
                        std::span<const Tensor> sources, std::byte* target) {
  derived_of(weight, graph, common, sources).targets.push_back({&weight, target});
}

void WeightJobs::derive_whole(const WeightPlan& weight, const Graph& graph,
                              const WeightValues& common, std::span<const Tensor> sources,
                              std::shared_ptr<const std::byte>* bytes) {
  Derived& from = derived_of(weight, graph, common, sources);
  from.whole.push_back(bytes);
  from.drops_negligible &= weight.drops_negligible;
}

void WeightJobs::choose_slices() {
  for (Derived& from : derived_) {
    if (!from.whole.empty()) continue;
    from.by_columns = columnwise(*from.graph, from.base, *from.common);
    const std::int64_t columns =
        from.by_columns ? columns_at_a_time(*from.by_columns, from.targets) : 0;
    if (columns == 0) from.by_columns.reset();
    if (columns > 0) memory_.reserve(from.by_columns->bytes(columns));
  }
}

void WeightJobs::add_jobs(const Derived& from) {
  if (!from.by_columns) {
    jobs_.push_back({.derived = &from, .sources = from.sources, .outcome = {}});
    return;
  }
  const std::int64_t columns = from.by_columns->columns();
  const std::int64_t step = columns_at_a_time(*from.by_columns, from.targets);
  for (std::int64_t first = 0; first < columns; first += step)
    jobs_.push_back({.derived = &from,
                     .first = first,
                     .last = std::min(columns, first + step),
                     .sources = from.sources,
                     .outcome = {}});
}

// The largest values come first, which leaves small ones to even out the threads' ends. Values of
// what is packed, too, come right before that: its pages are read once, and soon forgotten.
void WeightJobs::order() {
  std::ranges::stable_sort(derived_, std::greater(), &Derived::bytes);
  std::map<const std::byte*, std::vector<const Derived*>> beside;
  for (const WeightPiece& piece : pieces_) beside[piece.source.data()];
  for (const Derived& from : derived_) {
    const auto packed = std::ranges::find_if(
        from.sources, [&](const Tensor& source) { return beside.contains(source.data()); });
    if (packed != from.sources.end()) {
      beside[packed->data()].push_back(&from);
    } else {
      add_jobs(from);
    }
  }
  for (const WeightPiece& piece : pieces_) {
    for (const Derived* from : std::exchange(beside[piece.source.data()], {})) add_jobs(*from);
    jobs_.push_back({.piece = &piece, .sources = {piece.source}, .outcome = {}});
  }
}

// What has to be computed lives for as long as one thread needs it.
Status WeightJobs::derive(const Job& job) {
  const Derived& from = *job.derived;
  if (from.by_columns)
    return pack_columns(*from.by_columns, job.first, job.last, from.targets, memory_);
  WeightValues own(*from.graph, params_, from.common);
  RLX_ASSIGN(const std::optional<Tensor> value, own.take(from.base));
  RLX_CHECK(value.has_value());
  if (!from.whole.empty()) {
    const Tensor whole = from.drops_negligible ? without_negligible(*value) : *value;
    for (std::shared_ptr<const std::byte>* bytes : from.whole) *bytes = whole.shared_data();
  }
  std::vector<WeightPiece> pieces;
  for (const WeightTarget& to : from.targets) add_pieces(*to.weight, *value, to.memory, pieces);
  for (const WeightPiece& piece : pieces) write_piece(piece);
  return {};
}

void WeightJobs::make(const WeightPiece& piece) const {
  write_piece(piece);
  if (!read_.contains(piece.source.data())) forget_source(piece);
}

Status WeightJobs::run(ThreadPool& pool) {
  choose_slices();
  order();
  std::map<const std::byte*, std::atomic<std::int64_t>> left;
  for (const Job& job : jobs_)
    for (const Tensor& source : job.sources) ++left[source.data()];
  const auto make_one = [&](Job& job) {
    if (job.piece) {
      make(*job.piece);
    } else {
      job.outcome = derive(job);
    }
    for (const Tensor& source : job.sources)
      if (--left.find(source.data())->second == 0 && !read_.contains(source.data()))
        forget_pages(source);
  };
  // Another thread takes as long to wake as so many bytes to make, longer on a busy host.
  constexpr std::int64_t worth_waking = 256 * 1024;
  std::int64_t bytes = 0;
  for (const Derived& from : derived_) bytes += from.bytes;
  for (const WeightPiece& piece : pieces_) bytes += piece.source.bytes();
  const std::int64_t at_once = bytes < worth_waking ? std::ssize(jobs_) : 1;
  pool.parallel_for(std::ssize(jobs_), at_once, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t at = first; at < last; ++at) make_one(jobs_[static_cast<std::size_t>(at)]);
  });
  for (Job& job : jobs_) RLX_TRY(std::move(job.outcome));
  return {};
}

}  // namespace rlx::plan
