// Random nests: every element type, layout, broadcast, guard and level of reduction, against the
// interpreter.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "nest_build.hpp"
#include "nest_fixture.hpp"

namespace rlx::testing {
namespace {

class RandomNest {
 public:
  explicit RandomNest(unsigned seed) : random_(seed), nest_(random_extents()) {}

  /// Elementwise over `dtype`, after reductions of `levels` levels where the nest has reduced dims.
  loop::Kernel make(DType dtype, int levels) {
    const std::vector<std::int64_t>& extents = nest_.nest().extents;
    const int rank = static_cast<int>(extents.size());
    const int parallel = levels > 0 ? pick(0, rank - 1) : rank;
    for (int i = pick(1, 3); i > 0; --i) pool_.push_back(random_load(dtype));
    for (int i = pick(1, 5); i > 0; --i) pool_.push_back(random_operation(dtype));
    const bool sums = is_integer(dtype);
    for (int level = 0; level < levels; ++level) {
      const ReduceKind kinds[] = {ReduceKind::max, ReduceKind::min, ReduceKind::sum,
                                  ReduceKind::prod};
      const ReduceKind kind = kinds[pick(0, sums ? 3 : dtype == f32 || dtype == f64 ? 2 : 1)];
      const ScalarId total = nest_.reduce(kind, any());
      pool_.push_back(nest_.binary(ScalarOp::sub, any(), total));
      last_total_ = total;
    }
    if (levels > 0) store(last_total_, parallel);
    if (levels == 0 || pick(0, 1)) store(pool_.back(), rank);
    return nest_.kernel(parallel);
  }

  /// Elementwise, with stores that fall into so many parts.
  loop::Kernel make_parts(std::int32_t parts) {
    const int rank = static_cast<int>(nest_.nest().extents.size());
    for (int i = pick(2, 5); i > 0; --i) pool_.push_back(random_load(f32));
    for (int i = pick(3, 9); i > 0; --i) pool_.push_back(random_operation(f32));
    for (std::int32_t i = parts * pick(1, 3) + pick(0, 1); i > 0; --i) store(any(), rank);
    nest_.nest().parts = parts;
    return nest_.kernel(rank);
  }

 private:
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  ScalarId any() {
    return pool_[static_cast<std::size_t>(pick(0, static_cast<int>(pool_.size()) - 1))];
  }

  std::vector<std::int64_t> random_extents() {
    std::vector<std::int64_t> extents;
    const int rank = pick(1, 4);
    const int largest = rank == 1 ? 300 : rank == 2 ? 45 : 11;
    for (int i = 0; i < rank; ++i) extents.push_back(pick(1, largest));
    if (rank > 1 && pick(0, 1)) extents.back() = pick(1, 70);
    return extents;
  }

  /// Strides of the first `dims` dims in a random order of nesting, some reversed or broadcast.
  loop::Access random_access(int dims, DType dtype, bool for_store) {
    const std::vector<std::int64_t>& extents = nest_.nest().extents;
    std::vector<int> order(static_cast<std::size_t>(dims));
    std::iota(order.begin(), order.end(), 0);
    if (pick(0, 2) == 0) std::shuffle(order.begin(), order.end(), random_);
    loop::Access access;
    access.strides.assign(extents.size(), 0);
    std::int64_t step = pick(0, 5) == 0 ? 2 : 1;
    for (std::size_t i = order.size(); i-- > 0;) {
      const auto dim = static_cast<std::size_t>(order[i]);
      if (!for_store && pick(0, 4) == 0) continue;
      const bool reversed = pick(0, 5) == 0;
      access.strides[dim] = reversed ? -step : step;
      if (reversed) access.offset += step * (extents[dim] - 1);
      step *= extents[dim];
    }
    access.buffer = nest_.buffer(dtype, step + 1);
    return access;
  }

  ScalarId random_load(DType dtype) {
    const std::vector<std::int64_t>& extents = nest_.nest().extents;
    const int rank = static_cast<int>(extents.size());
    loop::Access access = random_access(rank, dtype, false);
    if (pick(0, 3) == 0) {
      // A window that begins inside or outside of the buffer's part of this dim.
      const int dim = pick(0, rank - 1);
      const std::int64_t extent = extents[static_cast<std::size_t>(dim)];
      loop::Guard guard{.offset = pick(-3, 3), .extent = std::max<std::int64_t>(1, extent - 2)};
      guard.coefficients.assign(extents.size(), 0);
      guard.coefficients[static_cast<std::size_t>(dim)] = 1;
      access.guards.push_back(guard);
      access.fill = pick(0, 1) ? 0 : 1;
    }
    return nest_.load(access);
  }

