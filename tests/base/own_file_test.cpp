// A program finds its own file, and builds of it are told apart.
#include "base/own_file.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "temporary_folder.hpp"

namespace rlx {
namespace {

TEST(OwnFile, is_this_program) {
  EXPECT_TRUE(std::filesystem::equivalent(own_file(), "/proc/self/exe"));
  EXPECT_NE(own_identity().find(identity_of_file(own_file())), std::string::npos);
  EXPECT_TRUE(own_identity().starts_with("rlx "));
}

TEST(OwnFile, identities_of_files_change_with_them) {
  const rlx::testing::TemporaryFolder folder;
  const std::string path = folder.path("file");
  EXPECT_EQ(identity_of_file(path), "");
  EXPECT_EQ(identity_of_file(folder.path()), "");
  std::ofstream(path) << "abc";
  const std::string first = identity_of_file(path);
  EXPECT_NE(first, "");
  EXPECT_EQ(identity_of_file(path), first);
  std::filesystem::last_write_time(
      path, std::filesystem::last_write_time(path) + std::chrono::nanoseconds(1000));
  const std::string later = identity_of_file(path);
  EXPECT_NE(later, first);
  const auto time = std::filesystem::last_write_time(path);
  std::ofstream(path) << "abcd";
  std::filesystem::last_write_time(path, time);
  EXPECT_NE(identity_of_file(path), later);
}

}  // namespace
}  // namespace rlx
