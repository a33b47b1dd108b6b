// Sessions: choosing the device, opening it, compiling; and the cache of programs by shape.
#include "runtime/session.hpp"

#include <list>

#include "base/error.hpp"
#include "base/error_in_flight.hpp"
#include "runtime/compiled_graph.hpp"

namespace rlx {

Result<Backend*> Session::Impl::open(const Graph& graph) {
  const std::lock_guard lock(mutex);
  if (backend) return backend.get();
  DevicePolicy policy = options.devices;
  policy.asked = asked;
  const BackendOptions asked_of_backend{options.threads, options.spin, options.memory_limit_bytes,
                                        Log(options.log, options.log_level)};
  if (const auto only = only_device_for(graph, policy)) {
    // A device that cannot be opened is told of as the choice tells it.
    auto opened = backends().front().open(asked_of_backend);
    if (opened.ok()) {
      backend = *std::move(opened);
      chosen = *only;
      return backend.get();
    }
    if (opened.error().kind == ErrorKind::usage || opened.error().kind == ErrorKind::bad_input)
      return opened.error();
  }
  RLX_ASSIGN(choice, choose_device(graph, policy));
  for (const BackendEntry& entry : backends()) {
    if (entry.device != choice->device) continue;
    RLX_ASSIGN(backend, entry.open(asked_of_backend));
    chosen = entry.device;
    return backend.get();
  }
  return not_available("The device ({}) is not available: not built in.", name_of(choice->device));
}

Session::Session(Device device, SessionOptions options) : impl_(std::make_shared<Impl>()) {
  impl_->asked = device;
  impl_->chosen = device;
  impl_->options = std::move(options);
}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

Device Session::device() const { return impl_->chosen; }

Result<CompiledGraph> Session::compile(const Graph& graph, const CompileOptions& options) try {
  if (options.precision != Precision::f32 && options.exact) {
    return bad_input("An exact program computes in f32: leave out the precision ({}).",
                     name_of(options.precision));
  }
  RLX_ASSIGN(Backend* const backend, impl_->open(graph));
  RLX_ASSIGN(auto made, CompiledGraph::Impl::make(impl_, *backend, graph, options));
  RLX_TRY(made->check_answers());
  CompiledGraph program(std::move(made));
  const CompileReport& report = program.report();
  const MemoryReport memory = program.query_memory();
  Log(impl_->options.log, impl_->options.log_level)(
      LogLevel::info,
      "Compiled a program of {} kernels in {:.1f} ms ({} generated, {} from the cache): weights {} "
      "bytes, arena {}, scratch {}.",
      report.kernels, report.compile_ms, report.generated_kernels, report.cached_kernels,
      memory.weights_bytes, memory.arena_bytes, memory.scratch_bytes);
  return program;
} catch (...) {
  return error_in_flight();
}

Result<CompiledGraph> Session::load(const std::string& file) try {
  RLX_ASSIGN(Backend* const backend, impl_->open(Graph()));
  RLX_ASSIGN(auto program, CompiledGraph::Impl::load(impl_, *backend, file));
  return CompiledGraph(std::move(program));
} catch (...) {
  return error_in_flight();
}

struct CompileCache::Impl {
  Session* session;
  Graph graph;
  std::size_t capacity;
  std::mutex mutex;
  std::list<std::pair<std::string, std::shared_ptr<CompiledGraph>>>
      programs;  ///< most recently used first
  std::size_t misses = 0;
};

CompileCache::CompileCache(Session& session, Graph graph, std::size_t capacity)
    : impl_(new Impl{&session, std::move(graph), std::max<std::size_t>(capacity, 1), {}, {}, 0}) {}
CompileCache::~CompileCache() = default;
CompileCache::CompileCache(CompileCache&&) noexcept = default;

Result<std::shared_ptr<CompiledGraph>> CompileCache::get(const CompileOptions& options) try {
  std::string key = fmt::format("{} {} {} {} {};", name_of(options.precision), options.exact,
                                options.flush_subnormals, options.threads, plan_settings(options));
  for (const auto& [name, value] : options.dims) key += fmt::format("{}={};", name, value);
  for (const auto& [name, dims] : options.input_dims)
    key += fmt::format("{}=[{}];", name, fmt::join(dims, ","));
  key += fmt::format("{}", fmt::join(options.outputs, ","));
  for (const CompileOptions::Feed& feed : options.feeds)
    key += fmt::format(";{}->{}", feed.output, feed.input);
  const std::lock_guard lock(impl_->mutex);
  auto& programs = impl_->programs;
  for (auto it = programs.begin(); it != programs.end(); ++it) {
    if (it->first != key) continue;
    programs.splice(programs.begin(), programs, it);
    return programs.front().second;
  }
  ++impl_->misses;
  RLX_ASSIGN(CompiledGraph program, impl_->session->compile(impl_->graph, options));
  programs.emplace_front(key, std::make_shared<CompiledGraph>(std::move(program)));
  if (programs.size() > impl_->capacity) programs.pop_back();
  return programs.front().second;
} catch (...) {
  return error_in_flight();
}

std::size_t CompileCache::size() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->programs.size();
}
std::size_t CompileCache::misses() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->misses;
}

}  // namespace rlx
