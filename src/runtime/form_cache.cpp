// A file is: magic, version, count, a checksum of what follows, then one record for each form.
#include "runtime/form_cache.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace rlx {
namespace {

/// Changes with the layout of files.
constexpr std::uint64_t format_version = 1;
constexpr std::uint64_t magic = 0x6d726f66'786c72;  // "rlxform" as bytes in memory

struct Header {
  std::uint64_t magic = rlx::magic;
  std::uint64_t version = format_version;
  std::uint64_t count = 0;
  std::uint64_t checksum = 0;
};

struct Record {
  double ns = 0, weight_bytes = 0;
  std::int64_t kernel_launches = 0, sync_points = 0, host_output_bytes = 0,
               device_traffic_bytes = 0, arena_bytes = 0;
};
static_assert(sizeof(Header) == 32 && sizeof(Record) == 56, "files hold these as they are");

Record record_of(const PlannedForm& form) {
  return {form.ns,
          form.weight_bytes,
          form.io.kernel_launches,
          form.io.sync_points,
          form.io.host_output_bytes,
          form.io.device_traffic_bytes,
          form.arena_bytes};
}

PlannedForm form_of(const Record& record) {
  return {{record.ns,
           {record.kernel_launches, record.sync_points, record.host_output_bytes,
            record.device_traffic_bytes},
           record.arena_bytes},
          record.weight_bytes};
}

bool can_be_true(const Record& record) {
  return std::isfinite(record.ns) && record.ns >= 0 && std::isfinite(record.weight_bytes) &&
         record.weight_bytes >= 0 && record.arena_bytes >= 0;
}

std::string name_of(std::span<const Digest> keys) {
  Hasher hasher;
  hasher.add_field("rlx forms").add_field(format_version);
  for (const Digest& key : keys) hasher.add(std::as_bytes(std::span(key.bytes)));
  return hasher.finish().hex() + ".forms";
}

}  // namespace

FormCache FormCache::open_for_user() { return FormCache(CacheFolder::open_for_user("forms")); }

FormCache::FormCache(Result<CacheFolder> folder, std::uint64_t bytes_limit)
    : folder_(std::move(folder)), bytes_limit_(bytes_limit) {}

std::optional<std::vector<PlannedForm>> FormCache::load(std::span<const Digest> keys) const {
  if (!folder_.ok() || keys.empty()) return std::nullopt;
  const std::string name = name_of(keys);
  const std::uint64_t size = sizeof(Header) + keys.size() * sizeof(Record);
  const auto file = folder_->read(name, size);
  if (!file || file->size() != size) return std::nullopt;
  Header header;
  std::memcpy(&header, file->data(), sizeof(header));
  const auto content = std::span(*file).subspan(sizeof(header));
  if (header.magic != magic || header.version != format_version || header.count != keys.size() ||
      header.checksum != quick_hash(content))
    return std::nullopt;
  std::vector<Record> records(keys.size());
  std::memcpy(records.data(), content.data(), content.size());
  if (!std::ranges::all_of(records, can_be_true)) return std::nullopt;
  folder_->touch(name);
  std::vector<PlannedForm> forms;
  for (const Record& record : records) forms.push_back(form_of(record));
  return forms;
}

void FormCache::store(std::span<const Digest> keys, std::span<const PlannedForm> forms) const {
  if (!folder_.ok() || keys.empty()) return;
  RLX_CHECK(keys.size() == forms.size());
  std::vector<Record> records;
  for (const PlannedForm& form : forms) records.push_back(record_of(form));
  const auto content = std::as_bytes(std::span(records));
  const Header header{.count = records.size(), .checksum = quick_hash(content)};
  std::vector<std::byte> file(sizeof(header) + content.size());
  std::memcpy(file.data(), &header, sizeof(header));
  std::memcpy(file.data() + sizeof(header), content.data(), content.size());
  // A cache that cannot be written is no reason to fail: the forms are planned already.
  (void)folder_->write(name_of(keys), file);
  folder_->trim(bytes_limit_);
}

}  // namespace rlx
