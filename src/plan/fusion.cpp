// Fusions by benefit: a queue of pairs of regions, the greatest gain first.
#include "plan/fusion.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <queue>
#include <tuple>

#include "cost/kernel_cost.hpp"
#include "graph/op_info.hpp"
#include "plan/fusion_rules.hpp"
#include "rlx/ops.hpp"

namespace rlx::plan {
namespace {

class Planner {
 public:
  Planner(const FlatGraph& flat, const FusionPolicy& policy, Regions& regions)
      : policy_(policy), regions_(regions), graph_(flat, regions) {
    versions_.assign(graph_.size(), 0);
  }

  void run() {
    for (std::int32_t r = 0; r < count(); ++r) push_users(r);
    merge_best_first();
    for (std::int32_t r = 0; r < count(); ++r) ask_to_recompute(r);
    const std::int32_t whole_ones = count();
    for (std::int32_t r = 0; r < whole_ones; ++r) ask_to_recompute_members(r);
    for (std::int32_t r = 0; r < count(); ++r) push_siblings(r);
    merge_best_first();
  }

 private:
  enum class Kind : std::uint8_t { consumer, producer, sibling };

  /// May two regions be one kernel, and is it worth it?
  struct Candidate {
    double score = 0;
    int rank = 0;  ///< contractions gather what follows them first
    std::int32_t from = -1, into = -1;
    Kind kind = Kind::consumer;
    int from_version = 0, into_version = 0;

    /// The last in this order is taken first.
    bool operator<(const Candidate& other) const {
      return std::tuple(score, rank, -into, -from) <
             std::tuple(other.score, other.rank, -other.into, -other.from);
    }
  };

  std::int32_t count() const { return static_cast<std::int32_t>(graph_.size()); }
  bool is_live(std::int32_t r) const { return !graph_.region(r).nodes.empty(); }
  int version(std::int32_t r) const { return versions_[static_cast<std::size_t>(r)]; }

  // ---- questions --------------------------------------------------------------------------------

  /// Before and after of a merge, and the score.
  FusionQuestion question(std::int32_t from, std::int32_t into, Kind kind) const {
    const Region& a = graph_.region(from);
    const Region& b = graph_.region(into);
    FusionQuestion asked;
    asked.before = graph_.profile(from) + graph_.profile(into);
    asked.after = graph_.profile_of_both(from, into);
    if (kind != Kind::sibling)
      asked.work_added_ns = whole_results_ns(a, b) + partly_filled_ns(a, b);
    decide(asked, policy_.gate);
    return asked;
  }

  /// What a product takes longer where the rows that the other region reduces join it.
  double whole_results_ns(const Region& a, const Region& b) const {
    const Region& product = a.kind == Region::Kind::contraction ? a : b;
    const Region& other = &product == &a ? b : a;
    const bool joins = product.kind == Region::Kind::contraction && product.reduced.empty() &&
                       !other.reduced.empty();
    return joins ? graph_.whole_rows_ns(product, cost::WholeRows::results, policy_) : 0;
  }

  /// What the map of the two takes longer where the other one reduces its rows.
  double partly_filled_ns(const Region& a, const Region& b) const {
    const bool first = a.reduced.empty();
    const Region& map = first ? a : b;
    return short_rows_ns(graph_, map, first ? b : a, policy_) /
           workers(static_cast<double>(element_count(map.dims)));
  }

  /// Threads that share so many points of a map.
  double workers(double points) const {
    constexpr double enough = 1e5;
    return points > enough ? std::max(policy_.threads, 1) : 1;
  }

  std::string name_of_region(std::int32_t r) const {
    const Region& region = graph_.region(r);
    std::string text = fmt::format("{} %{}", graph_.node(region.root).op.name(), region.root);
    if (region.nodes.size() > 1) text += fmt::format(" (+{})", region.nodes.size() - 1);
    return text;
  }

  /// The producer's region first, as the user reads the graph.
  std::string what(const Candidate& candidate) const {
    const std::string from = name_of_region(candidate.from), into = name_of_region(candidate.into);
    if (candidate.kind == Kind::sibling) return fmt::format("run {} beside {}", from, into);
    return fmt::format("join {} to {}", from, into);
  }

  // ---- pairs ------------------------------------------------------------------------------------

  void push(std::int32_t producer, std::int32_t consumer) {
    // A map joins the kernel that reads it; everything else is joined by what follows.
    Candidate candidate{.from = consumer, .into = producer, .kind = Kind::consumer};
    const Region& p = graph_.region(producer);
    const Region& c = graph_.region(consumer);
    if (fits_after(graph_, p, c)) {
      candidate.kind = Kind::consumer;
    } else if (fits_before(graph_, p, c)) {
      candidate.kind = Kind::producer;
      std::swap(candidate.from, candidate.into);
    } else {
      return;
    }
    enqueue(candidate);
  }

