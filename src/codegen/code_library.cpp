// The way of a kernel to its function. A request goes through memory, disk, generator and loader in
// this order.
#include "codegen/code_library.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <optional>
#include <thread>

#include "base/error.hpp"
#include "base/error_in_flight.hpp"
#include "codegen/code_family.hpp"
#include "codegen/host_target.hpp"

namespace rlx::codegen {
namespace {

/// Adds the time from its making to its end.
class Stopwatch {
 public:
  explicit Stopwatch(double& total_ms) : total_ms_(total_ms) {}
  ~Stopwatch() {
    const std::chrono::duration<double, std::milli> time = Clock::now() - start_;
    total_ms_ += time.count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  double& total_ms_;
  const Clock::time_point start_ = Clock::now();
};

Result<LoadedKernel> make_callable(const KernelCode& code, std::size_t index,
                                   std::shared_ptr<const ObjectImage> image) {
  void* function = image->symbol(code.symbol, index);
  if (function == nullptr) {
    return internal_error("The object code lacks its own symbol ({}).", code.symbol);
  }
  return LoadedKernel{reinterpret_cast<KernelFunction>(function), code.work_items,
                      code.scratch_bytes, std::move(image)};
}

/// What the function gives, or what it throws.
template <class Function>
auto guarded(const Function& function) -> decltype(function()) {
  try {
    return function();
  } catch (const Exception&) {
    return error_in_flight();
  } catch (const std::bad_alloc&) {
    return error_in_flight();
  } catch (const std::exception& exception) {
    return internal_error("The code generator failed ({}).", exception.what());
  }
}

Result<KernelCode> generate_one(const CodeGenerator& generator, const loop::Kernel& kernel,
                                const Target& target) {
  return guarded([&] { return generator.generate(kernel, target); });
}

Result<KernelCode> generate_open(const CodeGenerator& generator, const loop::Kernel& kernel,
                                 const Target& target, std::span<const std::int32_t> names) {
  return guarded([&] { return generator.generate_open(kernel, target, names); });
}

std::optional<OpenCode> open_code_of(const CodeGenerator& generator, const loop::Kernel& kernel,
                                     const Target& target) {
  const auto made = guarded([&]() -> Result<std::optional<OpenCode>> {
    std::optional<KernelOutline> outline = generator.outline(kernel, target);
    if (!outline) return std::optional<OpenCode>();
    return std::optional<OpenCode>(OpenCode(*std::move(outline)));
  });
  return made.ok() ? *made : std::nullopt;
}

/// Calls work(i) for all i < count. Where the system refuses a thread, the others do its work.
template <class Work>
void on_threads(int most, std::size_t count, const Work& work) {
  std::atomic<std::size_t> next = 0;
  const auto each = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(most));
  try {
    for (std::size_t t = 1; t < std::min<std::size_t>(most, count); ++t) threads.emplace_back(each);
  } catch (const std::exception&) {
  }
  each();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

/// One call, with its kernels made distinct.
struct CodeLibrary::Request {
  struct Item {
    const loop::Kernel* kernel = nullptr;
    Digest key;
    std::size_t text_bytes = 0;
    std::optional<KernelCode> code;
    bool from_disk = false;
    std::optional<Result<LoadedKernel>> result;
  };
  std::vector<Item> items;           ///< distinct kernels
  std::vector<std::size_t> item_of;  ///< of each kernel asked for
  bool as_program = false;           ///< the disk holds these kernels as one file
  CodeStatistics statistics;

  std::vector<Digest> keys() const {
    std::vector<Digest> keys;
    for (const Item& item : items) keys.push_back(item.key);
    return keys;
  }

