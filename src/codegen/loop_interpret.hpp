// What the parts of the oracle share: expressions of kernels, evaluated at one point after another.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>

#include "codegen/loop.hpp"
#include "graph/elementwise_eval.hpp"

namespace rlx::loop {

using Point = std::vector<std::int64_t>;

/// Calls body for every point of the extents, row-major; dims before `first` keep their values.
inline void for_each_point(const std::vector<std::int64_t>& extents, std::size_t first,
                           std::size_t last, Point& point, const std::function<void()>& body) {
  if (first == last) return body();
  for (point[first] = 0; point[first] < extents[first]; ++point[first]) {
    for_each_point(extents, first + 1, last, point, body);
  }
}

inline std::int64_t dot(const std::vector<std::int64_t>& strides, const Point& point) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < strides.size(); ++i) sum += strides[i] * point[i];
  return sum;
}

inline bool holds(const std::vector<Guard>& guards, const Point& point) {
  for (const Guard& guard : guards) {
    const std::int64_t position = guard.offset + dot(guard.coefficients, point);
    if (position < 0 || position >= guard.extent) return false;
  }
  return true;
}

inline ScalarDatum datum_of(DType dtype, double value) {
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

/// The oracle of recurrences.
void run_recurrence(const Kernel& kernel, void* const* buffers, const Recurrence& recurrence);

}  // namespace rlx::loop
