// The inputs of a run by name: found, checked, and their addresses noted.
#include <algorithm>

#include "base/error.hpp"
#include "graph/elementwise_eval.hpp"
#include "runtime/compiled_graph.hpp"

namespace rlx {
namespace {

std::string dims_text(std::span<const std::int64_t> dims) {
  return fmt::format("[{}]", fmt::join(dims, ","));
}

std::string names_of(const std::vector<IoInfo>& infos) {
  std::string text;
  for (const IoInfo& info : infos) text += (text.empty() ? "" : ", ") + info.name;
  return text.empty() ? "none" : text;
}

}  // namespace

void convert_floats(std::span<const std::byte> bytes, DType from, Tensor& to) {
  for (std::int64_t i = 0; i < to.elements(); ++i)
    store_datum(to.dtype(), to.mutable_data(), i, load_datum(from, bytes.data(), i));
}

Status CompiledGraph::Impl::match_one(const NamedInput& input, bool typed,
                                      std::vector<Dims>* dims) {
  std::size_t slot = 0;
  while (slot < inputs.size() && inputs[slot].name != input.name) ++slot;
  if (slot == inputs.size())
    return bad_input("There is no input ({}); the inputs are: {}.", input.name, names_of(inputs));
  if (given[slot]) return bad_input("The input ({}) is given twice.", input.name);
  given[slot] = true;
  const IoInfo& info = inputs[slot];
  if (handle_of_slot(slot_of[slot]))
    return bad_input("The input ({}) is a handle: runs take its value.", info.name);
  if (!input.view) {
    if (typed && info.dtype != f32)
      return bad_input("The input ({}) is {}, not f32.", info.name, name_of(info.dtype));
    if (!is_float(info.dtype))
      return bad_input("The input ({}) is {}: plain floats are accepted for float inputs alone.",
                       info.name, name_of(info.dtype));
    if (!bound)
      return bad_input("The input ({}) has unbound dims: give a tensor, which has dims.",
                       info.name);
    const std::int64_t wanted = element_count(info.dims);
    if (static_cast<std::size_t>(wanted) != input.values.size()) {
      return bad_input("The input ({}) has {} elements and was given ({}).", info.name, wanted,
                       input.values.size());
    }
    const auto bytes = std::as_bytes(input.values);
    slots[slot_of[slot]] = bytes.data();
    if (info.dtype != f32) {
      if (converted[slot].empty()) converted[slot] = Tensor(info.dtype, info.dims);
      convert_floats(bytes, f32, converted[slot]);
      slots[slot_of[slot]] = converted[slot].data();
    }
    return {};
  }
  const TensorView& view = *input.view;
  if (view.dtype != info.dtype)
    return bad_input("The input ({}) is {} and was given {}.", info.name, name_of(info.dtype),
                     name_of(view.dtype));
  bool fits = view.dims.size() == info.dims.size();
  for (std::size_t i = 0; fits && i < info.dims.size(); ++i)
    fits = info.dims[i] < 0 || info.dims[i] == view.dims[i];
  if (!fits)
    return bad_input("The input ({}) has the dims [{}] and was given {}.", info.name,
                     fmt::join(info.dim_names, ","), dims_text(view.dims));
  slots[slot_of[slot]] = view.data;
  if (dims) (*dims)[slot].assign(view.dims.begin(), view.dims.end());
  return {};
}

Status CompiledGraph::Impl::match(std::span<const NamedInput> named, bool typed,
                                  std::vector<Dims>* dims) {
  given.assign(inputs.size(), false);
  for (const NamedInput& input : named) RLX_TRY(match_one(input, typed, dims));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!given[i] && !handle_of_slot(slot_of[i]))
      return bad_input("The input ({}) is missing.", inputs[i].name);
  }
  return {};
}

}  // namespace rlx