  bool complete() const {
    return std::ranges::all_of(items, [](const Item& item) { return item.result.has_value(); });
  }
};

CodeLibrary::CodeLibrary(Target target, CodeCache cache, GeneratorSource generator, int threads)
    : target_(std::move(target)),
      cache_(std::move(cache)),
      generator_(std::move(generator)),
      threads_(std::max(threads, 1)) {}

Result<std::unique_ptr<CodeLibrary>> CodeLibrary::open_for_host(int threads) {
  RLX_ASSIGN(Target target, host_target());
  return std::make_unique<CodeLibrary>(std::move(target), CodeCache::open_for_user(),
                                       GeneratorSource::find(), threads);
}

std::vector<Result<LoadedKernel>> CodeLibrary::load_each(std::span<const loop::Kernel> kernels) {
  Request request;
  {
    const Stopwatch watch(request.statistics.lookup_ms);
    std::unordered_map<Digest, std::size_t, DigestHash> index;
    for (const loop::Kernel& kernel : kernels) {
      const std::string text = loop::to_text(kernel);
      const Digest key = code_key(text, target_, generator_.identity());
      const auto [it, is_new] = index.try_emplace(key, request.items.size());
      if (is_new) {
        Request::Item& item = request.items.emplace_back();
        item.kernel = &kernel;
        item.key = key;
        item.text_bytes = text.size();
      }
      request.item_of.push_back(it->second);
    }
    request.statistics.requested = static_cast<std::int64_t>(kernels.size());
    request.statistics.shared = static_cast<std::int64_t>(kernels.size() - request.items.size());
    find_in_memory(request);
    if (!request.complete()) find_on_disk(request);
  }
  if (!request.complete()) {
    generate_missing(request);
    load_code(request);
    keep(request);
  }
  std::vector<Result<LoadedKernel>> results;
  results.reserve(kernels.size());
  for (const std::size_t item : request.item_of) results.push_back(*request.items[item].result);
  for (const auto& result : results) request.statistics.failed += !result.ok();

  const std::lock_guard lock(mutex_);
  statistics_.requested += request.statistics.requested;
  statistics_.shared += request.statistics.shared;
  statistics_.cached += request.statistics.cached;
  statistics_.generated += request.statistics.generated;
  statistics_.failed += request.statistics.failed;
  statistics_.lookup_ms += request.statistics.lookup_ms;
  statistics_.generate_ms += request.statistics.generate_ms;
  statistics_.load_ms += request.statistics.load_ms;
  return results;
}

Result<std::vector<LoadedKernel>> CodeLibrary::load(std::span<const loop::Kernel> kernels) {
  std::vector<LoadedKernel> loaded;
  loaded.reserve(kernels.size());
  for (Result<LoadedKernel>& result : load_each(kernels)) {
    RLX_TRY(result);
    loaded.push_back(*std::move(result));
  }
  return loaded;
}

CodeStatistics CodeLibrary::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

void CodeLibrary::find_in_memory(Request& request) {
  const std::lock_guard lock(mutex_);
  for (Request::Item& item : request.items) {
    const auto it = known_.find(item.key);
    if (it == known_.end()) continue;
    LoadedKernel kernel = it->second.kernel;
    kernel.code = it->second.code.lock();
    if (kernel.code == nullptr) {
      known_.erase(it);
      continue;
    }
    item.result = std::move(kernel);
    ++request.statistics.shared;
  }
}

void CodeLibrary::find_on_disk(Request& request) {
  CodeCache::Found found = cache_.load(request.keys());
  request.as_program = found.as_program;
  for (std::size_t i = 0; i < request.items.size(); ++i) {
    request.items[i].code = std::move(found.codes[i]);
    request.items[i].from_disk = request.items[i].code.has_value();
    request.statistics.cached += request.items[i].from_disk && !request.items[i].result;
  }
}

void CodeLibrary::generate_missing(Request& request) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < request.items.size(); ++i) {
    if (!request.items[i].code && !request.items[i].result) order.push_back(i);
  }
  if (order.empty()) return;
  // The longest first, so that no thread is left alone with a big one at the end.
  std::ranges::stable_sort(order, std::greater<>(),
                           [&](std::size_t i) { return request.items[i].text_bytes; });
  generate(request, order);
}

void CodeLibrary::generate(Request& request, std::span<const std::size_t> order) {
  const Stopwatch watch(request.statistics.generate_ms);
  const Result<const CodeGenerator*> generator = generator_.open();
  if (!generator.ok()) {
    for (const std::size_t i : order) request.items[i].result = generator.error();
    return;
  }
  const auto put = [&](std::size_t i, Result<KernelCode> code) {
    Request::Item& item = request.items[i];
    item.from_disk = false;
    if (code.ok()) {
      item.code = *std::move(code);
    } else {
      item.code.reset();
      item.result = std::move(code.error());
    }
  };
  const auto kernel_of = [&](std::size_t k) -> const loop::Kernel& {
    return *request.items[order[k]].kernel;
  };
  std::vector<std::optional<OpenCode>> open(order.size());
  if (order.size() > 1) {
    on_threads(threads_, order.size(),
               [&](std::size_t k) { open[k] = open_code_of(**generator, kernel_of(k), target_); });
  }
  const std::vector<CodeFamily> families = families_of(open);
  on_threads(threads_, families.size(), [&](std::size_t f) {
    const CodeFamily& family = families[f];
    const std::size_t first = family.members[0];
    std::optional<Result<KernelCode>> shared;
    if (family.members.size() > 1)
      shared = generate_open(**generator, kernel_of(first), target_, family.names);
    for (std::size_t m = 0; m < family.members.size(); ++m) {
      const std::size_t k = family.members[m];
      std::optional<KernelCode> code;
      if (shared && shared->ok()) code = with_numbers(**shared, *open[k], family.values[m]);
      put(order[k], code ? *std::move(code) : generate_one(**generator, kernel_of(k), target_));
    }
  });
  for (const std::size_t i : order) {
    request.statistics.generated += request.items[i].code.has_value();
  }
}

void CodeLibrary::load_code(Request& request) {
  std::vector<Request::Item*> items;
  std::vector<std::span<const std::byte>> objects;
  for (Request::Item& item : request.items) {
    if (item.result) continue;
    items.push_back(&item);
    objects.push_back(item.code->object);
  }
  if (items.empty()) return;
  bool all_loaded = false;
  {
    const Stopwatch watch(request.statistics.load_ms);
    Result<ObjectImage> image = ObjectImage::load(objects);
    if (image.ok()) {
      const auto shared = std::make_shared<const ObjectImage>(*std::move(image));
      all_loaded = true;
      for (std::size_t i = 0; i < items.size(); ++i) {
        items[i]->result = make_callable(*items[i]->code, i, shared);
        all_loaded = all_loaded && items[i]->result->ok();
      }
    }
  }
  if (!all_loaded) load_singly(request);
}

void CodeLibrary::load_singly(Request& request) {
  const auto load_one = [](const KernelCode& code) -> Result<LoadedKernel> {
    RLX_ASSIGN(ObjectImage image, ObjectImage::load(code.object));
    return make_callable(code, 0, std::make_shared<const ObjectImage>(std::move(image)));
  };
  for (std::size_t i = 0; i < request.items.size(); ++i) {
    Request::Item& item = request.items[i];
    if (!item.code || (item.result && item.result->ok())) continue;
    Result<LoadedKernel> loaded = load_one(*item.code);
    if (!loaded.ok() && item.from_disk) {
      // Sound by its checksum, yet no code that can be loaded: made anew, and replaced on disk.
      item.result.reset();
      --request.statistics.cached;
      generate(request, std::span(&i, 1));
      if (!item.code) continue;
      loaded = load_one(*item.code);
    }
    item.result = std::move(loaded);
  }
}

void CodeLibrary::keep(Request& request) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(known_, [](const auto& entry) { return entry.second.code.expired(); });
    for (const Request::Item& item : request.items) {
      if (!item.result->ok()) continue;
      LoadedKernel kernel = **item.result;
      const std::weak_ptr<const ObjectImage> code = kernel.code;
      kernel.code.reset();
      known_.insert_or_assign(item.key, Known{kernel, code});
    }
  }
  if (!cache_.enabled()) return;
  const Stopwatch watch(request.statistics.lookup_ms);
  bool anything_new = false;
  std::vector<Digest> keys;
  std::vector<KernelCode> codes;
  for (Request::Item& item : request.items) {
    if (!item.result->ok() || !item.code) continue;
    keys.push_back(item.key);
    codes.push_back(*std::move(item.code));
    anything_new = anything_new || !item.from_disk;
  }
  // What was in memory alone already lies in another program's file; without it this program's
  // file would not be whole, and is kept for what is new alone.
  const bool whole = keys.size() == request.items.size();
  if (anything_new || (whole && !request.as_program)) cache_.store(keys, codes);
}

