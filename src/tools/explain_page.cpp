// rlx explain as one page of HTML: everything inside, nothing loaded.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "tools/explain_svg.hpp"
#include "tools/page.hpp"

namespace rlx::tools {
namespace {

std::string bytes_text(std::int64_t bytes) { return size_text(static_cast<double>(bytes)); }

std::string card(const std::string& value, const std::string& label) {
  return fmt::format("<div class=card><b>{}</b><span>{}</span></div>", escaped(value),
                     escaped(label));
}

std::string cards(const Report& report) {
  const Explanation& plan = report.plan;
  std::string html = "<div class=cards>";
  html += card(time_text(plan.predicted_ms * 1e3),
               fmt::format("predicted for a run, {} of it beside the kernels",
                           time_text(beside_kernels_us(plan))));
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
  for (const auto& [number, line, measured_us] : kernel_lines(report)) {
    const Explanation::Kernel& kernel = *line;
    html += fmt::format(
        "<tr><td class=n>{}<td>{}<td class=bars><div class=bar "
        "style=\"width:{:.2f}%;background:{};outline:1px solid rgba(0,0,0,.2)\"></div>",
        number, escaped(kernel.name), 100 * kernel.predicted_us / longest, colour_of(kernel.name));
    if (measured_us >= 0)
      html += fmt::format("<div class=\"bar measured\" style=\"width:{:.2f}%\"></div>",
                          100 * measured_us / longest);
    html += fmt::format("<td class=n>{}", time_text(kernel.predicted_us));
    if (report.is_measured())
      html += fmt::format("<td class=n>{}", measured_us < 0 ? "" : time_text(measured_us));
    const std::string inside =
        kernel.inside.empty()
            ? ""
            : fmt::format(" ({}{} iterations, each of:)", kernel.assumes_iterations ? "about " : "",
                          kernel.iterations);
    html += fmt::format(
        "<td class=n>{}<td class=n>{:.3f}<td class=n>{}<td>{}<td class=region title=\"{}\">{}</tr>",
        kernel.threads, kernel.flops / 1e6, size_text(kernel.bytes), escaped(kernel.bound),
        escaped(kernel.region + "\n" + kernel.reason), escaped(kernel.region + inside));
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

}  // namespace

std::string explain_page(const Report& report) {
  std::string html;
  for (const std::string& note : report.notes) html += fmt::format("<p>{}</p>", escaped(note));
  html += cards(report);
  html += page_section(
      "Where the time goes",
      "The kernels in the order in which they run. A pointer over the last column shows "
      "all ops inside and why the kernel is what it is.",
      legend(report) + kernels_table(report));
  html +=
      page_section("The plan as a graph",
                   "A box is a kernel (number, kind, predicted time, measured time where there is "
                   "one; below: the ops that it fuses), an arrow a buffer, thicker where it is "
                   "larger. Rounded boxes are inputs and outputs.",
                   "<div class=scroll>" + graph_picture(report) + "</div>");
  html += page_section(
      "The arena over time",
      "Each rectangle is a buffer: from the kernel that writes it to the last that reads "
      "it, at its offset, in the colour of its maker. Hatched: nothing lives there. "
      "Black: live bytes; dashed green: no arena could be smaller.",
      "<div class=scroll>" + arena_picture(report) + "</div>");
  html +=
      page_section("What the planner asked",
                   "Each optional fusion as both alternatives would run, the score in ns won, and "
                   "the answer.",
                   questions_table(report));
  html += page_section("Devices", "Each candidate with its predicted time.", devices_table(report));
  html +=
      page_section("Claims", "Which composite ops the device takes whole.", claims_table(report));
  return page_of(report.model, fmt::format("on {}: {}", report.device, report.plan.devices.reason),
                 html);
}

}  // namespace rlx::tools
