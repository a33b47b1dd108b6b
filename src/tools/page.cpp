// The page's look and frame, and what is spelled for HTML.
#include "tools/page.hpp"

#include <fmt/format.h>

#include <fstream>
#include <map>

#include "base/error.hpp"
#include "tools/printable.hpp"

namespace rlx::tools {
namespace {

constexpr std::string_view style = R"(
:root{--ink:#1d2430;--soft:#667085;--line:#d9dde5;--accent:#2d6cdf}
*{box-sizing:border-box}
body{font:14px/1.45 system-ui,sans-serif;color:var(--ink);margin:0;background:#f5f6f8}
main{max-width:1280px;margin:0 auto;padding:24px}
h1{font-size:22px;margin:0 0 4px}h2{font-size:16px;margin:0 0 4px}
section{background:#fff;border:1px solid var(--line);border-radius:8px;padding:16px 18px;
 margin:14px 0}
p{margin:2px 0 10px;color:var(--soft);max-width:96ch}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(180px,1fr));gap:10px;margin:14px 0}
.card{background:#fff;border:1px solid var(--line);border-radius:8px;padding:10px 14px}
.card b{display:block;font-size:19px}.card span{color:var(--soft);font-size:12.5px}
.scroll{overflow:auto;max-height:660px;border:1px solid var(--line);border-radius:6px}
table{border-collapse:collapse;width:100%;font-size:12.5px}
th{text-align:left;color:var(--soft);font-weight:600;position:sticky;top:0;background:#fff}
th,td{padding:3px 8px;border-bottom:1px solid #eef0f4;vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td.bars{width:34%;min-width:220px}
.bar{height:7px;border-radius:2px;margin:2px 0;min-width:1px}
.measured{background:#4b5565}
.region{color:var(--soft);max-width:420px;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.yes{color:#157f3b;font-weight:600}.no{color:#b3261e;font-weight:600}
.legend{display:flex;flex-wrap:wrap;gap:12px;margin:6px 0 10px;font-size:12.5px}
.legend i{display:inline-block;width:12px;height:12px;border-radius:3px;margin-right:5px;
 vertical-align:-1px;border:1px solid rgba(0,0,0,.15)}
svg text{font-family:system-ui,sans-serif}
.box{stroke:rgba(0,0,0,.3)}.head{font-size:12px;font-weight:600}.body{font-size:10.5px;fill:#475467}
.edge{fill:none;stroke:#8b95a5}.edge:hover{stroke:var(--accent)}.tip{fill:#8b95a5}
.life{stroke:rgba(0,0,0,.35);stroke-width:.6}.life:hover{stroke:var(--accent);stroke-width:2}
.frame{stroke:#98a2b3}.hatch{stroke:#e3b7b3;stroke-width:1.4}
.live{fill:none;stroke:#1d2430;stroke-width:1.6}
.bound{stroke:#157f3b;stroke-width:1.4;stroke-dasharray:6 4}
.small{font-size:10px;pointer-events:none}.axis{font-size:11px;fill:#667085}
summary{cursor:pointer;color:var(--accent);margin:6px 0}
)";

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : printable(text)) {
    switch (c) {
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '&': result += "&amp;"; break;
      case '"': result += "&quot;"; break;
      default: result += c;
    }
  }
  return result;
}

std::string_view colour_of(std::string_view kind) {
  static const std::map<std::string_view, std::string_view> colours = {
      {"attention", "#8fa8e8"}, {"matmul", "#9ec5f4"}, {"conv", "#9ec5f4"},
      {"depthwise", "#a5dfd8"}, {"pool", "#a5dfd8"},   {"map", "#fbe3a2"},
      {"rows", "#f8c68f"},      {"copy", "#d9dbe0"},   {"recurrence", "#d5bdf1"},
      {"host", "#f4a3a3"},      {"loop", "#e4c1dc"}};
  const auto found = colours.find(kind.substr(0, kind.find_first_of(" .:")));
  return found == colours.end() ? "#cfd8c4" : found->second;
}

std::string page_section(std::string_view title, std::string_view words,
                         const std::string& content) {
  return fmt::format("<section><h2>{}</h2><p>{}</p>{}</section>", title, words, content);
}

std::string page_of(const std::string& title, const std::string& subtitle,
                    const std::string& content) {
  return fmt::format(
      "<!doctype html><html lang=en><meta charset=utf-8><title>{0}</title><style>{1}</style>"
      "<main><h1>{0}</h1><p>{2}</p>{3}</main></html>\n",
      escaped(title), style, escaped(subtitle), content);
}

Status write_text(const std::string& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary);
  file << content;
  file.close();
  if (!file) return bad_input("The file ({}) cannot be written.", path);
  return {};
}

}  // namespace rlx::tools
