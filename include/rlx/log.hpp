// Messages to whoever embeds rlx: levels and the callback that gets them.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace rlx {

enum class LogLevel : std::uint8_t { debug, info, warning };

constexpr std::string_view name_of(LogLevel level) {
  constexpr std::string_view names[] = {"debug", "info", "warning"};
  return names[static_cast<int>(level)];
}

/// Gets one whole message without a line end. May be called from several threads at once; must not
/// throw.
using LogCallback = std::function<void(LogLevel, std::string_view)>;

}  // namespace rlx
