// What all kinds of kernels share: nodes, traffic, and workers.
#include "cost/kernel_cost.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "codegen/llvm/nest_plan.hpp"
#include "cost/kernel_work.hpp"
#include "cost/touched.hpp"

namespace rlx::cost {
namespace {

bool is_narrow(DType dtype) { return is_float(dtype) && size_of(dtype) < 4; }

/// Streams and instructions overlap, but not wholly: near a tie both show.
double overlapped(double compute, double memory, double power) {
  const double longer = std::max(compute, memory), shorter = std::min(compute, memory);
  return shorter <= 0 ? longer
                      : longer * std::pow(1 + std::pow(shorter / longer, power), 1 / power);
}

}  // namespace

double code_lines_of(const loop::Kernel& kernel) {
  // A call also reads its step, the addresses of its buffers and its constants.
  constexpr double call = 10;
  const auto nodes = [](const std::vector<ScalarNode>& list) {
    return 2 + static_cast<double>(list.size());
  };
  const auto contraction = [&](const loop::Contraction& c) {
    return 16 + nodes(c.nodes) +
           (c.row_epilogue.nodes.empty() ? 0 : 8 + nodes(c.row_epilogue.nodes));
  };
  if (const auto* nest = std::get_if<loop::Nest>(&kernel.body))
    return call + 4 + nodes(nest->nodes);
  if (const auto* one = std::get_if<loop::Contraction>(&kernel.body))
    return call + contraction(*one);
  if (const auto* chain = std::get_if<loop::Chain>(&kernel.body))
    return call + contraction(chain->first) + contraction(chain->second);
  if (const auto* strips = std::get_if<loop::Strips>(&kernel.body)) {
    double lines = call;
    for (const auto& stage : strips->stages) {
      const auto* nest = std::get_if<loop::Nest>(&stage);
      lines += nest ? 4 + nodes(nest->nodes) : contraction(std::get<loop::Contraction>(stage));
    }
    return lines;
  }
  return call + 16 + nodes(std::get<loop::Recurrence>(kernel.body).nodes);
}

namespace {

/// A register to a power that is known when code is made: quarters are products of roots (see
/// quarters_of), others need no logarithm of the power.
double known_power_ns(double exponent, const MachineModel& model) {
  const int count = codegen::quarters_of(exponent);
  if (count < 0) return (model.machine.masks ? 0.72 : 0.95) * model.op(ScalarOp::pow);
  const int roots = count & 1 ? 2 : count & 2 ? 1 : 0;
  const int products = std::popcount(static_cast<unsigned>(count)) + std::max(0, count / 8);
  const double inverse = exponent < 0 ? model.op(ScalarOp::reciprocal) : 0;
  return roots * model.op(ScalarOp::sqrt) + (products + (roots ? 2 : 0)) * model.op(ScalarOp::mul) +
         inverse;
}

}  // namespace

double node_ns(const ScalarNode& node, std::span<const ScalarNode> nodes,
               const MachineModel& model) {
  switch (node.op) {
    case ScalarOp::constant:
    case ScalarOp::load:
    case ScalarOp::accumulator: return 0;
    default: break;
  }
  // Of a curve beside 1 the absolute error counts: it takes that part of its time alone, as
  // measured on Zen 4 with AVX-512 and on Zen 3. The curve's own node counts all of it; the
  // addition gives back the rest.
  if (const ScalarId id = codegen::curve_beside_one(node, nodes); id >= 0 && model.machine.fma) {
    const ScalarOp curve = nodes[static_cast<std::size_t>(id)].op;
    const bool masks = model.machine.masks;
    const double part = curve == ScalarOp::erf    ? (masks ? 0.33 : 0.53)
                        : curve == ScalarOp::tanh ? (masks ? 0.84 : 0.88)
                                                  : (masks ? 1 : 0.65);
    return model.op(ScalarOp::add) - (1 - part) * model.op(curve);
  }
  // Beside a number one instruction does it, else NaN takes two more.
  const auto is_constant = [&](ScalarId id) {
    return id >= 0 && nodes[static_cast<std::size_t>(id)].op == ScalarOp::constant;
  };
  const bool is_extreme = node.op == ScalarOp::min || node.op == ScalarOp::max;
  if (is_extreme && node.dtype == DType::f32 && (is_constant(node.a) || is_constant(node.b)))
    return model.op(ScalarOp::add);
  if (model.machine.masks && codegen::logistic_of(node, nodes) >= 0)
    return model.overlap.logistic * model.op(ScalarOp::add);
  double ns = model.op(node.op);
  if (node.op == ScalarOp::pow && is_constant(node.b))
    ns = known_power_ns(nodes[static_cast<std::size_t>(node.b)].value, model);
  const bool compares = node.op >= ScalarOp::equal && node.op <= ScalarOp::greater_equal;
  const DType dtype =
      compares && node.a >= 0 ? nodes[static_cast<std::size_t>(node.a)].dtype : node.dtype;
  if (is_float(dtype) && size_of(dtype) == 8) return ns * model.wide_factor;
  if (is_narrow(dtype)) return ns + model.narrow_ns;
  const bool divides =
      node.op == ScalarOp::div || node.op == ScalarOp::rem || node.op == ScalarOp::mod;
  // Integers divide lane by lane.
  if (is_integer(dtype) && divides)
    return model.cycle * 6 * model.machine.vector_bytes / static_cast<double>(size_of(dtype));
  if (is_integer(dtype) && node.op == ScalarOp::mul && size_of(dtype) == 8) ns *= 3;
  if (node.op == ScalarOp::cast && node.a >= 0 &&
      is_narrow(nodes[static_cast<std::size_t>(node.a)].dtype))
    return model.narrow_ns;
  return ns;
}

double expression_ns(std::span<const ScalarNode> nodes, const MachineModel& model) {
  double ns = 0;
  for (const ScalarNode& node : nodes) ns += node_ns(node, nodes, model);
  return ns;
}

double latency_cycles(const ScalarNode& node, std::span<const ScalarNode> nodes,
                      const MachineModel& model) {
  const double cycles = node_ns(node, nodes, model) / model.cycle;
  if (cycles <= 0) return 0;
  if (cycles <= 1.5) return 3.5;
  // What a long series takes was measured with its waits: as far as a processor looks ahead of it.
  constexpr double looked_over = 90;
  return std::min(8 + 3 * cycles, std::max(cycles, looked_over));
}

void add_read(KernelWork& work, const loop::Buffer& buffer, const Residency* residency,
              double bytes, const MachineModel& model) {
  const double whole =
      static_cast<double>(buffer.elements) * static_cast<double>(size_of(buffer.dtype));
  const double touched = std::min(bytes, whole);
  if (residency) {
    double sum = 0;
    for (const double part : residency->bytes) sum += part;
    const double share = sum > 0 ? touched / sum : 0;
    for (std::size_t level = 0; level < level_count; ++level)
      work.read[level] += residency->bytes[level] * share;
    return;
  }
  std::size_t level = 0;
  while (level < 3 && touched > static_cast<double>(model.cache_bytes[level])) ++level;
  work.read[level] += touched;
}

void add_write(KernelWork& work, const loop::Buffer& buffer, const Residency* residency,
               double bytes, const MachineModel& model) {
  KernelWork moved;
  add_read(moved, buffer, residency, bytes, model);
  for (std::size_t level = 0; level < level_count; ++level)
    work.written[level] += moved.read[level];
}

/// What its first bytes take, by the share of them that lies at each level.
double first_ns(const Residency& residency, const MachineModel& model) {
  double bytes = 0, sum = 0;
  for (std::size_t level = 0; level < level_count; ++level) {
    bytes += residency.bytes[level];
    sum += residency.bytes[level] * model.first_bytes[level];
  }
  return bytes > 0 ? sum / bytes : 0;
}

void add_traffic(KernelWork& work, const loop::Kernel& kernel,
                 std::span<const Residency> residencies, const MachineModel& model) {
  for (std::size_t i = 0; i < kernel.buffers.size(); ++i) {
    const loop::Buffer& buffer = kernel.buffers[i];
    if (buffer.local) continue;
    const Residency* residency = i < residencies.size() ? &residencies[i] : nullptr;
    const double bytes = touched_bytes(kernel, i);
    if (buffer.written) {
      add_write(work, buffer, residency, bytes, model);
      // What is read and written in place is waited for and written back; a core's own caches do
      // both at once.
      const bool is_nest = std::holds_alternative<loop::Nest>(kernel.body);
      const double loaded = is_nest ? loaded_bytes(kernel, i) : 0;
      KernelWork in_place;
      if (loaded > 0) add_read(in_place, buffer, residency, loaded, model);
      for (std::size_t level = 2; level < level_count; ++level)
        work.read[level] += in_place.read[level];
    } else {
      add_read(work, buffer, residency, bytes, model);
      if (residency) work.first = std::max(work.first, first_ns(*residency, model));
    }
  }
}

/// Caches forget neither the oldest line first nor any other: of what has been touched once since
/// as much as a cache holds most is still there, of twice as much a third. The first level forgets
/// all of it sooner. Neighbours of the process take their share, too, as time goes by.
void add_found(Residency& residency, double distance, double bytes, const MachineModel& model,
               std::size_t nearest, double age) {
  const double late = age / model.forgotten;
  double left = distance < 0 ? 0 : 1 / (1 + late * late);
  residency.bytes[3] += distance < 0 ? 0 : bytes * (1 - left);
  for (std::size_t level = nearest; level < 3; ++level) {
    const double room = static_cast<double>(model.cache_bytes[level]) * model.overlap.room[level];
    const double kept = distance < room ? 1
                        : level == 0    ? std::max(0.0, 1 - (distance / room - 1) / 0.35)
                                        : room / distance;
    residency.bytes[level] += bytes * left * kept;
    left *= 1 - kept;
  }
  residency.bytes[3] += bytes * (distance < 0 ? 1 : left);
}

double about_ns(double flops, double bytes, const MachineModel& model) {
  constexpr double share_of_peak = 0.7;
  const double flops_per_ns =
      2 * model.fma_per_cycle * model.machine.lanes(4) / model.cycle * share_of_peak;
  return flops / flops_per_ns + bytes / model.read[2];
}

MachineModel with_caches_of_team(const MachineModel& model, int workers) {
  MachineModel team = model;
  for (std::size_t level = 0; level < 2; ++level) team.cache_bytes[level] *= workers;
  return team;
}

double KernelWork::share_of(double lines) const {
  constexpr double line_bytes = 64;
  double bytes = 0;
  for (std::size_t level = 0; level < level_count; ++level) bytes += read[level] + written[level];
  return bytes > 0 ? std::min(1.0, lines * line_bytes / bytes) : 0;
}

namespace {

/// Stages do not overlap: each takes its instructions, with what it finds in the worker's caches:
/// local buffers, and B from the second strip on. The other buffers arrive beside the nests.
class StripsWork {
 public:
  StripsWork(const loop::Strips& strips, std::span<const loop::Buffer> buffers,
             const MachineModel& model)
      : strips_(strips), buffers_(buffers), model_(model) {
    double held = 0;
    for (const loop::Buffer& buffer : buffers) held += buffer.local ? bytes_of(buffer) : 0;
    near_ = held <= room(0) ? 0 : 1;
    for (const auto& stage : strips.stages) {
      if (const auto* product = std::get_if<loop::Contraction>(&stage))
        held += bytes_of(b_of(*product));
    }
    constexpr double own_room = 0.8;  // the rest goes to pixels, which pass through
    share_of_l2_ = std::min(1.0, own_room * room(1) / held);
  }

