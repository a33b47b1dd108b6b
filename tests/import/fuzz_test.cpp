// Damaged files end in errors: truncated and bit-flipped models and tensors never crash the
// readers.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "base/temporary_folder.hpp"
#include "corpus.hpp"
#include "model_builder.hpp"
#include "rlx/import.hpp"

namespace rlx::test {
namespace {

std::string read_bytes(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Imports a damaged model; any answer but a crash is right, and what comes back is a valid graph.
void expect_survives(const std::string& bytes) {
  const auto graph =
      import_onnx(std::span(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()));
  if (graph.ok()) {
    EXPECT_TRUE(verify(*graph).ok());
  } else {
    EXPECT_FALSE(graph.error().message.empty());
    EXPECT_NE(graph.error().kind, ErrorKind::internal) << graph.error().message;
  }
}

std::string damaged(std::string bytes, std::mt19937_64& random) {
  if (bytes.empty()) return bytes;
  const auto at = [&] { return static_cast<std::size_t>(random() % bytes.size()); };
  switch (random() % 4) {
    case 0: bytes.resize(at()); break;
    case 1: bytes.erase(at(), 1 + random() % 8); break;
    case 2: bytes.insert(at(), bytes.substr(at(), 1 + random() % 16)); break;
    default:
      for (std::uint64_t i = 0; i < 1 + random() % 4; ++i) {
        bytes[at()] ^= static_cast<char>(1u << random() % 8);
      }
  }
  return bytes;
}

GraphParts varied_parts() {
  GraphParts body;
  body.nodes = {node("Add", {"x", "w"}, {"p"})};
  body.outputs = {value_info("p", onnx_float, {})};
  GraphParts parts;
  parts.inputs = {value_info("x", onnx_float, {{.symbol = "n"}, {4}}), value_info("flag", 9, {})};
  parts.outputs = {value_info("y", onnx_float, {})};
  parts.initializers = {tensor("w", onnx_float, {4}, raw_floats({1, 2, 3, 4})),
                        tensor("s", onnx_int64, {2}, raw_integers({-1, 2}))};
  parts.nodes = {node("Reshape", {"x", "s"}, {"a"}),
                 node("Shape", {"a"}, {"b"}),
                 node("ConstantOfShape", {"b"}, {"c"}),
                 node("Add", {"a", "c"}, {"d"}),
                 node("Softmax", {"d"}, {"e"}, {integer_attribute("axis", 1)}),
                 node("Transpose", {"e"}, {"f"}),
                 node("If", {"flag"}, {"g"},
                      {graph_attribute("then_branch", graph_message(body)),
                       graph_attribute("else_branch", graph_message(body))}),
                 node("ReduceSum", {"g"}, {"y"})};
  return parts;
}

TEST(Fuzz, TruncatedModelsEndInErrors) {
  const std::string bytes = model_message(varied_parts()).bytes();
  for (std::size_t size = 0; size < bytes.size(); ++size) expect_survives(bytes.substr(0, size));
}

TEST(Fuzz, DamagedModelsEndInErrorsOrGraphs) {
  std::mt19937_64 random(7);
  const std::string bytes = model_message(varied_parts()).bytes();
  for (int i = 0; i < 4000; ++i) expect_survives(damaged(damaged(bytes, random), random));
}

TEST(Fuzz, DamagedModelsOfTheCorpusEndInErrorsOrGraphs) {
  if (corpus().empty()) GTEST_SKIP() << "RLX_CORPUS names no folder: the corpus is not there.";
  std::mt19937_64 random(11);
  for (const auto& folder : cases_of(corpus() / "onnx/node")) {
    const std::string bytes = read_bytes(folder / "model.onnx");
    for (int i = 0; i < 8; ++i) {
      SCOPED_TRACE(folder.string());
      expect_survives(damaged(bytes, random));
    }
  }
}

TEST(Fuzz, DamagedTensorFilesEndInErrorsOrTensors) {
  std::mt19937_64 random(3);
  const testing::TemporaryFolder folder;
  const Message proto = tensor("t", onnx_float, {2, 3}, raw_floats({1, 2, 3, 4, 5, 6}));
  const std::string npy = folder.path("a.npy"), pb = folder.path("a.pb");
  ASSERT_TRUE(write_npy(npy, Tensor::of<float>({2, 3}, {1, 2, 3, 4, 5, 6})).ok());
  const std::string array = read_bytes(npy);
  for (int i = 0; i < 500; ++i) {
    std::ofstream(npy, std::ios::binary) << damaged(array, random);
    std::ofstream(pb, std::ios::binary) << damaged(proto.bytes(), random);
    const auto a = read_npy(npy);
    const auto b = read_tensor_proto(pb);
    EXPECT_TRUE(a.ok() || !a.error().message.empty());
    EXPECT_TRUE(b.ok() || !b.error().message.empty());
  }
}

}  // namespace
}  // namespace rlx::test
