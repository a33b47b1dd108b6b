// The models of the soak, each with what its runs must give.
#pragma once

#include <string>
#include <vector>

#include "rlx/rlx.hpp"

namespace rlx::soak {

constexpr std::int64_t rows_limit = 24, width = 32;

/// Dims are bound: products, GELU, softmax; a param `w` that can be set.
Graph perceptron();
/// The rows are the symbol "rows"; rows are apart from each other.
Graph rows_model();
/// The values that are not zero, times ten: data decides how many.
Graph picker();
/// Adds x to a state: the output `next` feeds the input `state`.
Graph adder();
/// tanh over and over, `limit` times.
Graph long_loop();

/// Values that follow from a seed.
Tensor values(const Dims& dims, std::uint64_t seed);
bool equal(const Outputs& a, const Outputs& b);

/// A model from a file, with inputs and what they gave the first time.
struct FileModel {
  std::string name;
  CompiledGraph program;
  std::vector<Tensor> tensors;
  std::vector<NamedInput> inputs;
  Outputs expected;
};
/// Errors: no such model, shapes that data or unbound symbols decide.
Result<FileModel> from_file(Session& session, const std::string& file);

}  // namespace rlx::soak
