// Values of the text form: the readers that mirror the printer's.
#include "graph/field_parser.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/error.hpp"
#include "graph/literal.hpp"

namespace rlx {

Status TokenStream::advance() {
  RLX_ASSIGN(token_, lexer_.next());
  return {};
}

Error TokenStream::expected(std::string_view what) const {
  const std::string found =
      token_.kind == TokenKind::end ? "the end" : fmt::format("({})", token_.text.substr(0, 40));
  return error_at(token_.place, fmt::format("expected {}, not {}.", what, found));
}

Result<bool> TokenStream::take(std::string_view text) {
  if (!at(text)) return false;
  RLX_TRY(advance());
  return true;
}

Status TokenStream::expect(std::string_view text) {
  if (!at(text)) return expected(fmt::format("({})", text));
  return advance();
}

Result<Token> TokenStream::expect(TokenKind kind, std::string_view what) {
  if (token_.kind != kind) return expected(what);
  const Token token = token_;
  RLX_TRY(advance());
  return token;
}

namespace {

template <class T>
Result<T> parse_number(TokenStream& stream, std::string_view what) {
  const Token token = stream.peek();
  const char* end = token.text.data() + token.text.size();
  T value{};
  const bool word = token.kind == TokenKind::number || token.kind == TokenKind::identifier;
  if (!word) return stream.expected(what);
  const auto [stop, error] = std::from_chars(token.text.data(), end, value);
  if (error != std::errc() || stop != end) return stream.expected(what);
  RLX_TRY(stream.advance());
  return value;
}

Result<std::int64_t> parse_integer(TokenStream& stream) {
  return parse_number<std::int64_t>(stream, "a whole number of 64 bits");
}

Result<double> parse_double(TokenStream& stream) {
  return parse_number<double>(stream, "a number");
}

Result<bool> parse_bool(TokenStream& stream) {
  const bool value = stream.at("true");
  if (!value && !stream.at("false")) return stream.expected("true or false");
  RLX_TRY(stream.advance());
  return value;
}

Result<DType> parse_dtype(TokenStream& stream) {
  const auto dtype = dtype_named(stream.peek().text);
  if (!dtype) return stream.expected("a dtype");
  RLX_TRY(stream.advance());
  return *dtype;
}

Result<Dim> parse_dim(TokenStream& stream) {
  const Token token = stream.peek();
  if (token.kind == TokenKind::number) {
    RLX_ASSIGN(const std::int64_t value, parse_integer(stream));
    return Dim(value);
  }
  if (token.kind == TokenKind::string) {
    RLX_ASSIGN(std::string text, parse_string(stream));
    if (text.empty()) return error_at(token.place, "The name of a dim is empty.");
    return Dim(std::move(text));
  }
  if (token.kind != TokenKind::identifier && token.text != "?") return stream.expected("a dim");
  RLX_TRY(stream.advance());
  return Dim(std::string(token.text));
}

// "[" items between commas "]", by any reader.
template <class Parse>
auto parse_list(TokenStream& stream, Parse parse)
    -> Result<std::vector<std::decay_t<decltype(*parse(stream))>>> {
  std::vector<std::decay_t<decltype(*parse(stream))>> items;
  RLX_TRY(stream.expect("["));
  if (!stream.at("]")) {
    while (true) {
      RLX_ASSIGN(auto item, parse(stream));
      items.push_back(std::move(item));
      RLX_ASSIGN(const bool more, stream.take(","));
      if (!more) break;
    }
  }
  RLX_TRY(stream.expect("]"));
  return items;
}

Result<Tensor> inline_tensor(TokenStream& stream, const Type& type, std::int64_t numbers) {
  std::vector<Token> tokens;
  RLX_TRY(stream.expect("{"));
  const TextPlace place = stream.peek().place;
  while (!stream.at("}")) {
    const TokenKind kind = stream.peek().kind;
    if (kind != TokenKind::number && kind != TokenKind::identifier)
      return stream.expected("a number");
    tokens.push_back(stream.peek());
    RLX_TRY(stream.advance());
    RLX_ASSIGN(const bool more, stream.take(","));
    if (!more && !stream.at("}")) return stream.expected("(,) or (})");
  }
  RLX_TRY(stream.advance());
  if (static_cast<std::int64_t>(tokens.size()) != numbers) {
    return error_at(place, fmt::format("A tensor {} has {} numbers, not ({}).", type.text(),
                                       numbers, tokens.size()));
  }
  Tensor tensor(type.dtype, type.dims());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (!literal::store_element(type.dtype, tokens[i].text, tensor.mutable_data(),
                                static_cast<std::int64_t>(i))) {
      return error_at(tokens[i].place,
                      fmt::format("({}) is no value of {}.", tokens[i].text, name_of(type.dtype)));
    }
  }
  return tensor;
}

Result<Tensor> parse_tensor(TokenStream& stream) {
  RLX_ASSIGN(const bool none, stream.take("none"));
  if (none) return Tensor();
  const TextPlace place = stream.peek().place;
  RLX_ASSIGN(const Type type, parse_type(stream));
  std::int64_t numbers = literal::components(type.dtype);
  for (const Dim& dim : type.shape) {
    if (!dim.is_static() || __builtin_mul_overflow(numbers, dim.value(), &numbers) ||
        numbers > std::int64_t{1} << 40) {
      return error_at(place, fmt::format("The dims of a tensor {} are no sizes.", type.text()));
    }
  }
  if (stream.at("{")) return inline_tensor(stream, type, numbers);
  RLX_TRY(stream.expect("base64"));
  const Token text = stream.peek();
  if (text.kind != TokenKind::string) return stream.expected("a string");
  RLX_TRY(stream.advance());
  const auto bytes = literal::bytes_of_base64(text.text.substr(1, text.text.size() - 2));
  if (!bytes || bytes->size() != static_cast<std::size_t>(type.bytes())) {
    return error_at(text.place, fmt::format("The string is no base64 of the {} bytes of {}.",
                                            type.bytes(), type.text()));
  }
  Tensor tensor(type.dtype, type.dims());
  std::copy(bytes->begin(), bytes->end(), tensor.mutable_data());
  return tensor;
}

// Reads the one field that is named; the op's visitor brings it to the overload of its type.
class FieldReader : public MutableFieldVisitor {
 public:
  FieldReader(TokenStream& stream, std::string_view wanted, const ParseGraph& parse_graph)
      : stream_(stream), wanted_(wanted), parse_graph_(parse_graph) {}
  bool found() const { return found_; }
  Status take_status() { return std::move(status_); }

