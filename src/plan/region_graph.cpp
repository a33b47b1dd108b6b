// The graph of regions.
#include "plan/region_graph.hpp"

#include <algorithm>

#include "rlx/ops.hpp"

namespace rlx::plan {
namespace {

void add_recomputed(Region& region, const std::vector<std::int32_t>& nodes) {
  std::vector<std::int32_t>& all = region.recomputed;
  all.insert(all.end(), nodes.begin(), nodes.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
}

}  // namespace

RegionGraph::RegionGraph(const FlatGraph& flat, Regions& regions)
    : flat_(flat),
      regions_(regions),
      sources_(regions.list.size()),
      users_(regions.list.size()),
      readers_(flat.graph.nodes().size()),
      outputs_(flat.graph.nodes().size(), false),
      stamp_(flat.graph.nodes().size(), 0),
      profiles_(regions.list.size()) {
  for (const Node& each : flat.graph.nodes()) {
    auto& bytes = bytes_.emplace_back();
    for (const Type& type : each.results) bytes.push_back(type.is_static() ? type.bytes() : 0);
  }
  for (std::size_t i = 0; i < readers_.size(); ++i) {
    const auto index = static_cast<std::int32_t>(i);
    for (const ValueId id : node(index).inputs) {
      if (id.node < 0) continue;
      auto& readers = readers_[static_cast<std::size_t>(view(id).base.node)];
      // A view that is no copy reads nothing itself.
      if (region_of(index) >= 0 && (readers.empty() || readers.back() != index))
        readers.push_back(index);
    }
    if (region_of(index) >= 0) connect(index, region_of(index));
  }
  for (const GraphOutput& output : flat.graph.outputs())
    outputs_[static_cast<std::size_t>(view(output.value).base.node)] = true;
}

void RegionGraph::connect(std::int32_t reader, std::int32_t own) {
  const auto add = [&](ValueId id) {
    const std::int32_t source = id.node < 0 ? -1 : region_of(view(id).base.node);
    if (source < 0 || source == own) return;
    sources_[static_cast<std::size_t>(own)].insert(source);
    users_[static_cast<std::size_t>(source)].insert(own);
  };
  for (const ValueId id : node(reader).inputs) add(id);
  for (const FlatGraph::Predicate& predicate : flat_.predicates[static_cast<std::size_t>(reader)]) {
    add(predicate.value);
    outputs_[static_cast<std::size_t>(view(predicate.value).base.node)] = true;  // read by the run
  }
}

bool RegionGraph::reaches(std::int32_t from, std::int32_t to, bool around) const {
  std::vector<std::int32_t> stack;
  std::set<std::int32_t> seen{from};
  const std::int32_t last = region(to).nodes.back();
  const auto push = [&](std::int32_t next) {
    // Nothing that starts behind all of `to` can be needed by it.
    if (region(next).nodes.front() <= last && seen.insert(next).second) stack.push_back(next);
  };
  for (const std::int32_t user : users(from)) {
    if (user != to) push(user);
    else if (!around) return true;
  }
  while (!stack.empty()) {
    const std::int32_t current = stack.back();
    stack.pop_back();
    if (users(current).contains(to)) return true;
    for (const std::int32_t user : users(current)) push(user);
  }
  return false;
}

GraphIoProfile RegionGraph::profile(std::span<const std::int32_t> nodes,
                                    std::span<const std::int32_t> recomputed) const {
  const std::int32_t inside = ++now_;
  for (const std::int32_t index : nodes) stamp_[static_cast<std::size_t>(index)] = inside;
  for (const std::int32_t index : recomputed) stamp_[static_cast<std::size_t>(index)] = inside;
  const auto is_inside = [&](std::int32_t index) {
    return stamp_[static_cast<std::size_t>(index)] == inside;
  };
  std::vector<std::pair<ValueId, std::int64_t>> read;
  std::int64_t traffic = 0, host = 0;
  const auto add_reads = [&](std::int32_t index) {
    for (const ValueId id : node(index).inputs) {
      if (id.node < 0) continue;
      const View& seen = view(id);
      if (is_inside(seen.base.node)) continue;
      const std::int64_t all = stored_bytes(seen.base);
      const auto element = static_cast<std::int64_t>(size_of(graph().type(seen.base).dtype));
      if (all == element && node(seen.base.node).op.is<op::Constant>()) continue;
      auto known = std::ranges::find(read, seen.base, &std::pair<ValueId, std::int64_t>::first);
      if (known == read.end()) known = read.insert(known, {seen.base, 0});
      known->second = std::min(all, known->second + seen.elements() * element);
    }
  };
  for (const std::int32_t index : recomputed) add_reads(index);
  for (const std::int32_t index : nodes) {
    add_reads(index);
    const auto all = readers(index);
    const bool stored = is_output(index) || !std::all_of(all.begin(), all.end(), is_inside);
    for (const std::int64_t bytes : bytes_[static_cast<std::size_t>(index)]) {
      if (stored) traffic += bytes;
      if (is_output(index)) host += bytes;
    }
  }
  for (const auto& [base, bytes] : read) traffic += bytes;
  return {1, 0, host, traffic};
}

GraphIoProfile RegionGraph::profile(std::int32_t index) const {
  auto& known = profiles_[static_cast<std::size_t>(index)];
  if (!known) known = profile(region(index).nodes, region(index).recomputed);
  return *known;
}

void RegionGraph::merge(std::int32_t from, std::int32_t into) {
  profiles_[static_cast<std::size_t>(into)].reset();
  Region& gone = edit(from);
  Region& kept = edit(into);
  for (const std::int32_t index : gone.nodes)
    regions_.region_of[static_cast<std::size_t>(index)] = into;
  kept.nodes.insert(kept.nodes.end(), gone.nodes.begin(), gone.nodes.end());
  std::sort(kept.nodes.begin(), kept.nodes.end());
  gone.nodes.clear();
  add_recomputed(kept, gone.recomputed);
  const auto move = [&](std::vector<std::set<std::int32_t>>& edges,
                        std::vector<std::set<std::int32_t>>& back) {
    for (const std::int32_t other : edges[static_cast<std::size_t>(from)]) {
      back[static_cast<std::size_t>(other)].erase(from);
      if (other == into) continue;
      edges[static_cast<std::size_t>(into)].insert(other);
      back[static_cast<std::size_t>(other)].insert(into);
    }
    edges[static_cast<std::size_t>(from)].clear();
    edges[static_cast<std::size_t>(into)].erase(from);
  };
  move(sources_, users_);
  move(users_, sources_);
}

void RegionGraph::dissolve(std::int32_t from) {
  profiles_.assign(profiles_.size(), std::nullopt);  // what the others store may change, too
  const Region gone = region(from);
  for (const std::int32_t user : users(from)) {
    add_recomputed(edit(user), gone.nodes);
    add_recomputed(edit(user), gone.recomputed);
    sources_[static_cast<std::size_t>(user)].erase(from);
    for (const std::int32_t source : sources(from)) {
      sources_[static_cast<std::size_t>(user)].insert(source);
      users_[static_cast<std::size_t>(source)].insert(user);
    }
  }
  for (const std::int32_t source : sources(from))
    users_[static_cast<std::size_t>(source)].erase(from);
  for (const std::int32_t index : gone.nodes) {
    regions_.region_of[static_cast<std::size_t>(index)] = -1;
    // Whoever evaluates the node reads its operands.
    for (const ValueId id : node(index).inputs) {
      if (id.node < 0) continue;
      auto& readers = readers_[static_cast<std::size_t>(view(id).base.node)];
      const auto& again = readers_[static_cast<std::size_t>(index)];
      readers.insert(readers.end(), again.begin(), again.end());
    }
  }
  edit(from).nodes.clear();
  sources_[static_cast<std::size_t>(from)].clear();
  users_[static_cast<std::size_t>(from)].clear();
}

}  // namespace rlx::plan
