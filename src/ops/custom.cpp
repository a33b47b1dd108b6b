// Ops that users define: what they are given, where they are kept, and their place in the table.
#include "rlx/custom.hpp"

#include <charconv>

#include "graph/rules.hpp"

namespace rlx {
namespace {

template <class T>
T number_of(std::string_view name, std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end)
    throw Exception(bad_input("The attribute {} ({}) is no such number.", name, text));
  return value;
}

std::string joined_names(const CustomOps& ops) {
  std::string list;
  for (const std::string& name : ops.names()) list += (list.empty() ? "" : ", ") + name;
  return list.empty() ? "none" : list;
}

/// Whatever a user's function throws, as an error that names the op.
template <class Call>
auto guarded(const op::Custom& a, Call call) -> decltype(call()) {
  const auto place = [&] { return fmt::format("running the custom op ({})", a.name); };
  try {
    auto result = call();
    if (result.ok()) return result;
    return Error(result.error()).while_(place());
  } catch (const Exception& exception) {
    return Error(exception.error()).while_(place());
  } catch (const std::exception& exception) {
    return bad_input("The custom op ({}) failed: {}.", a.name, exception.what());
  }
}

}  // namespace

std::optional<std::string_view> CustomAttributes::find(std::string_view name) const {
  for (const std::string_view text : texts_) {
    if (text.size() > name.size() && text.starts_with(name) && text[name.size()] == '=')
      return text.substr(name.size() + 1);
  }
  return std::nullopt;
}

double CustomAttributes::number(std::string_view name, double otherwise) const {
  const auto text = find(name);
  return text ? number_of<double>(name, *text) : otherwise;
}

std::int64_t CustomAttributes::integer(std::string_view name, std::int64_t otherwise) const {
  const auto text = find(name);
  return text ? number_of<std::int64_t>(name, *text) : otherwise;
}

Status CustomOps::add(CustomOp op) {
  if (op.name.empty() || !op.infer || !op.eval)
    return bad_input("The custom op ({}) lacks its name, infer or eval.", op.name);
  if (ops_.contains(op.name)) return bad_input("The custom op ({}) is already there.", op.name);
  auto kept = std::make_shared<const CustomOp>(std::move(op));
  ops_.emplace(kept->name, kept);
  return {};
}

std::shared_ptr<const CustomOp> CustomOps::find(std::string_view name) const {
  const auto found = ops_.find(name);
  return found == ops_.end() ? nullptr : found->second;
}

std::vector<std::string> CustomOps::names() const {
  std::vector<std::string> list;
  for (const auto& [name, op] : ops_) list.push_back(name);
  return list;
}

// whatever its definition says
template <>
struct Rules<op::Custom> {
  static constexpr std::string_view name = "custom";
  static constexpr Arity arity{0, -1};
  static constexpr OpTraits traits{.host_only = true};
  static constexpr auto fields =
      std::tuple{field("name", &op::Custom::name), field("attributes", &op::Custom::attributes)};
  static Result<std::vector<Type>> infer(const op::Custom& a, const InferArgs& args) {
    if (!a.definition) return bad_input("The custom op ({}) is not registered.", a.name);
    const CustomOp& op = *a.definition;
    if (args.count() < op.min_inputs || (op.max_inputs >= 0 && args.count() > op.max_inputs)) {
      return bad_input("The custom op ({}) takes {} to {} inputs, not ({}).", a.name, op.min_inputs,
                       op.max_inputs < 0 ? "any number of" : std::to_string(op.max_inputs),
                       args.count());
    }
    std::vector<Type> types;
    for (int i = 0; i < args.count(); ++i) {
      if (!args.has(i))
        return bad_input("The input ({}) of the custom op ({}) is left out.", i, a.name);
      types.push_back(args[i]);
    }
    return guarded(a, [&] { return op.infer(CustomAttributes(a.attributes), types); });
  }
  static Status eval(const op::Custom& a, const EvalArgs& args) {
    return guarded(a, [&] {
      return a.definition->eval(CustomAttributes(a.attributes), args.inputs, args.outputs);
    });
  }
  static OpCost cost(const op::Custom& a, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    OpCost whole;
    std::vector<Type> types;
    for (const Type* type : inputs) {
      types.push_back(*type);
      whole.bytes += static_cast<double>(type->bytes());
    }
    for (const Type& type : results) {
      whole.bytes += static_cast<double>(type.bytes());
      whole.flops += static_cast<double>(type.elements());
    }
    if (!a.definition || !a.definition->cost) return whole;
    const CustomCost own = a.definition->cost(CustomAttributes(a.attributes), types, results);
    return {own.flops, own.bytes};
  }
  /// Instances need a definition, which no text can give.
  static std::vector<Sample> samples() { return {}; }
};

template <>
const OpInfo& info_of<op::Custom>() {
  static const OpInfo info = [] {
    OpInfo made = op_info_from_rules<op::Custom>("control");
    made.equal = [](const void* a, const void* b) {
      const auto &x = *static_cast<const op::Custom*>(a), &y = *static_cast<const op::Custom*>(b);
      return x.name == y.name && x.attributes == y.attributes && x.definition == y.definition;
    };
    return made;
  }();
  return info;
}

std::vector<Value> custom(const CustomOps& ops, std::string_view name,
                          std::span<const Value> inputs, std::vector<std::string> attributes) {
  if (inputs.empty())
    throw Exception(bad_input("The custom op ({}) needs an input to tell its graph.", name));
  const auto definition = ops.find(name);
  if (!definition) {
    throw Exception(
        bad_input("There is no custom op ({}); there are: {}.", name, joined_names(ops)));
  }
  return inputs[0].graph().add(
      op::Custom{std::string(name), std::move(attributes), std::move(definition)}, inputs);
}

Value custom(const CustomOps& ops, std::string_view name, std::initializer_list<Value> inputs,
             std::vector<std::string> attributes) {
  const Values results =
      custom(ops, name, std::span(inputs.begin(), inputs.size()), std::move(attributes));
  if (results.size() != 1)
    throw Exception(
        bad_input("The custom op ({}) has ({}) results, not one.", name, results.size()));
  return results[0];
}

}  // namespace rlx
