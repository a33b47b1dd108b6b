// Programs for a ladder of sizes: padding, cropping, and which programs stay.
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>

#include "base/error.hpp"
#include "base/error_in_flight.hpp"
#include "rlx/caches.hpp"
#include "rlx/ops.hpp"
#include "runtime/compile.hpp"
#include "runtime/overlap.hpp"
#include "runtime/row_independence.hpp"

namespace rlx {

struct BucketedCompileCache::Impl {
  struct Bucket {
    std::int64_t rows = 0;
    std::mutex at_work;  ///< one run at a time
    std::shared_ptr<CompiledGraph> program;
    std::vector<Tensor> padded;  ///< inputs
    std::int64_t bytes = 0;
  };
  using SharedBucket = std::shared_ptr<Bucket>;

  Session* session = nullptr;
  Graph graph;
  BucketOptions options;
  std::map<std::string, std::vector<std::size_t>> axes;  ///< of the symbol, by input

  mutable std::mutex mutex;                               ///< of all below; never held in a compile
  mutable std::condition_variable changed;                ///< a bucket was made, or could not be
  std::list<SharedBucket> buckets;                        ///< most recently used first
  std::set<std::int64_t> compiling;                       ///< rows of buckets being made
  std::deque<std::int64_t> wanted;                        ///< of these, those that wait for `maker`
  std::set<std::int64_t> failed;                          ///< in the background: not tried again
  std::map<std::int64_t, std::vector<Dims>> output_dims;  ///< by rows
  Report report;
  bool ends = false;
  std::thread maker;  ///< compiles in the background; started by the first need

  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      ends = true;
    }
    changed.notify_all();
    if (maker.joinable()) maker.join();
  }

  Result<std::int64_t> bucket_for(std::int64_t rows) const {
    const auto& ladder = options.ladder;
    const auto found = std::lower_bound(ladder.begin(), ladder.end(), rows);
    if (rows < 1 || found == ladder.end())
      return bad_input("The rows ({}) lie outside the ladder 1..{}.", rows,
                       ladder.empty() ? 0 : ladder.back());
    return *found;
  }

  /// A bucket of that size, now the most recently used one; null where there is none. Under lock.
  SharedBucket find(std::int64_t size) {
    const auto it = std::ranges::find(buckets, size, [](const auto& made) { return made->rows; });
    if (it == buckets.end()) return nullptr;
    buckets.splice(buckets.begin(), buckets, it);
    return buckets.front();
  }

  /// The smallest bucket there that is larger. Under lock.
  SharedBucket stand_in(std::int64_t size) {
    std::int64_t least = 0;
    for (const SharedBucket& made : buckets) {
      if (made->rows > size && (least == 0 || made->rows < least)) least = made->rows;
    }
    return least == 0 ? nullptr : find(least);
  }

  Result<SharedBucket> bucket(std::int64_t rows) {
    RLX_ASSIGN(const std::int64_t size, bucket_for(rows));
    std::unique_lock lock(mutex);
    if (SharedBucket made = find(size)) {
      ++report.hits;
      return made;
    }
    ++report.misses;
    if (options.in_background) {
      if (SharedBucket larger = stand_in(size)) {
        ++report.stand_ins;
        ask_for(size);
        return larger;
      }
    }
    // Somebody may be making it: there is no need to do so twice.
    while (compiling.contains(size)) {
      changed.wait(lock);
      if (SharedBucket made = find(size)) return made;
    }
    compiling.insert(size);
    return make(size, lock);
  }

  /// Under lock.
  void ask_for(std::int64_t size) {
    if (failed.contains(size) || compiling.contains(size)) return;
    wanted.push_back(size);
    try {
      compiling.insert(size);
      if (!maker.joinable()) maker = std::thread([this] { make_wanted(); });
    } catch (const std::exception&) {
      // No thread or memory is to be had: the larger bucket goes on serving, and the next call
      // tries again.
      wanted.pop_back();
      compiling.erase(size);
      return;
    }
    changed.notify_all();
  }

  /// What the background thread does.
  void make_wanted() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return ends || !wanted.empty(); });
      if (ends) return;
      const std::int64_t size = wanted.front();
      wanted.pop_front();
      const Result<SharedBucket> made = make(size, lock);
      if (made.ok() || made.error().kind == ErrorKind::out_of_memory) continue;
      try {
        failed.insert(size);
      } catch (const std::bad_alloc&) {
        // It fails again, then.
      }
    }
  }

  /// Compiles with the lock released; `compiling` holds the size, and loses it here.
  Result<SharedBucket> make(std::int64_t size, std::unique_lock<std::mutex>& lock) {
    lock.unlock();
    Result<SharedBucket> made = compiled(size);
    lock.lock();
    compiling.erase(size);
    changed.notify_all();  // who waits looks once the lock is released
    try {
      if (made.ok()) insert(*made);
    } catch (...) {
      return error_in_flight();
    }
    return made;
  }

  /// Throws nothing: who waits for the size must be told.
  Result<SharedBucket> compiled(std::int64_t size) const try {
    CompileOptions compile = options.compile;
    compile.dims[options.symbol] = size;
    RLX_ASSIGN(CompiledGraph program, session->compile(graph, compile));
    auto made = std::make_shared<Bucket>();
    made->rows = size;
    const MemoryReport memory = program.query_memory();
    made->bytes = memory.arena_bytes + memory.scratch_bytes;
    for (const IoInfo& input : program.inputs()) made->padded.emplace_back(input.dtype, input.dims);
    made->program = std::make_shared<CompiledGraph>(std::move(program));
    return made;
  } catch (...) {
    return error_in_flight();
  }

  /// Under lock.
  void insert(const SharedBucket& made) {
    buckets.push_front(made);
    report.bytes += made->bytes;
    while (options.bytes_limit > 0 && report.bytes > options.bytes_limit && buckets.size() > 1) {
      report.bytes -= buckets.back()->bytes;
      ++report.evictions;
      buckets.pop_back();
    }
  }

  /// The symbol's value that the inputs tell.
  Result<std::int64_t> rows_of(std::span<const NamedInput> inputs) const {
    std::int64_t rows = -1;
    for (const NamedInput& input : inputs) {
      const auto found = axes.find(input.name);
      if (found == axes.end()) continue;
      if (!input.view) return bad_input("The input ({}) needs dims: give a tensor.", input.name);
      for (const std::size_t axis : found->second) {
        const std::int64_t dim = axis < input.view->dims.size() ? input.view->dims[axis] : -1;
        if (rows >= 0 && dim != rows)
          return bad_input("The input ({}) has {} rows and another has ({}).", input.name, dim,
                           rows);
        rows = dim;
      }
    }
    if (rows < 0) return bad_input("No input tells the symbol ({}).", options.symbol);
    return rows;
  }

  /// Dims of the outputs for so many rows.
  Result<std::vector<Dims>> dims_for(std::int64_t rows) {
    {
      const std::lock_guard lock(mutex);
      const auto known = output_dims.find(rows);
      if (known != output_dims.end()) return known->second;
    }
    passes::Bindings bindings{options.compile.dims, options.compile.input_dims};
    bindings.dims[options.symbol] = rows;
    RLX_ASSIGN(const Graph bound, specialised(graph, options.compile, bindings));
    std::vector<Dims> dims;
    for (const IoInfo& output : output_infos(bound)) dims.push_back(output.dims);
    const std::lock_guard lock(mutex);
    return output_dims[rows] = dims;
  }
};

