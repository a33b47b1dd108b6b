// Saved programs in a folder, named by what they were made of.
#include <atomic>

#include "base/cache_folder.hpp"
#include "base/error.hpp"
#include "base/error_in_flight.hpp"
#include "base/hash.hpp"
#include "rlx/caches.hpp"
#include "rlx/mapped.hpp"
#include "rlx/ops.hpp"
#include "runtime/compile.hpp"

namespace rlx {
namespace {

/// Changes where programs of one graph and options come out differently.
constexpr std::uint64_t key_version = 1;

std::string key_of(const Graph& graph, const CompileOptions& options) {
  Hasher hasher;
  hasher.add_field("rlx saved program").add_field(key_version).add_field(print(graph));
  for (const Node& node : graph.nodes()) {
    const auto* param = node.op.as<op::Param>();
    if (!param || param->data.empty()) continue;
    // Two quick hashes of the weights: a collision by chance is out of the question.
    const std::span<const std::byte> bytes(param->data.data(), param->data.bytes());
    hasher.add_field(param->name).add_field(quick_hash(bytes)).add_field(quick_hash(bytes, 1));
    forget_pages(param->data);
  }
  add_options(hasher, options);
  return hasher.finish().hex() + ".rlxprogram";
}

}  // namespace

struct AotCache::Impl {
  Session* session;
  CacheFolder folder;
  std::uint64_t bytes_limit;
  std::atomic<std::int64_t> hits = 0, misses = 0;
};

Result<AotCache> AotCache::open(Session& session, const std::string& folder,
                                std::uint64_t bytes_limit) try {
  RLX_ASSIGN(CacheFolder opened,
             folder.empty() ? CacheFolder::open_for_user("programs") : CacheFolder::open(folder));
  return AotCache(std::unique_ptr<Impl>(new Impl{&session, std::move(opened), bytes_limit}));
} catch (...) {
  return error_in_flight();
}

AotCache::AotCache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AotCache::AotCache(AotCache&&) noexcept = default;
AotCache::~AotCache() = default;

Result<CompiledGraph> AotCache::get(const Graph& graph, const CompileOptions& options) try {
  const std::string name = key_of(graph, options);
  const std::string file = impl_->folder.path() + "/" + name;
  if (is_saved_program(file)) {
    auto loaded = impl_->session->load(file, options.missing);
    if (loaded.ok()) {
      ++impl_->hits;
      impl_->folder.touch(name);
      return loaded;
    }
  }
  ++impl_->misses;
  RLX_ASSIGN(CompiledGraph program, impl_->session->compile(graph, options));
  // A cache that cannot be written, or a program that cannot be saved, is no reason to fail.
  if (program.save(file).ok()) impl_->folder.trim(impl_->bytes_limit);
  return program;
} catch (...) {
  return error_in_flight();
}

std::int64_t AotCache::hits() const { return impl_->hits; }
std::int64_t AotCache::misses() const { return impl_->misses; }

}  // namespace rlx
