// Errors of importers: sentences with values, thrown as the one exception type of builders and
// turned into Result at the entry points.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <new>
#include <string>
#include <string_view>
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

/// The same error with what was being done, if anything: "reading" and the file.
inline Error at_place(Error failure, std::string_view doing, const std::filesystem::path& file) {
  if (doing.empty()) return failure;
  return std::move(failure).while_(file.empty() ? std::string(doing)
                                                : fmt::format("{} {}", doing, file.string()));
}

/// Runs `work` and turns what it throws into an Error that ends with the place.
template <class Work>
auto guarded(std::string_view doing, const std::filesystem::path& file, Work&& work)
    -> Result<decltype(work())> {
  try {
    try {
      return work();
    } catch (const Exception& exception) {
      return at_place(exception.error(), doing, file);
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& exception) {
      return at_place({ErrorKind::internal, exception.what()}, doing, file);
    }
  } catch (const std::bad_alloc&) {
    return Error{ErrorKind::out_of_memory, "Out of memory."};  // no words that would need some
  }
}

}  // namespace rlx::importing
