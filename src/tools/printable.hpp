// What foreign files hold, as text that terminals and readers of JSON can take.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace rlx::tools {

/// The text with every byte that is no part of valid UTF-8, and every control character but tabs
/// and ends of lines, as \xNN: names in models are whatever bytes their files hold.
std::string printable(std::string_view text);

/// At most so many bytes (3 or more) of printable text: a longer one ends in "...", behind a whole
/// character.
std::string shortened(const std::string& text, std::size_t most);

/// The document with a line for each value; bytes that are no UTF-8 become U+FFFD.
std::string json_text(const nlohmann::ordered_json& document);

}  // namespace rlx::tools
