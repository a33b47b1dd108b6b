// Results over dying operands: only where each point is read before it is written.
#include "plan/in_place.hpp"

#include <gtest/gtest.h>

#include "plan/layout_arena.hpp"

namespace rlx::plan {
namespace {

/// A map over 4 x 8 points in `steps` steps: step i reads buffer i and writes buffer i + 1.
Plan chain(int steps) {
  Plan plan;
  for (int i = 0; i <= steps; ++i)
    plan.buffers.push_back({.dtype = f32, .elements = 32, .name = std::to_string(i)});
  for (std::int32_t i = 0; i < steps; ++i) {
    loop::Nest nest;
    nest.extents = {4, 8};
    nest.parallel_dims = 2;
    nest.accesses.push_back({.buffer = 0, .offset = 0, .strides = {8, 1}});
    nest.nodes.push_back({.op = ScalarOp::load, .dtype = f32, .index = 0});
    nest.stores.push_back({{.buffer = 1, .offset = 0, .strides = {8, 1}}, 0});
    loop::Kernel kernel;
    kernel.body = nest;
    kernel.buffers = {{f32, 32, false}, {f32, 32, true}};
    plan.kernels.push_back(kernel);
    plan.steps.push_back({.kind = Step::Kind::kernel, .index = i, .buffers = {i, i + 1}});
  }
  plan.buffers[0].storage = Storage::input;
  plan.outputs = {steps};
  return plan;
}

loop::Nest& nest_of(Plan& plan, std::size_t kernel) {
  return std::get<loop::Nest>(plan.kernels[kernel].body);
}

/// Does the last buffer of a chain of two take over buffer 1?
bool is_in_place(Plan plan) {
  lay_out_arena(plan);
  return plan.buffers[2].offset == plan.buffers[1].offset;
}

TEST(InPlace, a_chain_of_maps_lies_in_one_buffer) {
  Plan plan = chain(5);
  lay_out_arena(plan);
  EXPECT_EQ(plan.arena_bytes, 32 * 4);
  EXPECT_EQ(plan.arena_lower_bound_bytes, 32 * 4);
  for (const BufferPlan& buffer : plan.buffers) EXPECT_EQ(buffer.offset, 0);
}

TEST(InPlace, an_operand_that_is_read_later_stays) {
  Plan plan = chain(2);
  EXPECT_TRUE(is_in_place(plan));
  plan.outputs.push_back(1);
  EXPECT_FALSE(is_in_place(plan));
}

TEST(InPlace, another_access_is_not_in_place) {
  Plan plan = chain(2);
  nest_of(plan, 1).accesses[0].strides = {1, 4};  // a transposed operand
  EXPECT_FALSE(is_in_place(plan));
  plan = chain(2);
  nest_of(plan, 1).accesses[0].strides = {0, 1};  // a broadcast one
  EXPECT_FALSE(is_in_place(plan));
  plan = chain(2);
  nest_of(plan, 1).accesses.push_back({.buffer = 0, .offset = 1, .strides = {8, 1}});
  EXPECT_FALSE(is_in_place(plan));
  plan = chain(2);
  nest_of(plan, 1).accesses[0].guards.push_back({0, 4, {1, 0}});
  EXPECT_FALSE(is_in_place(plan));
}

TEST(InPlace, elements_of_another_dtype_are_not_in_place) {
  Plan plan = chain(2);
  plan.buffers[2].dtype = f16;
  EXPECT_FALSE(is_in_place(plan));
}

TEST(InPlace, a_nest_knows_that_it_writes_what_it_reads) {
  Plan plan = chain(2);
  lay_out_arena(plan);
  EXPECT_EQ(nest_of(plan, 1).stores[0].access.buffer, nest_of(plan, 1).accesses[0].buffer);
  EXPECT_TRUE(plan.kernels[1].buffers[0].written);
}

TEST(InPlace, a_part_of_a_larger_buffer_is_not_in_place) {
  Plan plan = chain(2);
  plan.buffers[2].elements = 64;
  EXPECT_FALSE(is_in_place(plan));
}

TEST(InPlace, the_operand_of_a_sum_of_products_is_not_overwritten) {
  Plan plan = chain(2);
  loop::Contraction c;
  c.m_extents = {4}, c.k_extents = {8}, c.n = 8;
  c.a_buffer = 0, c.b_buffer = 2;
  c.accesses.push_back({.buffer = 0, .offset = 0, .strides = {8, 1}});
  c.stores.push_back({{.buffer = 1, .offset = 0, .strides = {8, 1}}, 0});
  plan.kernels[1].body = c;
  plan.buffers.push_back({.dtype = f32, .elements = 64, .storage = Storage::weight, .index = 0});
  plan.steps[1].buffers = {1, 2, 3};
  EXPECT_FALSE(is_in_place(plan));
  // A residual is.
  std::get<loop::Contraction>(plan.kernels[1].body).a_buffer = 2;
  EXPECT_TRUE(is_in_place(plan));
}

TEST(InPlace, rows_that_are_made_twice_read_what_was_there_before) {
  Plan plan = chain(2);
  loop::Contraction c;
  c.m_extents = {32}, c.k_extents = {16}, c.n = 1;
  c.a_buffer = 2, c.a_m_strides = {16}, c.a_k_strides = {1}, c.b_buffer = 3, c.b_k_strides = {1};
  c.accesses.push_back({.buffer = 0, .offset = 0, .strides = {1, 0}});
  c.stores.push_back({{.buffer = 1, .offset = 0, .strides = {1, 0}}, 0});
  plan.kernels[1].body = c;
  plan.buffers.push_back({.dtype = f32, .elements = 512, .storage = Storage::weight, .index = 0});
  plan.buffers.push_back({.dtype = f32, .elements = 16, .storage = Storage::weight, .index = 1});
  plan.steps[1].buffers = {1, 2, 3, 4};
  EXPECT_FALSE(is_in_place(plan));
  std::get<loop::Contraction>(plan.kernels[1].body).b_packed = true;
  EXPECT_TRUE(is_in_place(plan));
}

TEST(InPlace, a_condition_of_the_step_is_not_overwritten) {
  Plan plan = chain(2);
  for (BufferPlan& buffer : plan.buffers) buffer.dtype = boolean;
  EXPECT_TRUE(is_in_place(plan));
  plan.steps[1].conditions = {{1, true}};
  EXPECT_FALSE(is_in_place(plan));
}

}  // namespace
}  // namespace rlx::plan
