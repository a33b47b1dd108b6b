// An op that users do not write: the winograd pass makes it, weights are prepared by it.
#pragma once

namespace rlx::op {

/// Filters w [K, C, 3, 3] as the points of F(2x2, 3x3) want them, [16, C, K]: result[4i + j] of a
/// pair of channels is entry (i, j) of G g G^T, with G = (1 0 0; 1/2 1/2 1/2; 1/2 -1/2 1/2; 0 0 1)
/// (Lavin and Gray, arXiv 1509.09308). f32.
struct WinogradFilters {};

}  // namespace rlx::op
