// Decoding ONNX messages from the wire format; field numbers are those of the standard's
// onnx.proto.
#include "import/onnx/model.hpp"

#include <array>
#include <bit>

#include "import/wire.hpp"

namespace rlx::onnx {
namespace {

using importing::bytes_tag;
using importing::fail;
using importing::fixed32_tag;
using importing::fixed64_tag;
using importing::varint_tag;
using importing::WireField;
using importing::WireReader;

// Bounds what a small hostile file can make us allocate, and how deep it can make us recurse.
constexpr std::int64_t max_messages = 2'000'000;
constexpr int max_depth = 64;

class Decoder {
 public:
  ModelProto model(ByteSpan bytes);
  TensorProto tensor(ByteSpan bytes);

 private:
  void graph(ByteSpan bytes, GraphProto& out, int depth);
  void node(ByteSpan bytes, NodeProto& out, int depth);
  void attribute(ByteSpan bytes, AttributeProto& out, int depth);
  void function(ByteSpan bytes, FunctionProto& out);
  void tensor(ByteSpan bytes, TensorProto& out);
  void value_info(ByteSpan bytes, ValueInfo& out);
  void type(ByteSpan bytes, TypeProto& out);
  void tensor_type(ByteSpan bytes, TypeProto& out);
  void shape(ByteSpan bytes, std::vector<DimProto>& out);
  void opset(ByteSpan bytes, OpsetImports& out);
  void pair(ByteSpan bytes, std::map<std::string, std::string>& out);
  void numbers(const WireField& field, TensorProto::Numbers& out);

