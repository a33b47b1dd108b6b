// The run of a grouped matmul: every worker sorts the rows by expert for itself, takes its share of
// the blocks of columns, and multiplies a few rows at a time.
#include "backends/cpu/executable_experts.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/error_in_flight.hpp"

namespace rlx::cpu {
namespace {

/// Rows of one expert that are copied side by side before they meet its matrix.
constexpr std::int64_t rows_at_once = 48;

constexpr std::int64_t rounded(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

std::int64_t element_bytes(const plan::Plan& plan, const plan::GroupedPlan& grouped) {
  return static_cast<std::int64_t>(
      size_of(plan.buffers[static_cast<std::size_t>(grouped.result)].dtype));
}

/// What a worker has at hand: the scratch of the kernels, then these.
struct Room {
  std::int32_t* ends = nullptr;   ///< by expert: behind its last row in `order`
  std::int32_t* order = nullptr;  ///< rows by expert, in each expert as they come
  std::byte* rows = nullptr;      ///< of x
  std::byte* tile = nullptr;      ///< of the result
};

std::int64_t room_bytes(const plan::GroupedPlan& grouped, std::int64_t element, std::byte* begin,
                        Room* room) {
  std::int64_t next = 0;
  const auto take = [&](std::int64_t bytes) {
    std::byte* const at = begin ? begin + next : nullptr;
    next += rounded(bytes);
    return at;
  };
  std::byte* const ends = take(grouped.experts * static_cast<std::int64_t>(sizeof(std::int32_t)));
  std::byte* const order = take(grouped.rows * static_cast<std::int64_t>(sizeof(std::int32_t)));
  std::byte* const rows = take(std::min(rows_at_once, grouped.rows) * grouped.depth * element);
  std::byte* const tile = take(grouped.heights.front().rows * grouped.columns * element);
  if (room)
    *room = {reinterpret_cast<std::int32_t*>(ends), reinterpret_cast<std::int32_t*>(order), rows,
             tile};
  return next;
}

std::int64_t kernel_scratch(const Program& program, const plan::GroupedPlan& grouped) {
  std::int64_t bytes = 0;
  for (const plan::GroupedPlan::Height& height : grouped.heights)
    bytes = std::max(bytes, program.kernels[static_cast<std::size_t>(height.kernel)].scratch_bytes);
  return rounded(bytes);
}

std::int64_t divided_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

Status add_grouped_scratch(Program& program) {
  for (const plan::GroupedPlan& grouped : program.plan.grouped) {
    for (const plan::GroupedPlan::Height& height : grouped.heights) {
      const std::int64_t items =
          program.kernels[static_cast<std::size_t>(height.kernel)].work_items;
      if (items != grouped.column_blocks)
        return error(ErrorKind::internal, "A kernel of ({}) rows has {} work items instead of {}.",
                     height.rows, items, grouped.column_blocks);
    }
    const std::int64_t bytes =
        kernel_scratch(program, grouped) +
        room_bytes(grouped, element_bytes(program.plan, grouped), nullptr, nullptr);
    program.scratch_bytes = std::max(program.scratch_bytes, bytes);
  }
  return {};
}

/// One worker's part of one step.
struct ExpertSteps::Call {
  const Program& program;
  const plan::GroupedPlan& grouped;
  const plan::ExpertPlaces* places;  ///< null: the matrices lie densely at w
  const std::byte* x;
  const std::byte* w;
  const void* chosen;
  bool wide;  ///< chosen is i64
  std::byte* result;
  int worker, workers;
  std::byte* scratch;
  std::int64_t element;
  const std::atomic<bool>& cancelled;
  Room room;

  std::int64_t expert_of(std::int64_t row) const {
    return wide ? static_cast<const std::int64_t*>(chosen)[row]
                : static_cast<const std::int32_t*>(chosen)[row];
  }
  std::int64_t begin_of(std::int64_t expert) const {
    return expert == 0 ? 0 : room.ends[expert - 1];
  }
  std::int64_t rows_of(std::int64_t expert) const { return room.ends[expert] - begin_of(expert); }

  Status sort() const;
  void multiply_share() const;
  void multiply_expert(std::int64_t expert, std::int64_t first, std::int64_t last) const;
  void multiply_rows(const std::int32_t* rows, std::int64_t count, const std::byte* matrix,
                     std::int64_t first, std::int64_t last) const;
  void multiply_few(const std::int32_t* rows, std::size_t height, const std::byte* a,
                    const std::byte* matrix, std::int64_t first, std::int64_t last) const;
  const std::byte* source_of(std::int32_t row) const {
    return x + row / grouped.rows_per_source * grouped.depth * element;
  }
};

// Counting sort: stable, so that equal inputs give equal orders.
Status ExpertSteps::Call::sort() const {
  std::fill_n(room.ends, grouped.experts, 0);
  for (std::int64_t row = 0; row < grouped.rows; ++row) {
    const std::int64_t expert = expert_of(row);
    if (expert < 0 || expert >= grouped.experts) [[unlikely]]
      return bad_input("The expert ({}) of a grouped matmul lies outside the {} that there are.",
                       expert, grouped.experts);
    ++room.ends[expert];
  }
  std::int32_t begin = 0;
  for (std::int64_t expert = 0; expert < grouped.experts; ++expert)
    begin += std::exchange(room.ends[expert], begin);
  for (std::int64_t row = 0; row < grouped.rows; ++row)
    room.order[room.ends[expert_of(row)]++] = static_cast<std::int32_t>(row);
  return {};
}

/// Workers share out (expert, block of columns) by what they cost: a matrix must be read even for
/// one row.
void ExpertSteps::Call::multiply_share() const {
  constexpr std::int64_t rows_of_reading = 4;
  const auto cost_of = [&](std::int64_t expert) {
    const std::int64_t rows = rows_of(expert);
    return rows == 0 ? 0 : rows + rows_of_reading;
  };
  const std::int64_t blocks = grouped.column_blocks;
  std::int64_t total = 0;
  for (std::int64_t expert = 0; expert < grouped.experts; ++expert)
    total += blocks * cost_of(expert);
  const std::int64_t begin = total * worker / workers, end = total * (worker + 1) / workers;
  std::int64_t at = 0;
  for (std::int64_t expert = 0; expert < grouped.experts && at < end; ++expert) {
    const std::int64_t cost = cost_of(expert);
    if (cost == 0) continue;
    if (cancelled.load(std::memory_order_relaxed)) [[unlikely]]
      return;
    const std::int64_t first = begin > at ? divided_up(begin - at, cost) : 0;
    const std::int64_t last = std::min(blocks, divided_up(end - at, cost));
    if (first < last) multiply_expert(expert, first, last);
    at += blocks * cost;
  }
}

void ExpertSteps::Call::multiply_expert(std::int64_t expert, std::int64_t first,
                                        std::int64_t last) const {
  const auto e = static_cast<std::size_t>(expert);
  const std::byte* const matrix =
      places ? places->matrices[e] : w + expert * grouped.depth * grouped.columns * element;
  const bool is_far = places && !places->resident[e];
  const std::byte* far = matrix;
  std::int64_t far_bytes = 0;
  if (is_far) {
    // Panels follow each other: those of these blocks come in together, and leave together.
    const codegen::PackedLayout& layout =
        program.plan.weights[static_cast<std::size_t>(grouped.weight)].layout;
    const std::int64_t panel = layout.k * layout.panel_width * element;
    const std::int64_t begin = first * grouped.block_columns / layout.panel_width;
    const std::int64_t end =
        std::min(layout.panels(), divided_up(last * grouped.block_columns, layout.panel_width));
    far += begin * panel;
    far_bytes = (end - begin) * panel;
    plan::read_ahead(far, far_bytes);
  }
  const std::int32_t* rows = room.order + begin_of(expert);
  for (std::int64_t left = rows_of(expert); left > 0; left -= rows_at_once, rows += rows_at_once)
    multiply_rows(rows, std::min(left, rows_at_once), matrix, first, last);
  if (is_far) plan::drop_pages(far, far_bytes);
}

void ExpertSteps::Call::multiply_rows(const std::int32_t* rows, std::int64_t count,
                                      const std::byte* matrix, std::int64_t first,
                                      std::int64_t last) const {
  const std::int64_t row_bytes = grouped.depth * element;
  const std::byte* a = room.rows;
  if (count == 1) {
    a = source_of(rows[0]);
  } else {
    for (std::int64_t i = 0; i < count; ++i)
      std::memcpy(room.rows + i * row_bytes, source_of(rows[i]),
                  static_cast<std::size_t>(row_bytes));
  }
  // The columns of a block stay near while all rows pass them; few rows take all blocks at once.
  const bool is_few = count <= grouped.heights.front().rows;
  const std::int64_t step = is_few ? last - first : 1;
  for (std::int64_t block = first; block < last; block += step) {
    std::int64_t done = 0;
    for (std::size_t h = 0; h < grouped.heights.size(); ++h) {
      const std::int64_t height = grouped.heights[h].rows;
      for (; count - done >= height; done += height)
        multiply_few(rows + done, h, a + done * row_bytes, matrix, block, block + step);
    }
  }
}

void ExpertSteps::Call::multiply_few(const std::int32_t* rows, std::size_t height,
                                     const std::byte* a, const std::byte* matrix,
                                     std::int64_t first, std::int64_t last) const {
  const plan::GroupedPlan::Height& few = grouped.heights[height];
  const std::int64_t row_bytes = grouped.columns * element;
  std::byte* const target = few.rows == 1 ? result + rows[0] * row_bytes : room.tile;
  void* const buffers[] = {const_cast<std::byte*>(a), const_cast<std::byte*>(matrix), target};
  program.kernels[static_cast<std::size_t>(few.kernel)].function(buffers, first, last, scratch);
  if (few.rows == 1) return;
  const std::int64_t begin = first * grouped.block_columns,
                     end = std::min(last * grouped.block_columns, grouped.columns);
  for (std::int64_t i = 0; i < few.rows; ++i)
    std::memcpy(result + rows[i] * row_bytes + begin * element,
                target + i * row_bytes + begin * element,
                static_cast<std::size_t>((end - begin) * element));
}

ExpertSteps::ExpertSteps(std::shared_ptr<const Program> program,
                         std::shared_ptr<const plan::Weights> weights)
    : program_(std::move(program)), weights_(std::move(weights)) {
  const plan::Plan& plan = program_->plan;
  layers_.resize(static_cast<std::size_t>(plan.layers));
  for (const plan::GroupedPlan& grouped : plan.grouped) {
    Layer& layer = layers_[static_cast<std::size_t>(grouped.layer)];
    if (!grouped.is_first) continue;
    layer.experts = grouped.experts;
    layer.rows = grouped.rows;
    layer.mask.assign(static_cast<std::size_t>(grouped.experts), true);
  }
  places_.resize(plan.grouped.size());
  is_placed_ = plan.grouped.empty();
}

std::int64_t ExpertSteps::resident_bytes() const {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const std::int32_t weight = program_->plan.grouped[i].weight;
    if (weight < 0) continue;
    bytes += is_placed_ ? places_[i].resident_bytes
                        : program_->plan.weights[static_cast<std::size_t>(weight)].bytes;
  }
  return bytes;
}

void ExpertSteps::set_weights(std::shared_ptr<const plan::Weights> weights) {
  weights_ = std::move(weights);
  is_placed_ = places_.empty();
}

void ExpertSteps::share(const ExpertSteps& other) {
  places_ = other.places_;
  is_placed_ = other.is_placed_;
  for (std::size_t i = 0; i < layers_.size(); ++i) layers_[i].mask = other.layers_[i].mask;
  enable_capture(other.captures_);
}

Status ExpertSteps::place() {
  try {
    RLX_TRY(place_all());
  } catch (...) {
    return error_in_flight();
  }
  is_placed_ = true;
  return {};
}

Status ExpertSteps::place_all() {
  ThreadPool& pool = *program_->shared->pool;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const plan::GroupedPlan& grouped = program_->plan.grouped[i];
    if (grouped.weight < 0) continue;
    const auto& store = weights_->experts(static_cast<std::size_t>(grouped.weight));
    const ExpertMask& mask = layers_[static_cast<std::size_t>(grouped.layer)].mask;
    // First out, then in: so that both together never take more than the larger of the two.
    if (!places_[i].resident.empty()) {
      ExpertMask staying = mask;
      for (std::size_t e = 0; e < staying.size(); ++e)
        staying[e] = staying[e] && places_[i].resident[e];
      RLX_ASSIGN(places_[i], store->place(staying, pool));
    }
    RLX_ASSIGN(places_[i], store->place(mask, pool));
  }
  return {};
}

void ExpertSteps::begin_run() {
  for (Layer& layer : layers_) layer.counts = {};
  has_run_ = true;
}

void ExpertSteps::note(const Call& call) {
  Layer& layer = layers_[static_cast<std::size_t>(call.grouped.layer)];
  for (std::int64_t e = 0; e < call.grouped.experts; ++e) {
    const bool resident = !call.places || call.places->resident[static_cast<std::size_t>(e)];
    (resident ? layer.counts.resident : layer.counts.other) += call.rows_of(e);
  }
  if (!captures_) return;
  for (std::int64_t row = 0; row < call.grouped.rows; ++row)
    layer.chosen[static_cast<std::size_t>(row)] = static_cast<std::uint32_t>(call.expert_of(row));
}

Status ExpertSteps::run(std::int32_t index, void* const* pointers, int worker, int workers,
                        std::byte* scratch, const std::atomic<bool>& cancelled) {
  const plan::GroupedPlan& grouped = program_->plan.grouped[static_cast<std::size_t>(index)];
  const plan::BufferPlan& chosen = program_->plan.buffers[static_cast<std::size_t>(grouped.chosen)];
  Call call{.program = *program_,
            .grouped = grouped,
            .places = grouped.weight < 0 ? nullptr : &places_[static_cast<std::size_t>(index)],
            .x = static_cast<const std::byte*>(pointers[0]),
            .w = static_cast<const std::byte*>(pointers[1]),
            .chosen = pointers[2],
            .wide = chosen.dtype == i64,
            .result = static_cast<std::byte*>(pointers[3]),
            .worker = worker,
            .workers = workers,
            .scratch = scratch,
            .element = element_bytes(program_->plan, grouped),
            .cancelled = cancelled,
            .room = {}};
  room_bytes(grouped, call.element, scratch + kernel_scratch(*program_, grouped), &call.room);
  RLX_TRY(call.sort());
  if (worker == 0 && grouped.is_first) note(call);
  call.multiply_share();
  return {};
}

std::vector<std::int64_t> ExpertSteps::layers() const {
  std::vector<std::int64_t> experts;
  for (const Layer& layer : layers_) experts.push_back(layer.experts);
  return experts;
}

Status ExpertSteps::set_resident(const std::vector<ExpertMask>& masks) {
  std::vector<ExpertMask> before;
  for (std::size_t i = 0; i < masks.size(); ++i) {
    before.push_back(std::move(layers_[i].mask));
    layers_[i].mask = masks[i];
  }
  is_placed_ = false;
  // Without values there is nothing to place yet: the first run does it.
  Status status = weights_->missing().empty() ? place() : Status();
  for (std::size_t i = 0; i < before.size() && !status.ok(); ++i)
    layers_[i].mask = std::move(before[i]);
  return status;
}

void ExpertSteps::enable_capture(bool enabled) {
  captures_ = enabled;
  has_run_ = false;
  for (Layer& layer : layers_)
    layer.chosen.assign(enabled ? static_cast<std::size_t>(layer.rows) : 0, 0);
}

std::optional<std::vector<ExpertChoices>> ExpertSteps::take_choices() {
  if (!captures_ || !has_run_) return std::nullopt;
  std::vector<ExpertChoices> choices;
  for (const Layer& layer : layers_) choices.push_back({layer.experts, layer.chosen});
  return choices;
}

std::vector<ExpertCounts> ExpertSteps::take_counts() {
  std::vector<ExpertCounts> counts;
  for (const Layer& layer : layers_) counts.push_back(layer.counts);
  return counts;
}

}  // namespace rlx::cpu
