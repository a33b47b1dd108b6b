// The oracle of every emitter: kernels evaluated point by point, with sums in double precision.
#include <cmath>
#include <functional>
#include <optional>

#include "codegen/cancel_buffer.hpp"
#include "codegen/loop.hpp"
#include "graph/elementwise_eval.hpp"

namespace rlx::loop {
namespace {

using Point = std::vector<std::int64_t>;

/// Calls body for every point of the extents, row-major; dims before `first` keep their values.
void for_each_point(const std::vector<std::int64_t>& extents, std::size_t first, std::size_t last,
                    Point& point, const std::function<void()>& body) {
  if (first == last) return body();
  for (point[first] = 0; point[first] < extents[first]; ++point[first]) {
    for_each_point(extents, first + 1, last, point, body);
  }
}

std::int64_t dot(const std::vector<std::int64_t>& strides, const Point& point) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < strides.size(); ++i) sum += strides[i] * point[i];
  return sum;
}

bool holds(const std::vector<Guard>& guards, const Point& point) {
  for (const Guard& guard : guards) {
    const std::int64_t position = guard.offset + dot(guard.coefficients, point);
    if (position < 0 || position >= guard.extent) return false;
  }
  return true;
}

ScalarDatum datum_of(DType dtype, double value) {
  if (is_float(dtype) || is_complex(dtype)) return {value, 0};
  return {0, static_cast<std::int64_t>(value)};
}

/// The running value of one reduction.
class Reduction {
 public:
  Reduction(ReduceKind kind, DType operand) : kind_(kind), operand_(operand) {
    const bool product = kind == ReduceKind::prod;
    state_ = datum_of(operand, product ? 1 : 0);
    if (kind == ReduceKind::all) state_.integer = 1;
  }

  void add(const ScalarDatum& value, std::int64_t position) {
    switch (kind_) {
      case ReduceKind::sum:
        state_.number += value.number;
        state_.integer = static_cast<std::int64_t>(static_cast<std::uint64_t>(state_.integer) +
                                                   static_cast<std::uint64_t>(value.integer));
        break;
      case ReduceKind::prod:
        state_.number *= value.number;
        state_.integer = static_cast<std::int64_t>(static_cast<std::uint64_t>(state_.integer) *
                                                   static_cast<std::uint64_t>(value.integer));
        break;
      case ReduceKind::any: state_.integer |= value.integer; break;
      case ReduceKind::all: state_.integer &= value.integer; break;
      default:
        if (position_ >= 0 && !wins(value)) return;
        state_ = value;
        position_ = position;
    }
  }

  /// Rounded to the node's type.
  ScalarDatum result(const ScalarNode& node) const {
    if (kind_ == ReduceKind::argmin || kind_ == ReduceKind::argmax) return {0, position_};
    if (position_ < 0 && (kind_ == ReduceKind::min || kind_ == ReduceKind::max)) return nothing();
    const ScalarNode round{.op = ScalarOp::max, .dtype = node.dtype, .a = 0, .b = 0};
    if (kind_ == ReduceKind::any || kind_ == ReduceKind::all) return state_;
    return apply_scalar(round, node.dtype, state_, state_, {});
  }

 private:
  /// NaN wins over everything, the first of equals stays.
  bool wins(const ScalarDatum& value) const {
    if (is_float(operand_)) {
      if (std::isnan(state_.number.real())) return false;
      if (std::isnan(value.number.real())) return true;
    }
    const bool larger = kind_ == ReduceKind::max || kind_ == ReduceKind::argmax;
    const ScalarNode compare{
        .op = larger ? ScalarOp::greater : ScalarOp::less, .dtype = boolean, .a = 0, .b = 0};
    return apply_scalar(compare, operand_, value, state_, {}).integer != 0;
  }

  /// The extreme of no elements.
  ScalarDatum nothing() const {
    const bool largest = kind_ == ReduceKind::min;
    if (is_float(operand_)) return {largest ? INFINITY : -INFINITY, 0};
    const int bits = static_cast<int>(size_of(operand_) * 8);
    const std::uint64_t ones = ~std::uint64_t{0} >> (64 - bits);
    if (operand_ == DType::boolean) return {0, largest};
    if (is_signed_integer(operand_)) {
      const auto top = static_cast<std::int64_t>(ones >> 1);
      return {0, largest ? top : -top - 1};
    }
    return {0, largest ? static_cast<std::int64_t>(ones) : 0};
  }

  ReduceKind kind_;
  DType operand_;
  ScalarDatum state_;
  std::int64_t position_ = -1;
};

