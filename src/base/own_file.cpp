// Asks the dynamic linker.
#include "base/own_file.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

namespace rlx {
namespace {

const void* own_code() { return reinterpret_cast<const void*>(&own_file); }

/// The bytes behind the header of a build id among the notes of a segment; empty: there is none.
std::string_view build_id_in(std::string_view notes) {
  const auto padded = [](std::size_t bytes) { return (bytes + 3) & ~std::size_t{3}; };
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes.data(), sizeof(header));
    notes.remove_prefix(sizeof(header));
    const std::size_t name = padded(header.n_namesz), content = padded(header.n_descsz);
    if (name > notes.size() || content > notes.size() - name) return {};
    if (header.n_type == NT_GNU_BUILD_ID && notes.starts_with("GNU"))
      return notes.substr(name, header.n_descsz);
    notes.remove_prefix(name + content);
  }
  return {};
}

/// Called for each loaded file, until it returns other than 0: that of own_code().
int find_build_id(dl_phdr_info* file, std::size_t, void* found) {
  bool is_own = false;
  std::string_view id;
  for (int i = 0; i < file->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = file->dlpi_phdr[i];
    const std::uintptr_t begin = file->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD)
      is_own |= reinterpret_cast<std::uintptr_t>(own_code()) - begin < segment.p_memsz;
    if (segment.p_type == PT_NOTE && id.empty())
      id = build_id_in({reinterpret_cast<const char*>(begin), segment.p_memsz});
  }
  if (!is_own) return 0;
  for (const char byte : id)
    *static_cast<std::string*>(found) += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return 1;
}

std::string find_own_identity() {
  const std::string file = identity_of_file(own_file());
  std::string build_id;
  dl_iterate_phdr(find_build_id, &build_id);
  if (file.empty() && build_id.empty()) return {};
  return fmt::format("rlx {}, {}, build {}", RLX_VERSION, file, build_id);
}

}  // namespace

std::string own_file() {
  Dl_info info;
  if (dladdr(own_code(), &info) == 0 || info.dli_fname == nullptr) return {};
  // An executable is named as it was called; its real path is known to the system.
  char* resolved = realpath(info.dli_fname, nullptr);
  if (resolved == nullptr) resolved = realpath("/proc/self/exe", nullptr);
  const std::unique_ptr<char, void (*)(void*)> owner(resolved, std::free);
  return resolved == nullptr ? std::string() : std::string(resolved);
}

std::string identity_of_file(const std::string& path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  return fmt::format("{} bytes, changed {}.{:09}", status.st_size, status.st_mtim.tv_sec,
                     status.st_mtim.tv_nsec);
}

const std::string& own_identity() {
  static const std::string identity = find_own_identity();
  return identity;
}

}  // namespace rlx
