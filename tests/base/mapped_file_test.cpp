// Mapped files and the log.
#include "base/mapped_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "base/logging.hpp"
#include "base/temporary_folder.hpp"

namespace rlx {
namespace {

using testing::TemporaryFolder;

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(MappedFile, holds_the_bytes_and_moves) {
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 5000; ++i) text += std::to_string(i);
  std::ofstream(folder.path("x")) << text;
  auto file = MappedFile::open(folder.path("x"));
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(text_of(*file), text);
  const std::byte* address = file->bytes().data();
  MappedFile moved = *std::move(file);
  EXPECT_EQ(moved.bytes().data(), address);
  moved.forget(moved.bytes());
  moved.forget(moved.bytes().subspan(100, 50));
  EXPECT_EQ(text_of(moved), text);
}

TEST(MappedFile, an_empty_file_is_empty) {
  TemporaryFolder folder;
  std::ofstream(folder.path("x")).close();
  EXPECT_TRUE(MappedFile::open(folder.path("x")).value().bytes().empty());
}

TEST(MappedFile, what_is_no_file_is_refused) {
  TemporaryFolder folder;
  auto file = MappedFile::open(folder.path("absent"));
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().message, "The file (" + folder.path("absent") +
                                      ") cannot be opened: No such file or directory.");
  file = MappedFile::open(folder.path());
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().message, "The path (" + folder.path() + ") is no file.");
  ASSERT_EQ(mkfifo(folder.path("pipe").c_str(), 0600), 0);
  EXPECT_FALSE(MappedFile::open(folder.path("pipe")).ok());
}

TEST(Log, passes_what_is_wanted) {
  std::vector<std::string> messages;
  const Log log([&](LogLevel level, std::string_view message) {
    messages.push_back(std::string(name_of(level)) + ": " + std::string(message));
  });
  log(LogLevel::debug, "hidden {}", 1);
  log(LogLevel::info, "shown {}", 2);
  log(LogLevel::warning, "also {}", 3);
  EXPECT_EQ(messages, (std::vector<std::string>{"info: shown 2", "warning: also 3"}));
  Log()(LogLevel::warning, "nobody listens");
  EXPECT_FALSE(Log().wants(LogLevel::warning));
}

}  // namespace
}  // namespace rlx