/// Evaluates the expression of a nest or an epilogue.
class Expression {
 public:
  Expression(const Kernel& kernel, void* const* buffers, const Nest& nest)
      : kernel_(kernel),
        buffers_(buffers),
        nest_(nest),
        values_(nest.nodes.size()),
        reduced_(nest.nodes.size()),
        point_(nest.extents.size(), 0) {}

  Point& point() { return point_; }
  void set_accumulator(const ScalarDatum& value, DType dtype) {
    accumulator_ = value;
    accumulator_dtype_ = dtype;
  }

  /// The values of accumulator nodes that have an index.
  void set_leaves(std::vector<ScalarDatum> values) { leaves_ = std::move(values); }

  /// A node at this point; for expressions without reductions.
  ScalarDatum at_point(ScalarId id) {
    values_.assign(nest_.nodes.size(), std::nullopt);
    return value(id);
  }

  /// All stores of one point of the parallel dims.
  void run() {
    const auto parallel = static_cast<std::size_t>(nest_.parallel_dims);
    reduced_.assign(nest_.nodes.size(), std::nullopt);
    // Reductions first: a store in place must not change what they read.
    for (std::size_t i = 0; i < nest_.nodes.size(); ++i) {
      if (nest_.nodes[i].op == ScalarOp::reduce) value(static_cast<ScalarId>(i));
    }
    std::vector<const Store*> once, everywhere;
    for (const Store& store : nest_.stores) {
      const bool spread = varies(store.node) || varies(store.access);
      (spread ? everywhere : once).push_back(&store);
    }
    for (std::size_t i = parallel; i < point_.size(); ++i) point_[i] = 0;
    if (!everywhere.empty()) {
      for_each_point(nest_.extents, parallel, nest_.extents.size(), point_,
                     [&] { write(everywhere); });
      for (std::size_t i = parallel; i < point_.size(); ++i) point_[i] = 0;
    }
    write(once);
  }

 private:
  bool reaches_reduced_dims(const std::vector<std::int64_t>& strides) const {
    for (auto i = static_cast<std::size_t>(nest_.parallel_dims); i < strides.size(); ++i) {
      if (strides[i] != 0 && nest_.extents[i] != 1) return true;
    }
    return false;
  }

  bool varies(const Access& access) const {
    if (reaches_reduced_dims(access.strides)) return true;
    for (const Guard& guard : access.guards) {
      if (reaches_reduced_dims(guard.coefficients)) return true;
    }
    for (const Indirect& part : access.indirect) {
      if (varies(part.node)) return true;
    }
    return false;
  }

  /// Whether a node depends on a reduced dim outside of reductions.
  bool varies(ScalarId id) const {
    if (id < 0) return false;
    const ScalarNode& node = nest_.nodes[static_cast<std::size_t>(id)];
    if (node.op == ScalarOp::reduce) return false;
    if (node.op == ScalarOp::domain_index) return node.index >= nest_.parallel_dims;
    if (node.op == ScalarOp::load) {
      return varies(nest_.accesses[static_cast<std::size_t>(node.index)]);
    }
    return varies(node.a) || varies(node.b) || varies(node.c);
  }

  void write(const std::vector<const Store*>& stores) {
    values_.assign(nest_.nodes.size(), std::nullopt);
    std::vector<ScalarDatum> data;
    for (const Store* store : stores) data.push_back(value(store->node));
    for (std::size_t i = 0; i < stores.size(); ++i) {
      const Access& access = stores[i]->access;
      if (!holds(access.guards, point_)) continue;
      store_datum(dtype_of(access), bytes(access.buffer), address(access), data[i]);
    }
  }

  DType dtype_of(const Access& access) const { return kernel_.buffers[access.buffer].dtype; }
  std::byte* bytes(std::int32_t buffer) const { return static_cast<std::byte*>(buffers_[buffer]); }

  std::int64_t address(const Access& access) {
    std::int64_t result = access.offset + dot(access.strides, point_);
    for (const Indirect& part : access.indirect) {
      std::int64_t index = value(part.node).integer;
      if (index < 0) index += part.extent;
      if (index < 0 || index >= part.extent) {
        if (nest_.error_buffer >= 0) {
          store_datum(DType::i32, bytes(nest_.error_buffer), 0, {0, 1});
        }
        index = std::max<std::int64_t>(0, std::min(index, part.extent - 1));
      }
      result += index * part.stride;
    }
    return result;
  }

  ScalarDatum value(ScalarId id) {
    const ScalarNode& node = nest_.nodes[static_cast<std::size_t>(id)];
    std::optional<ScalarDatum>& known =
        (node.op == ScalarOp::reduce ? reduced_ : values_)[static_cast<std::size_t>(id)];
    if (!known) known = compute(node);
    return *known;
  }

