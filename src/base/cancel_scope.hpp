// The flag that ends what this thread evaluates, for evaluations deep inside others.
#pragma once

#include <atomic>

namespace rlx {

/// While it lives, evaluations on this thread end with the error `cancelled` once `flag` is set
/// (null: they do not). Scopes nest; the innermost counts. A thread's own value and not a
/// parameter: ops' rules do not pass it on, and most have no use for it.
class CancelScope {
 public:
  explicit CancelScope(const std::atomic<bool>* flag);
  ~CancelScope();
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

  /// Is the flag of this thread's innermost scope set?
  static bool is_cancelled();

 private:
  const std::atomic<bool>* const outer_;
};

}  // namespace rlx
