// rlx explain as one page of HTML.
#include "tools/explain.hpp"

namespace rlx::tools {

std::string explain_page(const Report& report) { return explain_text(report); }

}  // namespace rlx::tools
