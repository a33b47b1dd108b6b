// Every allocation of the calls made to fail in turn: a clean error each time, nothing leaks, and
// the session works as before. The kernels' code is cached beforehand, so LLVM, which aborts when
// it has no memory, is not entered.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>

#include "base/temporary_folder.hpp"
#include "faults/failing_memory.hpp"
#include "import/model_builder.hpp"
#include "rlx/import.hpp"
#include "rlx/rlx.hpp"

namespace rlx {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr long all_of_them = 200;  ///< beyond that they are sampled
#else
constexpr long all_of_them = 3000;
#endif

std::vector<float> ramp(std::size_t count, float scale) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = (static_cast<float>(i * 7 % 23) - 11) * scale;
  return values;
}

/// Products, a reduction, a transform by a kernel of the device's own, and a loop.
Graph program_graph(bool is_bound) {
  Graph graph;
  const Dim rows = is_bound ? Dim(3) : Dim("rows");
  const Value x = graph.input("x", f32, {rows, 16});
  const Value w = graph.param(
      "w", f32, {16, 16}, Tensor::of<float>({16, 16}, std::span<const float>(ramp(256, 0.02f))));
  const Value y = softmax(gelu(matmul(x, w)) + x);
  Graph body;
  const Value step = body.input("step", i64, {});
  const Value carry = body.input("carry", f32, {16}), slice = body.input("slice", f32, {16});
  body.output("next", tanh(carry + slice) + cast(step, f32));
  graph.output("y", y);
  if (!is_bound) return graph;
  const std::vector<ValueId> scanned =
      graph
          .try_add(op::Scan{std::make_shared<const Graph>(std::move(body)), 3, 1, 1, false},
                   std::vector<ValueId>{graph.constant(Tensor(f32, {16})).id(), y.id()}, "", "")
          .value();
  graph.output("last", graph.handle(scanned[0]));
  graph.output("spectrum", graph.add_one(op::Rfft{}, {x}));
  return graph;
}

const std::vector<float>& input_values() {
  static const std::vector<float> values = ramp(48, 0.1f);
  return values;
}

bool equal(const Outputs& a, const Outputs& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].dims() != b[i].dims() || std::memcmp(a[i].data(), b[i].data(), a[i].bytes()) != 0)
      return false;
  }
  return true;
}

class Faults : public ::testing::Test {
 protected:
  using Work = std::function<Status()>;

  /// Does the work with each of its allocations failing in turn; `still_works` is asked after each,
  /// or after every so many. `kept`: blocks that caches may hold more in the end than before.
  void every_allocation(const Work& work, const Work& still_works, long ask_every = 1,
                        long kept = 8) {
    for (int i = 0; i < 2; ++i) {
      const Status warm = work();
      ASSERT_TRUE(warm.ok()) << warm.error().message;
      ASSERT_TRUE(still_works().ok());
    }
    test::arm(-1);
    ASSERT_TRUE(work().ok());
    const long total = test::disarm();
    ASSERT_GT(total, 0);
    const long stride = (total + all_of_them - 1) / all_of_them;
    const long living = test::living();
    long failed = 0;
    for (long n = 0; n < total; n += stride) {
      test::arm(n);
      const Status status = work();
      test::disarm();
      if (!status.ok()) {
        ++failed;
        expect_fitting(status.error(), n);
      }
      if (n / stride % ask_every != 0) continue;
      const Status after = still_works();
      ASSERT_TRUE(after.ok()) << "after allocation " << n << " of " << total << " failed ("
                              << (status.ok() ? "no error" : status.error().message)
                              << "): " << after.error().message;
    }
    ASSERT_TRUE(work().ok());
    EXPECT_LE(test::living(), living + kept) << "leaks, over " << failed << " failures";
    RecordProperty("allocations", std::to_string(total));
    RecordProperty("failures", std::to_string(failed));
    std::printf("  %ld allocations, 1 of %ld made to fail: %ld errors\n", total, stride, failed);
    EXPECT_GT(failed, 0) << "no failure was ever told";
  }

