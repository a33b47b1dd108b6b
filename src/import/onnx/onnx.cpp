// Entry points of the ONNX importer.
#include "import/onnx/importer.hpp"
#include "import/onnx/model.hpp"
#include "rlx/import.hpp"

namespace rlx {
namespace {

using importing::Bytes;

Graph import_bytes(const Bytes& bytes, const std::filesystem::path& folder,
                   const ImportOptions& options, const CustomOps& custom) {
  const onnx::ModelProto model = onnx::decode_model(bytes.span());
  onnx::TensorSource source(bytes, folder);
  // Each round fixes the inputs whose values the round before asked for.
  std::set<std::string> fixed;
  while (true) {
    onnx::Importer importer(model, source, options, custom, fixed);
    auto graph = importing::guarded("", {}, [&] { return importer.import(); });
    const std::size_t before = fixed.size();
    fixed.insert(importer.wanted().begin(), importer.wanted().end());
    if (fixed.size() > before) continue;
    return std::move(graph).value();
  }
}

}  // namespace

Result<Graph> import_onnx(const std::filesystem::path& file, const ImportOptions& options,
                          const CustomOps& ops) {
  return importing::guarded("importing", file, [&] {
    const auto folder = file.parent_path();
    return import_bytes(importing::map_file(file), folder.empty() ? "." : folder, options, ops);
  });
}

Result<Graph> import_onnx(std::span<const std::byte> model, const ImportOptions& options,
                          const CustomOps& ops) {
  return importing::guarded("importing a model from memory", {}, [&] {
    return import_bytes(importing::borrow(model), {}, options, ops);
  });
}

Result<Graph> import_onnx(const std::filesystem::path& file, const ImportOptions& options) {
  return import_onnx(file, options, CustomOps());
}

Result<Graph> import_onnx(std::span<const std::byte> model, const ImportOptions& options) {
  return import_onnx(model, options, CustomOps());
}

}  // namespace rlx
