// Reads values of the text form (dims, types, tensors, fields of ops) from a stream of tokens.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/lexer.hpp"
#include "graph/op_info.hpp"

namespace rlx {

/// Tokens with one of look-ahead.
class TokenStream {
 public:
  explicit TokenStream(std::string_view text) : lexer_(text) {}
  /// Reads the first token; must be called once before all else.
  Status start() { return advance(); }
  const Token& peek() const { return token_; }
  Status advance();
  bool at(std::string_view text) const {
    return token_.text == text && token_.kind != TokenKind::string;
  }
  /// Takes the token if it is this one.
  Result<bool> take(std::string_view text);
  Status expect(std::string_view text);
  Result<Token> expect(TokenKind kind, std::string_view what);
  /// An error at the current token: "Line 1, column 2: expected WHAT, not (token)."
  Error expected(std::string_view what) const;

 private:
  Lexer lexer_;
  Token token_;
};

Result<Type> parse_type(TokenStream& stream);
Result<std::string> parse_string(TokenStream& stream);

/// Reads a nested graph, from its word `graph` on.
using ParseGraph = std::function<Result<GraphPointer>()>;

/// Reads the value of field `name` into the attributes of `info`.
Status parse_field(TokenStream& stream, const OpInfo& info, void* attributes, const Token& name,
                   const ParseGraph& parse_graph);

}  // namespace rlx