  static void expect_fitting(const Error& error, long n) {
    const bool of_memory =
        error.kind == ErrorKind::out_of_memory && error.message.find("Out of memory.") == 0;
    // The system's own calls say it in their way: files that cannot be opened, threads refused.
    const bool of_system = error.message.find("Cannot allocate memory") != std::string::npos ||
                           error.message.find("temporarily unavailable") != std::string::npos;
    EXPECT_TRUE(of_memory || of_system)
        << "allocation " << n << ": kind " << static_cast<int>(error.kind) << ", " << error.message;
  }

  Result<Outputs> run(CompiledGraph& program) {
    return program.run({{"x", Tensor::of<float>({3, 16}, std::span<const float>(input_values()))}});
  }

  /// The program gives what it should.
  Status check(CompiledGraph& program) {
    const auto outputs = run(program);
    if (!outputs.ok()) return outputs.error();
    if (!equal(*outputs, *expected_)) return Error{ErrorKind::internal, "The result is wrong."};
    return {};
  }

  void SetUp() override {
    graph_.emplace(program_graph(true));
    program_.emplace(session_.compile(*graph_).value());
    expected_.emplace(run(*program_).value());
  }

  /// In a shared folder the programs of other tests would change what a session keeps in mind.
  testing::TemporaryFolder cache_;
  testing::ScopedVariable cache_folder_{"RLX_CACHE_DIR", cache_.path().c_str()};
  Session session_{Device::cpu, {.threads = 2}};
  std::optional<Graph> graph_;
  std::optional<CompiledGraph> program_;  ///< keeps the code of its kernels in memory
  std::optional<Outputs> expected_;
};

template <class T>
Status status_of(const Result<T>& result) {
  if (!result.ok()) return result.error();
  return {};
}

TEST_F(Faults, in_importing) {
  using namespace test;
  const GraphParts parts{
      .nodes = {node("MatMul", {"x", "w"}, {"product"}), node("Relu", {"product"}, {"y"})},
      .initializers = {tensor("w", onnx_float, {4, 2}, raw_floats(ramp(8, 0.5f)))},
      .inputs = {value_info("x", onnx_float, {{3, ""}, {4, ""}})},
      .outputs = {value_info("y", onnx_float, {{3, ""}, {2, ""}})}};
  const Message model = model_message(parts);
  const auto work = [&] { return status_of(import_onnx(model.span())); };
  every_allocation(work, work);
}

TEST_F(Faults, in_compiling) {
  every_allocation([&] { return status_of(session_.compile(*graph_)); },
                   [&]() -> Status {
                     auto program = session_.compile(*graph_);
                     return program.ok() ? check(*program) : Status(program.error());
                   },
                   8);
}

TEST_F(Faults, in_opening_a_session) {
  // Where reading the cache fails kernels are generated, and LLVM keeps some tens of blocks for
  // good; what leaked with each failure would be thousands.
  constexpr long kept_by_llvm = 256;
  every_allocation(
      [&]() -> Status {
        try {
          Session session(Device::cpu, {.threads = 2});
          return status_of(session.compile(*graph_));
        } catch (const std::bad_alloc&) {
          return Error{ErrorKind::out_of_memory, "Out of memory."};  // of the Session itself
        }
      },
      [&] { return check(*program_); }, 64, kept_by_llvm);
}

TEST_F(Faults, in_set_param) {
  const std::vector<float> old = ramp(256, 0.02f), other = ramp(256, 0.03f);
  ASSERT_TRUE(program_->set_param("w", other).ok());
  const Outputs changed = run(*program_).value();
  ASSERT_TRUE(program_->set_param("w", old).ok());
  every_allocation([&] { return program_->set_param("w", other); },
                   [&]() -> Status {
                     auto outputs = run(*program_);
                     if (!outputs.ok()) return outputs.error();
                     if (!equal(*outputs, *expected_) && !equal(*outputs, changed))
                       return Error{ErrorKind::internal, "Neither the old weight nor the new."};
                     const Status status = program_->set_param("w", old);
                     return status.ok() ? check(*program_) : status;
                   },
                   1, 600);  // the session's list of packed weights is pruned now and then
}

