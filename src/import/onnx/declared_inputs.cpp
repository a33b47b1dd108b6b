// The inputs that a model declares, read past everything else: microseconds even for large models.
#include <optional>
#include <set>

#include "import/mapped_file.hpp"
#include "import/onnx/model.hpp"
#include "import/wire.hpp"
#include "rlx/import.hpp"

namespace rlx {
namespace {

using importing::WireField;
using importing::WireReader;
using Bytes = std::span<const std::byte>;

std::string text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Calls `act` for every field of a message with this number and kind; field numbers are those of
// the standard's onnx.proto.
template <class Act>
void each_message(Bytes message, std::uint32_t number, Act act) {
  for (WireReader reader(message); !reader.done();) {
    const WireField field = reader.next();
    if (field.tag() == importing::bytes_tag(number)) act(field.payload);
  }
}

Dim dim_of(Bytes message, const std::string& input, std::size_t axis) {
  Dim dim(input + ":" + std::to_string(axis));
  for (WireReader reader(message); !reader.done();) {
    const WireField field = reader.next();
    const auto value = static_cast<std::int64_t>(field.scalar);
    if (field.tag() == importing::varint_tag(1) && value >= 0) dim = value;
    if (field.tag() == importing::bytes_tag(2) && !field.payload.empty()) {
      dim = text_of(field.payload);
    }
  }
  return dim;
}

DeclaredInput input_of(Bytes value_info) {
  DeclaredInput input;
  each_message(value_info, 1, [&](Bytes name) { input.name = text_of(name); });
  each_message(value_info, 2, [&](Bytes type) {
    each_message(type, 1, [&](Bytes tensor) {
      for (WireReader reader(tensor); !reader.done();) {
        const WireField field = reader.next();
        if (field.tag() == importing::varint_tag(1)) {
          input.dtype = onnx::dtype_of_element(static_cast<std::int32_t>(field.scalar));
        }
      }
      each_message(tensor, 2, [&](Bytes shape) {
        input.shape.emplace();
        each_message(shape, 1, [&](Bytes dim) {
          input.shape->push_back(dim_of(dim, input.name, input.shape->size()));
        });
      });
    });
  });
  return input;
}

std::vector<DeclaredInput> inputs_of(Bytes model) {
  std::vector<DeclaredInput> inputs;
  std::set<std::string> initializers;
  each_message(model, 7, [&](Bytes graph) {
    for (WireReader reader(graph); !reader.done();) {
      const WireField field = reader.next();
      if (field.kind != WireField::Kind::bytes) continue;
      if (field.number == 11) inputs.push_back(input_of(field.payload));
      if (field.number == 5) {
        each_message(field.payload, 8, [&](Bytes name) { initializers.insert(text_of(name)); });
      }
    }
  });
  std::erase_if(inputs, [&](const auto& input) { return initializers.contains(input.name); });
  return inputs;
}

}  // namespace

Result<std::vector<DeclaredInput>> onnx_declared_inputs(const std::filesystem::path& file) {
  return importing::guarded("reading", file,
                            [&] { return inputs_of(importing::map_file(file).span()); });
}

}  // namespace rlx
