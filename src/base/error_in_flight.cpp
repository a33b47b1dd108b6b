// Exceptions that reach a way out of rlx become errors.
#include "base/error_in_flight.hpp"

#include <exception>
#include <new>
#include <system_error>

#include "base/error.hpp"

namespace rlx {
namespace {

/// May throw while it finds words.
Error described() {
  try {
    throw;
  } catch (const Exception& exception) {
    return exception.error();
  } catch (const std::bad_alloc&) {
    return {ErrorKind::out_of_memory, "Out of memory."};
  } catch (const std::system_error& failure) {
    return not_available("The system refused a resource ({}).", failure.what());
  } catch (const std::exception& failure) {
    return internal_error("Unexpected failure ({}).", failure.what());
  } catch (...) {
    return internal_error("Unexpected failure.");
  }
}

}  // namespace

Error error_in_flight() noexcept {
  try {
    return described();
  } catch (...) {
    // Short enough to need no memory of its own.
    return {ErrorKind::out_of_memory, "Out of memory."};
  }
}

Error run_was_cancelled() { return {ErrorKind::cancelled, "The run was cancelled."}; }

}  // namespace rlx