TEST_F(Faults, in_the_first_run_of_a_shape) {
  const Graph unbound = program_graph(false);
  CompiledGraph kept = session_.compile(unbound).value();
  const Outputs expected = run(kept).value();
  const Tensor x = Tensor::of<float>({3, 16}, std::span<const float>(input_values()));
  std::optional<CompiledGraph> program;
  const auto works = [&]() -> Status {
    auto outputs = program->run({{"x", x}});
    if (!outputs.ok()) return outputs.error();
    if (!equal(*outputs, expected)) return Error{ErrorKind::internal, "The result is wrong."};
    program.emplace(session_.compile(unbound).value());  // the next run is a first one again
    return {};
  };
  program.emplace(session_.compile(unbound).value());
  every_allocation([&] { return status_of(program->run({{"x", x}})); }, works);
}

TEST_F(Faults, in_runs) {
  const std::vector<NamedInput> named{{"x", input_values()}};
  every_allocation([&] { return status_of(program_->run(named)); },
                   [&] { return check(*program_); });
}

TEST_F(Faults, in_runs_whose_shapes_data_decides) {
  Graph graph;
  const Value x = graph.input("x", f32, {6});
  const Value places = graph.add_one(op::NonZero{}, {x});
  graph.output("picked", gather(x, reshape(places, {-1})) * graph.constant(f32, 10));
  CompiledGraph program = session_.compile(graph).value();
  const Tensor values = Tensor::of<float>({6}, {0, 1, 0, 2, 3, 0});
  const auto work = [&]() -> Status {
    auto outputs = program.run({{"x", values}});
    if (!outputs.ok()) return outputs.error();
    const auto picked = (*outputs)[0].as<float>();
    if (picked.size() != 3 || picked[2] != 30)
      return Error{ErrorKind::internal, "The result is wrong."};
    return {};
  };
  every_allocation(work, work);
}

TEST_F(Faults, in_cloning) {
  every_allocation([&] { return status_of(program_->clone()); },
                   [&]() -> Status {
                     auto clone = program_->clone();
                     return clone.ok() ? check(*clone) : Status(clone.error());
                   });
}

TEST_F(Faults, in_saving_and_loading) {
  const testing::TemporaryFolder folder;
  const std::string file = folder.path("program");
  every_allocation([&] { return program_->save(file); },
                   [&]() -> Status {
                     const Status status = program_->save(file);
                     return status.ok() ? check(*program_) : status;
                   });
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    EXPECT_EQ(entry.path().filename(), "program") << "a half is left behind";
  every_allocation([&] { return status_of(session_.load(file)); },
                   [&]() -> Status {
                     auto loaded = session_.load(file);
                     return loaded.ok() ? check(*loaded) : Status(loaded.error());
                   },
                   8);
}

TEST_F(Faults, in_handles) {
  Graph graph;
  const Value x = graph.input("x", f32, {8}), state = graph.input("state", f32, {8});
  graph.output("next", x + state);
  const Tensor zeros(f32, {8});
  const Tensor ones = Tensor::of<float>({8}, {1, 1, 1, 1, 1, 1, 1, 1});
  CompiledGraph kept = session_.compile(graph).value();
  const std::vector<NamedInput> named{{"x", ones}};
  const auto use = [&](CompiledGraph& program) -> Status {
    Status status = program.bind_handle("state", zeros);
    if (status.ok()) status = program.set_gpu_handle_feed("state", 0);
    for (int i = 0; i < 2 && status.ok(); ++i) status = program.run_feed_gpu_handle(named);
    if (!status.ok()) return status;
    const auto value = program.read_handle("state");
    if (!value.ok()) return value.error();
    if (value->as<float>()[7] != 2) return Error{ErrorKind::internal, "The state is wrong."};
    return {};
  };
  CompiledGraph program = kept.clone().value();
  every_allocation([&] { return use(program); },
                   [&]() -> Status {
                     const Status status = use(program);
                     program = kept.clone().value();
                     return status;
                   });
}

