// Text of kernels: one line for each buffer, access, node and store; the same kernel always gives
// the same bytes.
#include "codegen/loop.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string_view>

namespace rlx::loop {
namespace {

using Numbers = std::vector<std::int64_t>;

class Writer {
 public:
  template <class... Arguments>
  void line(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Arguments>(arguments)...);
    text_ += '\n';
  }

  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

std::string list(const Numbers& numbers) { return fmt::format("[{}]", fmt::join(numbers, ",")); }

std::string text_of(const Guard& guard) {
  return fmt::format(" guard(0<={}+{}<{})", guard.offset, list(guard.coefficients), guard.extent);
}

std::string text_of(const Access& access) {
  std::string text = fmt::format("b{} {}+{}", access.buffer, access.offset, list(access.strides));
  for (const Indirect& part : access.indirect) {
    text += fmt::format(" indirect(%{}*{}<{}", part.node, part.stride, part.extent);
    if (part.within) text += fmt::format(" within, step {}", part.step);
    text += ")";
  }
  for (const Guard& guard : access.guards) text += text_of(guard);
  if (!access.guards.empty()) text += fmt::format(" else {}", access.fill);
  return text;
}

std::string text_of(const ScalarNode& node) {
  std::string text = fmt::format("{} {}", name_of(node.op), name_of(node.dtype));
  switch (node.op) {
    case ScalarOp::constant:
      return text + (is_float(node.dtype) || is_complex(node.dtype)
                         ? fmt::format(" {}", node.value)
                         : fmt::format(" {}", node.integer));
    case ScalarOp::load:
    case ScalarOp::domain_index: return text + fmt::format(" #{}", node.index);
    case ScalarOp::accumulator:
      return node.index < 0 ? text : text + fmt::format(" #{}", node.index);
    case ScalarOp::reduce: text += fmt::format(" {}", name_of(node.reduce_kind)); break;
    default: break;
  }
  for (const ScalarId operand : {node.a, node.b, node.c}) {
    if (operand >= 0) text += fmt::format(" %{}", operand);
  }
  return text;
}

void write_expression(Writer& out, const std::vector<Access>& accesses,
                      const std::vector<ScalarNode>& nodes, const std::vector<Store>& stores,
                      std::int32_t error_buffer) {
  for (std::size_t i = 0; i < accesses.size(); ++i) out.line("  #{} {}", i, text_of(accesses[i]));
  for (std::size_t i = 0; i < nodes.size(); ++i) out.line("  %{} {}", i, text_of(nodes[i]));
  for (const Store& store : stores) out.line("  store %{} {}", store.node, text_of(store.access));
  if (error_buffer >= 0) out.line("  error b{}", error_buffer);
}

void write_nest(Writer& out, std::string_view title, const Nest& nest) {
  out.line("{} {} parallel {}{}{}", title, list(nest.extents), nest.parallel_dims,
           nest.parts == 1 ? "" : fmt::format(" in {} parts", nest.parts),
           nest.lead == 0 ? "" : fmt::format(" lead {}", nest.lead));
  write_expression(out, nest.accesses, nest.nodes, nest.stores, nest.error_buffer);
}

void write_contraction(Writer& out, const Contraction& c) {
  out.line("contraction batch {} m {} n {} k {} in {}{}", list(c.batch_extents), list(c.m_extents),
           c.n, list(c.k_extents), name_of(c.accumulator), c.in_order ? " in order" : "");
  std::string a = fmt::format("b{} {}+{}{}{}", c.a_buffer, c.a_offset, list(c.a_batch_strides),
                              list(c.a_m_strides), list(c.a_k_strides));
  for (const Guard& guard : c.a_guards) a += text_of(guard);
  out.line("  a {}", a);
  if (c.b_packed) {
    const std::string group = c.k_group == 1 ? "" : fmt::format("x{}", c.k_group);
    out.line("  b b{} packed {}{} {}+{}", c.b_buffer, c.panel_width,
             c.b_nibbles ? " nibbles" : group, c.b_offset, list(c.b_batch_strides));
    if (c.scales_b()) {
      out.line("  scales b{} zeros b{} of {} blocks", c.b_scale_buffer, c.b_zero_buffer,
               c.b_blocks);
    }
  } else {
    out.line("  b b{} {}+{}{}[{}]", c.b_buffer, c.b_offset, list(c.b_batch_strides),
             list(c.b_k_strides), c.b_n_stride);
  }
  write_expression(out, c.accesses, c.nodes, c.stores, c.error_buffer);
  if (!c.row_epilogue.nodes.empty()) write_nest(out, "rows", c.row_epilogue);
}

std::string start_of(const Recurrence& r, std::size_t state) {
  if (r.step_buffer >= 0) return "the step before";
  return r.initial[state].buffer < 0 ? "zeros" : text_of(r.initial[state]);
}

void write_recurrence(Writer& out, const Recurrence& r) {
  out.line("recurrence directions {} batch {} steps {} units {} reversed from {}", r.directions,
           r.batch, r.steps, r.units, r.first_reversed);
  out.line("  r b{} packed {} gates {} early {} late input %{}", r.r_buffer, r.panel_width, r.gates,
           r.early_gates, r.late_input);
  if (r.step_buffer >= 0) out.line("  step of b{}", r.step_buffer);
  write_expression(out, r.accesses, r.nodes, r.stores, -1);
  for (std::size_t i = 0; i < r.next.size(); ++i) {
    out.line("  state {} from {} next %{} last {}", i, start_of(r, i), r.next[i],
             text_of(r.last[i]));
  }
}

}  // namespace

std::span<const Store> stores_of(const Nest& nest, std::int32_t part) {
  const auto begin_of = [&](std::int32_t i) {
    return nest.stores.size() * static_cast<std::size_t>(i) / static_cast<std::size_t>(nest.parts);
  };
  return std::span(nest.stores).subspan(begin_of(part), begin_of(part + 1) - begin_of(part));
}

Nest part_of(const Nest& nest, std::int32_t part) {
  Nest result = nest;
  result.parts = 1;
  const std::span<const Store> own = stores_of(nest, part);
  result.stores.assign(own.begin(), own.end());
  std::vector<bool> needed(nest.nodes.size(), false);
  const auto need = [&](ScalarId id) {
    if (id >= 0) needed[static_cast<std::size_t>(id)] = true;
  };
  for (const Store& store : result.stores) need(store.node);
  for (std::size_t i = nest.nodes.size(); i-- > 0;) {  // operands come before their nodes
    if (!needed[i]) continue;
    const ScalarNode& node = nest.nodes[i];
    for (const ScalarId operand : {node.a, node.b, node.c}) need(operand);
    if (node.op != ScalarOp::load) continue;
    for (const Indirect& index : nest.accesses[static_cast<std::size_t>(node.index)].indirect)
      need(index.node);
  }
  std::vector<ScalarId> renamed(nest.nodes.size(), -1);
  const auto rename = [&](ScalarId& id) {
    if (id >= 0) id = renamed[static_cast<std::size_t>(id)];
  };
  result.nodes.clear(), result.accesses.clear();
  for (std::size_t i = 0; i < nest.nodes.size(); ++i) {
    if (!needed[i]) continue;
    ScalarNode node = nest.nodes[i];
    rename(node.a), rename(node.b), rename(node.c);
    if (node.op == ScalarOp::load) {
      result.accesses.push_back(nest.accesses[static_cast<std::size_t>(node.index)]);
      for (Indirect& index : result.accesses.back().indirect) rename(index.node);
      node.index = static_cast<std::int32_t>(result.accesses.size()) - 1;
    }
    renamed[i] = static_cast<ScalarId>(result.nodes.size());
    result.nodes.push_back(node);
  }
  for (Store& store : result.stores) {
    rename(store.node);
    for (Indirect& index : store.access.indirect) rename(index.node);
  }
  return result;
}

namespace {

std::int64_t leading_points(const Nest& nest) {
  std::int64_t points = 1;
  for (std::int32_t dim = 0; dim < nest.lead; ++dim)
    points *= nest.extents[static_cast<std::size_t>(dim)];
  return points;
}

}  // namespace

std::int64_t Strips::count() const {
  for (const auto& stage : stages)
    if (const auto* nest = std::get_if<Nest>(&stage)) return nest->parts * leading_points(*nest);
  return 1;
}

Nest strip_of(const Nest& nest, std::int64_t strip) {
  if (nest.parts > 1) {
    const std::int64_t points = leading_points(nest);
    return strip_of(part_of(nest, static_cast<std::int32_t>(strip / points)), strip % points);
  }
  Nest result = nest;
  for (auto dim = static_cast<std::size_t>(nest.lead); dim-- > 0;) {
    const std::int64_t extent = nest.extents[dim], at = strip % extent;
    strip /= extent;
    const auto fix = [&](Access& access) {
      access.offset += at * access.strides[dim];
      for (Guard& guard : access.guards) guard.offset += at * guard.coefficients[dim];
    };
    std::ranges::for_each(result.accesses, fix);
    for (Store& store : result.stores) fix(store.access);
    for (ScalarNode& node : result.nodes) {
      if (node.op == ScalarOp::domain_index && node.index == static_cast<std::int32_t>(dim))
        node = {.op = ScalarOp::constant, .dtype = DType::i64, .integer = at};
    }
    result.extents[dim] = 1;
  }
  return result;
}

std::string to_text(const Kernel& kernel) {
  Writer out;
  for (std::size_t i = 0; i < kernel.buffers.size(); ++i) {
    const Buffer& buffer = kernel.buffers[i];
    out.line("b{} {}[{}]{}{}", i, name_of(buffer.dtype), buffer.elements,
             buffer.written ? " written" : "", buffer.local ? " local" : "");
  }
  if (const auto* nest = std::get_if<Nest>(&kernel.body)) {
    write_nest(out, "nest", *nest);
  } else if (const auto* contraction = std::get_if<Contraction>(&kernel.body)) {
    write_contraction(out, *contraction);
  } else if (const auto* chain = std::get_if<Chain>(&kernel.body)) {
    out.line("chain");
    write_contraction(out, chain->first);
    write_contraction(out, chain->second);
  } else if (const auto* strips = std::get_if<Strips>(&kernel.body)) {
    out.line("strips {}", strips->count());
    for (const auto& stage : strips->stages) {
      if (const auto* nest = std::get_if<Nest>(&stage)) write_nest(out, "nest", *nest);
      if (const auto* c = std::get_if<Contraction>(&stage)) write_contraction(out, *c);
    }
  } else {
    write_recurrence(out, std::get<Recurrence>(kernel.body));
  }
  return out.take();
}

std::string extents_text(const Kernel& kernel) {
  const auto times = [](auto begin, auto end) {
    return begin == end ? std::string("1") : fmt::format("{}", fmt::join(begin, end, "x"));
  };
  const auto all = [&](const Numbers& numbers) { return times(numbers.begin(), numbers.end()); };
  if (const auto* nest = std::get_if<Nest>(&kernel.body)) {
    const auto reduced = nest->extents.begin() + nest->parallel_dims;
    const std::string text = times(nest->extents.begin(), reduced);
    if (reduced == nest->extents.end()) return text;
    return text + ", reduced " + times(reduced, nest->extents.end());
  }
  const auto contraction = [&](const Contraction& c) {
    const std::string batch = c.batch_extents.empty() ? "" : all(c.batch_extents) + " of ";
    return fmt::format("{}m {}, n {}, k {}", batch, all(c.m_extents), c.n, all(c.k_extents));
  };
  if (const auto* c = std::get_if<Contraction>(&kernel.body)) return contraction(*c);
  if (const auto* chain = std::get_if<Chain>(&kernel.body)) {
    return contraction(chain->first) + fmt::format(", then n {}", chain->second.n);
  }
  if (const auto* strips = std::get_if<Strips>(&kernel.body)) {
    std::string products;
    for (const auto& stage : strips->stages)
      if (const auto* c = std::get_if<Contraction>(&stage)) products += " of " + contraction(*c);
    if (products.empty()) {
      const auto& nest = std::get<Nest>(strips->stages.back());
      products = " of " + times(nest.extents.begin() + nest.lead, nest.extents.end());
    }
    return fmt::format("{} strips{}", strips->count(), products);
  }
  const auto& r = std::get<Recurrence>(kernel.body);
  const std::string steps = r.step_buffer < 0 ? fmt::format("{} steps", r.steps) : "one step";
  return fmt::format("{} of {}x{} rows, {} gates of {} units", steps, r.directions, r.batch,
                     r.gates, r.units);
}

}  // namespace rlx::loop
