// The functions of fmt that its headers leave to its library, within the program: the command then
// needs neither that library nor a shared C++ library, whose tables alone are 2 MB of every
// process.
#define FMT_HEADER_ONLY
#undef FMT_SHARED
#include <fmt/format.h>

namespace fmt {

// What other files of the program expect to be defined somewhere.
template detail::thousands_sep_result<char> detail::thousands_sep_impl(locale_ref);
template char detail::decimal_point_impl(locale_ref);
template detail::dragonbox::decimal_fp<float> detail::dragonbox::to_decimal(float) noexcept;
template detail::dragonbox::decimal_fp<double> detail::dragonbox::to_decimal(double) noexcept;

}  // namespace fmt

namespace rlx::tools {
namespace {

// Names the others, so that the compiler keeps them.
[[gnu::used]] void (*const print_text)(fmt::string_view, fmt::format_args) = fmt::vprint;
[[gnu::used]] void (*const print_to)(std::FILE*, fmt::string_view, fmt::format_args) = fmt::vprint;
[[gnu::used]] std::string (*const format_text)(fmt::string_view, fmt::format_args) = fmt::vformat;
[[gnu::used]] bool (*const is_printable)(std::uint32_t) = fmt::detail::is_printable;
[[gnu::used]] void (*const throw_error)(const char*) = fmt::detail::throw_format_error;

}  // namespace
}  // namespace rlx::tools
