// rlx explain as one page of HTML: everything inside, nothing loaded.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "tools/explain_svg.hpp"

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

std::string bytes_text(std::int64_t bytes) { return size_text(static_cast<double>(bytes)); }

std::string card(const std::string& value, const std::string& label) {
  return fmt::format("<div class=card><b>{}</b><span>{}</span></div>", escaped(value),
                     escaped(label));
}

std::string cards(const Report& report) {
  const Explanation& plan = report.plan;
  std::string html = "<div class=cards>";
  html += card(time_text(plan.predicted_ms * 1e3), "predicted for a run");
  if (report.measured_ms >= 0) html += card(time_text(report.measured_ms * 1e3), "measured");
  html +=
      card(fmt::format("{} of {}", plan.planned_io.kernel_launches, plan.static_io.kernel_launches),
           "kernels, of ops in the graph");
  html += card(fmt::format("{} of {}", bytes_text(plan.planned_io.device_traffic_bytes),
                           bytes_text(plan.static_io.device_traffic_bytes)),
               "moved, of what the ops would move one by one");
  const double bound =
      static_cast<double>(std::max<std::int64_t>(plan.memory.arena_lower_bound_bytes, 1));
  html += card(bytes_text(plan.memory.arena_bytes),
               fmt::format("arena, {:.1f} % above the least possible",
                           100 * (static_cast<double>(plan.memory.arena_bytes) / bound - 1)));
  html += card(bytes_text(plan.memory.weights_bytes), "weights");
  return html + "</div>";
}

std::string legend(const Report& report) {
  std::map<std::string, int> kinds;
  for (const Explanation::Kernel& kernel : report.plan.kernels) ++kinds[kernel.name];
  std::string html = "<div class=legend>";
  for (const auto& [kind, count] : kinds)
    html += fmt::format("<span><i style=\"background:{}\"></i>{} ({})</span>", colour_of(kind),
                        escaped(kind), count);
  return html + "</div>";
}

std::string kernels_table(const Report& report) {
  double longest = 1e-9;
  for (std::size_t i = 0; i < report.plan.kernels.size(); ++i) {
    longest = std::max(longest, report.plan.kernels[i].predicted_us);
    if (report.is_measured()) longest = std::max(longest, report.measured_us[i]);
  }
  std::string html = fmt::format(
      "<div class=scroll><table><tr><th class=n>#<th>kind<th>predicted{}<th class=n>predicted{}"
      "<th class=n>threads<th class=n>MFLOP<th class=n>bytes<th>limit<th>inside</tr>",
      report.is_measured() ? " (colour), measured (dark)" : "",
      report.is_measured() ? "<th class=n>measured" : "");
  for (std::size_t i = 0; i < report.plan.kernels.size(); ++i) {
    const Explanation::Kernel& kernel = report.plan.kernels[i];
    html += fmt::format(
        "<tr><td class=n>{}<td>{}<td class=bars><div class=bar "
        "style=\"width:{:.2f}%;background:{};outline:1px solid rgba(0,0,0,.2)\"></div>",
        i, escaped(kernel.name), 100 * kernel.predicted_us / longest, colour_of(kernel.name));
    if (report.is_measured())
      html += fmt::format("<div class=\"bar measured\" style=\"width:{:.2f}%\"></div>",
                          100 * report.measured_us[i] / longest);
    html += fmt::format("<td class=n>{}", time_text(kernel.predicted_us));
    if (report.is_measured())
      html += fmt::format("<td class=n>{}", time_text(report.measured_us[i]));
    html += fmt::format(
        "<td class=n>{}<td class=n>{:.3f}<td class=n>{}<td>{}<td class=region title=\"{}\">{}</tr>",
        kernel.threads, kernel.flops / 1e6, size_text(kernel.bytes), escaped(kernel.bound),
        escaped(kernel.region + "\n" + kernel.reason), escaped(kernel.region));
  }
  return html + "</table></div>";
}

std::string change(std::int64_t before, std::int64_t after, bool bytes) {
  if (!bytes) return fmt::format("{} &rarr; {}", before, after);
  return fmt::format("{} &rarr; {}", bytes_text(before), bytes_text(after));
}

std::string questions_rows(const std::vector<FusionQuestion>& questions, bool fused) {
  std::string html;
  for (const FusionQuestion& question : questions) {
    if (question.fused != fused) continue;
    html += fmt::format(
        "<tr><td class={}>{}<td>{}<td>{}<td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{}"
        "<td class=n>{:.0f}<td class=n>{:+.0f}</tr>",
        fused ? "yes" : "no", fused ? "yes" : "no", escaped(question.kind), escaped(question.what),
        change(question.before.kernel_launches, question.after.kernel_launches, false),
        change(question.before.sync_points, question.after.sync_points, false),
        change(question.before.host_output_bytes, question.after.host_output_bytes, true),
        change(question.before.device_traffic_bytes, question.after.device_traffic_bytes, true),
        question.work_added_ns, question.score_ns);
  }
  return html;
}

