// rlx compile -o FILE and rlx run FILE: the same results, and what is said of files that are not
// whole, not the user's own, or no programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "tools/command.hpp"

namespace rlx {
namespace {

using ::testing::HasSubstr;

class Saved : public ::testing::Test {
 protected:
  Saved() {
    model_ = folder_.write("model.onnx", wire::model("Add", {{"2", "3"}, {"3"}}));
    file_ = folder_.path("program.rlx");
  }
  Called compile() { return call_rlx({"compile", model_, "-o", file_}); }

  TestFolder folder_;
  std::string model_, file_;
};

TEST_F(Saved, ProgramsGiveWhatTheirModelsGive) {
  const Called compiled = compile();
  ASSERT_EQ(compiled.exit_code, 0) << compiled.err;
  EXPECT_THAT(compiled.out, HasSubstr("saved: " + file_));
  EXPECT_THAT(compiled.out, HasSubstr("arena_bytes: "));
  const Called whole = call_rlx({"run", model_, "--out", folder_.path("a")});
  const Called saved = call_rlx({"run", file_, "--out", folder_.path("b")});
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  ASSERT_EQ(saved.exit_code, 0) << saved.err;
  EXPECT_EQ(read_file(folder_.path("a/output_0.npy")), read_file(folder_.path("b/output_0.npy")));
  EXPECT_FALSE(read_file(folder_.path("b/output_0.npy")).empty());
  EXPECT_EQ(read_file(folder_.path("a/outputs.json")), read_file(folder_.path("b/outputs.json")));
  struct stat status{};
  ASSERT_EQ(stat(file_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(Saved, OptionsThatWouldChangeAProgramAreRefused) {
  ASSERT_EQ(compile().exit_code, 0);
  for (const char* option : {"--exact", "--flush-subnormals", "--precision=bf16"}) {
    const Called called = call_rlx({"run", file_, option});
    EXPECT_EQ(called.exit_code, 2) << option;
    EXPECT_THAT(called.err, HasSubstr("compiled already")) << option;
  }
  const Called answered = call_rlx({"explain", file_, "--answer", "anything=no"});
  EXPECT_EQ(answered.exit_code, 2);
}

TEST_F(Saved, DamagedFilesAreRefused) {
  ASSERT_EQ(compile().exit_code, 0);
  const std::string good = read_file(file_);
  const auto says = [&](const std::string& content) {
    folder_.write("program.rlx", content);
    const Called called = call_rlx({"run", file_});
    EXPECT_EQ(called.exit_code, 3) << called.out;
    EXPECT_EQ(called.out, "");
    return called.err;
  };
  EXPECT_THAT(says(good.substr(0, 20)), HasSubstr("is damaged: it is too short."));
  for (const std::size_t size : {std::size_t{60}, good.size() / 2, good.size() - 1}) {
    EXPECT_THAT(says(good.substr(0, size)), HasSubstr("is damaged: a checksum or size is wrong."))
        << size;
  }
  std::string flipped = good;
  flipped[200] = static_cast<char>(flipped[200] ^ 4);
  EXPECT_THAT(says(flipped), HasSubstr("is damaged: a checksum or size is wrong."));
  folder_.write("program.rlx", good);
  EXPECT_EQ(call_rlx({"run", file_}).exit_code, 0) << "the file itself was not the reason";
}

TEST_F(Saved, ForeignFormatsAreNotAvailable) {
  ASSERT_EQ(compile().exit_code, 0);
  std::string other = read_file(file_);
  other[8] = 77;  // the format's version stands behind the magic number
  folder_.write("program.rlx", other);
  const Called called = call_rlx({"run", file_});
  EXPECT_EQ(called.exit_code, 4);
  EXPECT_THAT(called.err, HasSubstr("has the format 77; this rlx reads "));
}

TEST_F(Saved, OnlyTheUsersOwnFilesAreTrusted) {
  ASSERT_EQ(compile().exit_code, 0);
  ASSERT_EQ(chmod(file_.c_str(), 0666), 0);
  const Called called = call_rlx({"run", file_});
  EXPECT_EQ(called.exit_code, 4);
  EXPECT_THAT(called.err, HasSubstr("is not trusted"));
  ASSERT_EQ(chmod(file_.c_str(), 0600), 0);
  EXPECT_EQ(call_rlx({"run", file_}).exit_code, 0);
}

TEST_F(Saved, WhatCannotBeSavedIsSaid) {
  const Called twice = call_rlx({"compile", model_, "-o", folder_.path("none/program")});
  EXPECT_EQ(twice.exit_code, 3);
  EXPECT_THAT(twice.err, HasSubstr("cannot be written"));
  ASSERT_EQ(compile().exit_code, 0);
  const Called again = call_rlx({"compile", file_, "-o", folder_.path("other")});
  EXPECT_EQ(again.exit_code, 3);
  EXPECT_THAT(again.err, HasSubstr("is a saved program already."));
  const std::string open = folder_.write("open.onnx", wire::model("Relu", {{"rows", "3"}}));
  const Called bound = call_rlx({"compile", open, "-o", folder_.path("bound")});
  EXPECT_EQ(bound.exit_code, 0) << "the verb gives symbols a value: " << bound.err;
}

}  // namespace
}  // namespace rlx