  void enqueue(Candidate candidate) {
    // Each merge looks at all nodes of both: without a limit long chains take the square of their
    // length, and code generators more.
    constexpr std::size_t most_nodes = 2048;
    if (graph_.region(candidate.from).nodes.size() + graph_.region(candidate.into).nodes.size() >
        most_nodes)
      return;
    candidate.score = question(candidate.from, candidate.into, candidate.kind).score_ns;
    const Region::Kind kind = graph_.region(candidate.into).kind;
    const bool windows = kind == Region::Kind::window || kind == Region::Kind::tiles;
    candidate.rank = kind == Region::Kind::contraction ? 2 : windows ? 1 : 0;
    candidate.from_version = version(candidate.from);
    candidate.into_version = version(candidate.into);
    queue_.push(candidate);
  }

  void push_users(std::int32_t producer) {
    if (!is_live(producer)) return;
    for (const std::int32_t consumer : graph_.users(producer)) push(producer, consumer);
  }

  /// Whether two nodes read the same of a value, or parts that lie side by side in it. Of what lies
  /// farther apart one would wait for the other, and nothing is read less often; in a small value
  /// that is not long.
  bool read_alike(std::int32_t a, std::int32_t b, ValueId base) const {
    constexpr std::int64_t small_bytes = 64 * 1024, page_bytes = 4096;
    const Type& type = graph_.graph().type(base);
    if (type.bytes() <= small_bytes) return true;
    const std::int64_t page = page_bytes / static_cast<std::int64_t>(size_of(type.dtype));
    const auto reads = [&](ValueId id) { return id.node >= 0 && graph_.view(id).base == base; };
    for (const ValueId of_a : graph_.node(a).inputs) {
      for (const ValueId of_b : graph_.node(b).inputs) {
        if (reads(of_a) && reads(of_b) &&
            !show_other_blocks(graph_.view(of_a), graph_.view(of_b), page))
          return true;
      }
    }
    return false;
  }

  /// Regions over the same points that read one of the values that this one reads.
  void push_siblings(std::int32_t r) {
    if (!is_live(r) || graph_.region(r).kind != Region::Kind::nest) return;
    std::set<std::int32_t> seen;
    for (const std::int32_t index : graph_.region(r).nodes) {
      for (const ValueId id : graph_.node(index).inputs) {
        if (id.node < 0 || graph_.graph().type(graph_.view(id).base).elements() < 16) continue;
        for (const std::int32_t reader : graph_.readers(graph_.view(id).base.node)) {
          const std::int32_t other = graph_.region_of(reader);
          if (other <= r || seen.contains(other) ||
              !read_alike(index, reader, graph_.view(id).base))
            continue;
          seen.insert(other);
          if (fits_beside(graph_, graph_.region(r), graph_.region(other)))
            enqueue({.from = other, .into = r, .kind = Kind::sibling});
        }
      }
    }
  }

  bool keeps_order(const Candidate& candidate) const {
    if (candidate.kind == Kind::consumer)
      return !graph_.reaches(candidate.into, candidate.from, true);
    if (candidate.kind == Kind::producer)
      return !graph_.reaches(candidate.from, candidate.into, true);
    return !graph_.reaches(candidate.into, candidate.from, false) &&
           !graph_.reaches(candidate.from, candidate.into, false);
  }

  void merge_best_first() {
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      if (!is_live(best.from) || !is_live(best.into) || version(best.from) != best.from_version ||
          version(best.into) != best.into_version)
        continue;
      if (!keeps_order(best)) continue;
      FusionQuestion asked = question(best.from, best.into, best.kind);
      constexpr const char* kinds[] = {"consumer", "producer", "sibling"};
      asked.kind = kinds[static_cast<std::size_t>(best.kind)];
      asked.what = what(best);
      if (decide(asked, policy_.gate, policy_.given)) merge(best);
      regions_.questions.push_back(std::move(asked));
    }
  }

  void merge(const Candidate& best) {
    const Region& from = graph_.region(best.from);
    if (graph_.region(best.into).reduced.empty() && !from.reduced.empty()) {
      graph_.edit(best.into).reduced = from.reduced;
      // Rows that join a reduction take its points.
      if (graph_.region(best.into).kind == Region::Kind::nest)
        graph_.edit(best.into).dims = from.dims;
    }
    graph_.merge(best.from, best.into);
    ++versions_[static_cast<std::size_t>(best.into)];
    const std::set<std::int32_t> sources = graph_.sources(best.into);
    for (const std::int32_t source : sources) push(source, best.into);
    push_users(best.into);
    if (best.kind == Kind::sibling) push_siblings(best.into);
  }

