// What a call that should fail says.
#pragma once

#include <string>

namespace rlx::testing {

/// The words of a Status or Result.
template <class T>
std::string message(const T& result) {
  return result.ok() ? "no error" : result.error().message;
}

}  // namespace rlx::testing
