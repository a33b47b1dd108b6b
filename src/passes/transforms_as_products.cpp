// Short Fourier transforms whose parts are read apart, as products with matrices.
#include <cmath>
#include <numbers>

#include "passes/passes.hpp"
#include "passes/rewriter.hpp"

namespace rlx::passes {
namespace {

// The two products take 2 n^2 FLOPs a line; the transform's kernel takes 2.5 n log2 n at half the
// rate, and its bins and their parts pass through memory, about 12 n bytes. At some 100 GFLOP/s and
// 20 GB/s of a core both cost the same near 50 points.
constexpr std::int64_t longest_by_product = 48;

/// cos(2 pi part / length), or -sin; at quarters of a turn exactly, so that bins that are real have
/// imaginary parts of zero, and no angles a whole turn off.
double root_part(std::int64_t part, std::int64_t length, bool imaginary) {
  if (4 * part % length == 0) {
    constexpr double cosine[] = {1, 0, -1, 0}, minus_sine[] = {0, -1, 0, 1};
    const std::int64_t quarter = 4 * part / length;
    return imaginary ? minus_sine[quarter] : cosine[quarter];
  }
  const double angle =
      2 * std::numbers::pi * (static_cast<double>(part) / static_cast<double>(length));
  return imaginary ? -std::sin(angle) : std::cos(angle);
}

/// cos(2 pi k n / length), or -sin, for n down and k across, exact to the last bit of f32.
Tensor fourier_matrix(std::int64_t length, bool imaginary, double scale) {
  const std::int64_t bins = length / 2 + 1;
  Tensor matrix(f32, {length, bins});
  auto* data = reinterpret_cast<float*>(matrix.mutable_data());
  for (std::int64_t n = 0; n < length; ++n) {
    for (std::int64_t k = 0; k < bins; ++k) {
      data[n * bins + k] = static_cast<float>(root_part(n * k % length, length, imaginary) * scale);
    }
  }
  return matrix;
}

// real(rfft(x)) = x C, imag(rfft(x)) = x S for transforms over the last axis that are short enough
Result<bool> spectrum_part(Rewriter& rewriter, std::int32_t index, const Node& node,
                           bool imaginary) {
  const Node& before = rewriter.source().node(node.inputs[0]);
  const auto* rfft = before.op.as<op::Rfft>();
  if (!rfft) return false;
  const Value x = rewriter.target().handle(rewriter(before.inputs[0]));
  const int rank = x.rank();
  if (!x.type().is_static() || x.dtype() != f32 || rank < 1) return false;
  if (rfft->axis != -1 && rfft->axis != rank - 1) return false;
  const std::int64_t length = x.shape().back().value();
  if (length < 1 || length > longest_by_product) return false;
  const double n = static_cast<double>(length);
  const double scale = rfft->norm == FftNorm::ortho     ? 1 / std::sqrt(n)
                       : rfft->norm == FftNorm::forward ? 1 / n
                                                        : 1;
  const Value matrix = rewriter.target().constant(fourier_matrix(length, imaginary, scale));
  rewriter.replace(index, Values{matmul(x, matrix)});
  return true;
}

}  // namespace

Result<Graph> transforms_as_products(Graph graph) {
  const auto takes_part = [](const Node& node) {
    return node.op.is<op::Real>() || node.op.is<op::Imag>();
  };
  if (std::ranges::none_of(graph.nodes(), takes_part)) return graph;
  return rewrite(graph,
                 [](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
                   if (node.op.is<op::Real>()) return spectrum_part(rewriter, index, node, false);
                   if (node.op.is<op::Imag>()) return spectrum_part(rewriter, index, node, true);
                   return false;
                 });
}

}  // namespace rlx::passes
