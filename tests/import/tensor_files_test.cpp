// Single tensors in files, and weights that lie in files of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/temporary_folder.hpp"
#include "graph/op_info.hpp"
#include "model_builder.hpp"
#include "rlx/import.hpp"

namespace rlx::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST(TensorFiles, NpyRoundTrips) {
  const testing::TemporaryFolder folder;
  const std::string file = folder.path("a.npy");
  const Tensor matrix = Tensor::of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  ASSERT_TRUE(write_npy(file, matrix).ok());
  const Tensor back = read_npy(file).value();
  EXPECT_EQ(back.dims(), (Dims{2, 3}));
  EXPECT_THAT(back.as<float>(), ElementsAre(1, 2, 3, 4, 5, 6));
  ASSERT_TRUE(write_npy(file, Tensor::scalar<std::int64_t>(-7)).ok());
  EXPECT_THAT(read_npy(file).value().as<std::int64_t>(), ElementsAre(-7));
}

TEST(TensorFiles, NpyHoldsNarrowTypesAsTheirBits) {
  const testing::TemporaryFolder folder;
  const std::string file = folder.path("a.npy");
  ASSERT_TRUE(write_npy(file, Tensor(bf16, {3})).ok());
  EXPECT_EQ(read_npy(file).value().dtype(), u16);
  ASSERT_TRUE(write_npy(file, Tensor(f8e5m2, {3})).ok());
  EXPECT_EQ(read_npy(file).value().dtype(), u8);
}

TEST(TensorFiles, NpyNamesTypesThatNumpyLacks) {
  const testing::TemporaryFolder folder;
  const std::string file = folder.path("a.npy");
  for (const DType dtype : {i4, u4, i2, u2, DType::f8e4m3fnuz, DType::f8e5m2fnuz, DType::f4e2m1}) {
    Tensor tensor(dtype, {2});
    tensor.mutable_data()[1] = std::byte{1};
    ASSERT_TRUE(write_npy(file, tensor).ok());
    const Tensor back = read_npy(file).value();
    EXPECT_EQ(back.dtype(), dtype);
    EXPECT_EQ(back.data()[1], std::byte{1});
  }
}

TEST(TensorFiles, NpyOfHalfBytesCountsTheirBitsAlone) {
  const testing::TemporaryFolder folder;
  const std::string file = folder.path("a.npy");
  Tensor tensor(i4, {2});
  tensor.mutable_data()[0] = std::byte{0x0f};
  tensor.mutable_data()[1] = std::byte{0x27};
  ASSERT_TRUE(write_npy(file, tensor).ok());
  const Tensor back = read_npy(file).value();
  EXPECT_EQ(static_cast<std::int8_t>(back.data()[0]), -1);
  EXPECT_EQ(static_cast<std::int8_t>(back.data()[1]), 7);
}

