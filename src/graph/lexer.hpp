// Tokens of the text form with their places.
#pragma once

#include <string>
#include <string_view>

#include "rlx/result.hpp"

namespace rlx {

enum class TokenKind { identifier, reference, number, string, punctuation, end };

/// A place in a text; lines and columns count from 1, columns in bytes.
struct TextPlace {
  int line = 1;
  int column = 1;
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string_view text;  ///< as written; of strings with their quotes
  TextPlace place;
};

/// Hands out tokens one by one; the text must outlive it.
class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}
  /// The next token; at the end of the text again and again an `end`.
  Result<Token> next();

 private:
  void skip_blanks();
  void advance(std::size_t count);
  Result<Token> string_token();

  std::string_view text_;
  std::size_t position_ = 0;
  TextPlace place_;
};

/// An error at a place: "Line 3, column 7: ...".
Error error_at(TextPlace place, std::string_view sentence);

/// What a string token means, escapes resolved.
Result<std::string> string_value(const Token& token);

}  // namespace rlx
