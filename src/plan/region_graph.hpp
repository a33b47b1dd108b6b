// Regions while they form: who reads whom, what they move, and merging two into one.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <vector>

#include "plan/regions.hpp"
#include "rlx/cost.hpp"

namespace rlx::plan {

/// The regions of a graph as a graph without circles. Regions are named by their index in
/// Regions::list; one that was merged away has no nodes.
class RegionGraph {
 public:
  RegionGraph(const FlatGraph& flat, Regions& regions);

  const Region& region(std::int32_t index) const {
    return regions_.list[static_cast<std::size_t>(index)];
  }
  const Node& node(std::int32_t index) const {
    return flat_.graph.nodes()[static_cast<std::size_t>(index)];
  }
  const View& view(ValueId id) const {
    return regions_.views[static_cast<std::size_t>(id.node)][static_cast<std::size_t>(id.result)];
  }
  std::int32_t region_of(std::int32_t node) const {
    return node < 0 ? -1 : regions_.region_of[static_cast<std::size_t>(node)];
  }
  /// What the region's product takes longer where workers make whole rows.
  double whole_rows_ns(const Region& product, cost::WholeRows rows,
                       const FusionPolicy& policy) const;
  const std::vector<FlatGraph::Predicate>& predicates(const Region& region) const {
    return flat_.predicates[static_cast<std::size_t>(region.root)];
  }
  const Graph& graph() const { return flat_.graph; }
  std::size_t size() const { return regions_.list.size(); }

  /// Regions whose values a region reads, and those that read its values; in ascending order.
  const std::set<std::int32_t>& sources(std::int32_t region) const {
    return sources_[static_cast<std::size_t>(region)];
  }
  const std::set<std::int32_t>& users(std::int32_t region) const {
    return users_[static_cast<std::size_t>(region)];
  }
  /// Nodes that read a value of this node, directly or through views.
  std::span<const std::int32_t> readers(std::int32_t node) const {
    return readers_[static_cast<std::size_t>(node)];
  }
  /// Does the region evaluate the node?
  bool holds(std::int32_t region, std::int32_t node) const;
  /// Nodes of a region whose values others read, or that are outputs.
  std::span<const std::int32_t> stored(std::int32_t region) const { return border(region).stored; }
  bool is_output(std::int32_t node) const { return outputs_[static_cast<std::size_t>(node)]; }

  /// Does `to` need `from`, over any path; with `around`, over one that has a region in between?
  bool reaches(std::int32_t from, std::int32_t to, bool around) const;

  /// What one kernel of these nodes moves: values from outside, each once and no more than is
  /// touched, and the values that others read. `recomputed` ones among them are never stored.
  GraphIoProfile profile(std::span<const std::int32_t> nodes,
                         std::span<const std::int32_t> recomputed = {}) const;
  GraphIoProfile profile(std::int32_t region) const;
  /// The same of the kernel that two regions would be together. Looks only at what crosses their
  /// borders, not at all their nodes.
  GraphIoProfile profile_of_both(std::int32_t a, std::int32_t b) const;

  /// `from` becomes part of `into`, which keeps its kind and dims unless `reduced` and `dims` say
  /// otherwise.
  void merge(std::int32_t from, std::int32_t into);
  Region& edit(std::int32_t index) { return regions_.list[static_cast<std::size_t>(index)]; }
  /// The nodes of `from` are evaluated again in each region that reads them.
  void dissolve(std::int32_t from);
  /// A map that reads nothing of its own nest, of which it is not all, becomes a region alone,
  /// which is given.
  std::int32_t split_off(std::int32_t node);

 private:
  /// What crosses the border of some nodes.
  struct Border {
    struct Read {
      ValueId base;
      std::int64_t bytes = 0;  ///< touched, each time that it is read
    };
    std::vector<Read> reads;
    std::vector<std::int32_t> stored;  ///< nodes that others read, or that are outputs
    std::int64_t host = 0;             ///< bytes of outputs

    void add(ValueId base, std::int64_t bytes);
  };
  Border border_of(std::span<const std::int32_t> nodes,
                   std::span<const std::int32_t> recomputed) const;
  const Border& border(std::int32_t region) const;
  Border border_of_both(std::int32_t a, std::int32_t b) const;
  GraphIoProfile profile_of(const Border& border) const;

  void connect(std::int32_t reader_node, std::int32_t region);
  /// Does a region evaluate a node that reads one of the other's nodes?
  bool reads(std::int32_t user, std::int32_t source) const;
  std::int64_t stored_bytes(ValueId id) const {
    return bytes_[static_cast<std::size_t>(id.node)][static_cast<std::size_t>(id.result)];
  }

  const FlatGraph& flat_;
  Regions& regions_;
  std::vector<std::set<std::int32_t>> sources_, users_;
  std::vector<std::vector<std::int32_t>> readers_;
  std::vector<bool> outputs_;
  std::vector<std::vector<std::int64_t>> bytes_;  ///< by node: of its results
  mutable std::vector<std::int32_t> stamp_;       ///< by node: the last profile that held it
  mutable std::int32_t now_ = 0;
  mutable std::vector<std::optional<Border>> borders_;  ///< by region, where asked
};

}  // namespace rlx::plan
