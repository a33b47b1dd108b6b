// Values of TensorProtos as tensors: shared with the mapped file where alignment allows, else
// converted.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "import/mapped_file.hpp"
#include "import/onnx/model.hpp"
#include "rlx/tensor.hpp"

namespace rlx::onnx {

/// Where the bytes of a model's tensors lie: in the model itself or in files of its folder.
class TensorSource {
 public:
  /// `folder`: where external data may lie; empty refuses external data.
  TensorSource(importing::Bytes model, std::filesystem::path folder)
      : model_(std::move(model)), folder_(std::move(folder)) {}

  /// Throws where the numbers do not fit the dims, the dtype is not supported, or external data
  /// lies outside the folder. With `any_alignment` a large tensor stays in the file wherever it
  /// lies there (rlx/mapped.hpp).
  Tensor load(const TensorProto& proto, bool any_alignment = false);

 private:
  ByteSpan external(const TensorProto& proto, const importing::Bytes*& owner);

  importing::Bytes model_;
  std::filesystem::path folder_;
  std::map<std::string, importing::Bytes> files_;
};

/// Product of dims, checked: throws for negative dims and for more than 2^46 elements.
std::int64_t checked_elements(const std::vector<std::int64_t>& dims, const std::string& what);

}  // namespace rlx::onnx
