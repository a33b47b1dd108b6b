// The flag that ends what this thread evaluates.
#include "base/cancel_scope.hpp"

#include <utility>

namespace rlx {
namespace {

thread_local const std::atomic<bool>* innermost = nullptr;

}  // namespace

CancelScope::CancelScope(const std::atomic<bool>* flag) : outer_(std::exchange(innermost, flag)) {}

CancelScope::~CancelScope() { innermost = outer_; }

bool CancelScope::is_cancelled() { return innermost && innermost->load(std::memory_order_relaxed); }

}  // namespace rlx
