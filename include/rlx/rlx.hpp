// The whole public surface.
#pragma once

#include "rlx/caches.hpp"
#include "rlx/cost.hpp"
#include "rlx/dtype.hpp"
#include "rlx/experts.hpp"
#include "rlx/graph.hpp"
#include "rlx/import.hpp"
#include "rlx/ops.hpp"
#include "rlx/result.hpp"
#include "rlx/runtime.hpp"
#include "rlx/tensor.hpp"
