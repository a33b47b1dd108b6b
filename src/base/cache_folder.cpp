// Trust in a folder, and files that are replaced in one step.
#include "base/cache_folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>

#include "base/error.hpp"

namespace rlx {
namespace {

constexpr std::string_view temporary_prefix = ".new-";
constexpr std::time_t temporary_seconds = 3600;
constexpr std::time_t touch_seconds = 3600;

bool others_can_write(const struct stat& status) {
  return (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

/// Nobody but root and the user may be able to put another folder in this one's place.
Status check_parent(const std::string& path) {
  struct stat status;
  if (lstat(path.c_str(), &status) != 0) {
    return not_available("The cache folder is off: {} cannot be read ({}).", path,
                         std::strerror(errno));
  }
  if (status.st_uid != 0 && status.st_uid != geteuid()) {
    return not_available("The cache folder is off: {} belongs to another user ({}).", path,
                         status.st_uid);
  }
  if (others_can_write(status) && (status.st_mode & S_ISVTX) == 0) {
    return not_available("The cache folder is off: others can write {} (mode {:o}).", path,
                         status.st_mode & 07777);
  }
  return {};
}

Status check_own(const struct stat& status, const std::string& path) {
  if (status.st_uid != geteuid()) {
    return not_available("The cache folder is off: {} belongs to another user ({}).", path,
                         status.st_uid);
  }
  if (others_can_write(status)) {
    return not_available("The cache folder is off: others can write {} (mode {:o}).", path,
                         status.st_mode & 07777);
  }
  return {};
}

/// Makes the folder and those above it that are missing.
Status make_folders(const std::string& path) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST && errno != EISDIR &&
        access(part.c_str(), F_OK) != 0) {
      return not_available("The cache folder is off: {} cannot be made ({}).", part,
                           std::strerror(errno));
    }
    if (end == std::string::npos) return {};
  }
}

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == 0 ? nullptr : value;
}

Result<std::string> user_folder() {
  if (const char* folder = variable("RLX_CACHE_DIR")) return std::string(folder);
  // A relative XDG folder is to be ignored, says its specification.
  if (const char* folder = variable("XDG_CACHE_HOME"); folder != nullptr && *folder == '/') {
    return std::string(folder) + "/rlx";
  }
  if (const char* home = variable("HOME"); home != nullptr && *home == '/') {
    return std::string(home) + "/.cache/rlx";
  }
  passwd entry;
  passwd* found = nullptr;
  char buffer[4096];
  if (getpwuid_r(geteuid(), &entry, buffer, sizeof(buffer), &found) == 0 && found != nullptr &&
      found->pw_dir != nullptr && found->pw_dir[0] == '/') {
    return std::string(found->pw_dir) + "/.cache/rlx";
  }
  return not_available("The cache folder is off: there is no home folder and no RLX_CACHE_DIR.");
}

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }

 private:
  int value_;
};

/// The open file, where it is a regular one that nobody but the user can write; else -1.
int open_own(int folder, const std::string& name) {
  const int file = openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  struct stat status;
  if (file < 0) return -1;
  if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) && check_own(status, name).ok())
    return file;
  close(file);
  return -1;
}

bool read_all(int descriptor, std::span<std::byte> bytes, off_t offset) {
  while (!bytes.empty()) {
    const ssize_t count = pread(descriptor, bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += count;
  }
  return true;
}

/// What the C library allocated.
struct Free {
  void operator()(char* memory) const { std::free(memory); }
};
using CString = std::unique_ptr<char, Free>;

struct CloseListing {
  void operator()(DIR* listing) const { closedir(listing); }
};

bool write_all(int descriptor, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return true;
}

/// A name that no other writer has: process, moment, and a place on this thread's stack.
std::string temporary_name() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  const auto place = reinterpret_cast<std::uintptr_t>(&now);
  return fmt::format("{}{:x}-{:x}-{:x}", temporary_prefix, getpid(),
                     static_cast<std::uint64_t>(now.tv_sec) * 1000000000U + now.tv_nsec, place);
}

}  // namespace

Status check_trusted_file(int descriptor, const std::string& path) {
  struct stat status;
  if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode))
    return bad_input("The path ({}) is no file.", path);
  if ((status.st_uid != 0 && status.st_uid != geteuid()) || others_can_write(status))
    return not_available(
        "The file ({}) is not trusted: others than the user can write it (owner {}, mode {:o}).",
        path, status.st_uid, status.st_mode & 07777);
  const CString resolved(realpath(path.c_str(), nullptr));
  if (!resolved)
    return not_available("The file ({}) is not trusted: its folder cannot be resolved ({}).", path,
                         std::strerror(errno));
  const std::string real = resolved.get();
  for (std::size_t end = real.rfind('/'); end != std::string::npos && end > 0;
       end = real.rfind('/', end - 1)) {
    const Status parent = check_parent(real.substr(0, end));
    if (!parent.ok())
      return not_available("The file ({}) is not trusted: others can change its folder ({}).", path,
                           real.substr(0, end));
  }
  return {};
}