  ScalarDatum compute(const ScalarNode& node) {
    switch (node.op) {
      case ScalarOp::constant: return constant_datum(node);
      case ScalarOp::domain_index: return {0, point_[static_cast<std::size_t>(node.index)]};
      case ScalarOp::accumulator: {
        if (node.index >= 0) return leaves_[static_cast<std::size_t>(node.index)];
        const ScalarNode cast{.op = ScalarOp::cast, .dtype = node.dtype, .a = 0};
        return apply_scalar(cast, accumulator_dtype_, accumulator_, {}, {});
      }
      case ScalarOp::load: {
        const Access& access = nest_.accesses[static_cast<std::size_t>(node.index)];
        if (!holds(access.guards, point_)) return datum_of(node.dtype, access.fill);
        return load_datum(dtype_of(access), bytes(access.buffer), address(access));
      }
      case ScalarOp::reduce: return reduce(node);
      default: break;
    }
    const ScalarDatum a = value(node.a);
    const ScalarDatum b = node.b >= 0 ? value(node.b) : ScalarDatum{};
    const ScalarDatum c = node.c >= 0 ? value(node.c) : ScalarDatum{};
    const ScalarId typed = node.op == ScalarOp::select ? node.b : node.a;
    return apply_scalar(node, nest_.nodes[static_cast<std::size_t>(typed)].dtype, a, b, c);
  }

  ScalarDatum reduce(const ScalarNode& node) {
    const Point outside = point_;
    Reduction reduction(node.reduce_kind, nest_.nodes[static_cast<std::size_t>(node.a)].dtype);
    std::int64_t position = 0;
    const auto parallel = static_cast<std::size_t>(nest_.parallel_dims);
    for_each_point(nest_.extents, parallel, nest_.extents.size(), point_, [&] {
      values_.assign(nest_.nodes.size(), std::nullopt);
      reduction.add(value(node.a), position++);
    });
    point_ = outside;
    values_.assign(nest_.nodes.size(), std::nullopt);
    return reduction.result(node);
  }

  const Kernel& kernel_;
  void* const* buffers_;
  const Nest& nest_;
  std::vector<std::optional<ScalarDatum>> values_;   ///< at this point
  std::vector<std::optional<ScalarDatum>> reduced_;  ///< at this point of the parallel dims
  Point point_;
  ScalarDatum accumulator_;
  DType accumulator_dtype_ = DType::f32;
  std::vector<ScalarDatum> leaves_;
};

void run_nest(const Kernel& kernel, void* const* buffers, const Nest& nest) {
  Expression expression(kernel, buffers, nest);
  for_each_point(nest.extents, 0, static_cast<std::size_t>(nest.parallel_dims), expression.point(),
                 [&] { expression.run(); });
}

/// The sum over k at one point (batch..., m..., n).
class Product {
 public:
  Product(const Kernel& kernel, void* const* buffers, const Contraction& contraction)
      : kernel_(kernel), buffers_(buffers), c_(contraction) {}

  ScalarDatum at(const Point& point) const {
    const std::size_t batch = c_.batch_extents.size(), m = c_.m_extents.size();
    ScalarDatum sum;
    Point a_point(point.begin(), point.end() - 1);
    a_point.resize(batch + m + c_.k_extents.size());
    for_each_point(c_.k_extents, 0, c_.k_extents.size(), k_, [&] {
      std::copy(k_.begin(), k_.end(), a_point.begin() + static_cast<std::ptrdiff_t>(batch + m));
      if (!holds(c_.a_guards, a_point)) return;
      const ScalarDatum a = load(c_.a_buffer, a_address(point));
      const ScalarDatum b = load(c_.b_buffer, b_address(point));
      sum.number += a.number * b.number;
      sum.integer += a.integer * b.integer;
    });
    const ScalarNode round{.op = ScalarOp::max, .dtype = c_.accumulator, .a = 0, .b = 0};
    return apply_scalar(round, c_.accumulator, sum, sum, {});
  }

 private:
  ScalarDatum load(std::int32_t buffer, std::int64_t address) const {
    const DType dtype = kernel_.buffers[static_cast<std::size_t>(buffer)].dtype;
    return load_datum(dtype, static_cast<const std::byte*>(buffers_[buffer]), address);
  }

  std::int64_t a_address(const Point& point) const {
    const std::size_t batch = c_.batch_extents.size();
    std::int64_t address = c_.a_offset + dot(c_.a_k_strides, k_) + dot(c_.a_batch_strides, point);
    for (std::size_t i = 0; i < c_.a_m_strides.size(); ++i) {
      address += c_.a_m_strides[i] * point[batch + i];
    }
    return address;
  }

