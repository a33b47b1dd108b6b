// Runs cases of the ONNX backend layout with the reference evaluation and judges their outputs.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "rlx/graph.hpp"
#include "rlx/import.hpp"

namespace rlx::test {

enum class Verdict { pass, wrong, unsupported, error };

struct CaseResult {
  Verdict verdict = Verdict::pass;
  std::string reason;
};

/// The corpus folder that RLX_CORPUS names; empty where it is not set.
std::filesystem::path corpus();

/// Folders with a model.onnx directly below `suite` or one level further down, sorted.
std::vector<std::filesystem::path> cases_of(const std::filesystem::path& suite);

/// Imports the model with the dims of the case's inputs, evaluates every data set, compares.
CaseResult run_case(const std::filesystem::path& folder);

/// Empty where the tensors agree: same dtype and dims, |a - e| <= atol + rtol |e|, NaN and
/// infinities in the same places.
std::string difference(const Tensor& actual, const Tensor& expected);

}  // namespace rlx::test
