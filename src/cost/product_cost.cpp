// Predicts products that are not there: plain kernels of their shape.
#include "cost/product_cost.hpp"

#include <algorithm>
#include <limits>

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
    if (model.machine.large_l2) target.features = "+avx512fp16";
    codegen::PackedLayout layout =
        codegen::choose_packed_layout(s.columns, s.depth, b, target, s.rows);
    const bool quads = is_integer(a) && model.machine.vnni;
    const bool pairs = is_integer(a) || (a == bf16 && b == bf16 && model.machine.bf16_dot);
    layout.group = quads ? 4 : pairs ? 2 : 1;
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

/// On the best number of threads. More than one must be worth calling a team for.
double least_ns(const loop::Kernel& kernel, const MachineModel& model, int threads) {
  const KernelWork work = work_of(kernel, {}, model);
  double least = std::numeric_limits<double>::infinity();
  for (int count = 1; count <= std::max(threads, 1); ++count) {
    const double team = count > 1 ? model.team + model.barrier : 0;
    least = std::min(least, time_of(work, model, count).ns + team);
  }
  return least;
}

}  // namespace

double product_ns(const ProductShape& shape, DType a, DType b, bool packed,
                  const MachineModel& model, int threads) {
  const loop::Kernel kernel = product_kernel(shape, a, b, packed, model);
  return predict(kernel, {}, model, threads).ns + conversion_ns(shape, a, packed, model) / threads;
}

double whole_rows_ns(const ProductShape& shape, DType a, DType b, bool packed, WholeRows rows,
                     const MachineModel& model, int threads) {
  loop::Kernel kernel = product_kernel(shape, a, b, packed, model);
  // What moves beside the product is no matter of its form.
  if (rows == WholeRows::operands) kernel.buffers[0].local = true;
  const double plain = least_ns(kernel, model, threads);
  loop::Contraction product = std::get<loop::Contraction>(kernel.body);
  const loop::Nest nothing{.extents = {0}, .nodes = {{.op = ScalarOp::constant, .dtype = f32}}};
  if (rows == WholeRows::results) {
    product.row_epilogue = nothing;
    kernel.body = std::move(product);
  } else {
    kernel.body = loop::Chain{{.k_extents = {0}, .row_epilogue = nothing}, std::move(product)};
  }
  return std::max(0.0, least_ns(kernel, model, threads) - plain);
}

}  // namespace rlx::cost