  // Counts messages, strings and numbers, each of which takes memory of its own.
  void count() {
    if (++messages_ > max_messages) fail("The file holds too many parts ({}).", messages_);
  }
  static void check_depth(int depth) {
    if (depth > max_depth) fail("Graphs are nested too deeply ({} levels).", depth);
  }
  ByteSpan message(const WireField& field) {
    count();
    return field.payload;
  }
  std::string text(const WireField& field) {
    const ByteSpan bytes = message(field);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  static std::int64_t integer(const WireField& field) {
    return static_cast<std::int64_t>(field.scalar);
  }
  void integers(const WireField& field, std::vector<std::int64_t>& out);
  void reals(const WireField& field, std::vector<float>& out);

  std::int64_t messages_ = 0;
};

void Decoder::integers(const WireField& field, std::vector<std::int64_t>& out) {
  if (field.kind != WireField::Kind::bytes) {
    count();
    out.push_back(integer(field));
    return;
  }
  for (WireReader reader(field.payload); !reader.done(); count()) {
    out.push_back(static_cast<std::int64_t>(reader.varint()));
  }
}

void Decoder::reals(const WireField& field, std::vector<float>& out) {
  if (field.kind == WireField::Kind::fixed32) {
    count();
    out.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(field.scalar)));
    return;
  }
  for (WireReader reader(message(field)); !reader.done(); count()) {
    out.push_back(reader.fixed<float>());
  }
}

void Decoder::numbers(const WireField& field, TensorProto::Numbers& out) {
  count();
  if (field.kind == WireField::Kind::bytes) {
    out.packed.push_back(field.payload);
  } else {
    out.loose.push_back(field.scalar);
  }
}

void Decoder::pair(ByteSpan bytes, std::map<std::string, std::string>& out) {
  std::string key, value;
  for (WireReader reader(bytes); !reader.done();) {
    const WireField field = reader.next();
    if (field.tag() == bytes_tag(1)) key = text(field);
    if (field.tag() == bytes_tag(2)) value = text(field);
  }
  out[key] = value;
}

void Decoder::tensor(ByteSpan bytes, TensorProto& out) {
  for (WireReader reader(bytes); !reader.done();) {
    const WireField field = reader.next();
    switch (field.tag()) {
      case bytes_tag(1):
      case varint_tag(1): integers(field, out.dims); break;
      case varint_tag(2): out.data_type = static_cast<std::int32_t>(integer(field)); break;
      case bytes_tag(3): out.segmented = true; break;
      case bytes_tag(4):
      case fixed32_tag(4): numbers(field, out.floats); break;
      case bytes_tag(5):
      case varint_tag(5): numbers(field, out.int32s); break;
      case bytes_tag(6): out.strings.push_back(message(field)); break;
      case bytes_tag(7):
      case varint_tag(7): numbers(field, out.int64s); break;
      case bytes_tag(8): out.name = text(field); break;
      case bytes_tag(9):
        out.raw = message(field);
        out.has_raw = true;
        break;
      case bytes_tag(10):
      case fixed64_tag(10): numbers(field, out.doubles); break;
      case bytes_tag(11):
      case varint_tag(11): numbers(field, out.uint64s); break;
      case bytes_tag(13): pair(message(field), out.external_data); break;
      case varint_tag(14): out.external = integer(field) == 1; break;
      default: break;
    }
  }
}

void Decoder::shape(ByteSpan bytes, std::vector<DimProto>& out) {
  for (WireReader reader(bytes); !reader.done();) {
    const WireField field = reader.next();
    if (field.tag() != bytes_tag(1)) continue;
    DimProto& dim = out.emplace_back();
    for (WireReader inner(message(field)); !inner.done();) {
      const WireField part = inner.next();
      if (part.tag() == varint_tag(1)) dim.value = integer(part);
      if (part.tag() == bytes_tag(2)) dim.symbol = text(part);
    }
  }
}

void Decoder::tensor_type(ByteSpan bytes, TypeProto& out) {
  for (WireReader reader(bytes); !reader.done();) {
    const WireField field = reader.next();
    if (field.tag() == varint_tag(1)) out.elem_type = static_cast<std::int32_t>(integer(field));
    if (field.tag() == bytes_tag(2)) {
      if (!out.shape) out.shape.emplace();
      shape(message(field), *out.shape);
    }
  }
}

void Decoder::type(ByteSpan bytes, TypeProto& out) {
  for (WireReader reader(bytes); !reader.done();) {
    const WireField field = reader.next();
    switch (field.tag()) {
      case bytes_tag(1): tensor_type(message(field), out); break;
      case bytes_tag(4): out.other = "sequence"; break;
      case bytes_tag(5): out.other = "map"; break;
      case bytes_tag(7): out.other = "opaque"; break;
      case bytes_tag(8): out.other = "sparse tensor"; break;
      case bytes_tag(9): out.other = "optional"; break;
      default: break;
    }
  }
}

void Decoder::value_info(ByteSpan bytes, ValueInfo& out) {
  for (WireReader reader(bytes); !reader.done();) {
    const WireField field = reader.next();
    if (field.tag() == bytes_tag(1)) out.name = text(field);
    if (field.tag() == bytes_tag(2)) {
      if (!out.type) out.type.emplace();
      type(message(field), *out.type);
    }
  }
}

void Decoder::attribute(ByteSpan bytes, AttributeProto& out, int depth) {
  check_depth(depth);
  for (WireReader reader(bytes); !reader.done();) {
    const WireField field = reader.next();
    switch (field.tag()) {
      case bytes_tag(1): out.name = text(field); break;
      case fixed32_tag(2):
        out.real = std::bit_cast<float>(static_cast<std::uint32_t>(field.scalar));
        break;
      case varint_tag(3): out.integer = integer(field); break;
      case bytes_tag(4): out.text = text(field); break;
      case bytes_tag(5):
      case bytes_tag(10): tensor(message(field), out.tensors.emplace_back()); break;
      case bytes_tag(6):
      case bytes_tag(11): graph(message(field), out.graphs.emplace_back(), depth + 1); break;
      case bytes_tag(7):
      case fixed32_tag(7): reals(field, out.reals); break;
      case bytes_tag(8):
      case varint_tag(8): integers(field, out.integers); break;
      case bytes_tag(9): out.texts.push_back(text(field)); break;
      case varint_tag(20):
        out.kind = static_cast<AttributeProto::Kind>(integer(field) & 0xff);
        break;
      case bytes_tag(21): out.reference = text(field); break;
      default: break;
    }
  }
}

void Decoder::node(ByteSpan bytes, NodeProto& out, int depth) {
  for (WireReader reader(bytes); !reader.done();) {
    const WireField field = reader.next();
    switch (field.tag()) {
      case bytes_tag(1): out.inputs.push_back(text(field)); break;
      case bytes_tag(2): out.outputs.push_back(text(field)); break;
      case bytes_tag(3): out.name = text(field); break;
      case bytes_tag(4): out.op_type = text(field); break;
      case bytes_tag(5): attribute(message(field), out.attributes.emplace_back(), depth); break;
      case bytes_tag(7): out.domain = text(field); break;
      case bytes_tag(8): out.overload = text(field); break;
      default: break;
    }
  }
  if (out.domain == "ai.onnx") out.domain.clear();
}

void Decoder::graph(ByteSpan bytes, GraphProto& out, int depth) {
  check_depth(depth);
  for (WireReader reader(bytes); !reader.done();) {
    const WireField field = reader.next();
    switch (field.tag()) {
      case bytes_tag(1): node(message(field), out.nodes.emplace_back(), depth); break;
      case bytes_tag(2): out.name = text(field); break;
      case bytes_tag(5): tensor(message(field), out.initializers.emplace_back()); break;
      case bytes_tag(11): value_info(message(field), out.inputs.emplace_back()); break;
      case bytes_tag(12): value_info(message(field), out.outputs.emplace_back()); break;
      case bytes_tag(15): out.sparse_initializers = true; break;
      default: break;
    }
  }
}

void Decoder::opset(ByteSpan bytes, OpsetImports& out) {
  std::string domain;
  std::int64_t version = 0;
  for (WireReader reader(bytes); !reader.done();) {
    const WireField field = reader.next();
    if (field.tag() == bytes_tag(1)) domain = text(field);
    if (field.tag() == varint_tag(2)) version = integer(field);
  }
  out[domain == "ai.onnx" ? "" : domain] = version;
}

void Decoder::function(ByteSpan bytes, FunctionProto& out) {
  for (WireReader reader(bytes); !reader.done();) {
    const WireField field = reader.next();
    switch (field.tag()) {
      case bytes_tag(1): out.name = text(field); break;
      case bytes_tag(4): out.inputs.push_back(text(field)); break;
      case bytes_tag(5): out.outputs.push_back(text(field)); break;
      case bytes_tag(6): out.attributes.push_back(text(field)); break;
      case bytes_tag(7): node(message(field), out.nodes.emplace_back(), 1); break;
      case bytes_tag(9): opset(message(field), out.opsets); break;
      case bytes_tag(10): out.domain = text(field); break;
      case bytes_tag(11): attribute(message(field), out.defaults.emplace_back(), 1); break;
      case bytes_tag(13): out.overload = text(field); break;
      default: break;
    }
  }
  if (out.domain == "ai.onnx") out.domain.clear();
}

ModelProto Decoder::model(ByteSpan bytes) {
  ModelProto out;
  bool has_graph = false;
  for (WireReader reader(bytes); !reader.done();) {
    const WireField field = reader.next();
    switch (field.tag()) {
      case varint_tag(1): out.ir_version = integer(field); break;
      case bytes_tag(7):
        graph(message(field), out.graph, 0);
        has_graph = true;
        break;
      case bytes_tag(8): opset(message(field), out.opsets); break;
      case bytes_tag(25): function(message(field), out.functions.emplace_back()); break;
      default: break;
    }
  }
  for (std::size_t i = 0; i < out.functions.size(); ++i) {
    const FunctionProto& function = out.functions[i];
    const auto [found, added] = out.function_index.emplace(
        std::array{function.domain, function.name, function.overload}, i);
    if (!added) fail("The function ({}) is defined twice.", function.name);
  }
  if (!has_graph) fail("The file holds no graph: it is no ONNX model.");
  return out;
}

TensorProto Decoder::tensor(ByteSpan bytes) {
  TensorProto out;
  tensor(bytes, out);
  return out;
}

}  // namespace

