// Programs in files: a header, a checksummed head (graph, code, a table of weights), then the
// weights as kernels read them, which are mapped.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>

#include "base/cache_folder.hpp"
#include "base/error.hpp"
#include "base/error_in_flight.hpp"
#include "base/hash.hpp"
#include "rlx/mapped.hpp"
#include "runtime/compiled_graph.hpp"

namespace rlx {
namespace {

constexpr std::uint64_t magic = 0x0a6465766173786c;  // "lxsaved\n" as bytes in memory
constexpr std::uint64_t format_version = 4;
constexpr std::uint64_t page_bytes = 4096;
/// Weights are checked in pieces of this size, at the same time.
constexpr std::uint64_t piece_bytes = std::uint64_t{4} << 20;

struct Header {
  std::uint64_t magic = 0, version = 0, file_bytes = 0, head_bytes = 0, head_checksum = 0;
};

constexpr std::uint64_t rounded(std::uint64_t bytes) {
  return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

class Writer {
 public:
  void number(std::uint64_t value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof(value));
  }
  void blob(std::span<const std::byte> blob) {
    number(blob.size());
    bytes_.insert(bytes_.end(), blob.begin(), blob.end());
  }
  void text(std::string_view text) { blob(std::as_bytes(std::span(text))); }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

/// Reads what a Writer wrote; after the end there are zeros and empty blobs, and good() is false.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::uint64_t number() {
    std::uint64_t value = 0;
    if (!good_ || bytes_.size() < sizeof(value)) return good_ = false, 0;
    std::memcpy(&value, bytes_.data(), sizeof(value));
    bytes_ = bytes_.subspan(sizeof(value));
    return value;
  }
  std::span<const std::byte> blob() {
    const std::uint64_t size = number();
    if (!good_ || size > bytes_.size()) return good_ = false, std::span<const std::byte>();
    const auto blob = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return blob;
  }
  std::string text() {
    const auto bytes = blob();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  bool good() const { return good_; }

 private:
  std::span<const std::byte> bytes_;
  bool good_ = true;
};

struct WeightEntry {
  std::uint64_t offset = 0, size = 0;  ///< from the begin of the weights; size 0: none
  std::vector<std::uint64_t> checksums;
};

std::vector<std::uint64_t> checksums_of(std::span<const std::byte> bytes) {
  std::vector<std::uint64_t> sums;
  for (std::uint64_t at = 0; at < bytes.size(); at += piece_bytes)
    sums.push_back(quick_hash(bytes.subspan(at, std::min(piece_bytes, bytes.size() - at))));
  return sums;
}

/// Equal weights are written once.
std::vector<WeightEntry> lay_out(const std::vector<SavedParts::Weight>& weights) {
  std::vector<WeightEntry> entries;
  std::map<const std::byte*, std::size_t> known;
  std::uint64_t next = 0;
  for (const SavedParts::Weight& weight : weights) {
    WeightEntry entry;
    if (weight.bytes) {
      const auto [it, is_new] = known.try_emplace(weight.bytes.get(), entries.size());
      entry.size = static_cast<std::uint64_t>(weight.size);
      if (is_new) {
        entry.offset = next;
        entry.checksums = checksums_of({weight.bytes.get(), entry.size});
        next += (entry.size + 63) / 64 * 64;
      } else {
        entry.offset = entries[it->second].offset;
        entry.checksums = entries[it->second].checksums;
      }
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::vector<std::byte> make_head(const CompiledGraph::Impl& impl, const SavedParts& parts,
                                 const std::vector<WeightEntry>& entries) {
  Writer head;
  head.text(parts.identity);
  head.text(print(*impl.bound->hir_graph));
  const CompileOptions& options = impl.options;
  const int threads = options.threads > 0 ? options.threads : impl.backend->lanes();
  head.number(static_cast<std::uint64_t>(options.precision));
  head.number(options.exact ? 1 : 0);
  head.number(options.flush_subnormals ? 1 : 0);
  head.number(static_cast<std::uint64_t>(threads));
  head.number(options.disable_fusion ? 1 : 0);
  head.number(impl.options.answers.size());
  for (const auto& [question, answer] : impl.options.answers) {
    head.text(question);
    head.number(answer ? 1 : 0);
  }
  head.number(impl.options.feeds.size());
  for (const CompileOptions::Feed& feed : impl.options.feeds) {
    head.text(feed.output);
    head.text(feed.input);
  }
  head.number(parts.codes.size());
  for (const codegen::KernelCode& code : parts.codes) {
    head.text(code.symbol);
    head.number(static_cast<std::uint64_t>(code.work_items));
    head.number(static_cast<std::uint64_t>(code.scratch_bytes));
    head.blob(code.object);
  }
  head.number(entries.size());
  for (const WeightEntry& entry : entries) {
    head.number(entry.offset);
    head.number(entry.size);
    for (const std::uint64_t checksum : entry.checksums) head.number(checksum);
  }
  return head.bytes();
}

Status write_parts(std::FILE* stream, const std::vector<std::byte>& head,
                   const std::vector<SavedParts::Weight>& weights,
                   const std::vector<WeightEntry>& entries) {
  const std::uint64_t begin = rounded(sizeof(Header) + head.size());
  std::uint64_t end = begin;
  for (const WeightEntry& entry : entries) end = std::max(end, begin + entry.offset + entry.size);
  const Header header{magic, format_version, end, head.size(), quick_hash(head)};
  bool good = std::fwrite(&header, sizeof(header), 1, stream) == 1 &&
              std::fwrite(head.data(), 1, head.size(), stream) == head.size();
  for (std::size_t i = 0; good && i < entries.size(); ++i) {
    if (entries[i].size == 0) continue;
    good = std::fseek(stream, static_cast<long>(begin + entries[i].offset), SEEK_SET) == 0 &&
           std::fwrite(weights[i].bytes.get(), 1, entries[i].size, stream) == entries[i].size;
  }
  good =
      good && std::fflush(stream) == 0 && ftruncate(fileno(stream), static_cast<off_t>(end)) == 0;
  if (!good) return bad_input("The file cannot be written: {}.", std::strerror(errno));
  return {};
}

/// A new file, whole on the disk or an error.
Status write_file(const std::string& file, const std::vector<std::byte>& head,
                  const std::vector<SavedParts::Weight>& weights,
                  const std::vector<WeightEntry>& entries) {
  const int descriptor =
      open(file.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (descriptor < 0) return bad_input("The file cannot be written: {}.", std::strerror(errno));
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(fdopen(descriptor, "wb"), std::fclose);
  if (!stream) {
    const int reason = errno;
    close(descriptor);
    return bad_input("The file cannot be written: {}.", std::strerror(reason));
  }
  RLX_TRY(write_parts(stream.get(), head, weights, entries));
  if (std::fclose(stream.release()) != 0)
    return bad_input("The file cannot be written: {}.", std::strerror(errno));
  return {};
}

struct Mapping {
  std::shared_ptr<const std::byte> bytes;
  std::uint64_t size = 0;
  std::span<const std::byte> span() const { return {bytes.get(), size}; }
};

struct Close {
  void operator()(const int* descriptor) const { close(*descriptor); }
};

Result<Mapping> map_trusted(const std::string& file) {
  const int descriptor = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0)
    return bad_input("The file ({}) cannot be opened: {}.", file, std::strerror(errno));
  const std::unique_ptr<const int, Close> closed(&descriptor);
  RLX_TRY(check_trusted_file(descriptor, file));
  struct stat status{};
  (void)fstat(descriptor, &status);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size < sizeof(Header))
    return bad_input("The saved program ({}) is damaged: it is too short.", file);
  void* const address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (address == MAP_FAILED)
    return bad_input("The saved program ({}) cannot be mapped: {}.", file, std::strerror(errno));
  return Mapping{{static_cast<const std::byte*>(address), FileUnmap{size}}, size};
}

Error damaged(const std::string& file) {
  return bad_input("The saved program ({}) is damaged: a checksum or size is wrong.", file);
}

Status check_weights(Backend& backend, std::span<const std::byte> weights,
                     const std::vector<WeightEntry>& entries, const std::string& file) {
  struct Piece {
    std::uint64_t offset, size, checksum;
  };
  std::vector<Piece> pieces;
  std::uint64_t checked = 0;  // twins come behind their first
  for (const WeightEntry& entry : entries) {
    if (entry.size == 0 || entry.offset < checked) continue;
    for (std::size_t k = 0; k < entry.checksums.size(); ++k) {
      const std::uint64_t at = k * piece_bytes;
      pieces.push_back(
          {entry.offset + at, std::min(piece_bytes, entry.size - at), entry.checksums[k]});
    }
    checked = entry.offset + entry.size;
  }
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> good = true;
  backend.run_lanes(backend.lanes(), [&](int) {
    for (std::size_t i = next++; i < pieces.size() && good; i = next++) {
      const Piece& piece = pieces[i];
      if (quick_hash(weights.subspan(piece.offset, piece.size)) != piece.checksum) good = false;
    }
  });
  if (!good) return damaged(file);
  return {};
}

/// What a head tells.
struct Head {
  std::string graph_text;
  CompileOptions options;
  SavedParts parts;
  std::vector<WeightEntry> entries;
};

Result<Head> read_head(std::span<const std::byte> bytes, const std::string& file) {
  Reader reader(bytes);
  Head head;
  head.parts.identity = reader.text();
  head.graph_text = reader.text();
  const std::uint64_t precision = reader.number();
  if (precision > static_cast<std::uint64_t>(Precision::int8)) return damaged(file);
  head.options.precision = static_cast<Precision>(precision);
  head.options.exact = reader.number() != 0;
  head.options.flush_subnormals = reader.number() != 0;
  head.options.threads = static_cast<int>(reader.number() & 0xffff);
  head.options.disable_fusion = reader.number() != 0;
  for (std::uint64_t left = reader.number(); left > 0 && reader.good(); --left) {
    std::string question = reader.text();
    head.options.answers[std::move(question)] = reader.number() != 0;
  }
  for (std::uint64_t left = reader.number(); left > 0 && reader.good(); --left) {
    std::string output = reader.text();
    head.options.feed(std::move(output), reader.text());
  }
  for (std::uint64_t left = reader.number(); left > 0 && reader.good(); --left) {
    codegen::KernelCode code;
    code.symbol = reader.text();
    code.work_items = static_cast<std::int64_t>(reader.number());
    code.scratch_bytes = static_cast<std::int64_t>(reader.number());
    const auto object = reader.blob();
    code.object.assign(object.begin(), object.end());
    head.parts.codes.push_back(std::move(code));
  }
  for (std::uint64_t left = reader.number(); left > 0 && reader.good(); --left) {
    WeightEntry entry{reader.number(), 0, {}};
    entry.size = reader.number();
    for (std::uint64_t at = 0; at < entry.size && reader.good(); at += piece_bytes)
      entry.checksums.push_back(reader.number());
    head.entries.push_back(std::move(entry));
  }
  if (!reader.good()) return damaged(file);
  return head;
}

}  // namespace

bool is_saved_program(const std::string& file) {
  std::FILE* stream = std::fopen(file.c_str(), "rb");
  if (!stream) return false;
  std::uint64_t first = 0;
  const bool read = std::fread(&first, sizeof(first), 1, stream) == 1;
  std::fclose(stream);
  return read && first == magic;
}

Status CompiledGraph::save(const std::string& file) const try {
  RLX_TRY(impl_->need_bound());
  RLX_TRY(impl_->check_idle());
  RLX_ASSIGN(const SavedParts parts, impl_->bound->executable->save());
  const std::vector<WeightEntry> entries = lay_out(parts.weights);
  const std::vector<std::byte> head = make_head(*impl_, parts, entries);
  // Whole under another name first, which no other thread has: readers never see halves.
  const std::string temporary = fmt::format("{}.new-{}", file, gettid());
  Status status;
  try {
    status = write_file(temporary, head, parts.weights, entries);
    if (status.ok() && std::rename(temporary.c_str(), file.c_str()) != 0)
      status = bad_input("The file cannot be replaced: {}.", std::strerror(errno));
  } catch (...) {
    status = error_in_flight();
  }
  if (status.ok()) return {};
  std::remove(temporary.c_str());
  return std::move(status.error()).while_("saving " + file);
} catch (...) {
  return error_in_flight();
}

Result<std::unique_ptr<CompiledGraph::Impl>> CompiledGraph::Impl::load(
    std::shared_ptr<Session::Impl> session, const std::string& file,
    std::optional<DevicePolicy::Missing> missing) {
  RLX_ASSIGN(const Mapping mapping, map_trusted(file));
  Header header;
  std::memcpy(&header, mapping.bytes.get(), sizeof(header));
  if (header.magic != magic) return bad_input("The file ({}) is no saved program.", file);
  if (header.version != format_version)
    return not_available("The saved program ({}) has the format {}; this rlx reads {}.", file,
                         header.version, format_version);
  const auto body = mapping.span().subspan(sizeof(Header));
  if (header.file_bytes != mapping.size || header.head_bytes > body.size()) return damaged(file);
  const auto head_bytes = body.first(header.head_bytes);
  if (quick_hash(head_bytes) != header.head_checksum) return damaged(file);
  RLX_ASSIGN(Head head, read_head(head_bytes, file));
  const std::uint64_t begin = std::min(rounded(sizeof(Header) + header.head_bytes), mapping.size);
  const auto weights = mapping.span().subspan(begin);
  for (const WeightEntry& entry : head.entries) {
    if (entry.offset > weights.size() || entry.size > weights.size() - entry.offset)
      return damaged(file);
  }
  RLX_ASSIGN(Graph hir, parse(head.graph_text));
  RLX_ASSIGN(Session::Impl::Place place, session->place_for(hir, {.missing = missing}));
  RLX_TRY(check_weights(*place.backend, weights, head.entries, file));
  for (const WeightEntry& entry : head.entries) {
    const std::byte* data = entry.size ? weights.data() + entry.offset : nullptr;
    head.parts.weights.push_back({data ? std::shared_ptr<const std::byte>(mapping.bytes, data)
                                       : std::shared_ptr<const std::byte>(),
                                  static_cast<std::int64_t>(entry.size)});
  }
  auto impl = std::make_unique<Impl>();
  impl->session = std::move(session);
  impl->backend = place.backend;
  impl->choice = std::move(place.choice);
  impl->options = head.options;
  impl->inputs = input_infos(hir);
  impl->outputs = output_infos(hir);
  auto bound = compile_static(*impl->backend, hir, head.options, &head.parts);
  if (!bound.ok()) return std::move(bound.error()).while_("loading " + file);
  impl->bound = *std::move(bound);
  impl->graph = impl->bound->hir_graph;
  impl->prepare();
  RLX_TRY(impl->apply_feeds(head.options.feeds));
  return impl;
}

}  // namespace rlx
