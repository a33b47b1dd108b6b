// BERT's normalisation and word splitting (Unicode's data from utf8proc), and the greedy piece
// search.
#include "semantic_search/wordpiece.hpp"

#include <utf8proc.h>

#include <array>
#include <fstream>
#include <utility>

namespace semantic_search {
namespace {

/// A word of more characters than this is unknown as a whole, as in BERT's own tokenizer.
constexpr std::size_t word_characters_max = 100;

using CodePoint = utf8proc_int32_t;

bool is_control(CodePoint c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CS: return true;
    default: return false;
  }
}

bool is_space(CodePoint c) {
  if (c == ' ' || c == '\t' || c == '\n' || c == '\r') return true;
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return true;
    default: return false;
  }
}

/// All of ASCII that is neither letter, digit, space nor control counts, "$" and "~" too.
bool is_punctuation(CodePoint c) {
  if (c < 128) {
    return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
           (c >= 123 && c <= 126);
  }
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return true;
    default: return false;
  }
}

/// The blocks of CJK ideographs, whose words are not set apart by spaces. Kana and Hangul are not
/// among them.
bool is_ideograph(CodePoint c) {
  constexpr std::array<std::pair<CodePoint, CodePoint>, 8> blocks = {{{0x4E00, 0x9FFF},
                                                                      {0x3400, 0x4DBF},
                                                                      {0x20000, 0x2A6DF},
                                                                      {0x2A700, 0x2B73F},
                                                                      {0x2B740, 0x2B81F},
                                                                      {0x2B820, 0x2CEAF},
                                                                      {0xF900, 0xFAFF},
                                                                      {0x2F800, 0x2FA1F}}};
  for (const auto& [first, last] : blocks) {
    if (c >= first && c <= last) return true;
  }
  return false;
}

void append_utf8(CodePoint c, std::string& text) {
  std::array<utf8proc_uint8_t, 4> bytes;
  const auto size = utf8proc_encode_char(c, bytes.data());
  text.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(size));
}

/// Collects characters into words.
class Splitter {
 public:
  void add(CodePoint c) { append_utf8(c, word_); }
  void add_alone(CodePoint c) {
    end_word();
    add(c);
    end_word();
  }
  void end_word() {
    if (!word_.empty()) words_.push_back(std::exchange(word_, {}));
  }
  std::vector<std::string> finish() {
    end_word();
    return std::move(words_);
  }

 private:
  std::string word_;
  std::vector<std::string> words_;
};

/// One character of the text: decomposed, without nonspacing marks, in lower case.
void add_normalised(CodePoint c, Splitter& splitter) {
  std::array<CodePoint, 32> parts;
  int boundary = 0;
  const auto count =
      utf8proc_decompose_char(c, parts.data(), parts.size(), UTF8PROC_DECOMPOSE, &boundary);
  for (utf8proc_ssize_t i = 0; i < count && i < static_cast<utf8proc_ssize_t>(parts.size()); ++i) {
    const CodePoint part = parts[static_cast<std::size_t>(i)];
    if (utf8proc_category(part) == UTF8PROC_CATEGORY_MN) continue;
    const CodePoint lower = utf8proc_tolower(part);
    is_punctuation(lower) ? splitter.add_alone(lower) : splitter.add(lower);
  }
}

std::size_t count_characters(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

}  // namespace

std::vector<std::string> split_words(std::string_view text) {
  Splitter splitter;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  std::size_t at = 0;
  while (at < text.size()) {
    CodePoint c = 0;
    const auto size =
        utf8proc_iterate(bytes + at, static_cast<utf8proc_ssize_t>(text.size() - at), &c);
    if (size <= 0) {
      ++at;
      continue;
    }
    at += static_cast<std::size_t>(size);
    if (c == 0 || c == 0xFFFD || is_control(c)) continue;
    if (is_space(c)) {
      splitter.end_word();
    } else if (is_ideograph(c)) {
      splitter.end_word();
      add_normalised(c, splitter);
      splitter.end_word();
    } else {
      add_normalised(c, splitter);
    }
  }
  return splitter.finish();
}

rlx::Result<WordPiece> WordPiece::from_tokens(const std::vector<std::string>& tokens) {
  WordPiece result;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const std::string_view token = tokens[id];
    const auto number = static_cast<std::int64_t>(id);
    if (token.size() > 2 && token.starts_with("##")) {
      result.following_.emplace(token.substr(2), number);
    } else {
      result.first_.emplace(token, number);
    }
  }
  for (const auto& [token, place] :
       {std::pair{"[UNK]", &result.unknown_}, {"[CLS]", &result.begin_}, {"[SEP]", &result.end_}}) {
    const auto found = result.first_.find(std::string_view(token));
    if (found == result.first_.end()) {
      return rlx::Error{rlx::ErrorKind::bad_input,
                        "The vocabulary has no token (" + std::string(token) + ")."};
    }
    *place = found->second;
  }
  return result;
}

rlx::Result<WordPiece> WordPiece::load(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> tokens;
  for (std::string line; std::getline(file, line);) {
    if (line.ends_with('\r')) line.pop_back();
    tokens.push_back(std::move(line));
  }
  if (tokens.empty()) {
    return rlx::Error{rlx::ErrorKind::bad_input, "Cannot read a vocabulary from (" + path + ")."};
  }
  auto result = from_tokens(tokens);
  if (!result.ok()) return std::move(result.error()).while_("reading " + path);
  return result;
}

void WordPiece::append_word(std::string_view word, std::vector<std::int64_t>& ids) const {
  if (count_characters(word) > word_characters_max) return ids.push_back(unknown_);
  const std::size_t ids_before = ids.size();
  for (std::size_t start = 0; start < word.size();) {
    const Pieces& pieces = start == 0 ? first_ : following_;
    std::size_t end = word.size();
    auto found = pieces.end();
    for (; end > start; --end) {
      found = pieces.find(word.substr(start, end - start));
      if (found != pieces.end()) break;
    }
    if (found == pieces.end()) {
      ids.resize(ids_before);
      return ids.push_back(unknown_);
    }
    ids.push_back(found->second);
    start = end;
  }
}

std::vector<std::int64_t> WordPiece::encode(std::string_view text, std::size_t length_max) const {
  std::vector<std::int64_t> ids = {begin_};
  for (const auto& word : split_words(text)) {
    append_word(word, ids);
    if (ids.size() + 1 >= length_max) break;
  }
  if (ids.size() + 1 > length_max) ids.resize(length_max < 2 ? 1 : length_max - 1);
  ids.push_back(end_);
  return ids;
}

}  // namespace semantic_search
