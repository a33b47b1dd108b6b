// Mixed traffic for as long as is asked for: threads that run, clone, queue, pipeline, cancel, set
// params, feed handles and go through buckets; every result is compared, and the memory in use must
// stay flat.
//
// usage: soak [--minutes N | --seconds N] [--threads N] [--seed N] [MODEL.onnx ...]
// Exit code 1: a wrong result, an error that should not be, or memory that grows.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <thread>

#include "soak/models.hpp"

namespace rlx::soak {
namespace {

using Clock = std::chrono::steady_clock;

struct Settings {
  double seconds = 60;
  int threads = 4;
  std::uint64_t seed = 1;
  std::vector<std::string> files;
};

enum Kind { runs, clones, buckets, splits, handles, queues, pipelines, cancels, params, compiles };
constexpr const char* kind_names[] = {"runs",   "clones",    "buckets", "splits", "handles",
                                      "queues", "pipelines", "cancels", "params", "compiles"};
constexpr int kinds = 10;

/// What all threads share.
struct World {
  Session session{Device::cpu, {.threads = 2}};
  Graph perceptron_graph = perceptron(), rows_graph = rows_model();
  CompiledGraph program = session.compile(perceptron_graph).value();
  CompiledGraph rows_program = session.compile(rows_graph).value();
  CompiledGraph picker_program = session.compile(picker()).value();
  CompiledGraph loop_program = session.compile(long_loop()).value();
  CompiledGraph adder_program =
      session.compile(adder(), CompileOptions().feed("next", "state")).value();
  /// Room for about two of its five programs: some go all the time.
  BucketedCompileCache bucket_cache = make_buckets();
  Tensor x = values({rows_limit, width}, 7);
  std::vector<Tensor> weights{values({width, 128}, 1), values({width, 128}, 11)};
  std::vector<Outputs> expected;       ///< by weight
  std::vector<Outputs> expected_rows;  ///< by rows - 1
  std::vector<FileModel> files;

  std::atomic<bool> is_over = false;
  std::atomic<long> done[kinds] = {}, wrong = 0, cancelled = 0;

  World() {
    CompiledGraph own = program.clone().value();
    for (const Tensor& weight : weights) {
      own.set_param("w", weight.as<float>()).value();
      expected.push_back(own.run({{"x", x}}).value());
    }
    for (std::int64_t rows = 1; rows <= rows_limit; ++rows) {
      const Tensor part(f32, {rows, width}, x.shared_data());
      expected_rows.push_back(rows_program.run({{"x", part}}).value());
    }
  }

  BucketedCompileCache make_buckets() {
    BucketOptions options;
    options.symbol = "rows";
    options.ladder = {1, 2, 4, 8, 16, rows_limit};
    const MemoryReport memory =
        session.compile(rows_graph, {.dims = {{"rows", rows_limit}}}).value().query_memory();
    options.bytes_limit = 2 * (memory.arena_bytes + memory.scratch_bytes);
    return BucketedCompileCache::make(session, rows_graph, options).value();
  }

  void fail(const char* what, const std::string& why) {
    if (++wrong <= 20) std::fprintf(stderr, "WRONG: %s: %s\n", what, why.c_str());
  }
};

/// Rows differ in the last bits between buckets, as kernels sum in another order.
bool near(const Outputs& a, const Outputs& b) {
  if (a.size() != b.size() || a[0].dims() != b[0].dims()) return false;
  for (std::size_t i = 0; i < a[0].as<float>().size(); ++i) {
    if (!(std::abs(a[0].as<float>()[i] - b[0].as<float>()[i]) <= 1e-5f)) return false;
  }
  return true;
}

class Worker {
 public:
  Worker(World& world, std::uint64_t seed) : world_(world), random_(seed) { renew(); }

  void work() {
    while (!world_.is_over) attempt(static_cast<int>(random_() % kinds));
  }

  /// Everything some times, so that code is made before memory is judged: on a busy machine that
  /// takes a good part of a short soak.
  void warm_up() {
    constexpr int times = 8;
    for (int i = 0; i < times; ++i)
      for (int kind = 0; kind < kinds; ++kind) attempt(kind);
  }

 private:
  void attempt(int kind) {
    try {
      act(kind);
      ++world_.done[kind];
    } catch (const std::exception& exception) {
      world_.fail(kind_names[kind], exception.what());
    }
  }

