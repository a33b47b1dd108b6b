// BERT's WordPiece tokenizer: text to the token ids that sentence encoders of the BERT family read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rlx/result.hpp"

namespace semantic_search {

/// Splits text as BERT's uncased models do: control characters dropped, accents stripped (NFD
/// without nonspacing marks), lower case, CJK ideographs and punctuation each a word of its own;
/// then each word into the longest pieces of the vocabulary, from the left. Text is only ever text:
/// "[SEP]" in it is three words, not a special token.
class WordPiece {
 public:
  /// Reads a vocabulary: one token a line, its id the line's number from 0. Errors: a file that
  /// cannot be read, no line for [UNK], [CLS] or [SEP].
  static rlx::Result<WordPiece> load(const std::string& path);

  /// The same from tokens in memory.
  static rlx::Result<WordPiece> from_tokens(const std::vector<std::string>& tokens);

  /// [CLS], the pieces of the text, [SEP]; pieces past length_max - 2 are cut off. Bytes that are
  /// no UTF-8 are dropped.
  std::vector<std::int64_t> encode(std::string_view text, std::size_t length_max = 256) const;

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };
  using Pieces = std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>>;

  void append_word(std::string_view word, std::vector<std::int64_t>& ids) const;

  Pieces first_;      // pieces that begin a word
  Pieces following_;  // pieces that go on, without their "##"
  std::int64_t unknown_ = 0, begin_ = 0, end_ = 0;
};

/// The words that WordPiece cuts up: normalised and split, in UTF-8.
std::vector<std::string> split_words(std::string_view text);

}  // namespace semantic_search
