// Files of machine code, one for each program. A file is: magic, count, a table of entries, a
// checksum of all that, then the entries' bytes.
#include "codegen/code_cache.hpp"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/error.hpp"

namespace rlx::codegen {
namespace {

/// Changes with the layout of files and with the meaning of KernelCode.
constexpr std::uint64_t format_version = 1;
constexpr std::uint64_t magic = 0x65646f63'786c72;  // "rlxcode" as bytes in memory
constexpr std::uint64_t file_bytes_limit = std::uint64_t{256} << 20;
constexpr std::string_view program_extension = ".program";
/// Files of other programs that are looked into, at some 20 us each.
constexpr std::size_t shared_files_limit = 1000;

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

/// How many bytes of table follow the header; nothing where it is none of ours.
std::optional<std::uint64_t> table_bytes(std::span<const std::byte> file, Header& header) {
  if (file.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, file.data(), sizeof(header));
  if (header.magic != magic || header.version != format_version ||
      header.count > file_bytes_limit / sizeof(Entry)) {
    return std::nullopt;
  }
  return header.count * sizeof(Entry);
}

/// The entries of a table; empty where it is damaged.
std::vector<Entry> read_table(std::span<const std::byte> table, const Header& header) {
  std::vector<Entry> entries;
  if (header.table_checksum != table_checksum(table, header.count)) return entries;
  entries.resize(header.count);
  if (!entries.empty()) std::memcpy(entries.data(), table.data(), table.size());
  return entries;
}

/// All sound entries of a file.
Codes read_file(std::span<const std::byte> file) {
  Header header;
  const auto bytes = table_bytes(file, header);
  if (!bytes || *bytes > file.size() - sizeof(header)) return {};
  Codes codes;
  for (const Entry& entry : read_table(file.subspan(sizeof(header), *bytes), header)) {
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

std::string program_name(std::span<const Digest> keys) {
  Hasher hasher;
  hasher.add_field("rlx program");
  for (const Digest& key : keys) hasher.add(std::as_bytes(std::span(key.bytes)));
  return hasher.finish().hex() + std::string(program_extension);
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
  if (const auto file = folder_->read(program, file_bytes_limit)) {
    Codes together = read_file(*file);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (const auto it = together.find(keys[i]); it != together.end()) found.codes[i] = it->second;
    }
    folder_->touch(program);
  }
  found.as_program = std::ranges::all_of(found.codes, &std::optional<KernelCode>::has_value);
  if (!found.as_program) share(keys, found, program);
  return found;
}

/// Looks for what is missing in the files of other programs: only their tables are read.
void CodeCache::share(std::span<const Digest> keys, Found& found, const std::string& known) const {
  std::unordered_map<Digest, std::vector<std::size_t>, DigestHash> missing;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (!found.codes[i]) missing[keys[i]].push_back(i);
  }
  for (const std::string& name : folder_->names(shared_files_limit)) {
    if (missing.empty()) return;
    if (name == known || !name.ends_with(program_extension)) continue;
    const auto begin = folder_->read_part(name, 0, sizeof(Header));
    Header header;
    const auto bytes = begin ? table_bytes(*begin, header) : std::nullopt;
    const auto table = bytes ? folder_->read_part(name, sizeof(Header), *bytes) : std::nullopt;
    if (!table) continue;
    for (const Entry& entry : read_table(*table, header)) {
      const auto it = missing.find(entry.key);
      if (it == missing.end() || entry.symbol_bytes > file_bytes_limit ||
          entry.object_bytes > file_bytes_limit)
        continue;
      const auto part =
          folder_->read_part(name, entry.offset, entry.symbol_bytes + entry.object_bytes);
      Entry moved = entry;
      moved.offset = 0;
      KernelCode code;
      if (!part || !read_entry(*part, moved, code)) continue;
      for (const std::size_t i : it->second) found.codes[i] = code;
      missing.erase(it);
      folder_->touch(name);
    }
  }
}

void CodeCache::store(std::span<const Digest> keys, std::span<const KernelCode> codes) const {
  if (!enabled() || keys.empty()) return;
  RLX_CHECK(keys.size() == codes.size());
  // A cache that cannot be written is no reason to fail: the code is there already.
  (void)folder_->write(program_name(keys), make_file(keys, codes));
  folder_->trim(bytes_limit_);
}

}  // namespace rlx::codegen
