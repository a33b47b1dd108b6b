// Sentences to vectors: tokenizes, pads into batches, and runs a sentence encoder through rlx.
#pragma once

#include <string>
#include <vector>

#include <rlx/rlx.hpp>

#include "semantic_search/wordpiece.hpp"

namespace semantic_search {

/// A vector of length 1 for each sentence: the dot product of two is the cosine of their angle.
using Embedding = std::vector<float>;

/// A sentence encoder: an ONNX model with inputs input_ids, attention_mask and token_type_ids
/// i64[batch,sequence] and an output sentence_embedding f32[batch,width].
class Encoder {
 public:
  /// Errors: files that cannot be read, models that rlx does not support.
  static rlx::Result<Encoder> load(const std::string& model, const std::string& vocabulary);

  /// One embedding for each sentence, in their order.
  rlx::Result<std::vector<Embedding>> embed(const std::vector<std::string>& sentences);

 private:
  Encoder(WordPiece tokenizer, rlx::CompiledGraph program)
      : tokenizer_(std::move(tokenizer)), program_(std::move(program)) {}

  WordPiece tokenizer_;
  rlx::CompiledGraph program_;
};

/// The dot product of two vectors of the same length.
float similarity(const Embedding& a, const Embedding& b);

}  // namespace semantic_search