  ScalarId random_operation(DType dtype) {
    if (dtype == boolean) {
      const ScalarOp ops[] = {ScalarOp::bit_and, ScalarOp::bit_or, ScalarOp::bit_xor};
      return nest_.binary(ops[pick(0, 2)], any(), any());
    }
    const ScalarOp common[] = {ScalarOp::add, ScalarOp::sub, ScalarOp::mul, ScalarOp::min,
                               ScalarOp::max};
    switch (pick(0, 5)) {
      case 0: {
        const ScalarId less = nest_.binary(ScalarOp::less, any(), any(), boolean);
        return nest_.select(less, any(), any());
      }
      case 1: {
        const ScalarOp ops[] = {ScalarOp::neg, ScalarOp::abs, ScalarOp::sign, ScalarOp::floor,
                                ScalarOp::round};
        return nest_.unary(ops[pick(0, 4)], any());
      }
      case 2: {
        const ScalarOp floats[] = {ScalarOp::tanh, ScalarOp::erf, ScalarOp::sin};
        const ScalarOp integers[] = {ScalarOp::div, ScalarOp::rem, ScalarOp::mod};
        if (is_float(dtype)) return nest_.unary(floats[pick(0, 2)], any());
        return nest_.binary(integers[pick(0, 2)], any(), any());
      }
      case 3: {
        const DType other[] = {f32, f64, i32, i8, u8, i64, boolean, f16};
        return nest_.cast(nest_.cast(any(), other[pick(0, 7)]), dtype);
      }
      default: return nest_.binary(common[pick(0, 4)], any(), any());
    }
  }

  void store(ScalarId node, int dims) {
    loop::Access access = random_access(dims, nest_.dtype_of(node), true);
    nest_.store(access.buffer, node, access.strides, access.offset);
  }

  std::mt19937 random_;
  NestBuilder nest_;
  std::vector<ScalarId> pool_;
  ScalarId last_total_ = -1;
};

double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::f16: return 4e-3;
    case DType::bf16: return 3e-2;
    case DType::f32: return 3e-4;
    default: return is_float(dtype) ? 1e-9 : 0;
  }
}

class RandomNests : public ::testing::TestWithParam<DType> {};

TEST_P(RandomNests, MatchTheInterpreter) {
  const DType dtype = GetParam();
  for (unsigned seed = 0; seed < 45; ++seed) {
    if (dtype == boolean && seed % 3 != 0) continue;
    const loop::Kernel kernel = RandomNest(seed * 131 + 7).make(dtype, static_cast<int>(seed % 3));
    expect_as_interpreted(kernel, tolerance_of(dtype), seed);
    if (HasFailure()) return;
  }
}

TEST(RandomNestParts, MatchTheInterpreter) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    const auto parts = static_cast<std::int32_t>(2 + seed % 3);
    expect_as_interpreted(RandomNest(seed * 37 + 5).make_parts(parts), tolerance_of(f32), seed);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(RandomNestParts, HoldAllStoresAndNothingThatTheyDoNotNeed) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    const loop::Kernel kernel = RandomNest(seed * 37 + 5).make_parts(2);
    const auto& nest = std::get<loop::Nest>(kernel.body);
    std::vector<loop::Access> stored;
    for (std::int32_t part = 0; part < 2; ++part) {
      const loop::Nest own = loop::part_of(nest, part);
      std::vector<bool> used(own.nodes.size(), false);
      for (const loop::Store& store : own.stores) {
        stored.push_back(store.access);
        used.at(static_cast<std::size_t>(store.node)) = true;
      }
      for (std::size_t i = own.nodes.size(); i-- > 0;) {
        EXPECT_TRUE(used[i]) << i;
        for (const ScalarId operand : {own.nodes[i].a, own.nodes[i].b, own.nodes[i].c})
          if (operand >= 0) used.at(static_cast<std::size_t>(operand)) = true;
      }
    }
    ASSERT_EQ(stored.size(), nest.stores.size());
    for (std::size_t i = 0; i < stored.size(); ++i) EXPECT_EQ(stored[i], nest.stores[i].access);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryType, RandomNests,
                         ::testing::Values(f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32,
                                           u64, boolean),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace rlx::testing