  std::int64_t b_address(const Point& point) const {
    const std::int64_t column = point.back();
    const std::int64_t batch = dot(c_.b_batch_strides, point);
    if (!c_.b_packed) {
      return c_.b_offset + batch + dot(c_.b_k_strides, k_) + column * c_.b_n_stride;
    }
    std::int64_t k = 0, depth = 1;
    const std::int64_t group = c_.k_group;
    for (std::size_t i = 0; i < k_.size(); ++i) {
      const bool inner = i + 1 == k_.size();
      const std::int64_t extent =
          inner ? (c_.k_extents[i] + group - 1) / group * group : c_.k_extents[i];
      k = k * extent + k_[i];
      depth *= extent;
    }
    const std::int64_t width = c_.panel_width, panels = (c_.n + width - 1) / width;
    const std::int64_t panel = column / width;
    return c_.b_offset + ((batch * panels + panel) * depth + k / group * group) * width +
           column % width * group + k % group;
  }

  const Kernel& kernel_;
  void* const* buffers_;
  const Contraction& c_;
  mutable Point k_ = Point(c_.k_extents.size(), 0);
};

void run_contraction(const Kernel& kernel, void* const* buffers, const Contraction& c) {
  Nest epilogue;
  epilogue.extents = c.batch_extents;
  epilogue.extents.insert(epilogue.extents.end(), c.m_extents.begin(), c.m_extents.end());
  epilogue.extents.push_back(c.n);
  epilogue.parallel_dims = static_cast<std::int32_t>(epilogue.extents.size());
  epilogue.accesses = c.accesses;
  epilogue.nodes = c.nodes;
  epilogue.stores = c.stores;
  epilogue.error_buffer = c.error_buffer;
  const Product product(kernel, buffers, c);
  Expression expression(kernel, buffers, epilogue);
  for_each_point(epilogue.extents, 0, epilogue.extents.size(), expression.point(), [&] {
    expression.set_accumulator(product.at(expression.point()), c.accumulator);
    expression.run();
  });
  if (!c.row_epilogue.nodes.empty()) run_nest(kernel, buffers, c.row_epilogue);
}

/// The rows in memory of their own, all of them.
void run_chain(const Kernel& kernel, void* const* buffers, const Chain& chain) {
  std::vector<std::vector<std::byte>> rows;
  std::vector<void*> all(buffers, buffers + kernel.buffers.size());
  for (std::size_t i = 0; i < kernel.buffers.size(); ++i) {
    const Buffer& buffer = kernel.buffers[i];
    if (!buffer.local) continue;
    rows.emplace_back(static_cast<std::size_t>(buffer.elements) * size_of(buffer.dtype));
    all[i] = rows.back().data();
  }
  run_contraction(kernel, all.data(), chain.first);
  run_contraction(kernel, all.data(), chain.second);
}

/// One direction and batch row of a recurrent layer.
class Walk {
 public:
  using Vector = std::vector<ScalarDatum>;  ///< by unit

  Walk(void* const* buffers, const Recurrence& r, std::int32_t cancel, Expression& expression)
      : buffers_(buffers), r_(r), cancel_(cancel), expression_(expression) {}

  void run() {
    if (r_.step_buffer >= 0) return run_one();
    for (const Access& from : r_.initial) load_state(from);
    for (std::int64_t n = 0; n < r_.steps && goes_on(); ++n) {
      go_to(n);
      step();
    }
    for (std::size_t s = 0; s < r_.next.size(); ++s) store_state(s);
  }

 private:
  void run_one() {
    const std::int64_t n = *static_cast<const std::int64_t*>(buffers_[r_.step_buffer]);
    go_to(n - 1);
    load_state(n == 0 ? r_.last[0] : r_.stores[0].access);
    go_to(n);
    for (std::size_t s = 1; s < r_.next.size(); ++s) load_state(r_.last[s]);
    step();
    for (std::size_t s = n == r_.steps - 1 ? 0 : 1; s < r_.next.size(); ++s) store_state(s);
  }

  void go_to(std::int64_t n) {
    const bool backward = expression_.point()[0] >= r_.first_reversed;
    expression_.point()[2] = backward ? r_.steps - 1 - n : n;
  }