Result<BucketedCompileCache> BucketedCompileCache::make(Session& session, Graph graph,
                                                        BucketOptions options) try {
  auto impl = std::make_unique<Impl>();
  if (options.ladder.empty()) {
    for (std::int64_t rows = 1; rows < options.largest; rows *= 2) options.ladder.push_back(rows);
    options.ladder.push_back(options.largest);
  }
  if (!std::is_sorted(options.ladder.begin(), options.ladder.end()))
    return bad_input("The ladder of buckets ({}) does not ascend.", fmt::join(options.ladder, ","));
  for (const Node& node : graph.nodes()) {
    const auto* input = node.op.as<op::Input>();
    if (!input) continue;
    const Shape& shape = node.results[0].shape;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (!shape[i].is_static() && shape[i].text() == options.symbol)
        impl->axes[input->name].push_back(i);
    }
  }
  if (impl->axes.empty())
    return bad_input("No input has a dim with the symbol ({}).", options.symbol);
  for (const std::string& mask : options.masks) {
    if (!impl->axes.contains(mask))
      return bad_input("The mask ({}) is no input with the symbol ({}).", mask, options.symbol);
  }
  if (options.masks.empty()) {
    Status harmless =
        check_rows_are_independent(graph, options.symbol, options.ladder.back(),
                                   {options.compile.dims, options.compile.input_dims});
    if (!harmless.ok())
      return std::move(harmless.error())
          .while_("showing that padding (" + options.symbol + ") is harmless");
  }
  impl->session = &session;
  impl->graph = std::move(graph);
  impl->options = std::move(options);
  return BucketedCompileCache(std::move(impl));
} catch (...) {
  return error_in_flight();
}

