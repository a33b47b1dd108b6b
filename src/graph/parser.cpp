// Reads the text form (docs/adr/0006): the mirror of printer.cpp. Hostile text ends in an error
// with its place.
#include <map>
#include <set>

#include "base/error.hpp"
#include "base/error_in_flight.hpp"
#include "graph/field_parser.hpp"
#include "graph/verify.hpp"
#include "rlx/custom.hpp"

namespace rlx {
namespace {

constexpr std::string_view version = "1";
// Graphs within graphs; far beyond what control flow nests.
constexpr int max_depth = 50;

class GraphParser {
 public:
  GraphParser(TokenStream& stream, const CustomOps& custom, int depth)
      : stream_(stream), custom_(custom), depth_(depth) {}

  Result<Graph> parse_block() {
    if (depth_ > max_depth) {
      return error_at(stream_.peek().place,
                      fmt::format("Graphs are nested deeper than ({}).", max_depth));
    }
    RLX_TRY(stream_.expect("graph"));
    const TextPlace begin = stream_.peek().place;
    RLX_TRY(stream_.expect("{"));
    std::vector<GraphOutput> outputs;
    while (!stream_.at("}")) {
      if (stream_.at("output")) {
        RLX_TRY(parse_output(outputs));
      } else {
        RLX_TRY(parse_node());
      }
    }
    graph_.set_outputs(std::move(outputs));
    if (const auto defect = find_defect(graph_, VerifyTypes::no)) {
      const bool of_node = defect->node >= 0;
      return error_at(of_node ? places_[static_cast<std::size_t>(defect->node)] : begin,
                      defect->sentence);
    }
    RLX_TRY(stream_.expect("}"));
    return std::move(graph_);
  }

 private:
  struct Definition {
    Token name;
    std::shared_ptr<void> attributes;
    std::vector<ValueId> inputs;
    std::optional<std::vector<Type>> types;
    TextPlace types_place;
    std::string node_name, origin;
  };

  Status parse_output(std::vector<GraphOutput>& outputs) {
    RLX_TRY(stream_.advance());
    RLX_ASSIGN(std::string name, parse_string(stream_));
    RLX_TRY(stream_.expect("="));
    RLX_ASSIGN(const ValueId value, parse_reference());
    outputs.push_back({std::move(name), value});
    return {};
  }

  Result<ValueId> parse_reference() {
    RLX_ASSIGN(const Token token, stream_.expect(TokenKind::reference, "a value (%...)"));
    const auto found = names_.find(token.text);
    if (found == names_.end()) {
      return error_at(token.place, fmt::format("Nothing above is called ({}).", token.text));
    }
    ValueId id{found->second, 0};
    RLX_ASSIGN(const bool dotted, stream_.take("."));
    if (dotted) {
      RLX_ASSIGN(const Token number, stream_.expect(TokenKind::number, "the number of a result"));
      if (number.text.size() > 4 ||
          number.text.find_first_not_of("0123456789") != std::string_view::npos) {
        return error_at(number.place, fmt::format("({}) is no number of a result.", number.text));
      }
      id.result = static_cast<std::int32_t>(std::stol(std::string(number.text)));
    }
    const std::size_t results = graph_.node(id).results.size();
    if (static_cast<std::size_t>(id.result) >= results) {
      return error_at(token.place, fmt::format("({}) has {} results; number ({}) is none of them.",
                                               token.text, results, id.result));
    }
    return id;
  }

  Status parse_node() {
    Definition node;
    RLX_ASSIGN(node.name, stream_.expect(TokenKind::reference, "a node, (output) or (})"));
    if (names_.count(node.name.text)) {
      return error_at(node.name.place, fmt::format("({}) is defined twice.", node.name.text));
    }
    RLX_TRY(stream_.expect("="));
    RLX_ASSIGN(const Token op, stream_.expect(TokenKind::identifier, "an op"));
    const OpInfo* info = find_op(op.text);
    if (!info) return error_at(op.place, fmt::format("There is no op ({}).", op.text));
    node.attributes = info->make();
    RLX_TRY(parse_inputs(node.inputs));
    RLX_TRY(parse_fields(*info, node.attributes.get()));
    RLX_TRY(parse_types(node));
    RLX_TRY(parse_texts(node));
    return add(*info, std::move(node), op.place);
  }

