// Sessions: choosing the device, opening it, compiling; and the cache of programs by shape.
#include "runtime/session.hpp"

#include <list>

#include "base/error.hpp"
#include "base/error_in_flight.hpp"
#include "base/hash.hpp"
#include "runtime/compiled_graph.hpp"

namespace rlx {

DevicePolicy Session::Impl::policy(std::optional<DevicePolicy::Missing> missing) const {
  DevicePolicy policy = options.devices;
  policy.asked = asked;
  policy.missing = missing.value_or(policy.missing);
  return policy;
}

Result<Backend*> Session::Impl::open(const BackendEntry& entry) {
  for (const auto& backend : opened) {
    if (backend->device() == entry.device) return backend.get();
  }
  RLX_ASSIGN(auto backend, entry.open({options.threads, options.spin, options.memory_limit_bytes,
                                       Log(options.log, options.log_level)}));
  opened.push_back(std::move(backend));
  return opened.back().get();
}

Result<Session::Impl::Place> Session::Impl::place_for(const Graph& graph,
                                                      const CompileOptions& compile) {
  const std::lock_guard lock(mutex);
  const DevicePolicy wanted = policy(compile.missing);
  if (only_device_for(graph, wanted)) {
    // A device that cannot be opened is told of as the choice tells it.
    const auto only = open(backends().front());
    if (only.ok()) {
      last = (*only)->device();
      return Place{*only, std::nullopt};
    }
    if (only.error().kind == ErrorKind::usage || only.error().kind == ErrorKind::bad_input)
      return only.error();
  }
  // What a device takes depends on the dims.
  RLX_ASSIGN(const Graph bound, specialised(graph, compile, {compile.dims, compile.input_dims}));
  RLX_ASSIGN(DeviceChoice choice, choose_device(bound, wanted));
  for (const BackendEntry& entry : backends()) {
    if (entry.device != choice.device) continue;
    RLX_ASSIGN(Backend* const backend, open(entry));
    last = choice.device;
    return Place{backend, std::move(choice)};
  }
  return not_available("The device ({}) is not available: not built in.", name_of(choice.device));
}

Session::Session(Device device, SessionOptions options) : impl_(std::make_shared<Impl>()) {
  impl_->asked = device;
  impl_->last = device;
  impl_->options = std::move(options);
}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

Device Session::device() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->last;
}

Result<CompiledGraph> Session::compile(const Graph& graph, const CompileOptions& options) try {
  if (options.precision != Precision::f32 && options.exact) {
    return bad_input("An exact program computes in f32: leave out the precision ({}).",
                     name_of(options.precision));
  }
  RLX_ASSIGN(Session::Impl::Place place, impl_->place_for(graph, options));
  RLX_ASSIGN(auto made, CompiledGraph::Impl::make(impl_, *place.backend, graph, options));
  made->choice = std::move(place.choice);
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

Result<CompiledGraph> Session::load(const std::string& file,
                                    std::optional<DevicePolicy::Missing> missing) try {
  RLX_ASSIGN(auto program, CompiledGraph::Impl::load(impl_, file, missing));
  return CompiledGraph(std::move(program));
} catch (...) {
  return error_in_flight();
}

struct CompileCache::Impl {
  Session* session;
  Graph graph;
  std::size_t capacity;
  std::mutex mutex;
  std::list<std::pair<Digest, std::shared_ptr<CompiledGraph>>>
      programs;  ///< most recently used first
  std::size_t misses = 0;
};

CompileCache::CompileCache(Session& session, Graph graph, std::size_t capacity)
    : impl_(new Impl{&session, std::move(graph), std::max<std::size_t>(capacity, 1), {}, {}, 0}) {}
CompileCache::~CompileCache() = default;
CompileCache::CompileCache(CompileCache&&) noexcept = default;

Result<std::shared_ptr<CompiledGraph>> CompileCache::get(const CompileOptions& options) try {
  Hasher hasher;
  add_options(hasher, options);
  // Programs in memory are of the device that a call got, or asks for.
  hasher.add_field(options.missing ? static_cast<std::uint64_t>(*options.missing) + 1 : 0);
  const Digest key = hasher.finish();
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