TEST_F(Faults, in_queued_and_pipelined_runs) {
  const std::vector<NamedInput> named{{"x", input_values()}};
  const auto queued = [&]() -> Status {
    Status status = program_->commit_no_wait(named);
    if (status.ok()) status = program_->commit_no_wait(named);
    const auto outputs = program_->sync_pending();
    if (!status.ok()) return status;
    if (!outputs.ok()) return outputs.error();
    if (outputs->size() != 2 || !equal((*outputs)[1], *expected_))
      return Error{ErrorKind::internal, "The result is wrong."};
    return {};
  };
  every_allocation(queued, queued);
  const std::vector<std::vector<NamedInput>> sets(4, named);
  const auto pipelined = [&]() -> Status {
    const auto outputs = program_->run_pipelined(sets);
    if (!outputs.ok()) return outputs.error();
    for (const Outputs& each : *outputs) {
      if (!equal(each, *expected_)) return Error{ErrorKind::internal, "The result is wrong."};
    }
    return {};
  };
  every_allocation(pipelined, pipelined);
}

TEST_F(Faults, in_active_extents) {
  Graph graph;
  const Value x = graph.input("x", f32, {Dim("rows"), 16});
  graph.output("y", tanh(x) * graph.constant(f32, 2));
  CompiledGraph program = session_.compile(graph, {.dims = {{"rows", 3}}}).value();
  CompiledGraph keeper = program.clone().value();
  keeper.set_active_extent({{2, 3}}).value();
  const Tensor rows = Tensor::of<float>({3, 16}, std::span<const float>(input_values()));
  const std::vector<NamedInput> named{{"x", rows}};
  const Outputs expected = keeper.run(named).value();
  const auto work = [&]() -> Status {
    auto fresh = program.clone();
    if (!fresh.ok()) return fresh.error();
    const Status cut = fresh->set_active_extent({{2, 3}});
    if (!cut.ok()) return cut;
    const auto outputs = fresh->run(named);
    if (!outputs.ok()) return outputs.error();
    if (!equal(*outputs, expected)) return Error{ErrorKind::internal, "The result is wrong."};
    return {};
  };
  every_allocation(work, work);
}

TEST_F(Faults, in_buckets) {
  Graph graph;
  const Value x = graph.input("x", f32, {Dim("rows"), 16});
  graph.output("y", tanh(x) * graph.constant(f32, 2));
  const BucketOptions options{.symbol = "rows", .ladder = {2, 4}};
  auto keeper = BucketedCompileCache::make(session_, graph, options).value();
  const Tensor rows = Tensor::of<float>({3, 16}, std::span<const float>(input_values()));
  const Outputs expected = keeper.run_padded(std::vector<NamedInput>{{"x", rows}}).value();
  const std::vector<NamedInput> named{{"x", rows}};
  const auto work = [&]() -> Status {
    std::optional<std::pair<Graph, BucketOptions>> copies;
    try {
      copies.emplace(graph, options);
    } catch (const std::bad_alloc&) {
      return Error{ErrorKind::out_of_memory, "Out of memory."};  // of the caller's own copies
    }
    auto cache =
        BucketedCompileCache::make(session_, std::move(copies->first), std::move(copies->second));
    if (!cache.ok()) return cache.error();
    const auto outputs = cache->run_padded(named);
    if (!outputs.ok()) return outputs.error();
    if (!equal(*outputs, expected)) return Error{ErrorKind::internal, "The result is wrong."};
    return {};
  };
  every_allocation(work, work);
}

}  // namespace
}  // namespace rlx