  void visit(std::string_view name, bool& value) override { read(name, value, parse_bool); }
  void visit(std::string_view name, std::int64_t& value) override {
    read(name, value, parse_integer);
  }
  void visit(std::string_view name, std::uint64_t& value) override {
    read(name, value, [](TokenStream& stream) {
      return parse_number<std::uint64_t>(stream, "a whole number of 64 bits, not negative");
    });
  }
  void visit(std::string_view name, double& value) override { read(name, value, parse_double); }
  void visit(std::string_view name, std::string& value) override {
    read(name, value, parse_string);
  }
  void visit(std::string_view name, DType& value) override { read(name, value, parse_dtype); }
  void visit(std::string_view name, std::vector<std::int64_t>& value) override {
    read(name, value, [](TokenStream& stream) { return parse_list(stream, parse_integer); });
  }
  void visit(std::string_view name, std::vector<double>& value) override {
    read(name, value, [](TokenStream& stream) { return parse_list(stream, parse_double); });
  }
  void visit(std::string_view name, std::vector<std::string>& value) override {
    read(name, value, [](TokenStream& stream) { return parse_list(stream, parse_string); });
  }
  void visit(std::string_view name, Shape& value) override {
    read(name, value, [](TokenStream& stream) { return parse_list(stream, parse_dim); });
  }
  void visit(std::string_view name, Tensor& value) override { read(name, value, parse_tensor); }
  void visit(std::string_view name, std::optional<std::int64_t>& value) override {
    read_optional(name, value, parse_integer);
  }
  void visit(std::string_view name, std::optional<double>& value) override {
    read_optional(name, value, parse_double);
  }
  void visit(std::string_view name, GraphPointer& value) override {
    read(name, value, [this](TokenStream& stream) -> Result<GraphPointer> {
      RLX_ASSIGN(const bool none, stream.take("none"));
      if (none) return GraphPointer();
      return parse_graph_();
    });
  }
  void visit(std::string_view name, EnumField field) override {
    read(name, *field.value, [&](TokenStream& stream) -> Result<std::uint8_t> {
      const auto at = std::find(field.names.begin(), field.names.end(), stream.peek().text);
      if (at == field.names.end()) {
        return stream.expected(fmt::format("one of {}", fmt::join(field.names, ", ")));
      }
      RLX_TRY(stream.advance());
      return static_cast<std::uint8_t>(at - field.names.begin());
    });
  }

 private:
  template <class T, class Parse>
  void read(std::string_view name, T& value, Parse parse) {
    if (found_ || name != wanted_) return;
    found_ = true;
    auto result = parse(stream_);
    if (result.ok()) value = *std::move(result);
    else status_ = std::move(result.error());
  }

  template <class T, class Parse>
  void read_optional(std::string_view name, std::optional<T>& value, Parse parse) {
    read(name, value, [&](TokenStream& stream) -> Result<std::optional<T>> {
      RLX_ASSIGN(const bool none, stream.take("none"));
      if (none) return std::optional<T>();
      RLX_ASSIGN(const T number, parse(stream));
      return std::optional<T>(number);
    });
  }

  TokenStream& stream_;
  std::string_view wanted_;
  const ParseGraph& parse_graph_;
  bool found_ = false;
  Status status_;
};

}  // namespace

Result<std::string> parse_string(TokenStream& stream) {
  RLX_ASSIGN(const Token token, stream.expect(TokenKind::string, "a string"));
  return string_value(token);
}

Result<Type> parse_type(TokenStream& stream) {
  RLX_ASSIGN(const DType dtype, parse_dtype(stream));
  RLX_ASSIGN(Shape shape, parse_list(stream, parse_dim));
  return Type{dtype, std::move(shape)};
}

Status parse_field(TokenStream& stream, const OpInfo& info, void* attributes, const Token& name,
                   const ParseGraph& parse_graph) {
  FieldReader reader(stream, name.text, parse_graph);
  info.visit_mutable(attributes, reader);
  if (!reader.found()) {
    return error_at(name.place, fmt::format("The op {} has no field ({}).", info.name, name.text));
  }
  return reader.take_status();
}

}  // namespace rlx
