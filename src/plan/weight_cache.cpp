// Packed weights that lie in memory, found again by what they were made of.
#include <algorithm>
#include <bit>

#include "plan/weights.hpp"

namespace rlx::plan {

std::shared_ptr<const std::byte> WeightCache::find(const std::string& key,
                                                   std::span<const Tensor> sources) {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(key);
  if (found == known_.end()) return nullptr;
  const bool same = std::ranges::equal(
      found->second.sources, sources, [](const auto& known, const Tensor& source) {
        return !known.expired() && !known.owner_before(source.shared_data()) &&
               !source.shared_data().owner_before(known);
      });
  return same ? found->second.bytes.lock() : nullptr;
}

void WeightCache::keep(const std::string& key, const std::shared_ptr<const std::byte>& bytes,
                       std::span<const Tensor> sources) {
  const std::lock_guard lock(mutex_);
  Known known{bytes, {}};
  for (const Tensor& source : sources) known.sources.emplace_back(source.shared_data());
  known_[key] = std::move(known);
  // What is gone goes from the list too, now and then: weights may be set anew all the time.
  constexpr std::size_t prune_at = 64;
  if (known_.size() >= prune_at && std::has_single_bit(known_.size()))
    std::erase_if(known_, [](const auto& entry) { return entry.second.bytes.expired(); });
}

std::shared_ptr<ExpertStore> WeightCache::experts(const WeightPlan& weight, const Tensor& source) {
  const std::string key = weight_key(weight, source);
  const std::lock_guard lock(mutex_);
  std::shared_ptr<ExpertStore> store = experts_[key].lock();
  if (!store) experts_[key] = store = std::make_shared<ExpertStore>(weight, source, budget);
  return store;
}

std::string weight_key(const WeightPlan& weight, const Tensor& source) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}",
                     static_cast<const void*>(source.data()), name_of(weight.dtype), weight.packed,
                     weight.view.offset, fmt::join(weight.view.dims, ","),
                     fmt::join(weight.view.strides, ","), weight.layout.panel_width,
                     fmt::join(weight.batch_extents, ","), fmt::join(weight.batch_strides, ","),
                     fmt::join(weight.k_extents, ","), fmt::join(weight.k_strides, ","),
                     weight.n_stride, weight.from ? name_of(*weight.from) : "", weight.layout.group,
                     weight.layout.inner, weight.layout.nibbles, weight.drops_negligible);
}

}  // namespace rlx::plan
