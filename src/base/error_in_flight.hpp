// What becomes of exceptions at the ways out of rlx, and the errors that any run may end with.
#pragma once

#include "rlx/result.hpp"

namespace rlx {

/// The error of the exception that is being handled, for the one catch (...) at each way out of
/// rlx: of a public call, and of a thread. A lack of memory is out_of_memory, what only
/// std::exception knows internal. Throws nothing, also where there is no memory for the words.
Error error_in_flight() noexcept;

/// "The run was cancelled.", of the kind `cancelled`.
Error run_was_cancelled();

}  // namespace rlx