BucketedCompileCache::BucketedCompileCache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BucketedCompileCache::BucketedCompileCache(BucketedCompileCache&&) noexcept = default;
BucketedCompileCache::~BucketedCompileCache() = default;

Result<std::shared_ptr<CompiledGraph>> BucketedCompileCache::get(std::int64_t rows) try {
  RLX_ASSIGN(const auto bucket, impl_->bucket(rows));
  return bucket->program;
} catch (...) {
  return error_in_flight();
}

Result<Outputs> BucketedCompileCache::run_padded(std::span<const NamedInput> inputs) try {
  RLX_ASSIGN(const std::int64_t rows, impl_->rows_of(inputs));
  RLX_ASSIGN(const auto bucket, impl_->bucket(rows));
  RLX_ASSIGN(const std::vector<Dims> dims, impl_->dims_for(rows));
  const std::lock_guard lock(bucket->at_work);
  const std::vector<IoInfo>& wanted = bucket->program->inputs();
  std::vector<NamedInput> padded;
  for (const NamedInput& input : inputs) {
    const auto found = std::ranges::find(wanted, input.name, &IoInfo::name);
    const bool pads = found != wanted.end() && impl_->axes.contains(input.name) &&
                      input.view->dtype == found->dtype &&
                      input.view->dims.size() == found->dims.size();
    if (!pads) {
      padded.push_back(input);  // run says what is wrong with it, if anything
      continue;
    }
    Tensor& target = bucket->padded[static_cast<std::size_t>(found - wanted.begin())];
    for (std::size_t axis = 0; axis < found->dims.size(); ++axis) {
      const auto& own = impl_->axes.at(input.name);
      const bool is_padded = std::find(own.begin(), own.end(), axis) != own.end();
      if (!is_padded && input.view->dims[axis] != found->dims[axis])
        return bad_input("The input ({}) has ({}) on axis {} instead of {}.", input.name,
                         input.view->dims[axis], axis, found->dims[axis]);
    }
    copy_overlap(*input.view, {target.dtype(), target.dims(), target.mutable_data()});
    padded.emplace_back(input.name, target);
  }
  RLX_ASSIGN(const auto views, bucket->program->run_raw(padded));
  Outputs outputs;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    Tensor tensor(views[i].dtype, dims[i]);
    copy_overlap(views[i], {tensor.dtype(), tensor.dims(), tensor.mutable_data()});
    outputs.items.emplace_back(bucket->program->outputs()[i].name, std::move(tensor));
  }
  return outputs;
} catch (...) {
  return error_in_flight();
}

BucketedCompileCache::Report BucketedCompileCache::report() const {
  const std::lock_guard lock(impl_->mutex);
  Report report = impl_->report;
  for (const auto& bucket : impl_->buckets) report.buckets.push_back(bucket->rows);
  report.compiling = static_cast<int>(impl_->compiling.size());
  return report;
}

void BucketedCompileCache::wait() const {
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait(lock, [&] { return impl_->compiling.empty(); });
}

}  // namespace rlx
