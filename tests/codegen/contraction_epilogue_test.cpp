// Epilogues: bias, activation, residual, casts, several stores, and norms over whole rows.
#include "codegen/llvm/contraction_plan.hpp"
#include "contraction_fixture.hpp"

namespace rlx::codegen::testing {
namespace {

loop::Access access(std::int32_t buffer, std::vector<std::int64_t> strides,
                    std::int64_t offset = 0) {
  return {buffer, offset, std::move(strides), {}, {}, 0};
}

loop::Contraction& body(loop::Kernel& kernel) { return std::get<loop::Contraction>(kernel.body); }

/// Adds a buffer and a load of it through `strides`; gives the load's node.
ScalarId add_load(loop::Kernel& kernel, DType dtype, std::int64_t elements,
                  std::vector<std::int64_t> strides) {
  loop::Contraction& c = body(kernel);
  kernel.buffers.push_back({dtype, elements, false});
  const auto buffer = static_cast<std::int32_t>(kernel.buffers.size()) - 1;
  c.accesses.push_back(access(buffer, std::move(strides)));
  const auto index = static_cast<std::int32_t>(c.accesses.size()) - 1;
  return add_node(c.nodes, {.op = ScalarOp::load, .dtype = dtype, .index = index});
}

ScalarId add_gelu(std::vector<ScalarNode>& nodes, ScalarId x) {
  const ScalarId scale = add_node(nodes, {.op = ScalarOp::constant, .value = 0.70710678118654752});
  const ScalarId half = add_node(nodes, {.op = ScalarOp::constant, .value = 0.5});
  const ScalarId scaled = add_node(nodes, {.op = ScalarOp::mul, .a = x, .b = scale});
  const ScalarId erf = add_node(nodes, {.op = ScalarOp::erf, .a = scaled});
  const ScalarId halved = add_node(nodes, {.op = ScalarOp::mul, .a = erf, .b = half});
  const ScalarId share = add_node(nodes, {.op = ScalarOp::add, .a = halved, .b = half});
  return add_node(nodes, {.op = ScalarOp::mul, .a = x, .b = share});
}

TEST(ContractionEpilogue, bias_gelu_residual_and_a_narrow_copy) {
  for (const Target& target : host_targets()) {
    for (std::int64_t n : {7, 48, 70}) {
      loop::Kernel kernel = matmul({.m = 21, .n = n, .k = 30, .batch = 2}, target);
      loop::Contraction& c = body(kernel);
      const ScalarId bias = add_load(kernel, f32, n, {0, 0, 1});
      const ScalarId residual = add_load(kernel, f32, 2 * 21 * n, {21 * n, n, 1});
      const ScalarId by_row = add_load(kernel, f32, 21, {0, 1, 0});
      ScalarId x = add_node(c.nodes, {.op = ScalarOp::add, .a = 0, .b = bias});
      x = add_gelu(c.nodes, x);
      x = add_node(c.nodes, {.op = ScalarOp::mul, .a = x, .b = by_row});
      x = add_node(c.nodes, {.op = ScalarOp::add, .a = x, .b = residual});
      c.stores[0].node = x;
      const ScalarId narrow = add_node(c.nodes, {.op = ScalarOp::cast, .dtype = bf16, .a = x});
      kernel.buffers.push_back({bf16, 2 * 21 * n, true});
      const auto last = static_cast<std::int32_t>(kernel.buffers.size()) - 1;
      c.stores.push_back({access(last, {21 * n, n, 1}), narrow});
      expect_as_interpreted(kernel, target, 1e-5, 1);
    }
  }
}

TEST(ContractionEpilogue, short_chains_in_registers) {
  for (const Target& target : host_targets()) {
    for (std::int64_t n : {5, 48, 70, 128}) {
      for (std::int64_t m : {1, 14, 257}) {
        loop::Kernel kernel = matmul({.m = m, .n = n, .k = 6, .batch = 3}, target);
        loop::Contraction& c = body(kernel);
        const ScalarId bias = add_load(kernel, f32, 3 * n, {n, 0, 1});
        const ScalarId by_row = add_load(kernel, f32, 3 * m, {m, 1, 0});
        ScalarId x = add_node(c.nodes, {.op = ScalarOp::add, .a = 0, .b = bias});
        x = add_node(c.nodes, {.op = ScalarOp::mul, .a = x, .b = by_row});
        const ScalarId zero = add_node(c.nodes, {.op = ScalarOp::constant});
        x = add_node(c.nodes, {.op = ScalarOp::max, .a = x, .b = zero});
        // The residual lies where the result goes.
        c.accesses.push_back(c.stores[0].access);
        const ScalarId residual = add_node(c.nodes, {.op = ScalarOp::load, .index = 2});
        c.stores[0].node = add_node(c.nodes, {.op = ScalarOp::add, .a = x, .b = residual});
        expect_as_interpreted(kernel, target, 1e-5, 1);
      }
    }
  }
}

TEST(ContractionEpilogue, series_of_rows_side_by_side_in_place_of_the_residual) {
  for (const Target& target : host_targets()) {
    for (std::int64_t n : {4, 8, 12, 16, 24, 32, 40, 70}) {
      for (std::int64_t m : {1, 5, 37}) {
        loop::Kernel kernel = matmul({.m = m, .n = n, .k = 6, .batch = 2}, target);
        loop::Contraction& c = body(kernel);
        const ScalarId by_row = add_load(kernel, f32, 2 * m, {m, 1, 0});
        c.accesses.push_back(c.stores[0].access);
        const ScalarId residual = add_node(c.nodes, {.op = ScalarOp::load, .index = 1});
        ScalarId x = add_node(c.nodes, {.op = ScalarOp::add, .a = 0, .b = residual});
        x = add_node(c.nodes, {.op = ScalarOp::mul, .a = x, .b = by_row});
        const ScalarId away = add_node(c.nodes, {.op = ScalarOp::neg, .a = x});
        const ScalarId curve = add_node(c.nodes, {.op = ScalarOp::exp, .a = away});
        const ScalarId one = add_node(c.nodes, {.op = ScalarOp::constant, .value = 1});
        const ScalarId sum = add_node(c.nodes, {.op = ScalarOp::add, .a = one, .b = curve});
        const ScalarId gate = add_node(c.nodes, {.op = ScalarOp::div, .a = one, .b = sum});
        c.stores[0].node = add_node(c.nodes, {.op = ScalarOp::mul, .a = x, .b = gate});
        expect_as_interpreted(kernel, target, 1e-5, 1);
      }
    }
  }
}

TEST(ContractionEpilogue, stores_into_a_wider_and_a_transposed_buffer) {
  for (const Target& target : host_targets()) {
    loop::Kernel kernel = matmul({.m = 19, .n = 37, .k = 12}, target);
    body(kernel).stores[0].access = access(2, {0, 60, 1}, 11);
    kernel.buffers[2].elements = 19 * 60;
    kernel.buffers.push_back({f32, 19 * 37, true});
    body(kernel).stores.push_back({access(3, {0, 1, 19}), 0});
    expect_as_interpreted(kernel, target, 1e-5, 1);
    // The wide one alone takes the way from registers.
    body(kernel).stores.pop_back();
    expect_as_interpreted(kernel, target, 1e-5, 2);
  }
}

TEST(ContractionEpilogue, quantised_sums_become_floats) {
  for (const Target& target : host_targets()) {
    MatmulOptions options{.m = 10, .n = 40, .k = 24};
    options.a = u8;
    options.b = i8;
    options.accumulator = i32;
    loop::Kernel kernel = matmul(options, target);
    loop::Contraction& c = body(kernel);
    const ScalarId scale = add_load(kernel, f32, 40, {0, 0, 1});
    ScalarId x = add_node(c.nodes, {.op = ScalarOp::cast, .dtype = f32, .a = 0});
    x = add_node(c.nodes, {.op = ScalarOp::mul, .a = x, .b = scale});
    c.stores[0].node = x;
    kernel.buffers[2].dtype = f32;
    expect_as_interpreted(kernel, target, 1e-5, 1);
  }
}

TEST(ContractionEpilogue, causal_mask_by_position) {
  for (const Target& target : host_targets()) {
    MatmulOptions options{.m = 33, .n = 33, .k = 16, .batch = 3};
    options.packed = false;
    options.transposed_b = true;
    loop::Kernel kernel = matmul(options, target);
    loop::Contraction& c = body(kernel);
    const ScalarId row =
        add_node(c.nodes, {.op = ScalarOp::domain_index, .dtype = i64, .index = 1});
    const ScalarId column =
        add_node(c.nodes, {.op = ScalarOp::domain_index, .dtype = i64, .index = 2});
    const ScalarId seen =
        add_node(c.nodes, {.op = ScalarOp::less_equal, .dtype = boolean, .a = column, .b = row});
    const ScalarId low = add_node(c.nodes, {.op = ScalarOp::constant, .value = -100});
    c.stores[0].node = add_node(c.nodes, {.op = ScalarOp::select, .a = seen, .b = 0, .c = low});
    expect_as_interpreted(kernel, target, 1e-5, 1);
  }
}

/// y = (x - mean) * rsqrt(variance + 1e-5) over the last of (batch, m, n), in place of the store.
loop::Nest layer_norm(std::int64_t batch, std::int64_t m, std::int64_t n) {
  loop::Nest nest;
  nest.extents = {batch, m, n};
  nest.parallel_dims = 2;
  nest.accesses = {access(2, {m * n, n, 1})};
  auto& nodes = nest.nodes;
  const ScalarId x = add_node(nodes, {.op = ScalarOp::load, .index = 0});
  const ScalarId count =
      add_node(nodes, {.op = ScalarOp::constant, .value = 1.0 / static_cast<double>(n)});
  const ScalarId sum = add_node(nodes, {.op = ScalarOp::reduce, .a = x});
  const ScalarId mean = add_node(nodes, {.op = ScalarOp::mul, .a = sum, .b = count});
  const ScalarId centred = add_node(nodes, {.op = ScalarOp::sub, .a = x, .b = mean});
  const ScalarId square = add_node(nodes, {.op = ScalarOp::mul, .a = centred, .b = centred});
  const ScalarId squares = add_node(nodes, {.op = ScalarOp::reduce, .a = square});
  const ScalarId variance = add_node(nodes, {.op = ScalarOp::mul, .a = squares, .b = count});
  const ScalarId epsilon = add_node(nodes, {.op = ScalarOp::constant, .value = 1e-5});
  const ScalarId shifted = add_node(nodes, {.op = ScalarOp::add, .a = variance, .b = epsilon});
  const ScalarId scale = add_node(nodes, {.op = ScalarOp::rsqrt, .a = shifted});
  const ScalarId y = add_node(nodes, {.op = ScalarOp::mul, .a = centred, .b = scale});
  nest.stores = {{access(3, {m * n, n, 1}), y}};
  return nest;
}

TEST(ContractionEpilogue, layer_norm_behind_whole_rows) {
  for (const Target& target : host_targets()) {
    for (std::int64_t n : {5, 16, 64, 200}) {
      for (std::int64_t m : {1, 7, 37}) {
        for (std::int64_t batch : {1, 2}) {
          loop::Kernel kernel = matmul({.m = m, .n = n, .k = 30, .batch = batch}, target);
          kernel.buffers.push_back({f32, batch * m * n, true});
          body(kernel).row_epilogue = layer_norm(batch, m, n);
          expect_as_interpreted(kernel, target, 2e-5, 1);
          // In place: the norm overwrites the rows of the sums.
          body(kernel).row_epilogue.stores[0].access.buffer = 2;
          expect_as_interpreted(kernel, target, 2e-5, 2);
        }
      }
    }
  }
}

TEST(ContractionEpilogue, whole_rows_share_walks_over_b) {
  for (const Target& target : host_targets()) {
    loop::Kernel kernel = matmul({.m = 64, .n = 40, .k = 30, .batch = 1}, target);
    kernel.buffers.push_back({f32, 64 * 40, true});
    body(kernel).row_epilogue = layer_norm(1, 64, 40);
    const PlanMachine machine(machine_of(target));
    const ContractionPlan plan = plan_contraction(body(kernel), f32, f32, machine);
    EXPECT_EQ(plan.row_groups,
              machine.registers < 32 ? (plan.row_blocks + 1) / 2 : plan.row_blocks);
    expect_as_interpreted(kernel, target, 2e-5, 1);
  }
}

}  // namespace
}  // namespace rlx::codegen::testing