  void renew() {
    program_.emplace(world_.program.clone().value());
    weight_ = 0;
  }

  std::uint64_t pick(std::uint64_t count) { return random_() % count; }

  void expect(bool good, const char* what) {
    if (!good) world_.fail(what, "another result than expected");
  }

  void act(int kind) {
    switch (kind) {
      case runs: return run();
      case clones: return renew();
      case buckets: return through_buckets();
      case splits: return split();
      case handles: return feed();
      case queues: return queue();
      case pipelines: return pipeline();
      case cancels: return cancel();
      case params: return set_param();
      case compiles: return compile();
      default: return;
    }
  }

  const Outputs& expected() const { return world_.expected[weight_]; }
  std::vector<NamedInput> named() const { return {{"x", world_.x}}; }

  void run() {
    expect(equal(program_->run(named()).value(), expected()), "run");
    const void* slots[] = {world_.x.data()};
    for (int i = 0; i < 20; ++i) {
      const ArenaSlice slice = program_->run_slots(slots).value()[0];
      expect(std::memcmp(program_->arena_ptr() + slice.offset, expected()[0].data(),
                         expected()[0].bytes()) == 0,
             "run_slots");
    }
    Tensor target(f32, expected()[0].dims());
    void* targets[] = {target.mutable_data()};
    program_->run_into(slots, targets).value();
    expect(std::memcmp(target.data(), expected()[0].data(), target.bytes()) == 0, "run_into");
    if (world_.files.empty()) return;
    const FileModel& model = world_.files[pick(world_.files.size())];
    CompiledGraph own = model.program.clone().value();
    expect(equal(own.run(model.inputs).value(), model.expected), model.name.c_str());
  }

  void through_buckets() {
    const auto rows = static_cast<std::int64_t>(pick(rows_limit)) + 1;
    const Tensor part(f32, {rows, width}, world_.x.shared_data());
    const std::vector<NamedInput> inputs{{"x", part}};
    expect(near(world_.bucket_cache.run_padded(inputs).value(),
                world_.expected_rows[static_cast<std::size_t>(rows) - 1]),
           "run_padded");
  }

  void split() {
    if (!picker_) picker_.emplace(world_.picker_program.clone().value());
    std::vector<float> numbers(12), picked;
    for (float& number : numbers) {
      number = static_cast<float>(pick(2) * pick(100));
      if (number != 0) picked.push_back(number * 10);
    }
    const Tensor x = Tensor::of<float>({12}, std::span<const float>(numbers));
    const Outputs outputs = picker_->run({{"x", x}}).value();
    expect(std::ranges::equal(outputs[0].as<float>(), picked), "a split program");
  }

  void feed() {
    CompiledGraph adder = world_.adder_program.clone().value();
    const Tensor x = values({width}, random_());
    adder.bind_handle("state", x).value();
    const auto steps = pick(5) + 1;
    const void* slots[] = {x.data()};
    for (std::uint64_t i = 0; i < steps; ++i) adder.run_slots(slots).value();
    const Tensor state = adder.read_handle("state").value();
    float sum = x.as<float>()[5];
    for (std::uint64_t i = 0; i < steps; ++i) sum += x.as<float>()[5];
    expect(state.as<float>()[5] == sum, "a fed handle");
  }

  void queue() {
    for (int i = 0; i < 3; ++i) program_->commit_no_wait(named()).value();
    const std::vector<Outputs> outputs = program_->sync_pending().value();
    expect(outputs.size() == 3, "queued runs");
    for (const Outputs& each : outputs) expect(equal(each, expected()), "a queued run");
  }

  void pipeline() {
    const std::vector<std::vector<NamedInput>> sets(4, named());
    const std::vector<Outputs> outputs = program_->run_pipelined(sets).value();
    expect(outputs.size() == 4, "pipelined runs");
    for (const Outputs& each : outputs) expect(equal(each, expected()), "a pipelined run");
  }

  /// Cancelled or whole, never anything between.
  void cancel() {
    CompiledGraph loop = world_.loop_program.clone().value();
    const Tensor x(f32, {width});
    const Tensor limit = Tensor::scalar<std::int64_t>(50000);
    std::thread canceller([&loop, delay = pick(3000)] {
      std::this_thread::sleep_for(std::chrono::microseconds(delay));
      loop.cancel();
    });
    const auto outputs = loop.run({{"x", x}, {"limit", limit}});
    canceller.join();
    if (!outputs.ok()) {
      ++world_.cancelled;
      if (outputs.error().message != "The run was cancelled.")
        world_.fail("cancel", outputs.error().message);
    }
    const Tensor one = Tensor::scalar<std::int64_t>(1);
    expect(loop.run({{"x", x}, {"limit", one}}).value()[0].as<float>()[0] == 0, "after a cancel");
  }