std::string questions_table(const Report& report) {
  const auto& questions = report.plan.questions;
  const auto fused = std::count_if(questions.begin(), questions.end(),
                                   [](const FusionQuestion& question) { return question.fused; });
  constexpr std::string_view head =
      "<div class=scroll><table><tr><th>fused<th>kind<th>question<th class=n>launches<th class=n>"
      "syncs<th class=n>to host<th class=n>traffic<th class=n>work added (ns)<th class=n>score "
      "(ns)</tr>";
  std::string html;
  const auto part = [&](const char* words, std::int64_t count, bool answer, bool open) {
    if (count == 0) return;
    html += fmt::format("<details{}><summary>{} {}</summary>{}{}</table></div></details>",
                        open ? " open" : "", count, words, head, questions_rows(questions, answer));
  };
  const auto asked = static_cast<std::int64_t>(questions.size());
  part("refused", asked - fused, false, true);
  part("accepted", fused, true, asked <= 60);
  return html.empty() ? "<p>No fusion was optional here.</p>" : html;
}

std::string devices_table(const Report& report) {
  std::string html = "<table><tr><th>device<th class=n>predicted<th>by<th>why</tr>";
  const DeviceChoice& choice = report.plan.devices;
  for (const DeviceChoice::Candidate& candidate : choice.candidates) {
    const bool chosen = candidate.device == choice.device;
    html += fmt::format("<tr><td>{}{}<td class=n>{}<td>{}<td>{}</tr>", name_of(candidate.device),
                        chosen ? " <b class=yes>chosen</b>" : "",
                        candidate.predicted_ns < 0 ? "" : time_text(candidate.predicted_ns / 1e3),
                        candidate.predicted_ns < 0 ? "no model"
                        : candidate.calibrated     ? "calibration"
                                                   : "preset",
                        escaped(chosen ? choice.reason : candidate.reason));
  }
  return html + "</table>";
}

std::string claims_table(const Report& report) {
  std::map<std::tuple<std::string, bool, std::string>, int> groups;
  for (const Explanation::Claim& claim : report.plan.claims)
    ++groups[{claim.op, claim.taken, claim.reason}];
  if (groups.empty()) return "<p>The graph has no composite op.</p>";
  std::string html = "<table><tr><th>op<th class=n>times<th>taken whole<th>why</tr>";
  for (const auto& [key, count] : groups) {
    const auto& [op, taken, reason] = key;
    html += fmt::format("<tr><td>{}<td class=n>{}<td>{}<td>{}</tr>", escaped(op), count,
                        taken ? "yes" : "no", escaped(reason));
  }
  return html + "</table>";
}

std::string section(const char* title, const char* words, const std::string& content) {
  return fmt::format("<section><h2>{}</h2><p>{}</p>{}</section>", title, words, content);
}

}  // namespace

std::string explain_page(const Report& report) {
  std::string html = fmt::format(
      "<!doctype html><html lang=en><meta charset=utf-8><title>{0}</title><style>{1}</style>"
      "<main><h1>{0}</h1><p>on {2}: {3}</p>",
      escaped(report.model), style, escaped(report.device), escaped(report.plan.devices.reason));
  for (const std::string& note : report.notes) html += fmt::format("<p>{}</p>", escaped(note));
  html += cards(report);
  html +=
      section("Where the time goes",
              "The kernels in the order in which they run. A pointer over the last column shows "
              "all ops inside and why the kernel is what it is.",
              legend(report) + kernels_table(report));
  html += section("The plan as a graph",
                  "A box is a kernel (number, kind, predicted time, measured time where there is "
                  "one; below: the ops that it fuses), an arrow a buffer, thicker where it is "
                  "larger. Rounded boxes are inputs and outputs.",
                  "<div class=scroll>" + graph_picture(report) + "</div>");
  html +=
      section("The arena over time",
              "Each rectangle is a buffer: from the kernel that writes it to the last that reads "
              "it, at its offset, in the colour of its maker. Hatched: nothing lives there. "
              "Black: live bytes; dashed green: no arena could be smaller.",
              "<div class=scroll>" + arena_picture(report) + "</div>");
  html += section("What the planner asked",
                  "Each optional fusion as both alternatives would run, the score in ns won, and "
                  "the answer.",
                  questions_table(report));
  html += section("Devices", "Each candidate with its predicted time.", devices_table(report));
  html += section("Claims", "Which composite ops the device takes whole.", claims_table(report));
  return html + "</main></html>\n";
}

}  // namespace rlx::tools
