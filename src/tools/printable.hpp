// Text of foreign files on a terminal.
#pragma once

#include <string>
#include <string_view>

namespace rlx::tools {

/// The text with every byte that is no part of valid UTF-8, and every control character but tabs
/// and ends of lines, as \xNN: names in models are whatever bytes their files hold.
std::string printable(std::string_view text);

}  // namespace rlx::tools
