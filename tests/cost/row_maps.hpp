// Maps of rows from which tests of costs make others.
#pragma once

#include "codegen/loop.hpp"

namespace rlx::cost {

/// y[i, j] = x[i, j], the rows of y so many elements apart.
inline loop::Kernel copy_kernel(std::int64_t rows, std::int64_t columns, std::int64_t apart) {
  loop::Kernel kernel;
  kernel.buffers = {{f32, rows * columns, false, false}, {f32, rows * apart, true, false}};
  loop::Nest nest;
  nest.extents = {rows, columns};
  nest.parallel_dims = 2;
  loop::Access read;
  read.strides = {columns, 1};
  loop::Access write;
  write.buffer = 1;
  write.strides = {apart, 1};
  nest.accesses = {read};
  nest.nodes = {{.op = ScalarOp::load, .dtype = f32, .index = 0}};
  nest.stores = {{write, 0}};
  kernel.body = nest;
  return kernel;
}

/// y[i, j] = f(x[i, j]) in rows that do not follow each other.
inline loop::Kernel curve_kernel(ScalarOp op, std::int64_t columns, bool beside_one = false) {
  loop::Kernel kernel = copy_kernel(64, columns, 2 * columns);
  auto& nest = std::get<loop::Nest>(kernel.body);
  nest.nodes.push_back({.op = op, .dtype = f32, .a = 0});
  if (beside_one) {
    nest.nodes.push_back({.op = ScalarOp::constant, .dtype = f32, .value = 1});
    nest.nodes.push_back({.op = ScalarOp::add, .dtype = f32, .a = 1, .b = 2});
  }
  nest.stores[0].node = static_cast<ScalarId>(nest.nodes.size()) - 1;
  return kernel;
}

}  // namespace rlx::cost
