// One page of HTML that holds everything itself.
#pragma once

#include <string>
#include <string_view>

#include "rlx/result.hpp"

namespace rlx::tools {

/// Printable text, with <, >, & and quotes as HTML spells them.
std::string escaped(std::string_view text);
/// A colour for each kind of kernel, as #rrggbb.
std::string_view colour_of(std::string_view kind);

std::string page_section(std::string_view title, std::string_view words,
                         const std::string& content);
/// The whole page; `subtitle` may be empty. `content` is HTML.
std::string page_of(const std::string& title, const std::string& subtitle,
                    const std::string& content);

/// Errors: the file cannot be written.
Status write_text(const std::string& file, const std::string& text);

}  // namespace rlx::tools
