// Writes small ONNX models as bytes, for tests: the wire format by hand, field numbers as in
// onnx.proto.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace rlx::test {

/// A protocol buffers message that grows field by field.
class Message {
 public:
  Message& integer(int field, std::int64_t value) {
    varint(static_cast<std::uint64_t>(field) << 3);
    varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  Message& real(int field, float value) {
    varint(static_cast<std::uint64_t>(field) << 3 | 5);
    char bytes[4];
    std::memcpy(bytes, &value, 4);
    bytes_.append(bytes, 4);
    return *this;
  }
  Message& text(int field, const std::string& value) {
    varint(static_cast<std::uint64_t>(field) << 3 | 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) { return text(field, value.bytes_); }
  /// A group around fields, as the format's first version wrote messages.
  Message& group(int field, const Message& fields) {
    open_group(field);
    bytes_ += fields.bytes_;
    varint(static_cast<std::uint64_t>(field) << 3 | 4);
    return *this;
  }
  /// The begin of a group alone.
  Message& open_group(int field) {
    varint(static_cast<std::uint64_t>(field) << 3 | 3);
    return *this;
  }

  const std::string& bytes() const { return bytes_; }
  std::span<const std::byte> span() const {
    return {reinterpret_cast<const std::byte*>(bytes_.data()), bytes_.size()};
  }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7f) | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

/// Element types of the standard.
constexpr int onnx_float = 1, onnx_int64 = 7, onnx_string = 8;

/// A value with dims: numbers >= 0, or symbols where the text is not empty.
struct ModelDim {
  std::int64_t number = -1;
  std::string symbol;
};
inline Message value_info(const std::string& name, int type, const std::vector<ModelDim>& dims) {
  Message shape;
  for (const ModelDim& dim : dims) {
    Message one;
    if (dim.number >= 0) one.integer(1, dim.number);
    if (!dim.symbol.empty()) one.text(2, dim.symbol);
    shape.message(1, one);
  }
  return Message().text(1, name).message(
      2, Message().message(1, Message().integer(1, type).message(2, shape)));
}

inline Message node(const std::string& op, const std::vector<std::string>& inputs,
                    const std::vector<std::string>& outputs,
                    const std::vector<Message>& attributes = {}, const std::string& domain = "") {
  Message result;
  for (const std::string& input : inputs) result.text(1, input);
  for (const std::string& output : outputs) result.text(2, output);
  result.text(3, "the_" + op).text(4, op);
  for (const Message& attribute : attributes) result.message(5, attribute);
  if (!domain.empty()) result.text(7, domain);
  return result;
}

inline Message integer_attribute(const std::string& name, std::int64_t value) {
  return Message().text(1, name).integer(3, value).integer(20, 2);
}

inline Message floats_attribute(const std::string& name, const std::vector<float>& values) {
  Message result;
  result.text(1, name).integer(20, 6);
  for (const float value : values) result.real(7, value);
  return result;
}

inline Message float_attribute(const std::string& name, float value) {
  return Message().text(1, name).real(2, value).integer(20, 1);
}

inline Message ints_attribute(const std::string& name, const std::vector<std::int64_t>& values) {
  Message result;
  result.text(1, name).integer(20, 7);
  for (const std::int64_t value : values) result.integer(8, value);
  return result;
}

inline Message string_attribute(const std::string& name, const std::string& value) {
  return Message().text(1, name).text(4, value).integer(20, 3);
}

inline Message strings_attribute(const std::string& name, const std::vector<std::string>& values) {
  Message result;
  result.text(1, name).integer(20, 8);
  for (const std::string& value : values) result.text(9, value);
  return result;
}

inline Message graph_attribute(const std::string& name, const Message& graph) {
  return Message().text(1, name).message(6, graph).integer(20, 5);
}

/// Raw little-endian data of any type.
inline Message tensor(const std::string& name, int type, const std::vector<std::int64_t>& dims,
                      const std::string& raw) {
  Message result;
  for (const std::int64_t dim : dims) result.integer(1, dim);
  return result.integer(2, type).text(8, name).text(9, raw);
}

inline std::string raw_floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

inline std::string raw_integers(const std::vector<std::int64_t>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(std::int64_t)};
}

struct GraphParts {
  std::vector<Message> nodes, initializers, inputs, outputs;
};

inline Message graph_message(const GraphParts& parts) {
  Message graph;
  for (const Message& node : parts.nodes) graph.message(1, node);
  graph.text(2, "g");
  for (const Message& tensor : parts.initializers) graph.message(5, tensor);
  for (const Message& input : parts.inputs) graph.message(11, input);
  for (const Message& output : parts.outputs) graph.message(12, output);
  return graph;
}

inline Message model_message(const GraphParts& parts, std::int64_t opset = 18) {
  return Message()
      .integer(1, 8)
      .message(7, graph_message(parts))
      .message(8, Message().integer(2, opset));
}

}  // namespace rlx::test
