// Measures the CPU with kernels of our own: the best of many short rounds, so that others' load
// counts as little as it can.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <ctime>
#include <map>

#include "base/cpu_set.hpp"
#include "base/error.hpp"
#include "base/thread_pool.hpp"
#include "codegen/code_library.hpp"
#include "cost/calibration.hpp"
#include "cost/clock.hpp"
#include "cost/measure_kernels.hpp"
#include "rlx/tensor.hpp"

namespace rlx::cost {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t op_elements = 2048;        // 8 KiB: stays in L1
constexpr std::int64_t gathered_elements = 1024;  // of 20 KiB

double ns_since(Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

/// Kernels by name, made callable together, timed one by one.
class Measurer {
 public:
  explicit Measurer(codegen::Target target)
      : library_(target, codegen::CodeCache(not_available("Calibration keeps no code.")),
                 codegen::GeneratorSource::find(), default_thread_count()),
        pool_(default_thread_count(), std::chrono::milliseconds(3), true) {}

  void add(std::string name, loop::Kernel kernel) {
    names_[std::move(name)] = kernels_.size();
    kernels_.push_back(std::move(kernel));
  }

  Status make() {
    RLX_ASSIGN(loaded_, library_.load(kernels_));
    std::int64_t scratch = 0;
    for (const codegen::LoadedKernel& kernel : loaded_)
      scratch = std::max(scratch, kernel.scratch_bytes);
    scratch_bytes_ = (scratch + 127) / 64 * 64;
    scratch_ = Tensor(u8, {scratch_bytes_ * pool_.threads() + 64});
    return {};
  }

  const codegen::Target& target() const { return library_.target(); }
  int threads() const { return pool_.threads(); }
  ThreadPool& pool() { return pool_; }

  /// The clock that figures of the core are kept for.
  void set_clock(double ghz) { ghz_ = ghz; }

  /// ns_of at that clock, of what a core does by itself: hosts move the clock by a tenth, with what
  /// the core does and from second to second.
  double core_ns_of(const std::string& name, double ms = 6, int threads = 1) {
    if (ghz_ <= 0) return ns_of(name, ms, threads);
    // One of three may have two clocks.
    std::array<double, 3> looks;
    for (double& ns : looks) {
      ns = ns_of(name, ms / 3, threads);
      ns *= clock_left(target().isa) / ghz_;
    }
    std::ranges::sort(looks);
    return looks[1];
  }

  /// The least ns of a call, over rounds of at least 20 us for about `ms`.
  double ns_of(const std::string& name, double ms = 6, int threads = 1) {
    const std::size_t index = names_.at(name);
    const std::vector<void*> buffers = buffers_of(kernels_[index]);
    const codegen::LoadedKernel& kernel = loaded_[index];
    const auto call = [&] {
      if (threads == 1) {
        kernel.function(buffers.data(), 0, kernel.work_items, scratch_.mutable_data());
        return;
      }
      pool_.run_team(threads, [&](int worker, Team& team) {
        const std::int64_t size = team.size();
        kernel.function(buffers.data(), kernel.work_items * worker / size,
                        kernel.work_items * (worker + 1) / size,
                        scratch_.mutable_data() + scratch_bytes_ * worker);
      });
    };
    return least_ns(call, ms);
  }

  template <class Call>
  static double least_ns(const Call& call, double ms) {
    call();
    Clock::time_point start = Clock::now();
    call();
    const double once = std::max(ns_since(start), 1.0);
    const int repeats = static_cast<int>(std::clamp(20e3 / once, 1.0, 1e5));
    double least = HUGE_VAL;
    const Clock::time_point begin = Clock::now();
    do {
      start = Clock::now();
      for (int i = 0; i < repeats; ++i) call();
      least = std::min(least, ns_since(start) / repeats);
    } while (ns_since(begin) < ms * 1e6);
    return least;
  }

 private:
  /// Memory for a kernel's buffers, shared among kernels: floats near one half.
  std::vector<void*> buffers_of(const loop::Kernel& kernel) {
    std::vector<void*> pointers;
    for (std::size_t i = 0; i < kernel.buffers.size(); ++i) {
      const loop::Buffer& buffer = kernel.buffers[i];
      const std::int64_t words =
          (buffer.elements * static_cast<std::int64_t>(size_of(buffer.dtype)) + 67) / 4;
      if (memory_.size() <= i) memory_.emplace_back();
      if (memory_[i].empty() || memory_[i].elements() < words) {
        memory_[i] = Tensor(f32, {words});
        auto* values = reinterpret_cast<float*>(memory_[i].mutable_data());
        std::fill(values, values + words, 0.5F);
      }
      pointers.push_back(memory_[i].mutable_data());
    }
    return pointers;
  }

  codegen::CodeLibrary library_;
  ThreadPool pool_;
  std::vector<loop::Kernel> kernels_;
  std::vector<codegen::LoadedKernel> loaded_;
  std::map<std::string, std::size_t> names_;
  std::vector<Tensor> memory_;
  Tensor scratch_;
  std::int64_t scratch_bytes_ = 0;
  double ghz_ = 0;
};

struct GemmCase {
  std::int64_t m, n, k;
  DType dtype;
};
constexpr GemmCase gemm_cases[] = {
    {16, 16, 16, DType::f32},    {64, 64, 64, DType::f32},    {128, 384, 384, DType::f32},
    {512, 512, 512, DType::f32}, {1, 1024, 1024, DType::f32}, {128, 384, 384, DType::bf16},
};

std::string name_of_gemm(const GemmCase& gemm) {
  return fmt::format("gemm {} {} {} {}", name_of(gemm.dtype), gemm.m, gemm.n, gemm.k);
}

/// How often a kernel repeats an op: the difference between two such kernels is the op's own. Long
/// series stay few, so that their code stays where the processor keeps decoded instructions.
struct OpCounts {
  int fewer, more;
};
OpCounts counts_of(ScalarOp op, const MachineModel& preset) {
  constexpr double long_series = 10;  // cycles
  return preset.op(op) > long_series * preset.cycle ? OpCounts{1, 3} : OpCounts{4, 12};
}

/// The ops that have kernels of their own here.
using MeasuredOps = std::map<ScalarOp, OpCounts>;

std::string op_name(ScalarOp op, int count) { return fmt::format("{} {}", name_of(op), count); }

/// Takes as long as an addition on every machine, and is measured as one.
bool is_simple(ScalarOp op) {
  return op == ScalarOp::bitcast || op == ScalarOp::bit_not ||
         (op >= ScalarOp::bit_and && op <= ScalarOp::shift_right);
}

/// Bytes of the working sets that stand for the levels.
std::array<std::int64_t, level_count> level_bytes(const MachineModel& model) {
  return {model.cache_bytes[0] / 2, model.cache_bytes[1] / 2, model.cache_bytes[2] / 3,
          std::max<std::int64_t>(model.cache_bytes[2] * 4, 96 << 20)};
}

MeasuredOps add_kernels(Measurer& measurer, const MachineModel& preset) {
  MeasuredOps ops;
  for (std::size_t i = 0; i < scalar_op_count; ++i) {
    const auto op = static_cast<ScalarOp>(i);
    if (preset.op(op) <= 0 || op == ScalarOp::domain_index || is_simple(op)) continue;
    const OpCounts counts = ops[op] = counts_of(op, preset);
    for (const int count : {counts.fewer, counts.more})
      measurer.add(op_name(op, count), op_kernel(op, count, op_elements));
  }
  for (const GemmCase& gemm : gemm_cases)
    measurer.add(name_of_gemm(gemm),
                 gemm_kernel(gemm.m, gemm.n, gemm.k, gemm.dtype, measurer.target()));
  const auto levels = level_bytes(preset);
  for (std::size_t level = 0; level < level_count; ++level) {
    const std::int64_t elements = levels[level] / 4;
    measurer.add(fmt::format("read {}", level), read_kernel(elements / 2048, 2048));
    measurer.add(fmt::format("write {}", level), write_kernel(elements));
  }
  measurer.add("one", rows_kernel(1, 1, f32));
  measurer.add("long rows f32", rows_kernel(8, 512, f32));
  measurer.add("long rows bf16", rows_kernel(8, 512, bf16));
  measurer.add("gather", gather_kernel(gathered_elements));
  return ops;
}

void measure_ops(Measurer& measurer, const MeasuredOps& ops, MachineModel& model) {
  const double registers = static_cast<double>(op_elements) * 4 / model.machine.vector_bytes;
  const auto one = [&](ScalarOp op) {
    const OpCounts counts = ops.at(op);
    const double longer = measurer.core_ns_of(op_name(op, counts.more), 3);
    const double shorter = measurer.core_ns_of(op_name(op, counts.fewer), 3);
    return std::max((longer - shorter) / (counts.more - counts.fewer) / registers, 0.0);
  };
  // Every round adds a constant before the op and its result behind.
  const double three_adds = one(ScalarOp::add);
  const double add = std::max(three_adds / 3, 1e-3);
  for (std::size_t i = 0; i < scalar_op_count; ++i) {
    const auto op = static_cast<ScalarOp>(i);
    if (is_simple(op) || op == ScalarOp::add) {
      if (model.op_ns[i] > 0) model.op_ns[i] = add;
      continue;
    }
    if (!ops.contains(op)) continue;
    double ns = one(op) - 2 * add;
    if (op == ScalarOp::cast) ns /= 2;  // there and back
    const bool tests = op >= ScalarOp::equal && op <= ScalarOp::greater_equal;
    if (tests || op == ScalarOp::select || op == ScalarOp::is_nan || op == ScalarOp::is_inf)
      ns -= add;  // a selection and a test together
    // What folds into its neighbours seems to cost less than it does elsewhere.
    model.op_ns[i] = std::max(ns, add);
  }
  model.op_ns[static_cast<std::size_t>(ScalarOp::domain_index)] = 2 * add;
}

void measure_levels(Measurer& measurer, MachineModel& model) {
  const auto levels = level_bytes(model);
  for (std::size_t level = 0; level < level_count; ++level) {
    const double bytes = static_cast<double>(levels[level] / 8192 * 8192);
    const double ms = level == 3 ? 250 : level == 2 ? 60 : 10;
    const auto ns_of = [&](std::string_view what) {
      const std::string name = fmt::format("{} {}", what, level);
      const bool own = level < 2;  // shared ones have clocks of their own
      return own ? measurer.core_ns_of(name, ms) : measurer.ns_of(name, ms);
    };
    model.read[level] = bytes / ns_of("read");
    model.write[level] = static_cast<double>(levels[level]) / ns_of("write");
  }
  model.memory_all = model.read[3];
  model.l3_all = model.read[2];
  if (measurer.threads() == 1) return;
  const auto all = [&](std::size_t level) {
    const double bytes = static_cast<double>(levels[level] / 8192 * 8192);
    return std::max(model.read[level],
                    bytes / measurer.ns_of(fmt::format("read {}", level), 150, measurer.threads()));
  };
  model.memory_all = all(3);
  model.l3_all = all(2);
}

void measure_overheads(Measurer& measurer, MachineModel& model) {
  const double one = measurer.core_ns_of("one");
  const double call = std::max(one / (model.kernel + model.item), 0.1);
  model.kernel *= call;
  model.item *= call;
  const double vectors = 8 * 512 * 4.0 / model.machine.vector_bytes;
  const double wide = measurer.core_ns_of("long rows f32"),
               narrow = measurer.core_ns_of("long rows bf16");
  model.narrow_ns = std::max((narrow - wide) / vectors / 2, 0.05);
  model.gather_lane_ns =
      std::max(measurer.core_ns_of("gather") / static_cast<double>(gathered_elements), 0.02);
}

void measure_gemms(Measurer& measurer, Calibration::Impl& impl) {
  MachineModel& model = impl.model;
  for (const int threads : {1, measurer.threads()}) {
    if (threads == 1 && !impl.gemms.empty()) continue;
    for (const GemmCase& gemm : gemm_cases) {
      const double ns = measurer.core_ns_of(name_of_gemm(gemm), 20, threads);
      const double flops = 2.0 * static_cast<double>(gemm.m * gemm.n * gemm.k);
      impl.gemms.push_back({gemm.dtype, gemm.m, gemm.n, gemm.k, threads, flops / ns});
    }
    if (measurer.threads() == 1) break;
  }
  const auto best = std::max_element(impl.gemms.begin(), impl.gemms.end(),
                                     [](const MeasuredGemm& a, const MeasuredGemm& b) {
                                       const bool a_counts = a.dtype == f32 && a.threads == 1;
                                       const bool b_counts = b.dtype == f32 && b.threads == 1;
                                       return (a_counts ? a.gflops : 0) < (b_counts ? b.gflops : 0);
                                     });
  const double lanes = model.machine.vector_bytes / 4.0;
  const double preset_cycle = model.cycle;
  model.cycle = 2 * lanes * model.fma_per_cycle / best->gflops;
  // What else is made of cycles scales with them.
  const double factor = model.cycle / preset_cycle;
  for (double* const ns : {&model.row_block, &model.tap, &model.loop, &model.join,
                           &model.recurrent_step, &model.loop_trip, &model.run})
    *ns *= factor;
}

void measure_teams(Measurer& measurer, MachineModel& model) {
  if (measurer.threads() == 1) return;
  ThreadPool& pool = measurer.pool();
  constexpr int rounds = 200;
  const auto empty = [&] { pool.run_team(pool.threads(), [](int, Team&) {}); };
  const auto waiting = [&] {
    pool.run_team(pool.threads(), [](int, Team& team) {
      for (int i = 0; i < rounds; ++i) team.barrier();
    });
  };
  model.team = Measurer::least_ns(empty, 20);
  model.barrier = std::max(Measurer::least_ns(waiting, 30) / rounds, 1.0);
}

std::string now_text() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace

Result<Calibration::Impl> measure_cpu(const MachineModel& preset,
                                      const CalibrationProgress& progress) {
  const auto tell = [&](std::string_view what, double done) {
    if (progress) progress(what, done);
  };
  RLX_ASSIGN(const codegen::Target target, codegen::host_target());
  RLX_ASSIGN(const codegen::CodeGenerator* const generator,
             codegen::GeneratorSource::find().open());
  Calibration::Impl impl;
  impl.model = preset;
  impl.generator = generator->version();
  impl.threads = default_thread_count();
  Measurer measurer(target);
  tell("making kernels", 0);
  const MeasuredOps ops = add_kernels(measurer, preset);
  RLX_TRY(measurer.make());
  tell("matmuls", 0.3);
  const double ghz = clocks_now(target.isa).light;
  impl.model = at_clock(preset, ghz);
  impl.model.ghz = ghz;
  measurer.set_clock(ghz);
  measure_gemms(measurer, impl);
  tell("operations", 0.45);
  measure_ops(measurer, ops, impl.model);
  tell("calls", 0.7);
  measure_overheads(measurer, impl.model);
  tell("threads", 0.75);
  measure_teams(measurer, impl.model);
  tell("caches and memory", 0.8);
  measure_levels(measurer, impl.model);
  tell("done", 1);
  impl.date = now_text();
  impl.model.calibrated = true;
  return impl;
}

}  // namespace rlx::cost
