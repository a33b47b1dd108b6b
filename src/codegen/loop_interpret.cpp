// The oracle of every emitter: kernels evaluated point by point, with sums in double precision.
#include "codegen/loop_interpret.hpp"

namespace rlx::loop {
namespace {

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
      const ScalarDatum b = b_at(point);
      sum.number += a.number * b.number;
      sum.integer += a.integer * b.integer;
    });
    const ScalarNode round{.op = ScalarOp::max, .dtype = c_.accumulator, .a = 0, .b = 0};
    return apply_scalar(round, c_.accumulator, sum, sum, {});
  }

 private:
  ScalarDatum b_at(const Point& point) const {
    if (!c_.scales_b()) return load(c_.b_buffer, b_address(point));
    ScalarDatum b = c_.b_nibbles ? nibble(b_address(point)) : load(c_.b_buffer, b_address(point));
    const std::int64_t block = c_.b_blocks > 1 ? k_[0] : 0, column = point.back();
    const std::int64_t at =
        (column / c_.panel_width * c_.b_blocks + block) * c_.panel_width + column % c_.panel_width;
    if (c_.b_zero_buffer >= 0) b.integer -= load(c_.b_zero_buffer, at).integer;
    b.number = load(c_.b_scale_buffer, at).number * static_cast<double>(b.integer);
    return b;
  }

  /// Of the element at an address in panels of whole elements.
  ScalarDatum nibble(std::int64_t address) const {
    const std::int64_t width = c_.panel_width, line = address / width;
    ScalarDatum b = load(c_.b_buffer, line / 2 * width + address % width);
    b.integer = line % 2 == 0 ? b.integer & 15 : b.integer >> 4 & 15;
    const bool is_signed = kernel_.buffers[static_cast<std::size_t>(c_.b_buffer)].dtype == i8;
    if (is_signed && b.integer > 7) b.integer -= 16;
    return b;
  }

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

/// The addresses of a kernel's buffers, the local ones in memory of their own.
class WithLocalBuffers {
 public:
  WithLocalBuffers(const Kernel& kernel, void* const* buffers)
      : all_(buffers, buffers + kernel.buffers.size()) {
    for (std::size_t i = 0; i < kernel.buffers.size(); ++i) {
      const Buffer& buffer = kernel.buffers[i];
      if (!buffer.local) continue;
      local_.emplace_back(static_cast<std::size_t>(buffer.elements) * size_of(buffer.dtype));
      all_[i] = local_.back().data();
    }
  }
  void* const* data() const { return all_.data(); }

 private:
  std::vector<std::vector<std::byte>> local_;
  std::vector<void*> all_;
};

/// All rows at once.
void run_chain(const Kernel& kernel, void* const* buffers, const Chain& chain) {
  const WithLocalBuffers all(kernel, buffers);
  run_contraction(kernel, all.data(), chain.first);
  run_contraction(kernel, all.data(), chain.second);
}

void run_strips(const Kernel& kernel, void* const* buffers, const Strips& strips) {
  const WithLocalBuffers all(kernel, buffers);
  for (std::int64_t strip = 0; strip < strips.count(); ++strip) {
    for (const auto& stage : strips.stages) {
      if (const auto* c = std::get_if<Contraction>(&stage)) run_contraction(kernel, all.data(), *c);
      if (const auto* nest = std::get_if<Nest>(&stage))
        run_nest(kernel, all.data(), strip_of(*nest, strip));
    }
  }
}

}  // namespace

void interpret(const Kernel& kernel, void* const* buffers) {
  if (const auto* nest = std::get_if<Nest>(&kernel.body)) {
    run_nest(kernel, buffers, *nest);
  } else if (const auto* contraction = std::get_if<Contraction>(&kernel.body)) {
    run_contraction(kernel, buffers, *contraction);
  } else if (const auto* chain = std::get_if<Chain>(&kernel.body)) {
    run_chain(kernel, buffers, *chain);
  } else if (const auto* strips = std::get_if<Strips>(&kernel.body)) {
    run_strips(kernel, buffers, *strips);
  } else {
    run_recurrence(kernel, buffers, std::get<Recurrence>(kernel.body));
  }
}

}  // namespace rlx::loop