  /// The next state, from there; buffer -1: zeros.
  void load_state(const Access& from) {
    Vector& state = states_.emplace_back(static_cast<std::size_t>(r_.units));
    for_each_unit([&](std::size_t unit) {
      if (from.buffer >= 0) state[unit] = load_datum(f32, bytes(from), address(from));
    });
  }
  void store_state(std::size_t s) {
    for_each_unit([&](std::size_t unit) {
      store_datum(f32, bytes(r_.last[s]), address(r_.last[s]), states_[s][unit]);
    });
  }

  void for_each_unit(const std::function<void(std::size_t)>& body) {
    std::int64_t& unit = expression_.point()[3];
    for (unit = 0; unit < r_.units; ++unit) body(static_cast<std::size_t>(unit));
    unit = 0;
  }

  bool goes_on() const {
    return cancel_ < 0 || *static_cast<const std::uint8_t*>(buffers_[cancel_]) == 0;
  }

  void step() {
    std::vector<Vector> products(static_cast<std::size_t>(r_.gates),
                                 Vector(static_cast<std::size_t>(r_.units)));
    const auto early = static_cast<std::size_t>(r_.late_input < 0 ? r_.gates : r_.early_gates);
    for (std::size_t gate = 0; gate < early; ++gate) products[gate] = product(gate, states_[0]);
    if (r_.late_input >= 0) {
      Vector input(static_cast<std::size_t>(r_.units));
      for_each_unit([&](std::size_t unit) {
        set_leaves(products, unit);
        input[unit] = expression_.at_point(r_.late_input);
      });
      for (std::size_t gate = early; gate < products.size(); ++gate) {
        products[gate] = product(gate, input);
      }
    }
    std::vector<Vector> next = states_;
    for_each_unit([&](std::size_t unit) {
      set_leaves(products, unit);
      expression_.run();
      for (std::size_t s = 0; s < next.size(); ++s) {
        next[s][unit] = expression_.at_point(r_.next[s]);
      }
    });
    states_ = std::move(next);
  }

  void set_leaves(const std::vector<Vector>& products, std::size_t unit) {
    std::vector<ScalarDatum> leaves;
    for (const Vector& product : products) leaves.push_back(product[unit]);
    for (const Vector& state : states_) leaves.push_back(state[unit]);
    expression_.set_leaves(std::move(leaves));
  }

  Vector product(std::size_t gate, const Vector& input) {
    const std::int64_t width = r_.panel_width, panels = (r_.units + width - 1) / width;
    const std::int64_t matrix = expression_.point()[0] * r_.gates + static_cast<std::int64_t>(gate);
    const auto* r = static_cast<const std::byte*>(buffers_[r_.r_buffer]);
    Vector result;
    for (std::int64_t unit = 0; unit < r_.units; ++unit) {
      const std::int64_t panel = matrix * panels + unit / width;
      double sum = 0;
      for (std::int64_t k = 0; k < r_.units; ++k) {
        const std::int64_t at = (panel * r_.units + k) * width + unit % width;
        sum +=
            input[static_cast<std::size_t>(k)].number.real() * load_datum(f32, r, at).number.real();
      }
      result.push_back({static_cast<float>(sum), 0});
    }
    return result;
  }

  std::byte* bytes(const Access& access) {
    return static_cast<std::byte*>(buffers_[access.buffer]);
  }
  std::int64_t address(const Access& access) {
    return access.offset + dot(access.strides, expression_.point());
  }

  void* const* buffers_;
  const Recurrence& r_;
  const std::int32_t cancel_;  ///< its cancel buffer
  Expression& expression_;
  std::vector<Vector> states_;
};

void run_recurrence(const Kernel& kernel, void* const* buffers, const Recurrence& r) {
  Nest cell;
  cell.extents = {r.directions, r.batch, r.steps, r.units};
  cell.parallel_dims = 4;
  cell.accesses = r.accesses;
  cell.nodes = r.nodes;
  cell.stores = r.stores;
  Expression expression(kernel, buffers, cell);
  const std::int32_t cancel = codegen::cancel_buffer_of(kernel);
  for_each_point(cell.extents, 0, 2, expression.point(),
                 [&] { Walk(buffers, r, cancel, expression).run(); });
}

}  // namespace

void interpret(const Kernel& kernel, void* const* buffers) {
  if (const auto* nest = std::get_if<Nest>(&kernel.body)) {
    run_nest(kernel, buffers, *nest);
  } else if (const auto* contraction = std::get_if<Contraction>(&kernel.body)) {
    run_contraction(kernel, buffers, *contraction);
  } else if (const auto* chain = std::get_if<Chain>(&kernel.body)) {
    run_chain(kernel, buffers, *chain);
  } else {
    run_recurrence(kernel, buffers, std::get<Recurrence>(kernel.body));
  }
}

}  // namespace rlx::loop
