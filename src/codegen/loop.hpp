// Loop IR: kernels as plain data. A kernel is a loop nest over an iteration domain whose statements
// read and write buffers through affine maps; contractions add a sum over k of A*B whose result the
// epilogue consumes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "graph/scalar.hpp"

namespace rlx::loop {

/// True at a domain point d where 0 <= offset + sum(coefficients[i] * d[i]) < extent.
struct Guard {
  std::int64_t offset = 0;
  std::int64_t extent = 0;
  std::vector<std::int64_t> coefficients;  ///< one for each domain dim
  bool operator==(const Guard&) const = default;
};

/// A data-dependent part of an address: adds stride * value(node). A negative value counts from the
/// end (+ extent); a value outside [-extent, extent) is clamped into it and sets the kernel's error
/// flag (buffers[error_buffer], i32) to 1.
struct Indirect {
  ScalarId node = -1;
  std::int64_t stride = 0;
  std::int64_t extent = 0;
  bool within = false;  ///< every value is known to lie in [0, extent): none is asked
  /// Of a list of constants that is `within`: each lies as far behind the one before it as that, or
  /// less, and none before it; 0: or else.
  std::int32_t step = 0;
  bool operator==(const Indirect&) const = default;
};

/// Element address in a buffer, in elements: offset + sum(strides[i] * d[i]) + indirect parts.
struct Access {
  std::int32_t buffer = 0;  ///< index into the kernel's buffers
  std::int64_t offset = 0;
  std::vector<std::int64_t> strides;  ///< one for each domain dim; 0 broadcasts, negative reverses
  std::vector<Indirect> indirect;
  std::vector<Guard>
      guards;  ///< where one fails nothing is read and the load gives `fill` (a store is left out)
  double fill = 0;
  bool operator==(const Access&) const = default;
};

/// Writes a node. A node that depends on a reduced dim only through `reduce` is stored once per
/// point of the parallel dims (its access has stride 0 in the reduced dims); any other node is
/// stored at every point of the domain.
struct Store {
  Access access;
  ScalarId node = -1;
  bool operator==(const Store&) const = default;
};

/// What a kernel knows about one of its buffers.
struct Buffer {
  DType dtype = DType::f32;
  std::int64_t elements = 0;  ///< so many may be addressed
  bool written = false;
  /// Lives in the scratch of a worker, which holds only the rows that its work item makes: a
  /// chain's rows. Nobody passes memory for it.
  bool local = false;
  bool operator==(const Buffer&) const = default;
};

/// A map or reduction: for every point of the domain, the stores. The first `parallel_dims` dims
/// are parallel, the others are reduced by `reduce` nodes. Reductions may feed expressions that are
/// reduced again (softmax, norms): levels follow each other. A store may write a buffer that a load
/// reads only if both have the same access (in place).
/// `parts`: the stores fall into so many parts, in order and of nearly equally many, which work
/// items of their own make, those of the first part first: workers then share out the stores, not
/// the points. What is computed does not depend on it.
/// `lead`: so many of the first dims, all of them parallel, stay outermost in their order, and a
/// work item is one point of them, row-major.
struct Nest {
  std::vector<std::int64_t> extents;  ///< outer to inner
  std::int32_t parallel_dims = 0;
  std::vector<Access> accesses;  ///< of load nodes
  std::vector<ScalarNode> nodes;
  std::vector<Store> stores;
  std::int32_t error_buffer =
      -1;  ///< buffer index of the i32 error flag, where an access is indirect
  std::int32_t parts = 1;
  std::int32_t lead = 0;
  bool operator==(const Nest&) const = default;
};

/// The stores of one part.
std::span<const Store> stores_of(const Nest& nest, std::int32_t part);
/// The same with the nodes and accesses that they need, as a nest of its own.
Nest part_of(const Nest& nest, std::int32_t part);

/// C[batch..., m..., n] = sum over k... of A[batch..., m..., k...] * B[batch..., k..., n]; matmul
/// has one m and one k dim, a convolution over channels-last images has m = (image, out rows, out
/// columns) and k = (kernel rows, kernel columns, channels). The epilogue is a set of scalar nodes
/// over the domain (batch..., m..., n) in which `accumulator` is that sum.
struct Contraction {
  std::vector<std::int64_t> batch_extents, m_extents, k_extents;
  std::int64_t n = 0;

  /// A, addressed by a_offset + strides. The innermost k dim is the contiguous one in the fast
  /// kernels.
  std::int32_t a_buffer = 0;
  std::int64_t a_offset = 0;
  std::vector<std::int64_t> a_batch_strides, a_m_strides, a_k_strides;
  /// Over the domain (batch..., m..., k...): where one fails A counts as 0 (padding of
  /// convolutions).
  std::vector<Guard> a_guards;

  /// B. Packed: [batch][panel][k / k_group][panel_width][k_group], the last panel filled with
  /// zeros, k running over k dims row-major; the innermost k dim is filled up to whole groups with
  /// zeros. Not packed: addressed by b_offset + strides.
  std::int32_t b_buffer = 0;
  bool b_packed = false;
  std::int32_t panel_width = 0;  ///< packed: 16, 32, 48 or 64
  std::int32_t k_group = 1;  ///< packed: so many k side by side (pairs of bf16 or i16: 2, bytes: 4)
  std::int64_t b_offset = 0;
  std::vector<std::int64_t>
      b_batch_strides;  ///< packed: in units of whole packed matrices (0 shares one)
  std::vector<std::int64_t> b_k_strides;
  std::int64_t b_n_stride = 1;

