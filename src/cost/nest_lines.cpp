// Lines of the cache under the accesses of nests.
#include "cost/nest_lines.hpp"

#include <map>
#include <numeric>
#include <set>

#include "cost/touched.hpp"

namespace rlx::cost {

bool NestLines::is_turned(int access) const {
  return std::find(plan_.turned.begin(), plan_.turned.end(), access) != plan_.turned.end();
}

double NestLines::masked_share(const loop::Access& access) const {
  const auto runs_along = [&](const loop::Guard& guard) {
    return guard.coefficients[static_cast<std::size_t>(plan_.vector_dim)] != 0;
  };
  if (plan_.has_inside() && plan_.may_repeat) return 0;
  if (!plan_.has_inside() && std::ranges::any_of(access.guards, runs_along)) return 1;
  const double along = extent(plan_.vector_dim);
  return std::fmod(along, plan_.lanes) == 0 ? 0 : 1 / vectors_of(along);
}

bool NestLines::is_found(const loop::Access& access) const {
  for (const loop::Access& before : nest_.accesses) {
    if (&before == &access) return false;
    if (before.buffer == access.buffer && before.strides == access.strides) return true;
  }
  return false;
}

double NestLines::far_page_ns(const loop::Access& access, DType dtype) const {
  constexpr double page = 4096, entries = 72;
  const double apart =
      std::abs(static_cast<double>(access.strides[static_cast<std::size_t>(plan_.vector_dim)])) *
      static_cast<double>(size_of(dtype));
  const double pages = extent(plan_.vector_dim) * std::min(apart / page, 1.0);
  if (pages <= entries || is_found(access)) return 0;
  // Taps find the pages that the one before has found.
  return model_.cycle * std::min(apart / page, 1.0) / points_of(plan_.reduced_dims());
}

double NestLines::share_across_lines(std::int64_t bytes) const {
  if (plan_.lanes * 4 < 64) return 0;
  const std::int64_t step = std::gcd(std::max<std::int64_t>(std::abs(bytes), 1), line_bytes);
  return 1 - static_cast<double>(step) / line_bytes;
}

bool NestLines::crowds_sets(const loop::Access& access, DType dtype) const {
  constexpr std::int64_t page = 4096;
  const std::int64_t apart = std::abs(access.strides[static_cast<std::size_t>(plan_.tile_dim())]) *
                             static_cast<std::int64_t>(size_of(dtype));
  if (apart % line_bytes != 0) return false;
  const std::int64_t sets = page / std::gcd(std::max<std::int64_t>(apart, 1), page);
  return plan_.lanes > overlap_.turned_ways * static_cast<double>(sets);
}

double NestLines::crowded_share(const loop::Access& access, DType dtype) const {
  constexpr std::int64_t page = 4096;
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  const auto stride = [&](int dim) {
    return std::abs(access.strides[static_cast<std::size_t>(dim)]) * size;
  };
  bool comes_again = false;
  for (int dim = 0; dim < nest_.parallel_dims; ++dim)
    comes_again |=
        dim != plan_.vector_dim && extent(dim) > 1 && stride(dim) > 0 && stride(dim) < line_bytes;
  const std::int64_t apart = stride(plan_.vector_dim);
  if (!comes_again || apart < line_bytes) return 0;
  const auto sets = static_cast<double>(page / std::max(std::gcd(apart, page), line_bytes));
  const double ways = static_cast<double>(model_.cache_bytes[0]) / page;
  // A tile's neighbours, and their taps, take their elements of a line at once.
  double at_once = 1;
  if (plan_.levels > 0 && plan_.tile > 1 && stride(plan_.tile_dim()) < line_bytes)
    at_once *= static_cast<double>(plan_.tile);
  if (plan_.levels > 0 && stride(plan_.rank() - 1) < line_bytes)
    at_once *= extent(plan_.rank() - 1);
  at_once = std::min(at_once, static_cast<double>(line_bytes / size));
  return std::max(0.0, 1 - ways * sets / extent(plan_.vector_dim)) / at_once;
}

double NestLines::shared_line_share(const loop::Access& access, DType dtype) const {
  constexpr std::int64_t half_page = 2048;
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t apart =
      std::abs(access.strides[static_cast<std::size_t>(plan_.vector_dim)]) * size;
  // Others are fetched again in time; more than L1 holds are told as lines read again.
  const bool counts =
      plan_.lanes * static_cast<double>(size) < line_bytes && apart % half_page == 0 &&
      extent(plan_.vector_dim) * line_bytes <= static_cast<double>(model_.cache_bytes[0]);
  return counts ? crowded_share(access, dtype) : 0;
}

double NestLines::row_step_ns(double unroll) const {
  // What comes next no stream tells; rows whole pages apart fall into the same sets, too.
  constexpr double row_step = 1, page_step = 3;
  double longest = 0;
  const double near = 0.9 * static_cast<double>(model_.cache_bytes[0]);
  for (const loop::Access& access : nest_.accesses) {
    const std::int64_t along = access.strides[static_cast<std::size_t>(plan_.vector_dim)];
    if (!access.indirect.empty() || std::abs(along) != 1) continue;
    const loop::Buffer& buffer = buffers_[static_cast<std::size_t>(access.buffer)];
    const std::int64_t size = static_cast<std::int64_t>(size_of(buffer.dtype));
    const std::int64_t apart = std::abs(access.strides.back()) * size;
    const double all = static_cast<double>(buffer.elements * size);
    if (static_cast<double>(apart) <= unroll * line_bytes || all < near) continue;
    // Windows find there what others have read before them.
    const double far = (1 - near / all) * share_of_first_reads(access);
    longest = std::max(longest, far * (apart % 4096 == 0 ? page_step : row_step));
  }
  return longest;
}

double NestLines::lone_lines(bool turning) const {
  double lines = 0;
  for (std::size_t i = 0; i < nest_.accesses.size(); ++i)
    lines += lone_lines(nest_.accesses[i], turning && is_turned(static_cast<int>(i)));
  for (const loop::Store& store : nest_.stores) lines += lone_lines(store.access, false);
  return lines;
}

double NestLines::lone_lines(const loop::Access& access, bool turned) const {
  constexpr double followed = 16;  // rows side by side that are asked for ahead, each in its page
  if (!access.indirect.empty()) return 0;
  if (turned && extent(plan_.vector_dim) <= followed) return 0;
  const double size =
      static_cast<double>(size_of(buffers_[static_cast<std::size_t>(access.buffer)].dtype));
  double points = 1, least = line_bytes / size, apart = 0;
  for (int dim = 0; dim < plan_.rank(); ++dim) {
    const double stride =
        std::abs(static_cast<double>(access.strides[static_cast<std::size_t>(dim)]));
    if (stride == 0 || extent(dim) <= 1) continue;
    if (dim == plan_.vector_dim) apart = stride * size;
    points *= extent(dim);
    least = std::min(least, stride);
  }
  return apart >= (turned ? 4096 : 2 * line_bytes) ? points * least * size / line_bytes : 0;
}

double NestLines::turned_lines() const {
  const double points = points_of((codegen::DimSet{1} << plan_.rank()) - 1);
  const auto bytes_of = [&](const loop::Access& access) {
    return static_cast<double>(size_of(buffers_[static_cast<std::size_t>(access.buffer)].dtype));
  };
  double bytes = 0;
  for (const int access : plan_.turned)
    bytes += bytes_of(nest_.accesses[static_cast<std::size_t>(access)]);
  for (const loop::Store& store : nest_.stores) bytes += bytes_of(store.access);
  return points * bytes / line_bytes;
}

double NestLines::lines_across() const {
  double lines = 0;
  for (const loop::Access& access : nest_.accesses) {
    const DType dtype = buffers_[static_cast<std::size_t>(access.buffer)].dtype;
    if (access.strides[static_cast<std::size_t>(plan_.vector_dim)] != 1 || !access.indirect.empty())
      continue;
    const double share = share_across(access, dtype);
    if (share == 0) continue;
    codegen::DimSet dims = 0;
    for (int dim = 0; dim < plan_.rank(); ++dim)
      if (access.strides[static_cast<std::size_t>(dim)] != 0) dims |= codegen::DimSet{1} << dim;
    lines += share * share_of_first_reads(access) * points_of(dims) *
             static_cast<double>(size_of(dtype)) / line_bytes;
  }
  return lines;
}

double NestLines::lines_of_many_streams() const {
  const double streams = static_cast<double>(nest_.accesses.size() + nest_.stores.size());
  const double further = std::max(0.0, streams - overlap_.streams);
  constexpr double element = 4;
  return further * points_of((codegen::DimSet{1} << plan_.rank()) - 1) * element / line_bytes;
}

double NestLines::apart(std::span<const loop::Access* const> accesses) const {
  constexpr std::int64_t page = 4096;
  std::set<std::pair<std::int32_t, std::int64_t>> begins;
  for (const loop::Access* access : accesses) {
    const DType dtype = buffers_[static_cast<std::size_t>(access->buffer)].dtype;
    begins.insert(
        {access->buffer, access->offset * static_cast<std::int64_t>(size_of(dtype)) / page});
  }
  const auto streams = std::max(1.0, static_cast<double>(begins.size()));
  return std::max(0.0, 1 - overlap_.streams / streams);
}

double NestLines::loads_apart() const {
  std::vector<const loop::Access*> loads;
  for (const loop::Access& access : nest_.accesses) loads.push_back(&access);
  return apart(loads);
}

double NestLines::stores_apart() const {
  std::vector<const loop::Access*> stores;
  for (const loop::Store& store : nest_.stores) stores.push_back(&store.access);
  return apart(stores);
}

double NestLines::crowded_lines() const {
  constexpr std::int64_t page = 4096;  // of L1: from one line of a set to the next
  const double ways = static_cast<double>(model_.cache_bytes[0]) / page;
  // Streams of a buffer by the set in which they begin; how buffers lie to each other is not known.
  std::map<std::pair<std::int32_t, std::int64_t>, double> begins;
  std::set<std::pair<std::int32_t, std::int64_t>> seen;
  double vector_bytes = 0;
  const auto add = [&](const loop::Access& access) {
    if (access.strides[static_cast<std::size_t>(plan_.vector_dim)] != 1) return;
    if (!seen.insert({access.buffer, access.offset}).second) return;
    const auto size =
        static_cast<std::int64_t>(size_of(buffers_[static_cast<std::size_t>(access.buffer)].dtype));
    begins[{access.buffer, (access.offset * size % page + page) % page / line_bytes}] += 1;
    vector_bytes = std::max(vector_bytes, plan_.lanes * static_cast<double>(size));
  };
  for (const loop::Access& access : nest_.accesses) add(access);
  for (const loop::Store& store : nest_.stores) add(store.access);
  double crowded = 0;
  for (const auto& [begin, streams] : begins) crowded += std::max(0.0, streams - ways);
  const double points = points_of((codegen::DimSet{1} << nest_.parallel_dims) - 1);
  return crowded * points / plan_.lanes * vector_bytes / line_bytes;
}

void NestLines::widen(Lines& lines, double apart_bytes, double count, double inside_bytes,
                      double whole) const {
  if (count <= 1) return;
  const double fresh = std::clamp(apart_bytes / line_bytes, 1 / count, 1.0);
  const double next = std::min(lines.touched * std::max(1.0, fresh * count), whole);
  const bool kept = inside_bytes < 0.7 * static_cast<double>(model_.cache_bytes[0]);
  lines.moved *= kept ? next / lines.touched : count;
  lines.touched = next;
}

void NestLines::add_lines_again(KernelWork& work) const {
  std::vector<const loop::Access*> all;
  for (const loop::Access& access : nest_.accesses) {
    if (access.indirect.empty()) all.push_back(&access);
  }
  for (const loop::Store& store : nest_.stores) all.push_back(&store.access);
  std::vector<Lines> lines(all.size());
  std::vector<std::int64_t> left = nest_.extents;
  std::vector<double> done(left.size(), 1);
  const auto step = [&](int dim, double count, double by) {
    double inside = 0;
    for (const Lines& own : lines) inside += own.touched * line_bytes;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const loop::Buffer& buffer = buffers_[static_cast<std::size_t>(all[i]->buffer)];
      const double size = static_cast<double>(size_of(buffer.dtype));
      const double stride =
          std::abs(static_cast<double>(all[i]->strides[static_cast<std::size_t>(dim)]));
      const double whole = std::ceil(static_cast<double>(buffer.elements) * size / line_bytes);
      widen(lines[i], stride * size * by, count, inside, whole);
    }
  };
  const auto take = [&](int dim, std::int64_t count) {
    const auto d = static_cast<std::size_t>(dim);
    count = std::min(count, left[d]);
    step(dim, static_cast<double>(count), done[d]);
    done[d] *= static_cast<double>(count);
    left[d] = (left[d] + count - 1) / std::max<std::int64_t>(count, 1);
  };
  take(plan_.vector_dim, plan_.lanes);
  if (plan_.tile > 1) take(plan_.tile_dim(), plan_.tile);
  for (int dim = plan_.rank() - 1; dim >= nest_.parallel_dims; --dim)
    take(dim, left[static_cast<std::size_t>(dim)]);
  take(plan_.vector_dim, left[static_cast<std::size_t>(plan_.vector_dim)]);
  for (int dim = nest_.parallel_dims - 1; dim >= 0; --dim)
    take(dim, left[static_cast<std::size_t>(dim)]);
  for (const Lines& own : lines)
    work.streamed[1] += std::max(0.0, own.moved - own.touched) * line_bytes;
}

