// Entry points of the ONNX importer.
#include "import/onnx/importer.hpp"
#include "import/onnx/model.hpp"
#include "rlx/import.hpp"

namespace rlx {
namespace {

using importing::Bytes;

Graph import_bytes(const Bytes& bytes, const std::filesystem::path& folder,
                   const ImportOptions& options) {
  const onnx::ModelProto model = onnx::decode_model(bytes.span());
  onnx::TensorSource source(bytes, folder);
  return onnx::Importer(model, source, options).import();
}

}  // namespace

Result<Graph> import_onnx(const std::filesystem::path& file, const ImportOptions& options) {
  return importing::guarded("importing " + file.string(), [&] {
    const auto folder = file.parent_path();
    return import_bytes(importing::map_file(file), folder.empty() ? "." : folder, options);
  });
}

Result<Graph> import_onnx(std::span<const std::byte> model, const ImportOptions& options) {
  return importing::guarded("importing a model from memory",
                         [&] { return import_bytes(importing::borrow(model), {}, options); });
}

}  // namespace rlx
