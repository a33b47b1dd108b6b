// Steps of reductions as vector code.
#include "codegen/llvm/nest_reduce.hpp"

#include <algorithm>
#include <limits>

#include "codegen/llvm/scalar_values.hpp"

namespace rlx::codegen {
namespace {

/// The identity of integer types and bool, exact where a double is not.
std::int64_t integer_identity(ReduceKind kind, DType dtype) {
  const bool least = kind == ReduceKind::max || kind == ReduceKind::argmax;
  const bool largest = kind == ReduceKind::min || kind == ReduceKind::argmin;
  if (kind == ReduceKind::prod || kind == ReduceKind::all) return 1;
  if (!least && !largest) return 0;
  if (dtype == DType::boolean) return largest;
  const int bits =
      dtype == DType::i4 || dtype == DType::u4 ? 4 : static_cast<int>(size_of(dtype) * 8);
  const std::uint64_t ones = ~std::uint64_t{0} >> (64 - bits);
  if (!is_signed_integer(dtype)) return largest ? static_cast<std::int64_t>(ones) : 0;
  const auto top = static_cast<std::int64_t>(ones >> 1);
  return largest ? top : -top - 1;
}

std::pair<llvm::Value*, llvm::Value*> halves(Emitter& emitter, llvm::Value* value) {
  std::vector<int> low, high;
  const int half = static_cast<int>(lanes_of(value) / 2);
  for (int i = 0; i < half; ++i) {
    low.push_back(i);
    high.push_back(i + half);
  }
  auto& b = emitter.builder;
  if (half == 1) {
    return {b.CreateExtractElement(value, std::uint64_t{0}), b.CreateExtractElement(value, 1)};
  }
  return {b.CreateShuffleVector(value, low), b.CreateShuffleVector(value, high)};
}

}  // namespace

double identity_of(ReduceKind kind, DType dtype) {
  if (!is_float(dtype)) return static_cast<double>(integer_identity(kind, dtype));
  constexpr double infinity = std::numeric_limits<double>::infinity();
  switch (kind) {
    case ReduceKind::prod: return 1;
    case ReduceKind::min:
    case ReduceKind::argmin: return infinity;
    case ReduceKind::max:
    case ReduceKind::argmax: return -infinity;
    default: return 0;
  }
}

ReductionEmitter::ReductionEmitter(Emitter& emitter, const loop::Nest& nest, ScalarId node)
    : emitter_(&emitter),
      nodes_(&nest.nodes),
      node_(node),
      kind_(nest.nodes[static_cast<std::size_t>(node)].reduce_kind),
      dtype_(nest.nodes[static_cast<std::size_t>(nest.nodes[static_cast<std::size_t>(node)].a)]
                 .dtype) {
  const bool fit = std::ranges::all_of(nest.extents, [](std::int64_t extent) {
    return extent < std::numeric_limits<std::int32_t>::max();
  });
  position_dtype_ = fit ? DType::i32 : DType::i64;
}

bool ReductionEmitter::has_position() const {
  return kind_ == ReduceKind::argmin || kind_ == ReduceKind::argmax;
}

Partial ReductionEmitter::start(unsigned lanes) const {
  Partial partial;
  partial.value = constant_of(*emitter_, dtype_, lanes, identity_of(kind_, dtype_),
                              integer_identity(kind_, dtype_));
  if (has_position()) partial.position = no_position(lanes);
  return partial;
}

llvm::Constant* ReductionEmitter::no_position(unsigned lanes) const {
  return constant_of(*emitter_, position_dtype_, lanes, 0,
                     integer_identity(ReduceKind::min, position_dtype_));
}

/// Strictly better, or the first NaN.
llvm::Value* ReductionEmitter::wins(llvm::Value* challenger, llvm::Value* holder) const {
  auto& b = emitter_->builder;
  const bool larger = kind_ == ReduceKind::max || kind_ == ReduceKind::argmax;
  if (is_real(challenger)) {
    llvm::Value* better_or_nan =
        larger ? b.CreateFCmpUGT(challenger, holder) : b.CreateFCmpULT(challenger, holder);
    return b.CreateAnd(better_or_nan, b.CreateFCmpORD(holder, holder));
  }
  const ScalarNode compare{.op = larger ? ScalarOp::greater : ScalarOp::less, .dtype = boolean};
  return emit_scalar(*emitter_, compare, dtype_, challenger, holder);
}

Partial ReductionEmitter::step(const Partial& before, PointExpression& at, llvm::Value* position,
                               std::int64_t position_step, llvm::Value* mask) const {
  auto& b = emitter_->builder;
  const ScalarId operand_id = (*nodes_)[static_cast<std::size_t>(node_)].a;
  const ScalarNode& operand = (*nodes_)[static_cast<std::size_t>(operand_id)];
  const unsigned lanes = lanes_of(before.value);
  Partial after;
  if (has_position()) {
    llvm::Value* value = splat(*emitter_, at.value(operand_id), lanes);
    llvm::Type* const type = no_position(1)->getType();
    llvm::Value* positions = splat(*emitter_, b.CreateTrunc(position, type), lanes);
    if (lanes > 1 && position_step != 0) {
      llvm::Value* numbers = b.CreateTrunc(lane_numbers(*emitter_, lanes), positions->getType());
      llvm::Value* steps =
          splat(*emitter_, llvm::ConstantInt::getSigned(type, position_step), lanes);
      positions = b.CreateAdd(positions, b.CreateMul(numbers, steps));
    }
    llvm::Value* better = wins(value, before.value);
    after.value = b.CreateSelect(better, value, before.value);
    after.position = b.CreateSelect(better, positions, before.position);
  } else if (kind_ == ReduceKind::sum && operand.op == ScalarOp::mul && !at.known(operand_id) &&
             (dtype_ == DType::f32 || dtype_ == DType::f64)) {
    // A sum of products takes the unrounded products where the machine can: one instruction.
    llvm::Value* x = splat(*emitter_, at.value(operand.a), lanes);
    llvm::Value* y = splat(*emitter_, at.value(operand.b), lanes);
    after.value = multiply_add(*emitter_, x, y, before.value);
  } else {
    llvm::Value* value = splat(*emitter_, at.value(operand_id), lanes);
    after.value = emit_combine(*emitter_, kind_, dtype_, before.value, value);
  }
  if (!mask) return after;
  after.value = b.CreateSelect(mask, after.value, before.value);
  if (after.position) after.position = b.CreateSelect(mask, after.position, before.position);
  return after;
}

Partial ReductionEmitter::join(const Partial& x, const Partial& y) const {
  auto& b = emitter_->builder;
  if (!has_position()) return {emit_combine(*emitter_, kind_, dtype_, x.value, y.value), nullptr};
  // What has no position is the identity, which nothing beats by being equal to it.
  llvm::Value* earlier =
      b.CreateAnd(b.CreateNot(wins(x.value, y.value)), b.CreateICmpSLT(y.position, x.position));
  llvm::Value* take = b.CreateOr(wins(y.value, x.value), earlier);
  return {b.CreateSelect(take, y.value, x.value), b.CreateSelect(take, y.position, x.position)};
}

Partial ReductionEmitter::join_lanes(Partial partial) const {
  while (lanes_of(partial.value) > 1) {
    const auto [low, high] = halves(*emitter_, partial.value);
    Partial a{low, nullptr}, b{high, nullptr};
    if (partial.position) {
      std::tie(a.position, b.position) = halves(*emitter_, partial.position);
    }
    partial = join(a, b);
  }
  return partial;
}

/// Half as many lanes of each row of both.
ReductionEmitter::Shared ReductionEmitter::join_pair(const Shared& x, const Shared& y) const {
  const unsigned lanes = lanes_of(x.value), half = x.width / 2;
  // Within 16 bytes the lanes of both go side by side: one cheap shuffle each.
  const unsigned bits = x.value->getType()->getScalarSizeInBits();
  const unsigned block = std::min(lanes, std::max(x.width, 128 / bits));
  Shared joined{nullptr, {}, half};
  std::vector<int> low, high;
  for (unsigned begin = 0; begin < lanes; begin += block) {
    for (unsigned side = 0; side < 2; ++side) {
      for (unsigned at = begin; at < begin + block; at += x.width) {
        joined.rows.push_back((side ? y : x).rows[at / x.width]);
        for (unsigned lane = at; lane < at + half; ++lane) {
          low.push_back(static_cast<int>(side * lanes + lane));
          high.push_back(static_cast<int>(side * lanes + lane + half));
        }
      }
    }
  }
  auto& b = emitter_->builder;
  joined.value =
      emit_combine(*emitter_, kind_, dtype_, b.CreateShuffleVector(x.value, y.value, low),
                   b.CreateShuffleVector(x.value, y.value, high));
  return joined;
}

std::vector<Partial> ReductionEmitter::join_lanes(const std::vector<Partial>& rows) const {
  const unsigned lanes = lanes_of(rows.front().value);
  const bool bits = rows.front().value->getType()->getScalarSizeInBits() < 8;
  std::vector<Partial> totals(rows.size());
  if (rows.size() == 1 || lanes == 1 || has_position() || bits) {
    for (std::size_t i = 0; i < rows.size(); ++i) totals[i] = join_lanes(rows[i]);
    return totals;
  }
  std::vector<Shared> shared;
  for (std::size_t i = 0; i < rows.size(); ++i) shared.push_back({rows[i].value, {i}, lanes});
  while (shared.size() > 1 && shared.front().width > 1) {
    std::vector<Shared> pairs;
    for (std::size_t i = 0; i < shared.size(); i += 2) {
      pairs.push_back(join_pair(shared[i], shared[i + 1]));
    }
    shared = std::move(pairs);
  }
  auto& b = emitter_->builder;
  for (const Shared& all : shared) {
    llvm::Value* value = all.value;
    for (unsigned half = all.width / 2; half > 0; half /= 2) {
      // The other lanes hold nothing from here on.
      std::vector<int> high(lanes, llvm::PoisonMaskElem);
      for (unsigned begin = 0; begin < lanes; begin += all.width) {
        for (unsigned lane = begin; lane < begin + half; ++lane) {
          high[lane] = static_cast<int>(lane + half);
        }
      }
      value = emit_combine(*emitter_, kind_, dtype_, value, b.CreateShuffleVector(value, high));
    }
    for (std::size_t i = 0; i < all.rows.size(); ++i) {
      totals[all.rows[i]].value = b.CreateExtractElement(value, i * all.width);
    }
  }
  return totals;
}

llvm::Value* ReductionEmitter::result(const Partial& partial) const {
  if (!has_position()) return partial.value;
  auto& b = emitter_->builder;
  // All elements are as small as the identity: the first is one of the largest.
  llvm::Value* position = partial.position;
  llvm::Constant* none = no_position(lanes_of(position));
  position = b.CreateSelect(b.CreateICmpEQ(position, none),
                            llvm::Constant::getNullValue(position->getType()), position);
  llvm::Type* wide = b.getInt64Ty();
  if (lanes_of(position) > 1) wide = llvm::FixedVectorType::get(wide, lanes_of(position));
  return b.CreateSExt(position, wide);
}

}  // namespace rlx::codegen
