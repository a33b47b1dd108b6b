// docs/onnx.md names every op that has a handler.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "import/onnx/families.hpp"

namespace rlx::test {
namespace {

TEST(OnnxDocs, NameEveryOp) {
  std::ifstream in(RLX_SOURCE_FOLDER "/docs/onnx.md");
  const std::string page{std::istreambuf_iterator<char>(in), {}};
  ASSERT_FALSE(page.empty());
  for (const auto entries : onnx::all_families()) {
    for (const auto& entry : entries) {
      EXPECT_NE(page.find("`" + std::string(entry.name) + "`"), std::string::npos) << entry.name;
    }
  }
}

}  // namespace
}  // namespace rlx::test
