// Errors of importers: sentences with values, thrown as the one exception type of builders and
// turned into Result at the entry points.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "rlx/result.hpp"

namespace rlx::importing {

/// The file is wrong.
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Exception(Error{ErrorKind::bad_input, fmt::format(format, std::forward<Args>(args)...)});
}

/// The file is right, but this is not supported.
template <class... Args>
[[noreturn]] void fail_unsupported(fmt::format_string<Args...> format, Args&&... args) {
  throw Exception(Error{ErrorKind::unsupported, fmt::format(format, std::forward<Args>(args)...)});
}

/// Runs `work` and turns what it throws into an Error that ends with the place, if one is given.
template <class Work>
auto guarded(const std::string& place, Work&& work) -> Result<decltype(work())> {
  try {
    return work();
  } catch (const Exception& exception) {
    return place.empty() ? exception.error() : Error(exception.error()).while_(place);
  } catch (const std::bad_alloc&) {
    return Error{ErrorKind::bad_input, "There is not enough memory."}.while_(place);
  } catch (const std::exception& exception) {
    return Error{ErrorKind::internal, exception.what()}.while_(place);
  }
}

}  // namespace rlx::importing
