// Messages to whoever embeds rlx, through a callback that a Session owns. Nothing is global.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>

namespace rlx {

enum class LogLevel : std::uint8_t { debug, info, warning };

constexpr std::string_view name_of(LogLevel level) {
  constexpr std::string_view names[] = {"debug", "info", "warning"};
  return names[static_cast<int>(level)];
}

/// Gets one whole message without a line end. May be called from several threads at once; must not
/// throw.
using LogCallback = std::function<void(LogLevel, std::string_view)>;

/// Where messages go, if anywhere. Copies share the callback.
class Log {
 public:
  Log() = default;
  /// Messages below `least` are not even formatted.
  explicit Log(LogCallback callback, LogLevel least = LogLevel::info)
      : callback_(std::move(callback)), least_(least) {}

  bool wants(LogLevel level) const { return callback_ != nullptr && level >= least_; }

  template <class... Args>
  void operator()(LogLevel level, fmt::format_string<Args...> format, Args&&... args) const {
    if (wants(level)) callback_(level, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  LogCallback callback_;
  LogLevel least_ = LogLevel::info;
};

}  // namespace rlx