ModelProto decode_model(ByteSpan bytes) { return Decoder().model(bytes); }
TensorProto decode_tensor(ByteSpan bytes) { return Decoder().tensor(bytes); }

std::optional<DType> dtype_of_element(std::int32_t elem_type) {
  switch (elem_type) {
    case 1: return f32;
    case 2: return u8;
    case 3: return i8;
    case 4: return u16;
    case 5: return i16;
    case 6: return i32;
    case 7: return i64;
    case 9: return boolean;
    case 10: return f16;
    case 11: return f64;
    case 12: return u32;
    case 13: return u64;
    case 14: return c64;
    case 15: return c128;
    case 16: return bf16;
    case 17: return f8e4m3fn;
    case 18: return f8e4m3fnuz;
    case 19: return f8e5m2;
    case 20: return f8e5m2fnuz;
    case 21: return u4;
    case 22: return i4;
    case 23: return f4e2m1;
    case 25: return u2;
    case 26: return i2;
    default: return std::nullopt;
  }
}

std::string element_name(std::int32_t elem_type) {
  static constexpr std::array<std::string_view, 29> names = {
      "undefined",      "float",      "uint8",          "int8",       "uint16",    "int16",
      "int32",          "int64",      "string",         "bool",       "float16",   "double",
      "uint32",         "uint64",     "complex64",      "complex128", "bfloat16",  "float8e4m3fn",
      "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "uint4",      "int4",      "float4e2m1",
      "float8e8m0",     "uint2",      "int2",           "float6e2m3", "float6e3m2"};
  if (elem_type >= 0 && elem_type < static_cast<std::int32_t>(names.size())) {
    return std::string(names[static_cast<std::size_t>(elem_type)]);
  }
  return "element type " + std::to_string(elem_type);
}

}  // namespace rlx::onnx
