// Calls of the program, and ONNX files made by hand.
#include "tools/command.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace rlx {
namespace {

std::string shell_quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string value_info(const std::string& name, const std::vector<std::string>& dims) {
  std::string shape;
  for (const std::string& dim : dims) {
    const bool digits = !dim.empty() && dim.find_first_not_of("0123456789") == std::string::npos;
    const std::string known = digits ? wire::number(1, std::stoul(dim)) : wire::bytes(2, dim);
    shape += wire::bytes(1, dim.empty() ? "" : known);
  }
  const std::string tensor = wire::number(1, 1) + wire::bytes(2, shape);
  return wire::bytes(1, name) + wire::bytes(2, wire::bytes(1, tensor));
}

std::string varint(std::uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) text += static_cast<char>(value | 0x80);
  return text + static_cast<char>(value);
}

}  // namespace

Called call_rlx(const std::vector<std::string>& arguments) {
  const TestFolder folder;
  std::string command = RLX_TOOL_EMULATOR " " + shell_quoted(RLX_TOOL_PATH);
  for (const std::string& argument : arguments) command += " " + shell_quoted(argument);
  command += " >" + shell_quoted(folder.path("out")) + " 2>" + shell_quoted(folder.path("err"));
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status),
          read_file(folder.path("out")), read_file(folder.path("err"))};
}

TestFolder::TestFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "rlx_tools_XXXXXX").string();
  if (!mkdtemp(pattern.data())) throw std::runtime_error("no folder for a test");
  folder_ = pattern;
}

TestFolder::~TestFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string TestFolder::write(const std::string& name, const std::string& content) const {
  std::filesystem::create_directories((folder_ / name).parent_path());
  std::ofstream(folder_ / name, std::ios::binary) << content;
  return path(name);
}

std::string read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

namespace wire {

std::string number(int field, std::uint64_t value) {
  return varint(static_cast<std::uint64_t>(field) << 3) + varint(value);
}

std::string bytes(int field, const std::string& payload) {
  return varint(static_cast<std::uint64_t>(field) << 3 | 2) + varint(payload.size()) + payload;
}

std::string tensor(const std::vector<std::int64_t>& dims, const std::vector<float>& values) {
  std::string text;
  for (const std::int64_t dim : dims) text += number(1, static_cast<std::uint64_t>(dim));
  text += number(2, 1);
  std::string raw(values.size() * sizeof(float), '\0');
  if (!raw.empty()) std::memcpy(raw.data(), values.data(), raw.size());
  return text + bytes(9, raw);
}

std::string model(const std::string& op, const std::vector<std::vector<std::string>>& input_dims,
                  const std::string& domain) {
  std::string node, inputs;
  for (std::size_t i = 0; i < input_dims.size(); ++i) {
    const std::string name = "x" + std::to_string(i);
    node += bytes(1, name);
    inputs += bytes(11, value_info(name, input_dims[i]));
  }
  node += bytes(2, "y") + bytes(3, "the node") + bytes(4, op);
  if (!domain.empty()) node += bytes(7, domain);
  const std::string output = bytes(1, "y") + bytes(2, bytes(1, number(1, 1)));
  const std::string graph = bytes(1, node) + bytes(2, "graph") + inputs + bytes(12, output);
  std::string opsets = bytes(8, number(2, 17));
  if (!domain.empty()) opsets += bytes(8, bytes(1, domain) + number(2, 1));
  return number(1, 8) + bytes(7, graph) + opsets;
}

}  // namespace wire
}  // namespace rlx
