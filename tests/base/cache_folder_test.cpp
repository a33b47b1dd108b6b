// Which folders are trusted, and that files change in one step.
#include "base/cache_folder.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "base/temporary_folder.hpp"

namespace rlx {
namespace {

using testing::ScopedVariable;
using testing::TemporaryFolder;

std::vector<std::byte> filled(std::size_t count, int value) {
  return std::vector<std::byte>(count, static_cast<std::byte>(value));
}

TEST(CacheFolder, keeps_files) {
  TemporaryFolder temporary;
  auto folder = CacheFolder::open(temporary.path("a/b"));
  ASSERT_TRUE(folder.ok()) << folder.error().message;
  EXPECT_FALSE(folder->read("x", 100).has_value());
  ASSERT_TRUE(folder->write("x", filled(10, 7)).ok());
  EXPECT_EQ(folder->read("x", 100), filled(10, 7));
  ASSERT_TRUE(folder->write("x", filled(3, 8)).ok());
  EXPECT_EQ(folder->read("x", 100), filled(3, 8));
  EXPECT_FALSE(folder->read("x", 2).has_value());
  struct stat status;
  ASSERT_EQ(stat(temporary.path("a/b").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700U);
}

TEST(CacheFolder, a_folder_that_others_can_write_is_not_trusted) {
  TemporaryFolder temporary;
  ASSERT_EQ(mkdir(temporary.path("open").c_str(), 0700), 0);
  for (const mode_t mode : {0777, 0770, 0702, 01777}) {
    ASSERT_EQ(chmod(temporary.path("open").c_str(), mode), 0);
    auto folder = CacheFolder::open(temporary.path("open"));
    ASSERT_FALSE(folder.ok());
    EXPECT_EQ(folder.error().kind, ErrorKind::not_available);
    EXPECT_NE(folder.error().message.find("others can write"), std::string::npos);
  }
}

TEST(CacheFolder, a_folder_below_one_that_others_can_write_is_not_trusted) {
  TemporaryFolder temporary;
  ASSERT_EQ(mkdir(temporary.path("open").c_str(), 0700), 0);
  ASSERT_EQ(mkdir(temporary.path("open/mine").c_str(), 0700), 0);
  ASSERT_EQ(chmod(temporary.path("open").c_str(), 0777), 0);
  EXPECT_FALSE(CacheFolder::open(temporary.path("open/mine")).ok());
  ASSERT_EQ(symlink(temporary.path("open/mine").c_str(), temporary.path("link").c_str()), 0);
  EXPECT_FALSE(CacheFolder::open(temporary.path("link")).ok());
  // With the sticky bit nobody else can rename what is mine.
  ASSERT_EQ(chmod(temporary.path("open").c_str(), 01777), 0);
  EXPECT_TRUE(CacheFolder::open(temporary.path("open/mine")).ok());
}

TEST(CacheFolder, a_folder_of_another_user_is_not_trusted) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give folders away";
  TemporaryFolder temporary;
  ASSERT_EQ(mkdir(temporary.path("theirs").c_str(), 0755), 0);
  ASSERT_EQ(chown(temporary.path("theirs").c_str(), 12345, 12345), 0);
  auto folder = CacheFolder::open(temporary.path("theirs"));
  ASSERT_FALSE(folder.ok());
  EXPECT_NE(folder.error().message.find("belongs to another user (12345)"), std::string::npos);
  EXPECT_FALSE(CacheFolder::open(temporary.path("theirs/below")).ok());
}

TEST(CacheFolder, what_is_no_folder_is_refused) {
  TemporaryFolder temporary;
  std::ofstream(temporary.path("file")) << "x";
  EXPECT_FALSE(CacheFolder::open(temporary.path("file")).ok());
  EXPECT_FALSE(CacheFolder::open(temporary.path("file/below")).ok());
  EXPECT_FALSE(CacheFolder::open("/dev/null").ok());
  EXPECT_FALSE(CacheFolder::open("").ok());
}

TEST(CacheFolder, files_that_are_not_the_users_alone_are_absent) {
  TemporaryFolder temporary;
  auto folder = CacheFolder::open(temporary.path("cache"));
  ASSERT_TRUE(folder.ok());
  ASSERT_TRUE(folder->write("x", filled(10, 7)).ok());
  ASSERT_EQ(chmod(temporary.path("cache/x").c_str(), 0666), 0);
  EXPECT_FALSE(folder->read("x", 100).has_value());
  ASSERT_EQ(symlink(temporary.path("cache/x").c_str(), temporary.path("cache/l").c_str()), 0);
  EXPECT_FALSE(folder->read("l", 100).has_value());
  ASSERT_EQ(mkfifo(temporary.path("cache/p").c_str(), 0600), 0);
  EXPECT_FALSE(folder->read("p", 100).has_value());
}

TEST(CacheFolder, environment_chooses_the_folder) {
  TemporaryFolder temporary;
  const std::string a = temporary.path("a"), b = temporary.path("b"), c = temporary.path("c");
  const ScopedVariable home("HOME", c.c_str());
  {
    const ScopedVariable own("RLX_CACHE_DIR", a.c_str()), xdg("XDG_CACHE_HOME", b.c_str());
    EXPECT_EQ(CacheFolder::open_for_user().value().path(), a);
    EXPECT_EQ(CacheFolder::open_for_user("code").value().path(), a + "/code");
  }
  const ScopedVariable own("RLX_CACHE_DIR", nullptr);
  {
    const ScopedVariable xdg("XDG_CACHE_HOME", b.c_str());
    EXPECT_EQ(CacheFolder::open_for_user().value().path(), b + "/rlx");
  }
  const ScopedVariable xdg("XDG_CACHE_HOME", nullptr);
  EXPECT_EQ(CacheFolder::open_for_user().value().path(), c + "/.cache/rlx");
}

TEST(CacheFolder, trim_removes_what_was_not_used_for_the_longest_time) {
  TemporaryFolder temporary;
  auto folder = CacheFolder::open(temporary.path());
  ASSERT_TRUE(folder.ok());
  for (int i = 0; i < 5; ++i) {
    const std::string name = "file" + std::to_string(i);
    ASSERT_TRUE(folder->write(name, filled(100, i)).ok());
    const timespec times[2] = {{0, 0}, {1'000'000 + (i == 0 ? 10 : i), 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, temporary.path(name).c_str(), times, 0), 0);
  }
  folder->touch("file1");
  folder->trim(500);
  EXPECT_TRUE(folder->read("file2", 1000).has_value());
  folder->trim(250);
  EXPECT_TRUE(folder->read("file0", 1000).has_value());
  EXPECT_TRUE(folder->read("file1", 1000).has_value());
  for (const char* name : {"file2", "file3", "file4"}) {
    EXPECT_FALSE(folder->read(name, 1000).has_value()) << name;
  }
}

TEST(CacheFolder, readers_never_see_half_a_file) {
  TemporaryFolder temporary;
  auto folder = CacheFolder::open(temporary.path());
  ASSERT_TRUE(folder.ok());
  ASSERT_TRUE(folder->write("x", filled(1, 1)).ok());
  std::atomic<bool> done = false;
  std::vector<std::thread> writers;
  for (int w = 1; w <= 3; ++w) {
    writers.emplace_back([&, w] {
      for (int i = 0; i < 200; ++i) (void)folder->write("x", filled(5000 * w, w));
    });
  }
  std::thread reader([&] {
    while (!done) {
      const auto bytes = folder->read("x", 1 << 20);
      ASSERT_TRUE(bytes.has_value());
      const int value = std::to_integer<int>(bytes->front());
      ASSERT_TRUE(bytes->size() == 1 || *bytes == filled(5000 * value, value));
    }
  });
  for (std::thread& writer : writers) writer.join();
  done = true;
  reader.join();
}

}  // namespace
}  // namespace rlx
