// Finds the bytes that a terminal must not see.
#include "tools/printable.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>

namespace rlx::tools {
namespace {

/// Bytes of the well-formed character (Unicode 15, table 3-7) that the text begins with; 0: there
/// is none.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const auto follows = [&](std::size_t i, std::uint8_t low = 0x80, std::uint8_t high = 0xbf) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  const std::uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return follows(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const bool second = follows(1, first == 0xe0 ? 0xa0 : 0x80, first == 0xed ? 0x9f : 0xbf);
    return second && follows(2) ? 3 : 0;
  }
  if (first < 0xf0 || first > 0xf4) return 0;
  const bool second = follows(1, first == 0xf0 ? 0x90 : 0x80, first == 0xf4 ? 0x8f : 0xbf);
  return second && follows(2) && follows(3) ? 4 : 0;
}

bool is_control(char c) {
  const auto byte = static_cast<std::uint8_t>(c);
  return (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t bytes = is_control(text[0]) ? 0 : character_bytes(text);
    if (bytes > 0) {
      result += text.substr(0, bytes);
    } else {
      fmt::format_to(std::back_inserter(result), "\\x{:02x}", static_cast<std::uint8_t>(text[0]));
    }
    text.remove_prefix(bytes > 0 ? bytes : 1);
  }
  return result;
}

std::string shortened(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text;
  std::size_t kept = most - 3;
  const auto continues = [&](std::size_t at) { return (text[at] & 0xc0) == 0x80; };
  while (kept > 0 && continues(kept)) --kept;
  return text.substr(0, kept) + "...";
}

std::string json_text(const nlohmann::ordered_json& document) {
  return document.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace rlx::tools