  Status parse_inputs(std::vector<ValueId>& inputs) {
    RLX_TRY(stream_.expect("("));
    while (!stream_.at(")")) {
      RLX_ASSIGN(const bool none, stream_.take("none"));
      ValueId id;
      if (!none) {
        RLX_ASSIGN(id, parse_reference());
      }
      inputs.push_back(id);
      RLX_ASSIGN(const bool more, stream_.take(","));
      if (!more && !stream_.at(")")) return stream_.expected("(,) or ())");
    }
    return stream_.advance();
  }

  Status parse_fields(const OpInfo& info, void* attributes) {
    RLX_ASSIGN(const bool any, stream_.take("{"));
    if (!any) return {};
    std::set<std::string_view> seen;
    const ParseGraph parse_graph = [this]() -> Result<GraphPointer> {
      RLX_ASSIGN(Graph graph, GraphParser(stream_, custom_, depth_ + 1).parse_block());
      return GraphPointer(std::make_shared<const Graph>(std::move(graph)));
    };
    while (!stream_.at("}")) {
      RLX_ASSIGN(const Token name, stream_.expect(TokenKind::identifier, "a field"));
      if (!seen.insert(name.text).second) {
        return error_at(name.place, fmt::format("The field ({}) is given twice.", name.text));
      }
      RLX_TRY(stream_.expect("="));
      RLX_TRY(parse_field(stream_, info, attributes, name, parse_graph));
      RLX_ASSIGN(const bool more, stream_.take(","));
      if (!more && !stream_.at("}")) return stream_.expected("(,) or (})");
    }
    return stream_.advance();
  }

  Status parse_types(Definition& node) {
    RLX_ASSIGN(const bool any, stream_.take(":"));
    if (!any) return {};
    node.types.emplace();
    node.types_place = stream_.peek().place;
    RLX_ASSIGN(const bool none, stream_.take("none"));
    if (none) return {};
    while (true) {
      RLX_ASSIGN(Type type, parse_type(stream_));
      node.types->push_back(std::move(type));
      RLX_ASSIGN(const bool more, stream_.take(","));
      if (!more) return {};
    }
  }

  Status parse_texts(Definition& node) {
    RLX_ASSIGN(const bool named, stream_.take("name"));
    if (named) {
      RLX_ASSIGN(node.node_name, parse_string(stream_));
    }
    RLX_ASSIGN(const bool from, stream_.take("origin"));
    if (from) {
      RLX_ASSIGN(node.origin, parse_string(stream_));
    }
    return {};
  }

  Status add(const OpInfo& info, Definition node, TextPlace place) {
    if (&info == &info_of<op::Custom>()) {
      auto& custom = *static_cast<op::Custom*>(node.attributes.get());
      custom.definition = custom_.find(custom.name);
    }
    auto added = graph_.try_add(Op(info, std::move(node.attributes)), node.inputs,
                                std::move(node.node_name), std::move(node.origin));
    if (!added.ok()) return error_at(place, added.error().message);
    const std::vector<Type>& inferred = graph_.nodes().back().results;
    if (node.types && !same_types(*node.types, inferred)) {
      return error_at(node.types_place, fmt::format("The op {} gives {}, not what stands here.",
                                                    info.name, type_list(inferred)));
    }
    names_[node.name.text] = static_cast<std::int32_t>(graph_.nodes().size() - 1);
    places_.push_back(place);
    return {};
  }

  TokenStream& stream_;
  const CustomOps& custom_;
  int depth_;
  Graph graph_;
  std::map<std::string_view, std::int32_t> names_;
  std::vector<TextPlace> places_;
};

Result<Graph> parse_text(std::string_view text, const CustomOps& custom) {
  TokenStream stream(text);
  RLX_TRY(stream.start());
  RLX_TRY(stream.expect("rlx"));
  if (!stream.at(version)) return stream.expected(fmt::format("the version ({})", version));
  RLX_TRY(stream.advance());
  RLX_ASSIGN(Graph graph, GraphParser(stream, custom, 0).parse_block());
  if (stream.peek().kind != TokenKind::end) return stream.expected("the end");
  return graph;
}

}  // namespace

Result<Graph> parse(std::string_view text) { return parse(text, CustomOps()); }

Result<Graph> parse(std::string_view text, const CustomOps& ops) {
  // Rules of ops may throw on attributes that no builder would make.
  try {
    return parse_text(text, ops);
  } catch (...) {
    return error_in_flight();
  }
}

}  // namespace rlx
