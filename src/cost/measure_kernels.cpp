// The kernels of calibration.
#include "cost/measure_kernels.hpp"

#include "codegen/pack.hpp"

namespace rlx::cost {
namespace {

ScalarId add(std::vector<ScalarNode>& nodes, ScalarNode node) {
  nodes.push_back(node);
  return static_cast<ScalarId>(nodes.size() - 1);
}

ScalarId load(loop::Nest& nest, loop::Access access, DType dtype) {
  nest.accesses.push_back(std::move(access));
  const auto index = static_cast<std::int32_t>(nest.accesses.size() - 1);
  return add(nest.nodes, {.op = ScalarOp::load, .dtype = dtype, .index = index});
}

ScalarId constant(std::vector<ScalarNode>& nodes, double value, DType dtype = f32) {
  return add(nodes, {.op = ScalarOp::constant, .dtype = dtype, .value = value});
}

bool is_test(ScalarOp op) {
  return op == ScalarOp::is_nan || op == ScalarOp::is_inf ||
         (op >= ScalarOp::equal && op <= ScalarOp::greater_equal);
}

/// The op on one value, as f32.
ScalarId apply(std::vector<ScalarNode>& nodes, ScalarOp op, ScalarId x, ScalarId other) {
  const bool binary = op >= ScalarOp::add && op <= ScalarOp::greater_equal;
  if (op == ScalarOp::cast) {
    const ScalarId integer = add(nodes, {.op = op, .dtype = i32, .a = x});
    return add(nodes, {.op = op, .dtype = f32, .a = integer});
  }
  if (op == ScalarOp::select) {
    const ScalarId test = add(nodes, {.op = ScalarOp::less, .dtype = boolean, .a = x, .b = other});
    return add(nodes, {.op = op, .dtype = f32, .a = test, .b = x, .c = other});
  }
  if (is_test(op)) {
    const ScalarId test =
        add(nodes, {.op = op, .dtype = boolean, .a = x, .b = binary ? other : -1});
    return add(nodes, {.op = ScalarOp::select, .dtype = f32, .a = test, .b = x, .c = other});
  }
  return add(nodes, {.op = op, .dtype = f32, .a = x, .b = binary ? other : -1});
}

}  // namespace

loop::Kernel op_kernel(ScalarOp op, int count, std::int64_t elements) {
  loop::Nest nest;
  nest.extents = {elements};
  nest.parallel_dims = 1;
  const ScalarId x = load(nest, {.buffer = 0, .strides = {1}}, f32);
  ScalarId sum = x;
  for (int i = 0; i < count; ++i) {
    const ScalarId c = constant(nest.nodes, 0.001 * (i + 1));
    const ScalarId moved = add(nest.nodes, {.op = ScalarOp::add, .dtype = f32, .a = x, .b = c});
    const ScalarId value = apply(nest.nodes, op, moved, x);
    sum = add(nest.nodes, {.op = ScalarOp::add, .dtype = f32, .a = sum, .b = value});
  }
  nest.stores.push_back({{.buffer = 1, .strides = {1}}, sum});
  return {{{f32, elements, false}, {f32, elements, true}}, std::move(nest)};
}

loop::Kernel read_kernel(std::int64_t rows, std::int64_t row) {
  loop::Nest nest;
  nest.extents = {rows, row};
  nest.parallel_dims = 1;
  const ScalarId x = load(nest, {.buffer = 0, .strides = {row, 1}}, f32);
  const ScalarId sum = add(nest.nodes, {.op = ScalarOp::reduce, .dtype = f32, .a = x});
  nest.stores.push_back({{.buffer = 1, .strides = {1, 0}}, sum});
  return {{{f32, rows * row, false}, {f32, rows, true}}, std::move(nest)};
}

loop::Kernel write_kernel(std::int64_t elements) {
  loop::Nest nest;
  nest.extents = {elements};
  nest.parallel_dims = 1;
  const ScalarId one = load(nest, {.buffer = 0, .strides = {0}}, f32);
  nest.stores.push_back({{.buffer = 1, .strides = {1}}, one});
  return {{{f32, 1, false}, {f32, elements, true}}, std::move(nest)};
}

loop::Kernel rows_kernel(std::int64_t rows, std::int64_t row, DType dtype) {
  loop::Nest nest;
  nest.extents = {rows, row};
  nest.parallel_dims = 2;
  const std::int64_t distance = row + 16, elements = rows * distance;
  const ScalarId x = load(nest, {.buffer = 0, .strides = {distance, 1}}, dtype);
  const ScalarId one = constant(nest.nodes, 1, dtype);
  const ScalarId sum = add(nest.nodes, {.op = ScalarOp::add, .dtype = dtype, .a = x, .b = one});
  nest.stores.push_back({{.buffer = 1, .strides = {distance, 1}}, sum});
  return {{{dtype, elements, false}, {dtype, elements, true}}, std::move(nest)};
}

loop::Kernel gather_kernel(std::int64_t elements) {
  loop::Nest nest;
  nest.extents = {elements};
  nest.parallel_dims = 1;
  constexpr std::int64_t apart = 5;  // nearer ones are read in whole registers and shuffled
  const ScalarId x = load(nest, {.buffer = 0, .strides = {apart}}, f32);
  nest.stores.push_back({{.buffer = 1, .strides = {1}}, x});
  return {{{f32, elements * apart, false}, {f32, elements, true}}, std::move(nest)};
}

loop::Kernel gemm_kernel(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype,
                         const codegen::Target& target) {
  const codegen::PackedLayout layout = codegen::choose_packed_layout(n, k, dtype, target);
  loop::Contraction c;
  c.m_extents = {m};
  c.k_extents = {k};
  c.n = n;
  c.a_buffer = 0;
  c.a_m_strides = {k};
  c.a_k_strides = {1};
  c.b_buffer = 1;
  c.b_packed = true;
  c.panel_width = static_cast<std::int32_t>(layout.panel_width);
  const ScalarId sum = add(c.nodes, {.op = ScalarOp::accumulator, .dtype = f32});
  c.stores.push_back({{.buffer = 2, .strides = {n, 1}}, sum});
  return {{{dtype, m * k, false}, {dtype, layout.elements(), false}, {f32, m * n, true}},
          std::move(c)};
}

}  // namespace rlx::cost
