// Errors as values: Error, Result<T>, Status, and the one exception type that builders throw.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

namespace rlx {

/// What kind of failure it is; the command line turns it into its exit code.
enum class ErrorKind {
  bad_input,      ///< a file, name, shape, dtype or value is wrong (exit code 3)
  unsupported,    ///< well-formed, but this op or type is not supported (exit code 3)
  not_available,  ///< the device or feature is not there (exit code 4)
  usage,          ///< the call itself is wrong (exit code 2)
  internal,       ///< a defect of rlx
  out_of_memory,  ///< an allocation failed; what was asked can be asked again (exit code 3)
  cancelled,      ///< a run was ended by cancel() (exit code 3)
};

/// A sentence that says what failed, the value in parentheses, then " - while ..." for each place
/// on the way up.
struct Error {
  ErrorKind kind = ErrorKind::bad_input;
  std::string message;

  /// The same error with " - while <place>." appended.
  Error while_(const std::string& place) && {
    message += " - while " + place + ".";
    return std::move(*this);
  }
};

/// What builders and `.value()` throw.
class Exception : public std::runtime_error {
 public:
  explicit Exception(Error error) : std::runtime_error(error.message), error_(std::move(error)) {}
  const Error& error() const { return error_; }

 private:
  Error error_;
};

/// A T or an Error.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  const rlx::Error& error() const { return std::get<1>(state_); }
  rlx::Error& error() { return std::get<1>(state_); }

  /// The value; throws Exception where there is none.
  T& value() & {
    check();
    return std::get<0>(state_);
  }
  const T& value() const& {
    check();
    return std::get<0>(state_);
  }
  T&& value() && {
    check();
    return std::get<0>(std::move(state_));
  }

  T& operator*() & { return std::get<0>(state_); }
  const T& operator*() const& { return std::get<0>(state_); }
  T&& operator*() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }

 private:
  void check() const {
    if (!ok()) throw Exception(error());
  }
  std::variant<T, rlx::Error> state_;
};

/// Success without a value.
struct Done {};

/// Success or an Error.
class [[nodiscard]] Status : public Result<Done> {
 public:
  Status() : Result<Done>(Done{}) {}
  Status(rlx::Error error) : Result<Done>(std::move(error)) {}
};

}  // namespace rlx