  void set_param() {
    weight_ = pick(world_.weights.size());
    // A copy of its own each time: nothing may be found again by its address.
    const auto numbers = world_.weights[weight_].as<float>();
    const std::vector<float> copy(numbers.begin(), numbers.end());
    program_->set_param("w", copy).value();
    expect(equal(program_->run(named()).value(), expected()), "set_param");
  }

  void compile() {
    CompiledGraph program = world_.session.compile(world_.perceptron_graph).value();
    expect(equal(program.run(named()).value(), world_.expected[0]), "a compiled program");
  }

  World& world_;
  std::mt19937_64 random_;
  std::optional<CompiledGraph> program_, picker_;
  std::size_t weight_ = 0;
};

double resident_mib() {
  std::ifstream file("/proc/self/statm");
  double total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

double mean(std::span<const double> samples) {
  double sum = 0;
  for (const double sample : samples) sum += sample;
  return samples.empty() ? 0 : sum / static_cast<double>(samples.size());
}

int soak(const Settings& settings) {
  World world;
  for (const std::string& file : settings.files) {
    auto model = from_file(world.session, file);
    if (!model.ok()) {
      std::fprintf(stderr, "%s\n", model.error().message.c_str());
      return 2;
    }
    world.files.push_back(*std::move(model));
  }
  Worker(world, settings.seed).warm_up();
  std::vector<std::thread> threads;
  for (int i = 0; i < settings.threads; ++i) {
    threads.emplace_back([&world, seed = settings.seed + static_cast<std::uint64_t>(i)] {
      Worker(world, seed).work();
    });
  }
  constexpr int samples_wanted = 200;
  std::vector<double> samples;
  const auto start = Clock::now();
  const std::chrono::duration<double> period(settings.seconds / samples_wanted);
  while (std::chrono::duration<double>(Clock::now() - start).count() < settings.seconds) {
    std::this_thread::sleep_for(period);
    samples.push_back(resident_mib());
  }
  world.is_over = true;
  for (std::thread& thread : threads) thread.join();

  const std::size_t quarter = std::max<std::size_t>(samples.size() / 4, 1);
  const double first = mean(std::span(samples).first(quarter));
  const double last = mean(std::span(samples).last(quarter));
  std::printf("%.0f s, %d threads:", settings.seconds, settings.threads);
  for (int kind = 0; kind < kinds; ++kind)
    std::printf(" %s %ld,", kind_names[kind], world.done[kind].load());
  const auto report = world.bucket_cache.report();
  std::printf(" cancelled %ld, bucket evictions %lld\n", world.cancelled.load(),
              static_cast<long long>(report.evictions));
  std::printf("resident: first quarter %.1f MiB, last %.1f MiB; wrong results %ld\n", first, last,
              world.wrong.load());
  // What the allocator keeps wanders by some MiB, and short soaks are warming up to their end.
  const double room = 8 + 0.05 * first;
  if (last > first + room) std::printf("The memory grows by more than %.1f MiB.\n", room);
  return world.wrong == 0 && last <= first + room ? 0 : 1;
}

}  // namespace
}  // namespace rlx::soak

int main(int count, char** arguments) {
  rlx::soak::Settings settings;
  for (int i = 1; i < count; ++i) {
    const std::string word = arguments[i];
    const bool has_value = i + 1 < count;
    if (word == "--minutes" && has_value) {
      settings.seconds = 60 * std::atof(arguments[++i]);
    } else if (word == "--seconds" && has_value) {
      settings.seconds = std::atof(arguments[++i]);
    } else if (word == "--threads" && has_value) {
      settings.threads = std::atoi(arguments[++i]);
    } else if (word == "--seed" && has_value) {
      settings.seed = std::strtoull(arguments[++i], nullptr, 10);
    } else if (word.starts_with("--")) {
      std::fprintf(stderr,
                   "usage: soak [--minutes N | --seconds N] [--threads N] [--seed N] [MODEL...]\n");
      return 2;
    } else {
      settings.files.push_back(word);
    }
  }
  return rlx::soak::soak(settings);
}