TEST(TensorFiles, NpyOfColumnsFirstIsTurned) {
  const testing::TemporaryFolder folder;
  const std::string file = folder.path("a.npy");
  std::string header = "{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3), }";
  header += std::string(64 - (10 + header.size() + 1) % 64, ' ') + "\n";
  std::string bytes =
      std::string("\x93NUMPY\x01", 7) + '\0' + static_cast<char>(header.size()) + '\0' + header;
  for (const std::int32_t value : {1, 4, 2, 5, 3, 6}) {
    bytes.append(reinterpret_cast<const char*>(&value), 4);
  }
  write(file, bytes);
  EXPECT_THAT(read_npy(file).value().as<std::int32_t>(), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(TensorFiles, RefusesWhatIsNoArray) {
  const testing::TemporaryFolder folder;
  const std::string file = folder.path("a.npy");
  EXPECT_THAT(read_npy(file).error().message, HasSubstr("cannot be opened"));
  write(file, "nonsense that is long enough");
  EXPECT_THAT(read_npy(file).error().message, HasSubstr("The file is no .npy file."));
  ASSERT_TRUE(write_npy(file, Tensor(f32, {4})).ok());
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  EXPECT_THAT(read_npy(file).error().message, HasSubstr("The array wants 16 bytes"));
  EXPECT_THAT(read_npy(folder.path()).error().message, HasSubstr("is no regular file"));
}

TEST(TensorFiles, ReadsTypedFieldsOfTensorProtos) {
  const testing::TemporaryFolder folder;
  const std::string file = folder.path("a.pb");
  // Two numbers of int32_data, of which bool takes one byte each and u4 half a byte each.
  const auto proto = [&](int type, std::int64_t dim, std::vector<std::int64_t> numbers) {
    Message message = Message().integer(1, dim).integer(2, type);
    for (const auto number : numbers) message.integer(5, number);
    write(file, message.bytes());
    return read_tensor_proto(file);
  };
  EXPECT_THAT(proto(6, 2, {5, -6}).value().as<std::int32_t>(), ElementsAre(5, -6));
  EXPECT_THAT(proto(9, 2, {0, 1}).value().as<bool>(), ElementsAre(false, true));
  const Tensor halves = proto(21, 3, {0x21, 0x03}).value();
  EXPECT_EQ(halves.dtype(), u4);
  EXPECT_EQ(std::to_integer<int>(halves.data()[1]), 2);
  EXPECT_EQ(std::to_integer<int>(halves.data()[2]), 3);
  EXPECT_THAT(proto(6, 2, {1}).error().message, HasSubstr("holds 1 numbers and its dims want 2"));
  EXPECT_THAT(proto(6, 1, {1, 2}).error().message, HasSubstr("more numbers than its dims"));
  EXPECT_EQ(proto(onnx_string, 1, {}).error().kind, ErrorKind::unsupported);
}

// y = w, with w in a file beside the model.
Message model_with_external(const std::string& location, std::int64_t offset = 0) {
  Message w = Message().integer(1, 2).integer(2, onnx_float).text(8, "w").integer(14, 1);
  w.message(13, Message().text(1, "location").text(2, location));
  w.message(13, Message().text(1, "offset").text(2, std::to_string(offset)));
  w.message(13, Message().text(1, "length").text(2, "8"));
  GraphParts parts;
  parts.initializers = {w};
  parts.outputs = {value_info("y", onnx_float, {{2}})};
  parts.nodes = {node("Identity", {"w"}, {"y"})};
  return model_message(parts);
}

TEST(ExternalData, ComesFromTheModelsFolderAlone) {
  const testing::TemporaryFolder outer;
  std::filesystem::create_directory(outer.path("model"));
  const std::string model = outer.path("model/model.onnx");
  write(outer.path("secret"), raw_floats({7, 8}));
  write(outer.path("model/weights"), raw_floats({1, 2}));
  std::filesystem::create_symlink("../secret", outer.path("model/link"));

  write(model, model_with_external("weights").bytes());
  const Graph graph = import_onnx(model).value();
  EXPECT_THAT(evaluate_graph(graph, {}).value()[0].as<float>(), ElementsAre(1, 2));
  for (const std::string location : {"../secret", "link", "./../secret", "model/../../secret"}) {
    write(model, model_with_external(location).bytes());
    EXPECT_THAT(import_onnx(model).error().message, HasSubstr("is not in the model's folder"))
        << location;
  }
  write(model, model_with_external(outer.path("model/weights")).bytes());
  EXPECT_THAT(import_onnx(model).error().message, HasSubstr("is not in the model's folder"));
  write(model, model_with_external("weights", 4).bytes());
  EXPECT_THAT(import_onnx(model).error().message, HasSubstr("beyond the end"));
}

// The most memory that a process of its own held while it imported, in bytes.
std::size_t peak_of_import(const std::string& model) {
  const pid_t child = fork();
  if (child == 0) {
    const bool ok = import_onnx(model).ok();
    _exit(ok ? 0 : 1);
  }
  int status = 0;
  rusage usage{};
  EXPECT_EQ(wait4(child, &status, 0, &usage), child);
  EXPECT_EQ(status, 0);
  return static_cast<std::size_t>(usage.ru_maxrss) * 1024;
}

TEST(ExternalData, LoadingHoldsTheFileOnce) {
  const testing::TemporaryFolder folder;
  const auto model_of = [&](const char* name, std::size_t weights) {
    GraphParts parts;
    const std::string numbers(std::size_t{4} << 20, '\1');
    parts.outputs = {value_info("y", onnx_float, {})};
    std::vector<std::string> names;
    for (std::size_t i = 0; i < weights; ++i) {
      // Names of several lengths: numbers begin at every alignment.
      names.push_back("w" + std::string(i % 4, 'w') + std::to_string(i));
      parts.initializers.push_back(tensor(names.back(), onnx_float, {1 << 20}, numbers));
    }
    parts.nodes = {node("Sum", names, {"y"})};
    write(folder.path(name), model_message(parts).bytes());
    return folder.path(name);
  };
  const std::string small = model_of("small.onnx", 1), large = model_of("large.onnx", 33);
  const auto grown = static_cast<double>(peak_of_import(large) - peak_of_import(small));
  EXPECT_LT(grown, 1.3 * 32 * (4 << 20));
}

}  // namespace
}  // namespace rlx::test