Result<CacheFolder> CacheFolder::open(const std::string& path) {
  RLX_TRY(make_folders(path));
  const CString resolved(realpath(path.c_str(), nullptr));
  if (!resolved) {
    return not_available("The cache folder is off: {} cannot be resolved ({}).", path,
                         std::strerror(errno));
  }
  const std::string real = resolved.get();
  for (std::size_t end = real.rfind('/'); end != 0 && end != std::string::npos;
       end = real.rfind('/', end - 1)) {
    RLX_TRY(check_parent(real.substr(0, end)));
  }
  RLX_TRY(check_parent("/"));
  CacheFolder folder(-1, real);
  const int descriptor = ::open(real.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  folder.descriptor_ = descriptor;
  if (descriptor < 0) {
    return not_available("The cache folder is off: {} cannot be opened ({}).", real,
                         std::strerror(errno));
  }
  struct stat status;
  if (fstat(descriptor, &status) != 0) {
    return not_available("The cache folder is off: {} cannot be read ({}).", real,
                         std::strerror(errno));
  }
  RLX_TRY(check_own(status, real));
  return folder;
}

Result<CacheFolder> CacheFolder::open_for_user(std::string_view part) {
  RLX_ASSIGN(std::string path, user_folder());
  if (!part.empty()) {
    path += '/';
    path += part;
  }
  return open(path);
}

CacheFolder::CacheFolder(CacheFolder&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}

CacheFolder& CacheFolder::operator=(CacheFolder&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  return *this;
}

CacheFolder::~CacheFolder() {
  if (descriptor_ >= 0) close(descriptor_);
}

std::optional<std::vector<std::byte>> CacheFolder::read(const std::string& name,
                                                        std::uint64_t bytes_limit) const {
  const Descriptor file(open_own(descriptor_, name));
  struct stat status;
  if (file.get() < 0 || fstat(file.get(), &status) != 0 ||
      static_cast<std::uint64_t>(status.st_size) > bytes_limit) {
    return std::nullopt;
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(status.st_size));
  if (!read_all(file.get(), bytes, 0)) return std::nullopt;
  return bytes;
}

std::optional<std::vector<std::byte>> CacheFolder::read_part(const std::string& name,
                                                             std::uint64_t offset,
                                                             std::uint64_t bytes) const {
  const Descriptor file(open_own(descriptor_, name));
  struct stat status;
  if (file.get() < 0 || fstat(file.get(), &status) != 0) return std::nullopt;
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (offset > size || bytes > size - offset) return std::nullopt;
  std::vector<std::byte> part(static_cast<std::size_t>(bytes));
  if (!read_all(file.get(), part, static_cast<off_t>(offset))) return std::nullopt;
  return part;
}

std::vector<std::string> CacheFolder::names(std::size_t limit) const {
  std::vector<std::string> names;
  const int copy = openat(descriptor_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return names;
  DIR* listing = fdopendir(copy);
  if (listing == nullptr) {
    close(copy);
    return names;
  }
  while (const dirent* entry = names.size() < limit ? readdir(listing) : nullptr) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  closedir(listing);
  return names;
}

Status CacheFolder::write(const std::string& name, std::span<const std::byte> bytes) const {
  const std::string temporary = temporary_name();
  {
    const Descriptor file(openat(descriptor_, temporary.c_str(),
                                 O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (file.get() < 0) {
      return not_available("The cache file {} cannot be written ({}).", name, std::strerror(errno));
    }
    if (!write_all(file.get(), bytes)) {
      const int reason = errno;
      unlinkat(descriptor_, temporary.c_str(), 0);
      return not_available("The cache file {} cannot be written ({}).", name,
                           std::strerror(reason));
    }
  }
  if (renameat(descriptor_, temporary.c_str(), descriptor_, name.c_str()) != 0) {
    const int reason = errno;
    unlinkat(descriptor_, temporary.c_str(), 0);
    return not_available("The cache file {} cannot be replaced ({}).", name, std::strerror(reason));
  }
  return {};
}

Result<int> CacheFolder::open_unnamed(std::uint64_t bytes) const {
  const std::string temporary = temporary_name();
  const int file = openat(descriptor_, temporary.c_str(),
                          O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  int reason = errno;
  if (file >= 0) {
    unlinkat(descriptor_, temporary.c_str(), 0);
    // Room is taken now: a mapping of a full disk would end the process later.
    reason = posix_fallocate(file, 0, static_cast<off_t>(bytes));
    if (reason == 0) return file;
    close(file);
  }
  return not_available("The cache folder {} cannot hold a file of ({}) bytes ({}).", path_, bytes,
                       std::strerror(reason));
}

void CacheFolder::touch(const std::string& name) const {
  struct stat status;
  if (fstatat(descriptor_, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return;
  if (std::time(nullptr) - status.st_mtime < touch_seconds) return;
  utimensat(descriptor_, name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

void CacheFolder::trim(std::uint64_t bytes_limit) const {
  struct File {
    std::string name;
    std::uint64_t bytes;
    timespec used;
  };
  const int copy = openat(descriptor_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return;
  const std::unique_ptr<DIR, CloseListing> listing(fdopendir(copy));
  if (!listing) {
    close(copy);
    return;
  }
  std::vector<File> files;
  std::uint64_t total = 0;
  const std::time_t now = std::time(nullptr);
  while (const dirent* entry = readdir(listing.get())) {
    struct stat status;
    if (fstatat(descriptor_, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(status.st_mode)) continue;
    if (std::string_view(entry->d_name).starts_with(temporary_prefix)) {
      // Left behind by a process that died; a living writer needs no hour.
      if (now - status.st_mtime > temporary_seconds) unlinkat(descriptor_, entry->d_name, 0);
      continue;
    }
    files.push_back({entry->d_name, static_cast<std::uint64_t>(status.st_size), status.st_mtim});
    total += files.back().bytes;
  }
  if (total <= bytes_limit) return;
  std::ranges::sort(files, [](const File& a, const File& b) {
    return a.used.tv_sec != b.used.tv_sec ? a.used.tv_sec < b.used.tv_sec
                                          : a.used.tv_nsec < b.used.tv_nsec;
  });
  for (const File& file : files) {
    if (total <= bytes_limit) return;
    if (unlinkat(descriptor_, file.name.c_str(), 0) == 0) total -= file.bytes;
  }
}

}  // namespace rlx
