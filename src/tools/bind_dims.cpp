// Which dims a run has: from the given values, from --dim, and assumed ones for what is left.
#include <algorithm>

#include "base/error.hpp"
#include "tools/model_input.hpp"

namespace rlx::tools {
namespace {

class DimBinder {
 public:
  DimBinder(std::span<const DeclaredInput> inputs, const AssumedDims& otherwise)
      : inputs_(inputs), otherwise_(otherwise) {}

  Status bind_value(const DeclaredInput& input, const Tensor& value) {
    if (!input.shape) return {};
    if (input.shape->size() != value.dims().size()) return mismatch(input, value);
    for (std::size_t i = 0; i < input.shape->size(); ++i) {
      const Dim& dim = (*input.shape)[i];
      const std::int64_t size = value.dims()[i];
      if (dim.is_static() ? dim.value() != size : !bind_symbol(dim.text(), size)) {
        return mismatch(input, value);
      }
    }
    return {};
  }

  Status bind_option(const std::string& name, std::int64_t size) {
    std::string symbol = name;
    if (const Dim* dim = dim_at(name)) {
      if (dim->is_static() && dim->value() == size) return {};
      if (dim->is_static()) {
        return bad_input("The dim ({}) is {} in the model, not ({}).", name, dim->value(), size);
      }
      symbol = dim->text();
    }
    const auto symbols = all_symbols();
    if (std::find(symbols.begin(), symbols.end(), symbol) == symbols.end()) {
      return bad_input(
          "The model has no dim ({}); it has {}.", name,
          symbols.empty() ? "fixed dims alone" : fmt::format("{}", fmt::join(symbols, ", ")));
    }
    if (bind_symbol(symbol, size)) return {};
    return bad_input("The dim ({}) is {} by another option or value, not ({}).", name,
                     bound_.at(symbol), size);
  }

  Result<Dims> dims_of(const DeclaredInput& input) {
    if (!input.shape) {
      return bad_input("The model tells no shape for the input ({}); give its value.", input.name);
    }
    Dims dims;
    for (std::size_t axis = 0; axis < input.shape->size(); ++axis) {
      const Dim& dim = (*input.shape)[axis];
      if (dim.is_static()) {
        dims.push_back(dim.value());
        continue;
      }
      const auto [at, assumed] =
          bound_.emplace(dim.text(), assumed_size(axis, input.shape->size()));
      if (assumed) assumed_.push_back(fmt::format("{} = {}", dim.text(), at->second));
      dims.push_back(at->second);
    }
    return dims;
  }

  const std::vector<std::string>& assumed() const { return assumed_; }

 private:
  static Error mismatch(const DeclaredInput& input, const Tensor& value) {
    return bad_input("The value of input ({}) has the dims [{}]; the model wants {}.", input.name,
                     fmt::join(value.dims(), ","), Type{f32, *input.shape}.text().substr(3));
  }

  // The first axis is the batch.
  std::int64_t assumed_size(std::size_t axis, std::size_t rank) const {
    const bool larger = otherwise_.last_axis_alone ? axis + 1 == rank : axis > 0;
    return larger ? otherwise_.size : 1;
  }

  // False where the symbol has another value. Unknown dims take any.
  bool bind_symbol(const std::string& symbol, std::int64_t size) {
    return symbol == "?" || bound_.emplace(symbol, size).first->second == size;
  }

  std::vector<std::string> all_symbols() const {
    std::vector<std::string> symbols;
    for (const DeclaredInput& input : inputs_) {
      for (const Dim& dim : input.shape.value_or(Shape())) {
        const bool known = std::find(symbols.begin(), symbols.end(), dim.text()) != symbols.end();
        if (!dim.is_static() && !known) symbols.push_back(dim.text());
      }
    }
    return symbols;
  }

  // The dim that INPUT:AXIS names.
  const Dim* dim_at(const std::string& name) const {
    for (const DeclaredInput& input : inputs_) {
      for (std::size_t i = 0; input.shape && i < input.shape->size(); ++i) {
        if (name == input.name + ":" + std::to_string(i)) return &(*input.shape)[i];
      }
    }
    return nullptr;
  }

  std::span<const DeclaredInput> inputs_;
  const AssumedDims otherwise_;
  std::map<std::string, std::int64_t> bound_;
  std::vector<std::string> assumed_;
};

}  // namespace

Result<BoundDims> bind_dims(std::span<const DeclaredInput> inputs, const NamedTensors& given,
                            std::span<const std::pair<std::string, std::int64_t>> dims,
                            const AssumedDims& assumed) {
  DimBinder binder(inputs, assumed);
  for (const DeclaredInput& input : inputs) {
    const auto value = given.find(input.name);
    if (value != given.end()) RLX_TRY(binder.bind_value(input, value->second));
  }
  for (const auto& [name, size] : dims) RLX_TRY(binder.bind_option(name, size));
  BoundDims bound;
  for (const DeclaredInput& input : inputs) {
    const auto value = given.find(input.name);
    if (value != given.end()) {
      bound.input_dims[input.name] = value->second.dims();
    } else {
      RLX_ASSIGN(bound.input_dims[input.name], binder.dims_of(input));
    }
  }
  if (!binder.assumed().empty()) {
    bound.any_assumed = true;
    bound.notes.push_back(
        fmt::format("Dims that nothing gives are assumed: {}.", fmt::join(binder.assumed(), ", ")));
  }
  return bound;
}

}  // namespace rlx::tools
