// Predicts products that are not there: a plain kernel of their shape.
#include "cost/product_cost.hpp"

#include "codegen/pack.hpp"
#include "cost/kernel_cost.hpp"

namespace rlx::cost {
namespace {

loop::Kernel product_kernel(const ProductShape& s, DType a, DType b, bool packed,
                            const MachineModel& model) {
  loop::Contraction c;
  c.batch_extents = {s.batches};
  c.m_extents = {s.rows};
  c.k_extents = {s.depth};
  c.n = s.columns;
  c.a_batch_strides = {s.rows * s.depth};
  c.a_m_strides = {s.depth};
  c.a_k_strides = {1};
  c.b_buffer = 1;
  c.b_packed = packed;
  c.b_batch_strides = {packed ? 1 : s.depth * s.columns};
  c.b_k_strides = {s.columns};
  std::int64_t b_elements = s.batches * s.depth * s.columns;
  const DType sums = is_integer(a) ? i32 : f32;
  if (packed) {
    codegen::Target target;
    target.isa = model.machine.isa;
    codegen::PackedLayout layout = codegen::choose_packed_layout(s.columns, s.depth, b, target);
    layout.group = a == bf16 && b == bf16 ? 2 : is_integer(a) ? 4 : 1;
    layout.inner = s.depth;
    c.k_group = static_cast<std::int32_t>(layout.group);
    c.panel_width = static_cast<std::int32_t>(layout.panel_width);
    b_elements = s.batches * layout.elements();
  }
  c.accumulator = sums;
  c.nodes = {{.op = ScalarOp::accumulator, .dtype = sums}};
  c.stores = {{{2, 0, {s.rows * s.columns, s.columns, 1}, {}, {}, 0}, 0}};
  return {{{a, s.batches * s.a_rows * s.a_depth, false},
           {b, b_elements, false},
           {sums, s.batches * s.rows * s.columns, true}},
          std::move(c)};
}

/// Registers of values that are rounded; rows of bytes are also searched for their largest one.
double conversion_ns(const ProductShape& shape, DType a, bool packed, const MachineModel& model) {
  if (a == f32) return 0;
  constexpr double steps_to_bytes = 5;
  double elements = static_cast<double>(shape.batches * shape.a_rows * shape.a_depth);
  if (!packed) elements += static_cast<double>(shape.batches * shape.depth * shape.columns);
  return elements / (model.machine.vector_bytes / 4.0) * model.narrow_ns *
         (a == u8 ? steps_to_bytes : 1);
}

}  // namespace

double product_ns(const ProductShape& shape, DType a, DType b, bool packed,
                  const MachineModel& model, int threads) {
  const loop::Kernel kernel = product_kernel(shape, a, b, packed, model);
  return predict(kernel, {}, model, threads).ns + conversion_ns(shape, a, packed, model) / threads;
}

}  // namespace rlx::cost
