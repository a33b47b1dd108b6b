// Sequences whose lengths are known while importing: they exist in the importer alone, as lists of
// values. Optionals that hold a tensor are that tensor.
#include <algorithm>

#include "import/onnx/build.hpp"
#include "import/onnx/families.hpp"

namespace rlx::onnx {
namespace {

std::int64_t position_of(NodeContext& c, int input, std::int64_t count, std::int64_t otherwise) {
  if (!c.has(input)) return otherwise;
  const Axes position = known_or_fail(c, input, "position");
  if (position.size() != 1 || position[0] < -count || position[0] > count) {
    fail("A position lies outside the sequence of ({}).", count);
  }
  return position[0] < 0 ? position[0] + count : position[0];
}

void construct(NodeContext& c) { c.set_sequence(0, c.inputs()); }

void empty(NodeContext& c) {
  c.ignore({"dtype"});
  c.set_sequence(0, {});
}

void insert(NodeContext& c) {
  Values values = c.sequence(0);
  const auto count = static_cast<std::int64_t>(values.size());
  values.insert(values.begin() + position_of(c, 2, count, count), c.in(1));
  c.set_sequence(0, std::move(values));
}

void erase(NodeContext& c) {
  Values values = c.sequence(0);
  const auto count = static_cast<std::int64_t>(values.size());
  const auto position = position_of(c, 1, count, count - 1);
  if (position < 0 || position >= count) fail("There is no element ({}) to erase.", position);
  values.erase(values.begin() + position);
  c.set_sequence(0, std::move(values));
}

void at(NodeContext& c) {
  const Values& values = c.sequence(0);
  const auto count = static_cast<std::int64_t>(values.size());
  const auto position = position_of(c, 1, count, 0);
  if (position >= count) fail("There is no element ({}) in a sequence of ({}).", position, count);
  c.set(values[static_cast<std::size_t>(position)]);
}

void length(NodeContext& c) {
  const auto count = static_cast<std::int64_t>(c.sequence(0).size());
  c.set(c.graph().constant(Tensor::scalar<std::int64_t>(count)));
}

// Parts of one size, or of given sizes; without sizes parts of 1, whose axis may be dropped.
void split_to_sequence(NodeContext& c) {
  const Value x = c.in(0);
  const auto axis = normal_axis(c.integer("axis", 0), x.rank());
  const auto whole = static_dim(x, axis);
  const bool keep = c.flag("keepdims", true) || c.has(1);
  Axes sizes = c.has(1) ? known_or_fail(c, 1, "split") : Axes{1};
  if (!c.has(1) || c.in(1).rank() == 0) {
    const auto each = sizes.empty() ? 0 : sizes[0];
    if (each <= 0) fail("The size ({}) of a part is not positive.", each);
    sizes.clear();
    for (std::int64_t start = 0; start < whole; start += each) {
      sizes.push_back(std::min(each, whole - start));
    }
  }
  Values parts;
  std::int64_t start = 0;
  for (const auto size : sizes) {
    if (size < 0 || size > whole - start) fail("The parts do not fit an axis of ({}).", whole);
    Value part = slice_axis(x, axis, start, start + size);
    if (!keep) {
      Shape shape = part.shape();
      shape.erase(shape.begin() + axis);
      part = reshape(part, shape);
    }
    parts.push_back(part);
    start += size;
  }
  c.set_sequence(0, std::move(parts));
}

void concat_from_sequence(NodeContext& c) {
  Values parts = c.sequence(0);
  if (parts.empty()) fail("The sequence is empty.");
  auto axis = c.integer("axis");
  if (c.flag("new_axis")) {
    axis = normal_axis(axis, parts[0].rank() + 1);
    for (Value& part : parts) part = unsqueeze_axes(part, {axis});
  }
  c.set(concat(parts, axis));
}

// The body once for each element.
void sequence_map(NodeContext& c) {
  const GraphProto* body = c.subgraph("body");
  if (!body) fail("The graph (body) is missing.");
  const std::size_t count = c.sequence(0).size();
  std::vector<Values> results(body->outputs.size());
  for (std::size_t i = 0; i < count; ++i) {
    Values inputs;
    for (int k = 0; k < c.input_count(); ++k) {
      if (c.is_sequence(k) && c.sequence(k).size() != count) {
        fail("The sequences have different lengths.");
      }
      inputs.push_back(c.is_sequence(k) ? c.sequence(k)[i] : c.in(k));
    }
    const Values outputs = c.importer().inline_graph(c.frame(), *body, inputs);
    for (std::size_t k = 0; k < outputs.size(); ++k) results[k].push_back(outputs[k]);
  }
  for (std::size_t k = 0; k < results.size(); ++k) {
    c.set_sequence(static_cast<int>(k), std::move(results[k]));
  }
}

void has_element(NodeContext& c) { c.set(c.graph().constant(Tensor::scalar(c.has(0)))); }

void get_element(NodeContext& c) {
  if (c.is_sequence(0)) {
    c.set_sequence(0, c.sequence(0));
  } else {
    c.set(c.in(0));
  }
}

void optional(NodeContext& c) {
  c.ignore({"type"});
  if (!c.has(0)) fail_unsupported("Empty optionals are not supported.");
  get_element(c);
}

constexpr OpEntry entries[] = {
    {"SequenceConstruct", 11, construct},
    {"SequenceEmpty", 11, empty},
    {"SequenceInsert", 11, insert},
    {"SequenceErase", 11, erase},
    {"SequenceAt", 11, at},
    {"SequenceLength", 11, length},
    {"SplitToSequence", 11, split_to_sequence},
    {"ConcatFromSequence", 11, concat_from_sequence},
    {"SequenceMap", 17, sequence_map},
    {"Optional", 15, optional},
    {"OptionalHasElement", 15, has_element},
    {"OptionalGetElement", 15, get_element},
};

}  // namespace

OpEntries sequence_entries() { return entries; }

}  // namespace rlx::onnx
