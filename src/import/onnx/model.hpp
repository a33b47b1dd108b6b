// The parts of an ONNX model that the importer reads. Numbers of tensors stay where they lie in the
// file: TensorProto holds spans.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rlx/dtype.hpp"

namespace rlx::onnx {

using ByteSpan = std::span<const std::byte>;

struct TensorProto {
  std::string name;
  std::vector<std::int64_t> dims;
  std::int32_t data_type = 0;
  ByteSpan raw;  ///< raw_data
  bool has_raw = false;
  /// float_data, int32_data, int64_data, double_data, uint64_data as they stand in the file: packed
  /// numbers, or one number a part (`loose`).
  struct Numbers {
    std::vector<ByteSpan> packed;
    std::vector<std::uint64_t> loose;
    bool empty() const { return packed.empty() && loose.empty(); }
  };
  Numbers floats, int32s, int64s, doubles, uint64s;
  std::vector<ByteSpan> strings;
  bool external = false;
  std::map<std::string, std::string> external_data;
  bool segmented = false;
};

struct DimProto {
  std::optional<std::int64_t> value;
  std::string symbol;
};

struct TypeProto {
  /// Empty for a tensor; else what it is ("sequence", "map", "optional", ...).
  std::string other;
  std::int32_t elem_type = 0;
  std::optional<std::vector<DimProto>> shape;
};

struct ValueInfo {
  std::string name;
  std::optional<TypeProto> type;
};

struct GraphProto;

struct AttributeProto {
  enum class Kind : std::uint8_t {
    undefined = 0,
    real = 1,
    integer = 2,
    text = 3,
    tensor = 4,
    graph = 5,
    reals = 6,
    integers = 7,
    texts = 8,
    tensors = 9,
    graphs = 10,
    sparse_tensor = 11,
    sparse_tensors = 12,
    type_proto = 13,
    type_protos = 14
  };
  std::string name, reference;  ///< reference: of a function's attribute
  Kind kind = Kind::undefined;
  float real = 0;
  std::int64_t integer = 0;
  std::string text;
  std::vector<float> reals;
  std::vector<std::int64_t> integers;
  std::vector<std::string> texts;
  std::vector<TensorProto> tensors;  ///< of `tensor` too
  std::vector<GraphProto> graphs;    ///< of `graph` too
};

struct NodeProto {
  std::string name, op_type, domain, overload;
  std::vector<std::string> inputs, outputs;
  std::vector<AttributeProto> attributes;
};

struct GraphProto {
  std::string name;
  std::vector<NodeProto> nodes;
  std::vector<TensorProto> initializers;
  std::vector<ValueInfo> inputs, outputs;
  bool sparse_initializers = false;
};

/// Versions by domain; the standard's domain is "".
using OpsetImports = std::map<std::string, std::int64_t>;

struct FunctionProto {
  std::string name, domain, overload;
  std::vector<std::string> inputs, outputs, attributes;
  std::vector<AttributeProto> defaults;
  std::vector<NodeProto> nodes;
  OpsetImports opsets;
};

struct ModelProto {
  std::int64_t ir_version = 0;
  OpsetImports opsets;
  GraphProto graph;
  std::vector<FunctionProto> functions;
  /// Positions in `functions` by domain, name and overload.
  std::map<std::array<std::string, 3>, std::size_t> function_index;
};

/// Reads a model or a single tensor; throws where the bytes are broken. Spans point into `bytes`.
ModelProto decode_model(ByteSpan bytes);
TensorProto decode_tensor(ByteSpan bytes);

/// The dtype of an ONNX element type, or nothing where rlx has none.
std::optional<DType> dtype_of_element(std::int32_t elem_type);
/// "float", "string", ...: the standard's name.
std::string element_name(std::int32_t elem_type);

}  // namespace rlx::onnx