double NestLines::far_rows() const {
  constexpr double far_bytes = 2048;
  double rows = 0;
  const auto add = [&](const loop::Access& access) {
    if (!access.indirect.empty()) return;
    const auto bytes = [&](int dim) {
      return std::abs(static_cast<double>(access.strides[static_cast<std::size_t>(dim)])) *
             static_cast<double>(size_of(buffers_[static_cast<std::size_t>(access.buffer)].dtype));
    };
    if (access.strides[static_cast<std::size_t>(plan_.vector_dim)] != 1) return;
    double length = extent(plan_.vector_dim) * bytes(plan_.vector_dim), own = 1;
    bool is_far = false;
    for (int dim = nest_.parallel_dims - 1; dim >= 0; --dim) {
      if (dim == plan_.vector_dim || extent(dim) == 1 || bytes(dim) == 0) continue;
      is_far |= bytes(dim) - length >= far_bytes;
      if (is_far) own *= extent(dim);
      length = std::max(length, bytes(dim) * extent(dim));
    }
    if (is_far) rows += own;
  };
  for (const loop::Access& access : nest_.accesses) add(access);
  for (const loop::Store& store : nest_.stores) add(store.access);
  return rows;
}

double NestLines::stores_with_gaps() const {
  double lines = 0;
  for (const loop::Store& store : nest_.stores) {
    const loop::Access& access = store.access;
    if (access.strides[static_cast<std::size_t>(plan_.vector_dim)] != 1 || !access.indirect.empty())
      continue;
    const DType dtype = buffers_[static_cast<std::size_t>(access.buffer)].dtype;
    const Rows rows = rows_of(access, nest_.extents, size_of(dtype));
    if (rows.apart - rows.length >= line_bytes) lines += rows.count * lines_of_row(rows);
  }
  return lines;
}

double NestLines::broken_rows(double rows) const {
  double most = 0;
  const auto add = [&](const loop::Access& access) {
    const auto stride = [&](int dim) {
      return std::abs(static_cast<double>(access.strides[static_cast<std::size_t>(dim)]));
    };
    if (stride(plan_.vector_dim) == 0) return;
    double length = extent(plan_.vector_dim) * stride(plan_.vector_dim), broken = rows;
    const auto size =
        static_cast<double>(size_of(buffers_[static_cast<std::size_t>(access.buffer)].dtype));
    // A row that begins within a line waits for the end of the one before.
    if (!access.indirect.empty() || std::fmod(length * size, line_bytes) != 0) {
      most = rows;
      return;
    }
    for (int dim = nest_.parallel_dims - 1; dim >= 0; --dim) {
      if (dim == plan_.vector_dim || extent(dim) == 1) continue;
      if (stride(dim) > length) break;
      length += stride(dim) * (extent(dim) - 1);
      broken /= extent(dim);
    }
    most = std::max(most, broken);
  };
  for (const loop::Access& access : nest_.accesses) add(access);
  for (const loop::Store& store : nest_.stores) add(store.access);
  return most;
}

}  // namespace rlx::cost