  void add_to(KernelWork& work) const {
    double nests = 0;
    for (const auto& stage : strips_.stages) {
      const auto* nest = std::get_if<loop::Nest>(&stage);
      KernelWork own;
      own.power = model_.overlap.power;
      if (nest) {
        add_nest(own, *nest, buffers_, model_, false);
        add_local(own, nest->accesses, nest->stores, count());
      } else {
        add_product(own, std::get<loop::Contraction>(stage));
      }
      const double times = nest ? 1 : count();
      own.items = Items(1);
      const KernelTime time = time_of(own, model_, 1);
      work.compute += times * (time.ns - time.overhead);
      if (nest) nests += time.ns - time.overhead;
      work.overhead += times * own.overhead;
      work.flops += times * own.flops;
      work.shares.insert(work.shares.end(), own.shares.begin(), own.shares.end());
    }
    work.beside = work.compute > 0 ? nests / work.compute : 1;
    work.items = Items(strips_.count());
  }

 private:
  double count() const { return static_cast<double>(strips_.count()); }
  double room(std::size_t level) const {
    return static_cast<double>(model_.cache_bytes[level]) * model_.overlap.room[level];
  }
  static double bytes_of(const loop::Buffer& buffer) {
    return static_cast<double>(buffer.elements) * static_cast<double>(size_of(buffer.dtype));
  }
  const loop::Buffer& buffer(std::int32_t index) const {
    return buffers_[static_cast<std::size_t>(index)];
  }
  const loop::Buffer& b_of(const loop::Contraction& product) const {
    return buffer(product.b_buffer);
  }

