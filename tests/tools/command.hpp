// Runs the built rlx program, and a folder for its files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace rlx {

/// What a call of the program gave; exit_code is -signal where it was killed.
struct Called {
  int exit_code = 0;
  std::string out, err;
};

/// Calls rlx with these arguments.
Called call_rlx(const std::vector<std::string>& arguments);

/// A folder of its own for one test, removed afterwards.
class TestFolder {
 public:
  TestFolder();
  ~TestFolder();
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  /// Writes a file and gives its path.
  std::string write(const std::string& name, const std::string& content) const;

 private:
  std::filesystem::path folder_;
};

std::string read_file(const std::string& path);

// Little ONNX files, written as the wire format has it.
namespace wire {

std::string number(int field, std::uint64_t value);
std::string bytes(int field, const std::string& payload);

/// A TensorProto of floats.
std::string tensor(const std::vector<std::int64_t>& dims, const std::vector<float>& values);

/// A model of one node: `op` from the inputs x0, x1, ... to y, all f32. Dims are numbers, symbols,
/// or "" for unnamed ones.
std::string model(const std::string& op, const std::vector<std::vector<std::string>>& input_dims,
                  const std::string& domain = "");

}  // namespace wire
}  // namespace rlx
