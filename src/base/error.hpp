// Helpers for errors as values: propagating them, making them from a format, and checks of our own
// invariants.
#pragma once

#include <fmt/format.h>

#include <string>
#include <type_traits>
#include <utility>

#include "rlx/result.hpp"

namespace rlx {

/// An error whose message is formatted like fmt::format.
template <class... Args>
Error error(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  return Error{kind, fmt::format(format, std::forward<Args>(args)...)};
}

template <class... Args>
Error bad_input(fmt::format_string<Args...> format, Args&&... args) {
  return Error{ErrorKind::bad_input, fmt::format(format, std::forward<Args>(args)...)};
}

template <class... Args>
Error unsupported(fmt::format_string<Args...> format, Args&&... args) {
  return Error{ErrorKind::unsupported, fmt::format(format, std::forward<Args>(args)...)};
}

template <class... Args>
Error not_available(fmt::format_string<Args...> format, Args&&... args) {
  return Error{ErrorKind::not_available, fmt::format(format, std::forward<Args>(args)...)};
}

template <class... Args>
Error internal_error(fmt::format_string<Args...> format, Args&&... args) {
  return Error{ErrorKind::internal, fmt::format(format, std::forward<Args>(args)...)};
}

namespace error_detail {

[[noreturn]] inline void check_failed(const char* condition, const char* file, int line,
                                      const std::string& detail = {}) {
  throw Exception(internal_error("Internal check failed ({}) at {}:{}{}{}", condition, file, line,
                                 detail.empty() ? "." : ": ", detail));
}

template <class... Args>
[[noreturn]] void check_failed(const char* condition, const char* file, int line,
                               fmt::format_string<Args...> format, Args&&... args) {
  check_failed(condition, file, line, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace error_detail
}  // namespace rlx

#define RLX_CONCAT_(a, b) a##b
#define RLX_CONCAT(a, b) RLX_CONCAT_(a, b)

/// Leaves the function with the error of a Status or Result; the value, if any, is dropped.
#define RLX_TRY(...)                                                      \
  do {                                                                    \
    auto&& rlx_try_result_ = (__VA_ARGS__);                               \
    if (!rlx_try_result_.ok()) return std::move(rlx_try_result_.error()); \
  } while (false)

/// RLX_ASSIGN(auto x, f()): x is the value of the Result, or the function returns its error.
#define RLX_ASSIGN(declaration, ...) \
  RLX_ASSIGN_(RLX_CONCAT(rlx_result_, __LINE__), declaration, __VA_ARGS__)
#define RLX_ASSIGN_(temporary, declaration, ...)            \
  auto temporary = (__VA_ARGS__);                           \
  if (!temporary.ok()) return std::move(temporary.error()); \
  declaration = *std::move(temporary)

/// An invariant of ours, checked in release too: throws Exception of kind internal.
/// RLX_CHECK(condition) or RLX_CHECK(condition, "format {}", value).
#define RLX_CHECK(condition, ...)                                             \
  do {                                                                        \
    if (!(condition)) [[unlikely]]                                            \
      ::rlx::error_detail::check_failed(#condition, __FILE_NAME__,            \
                                        __LINE__ __VA_OPT__(, ) __VA_ARGS__); \
  } while (false)