  void add(std::array<double, level_count>& levels, double bytes) const {
    levels[near_] += bytes * share_of_l2_;
    levels[2] += bytes * (1 - share_of_l2_);
  }
  void add_local(KernelWork& work, std::span<const loop::Access> loads,
                 std::span<const loop::Store> stores, double times) const {
    std::set<std::int32_t> read, written;
    for (const loop::Access& load : loads) read.insert(load.buffer);
    for (const loop::Store& store : stores) written.insert(store.access.buffer);
    for (const std::int32_t i : read)
      if (buffer(i).local) add(work.read, times * bytes_of(buffer(i)));
    for (const std::int32_t i : written)
      if (buffer(i).local) add(work.written, times * bytes_of(buffer(i)));
  }
  void add_product(KernelWork& work, const loop::Contraction& product) const {
    add_contraction(work, product, buffers_, model_);
    add_local(work, product.accesses, product.stores, 1);
    add(work.read, bytes_of(buffer(product.a_buffer)));
    add(work.read, bytes_of(b_of(product)) * panel_time[1]);
  }

  const loop::Strips& strips_;
  std::span<const loop::Buffer> buffers_;
  const MachineModel& model_;
  std::size_t near_ = 0;  ///< level of what is in a worker's own caches
  double share_of_l2_ = 1;
};

}  // namespace

KernelWork instructions_of(const loop::Kernel& kernel, const MachineModel& model) {
  KernelWork work;
  work.power = model.overlap.power;
  if (const auto* nest = std::get_if<loop::Nest>(&kernel.body)) {
    add_nest(work, *nest, kernel.buffers, model, false);
  } else if (const auto* contraction = std::get_if<loop::Contraction>(&kernel.body)) {
    add_contraction(work, *contraction, kernel.buffers, model);
  } else if (const auto* chain = std::get_if<loop::Chain>(&kernel.body)) {
    const codegen::ChainPlan plan =
        codegen::plan_chain(*chain, kernel.buffers, codegen::PlanMachine(model.machine));
    add_contraction(work, chain->second, kernel.buffers, model, &plan);
    add_contraction(work, chain->first, kernel.buffers, model, &plan);
    work.items = Items::by_size(plan.batches, plan.group_rows, plan.rows);
  } else if (const auto* strips = std::get_if<loop::Strips>(&kernel.body)) {
    StripsWork(*strips, kernel.buffers, model).add_to(work);
  } else {
    add_recurrence(work, std::get<loop::Recurrence>(kernel.body), model);
    add_shares(work.shares, std::get<loop::Recurrence>(kernel.body), kernel.buffers);
  }
  work.code_lines = code_lines_of(kernel);
  return work;
}

KernelWork with_traffic(KernelWork work, const loop::Kernel& kernel,
                        std::span<const Residency> residencies, const MachineModel& model) {
  KernelWork traffic;
  add_traffic(traffic, kernel, residencies, model);
  if (std::holds_alternative<loop::Recurrence>(kernel.body)) {
    for (std::size_t level = 0; level < 3; ++level)
      traffic.read[level] *= model.overlap.recurrent[level];
  } else if (const auto* contraction = std::get_if<loop::Contraction>(&kernel.body)) {
    // B comes in one piece from the caches; memory is as slow for it as for all else.
    const auto b = static_cast<std::size_t>(contraction->b_buffer);
    KernelWork of_b;
    add_read(of_b, kernel.buffers[b], b < residencies.size() ? &residencies[b] : nullptr, HUGE_VAL,
             model);
    for (std::size_t level = 0; level < level_count; ++level) {
      const double less = kernel.buffers[b].written ? 0 : 1 - work.b_share * panel_time[level];
      traffic.read[level] = std::max(traffic.read[level] - less * of_b.read[level], 0.0);
    }
  }
  for (std::size_t level = 0; level < level_count; ++level) {
    work.read[level] += traffic.read[level];
    work.written[level] += traffic.written[level];
  }
  work.first = traffic.first;
  return work;
}

KernelWork work_of(const loop::Kernel& kernel, std::span<const Residency> residencies,
                   const MachineModel& model) {
  return with_traffic(instructions_of(kernel, model), kernel, residencies, model);
}

namespace {

/// What rows cost whose place only data tells: that share of the way to their first bytes.
double jumps_ns(const KernelWork& work, const MachineModel& model, double share) {
  double bytes = 0, sum = 0;
  for (std::size_t level = 0; level < level_count; ++level) {
    bytes += work.read[level];
    sum += work.read[level] * model.first_bytes[level];
  }
  return bytes > 0 ? work.jumps * share * sum / bytes : 0;
}

using ByLevel = std::array<double, level_count>;

/// What so many lines cost beside their streams, by the share of the bytes that lies at each level.
double lines_ns(const ByLevel& moved, double lines, const ByLevel& of_line) {
  double bytes = 0, sum = 0;
  for (std::size_t level = 0; level < level_count; ++level) {
    bytes += moved[level];
    sum += moved[level] * of_line[level];
  }
  return bytes > 0 ? lines * sum / bytes : 0;
}
double lines_ns(const KernelWork& work, double lines, const ByLevel& of_line) {
  ByLevel moved = work.read;
  for (std::size_t level = 0; level < level_count; ++level) moved[level] += work.written[level];
  return lines_ns(moved, lines, of_line);
}

}  // namespace

KernelTime time_of(const KernelWork& work, const MachineModel& model, int threads, double code_line,
                   const CrossingTime& crossing) {
  const int workers = static_cast<int>(
      std::clamp<std::int64_t>(threads, 1, std::max<std::int64_t>(work.items.count(), 1)));
  const double share = work.items.largest_share(workers);
  const Overlap& overlap = model.overlap;
  KernelTime time;
  time.compute = work.compute * share + work.copied;
  time.overhead = model.kernel + overlap.call * model.cycle + work.overhead * share +
                  work.code_lines * code_line + work.first + (workers > 1 ? model.member_start : 0);
  double alone = 0, near = 0;
  const auto is_near = [&](std::size_t level) { return level == 1 && work.near_power > 0; };
  double streamed = 0, streamed_near = 0;
  // The instructions that read and write L1 have been counted.
  for (std::size_t level = 1; level < level_count; ++level) {
    double read = model.read[level] * overlap.reads[level];
    double write = model.write[level] * overlap.writes[level];
    if (workers > 1) {
      // What all cores share gives each of them less.
      const double all = level == 3 ? model.memory_all : level == 2 ? model.l3_all : 0;
      if (all > 0) {
        const double less = std::min(1.0, all / (workers * read));
        read *= less, write *= less;
      }
    }
    const double reading = work.read[level] * share / read;
    const double writing = work.written[level] * share / write;
    // A line that is written comes like one that is read.
    (is_near(level) ? near : time.memory) += reading + writing;
    if (level == 3) alone = reading * (1 - std::max(work.far_beside, work.asked_beside));
    (is_near(level) ? streamed_near : streamed) +=
        work.streamed[level] * share / read * (level == 1 ? 1 : overlap.again_from_l3);
  }
  time.compute = overlapped(time.compute, streamed_near, work.near_power);
  time.compute = overlapped(time.compute, streamed, work.power);
  time.memory +=
      (overlap.row_starts * work.starts + jumps_ns(work, model, overlap.jump) +
       lines_ns(work, work.lone_lines, overlap.lone_line) +
       lines_ns(work, work.turned_lines, overlap.turned_line) +
       lines_ns(work, work.lines_across, overlap.line_across) +
       lines_ns(work, work.further_lines, overlap.further_line) +
       lines_ns(work, work.far_rows, overlap.far_row) +
       lines_ns(work.written, work.stores_with_gaps, overlap.store_with_gap) + work.crowded) *
          share +
      crossing.fetched + crossing.taken;
  const double hides = overlap.crossing_beside * time.compute / share;
  const auto waited_for = [&](double ns, double part) { return std::max(0.0, ns - hides * part); };
  alone += waited_for(crossing.fetched * (1 - work.far_beside), crossing.part_read) +
           waited_for(crossing.taken * (1 - work.far_beside * overlap.taken_beside),
                      crossing.part_written);
  const double beside = time.compute * work.beside;
  const double hiding = overlapped(beside, near, work.near_power);
  time.ns = time.overhead + overlapped(hiding, time.memory - alone, work.power) + alone +
            time.compute - beside;
  time.memory += near;
  time.flops = work.flops;
  return time;
}

KernelTime predict(const loop::Kernel& kernel, std::span<const Residency> residencies,
                   const MachineModel& model, int threads) {
  return time_of(work_of(kernel, residencies, model), model, threads);
}

}  // namespace rlx::cost