  // ---- maps made anew ---------------------------------------------------------------------------

  /// All readers evaluate the map where they read it, and it is never stored: all or none, since
  /// one reader that loads keeps the kernel and the buffer.
  void ask_to_recompute(std::int32_t r) {
    if (!is_live(r) || !may_recompute(graph_, r)) return;
    GraphIoProfile before = graph_.profile(r);
    for (const std::int32_t user : graph_.users(r)) before = before + graph_.profile(user);
    if (pays_to_recompute(r, before)) dissolve(r);
  }

  /// The same of maps that kernels store for others beside what they make of them: a norm's kernel
  /// that centres its image and sums the squares leaves it to those who scale it to centre it, too.
  void ask_to_recompute_members(std::int32_t r) {
    if (!is_live(r) || graph_.region(r).kind != Region::Kind::nest) return;
    const auto stored = graph_.stored(r);
    for (const std::int32_t member : std::vector(stored.begin(), stored.end())) {
      if (graph_.region(r).nodes.size() == 1 || graph_.is_output(member) || !stands_alone(member))
        continue;
      GraphIoProfile before = graph_.profile(r);
      std::set<std::int32_t> users;
      for (const std::int32_t reader : graph_.readers(member))
        users.insert(graph_.region_of(reader));
      if (users.contains(-1)) continue;
      for (const std::int32_t user : users)
        if (user != r) before = before + graph_.profile(user);
      const std::int32_t alone = graph_.split_off(member);
      versions_.push_back(0);
      if (may_recompute(graph_, alone) && pays_to_recompute(alone, before)) dissolve(alone);
      else graph_.merge(alone, r);
    }
  }

  /// A map of values that its own region does not make.
  bool stands_alone(std::int32_t index) const {
    const Node& node = graph_.node(index);
    const auto is_outside = [&](ValueId id) {
      return id.node < 0 || !graph_.holds(graph_.region_of(index), graph_.view(id).base.node);
    };
    return node.op.info().traits.elementwise && std::ranges::all_of(node.inputs, is_outside);
  }

  bool pays_to_recompute(std::int32_t r, const GraphIoProfile& before) {
    const Region region = graph_.region(r);
    FusionQuestion asked{.what = fmt::format("make {} anew in {} kernels", name_of_region(r),
                                             graph_.users(r).size()),
                         .kind = "recompute",
                         .before = before};
    double points = 0;
    for (const std::int32_t user : graph_.users(r)) {
      const Region& reader = graph_.region(user);
      asked.work_added_ns += partly_filled_ns(region, reader);
      std::vector<std::int32_t> recomputed = reader.recomputed;
      recomputed.insert(recomputed.end(), region.nodes.begin(), region.nodes.end());
      recomputed.insert(recomputed.end(), region.recomputed.begin(), region.recomputed.end());
      asked.after = asked.after + graph_.profile(reader.nodes, recomputed);
      points += points_read(graph_, r, reader);
    }
    points -= static_cast<double>(element_count(region.dims));
    asked.work_added_ns += std::max(0.0, points) / policy_.lanes *
                           register_ns(graph_, region, policy_) / workers(points);
    decide(asked, policy_.gate, policy_.given);
    const bool pays = asked.fused;
    regions_.questions.push_back(std::move(asked));
    return pays;
  }

  void dissolve(std::int32_t r) {
    for (const std::int32_t user : graph_.users(r)) ++versions_[static_cast<std::size_t>(user)];
    graph_.dissolve(r);
  }

  const FusionPolicy& policy_;
  Regions& regions_;
  RegionGraph graph_;
  std::vector<int> versions_;
  std::priority_queue<Candidate> queue_;
};

}  // namespace

FusionPolicy fusion_policy(const cost::MachineModel& model, int threads, bool enabled) {
  FusionPolicy policy{.enabled = enabled, .threads = threads};
  policy.lanes = model.machine.lanes(4);
  policy.expression_ns = [model](std::span<const ScalarNode> nodes) {
    return cost::expression_ns(nodes, model);
  };
  policy.whole_rows_ns = [model, threads](const ProductShape& shape, DType a, DType b, bool weight,
                                          cost::WholeRows rows) {
    return cost::whole_rows_ns(shape, a, b, weight, rows, model, threads);
  };
  if (model.calibrated) {
    policy.gate.dispatch_ns = model.kernel + model.item + (threads > 1 ? model.barrier : 0);
    // What a kernel hands to the next one lies in L2 as a rule.
    policy.gate.memory_bw = model.read[static_cast<std::size_t>(cost::Level::l2)];
  }
  return policy;
}

void fuse(const FlatGraph& flat, const FusionPolicy& policy, Regions& regions) {
  Planner(flat, policy, regions).run();
}

}  // namespace rlx::plan