Result<std::vector<KernelCode>> CodeLibrary::codes(std::span<const loop::Kernel> kernels) const {
  std::vector<Digest> keys;
  for (const loop::Kernel& kernel : kernels)
    keys.push_back(code_key(loop::to_text(kernel), target_, generator_.identity()));
  CodeCache::Found found = cache_.load(keys);
  std::vector<KernelCode> codes;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    if (!found.codes[i]) {
      RLX_ASSIGN(const CodeGenerator* const generator, generator_.open());
      RLX_ASSIGN(found.codes[i], generate_one(*generator, kernels[i], target_));
    }
    codes.push_back(*std::move(found.codes[i]));
  }
  return codes;
}

Result<std::vector<LoadedKernel>> CodeLibrary::adopt(std::span<const KernelCode> codes) {
  std::vector<std::span<const std::byte>> objects;
  for (const KernelCode& code : codes) objects.push_back(code.object);
  std::vector<LoadedKernel> loaded;
  if (codes.empty()) return loaded;
  RLX_ASSIGN(ObjectImage image, ObjectImage::load(objects));
  const auto shared = std::make_shared<const ObjectImage>(std::move(image));
  for (std::size_t i = 0; i < codes.size(); ++i) {
    RLX_ASSIGN(LoadedKernel kernel, make_callable(codes[i], i, shared));
    loaded.push_back(std::move(kernel));
  }
  return loaded;
}

std::string CodeLibrary::identity() const {
  return fmt::format("isa {} cpu {} features {} generator {}", static_cast<int>(target_.isa),
                     target_.cpu, target_.features, generator_.identity());
}

}  // namespace rlx::codegen