  /// Of one packed matrix of i8 or u8: B's elements stand for scale * (b - zero), in f32. Scales
  /// (f32) and zeros (of B's type; -1: none) lie in panels as B does, one line of a panel for each
  /// of `b_blocks` equal parts of k: the first k dim counts them, unless all of k is one.
  std::int32_t b_scale_buffer = -1, b_zero_buffer = -1;
  std::int64_t b_blocks = 1;
  bool b_nibbles = false;  ///< with scales: a byte of B holds two neighbouring k (pack.hpp)
  bool scales_b() const { return b_scale_buffer >= 0; }

  DType accumulator = DType::f32;  ///< f32, f64 or i32
  /// Sums are taken in the order of k: the bits of a row's results do not depend on how many rows
  /// the contraction has.
  bool in_order = false;

  std::vector<Access> accesses;   ///< of the epilogue's loads, over (batch..., m..., n)
  std::vector<ScalarNode> nodes;  ///< of the epilogue
  std::vector<Store> stores;      ///< over (batch..., m..., n)
  /// After whole rows of the stores are there: a nest over the domain (batch..., m..., n) with the
  /// last dim reduced, run by the worker that made the rows (softmax, norms). Empty nodes: none.
  Nest row_epilogue;
  std::int32_t error_buffer = -1;
  bool operator==(const Contraction&) const = default;
};

/// Two contractions on each block of rows (attention: scores, then their product with the values).
/// The rows that `first` and its row epilogue store into local buffers are the A of `second`; no
/// other store of `first` is there. Both have the same batch and m extents. A local buffer is
/// addressed like an ordinary one that holds all rows: its stride from row to row, over (batch...,
/// m...) row-major, is constant, and elements / rows.
/// A `first` whose k extents are {0} multiplies nothing: its epilogue and row epilogue alone make
/// the rows (a norm or map in front of a product). `second` has no row epilogue.
struct Chain {
  Contraction first, second;
  bool operator==(const Chain&) const = default;
};

/// Bodies that a worker runs one after the other on one strip after the other (rows of tiles of a
/// convolution: points, their products, pixels), so that what they hand on stays in its caches. The
/// parts and leading dims of the nests count the strips, equally many in all; contractions do the
/// same for each strip. Local buffers hold one strip.
struct Strips {
  std::vector<std::variant<Nest, Contraction>> stages;
  bool operator==(const Strips&) const = default;

  std::int64_t count() const;
};

/// That point of the leading dims of a nest, of the first part before those of the second, as a
/// nest of its own.
Nest strip_of(const Nest& nest, std::int64_t strip);

/// A recurrent layer: for every direction and batch row the walk over all steps. At each step and
/// unit j the products sum over k of input[k] * R[gate][k][j] enter scalar nodes, which give the
/// next values of the states. All values are f32. The domain of nodes and accesses is (direction,
/// batch row, step, unit); the step counts from the start of the data.
struct Recurrence {
  std::int64_t directions = 1, batch = 1, steps = 1, units = 1;
  std::int64_t first_reversed =
      1;  ///< directions from this one on walk from the last step to the first

  /// R, packed: [direction][gate][panel][k][panel_width] with `units` k, the last panel filled with
  /// zeros.
  std::int32_t r_buffer = 0;
  std::int32_t panel_width = 16;
  std::int32_t gates = 1;
  /// The first `early_gates` gates multiply the previous values of state 0, the others those of the
  /// node `late_input`, which depends on products of early gates alone. -1: all gates are early.
  std::int32_t early_gates = 1;
  ScalarId late_input = -1;

  /// Leaves beside load, constant and domain_index: `accumulator` with index g < gates is the
  /// product of gate g, with index gates + s the previous value of state s.
  std::vector<Access> accesses;
  std::vector<ScalarNode> nodes;
  std::vector<Store> stores;    ///< at every step
  std::vector<ScalarId> next;   ///< by state: its next value
  std::vector<Access> initial;  ///< by state: what it starts with; buffer -1: zeros
  std::vector<Access> last;     ///< by state: where its last value goes

  /// -1: one call walks over all steps, and its items are rows of the batch.
  /// Else an i64[1] buffer that holds the number n of the one step (of at least 2) that a call
  /// makes, and the items are panels of units, for all rows of the batch: workers that each read
  /// their part of R. `initial` is empty: the states are in `last` before step 0. There they stay
  /// from call to call; only state 0, which every item needs whole, is then read where stores[0]
  /// put it one step before, and goes to `last` in the last step. All gates are early; the units of
  /// state 0 lie side by side in `last` and stores[0], their rows equally far apart in both.
  std::int32_t step_buffer = -1;
  bool operator==(const Recurrence&) const = default;
};

/// A generated kernel.
struct Kernel {
  std::vector<Buffer> buffers;
  std::variant<Nest, Contraction, Recurrence, Chain, Strips> body;
  bool operator==(const Kernel&) const = default;
};

/// Byte-stable text of a kernel: printed in LIR, and the key of the code cache.
std::string to_text(const Kernel& kernel);

/// What a kernel runs over, for people: "m 56x56, n 64, k 3x3x64" or "56x56x64, reduced 3x3".
std::string extents_text(const Kernel& kernel);

/// Evaluates a kernel point by point, slowly and obviously: the oracle of every emitter.
/// `buffers[i]` points at kernel.buffers[i].elements elements of its dtype (local ones: anything).
void interpret(const Kernel& kernel, void* const* buffers);

}  // namespace rlx::loop
