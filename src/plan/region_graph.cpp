// The graph of regions.
#include "plan/region_graph.hpp"

#include <algorithm>

#include "graph/product_shape.hpp"
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
      borders_(regions.list.size()) {
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

void RegionGraph::Border::add(ValueId base, std::int64_t bytes) {
  auto known = std::ranges::find(reads, base, &Read::base);
  if (known == reads.end()) known = reads.insert(known, {base});
  known->bytes += bytes;
}

RegionGraph::Border RegionGraph::border_of(std::span<const std::int32_t> nodes,
                                           std::span<const std::int32_t> recomputed) const {
  const std::int32_t inside = ++now_;
  for (const std::int32_t index : nodes) stamp_[static_cast<std::size_t>(index)] = inside;
  for (const std::int32_t index : recomputed) stamp_[static_cast<std::size_t>(index)] = inside;
  const auto is_inside = [&](std::int32_t index) {
    return stamp_[static_cast<std::size_t>(index)] == inside;
  };
  Border border;
  const auto add_reads = [&](std::int32_t index) {
    for (const ValueId id : node(index).inputs) {
      if (id.node < 0) continue;
      const View& seen = view(id);
      if (is_inside(seen.base.node)) continue;
      const auto element = static_cast<std::int64_t>(size_of(graph().type(seen.base).dtype));
      if (stored_bytes(seen.base) == element && node(seen.base.node).op.is<op::Constant>())
        continue;
      border.add(seen.base, seen.elements() * element);
    }
  };
  for (const std::int32_t index : recomputed) add_reads(index);
  for (const std::int32_t index : nodes) {
    add_reads(index);
    const auto all = readers(index);
    if (is_output(index) || !std::ranges::all_of(all, is_inside)) border.stored.push_back(index);
    if (!is_output(index)) continue;
    for (const std::int64_t bytes : bytes_[static_cast<std::size_t>(index)]) border.host += bytes;
  }
  return border;
}

const RegionGraph::Border& RegionGraph::border(std::int32_t index) const {
  auto& known = borders_[static_cast<std::size_t>(index)];
  if (!known) known = border_of(region(index).nodes, region(index).recomputed);
  return *known;
}

bool RegionGraph::holds(std::int32_t index, std::int32_t node) const {
  const std::int32_t own = region_of(node);
  return own >= 0 ? own == index : std::ranges::binary_search(region(index).recomputed, node);
}

RegionGraph::Border RegionGraph::border_of_both(std::int32_t a, std::int32_t b) const {
  const auto is_inside = [&](std::int32_t index) { return holds(a, index) || holds(b, index); };
  const Border &of_a = border(a), &of_b = border(b);
  Border both{.host = of_a.host + of_b.host};
  for (const Border* each : {&of_a, &of_b}) {
    for (const Border::Read& read : each->reads)
      if (!is_inside(read.base.node)) both.add(read.base, read.bytes);
    for (const std::int32_t index : each->stored)
      if (is_output(index) || !std::ranges::all_of(readers(index), is_inside))
        both.stored.push_back(index);
  }
  return both;
}

GraphIoProfile RegionGraph::profile_of(const Border& border) const {
  std::int64_t traffic = 0;
  for (const auto& [base, bytes] : border.reads) traffic += std::min(stored_bytes(base), bytes);
  for (const std::int32_t index : border.stored)
    for (const std::int64_t bytes : bytes_[static_cast<std::size_t>(index)]) traffic += bytes;
  return {1, 0, border.host, traffic};
}

GraphIoProfile RegionGraph::profile(std::span<const std::int32_t> nodes,
                                    std::span<const std::int32_t> recomputed) const {
  return profile_of(border_of(nodes, recomputed));
}

GraphIoProfile RegionGraph::profile(std::int32_t index) const { return profile_of(border(index)); }

GraphIoProfile RegionGraph::profile_of_both(std::int32_t a, std::int32_t b) const {
  return profile_of(border_of_both(a, b));
}

double RegionGraph::whole_rows_ns(const Region& product, cost::WholeRows rows,
                                  const FusionPolicy& policy) const {
  const Node& root = node(product.root);
  const auto shape = product_shape(graph(), root);
  if (!shape || !policy.whole_rows_ns) return 0;
  const auto dtype = [&](ValueId operand) {
    return graph().type(operand_read(graph(), regions_, operand)).dtype;
  };
  const ValueId a = root.inputs[0], b = root.inputs[1];
  const bool weight = regions_.weight_only[static_cast<std::size_t>(b.node)];
  return policy.whole_rows_ns(*shape, dtype(a), dtype(b), weight, rows);
}

void RegionGraph::merge(std::int32_t from, std::int32_t into) {
  borders_[static_cast<std::size_t>(into)] = border_of_both(from, into);
  borders_[static_cast<std::size_t>(from)].reset();
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
  borders_.assign(borders_.size(), std::nullopt);  // what the others store may change, too
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

std::int32_t RegionGraph::split_off(std::int32_t member) {
  const std::int32_t whole = region_of(member), alone = static_cast<std::int32_t>(size());
  Region& rest = edit(whole);
  std::erase(rest.nodes, member);
  if (rest.root == member) rest.root = rest.nodes.back();
  Region& map = regions_.list.emplace_back();
  map.kind = Region::Kind::nest;
  map.nodes = {member};
  map.root = member;
  map.dims = node(member).results[0].dims();
  regions_.region_of[static_cast<std::size_t>(member)] = alone;
  sources_.emplace_back();
  users_.emplace_back();
  borders_.emplace_back();
  borders_[static_cast<std::size_t>(whole)].reset();
  connect(member, alone);
  for (const std::int32_t reader : readers(member)) {
    const std::int32_t user = region_of(reader);
    sources_[static_cast<std::size_t>(user)].insert(alone);
    users_[static_cast<std::size_t>(alone)].insert(user);
    if (user == whole || reads(user, whole)) continue;
    sources_[static_cast<std::size_t>(user)].erase(whole);
    users_[static_cast<std::size_t>(whole)].erase(user);
  }
  return alone;
}

bool RegionGraph::reads(std::int32_t user, std::int32_t source) const {
  const auto has_reader = [&](std::int32_t index) {
    return std::ranges::any_of(readers(index),
                               [&](std::int32_t reader) { return holds(user, reader); });
  };
  return std::ranges::any_of(region(source).nodes, has_reader);
}

}  // namespace rlx::plan
