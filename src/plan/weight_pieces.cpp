// Writes packed weights panel by panel, and copies of views.
#include "plan/weight_pieces.hpp"

#include <algorithm>
#include <cstring>

#include "base/memory.hpp"
#include "plan/negligible.hpp"
#include "rlx/mapped.hpp"

namespace rlx::plan {

namespace {

std::span<float> floats_of(std::byte* data, std::int64_t bytes) {
  return {reinterpret_cast<float*>(data), static_cast<std::size_t>(bytes) / sizeof(float)};
}
std::span<const float> floats_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

}  // namespace

// Batches are walked here: the packer knows one batch stride.
void pack_panels(const WeightPlan& weight, const Tensor& source, std::int64_t batch,
                 std::int64_t first_panel, std::int64_t last_panel, std::byte* matrix) {
  std::int64_t offset = weight.view.offset, rest = batch;
  for (std::size_t i = weight.batch_extents.size(); i-- > 0;) {
    offset += rest % weight.batch_extents[i] * weight.batch_strides[i];
    rest /= weight.batch_extents[i];
  }
  codegen::PackedLayout part = weight.layout;
  const std::int64_t first_column = first_panel * part.panel_width;
  part.n = std::min(weight.layout.n, last_panel * part.panel_width) - first_column;
  const std::int64_t panel_bytes = part.panel_bytes();
  bool small = false;
  codegen::Written written;
  if (weight.drops_negligible && part.dtype == DType::f32)
    written = [&](std::span<const std::byte> bytes) {
      small = small || has_small(floats_of(bytes));
    };
  codegen::pack({.data = source.data(),
                 .from = weight.from,
                 .offset = offset + first_column * weight.n_stride,
                 .batches = 1,
                 .batch_stride = 0,
                 .k_extents = weight.k_extents,
                 .k_strides = weight.k_strides,
                 .n_stride = weight.n_stride},
                part, matrix + first_panel * panel_bytes, written);
  if (!small) return;
  for (std::int64_t panel = first_panel; panel < last_panel; ++panel)
    drop_negligible(floats_of(matrix + panel * panel_bytes, panel_bytes));
}

namespace {

/// Copies a strided view of `source` densely.
void copy_view(const View& view, const Tensor& source, std::byte* target) {
  const std::size_t size = size_of(source.dtype());
  if (view.elements() == 0) return;
  if (view.is_dense()) {
    const std::byte* from = source.data() + static_cast<std::size_t>(view.offset) * size;
    const std::size_t bytes = static_cast<std::size_t>(view.elements()) * size;
    for (std::size_t at = 0; at < bytes; at += bytes_got_at_once) {
      const std::size_t part = std::min(bytes_got_at_once, bytes - at);
      get_pages(target + at, part);
      std::memcpy(target + at, from + at, part);
    }
    return;
  }
  Dims index(view.dims.size(), 0);
  std::int64_t offset = view.offset;
  for (std::int64_t i = 0; i < view.elements(); ++i) {
    std::memcpy(target + static_cast<std::size_t>(i) * size,
                source.data() + static_cast<std::size_t>(offset) * size, size);
    for (std::size_t axis = index.size(); axis-- > 0;) {
      offset += view.strides[axis];
      if (++index[axis] < view.dims[axis]) break;
      offset -= view.strides[axis] * view.dims[axis];
      index[axis] = 0;
    }
  }
}

void pack_piece(const WeightPiece& piece) {
  const codegen::PackedLayout& layout = piece.weight->layout;
  const auto matrix_bytes = static_cast<std::int64_t>(codegen::packed_bytes(layout, 1));
  pack_panels(*piece.weight, piece.source, piece.batch, piece.first_panel, piece.last_panel,
              piece.target + piece.batch * matrix_bytes);
}

}  // namespace

void write_piece(const WeightPiece& piece) {
  if (piece.weight->packed) {
    pack_piece(piece);
  } else {
    copy_view(piece.weight->view, piece.source, piece.target);
    if (piece.weight->drops_negligible)
      drop_negligible(floats_of(piece.target, piece.weight->bytes));
  }
}

void forget_source(const WeightPiece& piece) {
  const WeightPlan& weight = *piece.weight;
  std::int64_t reach = 1;  // of k from the first element of a column
  for (std::size_t i = 0; i < weight.k_extents.size(); ++i)
    reach += (weight.k_extents[i] - 1) * weight.k_strides[i];
  if (!weight.packed || !weight.batch_extents.empty() || reach != weight.n_stride) return;
  const auto element = static_cast<std::int64_t>(size_of(piece.source.dtype()));
  const std::int64_t first = piece.first_panel * weight.layout.panel_width;
  const std::int64_t last = std::min(weight.layout.n, piece.last_panel * weight.layout.panel_width);
  const std::byte* begin =
      piece.source.data() + (weight.view.offset + first * weight.n_stride) * element;
  forget_pages(Tensor(u8, {(last - first) * weight.n_stride * element},
                      std::shared_ptr<const std::byte>(piece.source.shared_data(), begin)));
}

void add_pieces(const WeightPlan& weight, const Tensor& source, std::byte* target,
                std::vector<WeightPiece>& pieces) {
  constexpr std::int64_t bytes_each = std::int64_t{1} << 20;
  if (!weight.packed) {
    pieces.push_back({&weight, source, target});
    return;
  }
  const std::int64_t panels = weight.layout.panels();
  const std::int64_t panel_bytes = weight.layout.panel_bytes();
  const std::int64_t step =
      std::max<std::int64_t>(1, bytes_each / std::max<std::int64_t>(1, panel_bytes));
  for (std::int64_t batch = 0; batch < element_count(weight.batch_extents); ++batch) {
    for (std::int64_t first = 0; first < panels; first += step)
      pieces.push_back({&weight, source, target, batch, first, std::min(panels, first + step)});
  }
}

}  // namespace rlx::plan
