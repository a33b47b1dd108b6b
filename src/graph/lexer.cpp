// Splits the text form into tokens.
#include "graph/lexer.hpp"

#include <charconv>

#include "base/error.hpp"

namespace rlx {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) {
  return c == '_' || is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

std::size_t word_length(std::string_view text, std::size_t from) {
  while (from < text.size() && is_word(text[from])) ++from;
  return from;
}

// A sign, then letters, digits, points, and the sign of an exponent: what is no number in the end,
// the reader of the field tells.
std::size_t number_length(std::string_view text) {
  std::size_t length = 1;
  while (length < text.size()) {
    const char c = text[length], before = text[length - 1];
    const bool exponent_sign = (c == '+' || c == '-') && (before == 'e' || before == 'E');
    if (!is_word(c) && c != '.' && !exponent_sign) break;
    ++length;
  }
  return length;
}

}  // namespace

Error error_at(TextPlace place, std::string_view sentence) {
  return bad_input("Line {}, column {}: {}", place.line, place.column, sentence);
}

void Lexer::advance(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (text_[position_++] == '\n') {
      ++place_.line;
      place_.column = 1;
    } else {
      ++place_.column;
    }
  }
}

void Lexer::skip_blanks() {
  while (position_ < text_.size()) {
    const char c = text_[position_];
    if (c == '#') {
      const std::size_t end = text_.find('\n', position_);
      advance((end == std::string_view::npos ? text_.size() : end) - position_);
    } else if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
      advance(1);
    } else {
      return;
    }
  }
}

Result<Token> Lexer::string_token() {
  std::size_t length = 1;
  const std::string_view rest = text_.substr(position_);
  while (length < rest.size() && rest[length] != '"' && rest[length] != '\n') {
    length += rest[length] == '\\' ? 2 : 1;
  }
  if (length >= rest.size() || rest[length] != '"') {
    return error_at(place_, "The string has no closing quote on its line.");
  }
  const Token token{TokenKind::string, rest.substr(0, length + 1), place_};
  advance(length + 1);
  return token;
}

Result<Token> Lexer::next() {
  skip_blanks();
  const std::string_view rest = text_.substr(position_);
  if (rest.empty()) return Token{TokenKind::end, {}, place_};
  const char c = rest[0];
  if (c == '"') return string_token();
  Token token{TokenKind::punctuation, rest.substr(0, 1), place_};
  if (is_digit(c) || c == '-') {
    token.kind = TokenKind::number;
    token.text = rest.substr(0, number_length(rest));
  } else if (c == '%') {
    token.kind = TokenKind::reference;
    token.text = rest.substr(0, word_length(rest, 1));
    if (token.text.size() == 1) return error_at(place_, "A name must follow the sign (%).");
  } else if (is_word(c)) {
    token.kind = TokenKind::identifier;
    token.text = rest.substr(0, word_length(rest, 0));
  } else if (std::string_view("{}[](),=:.?").find(c) == std::string_view::npos) {
    const auto byte = static_cast<unsigned char>(c);
    return error_at(place_, byte < 0x20 || byte > 0x7e
                                ? fmt::format("The byte (0x{:02x}) has no meaning here.", byte)
                                : fmt::format("The sign ({}) has no meaning here.", c));
  }
  advance(token.text.size());
  return token;
}

Result<std::string> string_value(const Token& token) {
  std::string value;
  const std::string_view text = token.text.substr(1, token.text.size() - 2);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      value += text[i];
      continue;
    }
    const char c = ++i < text.size() ? text[i] : '\0';
    if (c == '"' || c == '\\') {
      value += c;
    } else if (c == 'n') {
      value += '\n';
    } else if (c == 'x' && i + 2 < text.size()) {
      unsigned byte = 0;
      const char* end = text.data() + i + 3;
      if (std::from_chars(text.data() + i + 1, end, byte, 16).ptr != end) {
        return error_at(token.place, "The string has an escape that is no byte (\\x..).");
      }
      value += static_cast<char>(byte);
      i += 2;
    } else {
      return error_at(token.place,
                      "The string has an escape other than \\\", \\\\, \\n and \\x...");
    }
  }
  return value;
}

}  // namespace rlx
