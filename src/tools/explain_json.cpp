// rlx explain as JSON, and as a trace for Perfetto.
#include <nlohmann/json.hpp>

#include "tools/explain.hpp"
#include "tools/printable.hpp"

namespace rlx::tools {
namespace {

using Json = nlohmann::ordered_json;

Json profile_json(const GraphIoProfile& io) {
  return {{"kernel_launches", io.kernel_launches},
          {"sync_points", io.sync_points},
          {"host_output_bytes", io.host_output_bytes},
          {"device_traffic_bytes", io.device_traffic_bytes}};
}

Json kernel_json(const Explanation::Kernel& kernel, std::size_t index) {
  Json item = {{"index", index},
               {"name", kernel.name},
               {"region", kernel.region},
               {"threads", kernel.threads},
               {"flops", kernel.flops},
               {"bytes", kernel.bytes},
               {"predicted_us", kernel.predicted_us},
               {"bound", kernel.bound},
               {"reads", kernel.reads},
               {"writes", kernel.writes},
               {"reason", kernel.reason}};
  if (kernel.inside.empty()) return item;
  item["iterations"] = kernel.iterations;
  item["iterations_assumed"] = kernel.assumes_iterations;
  for (std::size_t i = 0; i < kernel.inside.size(); ++i)
    item["inside"].push_back(kernel_json(kernel.inside[i], i));
  return item;
}

Json kernels_json(const Report& report) {
  Json list = Json::array();
  for (std::size_t i = 0; i < report.plan.kernels.size(); ++i) {
    Json item = kernel_json(report.plan.kernels[i], i);
    if (report.is_measured()) item["measured_us"] = report.measured_us[i];
    list.push_back(std::move(item));
  }
  return list;
}

Json questions_json(const Explanation& plan) {
  Json list = Json::array();
  for (const FusionQuestion& question : plan.questions) {
    list.push_back({{"what", question.what},
                    {"kind", question.kind},
                    {"before", profile_json(question.before)},
                    {"after", profile_json(question.after)},
                    {"before_ns", question.before_ns},
                    {"after_ns", question.after_ns},
                    {"work_added_ns", question.work_added_ns},
                    {"score_ns", question.score_ns},
                    {"fused", question.fused}});
  }
  return list;
}

Json devices_json(const DeviceChoice& choice) {
  Json list = Json::array();
  for (const DeviceChoice::Candidate& candidate : choice.candidates) {
    list.push_back(
        {{"device", name_of(candidate.device)},
         {"eligible", candidate.eligible},
         {"chosen", candidate.device == choice.device},
         {"predicted_ms", candidate.predicted_ns < 0 ? Json() : Json(candidate.predicted_ns / 1e6)},
         {"calibrated", candidate.calibrated},
         {"reason", candidate.reason}});
  }
  return list;
}

Json buffers_json(const Explanation& plan) {
  Json list = Json::array();
  for (const Explanation::Buffer& buffer : plan.buffers) {
    list.push_back({{"name", buffer.name},
                    {"storage", buffer.storage},
                    {"dtype", buffer.dtype},
                    {"bytes", buffer.bytes},
                    {"offset", buffer.offset},
                    {"first_kernel", buffer.first_kernel},
                    {"last_kernel", buffer.last_kernel}});
  }
  return list;
}

Json claims_json(const Explanation& plan) {
  Json list = Json::array();
  for (const Explanation::Claim& claim : plan.claims) {
    list.push_back({{"op", claim.op},
                    {"origin", claim.origin},
                    {"taken", claim.taken},
                    {"reason", claim.reason}});
  }
  return list;
}

std::string dumped(const Json& json) { return json_text(json) + "\n"; }

/// Adds an event of a track; times in us.
void add_event(int track, const char* category, const KernelLine& line, double start,
               double duration, Json& events) {
  const Explanation::Kernel& kernel = *line.kernel;
  Json args = {{"kernel", line.number}, {"region", kernel.region}, {"threads", kernel.threads},
               {"flops", kernel.flops}, {"bytes", kernel.bytes},   {"limit", kernel.bound}};
  if (!kernel.inside.empty()) args["iterations"] = kernel.iterations;
  events.push_back({{"ph", "X"},
                    {"pid", 1},
                    {"tid", track},
                    {"name", kernel.name},
                    {"cat", category},
                    {"ts", start},
                    {"dur", duration},
                    {"args", std::move(args)}});
}

/// The first iteration of a loop, below the loop's own event: as others it is predicted alone.
void add_iteration(const KernelLine& loop, int track, double start, Json& events) {
  if (loop.kernel->iterations == 0) return;
  for (const KernelLine& line : lines_inside(loop)) {
    const double duration = line.kernel->predicted_us;
    add_event(track, "iteration", line, start, duration, events);
    add_iteration(line, track, start, events);
    start += duration;
  }
}

/// Kernels one after the other on a track.
void add_track(const Report& report, int track, const char* name, bool measured, Json& events) {
  events.push_back({{"ph", "M"},
                    {"pid", 1},
                    {"tid", track},
                    {"name", "thread_name"},
                    {"args", {{"name", name}}}});
  double start = 0;
  for (std::size_t i = 0; i < report.plan.kernels.size(); ++i) {
    const KernelLine line{std::to_string(i), &report.plan.kernels[i]};
    const double duration = measured ? report.measured_us[i] : line.kernel->predicted_us;
    add_event(track, name, line, start, duration, events);
    if (!measured) add_iteration(line, track, start, events);
    start += duration;
  }
}

}  // namespace

std::string explain_json(const Report& report) {
  const Explanation& plan = report.plan;
  Json json = {{"model", report.model},
               {"device", name_of(plan.devices.device)},
               {"device_name", report.device},
               {"device_reason", plan.devices.reason},
               {"notes", report.notes},
               {"clock_ghz", plan.clock_ghz},
               {"predicted_ms", plan.predicted_ms},
               {"beside_kernels_us", beside_kernels_us(plan)}};
  if (report.measured_ms >= 0) json["measured_ms"] = report.measured_ms;
  json["planning_ms"] = plan.planning_ms;
  json["graph_io"] = profile_json(plan.static_io);
  json["plan_io"] = profile_json(plan.planned_io);
  json["memory"] = {{"weights_bytes", plan.memory.weights_bytes},
                    {"arena_bytes", plan.memory.arena_bytes},
                    {"arena_lower_bound_bytes", plan.memory.arena_lower_bound_bytes},
                    {"scratch_bytes", plan.memory.scratch_bytes}};
  json["kernels"] = kernels_json(report);
  json["buffers"] = buffers_json(plan);
  json["questions"] = questions_json(plan);
  json["claims"] = claims_json(plan);
  json["devices"] = devices_json(plan.devices);
  return dumped(json);
}

std::string explain_trace(const Report& report) {
  Json events = Json::array();
  events.push_back({{"ph", "M"},
                    {"pid", 1},
                    {"name", "process_name"},
                    {"args", {{"name", report.model + " on " + report.device}}}});
  add_track(report, 1, "predicted", false, events);
  if (report.is_measured()) add_track(report, 2, "measured", true, events);
  const std::vector<std::int64_t> live = live_bytes(report.plan);
  double start = 0;
  for (std::size_t i = 0; i < live.size(); ++i) {
    events.push_back({{"ph", "C"},
                      {"pid", 1},
                      {"name", "arena"},
                      {"ts", start},
                      {"args", {{"live bytes", live[i]}}}});
    start += report.is_measured() ? report.measured_us[i] : report.plan.kernels[i].predicted_us;
  }
  return dumped({{"traceEvents", events}, {"displayTimeUnit", "ns"}});
}

}  // namespace rlx::tools
