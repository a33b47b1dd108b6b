// Leaves: inputs, params, constants, states and their updates, iota.
#include <algorithm>

#include "graph/rules.hpp"
#include "ops/families.hpp"

namespace rlx {

namespace {
constexpr OpTraits leaf{.metadata = true, .stateful = true};
std::vector<Type> one(DType dtype, Shape shape) { return {Type{dtype, std::move(shape)}}; }
}  // namespace

template <>
struct Rules<op::Input> {
  static constexpr std::string_view name = "input";
  static constexpr Arity arity{0, 0};
  static constexpr OpTraits traits = leaf;
  static constexpr auto fields =
      std::tuple{field("name", &op::Input::name), field("dtype", &op::Input::dtype),
                 field("shape", &op::Input::shape)};
  static Result<std::vector<Type>> infer(const op::Input& a, const InferArgs&) {
    return one(a.dtype, a.shape);
  }
  static std::vector<Sample> samples() { return {}; }
};
RLX_OP(op::Input, "leaf")

template <>
struct Rules<op::Param> {
  static constexpr std::string_view name = "param";
  static constexpr Arity arity{0, 0};
  static constexpr OpTraits traits = leaf;
  static constexpr auto fields =
      std::tuple{field("name", &op::Param::name), field("dtype", &op::Param::dtype),
                 field("dims", &op::Param::dims)};
  static Result<std::vector<Type>> infer(const op::Param& a, const InferArgs&) {
    if (!a.data.empty() && (a.data.dtype() != a.dtype || a.data.dims() != a.dims)) {
      return bad_input("The data of param ({}) is {}, declared is {}.", a.name,
                       Type{a.data.dtype(), to_shape(a.data.dims())}.text(),
                       Type{a.dtype, to_shape(a.dims)}.text());
    }
    return one(a.dtype, to_shape(a.dims));
  }
  static std::vector<Sample> samples() { return {}; }
};
RLX_OP(op::Param, "leaf")

template <>
struct Rules<op::Constant> {
  static constexpr std::string_view name = "constant";
  static constexpr Arity arity{0, 0};
  static constexpr OpTraits traits{.metadata = true};
  static constexpr auto fields = std::tuple{field("value", &op::Constant::value)};
  static Result<std::vector<Type>> infer(const op::Constant& a, const InferArgs&) {
    return one(a.value.dtype(), to_shape(a.value.dims()));
  }
  static Status eval(const op::Constant& a, const EvalArgs& args) {
    std::copy(a.value.data(), a.value.data() + a.value.bytes(), args.out(0).data);
    return {};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::Constant{Tensor::of<float>({2}, {1.5f, -0.25f})}, .inputs = {}}};
  }
};
RLX_OP(op::Constant, "leaf")

template <>
struct Rules<op::State> {
  static constexpr std::string_view name = "state";
  static constexpr Arity arity{0, 0};
  static constexpr OpTraits traits = leaf;
  static constexpr auto fields =
      std::tuple{field("name", &op::State::name), field("dtype", &op::State::dtype),
                 field("dims", &op::State::dims)};
  static Result<std::vector<Type>> infer(const op::State& a, const InferArgs&) {
    return one(a.dtype, to_shape(a.dims));
  }
  static std::vector<Sample> samples() { return {}; }
};
RLX_OP(op::State, "leaf")

template <>
struct Rules<op::Update> {
  static constexpr std::string_view name = "update";
  static constexpr Arity arity{2, 2};
  static constexpr OpTraits traits{.stateful = true};
  static constexpr auto fields = std::tuple{field("name", &op::Update::name)};
  static Result<std::vector<Type>> infer(const op::Update& a, const InferArgs& args) {
    if (args[0] != args[1]) {
      return bad_input("The state ({}) is {} and cannot take {}.", a.name, args[0].text(),
                       args[1].text());
    }
    return std::vector<Type>{args[1]};
  }
  static std::vector<Sample> samples() { return {}; }
};
RLX_OP(op::Update, "leaf")

template <>
struct Rules<op::Iota> {
  static constexpr std::string_view name = "iota";
  static constexpr Arity arity{0, 0};
  static constexpr OpTraits traits{};
  static constexpr auto fields =
      std::tuple{field("dtype", &op::Iota::dtype), field("shape", &op::Iota::shape),
                 field("axis", &op::Iota::axis)};
  static Result<std::vector<Type>> infer(const op::Iota& a, const InferArgs&) {
    const Type type{a.dtype, a.shape};
    RLX_TRY(normalize_axis(a.axis, type.rank(), type));
    return std::vector<Type>{type};
  }
  static Status eval(const op::Iota& a, const EvalArgs& args) {
    const MutableTensorView& out = args.out(0);
    const auto axis = static_cast<std::size_t>(a.axis < 0 ? a.axis + out.rank() : a.axis);
    std::int64_t inner = 1;
    for (std::size_t i = axis + 1; i < out.dims.size(); ++i) inner *= out.dims[i];
    for (std::int64_t i = 0; i < out.elements(); ++i) {
      const std::int64_t position = i / inner % out.dims[axis];
      store_datum(out.dtype, out.data, i, {static_cast<double>(position), position});
    }
    return {};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::Iota{.dtype = DType::i32, .shape = {3, 4}, .axis = 1}, .inputs = {}}};
  }
};
RLX_OP(op::Iota, "leaf")

OpList leaf_ops() {
  static const OpInfo* const list[] = {&info_of<op::Input>(),    &info_of<op::Param>(),
                                       &info_of<op::Constant>(), &info_of<op::State>(),
                                       &info_of<op::Update>(),   &info_of<op::Iota>()};
  return list;
}

}  // namespace rlx
