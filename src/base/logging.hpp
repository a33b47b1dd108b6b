// Messages to whoever embeds rlx, through a callback that a Session owns. Nothing is global.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "rlx/log.hpp"

namespace rlx {

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
