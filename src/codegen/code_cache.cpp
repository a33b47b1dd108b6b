// Files of machine code. A file is: magic, count, a table of entries, a checksum of all that, then
// the entries' bytes.
#include "codegen/code_cache.hpp"

#include <cstring>
#include <unordered_map>

#include "base/error.hpp"

namespace rlx::codegen {
namespace {

/// Changes with the layout of files and with the meaning of KernelCode.
constexpr std::uint64_t format_version = 1;
constexpr std::uint64_t magic = 0x65646f63'786c72;  // "rlxcode" as bytes in memory
constexpr std::uint64_t file_bytes_limit = std::uint64_t{256} << 20;

struct Header {
  std::uint64_t magic = codegen::magic;
  std::uint64_t version = format_version;
  std::uint64_t count = 0;
  std::uint64_t table_checksum = 0;
};

struct Entry {
  Digest key;
  std::uint64_t offset = 0;  ///< of the symbol, which the object follows
  std::uint64_t symbol_bytes = 0;
  std::uint64_t object_bytes = 0;
  std::uint64_t checksum = 0;  ///< of both
  std::int64_t work_items = 0;
  std::int64_t scratch_bytes = 0;
};
static_assert(sizeof(Entry) == 80 && sizeof(Header) == 32, "files hold these as they are");

using Codes = std::unordered_map<Digest, KernelCode, DigestHash>;

std::uint64_t table_checksum(std::span<const std::byte> table, std::uint64_t count) {
  return quick_hash(table, format_version + count);
}

/// A part of the file under an entry's checks; false where the file is damaged.
bool read_entry(std::span<const std::byte> file, const Entry& entry, KernelCode& code) {
  if (entry.offset > file.size() || entry.symbol_bytes > file.size() - entry.offset ||
      entry.object_bytes > file.size() - entry.offset - entry.symbol_bytes ||
      entry.work_items < 0 || entry.scratch_bytes < 0) {
    return false;
  }
  const auto bytes = file.subspan(entry.offset, entry.symbol_bytes + entry.object_bytes);
  if (quick_hash(bytes) != entry.checksum) return false;
  code.symbol.assign(reinterpret_cast<const char*>(bytes.data()), entry.symbol_bytes);
  const auto object = bytes.subspan(entry.symbol_bytes);
  code.object.assign(object.begin(), object.end());
  code.work_items = entry.work_items;
  code.scratch_bytes = entry.scratch_bytes;
  return true;
}

/// All sound entries of a file.
Codes read_file(std::span<const std::byte> file) {
  Header header;
  if (file.size() < sizeof(header)) return {};
  std::memcpy(&header, file.data(), sizeof(header));
  if (header.magic != magic || header.version != format_version ||
      header.count > (file.size() - sizeof(header)) / sizeof(Entry)) {
    return {};
  }
  const auto table = file.subspan(sizeof(header), header.count * sizeof(Entry));
  if (header.table_checksum != table_checksum(table, header.count)) return {};
  Codes codes;
  for (std::size_t i = 0; i < header.count; ++i) {
    Entry entry;
    std::memcpy(&entry, table.data() + i * sizeof(entry), sizeof(entry));
    KernelCode code;
    if (read_entry(file, entry, code)) codes.insert_or_assign(entry.key, std::move(code));
  }
  return codes;
}

std::vector<std::byte> make_file(std::span<const Digest> keys, std::span<const KernelCode> codes) {
  std::vector<Entry> table(keys.size());
  std::size_t offset = sizeof(Header) + table.size() * sizeof(Entry);
  std::size_t size = offset;
  for (const KernelCode& code : codes) size += code.symbol.size() + code.object.size();
  std::vector<std::byte> file(size);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const KernelCode& code = codes[i];
    const std::size_t bytes = code.symbol.size() + code.object.size();
    std::memcpy(file.data() + offset, code.symbol.data(), code.symbol.size());
    std::memcpy(file.data() + offset + code.symbol.size(), code.object.data(), code.object.size());
    table[i] = {.key = keys[i],
                .offset = offset,
                .symbol_bytes = code.symbol.size(),
                .object_bytes = code.object.size(),
                .checksum = quick_hash(std::span(file).subspan(offset, bytes)),
                .work_items = code.work_items,
                .scratch_bytes = code.scratch_bytes};
    offset += bytes;
  }
  const auto table_bytes = std::as_bytes(std::span(table));
  const Header header{.count = table.size(),
                      .table_checksum = table_checksum(table_bytes, table.size())};
  std::memcpy(file.data(), &header, sizeof(header));
  if (!table.empty()) std::memcpy(file.data() + sizeof(header), table.data(), table_bytes.size());
  return file;
}

std::string single_name(const Digest& key) { return key.hex() + ".kernel"; }

std::string program_name(std::span<const Digest> keys) {
  Hasher hasher;
  hasher.add_field("rlx program");
  for (const Digest& key : keys) hasher.add(std::as_bytes(std::span(key.bytes)));
  return hasher.finish().hex() + ".program";
}

}  // namespace

Digest code_key(std::string_view kernel_text, const Target& target, std::string_view generator) {
  Hasher hasher;
  hasher.add_field("rlx kernel").add_field(format_version).add_field(generator);
  hasher.add_field(static_cast<std::uint64_t>(target.isa));
  hasher.add_field(target.cpu).add_field(target.features).add_field(kernel_text);
  return hasher.finish();
}

CodeCache CodeCache::open_for_user() { return CodeCache(CacheFolder::open_for_user("code")); }

CodeCache::CodeCache(Result<CacheFolder> folder, std::uint64_t bytes_limit)
    : folder_(std::move(folder)), bytes_limit_(bytes_limit) {}

CodeCache::Found CodeCache::load(std::span<const Digest> keys) const {
  Found found;
  found.codes.resize(keys.size());
  if (!enabled() || keys.empty()) return found;
  const std::string program = program_name(keys);
  Codes together;
  if (const auto file = folder_->read(program, file_bytes_limit)) {
    together = read_file(*file);
    folder_->touch(program);
  }
  found.as_program = true;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (const auto it = together.find(keys[i]); it != together.end()) {
      found.codes[i] = it->second;
      continue;
    }
    found.as_program = false;
    const std::string name = single_name(keys[i]);
    const auto file = folder_->read(name, file_bytes_limit);
    if (!file) continue;
    Codes one = read_file(*file);
    if (const auto it = one.find(keys[i]); it != one.end()) {
      found.codes[i] = std::move(it->second);
      folder_->touch(name);
    }
  }
  return found;
}

void CodeCache::store(std::span<const Digest> keys, std::span<const KernelCode> codes,
                      const std::vector<bool>& is_new) const {
  if (!enabled() || keys.empty()) return;
  RLX_CHECK(keys.size() == codes.size() && keys.size() == is_new.size());
  // A cache that cannot be written is no reason to fail: the code is there already.
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (!is_new[i]) continue;
    (void)folder_->write(single_name(keys[i]), make_file(keys.subspan(i, 1), codes.subspan(i, 1)));
  }
  if (keys.size() > 1) (void)folder_->write(program_name(keys), make_file(keys, codes));
  folder_->trim(bytes_limit_);
}

}  // namespace rlx::codegen
