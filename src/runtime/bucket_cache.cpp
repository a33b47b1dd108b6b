// Programs for a ladder of sizes: padding, cropping, and which programs stay.
#include <algorithm>
#include <list>
#include <map>
#include <mutex>

#include "base/error.hpp"
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

  Session* session = nullptr;
  Graph graph;
  BucketOptions options;
  std::map<std::string, std::vector<std::size_t>> axes;  ///< of the symbol, by input

  std::mutex mutex;                                       ///< of all below
  std::list<std::shared_ptr<Bucket>> buckets;             ///< most recently used first
  std::map<std::int64_t, std::vector<Dims>> output_dims;  ///< by rows
  Report report;

  Result<std::int64_t> bucket_for(std::int64_t rows) const {
    const auto& ladder = options.ladder;
    const auto found = std::lower_bound(ladder.begin(), ladder.end(), rows);
    if (rows < 1 || found == ladder.end())
      return bad_input("The rows ({}) lie outside the ladder 1..{}.", rows,
                       ladder.empty() ? 0 : ladder.back());
    return *found;
  }

  Result<std::shared_ptr<Bucket>> bucket(std::int64_t rows) {
    RLX_ASSIGN(const std::int64_t size, bucket_for(rows));
    const std::lock_guard lock(mutex);
    for (auto it = buckets.begin(); it != buckets.end(); ++it) {
      if ((*it)->rows != size) continue;
      buckets.splice(buckets.begin(), buckets, it);
      ++report.hits;
      return buckets.front();
    }
    ++report.misses;
    CompileOptions compile = options.compile;
    compile.dims[options.symbol] = size;
    RLX_ASSIGN(CompiledGraph program, session->compile(graph, compile));
    auto made = std::make_shared<Bucket>();
    made->rows = size;
    const MemoryReport memory = program.query_memory();
    made->bytes = memory.arena_bytes + memory.scratch_bytes;
    for (const IoInfo& input : program.inputs()) made->padded.emplace_back(input.dtype, input.dims);
    made->program = std::make_shared<CompiledGraph>(std::move(program));
    buckets.push_front(made);
    report.bytes += made->bytes;
    while (options.bytes_limit > 0 && report.bytes > options.bytes_limit && buckets.size() > 1) {
      report.bytes -= buckets.back()->bytes;
      ++report.evictions;
      buckets.pop_back();
    }
    return made;
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
    const std::lock_guard lock(mutex);
    const auto known = output_dims.find(rows);
    if (known != output_dims.end()) return known->second;
    passes::Bindings bindings{options.compile.dims, options.compile.input_dims};
    bindings.dims[options.symbol] = rows;
    RLX_ASSIGN(const Graph bound, specialised(graph, options.compile, bindings));
    std::vector<Dims> dims;
    for (const IoInfo& output : output_infos(bound)) dims.push_back(output.dims);
    return output_dims[rows] = dims;
  }
};

Result<BucketedCompileCache> BucketedCompileCache::make(Session& session, Graph graph,
                                                        BucketOptions options) {
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
    Status harmless = check_rows_are_independent(
        graph, options.symbol, {options.compile.dims, options.compile.input_dims});
    if (!harmless.ok())
      return std::move(harmless.error())
          .while_("showing that padding (" + options.symbol + ") is harmless");
  }
  impl->session = &session;
  impl->graph = std::move(graph);
  impl->options = std::move(options);
  return BucketedCompileCache(std::move(impl));
}

BucketedCompileCache::BucketedCompileCache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BucketedCompileCache::BucketedCompileCache(BucketedCompileCache&&) noexcept = default;
BucketedCompileCache::~BucketedCompileCache() = default;

Result<std::shared_ptr<CompiledGraph>> BucketedCompileCache::get(std::int64_t rows) {
  RLX_ASSIGN(const auto bucket, impl_->bucket(rows));
  return bucket->program;
}

Result<Outputs> BucketedCompileCache::run_padded(std::span<const NamedInput> inputs) {
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
}

BucketedCompileCache::Report BucketedCompileCache::report() const {
  const std::lock_guard lock(impl_->mutex);
  Report report = impl_->report;
  for (const auto& bucket : impl_->buckets) report.buckets.push_back(bucket->rows);
  return report;
}

}  // namespace rlx
